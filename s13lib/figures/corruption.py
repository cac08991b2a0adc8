"""The padding bug step by step: the run's batch sizes and alarms, and what a request says under a policy and alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from s13lib.errors import look_up, require
from s13lib.figures import svg
from s13lib.figures.gauges import MINIMUM_WIDTH
from s13lib.figures.hatch import hatch

WORDS = {
    "en": {
        "steps": "All steps of the run",
        "real": "rows of requests",
        "padding": "padding rows",
        "alarm": "alarm of the audit",
        "differ": "logits differ",
        "now": "this step",
        "step": "step {}: {} requests in {} rows",
        "alarmed": "the audit raises an alarm",
        "differing": "rows with other logits than alone: {}",
        "same": "the same so far",
        "parts": "another text from character {} on",
        "alone": "alone",
        "ended": "finished",
        "join": "; ",
        "colon": ": ",
    },
    "zh": {
        "steps": "整次运行的所有步",
        "real": "请求的行",
        "padding": "补齐的行",
        "alarm": "审计报警",
        "differ": "logits 有出入",
        "now": "这一步",
        "step": "第 {} 步：{} 个请求，共 {} 行",
        "alarmed": "审计报警",
        "differing": "{} 行的 logits 与单独运行时不同",
        "same": "到目前为止相同",
        "parts": "从第 {} 个字符起不同",
        "alone": "单独运行",
        "ended": "已结束",
        "join": "；",
        "colon": "：",
    },
}
MARGIN = 12
ROW_HEIGHT, STRIP_HEAD, STRIP_FOOT = 7, 50, 40
MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
CHARACTER = 7.3  # a monospaced character of 12 px, with a little room to spare
LINE = 17


@dataclass(frozen=True)
class StepMark:
    """One decode step of a run: its number, real rows, computed rows, whether the audit cried, rows that differ."""

    step: int
    n: int
    rows: int
    alarm: bool
    differing: int


@dataclass(frozen=True)
class Stream:
    """What one request was asked, what it has said under the policy, and what it said alone at the same point."""

    name: str
    prompt: str
    said: str
    alone: str
    ended: bool = False

    @property
    def parts_at(self) -> int | None:
        """The first character at which the two texts part, counted from 0; None while they are the same."""
        if self.said == self.alone:
            return None
        shorter = min(len(self.said), len(self.alone))
        return next((at for at in range(shorter) if self.said[at] != self.alone[at]), shorter)


def steps_svg(
    steps: Sequence[StepMark],
    current: int,
    chosen: Collection[int] | None = None,
    language: str = "en",
    width: int = 700,
) -> str:
    """A bar for each decode step, as high as its rows: requests below, padding hatched on top, alarms above.

    Args:
        steps: in the order of time.
        current: position in ``steps`` (not the step's number) that is outlined.
        chosen: positions that stand out; the others fade. None: all.
        language: "en" or "zh".
        width: pixels, at least 480.
    """
    require(len(steps) > 0, "steps", steps, "at least one step")
    require(0 <= current < len(steps), "current", current, f"0 to {len(steps) - 1}")
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    words = look_up(WORDS, language, "language")
    pattern, hatched = hatch(svg.ORANGE, svg.PAPER)
    left, room = float(MARGIN), width - 2 * MARGIN
    each = min(room / len(steps), 24.0)
    high = max(mark.rows for mark in steps) * ROW_HEIGHT
    top = STRIP_HEAD + 16
    base = top + high
    legend, _ = _legend(words, hatched, 26, width)
    body = pattern + svg.text(words["steps"], MARGIN, 16, 14, font_weight="600") + legend
    for at, mark in enumerate(steps):
        x, wide = left + at * each, each - min(1.0, each / 5)
        said = words["step"].format(mark.step, mark.n, mark.rows)
        said += words["join"] + words["alarmed"] if mark.alarm else ""
        said += words["join"] + words["differing"].format(mark.differing) if mark.differing else ""
        real, rest = mark.n * ROW_HEIGHT, (mark.rows - mark.n) * ROW_HEIGHT
        bar = svg.element("title", svg.escape(said))
        bar += svg.element("rect", x=x, y=float(top - 14), width=wide, height=float(high + 24), fill="#ffffff")
        bar += svg.element("rect", x=x, y=float(base - real), width=wide, height=float(real), fill=svg.BLUE)
        if rest:
            style = {"fill": hatched, "stroke": svg.ORANGE, "stroke_width": 0.5}
            bar += svg.element("rect", x=x, y=float(base - real - rest), width=wide, height=float(rest), **style)
        middle = x + wide / 2
        if mark.alarm:
            bar += svg.element("path", d=f"M{middle - 4:.1f} {top - 5}h8l-4 -7z", fill=svg.VERMILION, class_="alarm")
        if mark.differing:
            bar += svg.element("circle", cx=middle, cy=float(base + 6), r=2.5, fill=svg.INK, class_="differs")
        faded = {"opacity": "0.25"} if chosen is not None and at not in chosen else {}
        body += svg.element("g", bar, class_="step", **faded)
    x = left + current * each
    box = {"fill": "none", "stroke": svg.INK, "stroke_width": 2, "class_": "now"}
    body += svg.element("rect", x=x - 1.5, y=float(top - 15), width=each + 2, height=float(high + 26), **box)
    for at in range(0, len(steps), max(1, -(-len(steps) // 12))):
        body += svg.text(str(steps[at].step), left + at * each, base + 26, 11, svg.MUTED)
    return svg.document(body, width, base + STRIP_FOOT - 6, words["steps"])


def streams_svg(streams: Sequence[Stream], policy: str, language: str = "en", width: int = 700, title: str = "") -> str:
    """Two lines for each request: its text under the policy and alone. From where they part it is bold and underlined.

    Long texts keep their ends, cut at the same place in both lines.
    """
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    words = look_up(WORDS, language, "language")
    label_width = max(svg.text_width(word, 12) for word in (policy, words["alone"])) + 12
    fits = int((width - 2 * MARGIN - label_width) // CHARACTER)
    body, y, said = "", 0.0, []
    if title:
        body += svg.text(svg.fit(title, width - 2 * MARGIN, 14), MARGIN, 18, 14, font_weight="600")
        y += 26
    for stream in streams:
        parts_at = stream.parts_at
        verdict = words["same"] if parts_at is None else words["parts"].format(parts_at + 1)
        head = stream.name + words["colon"] + verdict
        head += words["join"] + words["ended"] if stream.ended else ""
        said.append(head)
        body += svg.text(svg.fit(head, width - 2 * MARGIN, 12), MARGIN, y + 14, 12, svg.INK, font_weight="600")
        y += 20
        longest = len(stream.prompt) + max(len(stream.said), len(stream.alone))
        cut = max(0, longest - fits + 1)
        for label, text in ((policy, stream.said), (words["alone"], stream.alone)):
            body += svg.text(label, MARGIN, y + 13, 12, svg.MUTED)
            body += _line(stream.prompt, text, parts_at, cut, MARGIN + label_width, y + 13)
            y += LINE
        y += 8
    return svg.document(body, width, max(y, 1.0), title or policy, words["join"].join(said))


def _line(prompt: str, text: str, parts_at: int | None, cut: int, x: float, y: float) -> str:
    """The prompt in grey, then the text, then what differs from the other line. Line ends are shown as a slash."""
    whole = (prompt + text).replace("\n", "/")
    marks = [len(prompt), len(prompt) + (len(text) if parts_at is None else parts_at), len(whole)]
    styles = (
        {"fill": svg.MUTED},
        {"fill": svg.INK},
        {"fill": "#a33f00", "font_weight": "700", "text_decoration": "underline"},  # vermilion, dark enough to read
    )
    out, start = (svg.element("tspan", "…", fill=svg.MUTED) if cut else ""), cut
    for end, style in zip(marks, styles, strict=True):
        if end > start:
            out += svg.element("tspan", svg.escape(whole[start:end].replace(" ", "\u00a0")), **style)
            start = end
    return svg.element("text", out, x=float(x), y=float(y), font_size=12, font_family=MONO) if out else ""


def _legend(words: dict[str, str], hatched: str, y: float, width: float) -> tuple[str, float]:
    out, x = "", float(MARGIN)
    for key in ("real", "padding", "alarm", "differ", "now"):
        label_width = svg.text_width(words[key], 12)
        if x > MARGIN and x + 18 + label_width > width - MARGIN:
            x, y = float(MARGIN), y + 20
        if key == "alarm":
            out += svg.element("path", d=f"M{x + 2:.1f} {y + 10}h8l-4 -7z", fill=svg.VERMILION)
        elif key == "differ":
            out += svg.element("circle", cx=x + 6, cy=y + 6, r=2.5, fill=svg.INK)
        else:
            style = {
                "real": {"fill": svg.BLUE},
                "padding": {"fill": hatched, "stroke": svg.ORANGE, "stroke_width": 0.5},
                "now": {"fill": "none", "stroke": svg.INK, "stroke_width": 2},
            }[key]
            out += svg.element("rect", x=x + 1, y=float(y + 1), width=10, height=10, **style)
        out += svg.text(words[key], x + 18, y + 11, 12)
        x += 18 + label_width + 16
    return out, y + 20

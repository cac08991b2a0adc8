"""The fusion ledger: the operations of one layer, which of them share a kernel, and what passes through memory.

Operations stand in fixed rows, so that going from stage to stage one sees kernels merge and tensors move from memory
into registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from s13lib.errors import look_up, require
from s13lib.figures import svg
from s13lib.figures.gauges import stack_svg, tiles_svg
from s13lib.figures.tables import html_table
from s13lib.simulator import STAGES, Kernel, Setup, middle_layer, step_us
from s13lib.simulator.stages import LAYER

MARGIN, MINIMUM_WIDTH = 12, 480
ROW, SEAM, HEAD = 22, 4, 26
SMALL_SHARE = 0.05
SHADES = (svg.SKY, "#b9dcf2")  # two blues in turn: neighbours are told apart by their outline and number as well
MEMORY, REGISTER = svg.ORANGE, svg.PAPER

WORDS = {
    "en": {
        "stage": "{stage} kernels a layer",
        "kernels": "kernels a layer",
        "launches": "launches a step",
        "tensors": "intermediates a layer",
        "activations": "activations a layer",
        "column_kernel": "kernel: operations",
        "column_tensor": "result",
        "column_bytes": "activations moved",
        "memory": "goes through memory",
        "register": "stays in registers",
        "cache": "to the KV cache",
        "before": "add (of the layer below)",
        "table": "Stages, modelled: {constants}; batch {batch}, context {context}",
        "headers": (
            "stage",
            "kernels a step",
            "intermediates a layer",
            "activations a layer",
            "all bytes saved",
            "step, one by one",
            "step, one graph",
        ),
        "first": (
            "{stage} kernels a layer: every operation is a kernel of its own, {launches} launches a step; {tensors} "
            "intermediates and {activations} of activations a layer pass through memory (modelled)."
        ),
        "later": (
            "{stage} kernels a layer instead of 15: {launches} launches a step; {tensors} intermediates "
            "and {activations} of activations a layer pass through memory. That saves {saved} of all bytes: {gain} "
            "(modelled)."
        ),
        "small": "the gain is launches and kernel boundaries",
        "large": "the gain is launches, kernel boundaries and memory traffic",
    },
    "zh": {
        "stage": "每层 {stage} 个 kernel",
        "kernels": "每层 kernel",
        "launches": "每步启动次数",
        "tensors": "每层中间张量",
        "activations": "每层激活读写",
        "column_kernel": "kernel：所含操作",
        "column_tensor": "结果",
        "column_bytes": "激活读写量",
        "memory": "经过显存",
        "register": "留在寄存器里",
        "cache": "写入 KV 缓存",
        "before": "add（下面一层的）",
        "table": "各阶段（模型推算）：{constants}；batch {batch}，上下文 {context}",
        "headers": (
            "阶段",
            "每步 kernel",
            "每层中间张量",
            "每层激活读写",
            "省下的总字节",
            "逐个启动的一步",
            "graph 回放的一步",
        ),
        "first": (
            "每层 {stage} 个 kernel：每个操作各是一个 kernel，每步启动 {launches} 次；每层有 {tensors} 个中间张量、"
            "{activations} 激活数据经过显存（模型推算）。"
        ),
        "later": (
            "每层 {stage} 个 kernel，而不是 15 个：每步启动 {launches} 次；每层有 {tensors} 个中间张量、{activations} "
            "激活数据经过显存。总字节只省 {saved}：{gain}（模型推算）。"
        ),
        "small": "收益在于启动次数和 kernel 边界",
        "large": "收益在于启动次数、kernel 边界和显存读写",
    },
}


@dataclass(frozen=True)
class LedgerRow:
    """One fusion stage: a layer's kernels, what they move (bytes, one layer), and the step's time in microseconds."""

    stage: int
    kernels: tuple[Kernel, ...]
    kernels_per_step: int
    weight_bytes: float
    cache_bytes: float
    activation_bytes: float
    step_us: float
    graph_step_us: float

    @property
    def intermediates(self) -> tuple[str, ...]:
        """The tensors that a layer writes to memory for another kernel to read, in order; the KV cache is none."""
        return tuple(_name(t) for kernel in self.kernels for t in kernel.outputs if "_cache" not in t)

    @property
    def all_bytes(self) -> float:
        """Weights, cached keys and values, and activations of one layer."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes


def ledger(setup: Setup) -> dict[int, LedgerRow]:
    """All stages, from 15 kernels a layer to 4, for the decode step that ``setup`` describes."""
    return _ledger(replace(setup, stage=15, graph=False))


@lru_cache(maxsize=32)
def _ledger(setup: Setup) -> dict[int, LedgerRow]:
    rows = {}
    for stage in STAGES:
        at = replace(setup, stage=stage)
        layer = middle_layer(at)
        rows[stage] = LedgerRow(
            stage=stage,
            kernels=layer,
            kernels_per_step=len(at.kernels()),
            weight_bytes=sum(k.weight_bytes for k in layer),
            cache_bytes=sum(k.cache_bytes for k in layer),
            activation_bytes=sum(k.activation_bytes for k in layer),
            step_us=step_us(at),
            graph_step_us=step_us(replace(at, graph=True)),
        )
    return rows


def saved_share(setup: Setup, stage: int) -> float:
    """Share of the bytes of a layer without fusion that ``stage`` saves, 0 to 1."""
    rows = ledger(setup)
    return 1 - rows[stage].all_bytes / rows[15].all_bytes


def ledger_svg(setup: Setup, language: str = "en", width: int = 700) -> str:
    """One layer at ``setup.stage``: kernels as boxes around their operations, results, and what each kernel moves.

    Args:
        setup: a decode step; its stage is the one that is drawn.
        language: "en" or "zh".
        width: pixels, at least 480.
    """
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    words = look_up(WORDS, language, "language")
    row = ledger(setup)[setup.stage]
    tiles = [
        (words["kernels"], str(len(row.kernels))),
        (words["launches"], f"{row.kernels_per_step:,}"),
        (words["tensors"], str(len(row.intermediates))),
        (words["activations"], kilobytes(row.activation_bytes)),
    ]
    title = words["stage"].format(stage=setup.stage)
    pictures = [tiles_svg(tiles, width, title), _layer_svg(setup, row, words, width, title)]
    return stack_svg(pictures, width, title, ledger_sentence(setup, language))


def kilobytes(size: float) -> str:
    """Bytes for people, in units of 1000."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} KB"


def _layer_svg(setup: Setup, row: LedgerRow, words: dict, width: int, title: str) -> str:
    left, right = MARGIN, width - MARGIN
    tensors = left + 0.36 * (right - left)
    bytes_at = left + 0.70 * (right - left)
    longest = max(k.activation_bytes for r in ledger(setup).values() for k in r.kernels)
    body = ""
    for x, name in ((left, "column_kernel"), (tensors, "column_tensor"), (bytes_at, "column_bytes")):
        body += svg.text(words[name], x, 17, 12, svg.MUTED, font_weight="600")

    slots = _slots(row)
    for number, kernel in enumerate(row.kernels):
        top = HEAD + slots[kernel.operations[0], number] * ROW
        height = len(kernel.operations) * ROW - SEAM
        hover = f"{number + 1}: {kernel.name}, {kilobytes(kernel.activation_bytes)}"
        body += svg.element(
            "rect",
            svg.element("title", svg.escape(hover)),
            x=float(left),
            y=float(top),
            width=float(tensors - left - 12),
            height=height,
            rx=5,
            fill=SHADES[number % 2],
            stroke=svg.BLUE,
            class_="kernel",
        )
        body += svg.text(str(number + 1), left + 7, top + 13, 11, svg.INK, font_weight="600")
        for at, operation in enumerate(kernel.operations):
            y = top + at * ROW
            name = words["before"] if (operation, at, number) == ("add_2", 0, 0) else operation.removesuffix("_2")
            body += svg.text(svg.fit(name, tensors - left - 50, 12), left + 28, y + 13, 12)
            body += _results(operation, kernel, words, tensors, y, bytes_at - tensors - 12)
        body += _moved(kernel, longest, bytes_at, right, top, height)

    y = HEAD + (len(LAYER) + 1) * ROW + 4
    legend, y = _legend(words, y, width)
    return svg.document(body + legend, width, y, title)


def _slots(row: LedgerRow) -> dict[tuple[str, int], int]:
    """The row in which each kernel's operations start: (operation, kernel) → row.

    Row 0 belongs to the add of the layer below, which only stage 7 takes along; at the other stages it is empty.
    """
    at = 0 if row.kernels[0].operations[0] == "add_2" else 1
    slots = {}
    for number, kernel in enumerate(row.kernels):
        slots[kernel.operations[0], number] = at
        at += len(kernel.operations)
    return slots


def _results(operation: str, kernel: Kernel, words: dict, x: float, y: float, room: float) -> str:
    """The operation's results: filled where they go through memory, dashed where they stay in registers."""
    out, tensors = "", LAYER[operation].writes
    for at, tensor in enumerate(tensors):
        left, each = x + at * room / len(tensors), room / len(tensors)
        name, written = _name(tensor), tensor in kernel.outputs
        state = ("cache" if "_cache" in tensor else "memory") if written else "register"
        hover = svg.element("title", svg.escape(f"{name}: {words[state]}"))
        place = {"x": float(left), "y": float(y + 3), "width": 12, "height": 12, "rx": 2}
        out += svg.element("rect", hover, **place, class_=f"result {state}", **_paint(state))
        out += svg.text(svg.fit(name, each - 20, 11), left + 18, y + 13, 11, svg.INK if written else svg.MUTED)
    return out


def _paint(state: str) -> dict[str, str]:
    if state == "register":
        return {"fill": REGISTER, "stroke": svg.MUTED, "stroke_dasharray": "2 2"}
    return {"fill": MEMORY if state == "memory" else svg.GREEN, "stroke": svg.INK}


def _moved(kernel: Kernel, longest: float, x: float, right: float, top: float, height: float) -> str:
    """The kernel's activation bytes as a bar, and as a number."""
    number_width = 66
    length = max((right - x - number_width) * kernel.activation_bytes / longest, 1.0)
    middle = top + height / 2
    hover = svg.element("title", svg.escape(f"{kernel.name}: {kilobytes(kernel.activation_bytes)}"))
    bar = svg.element("rect", hover, x=float(x), y=middle - 6, width=length, height=12, fill=MEMORY, class_="moved")
    return bar + svg.text(kilobytes(kernel.activation_bytes), x + length + 6, middle + 4, 11)


def _legend(words: dict, y: float, width: float) -> tuple[str, float]:
    out, x = "", float(MARGIN)
    for state in ("memory", "register", "cache"):
        label_width = svg.text_width(words[state], 12)
        if x > MARGIN and x + 18 + label_width > width - MARGIN:
            x, y = float(MARGIN), y + ROW
        out += svg.element("rect", x=x, y=float(y), width=12, height=12, rx=2, **_paint(state))
        out += svg.text(words[state], x + 18, y + 11, 12)
        x += 36 + label_width
    return out, y + ROW


def _name(tensor: str) -> str:
    return tensor.split(":")[0]


def ledger_sentence(setup: Setup, language: str = "en") -> str:
    """The picture in one sentence."""
    words = look_up(WORDS, language, "language")
    row, saved = ledger(setup)[setup.stage], saved_share(setup, setup.stage)
    return words["first" if setup.stage == 15 else "later"].format(
        stage=setup.stage,
        launches=f"{row.kernels_per_step:,}",
        tensors=len(row.intermediates),
        activations=kilobytes(row.activation_bytes),
        saved=f"{saved:.2%}",
        gain=words["small" if saved < SMALL_SHARE else "large"],
    )


def ledger_table(setup: Setup, language: str = "en") -> str:
    """All stages as an HTML table; the one that is drawn is marked."""
    words = look_up(WORDS, language, "language")
    rows = [
        (
            f"{'▶ ' if stage == setup.stage else ''}{stage}",
            f"{row.kernels_per_step:,}",
            len(row.intermediates),
            kilobytes(row.activation_bytes),
            f"{saved_share(setup, stage):.2%}",
            f"{row.step_us / 1000:.2f} ms",
            f"{row.graph_step_us / 1000:.2f} ms",
        )
        for stage, row in ledger(setup).items()
    ]
    constants = setup.provenance
    caption = words["table"].format(constants=constants, batch=setup.batch, context=setup.context)
    return html_table(words["headers"], rows, caption)

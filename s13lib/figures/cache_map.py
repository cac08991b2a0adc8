"""The KV cache as a map: every block with its owner, and the slots that a stranger wrote to.

Nothing is told by colour alone: an owner is a name, a free block is dashed, the scratch block hatched, and a corrupted
block has a thick frame, a cross and the numbers of its slots.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from s13lib.errors import look_up, require
from s13lib.figures import svg
from s13lib.figures.gauges import MINIMUM_WIDTH
from s13lib.figures.hatch import hatch

WORDS = {
    "en": {
        "title": "The KV cache, block by block",
        "owned": "owned (R3: request 3)",
        "free": "free",
        "scratch": "scratch",
        "corrupted": "corrupted",
        "struck": "slot hit in this step",
        "block": "block {}",
        "owner": "belongs to {}",
        "writer": "last written by {}",
        "slot": "slot {}",
        "slots": "corrupted slots {}",
        "many": "{} slots",
        "summary": "blocks owned: {owned}, free: {free}, scratch: 1, corrupted: {corrupted}",
        "none": "no block is corrupted",
        "join": ", ",
        "more": "; ",
    },
    "zh": {
        "title": "KV cache，逐块来看",
        "owned": "有主（R3 即 request 3）",
        "free": "空闲",
        "scratch": "scratch",
        "corrupted": "已污染",
        "struck": "这一步写坏的 slot",
        "block": "block {}",
        "owner": "属于 {}",
        "writer": "最后写入者：{}",
        "slot": "slot {}",
        "slots": "被污染的 slot：{}",
        "many": "{} 个 slot",
        "summary": "有主 {owned} 块，空闲 {free} 块，scratch 1 块，已污染 {corrupted} 块",
        "none": "没有块被污染",
        "join": "、",
        "more": "；",
    },
}
TINTS = ("#d6ecfa", "#fdf0c8", "#d3efe5", "#f5e1ec")  # Okabe and Ito's sky, orange, green and purple, lightened
MARGIN, GAP = 12, 4
TILE_WIDTH, TILE_HEIGHT = 46, 54
HEAD_HEIGHT, LEGEND_ROW = 26, 22
SLOT_HEIGHT = 6


class Block(Protocol):
    """What is drawn of a block; ``s13lib.graphs.audit.BlockState`` is one."""

    block: int
    state: str
    owner: str
    last_writer: str
    corrupted_slots: tuple[int, ...]


def short_name(owner: str) -> str:
    """A name that fits a tile: "request 12" is R12; another name keeps its first letters."""
    head, _, number = owner.rpartition(" ")
    return f"{head[0].upper()}{number}" if head and number.isdigit() else svg.fit(owner, TILE_WIDTH - 8, 13)


def cache_map_svg(
    blocks: Sequence[Block],
    block_size: int = 16,
    struck: Collection[int] = (),
    language: str = "en",
    width: int = 700,
    title: str = "",
) -> str:
    """Draw the blocks of a cache in their order, with a legend.

    Args:
        blocks: states "owned", "free", "scratch" or "corrupted".
        block_size: slots a block; slot numbers are those of the whole cache.
        struck: slots that strangers wrote to just now; they are drawn longer than older damage.
        language: "en" or "zh".
        width: pixels, at least 480.
        title: a heading; default "The KV cache, block by block".
    """
    require(len(blocks) > 0, "blocks", blocks, "at least one block")
    require(block_size >= 1, "block_size", block_size, "at least 1")
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    words = look_up(WORDS, language, "language")
    heading = title or words["title"]
    hatches = {"scratch": hatch("#b8b8b8", svg.PAPER), "corrupted": hatch("#f3c9ae", svg.PAPER)}
    body = "".join(defs for defs, _ in hatches.values())
    fills = {name: fill for name, (_, fill) in hatches.items()}
    columns = int((width - 2 * MARGIN + GAP) // (TILE_WIDTH + GAP))
    owners = list(dict.fromkeys(b.owner for b in blocks if b.owner))
    body += svg.text(svg.fit(heading, width - 2 * MARGIN, 14), MARGIN, 18, 14, font_weight="600")
    for at, block in enumerate(blocks):
        x = MARGIN + at % columns * (TILE_WIDTH + GAP)
        y = HEAD_HEIGHT + at // columns * (TILE_HEIGHT + GAP)
        tint = TINTS[owners.index(block.owner) % len(TINTS)] if block.owner else svg.PAPER
        body += _tile(block, float(x), float(y), tint, fills, block_size, struck, words)
    y = HEAD_HEIGHT + -(-len(blocks) // columns) * (TILE_HEIGHT + GAP) + 6
    legend, y = _legend(words, fills, y, width)
    return svg.document(body + legend, width, y, heading, map_summary(blocks, language))


def map_summary(blocks: Sequence[Block], language: str = "en") -> str:
    """The map in a sentence: how many blocks are owned, free and corrupted, and which those are."""
    words = look_up(WORDS, language, "language")
    hurt = [b for b in blocks if b.state == "corrupted"]
    counts = {state: sum(b.state == state for b in blocks) for state in ("owned", "free")}
    out = words["summary"].format(corrupted=len(hurt), **counts)
    named = [
        words["block"].format(b.block) + words["join"] + words["slots"].format(", ".join(map(str, b.corrupted_slots)))
        for b in hurt
    ]
    return words["more"].join([out, *(named or [words["none"]])])


def _tile(
    block: Block,
    x: float,
    y: float,
    tint: str,
    fills: dict[str, str],
    block_size: int,
    struck: Collection[int],
    words: dict[str, str],
) -> str:
    frame = {
        "owned": {"fill": tint, "stroke": svg.MUTED, "stroke_width": 1},
        "free": {"fill": svg.PAPER, "stroke": "#8a8a8a", "stroke_width": 1, "stroke_dasharray": "3 3"},
        "scratch": {"fill": fills["scratch"], "stroke": svg.MUTED, "stroke_width": 1},
        "corrupted": {"fill": fills["corrupted"], "stroke": svg.VERMILION, "stroke_width": 3},
    }
    style = look_up(frame, block.state, "state of a block")
    inset = style["stroke_width"] / 2
    hover = svg.element("title", svg.escape(_said(block, words)))
    out = hover + svg.element(
        "rect", x=x + inset, y=y + inset, width=TILE_WIDTH - 2 * inset, height=TILE_HEIGHT - 2 * inset, rx=3, **style
    )
    middle = x + TILE_WIDTH / 2
    label = "S" if block.state == "scratch" else short_name(block.owner) if block.owner else ""
    number = svg.text(str(block.block), middle, y + 31, 10, svg.MUTED, text_anchor="middle")
    if block.state == "corrupted":
        # The name stands left and makes room for a cross, which is drawn because not every font has one.
        out += svg.text(label, x + 5, y + 18, 13, font_weight="700") + number
        cross = f"M{x + 35:g} {y + 10:g}l6 6m0 -6l-6 6"
        out += svg.element("path", d=cross, stroke=svg.VERMILION, stroke_width=2.5, fill="none")
        slots = block.corrupted_slots
        shown = words["slot"].format(slots[0]) if len(slots) == 1 else words["many"].format(len(slots))
        out += svg.text(svg.fit(shown, TILE_WIDTH - 4, 9), middle, y + 42, 9, text_anchor="middle")
        per_slot = (TILE_WIDTH - 8) / block_size
        for slot in slots:
            high = SLOT_HEIGHT if slot in struck else SLOT_HEIGHT / 2
            out += svg.element(
                "rect",
                x=x + 4 + slot % block_size * per_slot,
                y=y + TILE_HEIGHT - 4 - high,
                width=max(per_slot, 2.0),
                height=float(high),
                fill=svg.INK if slot in struck else svg.VERMILION,
                class_="struck" if slot in struck else "slot",
            )
    else:
        out += svg.text(label, middle, y + 18, 13, text_anchor="middle", font_weight="600") if label else ""
        out += number
    return svg.element("g", out, class_=f"block {block.state}")


def _said(block: Block, words: dict[str, str]) -> str:
    parts = [words["block"].format(block.block)]
    if block.state == "scratch":
        parts.append(words["scratch"])
    elif block.owner:
        parts.append(words["owner"].format(block.owner))
    else:
        parts.append(words["free"])
    if block.last_writer:
        parts.append(words["writer"].format(block.last_writer))
    if block.corrupted_slots:
        parts.append(words["slots"].format(", ".join(map(str, block.corrupted_slots))))
    return words["more"].join(parts)


def _legend(words: dict[str, str], fills: dict[str, str], y: float, width: float) -> tuple[str, float]:
    """What the four kinds of tiles and a slot struck just now look like, wrapped to the width."""
    swatches = (
        ("owned", {"fill": TINTS[0], "stroke": svg.MUTED}),
        ("free", {"fill": svg.PAPER, "stroke": "#8a8a8a", "stroke_dasharray": "3 3"}),
        ("scratch", {"fill": fills["scratch"], "stroke": svg.MUTED}),
        ("corrupted", {"fill": fills["corrupted"], "stroke": svg.VERMILION, "stroke_width": 2.5}),
        ("struck", {"fill": svg.INK}),
    )
    out, x = "", float(MARGIN)
    for key, style in swatches:
        label_width = svg.text_width(words[key], 12)
        if x > MARGIN and x + 18 + label_width > width - MARGIN:
            x, y = float(MARGIN), y + LEGEND_ROW
        inset = 4 if key == "struck" else 0
        out += svg.element("rect", x=x + inset, y=float(y), width=12 - 2 * inset, height=12, **style)
        out += svg.text(words[key], x + 18, y + 11, 12)
        x += 18 + label_width + 18
    return out, y + LEGEND_ROW

"""Rows → an HTML table: the numbers behind a picture, for those who read or hear rather than look."""

from __future__ import annotations

from collections.abc import Sequence

from s13lib.figures import svg

CELL = "padding:2px 10px;border-bottom:1px solid #c8c8c8;"


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> str:
    """A table with a header row. The first column names its row and stands left; the others stand right."""
    out = f'<caption style="text-align:left;padding:2px 10px;font-weight:600">{svg.escape(caption)}</caption>'
    head = "".join(
        f'<th scope="col" style="{_cell(at)}">{svg.escape(str(name))}</th>' for at, name in enumerate(header)
    )
    body = "".join("<tr>" + "".join(_row_cell(at, value) for at, value in enumerate(row)) + "</tr>" for row in rows)
    return (
        f'<table style="border-collapse:collapse;font-size:13px;line-height:1.4">{out if caption else ""}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row_cell(at: int, value: object) -> str:
    tag, scope = ("th", ' scope="row"') if at == 0 else ("td", "")
    weight = "font-weight:400;" if at == 0 else ""
    return f'<{tag}{scope} style="{_cell(at)}{weight}">{svg.escape(str(value))}</{tag}>'


def _cell(at: int) -> str:
    return f"{CELL}text-align:{'left' if at == 0 else 'right'};"

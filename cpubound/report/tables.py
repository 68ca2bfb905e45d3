"""One table value, rendered as plain text, Markdown or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from cpubound.foreign import visible
from cpubound.report.markup import csv_cell, markdown_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Columns and rows of text; ``right`` names the columns that hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()


Block = str | Table


def render_blocks(blocks: Block | Sequence[Block], style: str = "table") -> str:
    """Return lines of text and tables, with an empty line between them."""
    if isinstance(blocks, str | Table):
        blocks = (blocks,)
    return "\n\n".join(render_block(block, style) for block in blocks if block)


def render_block(block: Block, style: str = "table") -> str:
    """Return lines of text or a table in a style that people read."""
    if isinstance(block, Table):
        return render_table(block, style)
    return markdown_text(block) if style == "markdown" else block


def render_table(table: Table, style: str = "table") -> str:
    """Return the table as text: ``table`` (aligned), ``markdown`` or ``csv``."""
    if style == "csv":
        return _render_csv(table)
    from tabulate import tabulate

    write = markdown_text if style == "markdown" else str
    return tabulate(
        [[write(visible(cell)) for cell in row] for row in table.rows],
        headers=[write(visible(name)) for name in table.columns],
        tablefmt="github" if style == "markdown" else "plain",
        colalign=_alignment(table),
        disable_numparse=True,
        preserve_whitespace=False,
    )


def plain_cell(value: object) -> str:
    """Write a value for a program that reads the table: numbers to six digits, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def indent(text: str, by: int = 2) -> str:
    """Return the text with every line moved to the right."""
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))


def _alignment(table: Table) -> Sequence[str] | None:
    if not table.rows:
        return None
    return ["right" if name in table.right else "left" for name in table.columns]


def _render_csv(table: Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in (table.columns, *table.rows):
        writer.writerow([csv_cell(visible(cell)) for cell in row])
    return buffer.getvalue().rstrip("\n")

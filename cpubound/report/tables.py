"""One table value, rendered as plain text, Markdown or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Columns and rows of text; ``right`` names the columns that hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()


def render_table(table: Table, style: str = "table") -> str:
    """Return the table as text: ``table`` (aligned), ``markdown`` or ``csv``."""
    if style == "csv":
        return _render_csv(table)
    from tabulate import tabulate

    return tabulate(
        table.rows,
        headers=table.columns,
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
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return buffer.getvalue().rstrip("\n")

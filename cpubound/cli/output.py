"""Printing a result: the table on stdout, the JSON document beside it or instead of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cpubound.errors import MachineError, UsageError
from cpubound.report.tables import Table, render_table

if TYPE_CHECKING:
    from cpubound.model.values import ModelSpec


def print_result(
    document: Mapping[str, Any],
    table: Table,
    *,
    style: str,
    json_path: str | None,
    force: bool,
    before: str = "",
    after: str = "",
    text: str | None = None,
    csv_table: Table | None = None,
) -> None:
    """Print a result as asked for.

    Parameters
    ----------
    before, after : lines around the table, in the formats that people read.
    text : printed instead of the table in the format ``table``.
    csv_table : the table for CSV where it differs.
    """
    data = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    if json_path not in (None, "-"):
        write_new_file(Path(str(json_path)), data + "\n", force=force)
    if json_path == "-" or style == "json":
        click.echo(data)
    elif style == "csv":
        click.echo(render_table(csv_table or table, "csv"))
    elif style == "table" and text is not None:
        click.echo(text)
    else:
        parts = (before, render_table(table, style), after)
        separator = "\n\n" if style == "markdown" else "\n"
        click.echo(separator.join(part for part in parts if part))


def warn_beyond_training(specs: Sequence[ModelSpec], tokens: int) -> None:
    """Say on stderr, before a long run, which models were trained for fewer tokens."""
    from cpubound.report.predictions import beyond_training

    beyond = beyond_training(specs, tokens)
    if beyond:
        click.echo(beyond, err=True)


def check_new_file(path: Path, *, force: bool) -> None:
    """Raise before any work if a file is in the way."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file: name another, or - to print")
    if path.exists() and not force:
        raise UsageError(f"{path} exists: give --force to replace it")


def write_new_file(path: Path, text: str, *, force: bool) -> None:
    """Write a file, refusing to replace one unless forced."""
    check_new_file(path, force=force)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MachineError(
            f"{path} cannot be written ({error.strerror}): choose another place"
        ) from error

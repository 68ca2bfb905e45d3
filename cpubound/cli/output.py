"""Printing a result: the table on stdout, the JSON document beside it or instead of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpubound.cli.terminal import say
from cpubound.errors import MachineError, UsageError
from cpubound.report.markup import json_text
from cpubound.report.tables import Block, Table, render_blocks, render_table

if TYPE_CHECKING:
    from cpubound.model.values import ModelSpec


def print_result(
    document: Mapping[str, Any],
    table: Table,
    *,
    style: str,
    json_path: str | None,
    force: bool,
    before: Block | Sequence[Block] = "",
    after: Block | Sequence[Block] = "",
    text: str | None = None,
    csv_table: Table | None = None,
) -> None:
    """Print a result as asked for.

    Parameters
    ----------
    before, after : what stands around the table in the formats that people read: lines under
        each other, blocks with an empty line between them.
    text : printed instead of the table in the format ``table``.
    csv_table : the table for CSV where it differs.
    """
    data = json_text(document)
    if json_path not in (None, "-"):
        write_new_file(Path(str(json_path)), data + "\n", force=force)
    if json_path == "-" or style == "json":
        say(data)
    elif style == "csv":
        say(render_table(csv_table or table, "csv"))
    elif style == "table" and text is not None:
        say(text)
    else:
        parts = (render_blocks(part, style) for part in (before, table, after))
        has_blocks = style == "markdown" or not isinstance(after, str)
        say(("\n\n" if has_blocks else "\n").join(part for part in parts if part))


def warn_beyond_training(specs: Sequence[ModelSpec], tokens: int) -> None:
    """Say on stderr, before a long run, which models were trained for fewer tokens."""
    from cpubound.report.predictions import beyond_training

    beyond = beyond_training(specs, tokens)
    if beyond:
        say(beyond, err=True)


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

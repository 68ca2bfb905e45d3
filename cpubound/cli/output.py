"""Giving a result out: the table on stdout, the JSON document and the picture into files.

None of them stands in the way of another: what cannot be saved is kept elsewhere, or printed.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpubound.cli.terminal import say
from cpubound.cli.termination import signals_held
from cpubound.errors import MachineError, UsageError
from cpubound.foreign import visible
from cpubound.report.markup import json_text
from cpubound.report.tables import Block, Table, render_blocks, render_table
from cpubound.temporary import check_place, write_file

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
    beside: Callable[[], None] | None = None,
) -> None:
    """Print a result as asked for.

    Parameters
    ----------
    before, after : what stands around the table in the formats that people read: lines under
        each other, blocks with an empty line between them.
    text : printed instead of the table in the format ``table``.
    csv_table : the table for CSV where it differs.
    beside : gives out what else there is of it: a picture.
    """
    data = json_text(document)
    if json_path == "-" or style == "json":
        shown = data
    elif style == "csv":
        shown = render_table(csv_table or table, "csv")
    elif style == "table" and text is not None:
        shown = text
    else:
        parts = (render_blocks(part, style) for part in (before, table, after))
        has_blocks = style == "markdown" or not isinstance(after, str)
        shown = ("\n\n" if has_blocks else "\n").join(part for part in parts if part)
    # What was asked for in files first: the reader of standard output may be gone.
    steps: list[Callable[[], None]] = []
    if json_path not in (None, "-"):
        content = f"{data}\n".encode()
        steps.append(partial(save_file, Path(str(json_path)), content, force=force))
    if beside is not None:
        steps.append(beside)
    take_all(*steps, partial(say, shown))


def take_all(*steps: Callable[[], None]) -> None:
    """Take every step, whatever becomes of those before it; then raise what failed first."""
    failed = []
    for step in steps:
        try:
            step()
        except Exception as error:
            failed.append(error)
    if failed:
        raise failed[0]


def note(text: str) -> None:
    """Say on stderr what must be known to read the result."""
    say(f"Note: {visible(text)}", err=True)


def warn_beyond_training(specs: Sequence[ModelSpec], tokens: int) -> None:
    """Say on stderr, before a long run, which models were trained for fewer tokens."""
    from cpubound.report.predictions import beyond_training

    beyond = beyond_training(specs, tokens)
    if beyond:
        say(beyond, err=True)


def check_new_file(path: Path, *, force: bool) -> None:
    """Raise before any work if a file is in the way, or could not be written.

    Raises
    ------
    UsageError : a file is there and ``force`` is not set, or it is no regular file.
    MachineError : its folder is not there or cannot be written.
    """
    refuse_in_the_way(path, force=force)
    try:
        check_place(path)
    except OSError as error:
        raise MachineError(f"{_cannot_write(path, error)}: choose another place") from error


def refuse_in_the_way(path: Path, *, force: bool) -> None:
    """Raise ``UsageError`` if a file is there and ``force`` is not set, or no regular one."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file: name another, or - to print")
    if path.exists() and not force:
        raise UsageError(_in_the_way(path))


def save_file(path: Path, data: bytes, *, force: bool) -> None:
    """Write a file; where that fails, keep what it would hold elsewhere, and say where.

    Raises
    ------
    UsageError : a file is there by now and ``force`` is not set.
    MachineError : it cannot be written.
    """
    with signals_held():
        try:
            write_file(path, data, replace=force)
        except FileExistsError as error:
            raise UsageError(f"{_in_the_way(path)}; {keep_elsewhere(data, path.suffix)}") from error
        except OSError as error:
            what = _cannot_write(path, error)
            raise MachineError(
                f"{what}: {keep_elsewhere(data, path.suffix)}; or choose another place"
            ) from error


def keep_elsewhere(data: bytes, suffix: str) -> str:
    """Keep what could not be saved where temporary files go, else print it; say which."""
    try:
        folder = Path(tempfile.gettempdir())
        place = folder / f"cpubound-result-{secrets.token_hex(4)}{suffix}"
        write_file(place, data, replace=False)
    except OSError:
        try:
            say(data.decode())
        except (OSError, UnicodeDecodeError):
            return "and nowhere else: free some space and run it again"
        return "it is printed on standard output instead: redirect it with > FILE"
    return f"it is kept as {place}: move it to where it belongs"


def _in_the_way(path: Path) -> str:
    return f"{path} exists: give --force to replace it"


def _cannot_write(path: Path, error: OSError) -> str:
    return f"{path} cannot be written ({error.strerror})"

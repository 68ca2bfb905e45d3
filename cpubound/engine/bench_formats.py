"""The formats that llama-bench prints, as mappings from its field names to what stands there.

From the printers of ``tools/llama-bench/llama-bench.cpp``, llama.cpp commit 0c1e57098bba.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any


class UnreadableEntry(ValueError):
    """Text that is no row where one should be: names its line."""


def read_entries(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield every test in the text: JSON, JSON lines, SQL, CSV or markdown, whatever is around it.

    Raises ``UnreadableEntry`` for a broken row.
    """
    if re.search(r'"(?:avg_ts|avg_ns|samples_ns)"\s*:', text):
        return _json_entries(text)
    if _INSERT.search(text):
        return _sql_entries(text)
    if any(_is_csv_header(line) for line in text.splitlines()):
        return _csv_entries(text)
    return _markdown_entries(text)


def _json_entries(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield every object of an array or of lines, whatever stands between them.

    An array that ends amid an object is what an interrupted run leaves.
    """
    decoder = json.JSONDecoder()
    start = re.compile(r'\{\s*"')
    found = start.search(text)
    while found:
        try:
            entry, end = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            if not text[error.pos :].strip(' \n\r\t"'):
                return
            raise UnreadableEntry(f"line {error.lineno}: {error.msg}") from error
        except (RecursionError, ValueError) as error:
            line = text.count("\n", 0, found.start()) + 1
            raise UnreadableEntry(f"line {line}: {str(error)[:80]}") from error
        yield entry
        found = start.search(text, end)


# sql_printer::print_test; quotes in a value are doubled.
_INSERT = re.compile(r"\bINSERT INTO \w+ \(([^()]*avg_ts[^()]*)\) VALUES \((.*)\);")


def _sql_entries(text: str) -> Iterator[Mapping[str, Any]]:
    for insert in _INSERT.finditer(text):
        columns = [name.strip() for name in insert[1].split(",")]
        rows = csv.reader([insert[2]], quotechar="'", skipinitialspace=True)
        try:
            cells = next(rows, [])
        except csv.Error as error:
            raise UnreadableEntry(f"an INSERT: {error}") from error
        if len(cells) != len(columns):
            raise UnreadableEntry(f"an INSERT with {len(cells)} values for {len(columns)} columns")
        yield dict(zip(columns, cells, strict=True))


def _is_csv_header(line: str) -> bool:
    names = [name.strip().strip('"') for name in line.split(",")]
    return "avg_ts" in names and "n_gen" in names


def _csv_entries(text: str) -> Iterator[Mapping[str, Any]]:
    columns: list[str] = []
    reader = csv.reader(text.splitlines())
    try:
        for cells in reader:
            if _is_csv_header(",".join(cells)):
                columns = [cell.strip() for cell in cells]
            elif columns and len(cells) == len(columns):
                yield dict(zip(columns, cells, strict=True))
            elif columns and len(cells) > len(columns) // 2:
                raise UnreadableEntry(
                    f"line {reader.line_num}: {len(cells)} cells under {len(columns)} columns"
                )
    except csv.Error as error:
        raise UnreadableEntry(f"line {reader.line_num}: {error}") from error


# As the tables name fields (markdown_printer::get_field_display_name).
_MARKDOWN_NAMES = {
    "model": "model_type",
    "size": "model_size",
    "params": "model_n_params",
    "backend": "backends",
    "ngl": "n_gpu_layers",
    "threads": "n_threads",
    "fa": "flash_attn",
    "rpk": "repack",
    "mmap": "use_mmap",
    "lm": "load_mode",
    "dev": "devices",
    "t/s": "avg_ts",
}
_BUILD = re.compile(r"\bbuild: ([0-9a-f]{6,40}) \((\d{1,9})\)")
_TEST = re.compile(r"(?:pp\s*(\d+))?\s*\+?\s*(?:tg\s*(\d+))?\s*(?:@\s*(?:d|pp)\s*(\d+))?")


def _markdown_entries(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of every table with a test and its t/s.

    llama-bench names its build under a table; where people put it above, the rows that no
    later line claims have it too.
    """
    columns: list[str] = []
    waiting: list[dict[str, Any]] = []
    build: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        named = _BUILD.search(line)
        if named:
            build = {"build_commit": named.group(1), "build_number": named.group(2)}
            yield from ({**entry, **build} for entry in waiting)
            waiting = []
            continue
        if "|" not in line:
            # Prose ends a table; an empty line amid its rows does not.
            columns = [] if line.strip(" \t>") else columns
            continue
        cells = split_cells(line)
        names = [cell.lower() for cell in cells]
        if "test" in names and "t/s" in names:
            columns = [_MARKDOWN_NAMES.get(name, name) for name in names]
        elif columns and not all(set(cell) <= set("-: ") for cell in cells):
            if len(cells) != len(columns):
                raise UnreadableEntry(
                    f"line {number}: {len(cells)} cells under {len(columns)} columns"
                )
            waiting.append(_markdown_entry(dict(zip(columns, cells, strict=True)), number))
    yield from ({**build, **entry} for entry in waiting)


def split_cells(line: str) -> list[str]:
    bare = line.strip().lstrip("> \t").strip("`").strip()
    return [cell.strip().strip("*`").strip() for cell in bare.strip("|").split("|")]


def _markdown_entry(cells: Mapping[str, str], line: int) -> dict[str, Any]:
    entry: dict[str, Any] = {name: cell for name, cell in cells.items() if cell not in ("", "-")}
    test = _TEST.fullmatch(cells["test"].lower())
    if test is None or not (test.group(1) or test.group(2)):
        raise UnreadableEntry(f"line {line}: test {cells['test'][:40]!r}")
    entry["n_prompt"], entry["n_gen"], entry["n_depth"] = (int(n or 0) for n in test.groups())
    # The sign between the two is lost in many ways on its way through terminals.
    rates = re.match(r"(\d+(?:[.,]\d+)?)(?:\D+(\d+(?:[.,]\d+)?))?", cells["avg_ts"])
    if rates is None:
        raise UnreadableEntry(f"line {line}: t/s {cells['avg_ts'][:40]!r}")
    entry["avg_ts"], entry["stddev_ts"] = rates.groups()
    for name, units in (("model_size", _SIZE_UNITS), ("model_n_params", _COUNT_UNITS)):
        if name in entry:
            entry[name] = _scaled(entry[name], units)
    return entry


_SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_COUNT_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def _scaled(cell: str, units: Mapping[str, int]) -> int | None:
    match = re.fullmatch(r"(\d{1,9}(?:[.,]\d{1,9})?)\s*(\w*)", cell)
    if match is None or match.group(2) not in units:
        return None
    return round(float(match.group(1).replace(",", ".")) * units[match.group(2)])

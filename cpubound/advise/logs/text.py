"""What all readers of logs share: clean lines, numbers of any locale, JSON and tables in text."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cpubound import bounds
from cpubound.engine.bench_formats import split_cells

# Objects that cannot be decoded before a text is no longer taken for JSON.
_MAX_BROKEN = 200
_MAX_LOOKED_AT_AGAIN = 2**16  # characters of such an object
_MOST = 1e12

# Bounded, so that a file of digits is passed over in one go. llama.cpp's printf writes the
# decimal sign of LC_NUMERIC in programs that set a locale.
NUMBER = r"(?<![0-9.,])([0-9]{1,12}(?:[.,][0-9]{1,9})?)"

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)")
_PREFIX = re.compile(
    r"""(?x) ^(?:
        (?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s+)  # docker logs -t, kubectl --timestamps
      | (?:\[?\d\d:\d\d:\d\d(?:\.\d+)?\]?\s+)
      | (?:[A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d\s+)  # journalctl, syslog
      | (?:[\w.@-]+\ [\w.@/-]+\[\d+\]:\ )  # host, program and process of journalctl
      | (?:[a-z0-9][\w.-]*[-_]\d+\s+\|\ )  # docker compose logs
      | (?:\d+\.\d\d\.\d{3}\.\d{3}\ [A-Z]\ )  # llama.cpp --log-timestamps --log-prefix
      | (?:(?:std)?(?:out|err)\ [FP]\ )  # files of a container runtime
      | (?:[>`\ \t]+)  # quoted in an issue
    )+"""
)
# What stands on every line that a reader of lines takes anything from.
_TELLS = re.compile(
    rb"eval |Generat|GenAmount|MaxCtx|Model: |Flags:|Draft Results|Output generated|[tT]ok(?:en|/s)"
    rb"|offloaded|load|params|size|n_(?:threads|ctx|drafted)|flash_attn|K \(|CPU : |AVX|draft acc"
    rb"|prefix-match|already cached|slot|task"
)
_DOCKER_JSON = re.compile(r'^\{"log":".*"(?:stream|time)":')


class Log:
    """A printed text, gone through line by line as often as readers like."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __iter__(self) -> Iterator[str]:
        """Yield the beginning of every line, clean."""
        for line in self.whole_lines():
            yield line[: bounds.LOG_LINE_CHARACTERS]

    def whole_lines(self) -> Iterator[str]:
        """Yield lines without colours and without what loggers put before them."""
        for line in io.StringIO(self.text, newline=None):
            yield clean_line(line.rstrip("\n"))


class LongLog(Log):
    """A file that is never in memory as a whole: only what programs print line by line is found.

    ``text`` is empty.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("")
        self.path = path

    def whole_lines(self) -> Iterator[str]:
        """Yield the beginnings of those lines that may say something, clean."""
        is_start = True
        with self.path.open("rb") as file:
            while piece := file.readline(bounds.LOG_LINE_CHARACTERS):
                if is_start and _TELLS.search(piece):
                    yield clean_line(piece.decode("utf-8", "replace").rstrip("\r\n"))
                is_start = piece.endswith(b"\n")


def clean_line(line: str) -> str:
    """Take colours and the prefixes of journald, docker and quotes off a line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if _DOCKER_JSON.match(line):
        try:
            line = str(json.loads(line)["log"]).rstrip("\n")
        except (ValueError, TypeError, KeyError, RecursionError):
            return line
    return _PREFIX.sub("", line)


def number(text: str) -> float:
    """Read what ``NUMBER`` matched."""
    return float(text.replace(",", "."))


def rate_of(tokens: float | None, seconds: float | None) -> float | None:
    """Return tokens per second, None where no token or no time shows."""
    if tokens is None or seconds is None or tokens <= 0 or seconds <= 0:
        return None
    rate = tokens / seconds
    return rate if 0 < rate < _MOST and math.isfinite(rate) else None


def mean_depth(prompt_tokens: int | None, tokens: int | None) -> int | None:
    """Return the mean number of tokens in the cache of a run behind a prompt."""
    return None if prompt_tokens is None else prompt_tokens + (tokens or 0) // 2


def positive(value: object) -> float | None:
    """Return a JSON number above zero, None for everything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e18 else None  # type: ignore[operator,arg-type]


def whole(value: object) -> int | None:
    """Return a JSON count above zero, None for everything else."""
    found = positive(value)
    return None if found is None else int(found)


def json_objects(log: Log) -> Iterator[Mapping[str, Any]]:
    """Yield every outermost JSON object in a text, whatever stands between them."""
    if "{" not in log.text:
        return
    text = "\n".join(log.whole_lines())
    decoder, start = json.JSONDecoder(), re.compile(r'\{\s*"')
    found, broken = start.search(text), 0
    while found and broken < _MAX_BROKEN:
        try:
            value, end = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            # What lies within a broken object is looked at again, but never the whole text.
            end = max(found.end(), error.pos - _MAX_LOOKED_AT_AGAIN)
            broken += 1
        except (ValueError, RecursionError):
            end, broken = found.end(), broken + 1
        else:
            if isinstance(value, dict):
                yield value
        found = start.search(text, end)


def table_rows(log: Log, *names: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of every markdown table that has all of these columns."""
    columns: list[str] = []
    for line in log:
        if line.count("|") < 2:
            columns = [] if line.strip() else columns
            continue
        cells = split_cells(line)
        if set(names) <= set(cells):
            columns = cells
        elif len(cells) == len(columns):
            yield dict(zip(columns, cells, strict=True))


def cell_number(cells: Mapping[str, str], name: str) -> float | None:
    """Return the number that a table's cell begins with, None where there is none."""
    found = re.match(NUMBER, cells.get(name, ""))
    return None if found is None else number(found[1])

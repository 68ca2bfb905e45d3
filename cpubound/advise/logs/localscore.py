"""LocalScore (llamafile): a table of tests with "pp t/s" and "tg t/s".

localscore/printer.cpp, llamafile cfa861a: a test "pp1024+tg16" reads a prompt and generates behind
it; every run of it has a row.
"""

from __future__ import annotations

import re

from cpubound.advise.logs.run import LoggedRun
from cpubound.advise.logs.text import Log, cell_number, mean_depth, table_rows

_TEST = re.compile(r"pp(\d{1,9})\+tg(\d{1,9})")


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read the last row of every test: its rates are means over the runs so far."""
    found: dict[str, LoggedRun] = {}
    for cells in table_rows(log, "test", "pp t/s", "tg t/s"):
        test, rate = _TEST.fullmatch(cells["test"]), cell_number(cells, "tg t/s")
        if test is None or not rate:
            continue
        prompt, tokens = int(test[1]), int(test[2])
        found[cells["test"]] = LoggedRun(
            engine="llamafile",
            tokens_per_s=rate,
            tokens=tokens,
            depth_tokens=mean_depth(prompt, tokens),
        )
    return tuple(found.values())

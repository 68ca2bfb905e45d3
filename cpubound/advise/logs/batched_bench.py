"""llama-batched-bench and llama-sweep-bench: tables and JSON lines of S_TG.

tools/batched-bench/batched-bench.cpp (llama.cpp, 0c1e57098bba): B sequences are decoded for TG
tokens behind a prompt of PP; S_TG is of all together. examples/sweep-bench/sweep-bench.cpp
(ik_llama.cpp, 8337e4cd3): one sequence, N_KV tokens in the cache before it. T_TG has three
decimals, S_TG two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cpubound.advise.logs.build import note_facts
from cpubound.advise.logs.run import LoggedRun
from cpubound.advise.logs.text import (
    Log,
    cell_number,
    json_objects,
    mean_depth,
    positive,
    rate_of,
    table_rows,
    whole,
)


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every row that timed generation."""
    if "S_TG" not in log.text and "speed_tg" not in log.text:
        return ()
    facts: dict[str, Any] = {}
    for line in log:
        note_facts(line, facts)
    rows = [_of_cells(cells) for cells in table_rows(log, "PP", "TG", "N_KV", "T_TG s", "S_TG t/s")]
    found = [replace(row, **facts) for row in rows if row is not None]
    found += [row for entry in json_objects(log) if (row := _of_entry(entry)) is not None]
    return tuple(found)


def _of_cells(cells: Mapping[str, str]) -> LoggedRun | None:
    numbers = {name: cell_number(cells, name) for name in cells}
    counts = {name: int(numbers.get(name) or 0) for name in ("PP", "TG", "N_KV")}
    batch = int(numbers["B"] or 0) if "B" in cells else None
    seconds, speed = numbers["T_TG s"], numbers["S_TG t/s"]
    return _run(counts["PP"], counts["TG"], counts["N_KV"], batch, seconds, speed)


def _of_entry(entry: Mapping[str, Any]) -> LoggedRun | None:
    if "speed_tg" not in entry:
        return None
    counts = {name: whole(entry.get(name)) or 0 for name in ("pp", "tg", "n_kv")}
    batch = whole(entry.get("pl")) if "pl" in entry else None
    seconds, speed = positive(entry.get("t_tg")), positive(entry.get("speed_tg"))
    run = _run(counts["pp"], counts["tg"], counts["n_kv"], batch, seconds, speed)
    flash = entry.get("flash_attn")
    if run is None:
        return None
    return replace(
        run,
        threads=whole(entry.get("n_threads")),
        flash_attn=bool(flash) if flash in (0, 1) else None,
    )


def _run(
    pp: int, tg: int, n_kv: int, batch: int | None, seconds: float | None, printed: float | None
) -> LoggedRun | None:
    """Return the run of a row; without a batch, N_KV is what was in the cache before."""
    sequences = 1 if batch is None else batch
    rate = rate_of(sequences * tg, seconds) or printed
    if not rate or rate <= 0 or not tg or not sequences:
        return None
    return LoggedRun(
        engine="llama-bench",
        tokens_per_s=rate,
        tokens=tg,
        depth_tokens=mean_depth(n_kv if batch is None else pp, tg),
        batch=sequences,
    )

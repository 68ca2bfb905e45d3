"""llama-bench's own formats, and the tables that scripts/compare-llama-bench.py makes of them.

The comparison (llama.cpp, 0c1e57098bba) has a column "t/s NAME" for each of two builds, tests as
"tg128" or "tg128@d4096", and of the settings those columns that differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cpubound.advise.logs.run import LoggedRun
from cpubound.advise.logs.text import Log, cell_number, mean_depth, table_rows
from cpubound.engine.bench_formats import split_cells
from cpubound.engine.bench_rows import BenchRow, read_bench_rows
from cpubound.errors import InputError

_TEST = re.compile(r"tg\s*(\d{1,9})(?:\s*@\s*d\s*(\d{1,9}))?")
_RATE = "t/s "


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every row that timed generation.

    Raises ``InputError`` for a row that cannot be read, and where none timed generation.
    """
    if not log.text or not _looks_like_bench(log):
        return ()
    rows = read_bench_rows("\n".join(log.whole_lines()))
    decode = tuple(_bench_run(row) for row in rows if row.is_decode)
    if not decode:
        raise InputError("no row of the log times generation (tg): run llama-bench with -n 128")
    return decode


def read_comparison(log: Log) -> tuple[LoggedRun, ...]:
    """Read every generation test of a comparison, a run for each build."""
    if "Speedup" not in log.text:
        return ()
    return tuple(run for cells in table_rows(log, "Test", "Speedup") for run in _compared(cells))


def _looks_like_bench(log: Log) -> bool:
    if re.search(r'"(?:avg_ts|samples_ns|samples_ts)"\s*:', log.text):
        return True
    return any(
        ("avg_ts" in line and "n_gen" in line)
        or ("t/s" in line and {"test", "t/s"} <= {cell.lower() for cell in split_cells(line)})
        for line in log
    )


def _bench_run(row: BenchRow) -> LoggedRun:
    return LoggedRun(
        engine="llama-bench",
        tokens_per_s=row.tokens_per_s,
        samples_tokens_per_s=row.samples_tokens_per_s,
        tokens=row.n_gen,
        depth_tokens=row.mean_depth_tokens,
        threads=row.n_threads,
        model=row.model_filename or row.model_type,
        model_parameters=row.model_parameters,
        model_bytes=row.model_size_bytes,
        kv_types=(row.type_k or "f16", row.type_v or "f16"),
        flash_attn=row.uses_flash_attn,
        gpu=", ".join(row.gpu_backends) or None,
    )


def _compared(cells: Mapping[str, str]) -> list[LoggedRun]:
    test = _TEST.fullmatch(cells["Test"])
    if test is None:
        return []
    tokens, threads = int(test[1]), cell_number(cells, "Threads")
    flash = {"yes": True, "no": False}.get(cells.get("FlashAttention", "").lower())
    model = cells.get("Model") or cells.get("File")
    return [
        LoggedRun(
            engine="llama-bench",
            tokens_per_s=rate,
            tokens=tokens,
            depth_tokens=mean_depth(int(test[2] or 0), tokens),
            threads=None if threads is None else int(threads),
            model=model,
            flash_attn=flash,
            gpu=cells.get("GPU") or None,
            notes=(f"the rate is that of build {name.removeprefix(_RATE)}",),
        )
        for name in cells
        if name.startswith(_RATE) and (rate := cell_number(cells, name))
    ]

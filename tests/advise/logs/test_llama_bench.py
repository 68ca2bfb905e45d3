# ruff: noqa: E501
"""llama-bench's files, tables of comparisons, and LocalScore's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpubound.advise.logs import read_log, read_log_file

DATA = Path(__file__).parents[2] / "data" / "llama_bench"
COMPARISON = """\
| CPU                  | Model         |   Threads | Test          |   t/s master |   t/s faster-gemv |   Speedup |
|:---------------------|:--------------|----------:|:--------------|-------------:|------------------:|----------:|
| AMD Ryzen 7 7840U    | llama 8B Q4_0 |         8 | pp512         |        98.12 |            120.40 |      1.23 |
| AMD Ryzen 7 7840U    | llama 8B Q4_0 |         8 | tg128@d4096   |         9.41 |             10.02 |      1.06 |
"""
LOCALSCORE = """\
+----------------------------------------------------------------------------------------------+
|                          AMD Ryzen 7 7840U - 30.6 GiB                                        |
|                          Llama 3.2 1B Instruct - Q4_K - Medium                               |
+----------------------------------------------------------------------------------------------+
| test             | run number | avg time | tokens processed | pp t/s  | tg t/s | ttft     |
| ---------------- | ---------- | -------- | ---------------- | ------- | ------ | -------- |
| pp1024+tg16      | 1/2        | 5.10 s   | 1040 / 1040      | 220.10  | 30.10  | 4.80 s   |
| pp1024+tg16      | 2/2        | 5.10 s   | 1040 / 1040      | 221.10  | 31.20  | 4.80 s   |
"""


@pytest.mark.parametrize("form", ["json", "jsonl", "sql", "csv", "md"])
def test_every_format_gives_its_four_generation_tests(form: str) -> None:
    runs = read_log_file(DATA / f"rows.{form}")
    assert [run.threads for run in runs] == [1, 1, 2, 2]
    assert [run.depth_tokens for run in runs] == [2, 10, 2, 10]


def test_a_comparison_has_a_run_for_each_build() -> None:
    master, faster = read_log(COMPARISON)
    assert (master.tokens_per_s, faster.tokens_per_s) == (9.41, 10.02)
    assert master.notes == ("the rate is that of build master",)
    assert {run.depth_tokens for run in (master, faster)} == {4096 + 64}
    assert {run.threads for run in (master, faster)} == {8}


def test_localscore_gives_the_rate_behind_its_prompt() -> None:
    (run,) = read_log(LOCALSCORE)
    assert (run.engine, run.tokens_per_s, run.depth_tokens) == ("llamafile", 31.2, 1032)

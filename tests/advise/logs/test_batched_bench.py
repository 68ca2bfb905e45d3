# ruff: noqa: E501
"""Tables and lines of llama-batched-bench and llama-sweep-bench."""

from __future__ import annotations

import json

import pytest

from cpubound.advise.logs import choose_run, read_log

BATCHED = """\
main: n_kv_max = 4096, n_batch = 2048, n_ubatch = 512, flash_attn = 1, is_pp_shared = 0, n_gpu_layers = -1, n_threads = 8, n_threads_batch = 8

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |    128 |    1 |    640 |    5.120 |   100.00 |   12.800 |    10.00 |   17.920 |    35.71 |
|   512 |    128 |    4 |   2560 |   20.480 |   100.00 |   20.480 |    25.00 |   40.960 |    62.50 |

llama_perf_context_print:        eval time =   12800.00 ms /   128 runs   (  100.00 ms per token,    10.00 tokens per second)
"""
SWEEP = """\
main: n_kv_max = 2048, n_batch = 2048, n_ubatch = 512, flash_attn = 1, n_gpu_layers = -1, n_threads = 16, n_threads_batch = 16

|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |    128 |    512 |    1,805 |   283,62 |    8,398 |    15,24 |
"""


def test_rows_of_several_sequences_are_rates_of_all_together() -> None:
    one, four = read_log(BATCHED)
    assert (one.tokens_per_s, one.batch, one.depth_tokens) == (10.0, 1, 576)
    assert (four.tokens_per_s, four.batch, four.depth_tokens) == (25.0, 4, 576)
    assert {one.threads, four.threads} == {8}
    assert one.flash_attn is True
    assert "4 sequences" in str(four)


def test_a_sweep_starts_from_what_is_in_the_cache() -> None:
    (run,) = read_log(SWEEP)
    assert run.tokens_per_s == pytest.approx(128 / 8.398)
    assert (run.depth_tokens, run.threads) == (576, 16)


def test_columns_that_later_builds_added_do_not_matter() -> None:
    wide = "\n".join(
        line + "    x |" if line.startswith("|") else line for line in SWEEP.splitlines()
    )
    assert read_log(wide) == read_log(SWEEP)


def test_json_lines_are_read() -> None:
    sweep = {
        "n_kv_max": 2048,
        "n_threads": 16,
        "flash_attn": 1,
        "pp": 512,
        "tg": 128,
        "n_kv": 512,
        "t_tg": 8.4,
        "speed_tg": 15.238,
    }
    batched = {**sweep, "pl": 4, "n_kv": 2560, "t_tg": 20.48, "speed_tg": 25.0}
    found = read_log("\n".join(json.dumps(row) for row in (sweep, batched)))
    assert [(run.batch, run.depth_tokens, run.threads) for run in found] == [
        (1, 576, 16),
        (4, 576, 16),
    ]
    assert found[1].tokens_per_s == pytest.approx(25.0)


def test_one_row_is_chosen_by_its_number() -> None:
    assert choose_run(read_log(BATCHED), 2).batch == 4

# ruff: noqa: E501
"""KoboldCpp's lines of each year."""

from __future__ import annotations

import json

import pytest

from cpubound.advise.logs import choose_run, read_log
from cpubound.errors import UsageError

SAMPLES = {
    "June 2023": (
        "Processing Prompt [BLAS] (120 / 120 tokens)\rGenerating (80 / 80 tokens)\n"
        "Time Taken - Processing:2.1s (18ms/T), Generation:19.4s (243ms/T), Total:21.5s (3.7T/s)",
        1e3 / 243,
        None,
    ),
    "October 2023": (
        "ContextLimit: 1409/2048, Processing:10.4s (8ms/T), Generation:19.4s (243ms/T), Total:29.8s (2.7T/s)",
        1e3 / 243,
        1369,
    ),
    "January 2024": (
        "ContextLimit: 1409/4096, Processing:10.41s (7.8ms/T = 128.21T/s), Generation:19.43s (242.9ms/T = 4.12T/s), Total:29.84s (372.9ms/T = 2.68T/s)",
        4.12,
        1369,
    ),
    "April 2024": (
        "CtxLimit: 1409/4096, Process:10.41s (7.8ms/T = 127.67T/s), Generate:19.43s (242.9ms/T = 4.12T/s), Total:29.84s (2.68T/s)",
        4.12,
        1369,
    ),
    "September 2024": (
        "CtxLimit:1409/4096, Amt:80/512, Init:0.02s, Process:10.41s (7.8ms/T = 127.67T/s), Generate:19.43s (242.9ms/T = 4.12T/s), Total:29.84s (2.68T/s)",
        80 / 19.43,
        1369,
    ),
    "2025": (
        "[21:04:11] CtxLimit:1409/4096, Amt:80/512, Init:0.02s, Process:10.41s (127.67T/s), Generate:19.43s (4.12T/s), Total:29.84s",
        80 / 19.43,
        1369,
    ),
    "with a decimal comma": (
        "CtxLimit:1409/4096, Amt:80/512, Process:10,41s (127,67T/s), Generate:19,43s (4,12T/s), Total:29,84s",
        80 / 19.43,
        1369,
    ),
    "benchmark": (
        "Benchmark Completed - v1.76 Results:\n======\n"
        "Flags: NoAVX2=False Threads=6 HighPriority=False FlashAttention=False KvCache=0\n"
        "Backend: koboldcpp_default.so\nLayers: 0\nModel: mistral-7b.Q4_K_M\nMaxCtx: 4096\nGenAmount: 100\n-----\n"
        "ProcessingTime: 81.120s\nProcessingSpeed: 49.26T/s\nGenerationTime: 26.600s\nGenerationSpeed: 3.76T/s\nTotalTime: 107.720s\n",
        100 / 26.6,
        4046,
    ),
    "perf of the API": (
        json.dumps({"last_process": 7.8, "last_eval": 245.9, "last_token_count": 80, "idle": 1}),
        1e3 / 245.9,
        None,
    ),
}


@pytest.mark.parametrize("year", SAMPLES)
def test_every_form_gives_rate_and_depth(year: str) -> None:
    text, rate, depth = SAMPLES[year]
    (run,) = read_log(text)
    assert run.engine == "koboldcpp"
    assert run.tokens_per_s == pytest.approx(rate)
    assert run.depth_tokens == (None if depth is None else pytest.approx(depth, abs=1))


def test_the_benchmark_names_model_and_threads() -> None:
    (run,) = read_log(SAMPLES["benchmark"][0])
    assert (run.model, run.threads, run.n_ctx) == ("mistral-7b.Q4_K_M", 6, 4096)


def test_llama_cpps_own_times_beside_it_are_not_a_second_run() -> None:
    own = "llama_perf_context_print:        eval time =   19430.00 ms /    80 runs   (  242.88 ms per token,     4.12 tokens per second)\n"
    (run,) = read_log(own + SAMPLES["September 2024"][0])
    assert run.engine == "koboldcpp"


def test_a_run_with_a_draft_model_is_refused() -> None:
    text = SAMPLES["2025"][0] + "\n(Draft Results - Success:40, Failure:12)\n"
    with pytest.raises(UsageError, match="draft model"):
        choose_run(read_log(text))

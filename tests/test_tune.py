from __future__ import annotations

from typing import Any

import pytest
from builders import GB, build_engine, build_machine, build_profile, build_traffic

from cpubound.advise.tune import Advice, tune
from cpubound.prediction.decode import predict_decode

ATTENTION = {("f16", "f16", True): 4.0 * GB, ("f16", "f16", False): 8.0 * GB}


def advise(rates: dict[int, float], *, kv_bytes: int = 0, **machine: Any) -> Advice:
    profile = build_profile(
        dict.fromkeys(rates, 50.0 * GB),
        build_engine({"Q4_0": {t: r * GB for t, r in rates.items()}}, attention=ATTENTION),
    )
    return tune(
        build_machine(max(rates), **machine),
        lambda threads, flash: predict_decode(
            profile, build_traffic({"Q4_0": 10**9}, kv_bytes=kv_bytes, flash_attn=flash), threads
        ),
        tuple(rates),
        model_path="model.gguf",
        cpus_for=lambda threads: tuple(range(threads)),
    )


def test_the_smallest_count_within_three_per_cent_of_the_best_is_chosen() -> None:
    advice = advise({1: 12, 2: 24, 3: 39.2, 4: 40})
    assert advice.recommendation.threads == 3
    assert advice.recommendation.batch_threads == 4
    assert advice.recommendation.cpu_mask == "0x7"


def test_flash_attention_is_chosen_by_its_speed_at_the_depth() -> None:
    assert advise({1: 12, 2: 24}, kv_bytes=10**8).recommendation.flash_attn is False


def test_counts_above_the_effective_cpus_are_never_advised() -> None:
    advice = advise({1: 10, 2: 20, 4: 40}, effective_cpus=2, quota_cpus=2.0)
    assert advice.recommendation.threads == 2
    assert {c.threads for c in advice.table} == {1, 2}


def test_every_command_carries_the_choice() -> None:
    commands = advise({1: 12, 2: 24}).recommendation.commands
    assert set(commands) == {
        "llama-server", "llama-cli", "llama-bench", "llama-cpp-python", "ollama",
    }  # fmt: skip
    assert "-t 2" in commands["llama-server"]
    assert "n_threads=2" in commands["llama-cpp-python"]
    assert commands["ollama"] == "PARAMETER num_thread 2"


def test_what_the_defaults_cost_is_predicted_too() -> None:
    advice = advise({1: 10, 2: 20, 3: 30, 4: 40})
    python = advice.defaults["llama-cpp-python"]
    assert python.threads == 2
    assert python.flash_attn is False
    assert python.tokens_per_s == pytest.approx(20)
    assert advice.defaults["llama.cpp"].threads == 4


def test_the_reason_says_when_more_threads_are_slower() -> None:
    recommendation = advise({1: 40, 2: 6}).recommendation
    assert recommendation.threads == 1
    assert "2 would give 85 % less" in recommendation.reasons[0]

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import GB, build_engine, build_machine, build_profile, build_traffic

from cpubound.advise.tune import Advice, tune
from cpubound.advise.tune.choice import _prompt_reason, divides_work, prefer_even
from cpubound.cost.predict import predict_decode
from cpubound.cost.values import Prediction, PromptPrediction, SecondsByPart
from cpubound.model.values import WeightRead
from cpubound.report.advice import advice_text
from cpubound.setting import Setting

ATTENTION = {
    ("f16", "f16", True): 4.0 * GB,
    ("f16", "f16", False): 8.0 * GB,
    ("q8_0", "q8_0", True): 1.5 * GB,
}
F16 = ("f16", "f16")
Q8 = ("q8_0", "q8_0")


def advise(
    rates: dict[int, float],
    *,
    kv_bytes: int = 0,
    attention: dict[tuple[str, str, bool], float] = ATTENTION,
    depth_tokens: int = 0,
    kv_options: tuple[tuple[str, str], ...] = (F16,),
    resident: dict[str, int] | None = None,
    trained_tokens: int | None = None,
    measured_attention: tuple[tuple[tuple[str, str], bool], ...] = (),
    **machine: Any,
) -> Advice:
    """Advice on a machine with these rates in GB/s; a q8_0 cache is half as large."""
    profile = build_profile(
        dict.fromkeys(rates, 50.0 * GB),
        build_engine({"Q4_0": {t: r * GB for t, r in rates.items()}}, attention=attention),
        machine=build_machine(max(rates), **machine),
    )

    def predict(s: Setting) -> Prediction:
        size = kv_bytes // (1 if s.kv_type_k == "f16" else 2)
        traffic = build_traffic(
            {"Q4_0": 10**9},
            kv_bytes=size,
            setting=s,
            resident_bytes=(resident or {}).get(s.kv_type_k, 10**9),
        )
        return predict_decode(profile, traffic, s.threads)

    return tune(
        profile.machine,
        predict,
        tuple(rates),
        model_path="model.gguf",
        cpus_for=lambda threads: tuple(range(threads)),
        depth_tokens=depth_tokens,
        kv_options=kv_options,
        measured_attention=measured_attention,
        trained_tokens=trained_tokens,
    )


def test_the_smallest_count_within_three_per_cent_of_the_best_is_chosen() -> None:
    advice = advise({1: 12, 2: 24, 3: 39.2, 4: 40})
    assert advice.recommendation.setting.threads == 3
    assert advice.recommendation.batch_threads == 4
    assert advice.recommendation.cpu_mask == "0x7"


def test_flash_attention_is_chosen_by_its_speed_at_the_depth() -> None:
    assert advise({1: 12, 2: 24}, kv_bytes=10**8).recommendation.setting.flash_attn is False


def test_flash_attention_stays_on_where_it_makes_no_difference() -> None:
    alike = {("f16", "f16", True): 4.0 * GB, ("f16", "f16", False): 4.01 * GB}
    advice = advise({1: 12, 2: 24}, kv_bytes=10**8, attention=alike)
    assert advice.recommendation.setting.flash_attn is True
    assert "flash-attention makes no difference at this depth" in advice.recommendation.reasons


def test_counts_above_the_effective_cpus_are_never_advised() -> None:
    advice = advise({1: 10, 2: 20, 4: 40}, effective_cpus=2, quota_cpus=2.0)
    assert advice.recommendation.setting.threads == 2
    assert advice.recommendation.batch_threads == 2
    assert {c.setting.threads for c in advice.table} == {1, 2}


def test_every_command_carries_the_choice() -> None:
    commands = advise({1: 12, 2: 24}).recommendation.commands
    assert set(commands) == {
        "llama-server", "llama-cli", "llama-bench", "llama-cpp-python", "ollama", "ollama serve",
    }  # fmt: skip
    assert "-t 2" in commands["llama-server"]
    assert "n_threads=2" in commands["llama-cpp-python"]
    assert commands["ollama"] == "PARAMETER num_thread 2"


def test_what_the_defaults_cost_is_predicted_too() -> None:
    advice = advise({1: 10, 2: 20, 3: 30, 4: 40})
    python = advice.defaults["llama-cpp-python"]
    assert python.setting.threads == 2
    assert python.setting.flash_attn is False
    assert python.tokens_per_s == pytest.approx(20)
    assert advice.defaults["llama.cpp"].setting.threads == 4


def test_the_reason_says_when_more_threads_are_slower() -> None:
    recommendation = advise({1: 40, 2: 6}).recommendation
    assert recommendation.setting.threads == 1
    assert "2 would give 85 % less" in recommendation.reasons[0]


def test_the_reason_says_what_more_threads_would_gain() -> None:
    assert "4 threads would gain 2 %" in advise({2: 39.2, 4: 40}).recommendation.reasons[0]


@pytest.mark.parametrize(
    ("both", "threads", "reason"),
    [
        (18.0, 2, "second hardware threads out: 4 threads on 2 cores give −10 % over 2"),
        (30.0, 4, "second hardware threads in: 4 threads on 2 cores give +50 % over 2"),
    ],
)
def test_second_hardware_threads_are_said_to_take_part_or_not(
    both: float, threads: int, reason: str
) -> None:
    smt: dict[str, Any] = {"threads_per_core": 2, "core_cpus": ((0, 2), (1, 3))}
    r = advise({1: 10, 2: 20, 4: both}, **smt).recommendation
    assert r.setting.threads == threads
    assert reason in r.reasons


def test_cores_without_second_threads_are_not_spoken_of() -> None:
    reasons = advise({1: 10, 2: 20, 4: 40}).recommendation.reasons
    assert not any("second hardware" in reason for reason in reasons)


def test_a_quantised_cache_that_is_slower_is_not_chosen_but_shown() -> None:
    advice = advise({1: 12, 2: 24}, kv_bytes=10**9, depth_tokens=8192, kv_options=(F16, Q8))
    assert advice.recommendation.setting.kv_type_k == "f16"
    reason = next(r for r in advice.recommendation.reasons if "q8_0" in r)
    assert "flash-attention on" in reason and "−" in reason


def test_a_quantised_cache_that_gains_under_three_per_cent_is_not_chosen() -> None:
    little = {**ATTENTION, ("q8_0", "q8_0", True): 4.05 * GB}
    advice = advise(
        {1: 12, 2: 24}, kv_bytes=10**8, attention=little, kv_options=(F16, Q8), depth_tokens=1024
    )
    assert advice.recommendation.setting.kv_type_k == "f16"


def test_a_quantised_cache_is_chosen_where_only_that_fits_into_memory() -> None:
    advice = advise(
        {1: 12, 2: 24},
        kv_bytes=10**9,
        depth_tokens=8192,
        kv_options=(F16, Q8),
        resident={"f16": 20 * GB, "q8_0": 12 * GB},
    )
    assert advice.recommendation.setting.kv_type_k == "q8_0"
    assert advice.recommendation.setting.flash_attn is True
    assert "-ctk q8_0 -ctv q8_0" in advice.recommendation.commands["llama-server"]


def test_attention_that_was_not_measured_is_no_match_for_what_was() -> None:
    only_on = {("f16", "f16", True): 4.0 * GB}
    settings: dict[str, Any] = {"kv_bytes": 10**8, "attention": only_on}
    measured = advise({1: 12}, measured_attention=((F16, True),), **settings)
    assert measured.recommendation.setting.flash_attn is True
    assert "Note: " not in advice_text(measured)
    unknown = advise({1: 12}, **settings)
    # Read at memory's rate, off looks faster: it is said that nothing was measured.
    assert unknown.recommendation.setting.flash_attn is False
    assert "flash-attn off, was not measured" in advice_text(unknown)


def test_a_context_beyond_the_training_is_said_to_be() -> None:
    advice = advise({1: 12}, depth_tokens=8192, trained_tokens=4096)
    assert any("the 4096 the model was trained for" in r for r in advice.recommendation.reasons)
    advice = advise({1: 12}, depth_tokens=4096, trained_tokens=4096)
    assert not any("trained" in r for r in advice.recommendation.reasons)


def predictions(rates: dict[int, float]) -> list[Prediction]:
    profile = build_profile(
        dict.fromkeys(rates, 50.0 * GB),
        build_engine({"Q4_0": {t: r * GB for t, r in rates.items()}}),
    )
    return [predict_decode(profile, build_traffic({"Q4_0": 10**9}), t) for t in rates]


def test_a_count_that_divides_heads_and_rows_is_preferred_among_near_equals() -> None:
    eight_heads = build_traffic({"Q4_0": 10**9}, kv_bytes=1024)
    near = predictions({3: 39.5, 4: 40})
    assert prefer_even(near, eight_heads).setting.threads == 4
    assert prefer_even(near, None).setting.threads == 3


def test_no_count_is_preferred_that_needs_many_more_threads() -> None:
    eight_heads = build_traffic({"Q4_0": 10**9}, kv_bytes=1024)
    assert prefer_even(predictions({5: 39.5, 8: 40}), eight_heads).setting.threads == 5


def test_an_even_count_that_is_slower_by_more_is_not_preferred() -> None:
    eight_heads = build_traffic({"Q4_0": 10**9}, kv_bytes=1024)
    assert prefer_even(predictions({3: 40, 4: 38}), eight_heads).setting.threads == 3


def test_rows_count_as_heads_do() -> None:
    rows = WeightRead(
        role="ffn", kind="matmul", type="Q4_0", rows=9, columns=32, count=1, n_bytes=1
    )
    traffic = replace(build_traffic({"Q4_0": 10**9}), weights=(rows,))
    assert divides_work(traffic, 3)
    assert not divides_work(traffic, 2)


def test_a_fast_prompt_is_written_without_an_exponent() -> None:
    prompt = PromptPrediction(
        setting=Setting(threads=2),
        model="tiny",
        quant_label="Q4_0",
        prompt_tokens=512,
        seconds=0.5,
        low_s=0.4,
        high_s=0.6,
        tokens_per_s=1109.6,
        time_to_first_token_s=0.5,
        operations=1,
        bound="compute",
        parts=SecondsByPart(weights=0.4, attention=0.05, overhead=0.05),
        fits_in_memory=True,
    )
    assert _prompt_reason(prompt) == ["a prompt of 512 tokens runs at 1110 tok/s with 2 threads"]

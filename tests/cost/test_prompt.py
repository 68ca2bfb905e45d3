"""Batches and prompts: what they move, how long they take, and how they are judged."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from builders import GB, build_engine, build_profile, build_traffic
from fakes import FakeRunner, tiny_model
from observed import cell, observe

from cpubound import api
from cpubound.cost.batch_rates import product_rate
from cpubound.cost.decode import predict_decode
from cpubound.cost.prompt import predict_prompt
from cpubound.errors import ProfileError, UsageError
from cpubound.measuring.plan import load_plan
from cpubound.measuring.probes import plan_probes
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.model.values import WeightRead
from cpubound.profile.values import (
    BatchRate,
    EngineCalibration,
    MachineProfile,
    PromptAttentionRate,
)
from cpubound.units import MIB
from cpubound.validation.cells import Setting, byte_budget_shares, last_batch_on_budget, summarize
from cpubound.validation.prompts import plan_prompt, run_prompts

BANDWIDTH = {1: 20.0 * GB, 2: 30.0 * GB}
SINGLE = 20.0 * GB
# Two tokens are free, from four on each token costs as much as the one before.
TOKENS = {2: SINGLE, 4: SINGLE / 2, 64: SINGLE / 32}
FLOPS = 50.0 * GB


def engine(**changes: object) -> EngineCalibration:
    rows = tuple(
        BatchRate(type="Q4_0", threads=2, tokens=n, bytes_per_s=rate, relative_error=0.01)
        for n, rate in TOKENS.items()
    )
    attention = PromptAttentionRate(
        kv_type_k="F16",
        kv_type_v="F16",
        flash_attn=True,
        head_dim=64,
        threads=2,
        flop_per_s=FLOPS,
        relative_error=0.02,
    )
    calibration = build_engine({"Q4_0": {2: SINGLE}}, attention={("f16", "f16", True): 5.0 * GB})
    return msgspec.structs.replace(
        calibration, **{"batch_rates": rows, "prompt_attention": (attention,), **changes}
    )


def profile(**changes: object) -> MachineProfile:
    return build_profile(BANDWIDTH, engine(**changes))


def read(tokens: float, kind: str = "matmul") -> WeightRead:
    return WeightRead(
        role="ffn",
        kind=kind,
        type="Q4_0",
        rows=1,
        columns=2048,
        count=1,
        n_bytes=10**9,
        tokens=tokens,
    )


@pytest.mark.parametrize(
    ("tokens", "slower"), [(1, 1), (2, 1), (4, 2), (8, 4), (64, 32), (256, 128)]
)
def test_the_pass_through_the_weights_takes_what_so_many_tokens_took(
    tokens: float, slower: float
) -> None:
    rate = product_rate(engine(), read(tokens), 2)
    assert rate is not None
    assert rate.bytes_per_s == pytest.approx(SINGLE / slower, rel=1e-6)


def test_a_type_whose_batches_were_not_measured_says_so_and_is_very_unsure() -> None:
    rate = product_rate(engine(batch_rates=()), read(8), 2)
    assert rate is not None
    assert rate.bytes_per_s == SINGLE
    assert rate.relative_error == 0.5
    assert "not measured" in str(rate.assumption)


def test_experts_take_each_of_their_tokens_as_if_it_came_alone() -> None:
    alone, four = (product_rate(engine(), read(n, kind="experts"), 2) for n in (1.0, 4.0))
    assert alone is not None
    assert four is not None
    assert four.bytes_per_s == pytest.approx(alone.bytes_per_s / 4)
    assert four.relative_error > alone.relative_error


def test_more_tokens_never_read_the_weights_faster() -> None:
    rows = (BatchRate(type="Q4_0", threads=2, tokens=4, bytes_per_s=9e10, relative_error=0.01),)
    rate = product_rate(engine(batch_rates=rows), read(4), 2)
    assert rate is not None
    assert rate.bytes_per_s == SINGLE


def test_a_batch_is_as_fast_as_all_its_sequences_together() -> None:
    single = predict_decode(profile(), build_traffic({"Q4_0": 10**9}), 2)
    traffic = build_traffic({"Q4_0": 10**9}, batch=4)
    weights = tuple(replace(w, tokens=4.0) for w in traffic.weights)
    four = predict_decode(profile(), replace(traffic, weights=weights), 2)
    assert four.tokens_per_s == pytest.approx(2 * single.tokens_per_s)
    assert four.low < four.tokens_per_s < four.high
    assert four.ceiling_tokens_per_s == pytest.approx(4 * single.ceiling_tokens_per_s)


def test_each_sequence_of_a_batch_reads_a_cache_of_its_own() -> None:
    single = predict_decode(profile(), build_traffic({"Q4_0": 10**9}, kv_bytes=10**8), 2)
    four = predict_decode(profile(), build_traffic({"Q4_0": 10**9}, kv_bytes=10**8, batch=4), 2)
    assert four.seconds.attention == pytest.approx(4 * single.seconds.attention)


def test_a_prompt_goes_in_physical_batches_and_needs_one_row_of_logits_each() -> None:
    spec = tiny_model()
    steps = prompt_steps(spec, 1100, flash_attn=True)
    assert [step.batch for step in steps] == [512, 512, 76]
    outputs = [w.tokens for step in steps for w in step.weights if w.role == "output"]
    assert set(outputs) == {1.0}
    assert {w.tokens for w in steps[0].weights if w.role == "attention"} == {512}


def test_behind_the_last_layers_attention_a_prompt_is_one_token() -> None:
    spec = tiny_model()
    step = prompt_steps(spec, 100, flash_attn=True)[0]
    whole = compute_traffic(spec, batch=100)
    ffn = [w for w in step.weights if w.role == "ffn" and w.kind == "matmul"]
    all_bytes = sum(w.n_bytes for w in whole.weights if w.role == "ffn" and w.kind == "matmul")
    assert sum(w.n_bytes for w in ffn) == all_bytes
    assert sum(w.n_bytes for w in ffn if w.tokens == 1) == pytest.approx(all_bytes / step.layers)


def test_behind_the_last_layers_attention_one_token_reads_only_its_own_experts() -> None:
    probes = plan_probes(load_plan(), 128 * MIB)
    spec = next(probe.spec for probe in probes if probe.name == "experts-narrow-Q4_K")
    step = prompt_steps(spec, 512, flash_attn=True)[0]
    decoded = compute_traffic(spec, flash_attn=True)
    experts = [w for w in step.products if w.kind == "experts"]
    last = [w for w in experts if w.tokens == 1]
    of_one_token = sum(w.n_bytes for w in decoded.products if w.kind == "experts")
    assert sum(w.n_bytes for w in last) == pytest.approx(of_one_token / step.layers, rel=1e-6)
    assert sum(w.count for w in last) == 3 * 8
    others = sum(w.n_bytes for w in experts) - sum(w.n_bytes for w in last)
    # 512 tokens choose all of the 40 experts, one chooses 8.
    assert others == pytest.approx(of_one_token * (40 / 8) * (1 - 1 / step.layers), rel=1e-6)


def test_attention_over_a_prompt_sees_half_of_it_on_average() -> None:
    spec = tiny_model()
    short, long = (prompt_steps(spec, n, flash_attn=True)[0] for n in (128, 512))
    ratio = (long.batch * long.attention_operations) / (short.batch * short.attention_operations)
    assert ratio == pytest.approx(16, rel=0.05)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="prompt"):
        prompt_steps(tiny_model(), 0)


def test_a_physical_batch_of_nothing_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"physical batch .*\(0\)"):
        prompt_steps(tiny_model(), 8, ubatch=0)


def test_no_threads_for_a_prompt_are_refused_and_not_replaced() -> None:
    with pytest.raises(UsageError, match="threads"):
        api.predict_prompt(tiny_model(), 8, threads=0, profile=profile())


def test_a_prompt_takes_its_weights_and_its_attention() -> None:
    traffic = build_traffic({"Q4_0": 10**9}, kv_bytes=10**6, batch=64)
    step = replace(traffic, weights=tuple(replace(w, tokens=64.0) for w in traffic.weights))
    found = predict_prompt(profile(), [step], build_traffic({"Q4_0": 10**9}), 2)
    weights_s = 10**9 / (SINGLE / 32)
    attention_s = 64 * step.attention_operations / FLOPS
    assert found.seconds == pytest.approx(weights_s + attention_s)
    assert found.low_s < found.seconds < found.high_s
    assert found.bound == "compute"
    assert found.time_to_first_token_s == pytest.approx(found.seconds + 10**9 / SINGLE)


def test_attention_over_prompts_that_was_not_measured_is_taken_from_decoding_and_said() -> None:
    step = build_traffic({"Q4_0": 10**9}, kv_bytes=10**6, batch=64)
    found = predict_prompt(profile(prompt_attention=()), [step], step, 2)
    assert found.parts.attention == pytest.approx(step.kv_read_bytes / (5.0 * GB))
    assert any("as if each token were decoded" in note for note in found.assumptions)
    neither = predict_prompt(profile(prompt_attention=(), attention=()), [step], step, 2)
    assert neither.parts.attention == pytest.approx(step.kv_read_bytes / BANDWIDTH[2])
    assert any("at read bandwidth" in note for note in neither.assumptions)
    assert not any("as if each token" in note for note in neither.assumptions)


def test_without_rates_for_several_tokens_a_prompt_is_not_predicted() -> None:
    step = build_traffic({"Q4_0": 10**9}, batch=64)
    with pytest.raises(ProfileError, match="calibrate"):
        predict_prompt(profile(batch_rates=()), [step], step, 2)


def test_a_prompt_is_observed_in_rounds_beside_its_prediction() -> None:
    planned = plan_prompt(profile(), tiny_model(), "m.gguf", Setting(threads=2), 64)
    seconds = planned.prediction.seconds
    runner = FakeRunner(seconds_per_step=lambda s: seconds * 1.25)
    found = run_prompts([planned], runner, seconds=0.0, progress=lambda stage, done: None)
    assert found.cells[0].relative_error == pytest.approx(0.25)
    assert found.summary.cells == 1
    assert {run.prompt_tokens for run in runner.runs} == {64}
    assert len(runner.runs) == 3


def test_a_batch_that_gains_what_its_bytes_promise_is_on_the_byte_budget() -> None:
    single = observe([cell(2)], FakeRunner(seconds_per_step=lambda s: 0.05)).cells[0]

    def of_batch(batch: int, gain: float):  # type: ignore[no-untyped-def]
        return msgspec.structs.replace(
            single,
            prediction=msgspec.structs.replace(single.prediction, batch=batch),
            observed_tokens_per_s=single.observed_tokens_per_s * gain,
            naive_tokens_per_s=single.naive_tokens_per_s * batch,
        )

    cells = [single, of_batch(2, 1.9), of_batch(4, 2.0)]
    assert byte_budget_shares(cells) == pytest.approx({1: 1.0, 2: 0.95, 4: 0.5})
    assert last_batch_on_budget(byte_budget_shares(cells)) == 2
    assert byte_budget_shares(cells[1:]) == {}
    assert summarize(cells).cells == 3

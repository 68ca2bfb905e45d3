"""Batches and prompts: what they move, and how they are judged."""

from __future__ import annotations

import msgspec
import pytest
from builders import GB, build_engine, build_profile
from fakes import FakeRunner, tiny_model
from observed import cell, observe

from cpubound import api
from cpubound.errors import UsageError
from cpubound.measuring.plan import load_plan
from cpubound.measuring.probes import plan_probes
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting
from cpubound.units import MIB
from cpubound.validation.cells import byte_budget_shares, last_batch_on_budget, summarize
from cpubound.validation.prompts import plan_prompt, run_prompts


def profile() -> MachineProfile:
    """Two tokens are free, from four on each token costs as much as the one before."""
    batches = {f"bytes:Q8_0@{n}": n / 2 / (20.0 * GB) for n in (2, 4, 64)}
    engine = build_engine(
        {"Q8_0": {2: 20.0 * GB}},
        attention={("f16", "f16", True): 5.0 * GB},
        seconds={**batches, "prompt:F16:F16:on:64": 1 / (50.0 * GB)},
    )
    return build_profile({1: 20.0 * GB, 2: 30.0 * GB}, engine)


def test_a_prompt_goes_in_physical_batches_and_needs_one_row_of_logits_each() -> None:
    spec = tiny_model()
    steps = prompt_steps(spec, 1100, Setting())
    assert [step.setting.batch for step in steps] == [512, 512, 76]
    outputs = [w.tokens for step in steps for w in step.weights if w.role == "output"]
    assert set(outputs) == {1.0}
    assert {w.tokens for w in steps[0].weights if w.role == "attention"} == {512}


def test_behind_the_last_layers_attention_a_prompt_is_one_token() -> None:
    spec = tiny_model()
    step = prompt_steps(spec, 100, Setting())[0]
    whole = compute_traffic(spec, Setting(batch=100, flash_attn=False))
    ffn = [w for w in step.weights if w.role == "ffn" and w.kind == "matmul"]
    all_bytes = sum(w.n_bytes for w in whole.weights if w.role == "ffn" and w.kind == "matmul")
    assert sum(w.n_bytes for w in ffn) == all_bytes
    assert sum(w.n_bytes for w in ffn if w.tokens == 1) == pytest.approx(all_bytes / step.layers)


def test_behind_the_last_layers_attention_one_token_reads_only_its_own_experts() -> None:
    probes = plan_probes(load_plan(), 128 * MIB)
    spec = next(probe.spec for probe in probes if probe.name == "experts-narrow-Q4_K")
    step = prompt_steps(spec, 512, Setting())[0]
    decoded = compute_traffic(spec, Setting())
    experts = [w for w in step.products if w.kind == "experts"]
    last = [w for w in experts if w.tokens == 1]
    of_one_token = sum(w.n_bytes for w in decoded.products if w.kind == "experts")
    assert sum(w.n_bytes for w in last) == pytest.approx(of_one_token / step.layers, rel=1e-6)
    assert sum(w.count for w in last) == 3 * 8
    others = sum(w.n_bytes for w in experts) - sum(w.n_bytes for w in last)
    # 512 tokens choose all of the 12 experts, one chooses 8.
    assert others == pytest.approx(of_one_token * (12 / 8) * (1 - 1 / step.layers), rel=1e-6)


def test_attention_over_a_prompt_sees_half_of_it_on_average() -> None:
    spec = tiny_model()
    short, long = (prompt_steps(spec, n, Setting())[0] for n in (128, 512))
    ratio = (long.setting.batch * long.attention_operations) / (
        short.setting.batch * short.attention_operations
    )
    assert ratio == pytest.approx(16, rel=0.05)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="prompt"):
        prompt_steps(tiny_model(), 0, Setting(flash_attn=False))


def test_a_physical_batch_of_nothing_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"physical batch .*\(0\)"):
        prompt_steps(tiny_model(), 8, Setting(flash_attn=False), ubatch=0)


def test_no_threads_for_a_prompt_are_refused_and_not_replaced() -> None:
    with pytest.raises(UsageError, match="threads"):
        api.predict_prompt(tiny_model(), 8, threads=0, profile=profile())


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
            prediction=msgspec.structs.replace(
                single.prediction,
                setting=msgspec.structs.replace(single.prediction.setting, batch=batch),
            ),
            observed_tokens_per_s=single.observed_tokens_per_s * gain,
            naive_tokens_per_s=single.naive_tokens_per_s * batch,
        )

    cells = [single, of_batch(2, 1.9), of_batch(4, 2.0)]
    assert byte_budget_shares(cells) == pytest.approx({1: 1.0, 2: 0.95, 4: 0.5})
    assert last_batch_on_budget(byte_budget_shares(cells)) == 2
    assert byte_budget_shares(cells[1:]) == {}
    assert summarize(cells).cells == 3

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_measurement, build_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from cpubound import api
from cpubound.cost.law import MemoryLaw
from cpubound.cost.what_if import Question, WhatIf, ask, faster_memory
from cpubound.errors import ProfileError, UsageError
from cpubound.machine.values import MemoryModule
from cpubound.model.catalog import catalog_entry
from cpubound.profile.values import MachineProfile
from cpubound.report.document import to_document
from cpubound.setting import Setting

LAW = MemoryLaw(limit_bytes_per_s=50.0 * GB, sharpness=3.0)
SPEC = catalog_entry("llama-3.1-8b").at("Q8_0")
ATTENTION = {("f16", "f16", True): 4.0 * GB, ("q8_0", "q8_0", True): 1.5 * GB}


def make_profile(rate: float = 50.0 * GB, **machine: Any) -> MachineProfile:
    """Q8_0 at a rate, Q2_K far below memory, reads at 50 GB/s."""
    return build_profile(
        {4: 50.0 * GB},
        build_engine({"Q8_0": {4: rate}, "Q2_K": {4: 10.0 * GB}}, attention=ATTENTION),
        machine=build_machine(4, **machine),
    )


def question(**changes: Any) -> Question:
    return Question(spec=SPEC, setting=Setting(**{"threads": 4, **changes}))


def module(channel: str | None) -> MemoryModule:
    return MemoryModule(
        locator="DIMM",
        type="DDR5",
        size_bytes=16 * 2**30,
        transfers_per_s=5_600_000_000,
        width_bits=64,
        channel=channel,
    )


def test_without_a_limit_in_sight_faster_memory_changes_nothing() -> None:
    law = MemoryLaw(limit_bytes_per_s=math.inf, sharpness=3.0)
    answer = ask(make_profile(), question(), "bandwidth=2x", law)
    assert answer.gain == pytest.approx(0)
    assert answer.note is not None and "memory is not the limit" in answer.note


def test_faster_memory_scales_the_read_bandwidth_too() -> None:
    faster = faster_memory(make_profile(), 1.5, LAW)
    read = faster.measurements("read", "anon_4k")[4]
    assert read.median_bytes_per_s == pytest.approx(75.0 * GB)
    assert faster_memory(make_profile(), 1, LAW) == make_profile()


def test_a_memory_bound_model_gains_what_memory_gains() -> None:
    answer = ask(make_profile(), question(), "bandwidth=1.5x", LAW)
    assert answer.gain == pytest.approx(0.5, abs=0.03)
    assert answer.after.bound == "memory"
    assert answer.note is None


def test_a_kernel_bound_model_hardly_gains_and_is_said_to_be_so() -> None:
    answer = ask(make_profile(), question(), "quant=Q2_K,bandwidth=1x", LAW)
    slow = Question(spec=catalog_entry("llama-3.1-8b").at("Q2_K"), setting=Setting(threads=4))
    faster = ask(make_profile(), slow, "bandwidth=1.5x", LAW)
    assert answer.after.bound == "kernel"
    assert 0 <= faster.gain < 0.02
    assert faster.note is not None and "limited by kernel" in faster.note


def test_the_interval_of_faster_memory_covers_other_sharpnesses() -> None:
    profile = make_profile(40.0 * GB)
    answer = ask(profile, question(), "bandwidth=2x", LAW)
    for sharpness in (1.5, 6.0):
        other = MemoryLaw(limit_bytes_per_s=50.0 * GB, sharpness=sharpness)
        assert answer.gain_low <= ask(profile, question(), "bandwidth=2x", other).gain
        assert answer.gain_high >= ask(profile, question(), "bandwidth=2x", other).gain


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("threads=2", "threads", 2),
        ("depth=4096", "depth_tokens", 4096),
        ("kv=q8_0", "kv_type_v", "q8_0"),
        ("quant=q2_k", "quant_label", "Q2_K"),
        (" quant = Q2_K , threads=2", "threads", 2),
    ],
)
def test_a_change_of_a_setting_is_the_prediction_at_that_setting(
    change: str, field: str, value: object
) -> None:
    answer = ask(make_profile(), question(depth_tokens=1024), change, LAW)
    assert to_document(answer.after)[field] == value
    assert answer.gain == pytest.approx(answer.after.tokens_per_s / answer.before.tokens_per_s - 1)
    assert answer.before.quant_label == "Q8_0"


def test_a_quantised_cache_switches_flash_attention_on() -> None:
    profile = build_profile(
        {4: 50.0 * GB},
        build_engine(
            {"Q8_0": {4: 50.0 * GB}}, attention={**ATTENTION, ("f16", "f16", False): 8.0 * GB}
        ),
    )
    answer = ask(profile, question(flash_attn=False), "kv=q8_0", LAW)
    assert answer.before.setting.flash_attn is False
    assert answer.after.setting.flash_attn is True


def gain_of(change: str, **machine: Any) -> WhatIf:
    return ask(make_profile(**machine), question(), change, LAW)


def test_bandwidth_is_a_factor_or_gigabytes_beside_the_best_measured() -> None:
    assert gain_of("bandwidth=100").gain == pytest.approx(gain_of("bandwidth=2x").gain)
    assert gain_of("bandwidth=100GB/s").gain == gain_of("bandwidth=100").gain


def test_memory_and_channels_are_compared_with_the_modules_of_the_profile() -> None:
    one = {"memory_modules": (module("A"),)}
    two = {"memory_modules": (module("A"), module("B"))}
    assert gain_of("channels=2", **one).gain == gain_of("bandwidth=2x").gain
    assert gain_of("channels=4", **two).gain == gain_of("bandwidth=2x").gain
    # 5600 to 8400 million transfers on two channels is half as much again.
    assert gain_of("memory=DDR5-5600x3", **two).gain == gain_of("bandwidth=1.5x").gain
    assert gain_of("memory=ddr5-5600x1:ddr5-5600x2").gain == gain_of("bandwidth=2x").gain
    assert gain_of("channels=1:2").gain == gain_of("bandwidth=2x").gain


@pytest.mark.parametrize(
    ("change", "machine"),
    [
        ("channels=2", {}),
        ("memory=DDR5-6400x2", {}),
        ("channels=2", {"memory_modules": (module(None), module("A"))}),
        ("channels=2", {"memory_modules": (module("A"),), "hypervisor": "kvm"}),
        ("memory=DDR5-6400x2", {"memory_modules": (module("A"),), "hypervisor": "kvm"}),
        ("quant=TQ2_0", {}),
        ("kv=q4_0", {}),
        ("flash-attn=off", {}),
    ],
)
def test_what_the_profile_cannot_answer_is_said(change: str, machine: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match=change.partition(",")[0].partition("=")[2][:3]):
        gain_of(change, **machine)


def test_attention_estimated_from_own_kernels_is_not_compared_with_one_at_read_bandwidth() -> None:
    profile = build_profile({4: 50.0 * GB})
    gemv = build_measurement(4, 40.0 * GB, kernel="gemv_q8_0")
    profile = msgspec.structs.replace(profile, bandwidth=(*profile.bandwidth, gemv))
    deep = question(depth_tokens=8192)
    answer = ask(profile, deep, "kv=q8_0", LAW)
    assert answer.before.basis == answer.after.basis == "kernel"
    assert not any("lower bound" in text for text in answer.after.assumptions)
    with pytest.raises(ProfileError, match="q4_0"):
        ask(profile, deep, "kv=q4_0", LAW)


@pytest.mark.parametrize(
    "change",
    [
        "", "bandwidth", "bandwidth=", "speed=2x", "bandwidth=x", "bandwidth=-1x", "bandwidth=0",
        "bandwidth=nan", "bandwidth=inf", "bandwidth=1e30x", "channels=0:2", "channels=1:0",
        "channels=two", "memory=DDR5", "memory=DDR9-6400x2", "memory=DDR5-6400x0", "quant=Q9",
        "threads=0", "threads=-1", "threads=1.5", "depth=x", "flash-attn=maybe", "kv=z9",
        "threads=99999999999999999999", "threads=4,", "threads=²",
    ],
)  # fmt: skip
def test_a_change_that_is_none_is_refused_in_one_line(change: str) -> None:
    with pytest.raises(UsageError) as refused:
        gain_of(change)
    assert "\n" not in str(refused.value)


def test_the_limit_comes_from_the_read_bandwidth_of_the_profile() -> None:
    flat = build_profile(
        {1: 49.0 * GB, 2: 50.0 * GB, 4: 50.0 * GB}, build_engine({"Q8_0": {4: 50.0 * GB}})
    )
    rising = build_profile(
        {1: 12.5 * GB, 2: 25.0 * GB, 4: 50.0 * GB}, build_engine({"Q8_0": {4: 50.0 * GB}})
    )
    gains = [api.what_if(SPEC, ["bandwidth=2x"], threads=4, profile=p)[0].gain for p in
             (flat, rising)]  # fmt: skip
    assert gains[0] == pytest.approx(1.0, abs=0.06)
    assert gains[1] == pytest.approx(0.0, abs=0.06)


def test_threads_are_those_that_tune_would_choose() -> None:
    answers = api.what_if(SPEC, ["depth=0", "threads=4"], profile=make_profile())
    assert [a.before.setting.threads for a in answers] == [4, 4]
    assert answers[0].gain == 0


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(
        ["bandwidth", "channels", "memory", "quant", "kv", "threads", "depth", "flash-attn", "x"]
    ),
    value=st.text(st.sampled_from("0123456789.xX:,=-+eEnaidDRqQkK_²٣ "), max_size=12),
)
def test_any_text_is_answered_or_refused(kind: str, value: str) -> None:
    try:
        answer = ask(make_profile(), question(), f"{kind}={value}", LAW)
    except (UsageError, ProfileError) as refused:
        assert "\n" not in str(refused)
    else:
        assert 0 < answer.after.low <= answer.after.tokens_per_s <= answer.after.high < math.inf

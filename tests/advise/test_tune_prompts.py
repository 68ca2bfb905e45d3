"""Threads for prompts come from measured rates of batches, where there are some."""

from __future__ import annotations

from builders import GB, build_engine, build_machine, build_profile
from fakes import tiny_model

from cpubound.advise.tune import Advice
from cpubound.advise.tune.session import Session, advise
from cpubound.profile.values import MachineProfile

SMT = tuple((cpu, cpu + 2) for cpu in range(2))


def make_profile(batch_rates: dict[int, float]) -> MachineProfile:
    """Two cores of two threads; decode stops at one thread."""
    engine = build_engine(
        {"Q8_0": {1: 40.0 * GB, 2: 40.0 * GB, 4: 40.0 * GB}},
        attention={("f16", "f16", True): 4.0 * GB, ("f16", "f16", False): 4.0 * GB},
        seconds={"bytes:Q8_0@512": {t: 1 / rate for t, rate in batch_rates.items()}},
    )
    return build_profile(
        {1: 50.0 * GB, 2: 50.0 * GB, 4: 50.0 * GB},
        engine,
        machine=build_machine(4, core_cpus=SMT, physical_cores=2, threads_per_core=2),
    )


def advise_of(profile: MachineProfile) -> Advice:
    session = Session(profile=profile, spec=tiny_model("Q8_0"), thread_counts=(1, 2, 4))
    return advise(
        session,
        lambda threads: (0, 1, 2, 3)[:threads],
        depth_tokens=0,
        kv_options=[("f16", "f16")],
        model_path="m.gguf",
    )


def test_prompts_take_the_threads_that_were_fastest_for_batches() -> None:
    r = advise_of(make_profile({1: 1e6, 2: 2e6, 4: 4e6})).recommendation
    assert (r.setting.threads, r.batch_threads) == (1, 4)
    assert "-tb 4" in r.commands["llama-server"]
    assert any("a prompt of 512 tokens" in reason for reason in r.reasons)


def test_prompts_take_fewer_threads_where_more_gain_nothing() -> None:
    assert advise_of(make_profile({1: 1e6, 2: 2e6, 4: 2e6})).recommendation.batch_threads == 2


def test_without_rates_of_batches_prompts_take_the_cores() -> None:
    r = advise_of(make_profile({})).recommendation
    assert r.batch_threads == 2
    assert not any("prompt" in reason for reason in r.reasons)

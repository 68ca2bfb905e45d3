from __future__ import annotations

import msgspec
from builders import GB, build_engine, build_machine, build_profile
from fakes import tiny_model
from msgspec import structs

from cpubound.advise.tune import Advice
from cpubound.advise.tune.session import Session, advise
from cpubound.advise.tune.values import TargetAdvice
from cpubound.model.catalog import catalog_entry
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile

RATES = {name: {1: 10.0 * GB, 2: 20.0 * GB} for name in ("Q4_0", "Q4_K", "Q8_0", "F16")}
ATTENTION = {("f16", "f16", True): 4.0 * GB, ("f16", "f16", False): 8.0 * GB}


def profile_of(memory_bytes: int = 64 * GB) -> MachineProfile:
    return build_profile(
        {1: 25.0 * GB, 2: 50.0 * GB},
        build_engine(RATES, attention=ATTENTION),
        machine=build_machine(2, memory_bytes=memory_bytes),
    )


def advise_target(spec: ModelSpec, target: float, *, memory_bytes: int = 64 * GB) -> Advice:
    session = Session(profile=profile_of(memory_bytes), spec=spec, thread_counts=(1, 2))
    return advise(
        session,
        lambda threads: tuple(range(threads)),
        depth_tokens=0,
        kv_options=[("f16", "f16")],
        model_path="m.gguf",
        target=target,
    )


def target_of(advice: Advice) -> TargetAdvice:
    assert advice.target is not None
    return advice.target


LLAMA_1B = catalog_entry("llama-3.2-1b").at("Q8_0")


def test_the_largest_file_type_that_reaches_the_rate_is_found() -> None:
    target = target_of(advise_target(LLAMA_1B, 17.0))
    assert [row.file_bytes for row in target.file_types] == sorted(
        (row.file_bytes for row in target.file_types), reverse=True
    )
    assert target.file_type is not None
    larger = [r for r in target.file_types if r.file_bytes > target.file_type.file_bytes]
    assert larger and all(row.tokens_per_s < 17.0 for row in larger)
    assert target.file_type.tokens_per_s >= 17.0


def test_a_file_type_without_a_measured_rate_is_left_out() -> None:
    only_two = msgspec.structs.replace(
        profile_of(),
        engine=build_engine({"Q8_0": RATES["Q8_0"], "F16": RATES["F16"]}, attention=ATTENTION),
    )
    advice = advise(
        Session(profile=only_two, spec=LLAMA_1B, thread_counts=(1, 2)),
        lambda threads: tuple(range(threads)),
        depth_tokens=0,
        kv_options=[("f16", "f16")],
        model_path="m.gguf",
        target=1.0,
    )
    assert {row.quant_label for row in target_of(advice).file_types} == {"F16", "Q8_0"}


def test_no_file_type_is_named_where_none_reaches_the_rate() -> None:
    target = target_of(advise_target(LLAMA_1B, 10_000.0))
    assert target.met is False
    assert target.file_type is None
    assert (target.context_tokens, target.context_limit) == (None, "rate")


def test_the_largest_context_still_gives_the_rate_and_the_next_one_does_not() -> None:
    advice = advise_target(LLAMA_1B, 12.0)
    target = target_of(advice)
    assert target.met and target.context_limit == "rate"
    assert target.context_tokens is not None and target.context_tokens % 256 == 0
    session = Session(profile=profile_of(), spec=LLAMA_1B, thread_counts=(1, 2))

    chosen = advice.recommendation.setting
    rates = [
        session.predict(
            structs.replace(chosen, depth_tokens=target.context_tokens + more)
        ).tokens_per_s
        for more in (0, 256)
    ]
    assert rates[0] >= 12.0 > rates[1]


def test_the_context_ends_where_the_model_was_trained_for_no_more() -> None:
    target = target_of(advise_target(tiny_model("Q8_0"), 1.0))
    assert (target.context_tokens, target.context_limit) == (4096, "training")


def test_the_context_ends_where_the_memory_does() -> None:
    target = target_of(advise_target(LLAMA_1B, 1.0, memory_bytes=3 * GB))
    assert target.context_limit == "memory"
    # 16 layers of 8 heads of 64, K and V in F16, and 1.3 GB of weights.
    assert target.context_tokens is not None
    assert 1.3e9 + target.context_tokens * 32768 < 3e9 < 1.4e9 + (target.context_tokens) * 32768


def test_a_file_type_that_does_not_fit_is_not_advised() -> None:
    target = target_of(advise_target(LLAMA_1B, 1.0, memory_bytes=2 * GB))
    assert target.file_type is not None
    assert target.file_type.quant_label == "Q8_0"
    assert target.file_types[0].fits_in_memory is False

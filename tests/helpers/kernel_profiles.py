"""Profiles whose llama.cpp stands to our kernels as the test says."""

from __future__ import annotations

import msgspec
from builders import GB, build_engine, build_measurement, build_profile

from cpubound.cost.estimated_engine import share_memory
from cpubound.profile.values import BatchRate, EngineCost, EngineRate, MachineProfile, StateRate

OWN = {"F16": 20.0 * GB, "F32": 16.0 * GB, "Q4_K": 12.0 * GB}
SHARPNESS = 2.5


def measured(factor: float = 0.8) -> MachineProfile:
    """Our kernels on one thread; llama.cpp goes through as many weights times ``factor``."""
    single = {"Q4_K": OWN["Q4_K"] * factor, "Q5_K": OWN["Q4_K"] * factor * 5.5 / 4.5}
    engine = build_engine(
        {
            name: {1: rate, 2: share_memory(rate, 2, 40.0 * GB, SHARPNESS)}
            for name, rate in single.items()
        },
        attention={("f16", "f16", True): 4.0 * GB},
    )
    costs = (
        EngineCost(threads=1, seconds_per_token=1e-4, seconds_per_product=4e-6),
        EngineCost(threads=2, seconds_per_token=3e-4, seconds_per_product=7e-6),
    )
    states = tuple(
        StateRate(kind="delta", threads=t, bytes_per_s=8.0 * GB * t**0.5, relative_error=0.1)
        for t in (1, 2)
    )
    own = [build_measurement(1, rate, kernel=f"gemv_{name.lower()}") for name, rate in OWN.items()]
    reads = [build_measurement(1, 20.0 * GB), build_measurement(2, 40.0 * GB)]
    experts = EngineRate(
        type="Q3_K",
        threads=1,
        columns=1,
        bytes_per_s=OWN["Q4_K"] * 0.6 * 3.4375 / 4.5,
        relative_error=0.05,
        kind="experts",
    )
    batch = BatchRate(
        type="Q4_K", threads=1, tokens=8, bytes_per_s=OWN["Q4_K"] * 0.2, relative_error=0.02
    )
    engine = msgspec.structs.replace(
        engine,
        costs=costs,
        state_rates=states,
        rates=(*engine.rates, experts),
        batch_rates=(batch,),
    )
    profile = build_profile({1: 20.0 * GB, 2: 40.0 * GB}, engine)
    return msgspec.structs.replace(profile, bandwidth=(*reads, *own))

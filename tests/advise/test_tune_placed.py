"""CPUs come from what was measured: of two placements, the one that reads more."""

from __future__ import annotations

import pytest
from builders import GB, build_engine, build_machine, build_measurement, build_profile
from fakes import tiny_model

from cpubound.advise.tune.session import Session, advise
from cpubound.advise.tune.values import Recommendation
from cpubound.machine.values import Cache
from cpubound.profile.values import PlacedMeasurement

L3 = Cache(
    level=3, type="unified", size_bytes=2**25, instances=2, shared_cpus=((0, 1, 2, 3), (4, 5, 6, 7))
)
SPREAD = (0, 4)


def recommend(spread_gbps: float, allowed: tuple[int, ...] = tuple(range(8))) -> Recommendation:
    """Two groups of four cores; two compact threads read 40 GB/s, more gain nothing."""
    row = build_measurement(2, spread_gbps * GB, cpus=SPREAD)
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    profile = build_profile(
        {1: 20.0 * GB, 2: 40.0 * GB},
        build_engine(
            {"Q8_0": {1: 20.0 * GB, 2: 40.0 * GB}},
            attention={("f16", "f16", True): 4.0 * GB, ("f16", "f16", False): 4.0 * GB},
        ),
        machine=build_machine(8, caches=(L3,), allowed_cpus=allowed),
        placements=(PlacedMeasurement(placement="spread", **fields),),
    )
    session = Session(profile=profile, spec=tiny_model("Q8_0"), thread_counts=(1, 2))
    return advise(
        session,
        lambda threads: allowed[:threads],
        depth_tokens=0,
        kv_options=[("f16", "f16")],
        model_path="m.gguf",
    ).recommendation


@pytest.mark.parametrize(("spread_gbps", "cpus"), [(60.0, (0, 4)), (41.0, (0, 1)), (20.0, (0, 1))])
def test_the_placement_that_reads_more_is_taken(spread_gbps: float, cpus: tuple[int, ...]) -> None:
    r = recommend(spread_gbps)
    assert r.cpus == cpus
    assert r.pin


def test_a_placement_on_cpus_that_may_not_be_used_is_not_taken() -> None:
    assert recommend(60.0, allowed=(0, 1, 2, 3)).cpus == (0, 1)

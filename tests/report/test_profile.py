from __future__ import annotations

from typing import Any

import msgspec
from builders import build_measurement, build_profile

from cpubound.profile.values import (
    BarrierCost,
    MachineProfile,
    MemoryLevel,
    NodeMeasurement,
    Noise,
    PeakRate,
    PlacedMeasurement,
    SaturationPoint,
)
from cpubound.report.profile import noise_line, profile_text

GB = 10**9


def placed(placement: str, rate: float, cpus: tuple[int, ...]) -> PlacedMeasurement:
    row = build_measurement(len(cpus), rate, cpus=cpus)
    return PlacedMeasurement(**msgspec.structs.asdict(row), placement=placement)


def node(reader: int, owner: int, rate: float) -> NodeMeasurement:
    row = build_measurement(2, rate)
    return NodeMeasurement(**msgspec.structs.asdict(row), cpu_node=reader, memory_node=owner)


def build(**changes: Any) -> MachineProfile:
    profile = build_profile({1: 20 * GB, 2: 30 * GB, 4: 31 * GB})
    return msgspec.structs.replace(profile, **changes)


def screen(**changes: Any) -> list[str]:
    return profile_text(build(**changes), []).splitlines()


def test_the_knee_is_shown_with_its_range_where_it_has_one() -> None:
    point = SaturationPoint(kernel="read", threads=2, low=2, high=4)
    assert "saturates at 2 [2 … 4] (30.0 GB/s, 97 %)" in screen(saturation=(point,))[1]
    sure = SaturationPoint(kernel="read", threads=2, low=2, high=2)
    assert "saturates at 2 (30.0 GB/s, 97 %)" in screen(saturation=(sure,))[1]


def test_pages_of_files_and_huge_ones_stand_beside_small_ones() -> None:
    base = build()
    rows = (
        *base.bandwidth,
        build_measurement(4, 28 * GB, page_kind="file"),
        build_measurement(4, 37.2 * GB, page_kind="anon_2m"),
    )
    text = "\n".join(screen(bandwidth=rows))
    assert "mapped files   28.0 GB/s (-10 %)" in text
    assert "huge pages     37.2 GB/s (+20 %)" in text


def test_placements_stand_beside_the_main_curve_and_nodes_in_a_line_each() -> None:
    text = "\n".join(
        screen(
            placements=(placed("spread", 60 * GB, (0, 8)), placed("siblings", 21 * GB, (0, 4))),
            nodes=(node(0, 0, 30 * GB), node(0, 1, 12 * GB), node(1, 0, 11 * GB)),
        )
    )
    assert "spread         60.0 GB/s at 2 threads on CPUs 0,8 (else 30.0 GB/s)" in text
    assert "siblings       21.0 GB/s at 2 threads on CPUs 0,4" in text
    assert "node 0 reads   0: 30.0 GB/s · 1: 12.0 GB/s" in text
    assert "node 1 reads   0: 11.0 GB/s" in text


def test_levels_compute_and_barriers_are_shown_where_measured() -> None:
    text = "\n".join(
        screen(
            levels=(
                MemoryLevel(level=2, capacity_bytes=2**20, size_bytes=2**20,
                            bytes_per_s=117e9, latency_s=3.8e-9),
                MemoryLevel(level=0, capacity_bytes=None, size_bytes=None,
                            bytes_per_s=30e9, latency_s=None),
            ),
            peak=(
                PeakRate(dtype="fp32", isa="avx2", threads=1, flops_per_s=116e9,
                         samples_flops_per_s=(116e9,)),
                PeakRate(dtype="fp32", isa="avx2", threads=4, flops_per_s=460e9,
                         samples_flops_per_s=(460e9,)),
            ),
            barriers=(BarrierCost(threads=4, seconds=4.1e-8, samples_s=(4.1e-8,)),),
        )
    )  # fmt: skip
    assert "one thread     L2 117 GB/s 3.8 ns · memory 30.0 GB/s" in text
    assert "compute        FP32 460 GFLOP/s at 4 threads" in text
    assert "barrier        41 ns at 4 threads" in text


def test_a_profile_without_them_shows_none_of_them() -> None:
    text = "\n".join(screen())
    for word in ("one thread", "compute", "barrier", "node ", "mapped"):
        assert word not in text


def test_noise_names_its_causes_and_warnings_follow() -> None:
    noise = Noise(
        spread=0.14, verdict="noisy", causes=("other programs kept 1.5 CPUs busy",), seconds=9.0
    )
    lines = screen(noise=noise, warnings=("the read bandwidth did not become stable",))
    assert "  noise          noisy: ±14 % over 9 s" in lines
    assert "                 other programs kept 1.5 CPUs busy" in lines
    assert lines[-1] == "Warning: the read bandwidth did not become stable."


def test_what_is_made_from_a_noisy_profile_ends_with_a_note_that_says_why() -> None:
    assert noise_line(build()) == ""
    noisy = Noise(spread=0.14, verdict="noisy", causes=("heat slowed the cores 3 times",))
    assert noise_line(build(noise=noisy)) == (
        "\nNote: the machine was noisy while it was measured "
        "(±14 %: heat slowed the cores 3 times)."
    )
    unsteady = Noise(spread=0.02, verdict="quiet", stable=False)
    assert "unsteady" in noise_line(build(noise=unsteady))

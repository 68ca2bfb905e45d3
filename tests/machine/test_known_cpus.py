"""cpubound.machine.known_cpus and its tables."""

from __future__ import annotations

import pytest

from cpubound.machine.cpu import _KERNEL_FLAGS
from cpubound.machine.cpu_names import find_cpu, words_with_frequency
from cpubound.machine.known_cpus import (
    KINDS,
    KnownCpu,
    known_cpus,
    micro_architectures,
    other_names,
)
from cpubound.units import MIB

# RISC-V's vector extension, which /proc/cpuinfo writes as a letter of its isa string.
OTHER_FLAGS = {"v"}

# Written down from the makers' product pages, apart from the table: name, cores, threads, L3 in
# MiB, peak bandwidth of a socket in GB/s, micro-architecture of the fastest cores.
PUBLISHED = [
    ("Ryzen 7 1800X", 8, 16, 16, 42.7, "zen"),
    ("Ryzen 7 2700X", 8, 16, 16, 46.9, "zen_plus"),
    ("Ryzen 5 3600", 6, 12, 32, 51.2, "zen2"),
    ("Ryzen 9 3950X", 16, 32, 64, 51.2, "zen2"),
    ("Ryzen 5 5600", 6, 12, 32, 51.2, "zen3"),
    ("Ryzen 7 5800X3D", 8, 16, 96, 51.2, "zen3"),
    ("Ryzen 7 5700G", 8, 16, 16, 51.2, "zen3"),
    ("Ryzen 7 7840U", 8, 16, 16, 120.0, "zen4"),
    ("Ryzen 9 7950X", 16, 32, 64, 83.2, "zen4"),
    ("Ryzen 9 9950X", 16, 32, 64, 89.6, "zen5"),
    ("Ryzen AI 9 HX 370", 12, 24, 24, 128.0, "zen5"),
    ("Ryzen AI Max+ 395", 16, 32, 64, 256.0, "zen5"),
    ("Ryzen Threadripper PRO 7995WX", 96, 192, 384, 332.8, "zen4"),
    ("Ryzen Threadripper 3990X", 64, 128, 256, 102.4, "zen2"),
    ("EPYC 7601", 32, 64, 64, 170.7, "zen"),
    ("EPYC 7742", 64, 128, 256, 204.8, "zen2"),
    ("EPYC 7763", 64, 128, 256, 204.8, "zen3"),
    ("EPYC 7773X", 64, 128, 768, 204.8, "zen3"),
    ("EPYC 9654", 96, 192, 384, 460.8, "zen4"),
    ("EPYC 9754", 128, 256, 256, 460.8, "zen4c"),
    ("EPYC 9755", 128, 256, 512, 576.0, "zen5"),
    ("EPYC 9965", 192, 384, 384, 576.0, "zen5c"),
    ("Core i5-6500", 4, 4, 6, 34.1, "skylake"),
    ("Core i7-8700", 6, 12, 12, 42.7, "skylake"),
    ("Core i7-1165G7", 4, 8, 12, 68.3, "willow_cove"),
    ("Core i5-11400", 6, 12, 12, 51.2, "cypress_cove"),
    ("Core i5-1240P", 12, 16, 12, 83.2, "golden_cove"),
    ("Core i7-12700K", 12, 20, 25, 76.8, "golden_cove"),
    ("Core i9-13900K", 24, 32, 36, 89.6, "raptor_cove"),
    ("Core i7-14700K", 20, 28, 33, 89.6, "raptor_cove"),
    ("Core Ultra 7 155H", 16, 22, 24, 119.5, "redwood_cove"),
    ("Core Ultra 7 258V", 8, 8, 12, 136.5, "lion_cove"),
    ("Core Ultra 9 285K", 24, 24, 36, 102.4, "lion_cove"),
    ("Intel N100", 4, 4, 6, 38.4, "gracemont"),
    ("Core i3-N305", 8, 8, 6, 38.4, "gracemont"),
    ("Xeon Gold 6138", 20, 40, 27.5, 128.0, "skylake_server"),
    ("Xeon Platinum 8280", 28, 56, 38.5, 140.8, "cascade_lake"),
    ("Xeon Platinum 8380", 40, 80, 60, 204.8, "ice_lake_server"),
    ("Xeon Platinum 8480+", 56, 112, 105, 307.2, "sapphire_rapids"),
    ("Xeon Max 9480", 56, 112, 112.5, 1638.4, "sapphire_rapids"),
    ("Xeon Platinum 8592+", 64, 128, 320, 358.4, "emerald_rapids"),
    ("Xeon 6980P", 128, 256, 504, 844.8, "granite_rapids"),
    ("Xeon 6780E", 144, 144, 108, 409.6, "sierra_forest"),
    ("Apple M1", 8, 8, None, 68.3, "firestorm"),
    ("Apple M2 Ultra", 24, 24, None, 819.2, "avalanche"),
    ("Apple M3 Max", 16, 16, None, 409.6, "apple_m3_performance"),
    ("Apple M4 Pro", 14, 14, None, 273.1, "apple_m4_performance"),
    ("Graviton3", 64, 64, 32, 307.2, "neoverse_v1"),
    ("Graviton4", 96, 96, 36, 537.6, "neoverse_v2"),
    ("Ampere Altra Max M128-30", 128, 128, None, 204.8, "neoverse_n1"),
    ("AmpereOne A192-32X", 192, 192, None, 332.8, "ampere1"),
    ("Snapdragon X Elite X1E-80-100", 12, 12, None, 135.2, "oryon"),
    ("A64FX", 48, 48, None, 1024.0, "a64fx"),
    ("Raspberry Pi 4", 4, 4, None, 12.8, "cortex_a72"),
    ("Raspberry Pi 5", 4, 4, 2, 17.07, "cortex_a76"),
    ("RK3588", 8, 8, 3, None, "cortex_a76"),
    ("Jetson AGX Orin 64GB", 12, 12, 6, 204.8, "cortex_a78ae"),
    ("SG2042", 64, 64, 64, 102.4, "c920"),
]

# Clusters of cores with a last-level cache of their own: (name, size of each in MiB).
CLUSTERS = [
    ("EPYC 7742", [16] * 16),  # four cores each
    ("EPYC 7763", [32] * 8),
    ("EPYC 9654", [32] * 12),
    ("EPYC 9754", [16] * 16),
    ("EPYC 9684X", [96] * 12),
    ("Ryzen 9 7950X3D", [96, 32]),
    ("Ryzen AI 9 HX 370", [16, 8]),
    ("Ryzen 3 3100", [8, 8]),
    ("Ryzen 3 3300X", [16]),
    ("Core i9-13900K", [36]),
]


@pytest.mark.parametrize(("name", "cores", "threads", "l3", "peak", "design"), PUBLISHED)
def test_the_table_has_what_the_maker_publishes(
    name: str, cores: int, threads: int, l3: float | None, peak: float | None, design: str
) -> None:
    cpu = find_cpu(name)
    assert (cpu.name, cpu.core_count, cpu.threads) == (name, cores, threads)
    assert cpu.micro_architecture.name == design
    assert (sum(cpu.last_level_caches) / MIB or None) == l3
    fastest = cpu.fastest_memory
    found = None if fastest is None or fastest.bytes_per_s is None else fastest.bytes_per_s / 1e9
    assert found == (None if peak is None else pytest.approx(peak, rel=2e-3))


@pytest.mark.parametrize(("name", "sizes"), CLUSTERS)
def test_each_cluster_has_its_own_last_level_cache(name: str, sizes: list[int]) -> None:
    assert [size / MIB for size in find_cpu(name).last_level_caches] == sizes


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Core i9-13900K", {"performance": 8, "efficiency": 16}),
        ("Core Ultra 7 155H", {"performance": 6, "efficiency": 8, "low_power": 2}),
        ("Core Ultra 7 258V", {"performance": 4, "low_power": 4}),
        ("Ryzen AI 9 HX 370", {"performance": 4, "efficiency": 8}),
        ("Apple M4 Max", {"performance": 12, "efficiency": 4}),
        ("RK3399", {"performance": 2, "efficiency": 4}),
        ("EPYC 9654", {"uniform": 96}),
    ],
)
def test_cores_are_counted_by_kind_fastest_first(name: str, kinds: dict[str, int]) -> None:
    assert [(cores.kind, cores.count) for cores in find_cpu(name).cores] == list(kinds.items())


@pytest.mark.parametrize(
    ("design", "has", "has_not"),
    [
        ("skylake", "avx2", "avx512f"),
        ("cascade_lake", "avx512_vnni", "amx_int8"),
        ("golden_cove", "avx_vnni", "avx512f"),
        ("sapphire_rapids", "amx_int8", "amx_fp16"),
        ("granite_rapids", "amx_fp16", "sve"),
        ("zen3", "avx2", "avx512f"),
        ("zen4", "avx512_bf16", "avx_vnni"),
        ("zen5", "avx_vnni", "amx_int8"),
        ("goldmont_plus", "", "avx2"),
        ("cortex_a72", "asimd", "asimddp"),
        ("cortex_a76", "asimddp", "i8mm"),
        ("neoverse_n1", "asimddp", "i8mm"),
        ("neoverse_v1", "sve", "sve2"),
        ("neoverse_v2", "sve2", "sme"),
        ("firestorm", "asimddp", "i8mm"),
        ("avalanche", "i8mm", "sve"),
        ("apple_m4_performance", "sme2", "sve"),
        ("ampere1", "i8mm", "sve"),
        ("oryon", "i8mm", "sve"),
        ("x60", "v", "asimd"),
    ],
)
def test_a_design_has_the_instructions_that_its_maker_says(
    design: str, has: str, has_not: str
) -> None:
    flags = micro_architectures()[design].isa_flags
    assert not has or has in flags
    assert has_not not in flags


def test_the_table_holds_at_least_400_cpus_of_every_segment() -> None:
    segments = [cpu.segment for cpu in known_cpus()]
    assert len(segments) >= 400
    assert set(segments) == {"desktop", "laptop", "server", "board"}


def test_names_stay_apart_when_read_as_lscpu_writes_them() -> None:
    names = [*(cpu.name for cpu in known_cpus()), *other_names()]
    words = [words_with_frequency(name.lower()) for name in names]
    twice = {word for word in words if words.count(word) > 1}
    assert not twice


def test_every_name_finds_its_own_row() -> None:
    lost = [cpu.name for cpu in known_cpus() if find_cpu(cpu.name) != cpu]
    assert not lost


def test_every_cpu_is_plausible_and_says_where_it_is_from() -> None:
    wrong = [cpu.name for cpu in known_cpus() if not is_plausible(cpu)]
    assert not wrong


def is_plausible(cpu: KnownCpu) -> bool:
    cores, threads = cpu.core_count, cpu.threads
    clusters = len(cpu.last_level_caches)
    return (
        bool(cpu.source)
        and (cpu.year is None or 2011 <= cpu.year <= 2026)
        and (cores is None or 1 <= cores <= 288)
        and (threads is None or (cores is not None and cores <= threads <= 4 * cores))
        and [KINDS.index(part.kind) for part in cpu.cores] == sorted(kind_places(cpu))
        and (cores is None or clusters <= cores)
        and all(size >= MIB for size in cpu.last_level_caches)
        and all(kind.width_bits is not None for kind in cpu.memory)
        and len({part.micro_architecture.architecture for part in cpu.cores}) == 1
    )


def kind_places(cpu: KnownCpu) -> set[int]:
    return {KINDS.index(part.kind) for part in cpu.cores}


def test_instructions_are_named_as_the_machine_names_its_own() -> None:
    for design in micro_architectures().values():
        assert set(design.isa_flags) <= _KERNEL_FLAGS | OTHER_FLAGS, design.name
        assert design.source

"""cpubound.machine.cpu_names."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.machine.cpu_names import MAX_NAME, find_cpu

# As lscpu, a shop, a cloud or a person writes it -> as the table does.
WRITTEN = [
    ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "Ryzen 7 7840U"),
    ("AMD Ryzen 7 PRO 7840U w/ Radeon 780M Graphics", "Ryzen 7 7840U"),
    ("AMD Ryzen 5 3500U with Radeon Vega Mobile Gfx", "Ryzen 5 3500U"),
    ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "Ryzen AI Max+ 395"),
    ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", "Ryzen AI 9 HX 370"),
    ("AMD Ryzen 7 1700 Eight-Core Processor", "Ryzen 7 1700"),
    ("AMD Ryzen Threadripper PRO 5975WX 32-Cores", "Ryzen Threadripper PRO 5975WX"),
    ("AMD EPYC 7551 32-Core Processor", "EPYC 7551"),
    ("AMD EPYC 9R14 96-Core Processor", "EPYC 9R14"),
    ("AMD EPYC-Milan Processor", "EPYC-Milan"),
    ("Intel(R) Core(TM) i5-1240P", "Core i5-1240P"),
    ("12th Gen Intel(R) Core(TM) i7-12700K", "Core i7-12700K"),
    ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "Core i7-1165G7"),
    ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "Core i7-8700"),
    ("Intel(R) Core(TM) Ultra 7 155H", "Core Ultra 7 155H"),
    ("Intel® Core™ Ultra 9 285K", "Core Ultra 9 285K"),
    ("Intel(R) N100", "Intel N100"),
    ("Intel(R) Core(TM) i3-N305", "Core i3-N305"),
    ("Intel(R) Celeron(R) N5105 @ 2.00GHz", "Celeron N5105"),
    ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "Xeon Platinum 8375C"),
    ("INTEL(R) XEON(R) PLATINUM 8573C", "Xeon Platinum 8573C"),
    ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Xeon E5-2686 v4"),
    ("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", "Xeon E5-2670"),
    ("Ampere(R) Altra(R) Processor", "Ampere Altra"),
    ("Intel(R) Xeon(R) CPU Max 9480", "Xeon Max 9480"),
    ("Intel(R) Xeon(R) w9-3495X", "Xeon w9-3495X"),
    ("Intel(R) Xeon(R) 6975P-C", "Xeon 6975P-C"),
    ("Intel(R) Xeon(R) CPU @ 2.00GHz", "Xeon CPU @ 2.00GHz"),
    ("Intel(R) Xeon(R) CPU @ 2.60GHz", "Xeon CPU @ 2.60GHz"),
    ("Intel Xeon Processor (Skylake, IBRS)", "Xeon Processor (Skylake)"),
    ("Intel Core Processor (Haswell, no TSX)", "Core Processor (Haswell)"),
    ("Intel Xeon Processor (SapphireRapids)", "Xeon Processor (SapphireRapids)"),
    ("ryzen 7 7840u", "Ryzen 7 7840U"),
    ("ryzen7 7840u", "Ryzen 7 7840U"),
    ("7840u", "Ryzen 7 7840U"),
    ("ryzen 3600", "Ryzen 5 3600"),
    ("threadripper pro 7995wx", "Ryzen Threadripper PRO 7995WX"),
    ("EPYC 9V45", "EPYC 9V45"),
    ("i5-1240p", "Core i5-1240P"),
    ("core ultra 7 155h", "Core Ultra 7 155H"),
    ("xeon e5-2686v4", "Xeon E5-2686 v4"),
    ("8480+", "Xeon Platinum 8480+"),
    ("apple m3 max", "Apple M3 Max"),
    ("M3Max", "Apple M3 Max"),
    ("Apple M3", "Apple M3"),
    ("m3", "Apple M3"),
    ("n100", "Intel N100"),
    ("graviton4", "Graviton4"),
    ("AWS Graviton 4", "Graviton4"),
    ("snapdragon x elite", "Snapdragon X Elite"),
    ("Raspberry Pi 5 Model B", "Raspberry Pi 5"),
    ("rpi5", "Raspberry Pi 5"),
    ("jetson agx orin 64gb", "Jetson AGX Orin 64GB"),
    ("RK3588S", "RK3588"),
]


@pytest.mark.parametrize(("written", "name"), WRITTEN)
def test_a_name_is_found_as_people_and_programs_write_it(written: str, name: str) -> None:
    assert find_cpu(written).name == name


@pytest.mark.parametrize(
    ("written", "design"),
    [
        ("cortex-a76", "cortex_a76"),
        ("Neoverse-V2", "neoverse_v2"),
        ("zen 4", "zen4"),
        ("sapphire rapids", "sapphire_rapids"),
        ("AMD EPYC-Genoa Processor", "zen4"),
    ],
)
def test_a_generation_alone_gives_its_cores_without_a_count(written: str, design: str) -> None:
    cpu = find_cpu(written)
    assert cpu.micro_architecture.name == design
    assert cpu.core_count is None


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ryzen 7 7840x", "the nearest are .*Ryzen 7 7840"),
        ("AMD EPYC Processor", "hypervisor .* give the model"),
        ("Intel(R) Xeon(R) Platinum", "hypervisor"),
        ("banana", "hypervisor"),
        ("e5-2680", "several CPUs .* Xeon E5-2680 v3, Xeon E5-2680 v4"),
        ("CPU", "no CPU is named"),
        ("Intel(R) Processor", "no CPU is named"),
        ("\0\n", "no CPU is named"),
        ("NVIDIA GeForce RTX 4090", "a GPU"),
        ("AMD Radeon RX 7900 XTX", "a GPU"),
        ("H100", "a GPU"),
        ("AMD Ryzen 7 9999U w/ Radeon 780M", "the nearest are"),
        ("ryzen 7 7840u banana", "no CPU of this name"),
        ("7" * (MAX_NAME + 1), "too long"),
    ],
)
def test_a_name_that_tells_no_cpu_is_refused_with_what_to_add(written: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_cpu(written)

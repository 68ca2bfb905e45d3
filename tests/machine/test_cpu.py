"""cpubound.machine.cpu: the dialects of /proc/cpuinfo, and what follows from them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from fake_machine import FakeMachine
from hypothesis import given
from hypothesis import strategies as st

from cpubound.machine.cpu import (
    CpuInfo,
    read_architecture,
    read_cpu_model,
    read_cpuinfo,
    read_isa_flags,
)

OLD_ARM = """\
Processor\t: ARMv7 Processor rev 4 (v7l)
processor\t: 0
BogoMIPS\t: 1694.10

processor\t: 1
BogoMIPS\t: 1694.10

Features\t: swp half neon
CPU implementer\t: 0x41
CPU part\t: 0xc0f
"""

S390 = """\
vendor_id       : IBM/S390
# processors    : 2
bogomips per cpu: 3033.00
max thread id   : 1
features\t: esan3 zarch vx
processor 0: version = FF,  identification = 1927E7,  machine = 2964
processor 1: version = FF,  identification = 1927E7,  machine = 2964

cpu number      : 0
cpu MHz dynamic : 5000

cpu number      : 1
cpu MHz dynamic : 5000
"""

SPARC = """\
cpu\t\t: TI UltraSparc II  (BlackBird)
type\t\t: sun4u
ncpus probed\t: 2
CPU6:\t\tonline
CPU7:\t\toffline
"""

ARM64 = "Features : fp asimd asimdhp asimddp i8mm\nCPU implementer : 0x41\nCPU architecture: 8\n"

CASES = {
    "x86": (
        "processor: 0\nvendor_id: GenuineIntel\nmodel name: Intel(R) Xeon(R)  CPU @ 2 GHz\n"
        "flags: fpu tsc lm pni ssse3 avx2 fma f16c nx",
        "x86_64",
        "Intel(R) Xeon(R)  CPU @ 2 GHz",
        ("avx2", "f16c", "fma", "pni", "ssse3"),
    ),
    "old x86": ("processor: 0\nmodel name: Pentium\nflags: fpu tsc", "i686", "Pentium", ()),
    "arm64": (
        f"processor : 0\n{ARM64}CPU part : 0xd0c",
        "aarch64",
        "Neoverse-N1",
        ("asimd", "asimddp", "asimdhp", "i8mm"),
    ),
    "unknown arm": (
        f"processor : 0\n{ARM64}CPU part : 0xfff",
        "aarch64",
        "Arm part 0xfff",
        ("asimd", "asimddp", "asimdhp", "i8mm"),
    ),
    "arm in words": (
        "processor: 0\nmodel name : ARMv8 Processor rev 1 (v8l)\nFeatures: asimd\n"
        "CPU implementer: 0x48\nCPU architecture: 8\nCPU part: 0xd01",
        "aarch64",
        "Kunpeng-920",
        ("asimd",),
    ),
    "risc-v": (
        "processor: 0\nhart: 1\nisa: rv64imafdcv_zicsr_zvfh\nmmu: sv39\nuarch: sifive,u74-mc",
        "riscv64",
        "sifive,u74-mc",
        ("v", "zvfh"),
    ),
    "power": (
        "processor: 0\ncpu: POWER7 (architected), altivec supported\nrevision: 2.1 (pvr 003f 0201)",
        "ppc64",
        "POWER7 (architected), altivec supported",
        ("altivec",),
    ),
    "old power": (
        "processor: 0\ncpu: 740/750\nrevision: 3.1 (pvr 0008 0301)",
        "ppc",
        "740/750",
        (),
    ),
    "s390": (
        "vendor_id : IBM/S390\n# processors : 1\nfeatures : esan3 zarch vx vxe\n"
        "processor 0: version = FF,  identification = 1927E7,  machine = 2964",
        "s390x",
        "IBM/S390 2964",
        ("vx", "vxe"),
    ),
    "loongarch": (
        "system type : generic\n\nprocessor: 0\nCPU Family: Loongson-64bit\n"
        "Model Name: Loongson-3A5000-HV\nFeatures: cpucfg lsx lasx",
        "loongarch64",
        "Loongson-3A5000-HV",
        ("lasx", "lsx"),
    ),
    "itanium": (
        "processor: 0\nvendor: GenuineIntel\narch: IA-64\nfamily: Itanium 2\nmodel: 1",
        "ia64",
        "Itanium 2",
        (),
    ),
    "sparc": (
        "cpu : TI UltraSparc II  (BlackBird)\ntype : sun4u\nCPU0: online",
        "sparc64",
        "TI UltraSparc II  (BlackBird)",
        (),
    ),
    "nothing": ("", "unknown", None, ()),
}


def read(tmp_path: Path, text: str) -> CpuInfo:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/cpuinfo", text)
    return read_cpuinfo(fake.root)


def test_x86_has_a_block_for_each_processor(tmp_path: Path) -> None:
    info = read(tmp_path, "processor: 0\nmodel name : A\n\nprocessor : 8\nmodel name: B")
    assert sorted(info.processors) == [0, 8]
    assert info.get(8, "model name") == "B"
    assert info.first("model name") == "A"


def test_old_arm_shares_the_lines_after_the_blocks(tmp_path: Path) -> None:
    info = read(tmp_path, OLD_ARM)
    assert sorted(info.processors) == [0, 1]
    assert info.get(1, "CPU part") == "0xc0f"
    assert info.first("Processor") == "ARMv7 Processor rev 4 (v7l)"


def test_s390_lists_processors_in_one_line_each_and_again_in_blocks(tmp_path: Path) -> None:
    info = read(tmp_path, S390)
    assert sorted(info.processors) == [0, 1]
    assert info.get(1, "vendor_id") == "IBM/S390"
    assert info.get(1, "cpu MHz dynamic") == "5000"
    assert "machine = 2964" in (info.first("processor 0") or "")


def test_sparc_lists_which_processors_are_online(tmp_path: Path) -> None:
    assert sorted(read(tmp_path, SPARC).processors) == [6]


def test_no_file_and_garbage_give_no_processors(tmp_path: Path) -> None:
    assert read_cpuinfo(FakeMachine(tmp_path).root) == CpuInfo()
    assert not read(
        tmp_path, "processor : many\nprocessor : 99999999999\n:::\nprocessor"
    ).processors


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        info = read(Path(folder), f"processor : 0\n{text}")
        assert 0 in info.processors


@pytest.mark.parametrize("case", CASES)
def test_every_architecture_is_known_by_its_cpuinfo(tmp_path: Path, case: str) -> None:
    text, architecture, model, flags = CASES[case]
    fake = FakeMachine(tmp_path)
    fake.write("/proc/cpuinfo", text)
    info = read_cpuinfo(fake.root)
    assert read_architecture(fake.root, info) == architecture
    assert read_cpu_model(fake.root, info, frozenset({0})) == model
    assert read_isa_flags(info, frozenset({0})) == flags


def test_a_snapshot_that_notes_its_architecture_is_believed(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/hwloc-nofile-info", "OSName: Linux\nArchitecture: s64fx")
    assert read_architecture(fake.root, read_cpuinfo(fake.root)) == "s64fx"


def test_the_kernels_own_alias_names_the_architecture(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/sys/devices/system/cpu/modalias", "cpu:type:aarch64:feature:,0000,0001")
    assert read_architecture(fake.root, read_cpuinfo(fake.root)) == "aarch64"


def test_cores_of_two_kinds_are_both_named_and_only_common_flags_count(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    blocks = [
        {"processor": 0, "Features": "asimd", "CPU implementer": "0x41", "CPU part": "0xd03"},
        {
            "processor": 1,
            "Features": "asimd asimddp",
            "CPU implementer": "0x41",
            "CPU part": "0xd0a",
        },
    ]
    fake.write_cpuinfo(blocks)
    info = read_cpuinfo(fake.root)
    online = frozenset({0, 1})
    assert read_cpu_model(fake.root, info, online) == "Cortex-A53 + Cortex-A75"
    assert read_isa_flags(info, online) == ("asimd",)
    assert read_isa_flags(info, frozenset({1})) == ("asimd", "asimddp")


def test_garbled_arm_numbers_are_no_error(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write_cpuinfo([{"processor": 0, "CPU implementer": "0xzz", "CPU part": "?"}])
    assert read_cpu_model(fake.root, read_cpuinfo(fake.root), frozenset({0})) is None

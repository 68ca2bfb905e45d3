"""cpubound.machine.cpuinfo: the dialects of /proc/cpuinfo."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fake_machine import FakeMachine
from hypothesis import given
from hypothesis import strategies as st

from cpubound.machine.cpuinfo import CpuInfo, read_cpuinfo

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

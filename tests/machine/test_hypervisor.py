"""cpubound.machine.hypervisor."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import FakeMachine

from cpubound.machine.cpu import read_cpuinfo
from cpubound.machine.hypervisor import read_hypervisor

VIRTUAL = "processor: 0\nflags: fpu hypervisor"
DMI = "/sys/class/dmi/id"
CASES: dict[str, tuple[dict[str, str], str | None]] = {
    "a bare machine": ({"/proc/cpuinfo": "processor: 0\nflags: fpu"}, None),
    "only the flag": ({"/proc/cpuinfo": VIRTUAL}, "unknown"),
    "KVM": ({"/proc/cpuinfo": VIRTUAL, f"{DMI}/sys_vendor": "QEMU"}, "KVM"),
    "EC2": ({"/proc/cpuinfo": VIRTUAL, f"{DMI}/sys_vendor": "Amazon EC2"}, "KVM"),
    "EC2 metal": (
        {f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m7g.metal"},
        None,
    ),
    "VMware": ({"/proc/cpuinfo": VIRTUAL, f"{DMI}/sys_vendor": "VMware, Inc."}, "VMware"),
    "VirtualBox": ({"/proc/cpuinfo": VIRTUAL, f"{DMI}/product_name": "VirtualBox"}, "Oracle"),
    "Hyper-V": (
        {f"{DMI}/sys_vendor": "Microsoft Corporation", f"{DMI}/product_name": "Virtual Machine"},
        "Microsoft",
    ),
    "a Surface": (
        {f"{DMI}/sys_vendor": "Microsoft Corporation", f"{DMI}/product_name": "Surface Laptop"},
        None,
    ),
    "a host that runs QEMU firmware tools": (
        {"/proc/cpuinfo": "processor: 0\nflags: fpu vmx", f"{DMI}/bios_vendor": "xen tools"},
        None,
    ),
    "WSL": ({"/proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, "Microsoft"),
    "Xen": ({"/sys/hypervisor/type": "xen"}, "Xen"),
    "Xen of old": ({"/proc/xen/capabilities": ""}, "Xen"),
    "a VirtualBox card": ({"/proc/bus/pci/devices": "0010\t80eebeef\tb\te0000000"}, "Oracle"),
    "a VMware card": ({"/proc/bus/pci/devices": "0078\t15ad0405\t10"}, "VMware"),
    "a real card": ({"/proc/bus/pci/devices": "0010\t80860116\t2d\nbroken\n0010\tzzzz\t1"}, None),
    "z/VM": ({"/proc/sysinfo": "Type: 2817\nVM00 Control Program: z/VM    6.1.0"}, "IBM"),
    "KVM on s390": ({"/proc/sysinfo": "VM00 Control Program: KVM/Linux"}, "KVM"),
    "an LPAR": ({"/proc/sysinfo": "Manufacturer: IBM\nType: 2964"}, "IBM"),
    "PowerVM": (
        {"/proc/device-tree/ibm,partition-name": "x", "/proc/device-tree/hmc-managed?": ""},
        "pHyp",
    ),
    "PowerNV": ({"/proc/device-tree/compatible": "ibm,powernv\0ibm,firenze"}, None),
    "pSeries in QEMU": ({"/proc/device-tree/compatible": "qemu,pseries\0IBM,x"}, "KVM"),
    "a guest's clock": (
        {
            "/proc/cpuinfo": VIRTUAL,
            "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock",
        },
        "KVM",
    ),
    "a machine's own clocks": (
        {"/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm"},
        None,
    ),
    "OpenVZ": ({"/proc/vz/version": ""}, "Parallels"),
    "the host of OpenVZ": ({"/proc/vz/version": "", "/proc/bc/0": ""}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hypervisor_is_named_by_its_traces(tmp_path: Path, case: str) -> None:
    files, vendor = CASES[case]
    fake = FakeMachine(tmp_path)
    for path, text in files.items():
        fake.write(path, text)
    assert read_hypervisor(fake.root, read_cpuinfo(fake.root)) == vendor

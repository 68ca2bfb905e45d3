"""Which hypervisor runs this machine, if any."""

from __future__ import annotations

from cpubound.machine.cpu import CpuInfo
from cpubound.machine.files import Root, parse_integer

# Vendor names as lscpu writes them. What firmware says of itself, lower case.
_FIRMWARE_WORDS = (
    ("qemu", "KVM"),
    ("kvm", "KVM"),
    ("amazon ec2", "KVM"),
    ("google compute engine", "KVM"),
    ("openstack", "KVM"),
    ("digitalocean", "KVM"),
    ("hetzner", "KVM"),
    ("vmware", "VMware"),
    ("virtualbox", "Oracle"),
    ("innotek", "Oracle"),
    ("parallels", "Parallels"),
    ("xen", "Xen"),
    ("bhyve", "bhyve"),
    ("apple virtualization", "Apple"),
    ("bochs", "Bochs"),
)
# Graphics cards that only exist in virtual machines: (vendor, device).
_VIRTUAL_DEVICES = {
    (0x5853, 0x0001): "Xen",
    (0x1414, 0x5353): "Microsoft",
    (0x15AD, 0x0710): "VMware",
    (0x15AD, 0x0405): "VMware",
    (0x80EE, 0xBEEF): "Oracle",
    (0x1AF4, 0x1050): "KVM",
    (0x1234, 0x1111): "KVM",
}
# Clocks that a guest kernel reads from its hypervisor.
_VIRTUAL_CLOCKS = (("kvm-clock", "KVM"), ("hyperv_clocksource", "Microsoft"), ("xen", "Xen"))
UNNAMED = "unknown"


def read_hypervisor(root: Root, cpuinfo: CpuInfo) -> str | None:
    """Name the hypervisor's vendor; ``unknown`` if there is one without a name; else None."""
    return (
        _read_kernel_release(root)
        or _read_firmware(root, cpuinfo)
        or _read_device_tree(root)
        or _read_xen(root)
        or _read_devices(root)
        or _read_s390(root)
        or _read_openvz(root)
        or _read_clock(root)
        or (UNNAMED if "hypervisor" in (cpuinfo.first("flags") or "").split() else None)
    )


def _read_kernel_release(root: Root) -> str | None:
    release = (root.read_text("/proc/sys/kernel/osrelease") or "").lower()
    return "Microsoft" if "microsoft" in release else None


def _read_firmware(root: Root, cpuinfo: CpuInfo) -> str | None:
    names = ("sys_vendor", "product_name", "board_vendor", "bios_vendor")
    words = [root.read_text(f"/sys/class/dmi/id/{name}") or "" for name in names]
    text = " ".join(words).lower()
    if words[0] == "Microsoft Corporation" and "virtual machine" in text:
        return "Microsoft"  # not a Surface
    is_bare_metal = ".metal" in text or (
        cpuinfo.first("flags") and "hypervisor" not in (cpuinfo.first("flags") or "").split()
    )
    if is_bare_metal:
        return None
    return next((vendor for word, vendor in _FIRMWARE_WORDS if word in text), None)


def _read_device_tree(root: Root) -> str | None:
    tree = "/proc/device-tree"
    compatible = (root.read_text(f"{tree}/compatible") or "").split("\0")
    if root.exists("/proc/iSeries"):
        return "OS/400"
    if "ibm,powernv" in compatible:
        return None
    if (
        root.exists(f"{tree}/ibm,partition-name")
        and root.exists(f"{tree}/hmc-managed?")
        and not root.exists(f"{tree}/chosen/qemu,graphic-width")
    ):
        return "pHyp"
    if "qemu,pseries" in compatible or "linux,dummy-virt" in compatible:
        return "KVM"
    parent = root.read_text(f"{tree}/hypervisor/compatible") or ""
    names = {"xen": "Xen", "kvm": "KVM", "vmware": "VMware"}
    return next((vendor for word, vendor in names.items() if word in parent), None)


def _read_xen(root: Root) -> str | None:
    if root.read_text("/sys/hypervisor/type") == "xen":
        return "Xen"
    # What lscpu goes by: an empty folder is left on kernels that merely could.
    return "Xen" if root.exists("/proc/xen/capabilities") or _is_snapshot_xen(root) else None


def _is_snapshot_xen(root: Root) -> bool:
    return not root.is_live and root.exists("/proc/xen")


def _read_devices(root: Root) -> str | None:
    """Look for a virtual graphics card in the kernel's table of PCI devices."""
    for line in (root.read_text("/proc/bus/pci/devices") or "").splitlines():
        words = line.split("\t")
        if len(words) < 2 or len(words[1]) != 8:
            continue
        vendor, device = (parse_integer("0x" + part) for part in (words[1][:4], words[1][4:]))
        if vendor is not None and device is not None and (vendor, device) in _VIRTUAL_DEVICES:
            return _VIRTUAL_DEVICES[vendor, device]
    return None


def _read_s390(root: Root) -> str | None:
    fields = root.read_fields("/proc/sysinfo")
    if not fields:
        return None
    programs = [value for key, value in fields.items() if key.endswith("Control Program")]
    return "KVM" if any("KVM" in program for program in programs) else "IBM"


def _read_openvz(root: Root) -> str | None:
    return "Parallels" if root.exists("/proc/vz") and not root.exists("/proc/bc") else None


def _read_clock(root: Root) -> str | None:
    folder = "/sys/devices/system/clocksource/clocksource0"
    clocks = (root.read_text(f"{folder}/available_clocksource") or "").split()
    for prefix, vendor in _VIRTUAL_CLOCKS:
        if any(clock.startswith(prefix) for clock in clocks):
            return vendor
    return None

"""``/proc/cpuinfo`` of every architecture, as fields per processor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cpubound.machine.files import MAX_CPUS, Root

_S390_LINE = re.compile(r"processor ([0-9]+)")
_SPARC_LINE = re.compile(r"CPU([0-9]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuInfo:
    """Fields by processor number, and those that stand outside any processor's block."""

    processors: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)

    def get(self, cpu: int, key: str) -> str | None:
        """Give a field of one processor, or the common one."""
        return self.processors.get(cpu, {}).get(key) or self.common.get(key)

    def first(self, *keys: str) -> str | None:
        """Give the first non-empty value of the first key that any processor has."""
        for key in keys:
            for fields in (*self.processors.values(), self.common):
                if fields.get(key):
                    return fields[key]
        return None


def read_cpuinfo(root: Root) -> CpuInfo:
    """Read ``/proc/cpuinfo``; without one, or for garbage, there are no processors.

    Most architectures write a block of ``key : value`` lines per processor. Old Arm
    kernels put what all share after the blocks, s390 before them with one line
    ``processor 0: version = …`` each, sparc lists ``CPU0: online``.
    """
    processors: dict[int, dict[str, str]] = {}
    common: dict[str, str] = {}
    block: dict[str, str] = common
    for line in (root.read_text("/proc/cpuinfo") or "").splitlines():
        key, found, value = (part.strip() for part in line.partition(":"))
        if not found:
            block = block if line.strip() else common
            continue
        number = _processor_number(key, value)
        if number is None:
            block.setdefault(key, value)
        elif key in ("processor", "cpu number"):
            block = processors.setdefault(number, {})
        else:
            processors.setdefault(number, {})
            common.setdefault(key, value)
    return CpuInfo(processors=processors, common=common)


def _processor_number(key: str, value: str) -> int | None:
    digits = value
    if key not in ("processor", "cpu number"):
        match = _S390_LINE.fullmatch(key)
        if match is None and value == "online":
            match = _SPARC_LINE.fullmatch(key)
        digits = match[1] if match else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8):
        return None
    number = int(digits)
    return number if number < MAX_CPUS else None

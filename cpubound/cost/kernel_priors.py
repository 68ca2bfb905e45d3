"""What is believed of llama.cpp's kernels on a machine before a row of it is seen.

``kernel_priors.toml`` (package data) holds, for each instruction set, how many weights of a
type a thread goes through compared with other types, and how much that differs from machine
to machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cpubound.package_data import read_toml

# Where nothing is known of a type, its factor may be off by this (one σ of the logarithm).
UNKNOWN_TYPE_ERROR = 0.5
# The factors of the types that both tables have differ by 0.14 (median of the logarithms) and
# by up to this: what is known of a type on one instruction set from the other.
OTHER_ISA_ERROR = 0.4

_X86 = re.compile(r"intel|amd|ryzen|epyc|xeon|threadripper|core\W|celeron|pentium|atom|x86", re.I)
_ARM = re.compile(
    r"\barm|aarch64|apple|cortex|neoverse|ampere|graviton|snapdragon|oryon|kryo|raspberry|"
    r"rockchip|mediatek|dimensity|exynos|kunpeng|grace|tegra",
    re.I,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Belief:
    """A value and the standard deviation of its logarithm."""

    value: float
    relative_error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelPriors:
    """Beliefs by parameter name: the law's, a factor for each type and attention setting."""

    beliefs: Mapping[str, Belief]

    @property
    def types(self) -> tuple[str, ...]:
        """The weight types that something is known of."""
        return tuple(n for n in self.beliefs if n == n.upper() and ":" not in n)

    @property
    def attention_keys(self) -> tuple[str, ...]:
        """The attention settings that something is known of."""
        return tuple(n for n in self.beliefs if ":" in n)

    def belief(self, name: str) -> Belief:
        """Return the belief in a parameter, a wide one for an unknown type or setting."""
        return self.beliefs.get(name, Belief(value=1.0, relative_error=UNKNOWN_TYPE_ERROR))


def read_priors() -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """Read the tables: ``law``, ``attention``, and one of types for each instruction set."""
    return _read_tables()


def kernel_priors(isa: str | None, tables: Mapping[str, Any] | None = None) -> KernelPriors:
    """Return the priors for ``x86``, ``arm`` or None, from the tables or others of their form.

    A type that only the other instruction set knows has that one's factor, believed less.
    """
    tables = _read_tables() if tables is None else tables
    types: dict[str, Belief] = {}
    for other in ("x86", "arm"):
        for name, (value, error) in tables.get(other, {}).items():
            believed = error if other == isa else max(error, OTHER_ISA_ERROR)
            if other == isa or name not in types:
                types[name] = Belief(value=value, relative_error=believed)
    if "F16" in types and "F32" not in types:
        # The few matrices of F32 (routers) go at about the bytes per second of F16.
        half = types["F16"]
        types["F32"] = Belief(
            value=half.value / 2, relative_error=max(half.relative_error, OTHER_ISA_ERROR)
        )
    fixed = {
        name: Belief(value=value, relative_error=error)
        for table in ("law", "attention")
        for name, (value, error) in tables.get(table, {}).items()
    }
    return KernelPriors(beliefs={**fixed, **types})


def isa_of_cpu(cpu_info: str | None) -> str | None:
    """Return ``x86`` or ``arm`` from a CPU's name, None where it does not tell."""
    text = cpu_info or ""
    if _ARM.search(text):
        return "arm"
    return "x86" if _X86.search(text) else None


@cache
def _read_tables() -> dict[str, dict[str, tuple[float, float]]]:
    return {
        table: {name: (float(value), float(error)) for name, (value, error) in rows.items()}
        for table, rows in read_toml("cost", "kernel_priors.toml").items()
    }

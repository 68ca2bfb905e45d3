"""Which kernels there are, which instruction sets can run here, and which one is taken."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType

from cpubound.errors import IsaUnavailable, KernelsUnavailable, UsageError
from cpubound.kernels.values import KernelSpec

ISA_VARIABLE = "CPUBOUND_ISA"

# The second has the instructions of the first and more registers: beside it noise alone could
# make the first the fastest, and a profile name it. llama.cpp takes the second where it has both
# (ggml/src/ggml-cpu/arch/x86/quants.c at 0c1e57098bba).
_SURPASSED = {"avxvnni": "avx512vnni"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """A kernel and its place in the native table."""

    index: int
    spec: KernelSpec
    arrays: int  # how many arrays it takes
    unit_bytes: int  # bytes of a unit in each array; 0 without arrays and for a GEMV
    block_elements: int  # weights per block; 0 for a kernel that is not a GEMV
    activation_elements: int  # activations per block of the vector

    @property
    def is_gemv(self) -> bool:
        return self.block_elements > 0


def load_native() -> ModuleType:
    """Import the extension.

    Raises
    ------
    KernelsUnavailable : it was not built for this Python.
    """
    try:
        from cpubound import _kernels
    except ImportError as error:
        raise KernelsUnavailable(
            f"the native kernels are missing ({error}): "
            "install a C compiler and run pip install --force-reinstall cpubound"
        ) from error
    return _kernels


def available_isas() -> tuple[str, ...]:
    """Return the instruction sets that can run here, weakest first."""
    return tuple(name for name, available in load_native().isas() if available)


def kernel_specs() -> tuple[KernelSpec, ...]:
    """Return every kernel of this build, for every instruction set it was written for."""
    return tuple(row.spec for row in table_rows())


def table_rows() -> tuple[TableRow, ...]:
    """Return the native table."""
    return tuple(
        TableRow(
            index=index,
            spec=KernelSpec(
                name=row["name"],
                isa=row["isa"],
                variant=row["variant"],
                dtype=row["dtype"],
                read_bytes=row["read_bytes"],
                write_bytes=row["write_bytes"],
                write_allocate_bytes=row["write_allocate_bytes"],
                flops=row["flops"],
            ),
            arrays=row["arrays"],
            unit_bytes=row["unit_bytes"],
            block_elements=row["block_elements"],
            activation_elements=row["activation_elements"],
        )
        for index, row in enumerate(load_native().kernel_table())
    )


def runnable_kernels() -> tuple[str, ...]:
    """Return the names of the kernels that some instruction set available here can run."""
    available = available_isas()
    return tuple(dict.fromkeys(row.spec.name for row in table_rows() if row.spec.isa in available))


def select_isa(isa: str | None = None) -> str | None:
    """Return the instruction set that was asked for, or None if none was.

    Parameters
    ----------
    isa : a name from ``available_isas``; None takes the environment's ``CPUBOUND_ISA``.

    Raises
    ------
    IsaUnavailable : it is unknown or cannot run here.
    """
    wanted = isa or os.environ.get(ISA_VARIABLE) or None
    if wanted is None:
        return None
    available = available_isas()
    if wanted not in available:
        origin = "isa" if isa else ISA_VARIABLE
        raise IsaUnavailable(
            f"instruction set not available ({origin}={wanted}): choose from {', '.join(available)}"
        )
    return wanted


def candidates(name: str, isa: str | None = None) -> tuple[TableRow, ...]:
    """Return the rows of a kernel among which the fastest is taken.

    Where an instruction set was asked for, these are the rows of that set, or of the next
    weaker one the kernel was written for. Else they are all that can run here but plain C and
    what a stronger set surpasses in every case.

    Raises
    ------
    UsageError : no such kernel.
    IsaUnavailable : from ``select_isa``, or the kernel needs what this CPU lacks.
    """
    rows = [row for row in table_rows() if row.spec.name == name]
    if not rows:
        names = dict.fromkeys(row.spec.name for row in table_rows())
        raise UsageError(f"no such kernel ({name}): choose from {', '.join(names)}")
    strength = {available: rank for rank, available in enumerate(available_isas())}
    runnable = [row for row in rows if row.spec.isa in strength]
    wanted = select_isa(isa)
    limit = strength[wanted] if wanted is not None else len(strength)
    allowed = [row for row in runnable if strength[row.spec.isa] <= limit]
    if not allowed:
        needed = ", ".join(dict.fromkeys(row.spec.isa for row in rows))
        raise IsaUnavailable(
            f"{name} needs an instruction set that cannot be used here ({needed}): leave it out"
        )
    if wanted is not None:
        best = max(strength[row.spec.isa] for row in allowed)
        return tuple(row for row in allowed if strength[row.spec.isa] == best)
    needless = {"portable"} | {weak for weak, strong in _SURPASSED.items() if strong in strength}
    return tuple(row for row in runnable if row.spec.isa not in needless) or tuple(runnable)

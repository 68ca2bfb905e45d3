from collections.abc import Sequence
from typing import Any, TypedDict

class KernelRow(TypedDict):
    name: str
    isa: str
    variant: str
    dtype: str
    read_bytes: float
    write_bytes: float
    write_allocate_bytes: float
    flops: float
    arrays: int
    unit_bytes: int
    block_elements: int
    activation_elements: int

PAGES_ANY: int
PAGES_4K: int
PAGES_HUGE: int
PAGES_FILE: int

def isas() -> tuple[tuple[str, bool], ...]: ...
def kernel_table() -> list[KernelRow]: ...
def measure_clock() -> tuple[int, float]: ...
def array_bytes(index: int, array: int, units: int, columns: int = 0) -> int: ...

class Memory:
    def __init__(self, n_bytes: int, pages: int, file: int = -1) -> None: ...
    def __len__(self) -> int: ...
    @property
    def address(self) -> int: ...
    def flush(self) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Operands:
    # A buffer is whatever supports the buffer protocol; no common type names it before 3.12.
    def __init__(
        self,
        index: int,
        arrays: Sequence[Any],
        units: int,
        columns: int = 0,
        scalar: float = 3.0,
    ) -> None: ...
    def check_units(self, begin: int, end: int) -> None: ...
    def fill(self, begin: int, end: int) -> None: ...
    def quantize(self, x: Any) -> None: ...

class Team:
    def __init__(self, threads: int) -> None: ...
    def stop(self) -> None: ...
    @property
    def stopped(self) -> bool: ...
    def run(
        self, operands: Operands, begin: int, end: int, passes: int
    ) -> tuple[int, int, int] | None: ...

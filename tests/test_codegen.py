"""The compiler kept the loops: vector registers in use, nothing turned into memcpy."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from cpubound import _kernels
from cpubound.kernels.table import kernel_specs

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")

INSTRUCTIONS = {
    "avx2": r"%ymm\d",
    "avx512": r"%zmm\d",
    "avxvnni": r"\{vex\} vpdp(bus|wss)d",
    "avx512vnni": r"(?<!\{vex\} )vpdp(bus|wss)d",
    "neon": r"\b[vq]\d+",
    "dotprod": r"\bsdot\b",
}
STREAM = ("read", "copy", "scale", "add", "triad")


@pytest.fixture(scope="module")
def functions() -> dict[str, list[str]]:
    """Instructions of each function, by its name."""
    output = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", _kernels.__file__],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            lines = found.setdefault(match.group(1).split(".")[0], [])
        elif re.match(r"\s+[0-9a-f]+:\t", line):
            lines.append(line.strip())
    if "read_portable" not in found:
        pytest.skip("the extension is stripped")
    return found


def symbol(spec) -> str:
    return "_".join(filter(None, (spec.name, spec.variant, spec.isa)))


def has_loop(instructions: list[str]) -> bool:
    """A jump to an earlier instruction of the function."""
    for line in instructions:
        match = re.match(
            r"([0-9a-f]+):\t(?:j\w+|b\.?\w*|cbn?z|tbn?z)\s+(?:.*,\s*)?([0-9a-f]+) <", line
        )
        if match and int(match.group(2), 16) < int(match.group(1), 16):
            return True
    return False


def callees(name: str, functions: dict[str, list[str]]) -> set[str]:
    """A function and those that it calls: rows of a matrix may be functions of their own."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen and current in functions:
            seen.add(current)
            calls = (
                re.search(r"\b(?:call|bl|jmp|b)\s+.*<([^>+.]+)", i) for i in functions[current]
            )
            waiting += [call.group(1) for call in calls if call]
    return seen


SPECS = [s for s in kernel_specs() if s.name in STREAM or s.name.startswith("gemv_")]


@pytest.mark.parametrize("spec", SPECS, ids=symbol)
def test_a_kernel_is_a_loop_of_its_own_instructions(spec, functions) -> None:
    called = callees(symbol(spec), functions)
    assert any(has_loop(functions[each]) for each in called)
    instructions = [line for each in called for line in functions[each]]
    wanted = INSTRUCTIONS.get(spec.isa)
    if wanted:
        assert any(re.search(wanted, line) for line in instructions)
    elif spec.isa == "portable":
        assert not any(re.search(r"%[yz]mm", line) for line in instructions)


@pytest.mark.parametrize("spec", SPECS, ids=symbol)
def test_no_loop_became_a_call_of_the_c_library(spec, functions) -> None:
    called = callees(symbol(spec), functions)
    calls = [
        line for each in called for line in functions[each] if re.search(r"mem(cpy|set|move)", line)
    ]
    assert calls == []


@pytest.mark.parametrize("spec", [s for s in SPECS if s.name in STREAM], ids=symbol)
def test_a_stream_kernel_calls_nothing(spec, functions) -> None:
    calls = [line for line in functions[symbol(spec)] if re.search(r"\t(call|bl)\s", line)]
    assert calls == []

"""Every file that is written for somebody is written in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import cpubound

PACKAGE = Path(cpubound.__file__).parent
# What else writes, and why it may.
WRITES_WITHOUT = {
    "temporary.py": "the one place",
    "engine/processes.py": "a setting of its own process in /proc",
    "engine/tied.py": "a setting of its own process in /proc",
}


def written(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that write a file, or open one to write."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "savefig"):
            into = node.args[0] if name == "savefig" else None
            if getattr(into, "id", "") != "buffer":
                yield node.lineno
        if name == "open":
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            modes = [mode.value for mode in given if isinstance(mode, ast.Constant)]
            if any(re.fullmatch("[rwxabt+]*[wxa+][rwxabt+]*", str(mode)) for mode in modes):
                yield node.lineno


def test_no_other_module_writes_a_file() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(written(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == set(WRITES_WITHOUT)


def test_a_module_that_writes_would_be_found() -> None:
    for line in ("Path(p).write_text(t)", "open(p, 'wb')", "path.open('a')", "open(p, mode='x')"):
        assert list(written(ast.parse(line))) == [1]
    for line in ("open(p)", "path.open('rb')", "figure.savefig(buffer)", "os.open(p, os.O_RDONLY)"):
        assert list(written(ast.parse(line))) == []

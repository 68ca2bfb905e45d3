"""csrc by itself, without Python: on other architectures and under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "native" / "run"
NEEDS = {
    "host": ["cc"],
    "arm64": ["aarch64-linux-gnu-gcc", "qemu-aarch64-static"],
    "address,undefined": ["cc"],
    "thread": ["cc"],
}


@pytest.mark.parametrize("what", NEEDS)
def test_every_kernel_agrees_with_plain_c(what: str) -> None:
    missing = [tool for tool in NEEDS[what] if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    done = subprocess.run([SCRIPT, what], capture_output=True, text=True, timeout=300)
    if "cannot find -l" in done.stderr or "cannot find lib" in done.stderr:
        pytest.skip(f"the compiler has no runtime for {what}")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "good stop"
    assert all(line.startswith("good ") for line in lines)
    if what == "arm64":
        assert any(line.split()[2] == "neon" for line in lines[:-1])

"""How the engine's processes are started: nothing near the user leads them, none outlives us."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cpubound.engine import tied
from cpubound.machine.files import Root
from cpubound.machine.limits import read_memory_kills
from cpubound.trust import import_folders

# Children stand here: a library that looks for plug-ins in the current folder finds ours, and
# ggml is one (ggml_backend_load_best looks for libggml-*.so there).
FOLDER = Path(__file__).parent
_CANNOT_EXECUTE = f"{tied.NAME}: "


def python_command(code: str) -> tuple[str, ...]:
    """Return the command that runs Python code whose imports do not begin where the user stands.

    Use it with ``python_environment``. From Python 3.11 on ``-P`` does it; before, ``-c`` puts
    an empty entry into ``sys.path``, and nothing is imported until the code has taken it out.
    """
    safe_path = ("-P",) if sys.version_info >= (3, 11) else ()
    return (
        sys.executable,
        *safe_path,
        "-c",
        f"import sys; sys.path[:] = filter(None, sys.path)\n{code}",
    )


def python_environment(**variables: str) -> dict[str, str]:
    """Return the environment of a Python child that imports from where this process may."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(import_folders()), **variables}


def tied_command(program: Path, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a program which ends with the thread that starts it.

    Linux does that; elsewhere the program is started as it is, and ends when it is done.
    """
    command = (str(program), *arguments)
    if sys.platform != "linux":
        return command
    # Isolated and without site-packages: only the standard library, and a quick start.
    return (sys.executable, "-I", "-S", tied.__file__, str(os.getpid()), *command)


def offer_to_be_killed() -> None:
    """Let the kernel end this process, not the one that started it, where memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


class MemoryKills:
    """Tells whether an engine's process was killed because memory ran out since this was made."""

    def __init__(self, read: Callable[[], int | None] = lambda: read_memory_kills(Root())) -> None:
        self._read = read
        self._before = read()

    def explain(self, code: int) -> str | None:
        """Return what an exit code means if memory may be behind it, None if not."""
        if code != -getattr(signal, "SIGKILL", 9):
            return None
        now = self._read()
        if self._before is None or now is None:
            return "it was killed (SIGKILL), as the system does where memory runs out"
        return "it was killed for memory" if now > self._before else None


def cannot_execute(code: int, log: str) -> str | None:
    """Return why a tied program could not be executed, None if it was."""
    if code != tied.CANNOT_EXECUTE or not log.startswith(_CANNOT_EXECUTE):
        return None
    return log.removeprefix(_CANNOT_EXECUTE).strip()

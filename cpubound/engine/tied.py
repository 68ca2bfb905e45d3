"""Becomes another program that the kernel ends with its parent. A script of Linux.

``tied.py PARENT PROGRAM ARGUMENT…``: the process stays the same, so that its parent sees the
program's own output and exit code. It uses nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NAME = "tied.py"
CANNOT_EXECUTE = 126
_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> int:
    """Execute a command in this process; return only if that is not possible."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It ended before the kernel was asked.
        return CANNOT_EXECUTE
    try:
        # Where memory runs out this process is ended, not the one that tells of it.
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("1000")
    except OSError:
        pass
    # Python ignores these, and a program keeps what is ignored.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{NAME}: {error.strerror}\n")
    return CANNOT_EXECUTE


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

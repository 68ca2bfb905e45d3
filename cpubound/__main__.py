"""The program: ``cpubound``, or ``python -m cpubound``.

``python -m`` itself imports from the current folder, as it does for every program; use it only
where you trust that.
"""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line and exit with its code, 130 on Ctrl-C even while it loads."""
    try:
        from cpubound.trust import forget_current_folder

        forget_current_folder()
        from cpubound.cli import main

        code = main(sys.argv[1:])
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", 130)
    sys.exit(code)


if __name__ == "__main__":
    run()

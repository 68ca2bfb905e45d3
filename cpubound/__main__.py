"""``python -m cpubound``."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line and exit with its code, 130 on Ctrl-C even while it loads."""
    try:
        from cpubound.cli import main

        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    run()

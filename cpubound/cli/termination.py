"""SIGTERM as an orderly end: as on Ctrl-C, files are removed and the engine's process ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM came. What tidies up on Ctrl-C does so now."""


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raise ``Terminated`` in the main thread on SIGTERM.

    A handler that is set already, or SIGTERM ignored, stays as it is. Other threads than the
    main one cannot set any.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def was_terminated(error: BaseException) -> bool:
    """Tell whether an interrupt, or click's ``Abort`` made of it, came from SIGTERM."""
    return isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated

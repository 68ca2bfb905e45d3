"""One signal ends a command in order: files are removed and the engine's process ended first."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What each says of itself. SIGHUP comes when the terminal is closed; Windows has none.
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
_SIGNALS = {getattr(signal, name): word for name, word in _WORDS.items() if hasattr(signal, name)}


class Ended(KeyboardInterrupt):
    """A signal asks for the end. What tidies up on Ctrl-C does so now."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code that a shell gives this signal."""
        return 128 + self.number

    @property
    def word(self) -> str:
        """What became of the command."""
        return _SIGNALS[self.number]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise ``Ended`` in the main thread on the first SIGINT, SIGTERM or SIGHUP.

    Signals that follow are ignored, so that they cannot cut short what tidies up: while the
    exception is on its way, and behind this block until the process ends. Whatever the
    tidying raises instead, and click's ``Abort``, becomes ``Ended`` again. Python drops an
    exception that is raised in one of its callbacks; then the next signal raises again.

    A handler that is set already, or a signal ignored, stays as it is. Other threads than the
    main one cannot set any.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {n: signal.getsignal(n) for n in _SIGNALS if signal.getsignal(n) in usual}
    ended = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        if _find_ended(sys.exc_info()[1]) is None:
            raise Ended(number)

    try:
        for number in before:
            signal.signal(number, end)
        yield
    except BaseException as error:
        found = _find_ended(error)
        if found is None or found is error:
            raise
        raise found from None
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if ended else handler)


@contextmanager
def signals_held() -> Iterator[None]:
    """Let the signals that end a command wait for the end of this block: a result is saved here.

    Where the system cannot hold them (Windows) they come at once.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _find_ended(error: BaseException | None) -> Ended | None:
    """Return the ``Ended`` that an exception is, or was raised in handling of."""
    while error is not None and not isinstance(error, Ended):
        error = error.__context__
    return error

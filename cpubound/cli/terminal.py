"""What leaves for standard output and standard error: the only module that prints."""

from __future__ import annotations

import codecs
import sys
import traceback
from contextlib import suppress
from types import TracebackType

from cpubound.foreign import hide_credentials, visible_lines

# What replaces our own characters where the output cannot take them.
_PLAIN = {
    "–": "-", "−": "-", "…": "...", "·": "-", "×": "x", "±": "+/-", "→": "->", "µ": "u", "Σ": "sum",
    "√": "sqrt", "≤": "<=", "≥": ">=", "≈": "~", "²": "^2", "“": '"', "”": '"', "’": "'",
}  # fmt: skip
_ERRORS = "cpubound.plain"


def say(text: str, *, err: bool = False) -> None:
    """Print lines of text: whatever went into them, no control character and no password."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None:
        stream.write(visible_lines(hide_credentials(text)) + "\n")
        stream.flush()


def show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print what ended the program, as the interpreter would, and nothing else of a name in it."""
    say("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"), err=True)


def accept_any_encoding() -> None:
    """Let both outputs write plain characters for those that their encoding does not have."""
    codecs.register_error(_ERRORS, _plain_characters)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with suppress(ValueError):  # it is closed
                reconfigure(errors=_ERRORS)


def _plain_characters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, "") or _escaped(c) for c in missing), error.end


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

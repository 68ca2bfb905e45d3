"""Strings from outside, made fit to be shown: on one line, printable, without credentials.

A name in a model, a profile, a log or on the command line may hold anything: escape sequences
that clear a screen or set its title, line breaks that forge a second message, marks that turn
the direction of writing, characters of no width. ``report`` shows none of them raw.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from pathlib import PurePath
from typing import Any, ParamSpec, TypeVar

import msgspec

from cpubound import bounds

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# What stands in a command for a name that cannot be pasted.
UNPASTEABLE = "MODEL"
# Printable by their category, but drawn as nothing (Default_Ignorable_Code_Point of Unicode 15,
# and the empty Braille cell); and more accents on one letter than any language has.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]|(?<=[\u0300-\u036f]{3})[\u0300-\u036f]"
)
_BYTES_OF_NAMES = range(0xDC80, 0xDD00)  # where Python keeps bytes that are no UTF-8
_STRINGLESS = frozenset({float, int, bool, type(None)})
_WORD = re.compile(r"\S+")
_HOST = re.compile(r":/+|//+")  # what stands before the host of an address, however mistyped


def visible(what: object) -> str:
    """Return a text on one printable line; what is not printable as ``\\x1b``, ``\\u202e``."""
    text = str(what)
    if len(text) > bounds.SHOWN_CHARACTERS:
        text = text[: bounds.SHOWN_CHARACTERS] + "…"
    return _printable(text)


def visible_lines(text: str) -> str:
    """Return a text of our own lines with nothing else in it that is not printable."""
    return "\n".join(_printable(line) for line in text.split("\n"))


def show_values(value: Any, show: Callable[[str], str]) -> Any:
    """Return a value with every string in it as ``show`` gives it; itself where none changes."""
    if type(value) in _STRINGLESS:
        return value
    if isinstance(value, str):
        return show(value)
    if isinstance(value, PurePath):
        return type(value)(show(str(value)))
    if isinstance(value, dict):
        pairs = [(show_values(key, show), show_values(item, show)) for key, item in value.items()]
        same = all(k is a and v is b for (k, v), (a, b) in zip(pairs, value.items(), strict=True))
        return value if same else dict(pairs)
    if isinstance(value, tuple | list | frozenset):
        # A profile has a hundred thousand samples.
        if _STRINGLESS.issuperset(map(type, value)):
            return value
        items = [show_values(item, show) for item in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if isinstance(value, msgspec.Struct):
        changes = _changes(value, value.__struct_fields__, show)
        return msgspec.structs.replace(value, **changes) if changes else value
    if is_dataclass(value) and not isinstance(value, type):
        changes = _changes(value, tuple(field.name for field in fields(value)), show)
        return replace(value, **changes) if changes else value
    return value


def showing(
    show: Callable[[str], str] = visible,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Give a function that writes text or draws its arguments with every string as ``show`` does.

    Every function of ``report`` that returns text or a picture is decorated so: none can forget
    a string.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def shown(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            return function(*show_values(args, show), **show_values(kwargs, show))

        shown.__dict__["shows"] = show
        return shown

    return decorate


def as_unicode(text: str) -> str:
    """Return a text that UTF-8 can hold: bytes of a name that are none as ``\\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def hide_credentials(text: str) -> str:
    """Return the text with ``***`` for the user, the password and the query of web addresses."""
    return _WORD.sub(lambda match: _without_credentials(match[0]), text)


def shell_word(text: str) -> str:
    """Return a name as a shell takes it, or ``MODEL`` for one that must not be pasted."""
    if visible(text) != text or hide_credentials(text) != text:
        return UNPASTEABLE
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _printable(line: str) -> str:
    if not line.isprintable():
        line = "".join(c if c.isprintable() else _escaped(c) for c in line)
    return line if line.isascii() else _UNSEEN.sub(lambda match: _escaped(match[0]), line)


def _escaped(character: str) -> str:
    if ord(character) in _BYTES_OF_NAMES:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def _changes(value: Any, names: tuple[str, ...], show: Callable[[str], str]) -> dict[str, Any]:
    found = {name: show_values(getattr(value, name), show) for name in names}
    return {name: item for name, item in found.items() if item is not getattr(value, name)}


def _without_credentials(word: str) -> str:
    match = _HOST.search(word)
    if match is None:
        return word
    host = match.end()
    end = word.rfind("@", host)
    if end >= 0:
        word = f"{word[:host]}***{word[end:]}"
    query = word.find("?", host)
    if query >= 0 and word[query + 1 :].rstrip("):,.;'\"`"):
        kept = len(word[query + 1 :].rstrip("):,.;'\"`")) + query + 1
        word = f"{word[: query + 1]}***{word[kept:]}"
    return word

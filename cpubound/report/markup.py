"""How each format takes a text that means only itself: Markdown, CSV, JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cpubound.foreign import hide_credentials

# What GitHub's Markdown reads as markup wherever it stands (spec 0.29 and its mathematics); an
# underscore and a bracket only where they open or close something.
_MARKUP = re.compile(
    r"[\\`*<|~$]"
    r"|(?<![^\W_])_|_(?![^\W_])"
    r"|\](?=[\[(:])"
    r"|&(?=#|[A-Za-z])"
    r"|:(?=//)|(?<=\w)@(?=\w)|(?<=\b[wW]{3})\."
    r"|^[#>+=-]|^\d+(?=[.)]\s)",
    re.MULTILINE,
)
# A spreadsheet takes a cell that begins so for a formula (OWASP, CSV injection).
_FORMULA = tuple(
    "=+-@\t\r\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
    "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?( %)?|-inf", re.ASCII)


def markdown_text(text: str) -> str:
    """Return lines of text that Markdown shows as they are."""
    return _MARKUP.sub(lambda match: _escaped_markup(match[0]), text)


def csv_cell(text: str) -> str:
    """Return a cell that a spreadsheet takes for text unless it is a number."""
    if text.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def json_text(document: Mapping[str, Any]) -> str:
    """Return a document as JSON with its true strings, everything unprintable as ``\\uXXXX``.

    Numbers that JSON cannot hold are null; the credentials of web addresses are left out.
    """
    return printable_json(
        json.dumps(_plain(msgspec.to_builtins(document)), ensure_ascii=False, indent=2)
    )


def printable_json(text: str) -> str:
    """Escape what is not printable in a JSON text: outside of strings there is nothing such."""
    return "\n".join(
        line if line.isprintable() else "".join(_escaped_json(c) for c in line)
        for line in text.split("\n")
    )


def _escaped_markup(found: str) -> str:
    if found.isdigit():
        return f"{found}\\"
    return f"\\{found}"


def _escaped_json(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return hide_credentials(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {hide_credentials(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value

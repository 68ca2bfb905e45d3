"""The progress bar: a stage is a text, not markup and not an escape sequence."""

from __future__ import annotations

import io

import pytest

from cpubound.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_stage_with_markup_and_escape_sequences_is_shown_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar() as show:
        show("[/nothing] [red]\x1b]0;title\x07\n", 0.5)
    assert "[/nothing] [red]" in terminal.getvalue()
    assert "\x1b]0;" not in terminal.getvalue()


def test_where_no_terminal_is_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress_bar() as show:
        show("a stage", 0.5)
    assert stream.getvalue() == ""

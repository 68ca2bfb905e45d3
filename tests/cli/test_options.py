"""How numbers of tokens are written on the command line."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from cpubound.cli.options import Tokens, TokensList, depth_option, tokens_in


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("0", 0), ("4k", 4096), ("32K", 32768), ("1M", 2**20), (" 8k ", 8192), ("8192", 8192)],
)
def test_thousands_of_tokens_are_those_of_contexts(text: str, tokens: int) -> None:
    assert Tokens(0, 2**27).convert(text, None, None) == tokens


@pytest.mark.parametrize("text", ["k", "4kb", "-1k", "1.5k", "9999999k", "four"])
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        Tokens(0, 2**27).convert(text, None, None)


def test_a_list_takes_them_in_its_order() -> None:
    assert TokensList(0, 2**27).convert("0,4k,32K,4096", None, None) == (0, 4096, 32768)
    assert tokens_in(("4k",)) == ("4k",)


def test_the_depth_may_be_called_the_context() -> None:
    @click.command()
    @depth_option
    def command(depth: tuple[int, ...]) -> None:
        click.echo(depth)

    assert CliRunner().invoke(command, ["--ctx", "4k"]).output == "(4096,)\n"

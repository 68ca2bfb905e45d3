"""Options that several commands share, and the types that read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from cpubound.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_THREADS = 4096
MAX_DEPTH = 2**27
# Bytes can be counted for any; what llama.cpp itself decodes together, ``llama_facts`` knows.
MAX_BATCH = 2**16


class Integer(click.ParamType):  # type: ignore[type-arg]
    """A whole number between two bounds."""

    name = "N"

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.read(value, param, ctx)

    def read(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        if not self.low <= number <= self.high:
            self.fail(f"{number} is outside {self.low} … {self.high}", param, ctx)
        return number


class IntegerList(Integer):
    """``1,2,4``: whole numbers between two bounds, in the given order, each once."""

    name = "N[,N…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(self.read(part, param, ctx) for part in str(value).split(",")))


class FiniteRange(click.FloatRange):
    """A number within bounds; not a number is outside of all of them."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


def refuse_with(option: str, *others: str) -> None:
    """Raise ``UsageError`` if the running command was given others that ``option`` ignores."""
    given = _given(others)
    if given:
        raise UsageError(
            f"{' and '.join(given)} would change nothing with {option}: leave one or the other out"
        )


def refuse_without(option: str, *others: str) -> None:
    """Raise ``UsageError`` if the running command was given others that need ``option``."""
    given = _given(others)
    if given:
        go, them = ("goes", "it") if len(given) == 1 else ("go", "them")
        raise UsageError(f"{' and '.join(given)} {go} with {option}: add that, or leave {them} out")


def _given(options: tuple[str, ...]) -> list[str]:
    """Return those options that stand on the running command's line."""
    context = click.get_current_context()
    given = {
        option
        for parameter in context.command.params
        for option in parameter.opts
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    }
    return [option for option in options if option in given]


def profile_option(function: Function) -> Function:
    """Add --profile."""
    return click.option(
        "--profile",
        "profile_path",
        metavar="FILE",
        help="A saved profile.  [default: this machine's]",
    )(function)


def engine_option(function: Function) -> Function:
    """Add --engine."""
    return click.option(
        "--engine",
        "engine_path",
        metavar="PATH",
        help="A llama-bench binary to run.  [default: llama-cpp-python, else llama-bench on PATH]",
    )(function)


def threads_option(function: Function) -> Function:
    """Add --threads."""
    return click.option(
        "--threads",
        "-t",
        type=IntegerList(1, MAX_THREADS),
        help="Decode threads, one or several.  [default: what tune would choose]",
    )(function)


def depth_option(function: Function) -> Function:
    """Add --depth."""
    return click.option(
        "--depth",
        "-d",
        type=IntegerList(0, MAX_DEPTH),
        default="0",
        show_default=True,
        help="Tokens already in the cache, one or several.",
    )(function)


def one_depth_option(function: Function) -> Function:
    """Add --depth, of a single number."""
    return click.option(
        "--depth",
        "-d",
        type=click.IntRange(0, MAX_DEPTH),
        default=0,
        show_default=True,
        help="Tokens already in the cache.",
    )(function)


def seed_option(function: Function) -> Function:
    """Add --seed."""
    return click.option(
        "--seed", type=int, help="Order of the runs.  [default: another each time]"
    )(function)


def batch_option(function: Function) -> Function:
    """Add --batch."""
    return click.option(
        "--batch",
        "-b",
        type=IntegerList(1, MAX_BATCH),
        default="1",
        show_default=True,
        help="Sequences decoded together, one or several numbers.",
    )(function)


def prompt_option(function: Function) -> Function:
    """Add --prompt."""
    return click.option(
        "--prompt",
        "-p",
        type=IntegerList(1, MAX_DEPTH),
        help="Tokens of a prompt: how long llama.cpp reads before it answers.",
    )(function)


def attention_options(function: Function) -> Function:
    """Add --kv-type and --flash-attn."""
    function = click.option(
        "--flash-attn",
        "-fa",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        callback=lambda _context, _option, state: state != "off",
        show_default=True,
        help="Flash-attention; auto is on, as in llama.cpp on CPUs.",
    )(function)
    return click.option(
        "--kv-type",
        metavar="T|K:V",
        default="f16",
        show_default=True,
        help="Type of the KV cache, or of K and V apart.",
    )(function)


def output_options(function: Function) -> Function:
    """Add --format, --json and --force."""
    function = click.option("--force", is_flag=True, help="Replace an existing file.")(function)
    function = click.option(
        "--json",
        "json_path",
        metavar="FILE",
        help="Write the JSON document to FILE beside the table; - prints it instead.",
    )(function)
    return click.option(
        "--format",
        "style",
        type=click.Choice(["table", "markdown", "csv", "json"]),
        default="table",
        show_default=True,
        help="How the result is printed.",
    )(function)

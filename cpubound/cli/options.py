"""Options that several commands share, and the types that read them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from cpubound import bounds
from cpubound.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


# Decimal digits as every other program prints them, and no more than a number can have.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?")
_LEAST = 1e-30
MAX_SEED = 2**63 - 1


class Integer(click.ParamType):  # type: ignore[type-arg]
    """A whole number between two bounds."""

    name = "N"

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.read(value, param, ctx)

    def read(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not _WHOLE.fullmatch(str(value)):
            self.fail(f"{_short(value)} is no whole number", param, ctx)
        number = int(value)
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


class Tokens(Integer):
    """A number of tokens between two bounds; ``4k`` is 4,096."""

    def read(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return super().read(tokens_in(value), param, ctx)


class TokensList(IntegerList):
    """``0,4k,32K``: numbers of tokens between two bounds, in the given order, each once."""

    def read(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return super().read(tokens_in(value), param, ctx)


def tokens_in(value: Any) -> Any:
    """Return the number that ``4k`` or ``1M`` means, anything else as it is."""
    found = re.fullmatch(r"(\d{1,9})([kKmM])", value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    return int(found[1]) * (2**10 if found[2] in "kK" else 2**20)


class FiniteRange(click.FloatRange):
    """A number within bounds, in decimal digits: neither infinite nor so small that it is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not _DECIMAL.fullmatch(str(value).strip()):
            self.fail(f"{_short(value)} is no number", param, ctx)
        number = float(super().convert(value, param, ctx))
        if not (math.isfinite(number) and (number == 0 or _LEAST <= abs(number) <= 1 / _LEAST)):
            self.fail(f"{_short(value)} is out of range", param, ctx)
        return number


def refuse_too_many(*lists: Collection[object] | None) -> None:
    """Raise ``UsageError`` where lists of settings make more of them than a command works out."""
    count = math.prod(len(values) for values in lists if values)
    if count > bounds.SETTINGS:
        raise UsageError(
            f"{count} settings are more than a command works out ({bounds.SETTINGS}): "
            "ask for fewer at once"
        )


def _short(value: object) -> str:
    """Quote what was given, which may be of any length."""
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


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
        type=IntegerList(1, bounds.THREADS),
        help="Decode threads, one or several.  [default: what tune would choose]",
    )(function)


def depth_option(function: Function) -> Function:
    """Add --depth."""
    return click.option(
        "--depth",
        "--ctx",
        "-d",
        type=TokensList(0, bounds.DEPTH_TOKENS),
        default="0",
        show_default=True,
        help="Tokens already in the cache, one or several.",
    )(function)


def one_depth_option(function: Function) -> Function:
    """Add --depth, of a single number."""
    return click.option(
        "--depth",
        "--ctx",
        "-d",
        type=Tokens(0, bounds.DEPTH_TOKENS),
        default=0,
        show_default=True,
        help="Tokens already in the cache.",
    )(function)


def n_ctx_option(function: Function) -> Function:
    """Add --n-ctx."""
    return click.option(
        "--n-ctx",
        type=Tokens(1, bounds.DEPTH_TOKENS),
        help="Cells allocated for the context.  [default: the model's own, else the depth]",
    )(function)


def seed_option(function: Function) -> Function:
    """Add --seed."""
    return click.option(
        "--seed", type=Integer(0, MAX_SEED), help="Order of the runs.  [default: another each time]"
    )(function)


def batch_option(function: Function) -> Function:
    """Add --batch."""
    return click.option(
        "--batch",
        "-b",
        type=IntegerList(1, bounds.BATCH),
        default="1",
        show_default=True,
        help="Sequences decoded together, one or several numbers.",
    )(function)


def prompt_option(function: Function) -> Function:
    """Add --prompt."""
    return click.option(
        "--prompt",
        "-p",
        type=TokensList(1, bounds.PROMPT_TOKENS),
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


def _check_json_path(
    context: click.Context, _option: click.Parameter, path: str | None
) -> str | None:
    """Find a file in the way before any work; ``--force`` is read first."""
    if path not in (None, "-") and not context.resilient_parsing:
        from cpubound.cli.output import check_new_file

        check_new_file(Path(str(path)), force=context.params["force"])
    return path


def output_options(function: Function) -> Function:
    """Add --format, --json and --force."""
    function = click.option(
        "--force", is_flag=True, is_eager=True, help="Replace an existing file."
    )(function)
    function = click.option(
        "--json",
        "json_path",
        metavar="FILE",
        callback=_check_json_path,
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

"""The ``LoggedRun`` value: one decode that a log tells of, and which of several is meant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpubound import bounds
from cpubound.errors import InputError, UsageError
from cpubound.units import format_count

# How many runs an error lists.
_LISTED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedRun:
    """One decode that a log tells of; what it does not tell is None.

    ``gpu`` names what may have run it elsewhere than on the CPU. ``features`` are the
    instructions and options that its build names; ``asked_features``, in the wording that lists
    what is missing too, all that it speaks of.
    """

    engine: str  # as ``engines.find_engine`` knows it
    tokens_per_s: float  # of all sequences together
    samples_tokens_per_s: tuple[float, ...] = ()
    tokens: int | None = None  # of one sequence
    depth_tokens: int | None = None  # mean over the run
    has_unknown_prefix: bool = False  # a prefix of the prompt was reused, of unknown length
    batch: int = 1
    n_ctx: int | None = None
    threads: int | None = None
    cpus: int | None = None  # that the program saw
    model: str | None = None
    model_parameters: int | None = None
    model_bytes: int | None = None
    kv_types: tuple[str, str] | None = None  # of K and V
    flash_attn: bool | None = None
    gpu: str | None = None
    has_draft: bool = False
    features: tuple[str, ...] | None = None
    asked_features: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def model_name(self) -> str | None:
        """The model without the folders of its file."""
        return None if self.model is None else re.split(r"[\\/]", self.model)[-1]

    def __str__(self) -> str:
        parts = [f"{self.tokens_per_s:.4g} tok/s"]
        if self.model_name is not None:
            parts.append(self.model_name)
        if self.threads is not None:
            parts.append(format_count(self.threads, "thread"))
        if self.depth_tokens:
            parts.append(f"depth {self.depth_tokens}")
        if self.batch > 1:
            parts.append(format_count(self.batch, "sequence"))
        return ", ".join(parts)


def add_run(found: list[LoggedRun], run: LoggedRun) -> None:
    """Add a run to those found; ``InputError`` for more than anybody means."""
    if len(found) >= bounds.ROWS:
        raise InputError(f"the log holds more than {bounds.ROWS} runs: cut out those you mean")
    found.append(run)


def choose_run(runs: tuple[LoggedRun, ...], number: int | None = None) -> LoggedRun:
    """Return the one run, or the one of this number (from 1).

    Raises
    ------
    UsageError : several runs and no number, no such number, or a run whose rate is not that
        of one token after the other on the CPU.
    """
    if number is None and len(runs) > 1:
        listed = "; ".join(f"{i}: {run}" for i, run in enumerate(runs[:_LISTED], 1))
        more = f"; and {len(runs) - _LISTED} more" if len(runs) > _LISTED else ""
        raise UsageError(
            f"the log holds {len(runs)} runs ({listed}{more}): choose one with --run N"
        )
    if number is not None and not 1 <= number <= len(runs):
        raise UsageError(f"the log holds {len(runs)} runs, not a run {number}: choose another")
    run = runs[(number or 1) - 1]
    if run.has_draft:
        raise UsageError(
            f"the run used a draft model ({run}): its rate is not that of single steps; "
            "run it without one"
        )
    return run


def require_cpu(run: LoggedRun) -> LoggedRun:
    """Return the run, or raise ``UsageError`` if a GPU had a part in it."""
    if run.gpu is not None:
        raise UsageError(
            f"the run was on a GPU, or partly ({run.gpu}): run it with -ngl 0, or name the GPU "
            "with --machine (h100-sxm, …) to compare the rate with its bandwidth"
        )
    return run

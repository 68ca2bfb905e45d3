"""From what a person says and a log tells to the case that is diagnosed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from cpubound.advise.case import Case, ModelCase, require_rate
from cpubound.advise.engines import LLAMA_CPP, Engine, find_engine
from cpubound.advise.logs import LoggedRun
from cpubound.advise.tune.defaults import Default
from cpubound.errors import InputError, UsageError
from cpubound.llama_facts import KV_TYPES
from cpubound.machine.values import Machine
from cpubound.model.catalog import catalog_entry
from cpubound.model.label import quant_label
from cpubound.model.names import catalog_name_in, file_type_in
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile
from cpubound.setting import F16, Setting
from cpubound.units import format_binary_bytes, format_count

# Logs print sizes and counts to three or more digits; file types lie further apart.
_SAME_MODEL = 0.015
# Published counts are rounded to a digit or two.
_SAME_NAME = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is known of a run; None is left to the log, and then to the engine's defaults."""

    observed_tokens_per_s: float | None = None
    run: LoggedRun | None = None
    threads: int | None = None
    depth_tokens: int | None = None
    n_ctx: int | None = None
    batch: int = 1
    kv_types: tuple[str, str] | None = None
    flash_attn: bool | None = None
    engine: str | None = None

    @property
    def observed(self) -> float:
        """The observed rate, checked; ``UsageError`` if there is none."""
        rate = self.observed_tokens_per_s
        if rate is None and self.run is not None:
            rate = self.run.tokens_per_s
        if rate is None:
            raise UsageError("no observed rate: give --observed TOKS or --from-log FILE")
        return require_rate(rate)

    @property
    def sequences(self) -> int:
        """The sequences decoded at once: what was given, else what the log says."""
        return self.run.batch if self.run is not None and self.batch == 1 else self.batch

    @property
    def program(self) -> Engine:
        """The program that ran the model."""
        name = self.engine or (self.run.engine if self.run is not None else None)
        return LLAMA_CPP if name is None else find_engine(name)


def model_case_of(question: Question, spec: ModelSpec, default: Default) -> ModelCase:
    """Return the model at the setting of the run; ``default`` is the program's own.

    Raises
    ------
    InputError : the log is of another model.
    UsageError : the log does not tell the depth of a run that reused a prompt.
    """
    run = question.run
    if run is not None:
        require_same_model(run, spec)
        if question.depth_tokens is None and run.has_unknown_prefix:
            raise UsageError(
                "the run reused a prompt of which the log does not say how long it was: give the "
                "tokens that were in the cache with --depth N"
            )
    flash = _known(question.flash_attn, run.flash_attn if run else None)
    threads = _known(question.threads, run.threads if run else None)
    threads = _known(threads, spec.default_threads)
    kv_types = _known(question.kv_types, _logged_kv_types(run)) or F16
    depth = _known(question.depth_tokens, run.depth_tokens if run else None) or 0
    n_ctx = _known(question.n_ctx, run.n_ctx if run else None)
    if n_ctx is not None and question.n_ctx is None:
        # A context that the run shifted, or a prompt cache, may hold less than was counted.
        n_ctx = max(n_ctx, depth + 1)
    setting = Setting(
        threads=default.threads if threads is None else threads,
        depth_tokens=depth,
        allocated_context_tokens=n_ctx,
        batch=question.sequences,
        kv_type_k=kv_types[0],
        kv_type_v=kv_types[1],
        flash_attn=default.flash_attn if flash is None else flash,
    )
    return ModelCase(spec=spec, setting=setting)


def _logged_kv_types(run: LoggedRun | None) -> tuple[str, str] | None:
    """Return the types of K and V that a log names; None if llama.cpp has no such cache."""
    if run is None or run.kv_types is None:
        return None
    k, v = (name.lower() for name in run.kv_types)
    return (k, v) if k in KV_TYPES and v in KV_TYPES else None


def case_of(
    question: Question,
    spec: ModelSpec,
    profile: MachineProfile,
    *,
    model_argument: str,
    machine_now: Machine | None = None,
) -> tuple[Case, tuple[str, ...]]:
    """Return the case, and what had to be assumed for it.

    Raises
    ------
    UsageError : no observed rate, one that cannot be, a depth that only the user can know, or
        an engine that is not known.
    InputError : the log is of another model or another machine.
    """
    observed, engine, run = question.observed, question.program, question.run
    default = engine.default(profile.machine)
    if run is not None:
        require_same_machine(run, profile.machine)
    notes = [] if run is None else [*run.notes]
    threads = _known(question.threads, run.threads if run else None)
    if _known(threads, spec.default_threads) is None:
        notes.append(
            f"threads were not given: taken as {engine.name}'s own default, {default.threads}"
        )
    case = Case(
        spec=spec,
        setting=model_case_of(question, spec, default).setting,
        profile=profile,
        engine=engine,
        model_argument=model_argument,
        observed_tokens_per_s=observed,
        samples_tokens_per_s=run.samples_tokens_per_s if run is not None else (),
        features=run.features if run is not None else None,
        asked_features=run.asked_features if run is not None else None,
        machine_now=machine_now,
    )
    return case, tuple(notes)


def require_same_machine(run: LoggedRun, machine: Machine) -> None:
    """Raise ``InputError`` if the program saw a number of CPUs that this machine never shows."""
    shown = {
        len(machine.logical_cpus),
        len(machine.online_cpus),
        len(machine.allowed_cpus),
        machine.effective_cpus,
    }
    if run.cpus is not None and run.cpus not in shown:
        raise InputError(
            f"the log is of a machine with {format_count(run.cpus, 'CPU')}, the profile of one "
            f"with {max(shown)}: give the profile of the machine that ran it (--profile), or a "
            "published one (--machine)"
        )


def require_same_model(run: LoggedRun, spec: ModelSpec) -> None:
    """Raise ``InputError`` if a log is of another model than this one."""
    parameters = sum(tensor.elements for tensor in spec.tensors)
    n_bytes = sum(tensor.n_bytes for tensor in spec.tensors)
    name = "" if run.model_name is None else f" ({run.model_name})"
    if run.model_parameters and abs(run.model_parameters / parameters - 1) > _SAME_MODEL:
        raise InputError(
            f"the log is of a model{name} with {run.model_parameters / 1e9:.3g} billion weights, "
            f"{spec.name} has {parameters / 1e9:.3g}: give the model that was run"
        )
    if run.model_bytes and abs(run.model_bytes / n_bytes - 1) > _SAME_MODEL:
        raise InputError(
            f"the log is of a file{name} with {format_binary_bytes(run.model_bytes)} of weights, "
            f"{spec.name} has {format_binary_bytes(n_bytes)}: give the file type that was run"
        )
    if run.model_name is None or run.model_parameters or run.model_bytes:
        return
    named = catalog_name_in(run.model_name)
    if named and abs(catalog_entry(named).parameters / parameters - 1) > _SAME_NAME:
        raise InputError(
            f"the log is of {named}{name}, not of {spec.name}: give the model that was run"
        )
    type_name = None if spec.shards else file_type_in(run.model_name)
    if type_name and type_name != quant_label(spec):
        raise InputError(
            f"the log is of a {type_name} file{name}, {spec.name} is given as "
            f"{quant_label(spec)}: give the file type that was run"
        )


def _known(given: _T | None, logged: _T | None) -> _T | None:
    """Return what was given, else what the log says."""
    return logged if given is None else given

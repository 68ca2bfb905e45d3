"""Verbs that give advice: tune, diagnose."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from cpubound.advise.diagnosis import Diagnosis
from cpubound.advise.tune import Advice
from cpubound.advise.tune.values import Verification
from cpubound.api.common import Progress, no_progress, spec_of
from cpubound.api.engines import engine_with, open_reference
from cpubound.api.limits import (
    check_threads,
    machine_now,
    on_machine,
    profile_here,
    refuse_too_big,
)
from cpubound.api.predicting import predict_best
from cpubound.cost.values import Prediction
from cpubound.engine.watch import LiveFacts
from cpubound.errors import UsageError
from cpubound.foreign import shell_word
from cpubound.machine.values import Machine
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting, read_setting, split_kv_type


def tune(
    model: str | ModelSpec,
    *,
    depth: int = 0,
    kv_type: str | None = None,
    target: float | None = None,
    verify_seconds: float | None = None,
    seed: int | None = None,
    profile: MachineProfile | None = None,
    machine: Machine | None = None,
    model_path: str | None = None,
    progress: Progress = no_progress,
) -> Advice:
    """Choose threads, CPUs, flash-attention and KV type for a model at a depth.

    Parameters
    ----------
    kv_type : one type for K and V, or ``K:V``; by default the best of those measured.
    target : a wanted rate in tok/s: find the file type and the context that give it.
    verify_seconds : run the choice, its neighbours and the programs' defaults for so long.
    machine : the machine whose limits (quota, affinity, memory) count; by default this one as
        it is now, if the profile was made on it or the choice is verified here.
    model_path : the file's name in the commands; by default the model's own.

    Raises
    ------
    UsageError : a KV type that is none.
    MachineError : the model does not fit into memory; with ``verify_seconds`` no engine.
    """
    from cpubound.advise.tune.session import (
        Session,
        advise,
        commands_of,
        kv_options,
    )
    from cpubound.cost.thread_choice import thread_counts
    from cpubound.measuring.threads import placement

    profile = profile or load_profile()
    spec = spec_of(model)
    options = [split_kv_type(kv_type)] if kv_type else kv_options(profile, depth)
    made_on = profile.machine
    runs_here = verify_seconds is not None
    if runs_here:
        profile = profile_here(profile)
    elif machine := machine or machine_now(profile):
        profile = on_machine(profile, machine)
    session = Session(profile=profile, spec=spec, thread_counts=thread_counts(profile))
    smallest = session.smallest_traffic(depth, options)
    refuse_too_big(profile.machine, smallest, now=runs_here)
    cpus_for = partial(placement, profile.machine)
    name = model_path or (spec.shards[0] if spec.shards else f"{spec.name}.gguf")
    advice = advise(
        session,
        cpus_for,
        depth_tokens=depth,
        kv_options=options,
        model_path=name,
        target=target,
        made_on=made_on,
    )
    if verify_seconds is None:
        return advice
    found = _verify(advice, session.predict, spec, verify_seconds, seed, progress)
    if found.faster is not None:
        lines = commands_of(session, cpus_for, advice, found.faster, name)
        found = msgspec.structs.replace(found, commands=lines)
    return msgspec.structs.replace(advice, verification=found)


def _verify(
    advice: Advice,
    predict_setting: Callable[[Setting], Prediction],
    spec: ModelSpec,
    seconds: float,
    seed: int | None,
    progress: Progress,
) -> Verification:
    """Run the choice, its neighbours and the programs' defaults."""
    from cpubound.advise.tune.verify import verify

    with engine_with(spec, progress) as (runner, path):
        return verify(
            advice,
            predict_setting,
            runner,
            path,
            seconds=seconds,
            seed=random.randrange(2**32) if seed is None else seed,
            progress=progress,
        )


def diagnose(
    model: str | ModelSpec,
    *,
    observed: float | None = None,
    log: str | Path | None = None,
    run: int | None = None,
    threads: int | None = None,
    depth: int | None = None,
    n_ctx: int | None = None,
    batch: int = 1,
    kv_type: str | None = None,
    flash_attn: bool | None = None,
    engine: str | None = None,
    machine: str = "mine",
    profile: MachineProfile | None = None,
) -> Diagnosis:
    """Say why a model ran as fast as it did: what the rate implies, what explains it, what helps.

    What is left at None is taken from the log, and then from the engine's own defaults.

    Parameters
    ----------
    observed : the rate of generation, in tokens per second of all sequences together.
    log : a file with what the engine printed, instead of ``observed``.
    run : which run of the log, from 1, where it holds several.
    engine : the program that ran it (``advise.engines``): its defaults, and how it is told.
    machine : ``mine``, or a published machine (``theory.presets``), also one with a GPU.
    profile : of the machine that ran it; by default this machine's, checked to be of it.

    Raises
    ------
    UsageError : neither or both of ``observed`` and ``log``, a rate that is no positive number,
        several runs and no number, a run on a GPU held against a profile.
    InputError : a log that cannot be read, tells no rate, or is of another model.
    """
    from cpubound.advise.diagnose import MINE, diagnose_published, diagnose_run
    from cpubound.advise.logs import choose_run, read_log_file, require_cpu
    from cpubound.advise.question import Question, case_of, model_case_of
    from cpubound.advise.tune.defaults import Default
    from cpubound.llama_facts import check_batch
    from cpubound.machine.read import read_machine
    from cpubound.theory.presets import find_preset

    if (observed is None) == (log is None):
        raise UsageError("give the observed rate or a log, one of them: --observed, --from-log")
    logged = None if log is None else choose_run(read_log_file(Path(log)), run)
    question = Question(
        observed_tokens_per_s=observed,
        run=logged,
        threads=threads,
        depth_tokens=depth,
        n_ctx=n_ctx,
        batch=batch,
        kv_types=None if kv_type is None else split_kv_type(kv_type),
        flash_attn=flash_attn,
        engine=engine,
    )
    preset = None if machine == MINE else find_preset(machine)
    spec = spec_of(model)
    if preset is not None:
        case = model_case_of(question, spec, Default(threads=1, flash_attn=True))
        notes = () if logged is None else logged.notes
        return diagnose_published(case, question.observed, preset, notes)
    check_batch(question.sequences)
    if logged is not None:
        require_cpu(logged)
    # A profile that was asked for may be another machine's; the default one should be this one's.
    now = read_machine() if profile is None else None
    argument = shell_word(model if isinstance(model, str) else (*spec.shards, spec.name)[0])
    run_case, notes = case_of(
        question,
        spec,
        profile or load_profile(),
        model_argument=argument,
        machine_now=now,
    )
    return diagnose_run(run_case, notes)


def diagnose_live(
    model: str | ModelSpec,
    *,
    threads: int | None = None,
    depth: int = 0,
    kv_type: str = "f16",
    flash_attn: bool = True,
    seconds: float = 15.0,
    profile: MachineProfile | None = None,
    progress: Progress = no_progress,
) -> Diagnosis:
    """Run a model here, look while it runs, and say why it is as fast as it is.

    Parameters and errors as of ``watch_live``.
    """
    from cpubound.advise.live import add_live

    facts = watch_live(
        model,
        threads=threads,
        depth=depth,
        kv_type=kv_type,
        flash_attn=flash_attn,
        seconds=seconds,
        profile=profile,
        progress=progress,
    )
    diagnosis = diagnose(
        model,
        observed=facts.tokens_per_s,
        threads=facts.threads,
        depth=depth,
        kv_type=kv_type,
        flash_attn=flash_attn,
        engine="llama-cpp-python",
        profile=profile,
    )
    return add_live(diagnosis, facts)


def watch_live(
    model: str | ModelSpec,
    *,
    threads: int | None = None,
    depth: int = 0,
    kv_type: str = "f16",
    flash_attn: bool = True,
    seconds: float = 15.0,
    profile: MachineProfile | None = None,
    progress: Progress = no_progress,
) -> LiveFacts:
    """Run a model through llama.cpp here and look, while it decodes, at what it waits for.

    A model without a file is synthesised in a temporary folder at the same shapes and types.

    Parameters
    ----------
    threads : by default those that ``tune`` would choose.
    seconds : how long to watch.

    Raises
    ------
    UsageError : more threads than effective CPUs.
    MachineError : the model does not fit into memory, no engine, no space.
    """
    from cpubound.cost.predict import read_bandwidth
    from cpubound.engine.live import add_residency, watch_decode
    from cpubound.engine.values import RunSettings
    from cpubound.engine.watch import watch_process

    profile = profile_here(profile or load_profile())
    spec = spec_of(model)
    setting = read_setting(depth=depth, kv_type=kv_type, flash_attn=flash_attn)
    traffic = compute_traffic(spec, setting)
    refuse_too_big(profile.machine, traffic)
    if threads is None:
        threads = predict_best(profile, traffic).setting.threads
    check_threads(profile.machine, (threads,))
    machine = profile.machine
    cpus = frozenset(machine.allowed_cpus)
    with ExitStack() as stack:
        runner, path = stack.enter_context(engine_with(spec, progress))
        facts = watch_decode(
            runner,
            RunSettings(model_path=path, setting=msgspec.structs.replace(setting, threads=threads)),
            seconds=seconds,
            start_watch=lambda pid: watch_process(pid, cpus),
            reference=stack.enter_context(open_reference(profile, (threads,))),
            progress=progress,
        )
        facts = add_residency(facts, spec.shards or (path,), traffic.file_bytes)
    clocks = [kind.max_khz for kind in machine.core_kinds if kind.max_khz]
    return msgspec.structs.replace(
        facts,
        calibrated_bytes_per_s=read_bandwidth(profile, threads),
        highest_clock_hz=min(clocks) * 1e3 if clocks else None,
    )

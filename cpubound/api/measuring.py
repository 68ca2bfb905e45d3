"""Verbs that measure: calibrate, validate, breakdown."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from msgspec import structs

from cpubound.api.common import Progress, no_progress, saved_profile, spec_of
from cpubound.api.engines import engine_files, engine_with, open_engine, open_reference, quantizer
from cpubound.api.limits import check_threads, profile_here, refuse_too_big
from cpubound.api.predicting import predict_best
from cpubound.cost.thread_choice import thread_counts
from cpubound.errors import UsageError
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile
from cpubound.setting import read_setting
from cpubound.validation.breakdown import Breakdown
from cpubound.validation.cells import Validation
from cpubound.validation.prompts import PromptValidation


def calibrate(
    *,
    quick: bool = False,
    thorough: bool = False,
    engine: bool = True,
    types: Sequence[str] | None = None,
    engine_path: str | None = None,
    progress: Progress = no_progress,
    keep: Callable[[MachineProfile, bool], None] = lambda _profile, _is_complete: None,
) -> MachineProfile:
    """Measure this machine, and llama.cpp on it.

    Parameters
    ----------
    quick : under 20 seconds, four quant types.
    thorough : some ten minutes, more buffers and rounds of everything.
    engine : measure llama.cpp too; False leaves its stage out.
    types : the quant types to measure instead of the plan's.
    engine_path : a llama-bench binary to measure through, instead of llama-cpp-python.
    keep : given the profile as soon as it is there, and True; or what there is of it, when an
        interrupt or any error ends a stage behind that of memory, and False.

    Raises
    ------
    MachineError : no memory, no kernels, no engine, or no space for the probes.
    UsageError : an unknown quant type, or quick and thorough at once.
    """
    from cpubound.engine.synth import write_model
    from cpubound.kernels.run import open_kernel
    from cpubound.machine.read import read_machine
    from cpubound.measuring.calibrate import calibrate as measure
    from cpubound.measuring.instruments import open_instruments
    from cpubound.measuring.plan import load_plan

    if quick and thorough:
        raise UsageError("a calibration is quick or thorough: give one of --quick and --thorough")
    name = "quick" if quick else "thorough" if thorough else "standard"
    plan = load_plan(name, tuple(types) if types else None)
    machine = read_machine()
    with ExitStack() as stack:
        runner = open_engine(engine_path) if engine else None
        if runner is not None:
            stack.callback(runner.close)
        return measure(
            machine,
            plan,
            open_bench=open_kernel,
            runner=runner,
            write_model=partial(write_model, quantize=quantizer(runner)),
            progress=progress,
            keep=keep,
            instruments=open_instruments(machine),
        )


def validate(
    models: Sequence[str | ModelSpec],
    *,
    threads: Sequence[int] | None = None,
    depths: Sequence[int] = (0,),
    batches: Sequence[int] = (1,),
    kv_type: str = "f16",
    flash_attn: bool = True,
    seconds: float = 60.0,
    seed: int | None = None,
    engine_path: str | None = None,
    profile: MachineProfile | None = None,
    progress: Progress = no_progress,
) -> Validation:
    """Run models through llama.cpp beside their predictions.

    A model without a file is synthesised in a temporary folder at the same shapes and types.

    Parameters
    ----------
    batches : numbers of sequences that are decoded together.
    engine_path : a llama-bench binary to run, instead of llama-cpp-python.

    Raises
    ------
    UsageError : more threads than effective CPUs, or sequences than llama.cpp decodes together.
    MachineError : a model that does not fit into memory, no engine, no space.
    """
    from cpubound.llama_facts import check_batch
    from cpubound.validation.cells import plan_cell, run_cells, warn_of_other_build

    profile = profile_here(profile or load_profile())
    specs = [spec_of(model) for model in models]
    counts = tuple(threads) if threads else thread_counts(profile)
    check_threads(profile.machine, counts)
    check_batch(max(batches))
    setting = read_setting(kv_type=kv_type, flash_attn=flash_attn)
    settings = [
        structs.replace(setting, threads=t, depth_tokens=d, batch=b)
        for t in counts
        for d in depths
        for b in batches
    ]
    largest = structs.replace(setting, depth_tokens=max(depths), batch=max(batches))
    for spec in specs:
        refuse_too_big(profile.machine, compute_traffic(spec, largest))
    with ExitStack() as stack:
        runner, paths = stack.enter_context(engine_files(specs, progress, engine_path))
        cells = [
            plan_cell(profile, spec, path, setting)
            for spec, path in zip(specs, paths, strict=True)
            for setting in settings
        ]
        reference = stack.enter_context(open_reference(profile, counts))
        validation = run_cells(
            cells,
            runner,
            reference,
            seconds=seconds,
            open_bytes=(profile.machine.free_memory_bytes or 0) // 2,
            progress=progress,
            seed=random.randrange(2**32) if seed is None else seed,
        )
        return warn_of_other_build(profile, validation, runner.identity())


def validate_prompts(
    models: Sequence[str | ModelSpec],
    prompts: Sequence[int],
    *,
    threads: Sequence[int] | None = None,
    depths: Sequence[int] = (0,),
    kv_type: str = "f16",
    flash_attn: bool = True,
    seconds: float = 60.0,
    seed: int | None = None,
    profile: MachineProfile | None = None,
    progress: Progress = no_progress,
) -> PromptValidation:
    """Process prompts through llama.cpp beside their predictions; raises as ``validate``."""
    from cpubound.validation.prompts import plan_prompt, run_prompts

    profile = profile_here(profile or load_profile())
    specs = [spec_of(model) for model in models]
    counts = tuple(threads) if threads else thread_counts(profile)[-1:]
    check_threads(profile.machine, counts)
    setting = read_setting(kv_type=kv_type, flash_attn=flash_attn)
    deepest = structs.replace(setting, depth_tokens=max(depths) + max(prompts))
    for spec in specs:
        refuse_too_big(profile.machine, compute_traffic(spec, deepest))
    with engine_files(specs, progress) as (runner, paths):
        cells = [
            plan_prompt(
                profile,
                spec,
                path,
                structs.replace(setting, threads=t, depth_tokens=d),
                prompt,
            )
            for spec, path in zip(specs, paths, strict=True)
            for t in counts
            for d in depths
            for prompt in prompts
        ]
        return run_prompts(
            cells,
            runner,
            seconds=seconds,
            progress=progress,
            seed=random.randrange(2**32) if seed is None else seed,
        )


def breakdown(
    model: str | ModelSpec,
    *,
    threads: int | None = None,
    depth: int = 0,
    kv_type: str = "f16",
    flash_attn: bool = True,
    tokens: int | None = None,
    seed: int | None = None,
    profile: MachineProfile | None = None,
    progress: Progress = no_progress,
) -> Breakdown:
    """Measure where the time of a token goes, beside its prediction if there is a profile.

    A model without a file is synthesised in a temporary folder at the same shapes and types.

    Parameters
    ----------
    threads : by default those that ``tune`` would choose; all effective CPUs without a profile.
    tokens : decoded in each of three ways; by default what takes about 20 seconds in all.

    Raises
    ------
    UsageError : more threads than effective CPUs.
    MachineError : the model does not fit into memory, no engine, no space.
    """
    from cpubound.cost.predict import predict_parts
    from cpubound.engine.values import RunSettings
    from cpubound.machine.read import read_machine
    from cpubound.validation.breakdown import run_rounds, take_apart

    profile = profile or saved_profile()
    profile = profile and profile_here(profile)
    machine = profile.machine if profile else read_machine()
    spec = spec_of(model)
    setting = read_setting(depth=depth, kv_type=kv_type, flash_attn=flash_attn)
    traffic = compute_traffic(spec, setting)
    refuse_too_big(machine, traffic)
    if threads is None:
        threads = machine.effective_cpus
        if profile is not None:
            threads = predict_best(profile, traffic).setting.threads
    check_threads(machine, (threads,))
    setting = structs.replace(setting, threads=threads)
    with engine_with(spec, progress) as (runner, path):
        rounds = run_rounds(
            runner,
            RunSettings(model_path=path, setting=setting),
            tokens=tokens,
            progress=progress,
            seed=random.randrange(2**32) if seed is None else seed,
        )
        identity = runner.identity()
    middle = depth + len(rounds[0].unobserved_s) // 2
    traffic = compute_traffic(spec, structs.replace(setting, depth_tokens=middle))
    return take_apart(
        traffic,
        rounds,
        predict_parts(profile, traffic, threads) if profile else {},
        setting=setting,
        engine=f"{identity.name} {identity.version}",
    )

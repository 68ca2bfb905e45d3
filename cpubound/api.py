"""The verbs of the command line as Python functions, each returning a value.

Nothing here prints. Every function that takes ``profile`` uses this machine's saved profile
when it is None.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from cpubound.advise.compare import Comparison
from cpubound.advise.diagnosis import Diagnosis
from cpubound.advise.tune import Advice, fewest_threads
from cpubound.breakdown import Breakdown
from cpubound.engine.watch import LiveFacts
from cpubound.errors import CpuboundError, MachineError, ProfileError, UsageError
from cpubound.machine.values import Machine
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.prediction.values import Prediction, PromptPrediction
from cpubound.prediction.what_if import WhatIf
from cpubound.profile import MachineProfile, load_profile
from cpubound.prompt_validation import PromptValidation
from cpubound.validation import Setting, Validation

if TYPE_CHECKING:
    from cpubound.engine.inprocess import LlamaCppRunner
    from cpubound.engine.llama_bench import LlamaBenchRunner
    from cpubound.engine.synth import Quantize

Progress = Callable[[str, float], None]


def no_progress(stage: str, done: float) -> None:
    """Ignore progress."""


def calibrate(
    *,
    quick: bool = False,
    thorough: bool = False,
    engine: bool = True,
    types: Sequence[str] | None = None,
    engine_path: str | None = None,
    progress: Progress = no_progress,
    keep_partial: Callable[[MachineProfile], None] = lambda _: None,
) -> MachineProfile:
    """Measure this machine, and llama.cpp on it.

    Parameters
    ----------
    quick : under 20 seconds, four quant types.
    thorough : some ten minutes, more buffers and rounds of everything.
    engine : measure llama.cpp too; False leaves its stage out.
    types : the quant types to measure instead of the plan's.
    engine_path : a llama-bench binary to measure through, instead of llama-cpp-python.
    keep_partial : given what there is when the engine stage is interrupted or fails.

    Raises
    ------
    MachineError : no memory, no kernels, no engine, or no space for the probes.
    UsageError : an unknown quant type, or quick and thorough at once.
    """
    from cpubound.calibration.calibrate import calibrate as measure
    from cpubound.calibration.instruments import open_instruments
    from cpubound.calibration.plan import load_plan
    from cpubound.engine.synth import write_model
    from cpubound.kernels import open_kernel
    from cpubound.machine import read_machine

    if quick and thorough:
        raise UsageError("a calibration is quick or thorough: give one of --quick and --thorough")
    name = "quick" if quick else "thorough" if thorough else "standard"
    plan = load_plan(name, tuple(types) if types else None)
    machine = read_machine()
    with ExitStack() as stack:
        runner = _open_engine(engine_path) if engine else None
        if runner is not None:
            stack.callback(runner.close)
        return measure(
            machine,
            plan,
            open_bench=open_kernel,
            runner=runner,
            write_model=partial(write_model, quantize=_quantizer(runner)),
            progress=progress,
            keep_partial=keep_partial,
            instruments=open_instruments(machine),
        )


def inspect_model(
    model: str | ModelSpec,
    *,
    depth: int = 0,
    n_ctx: int | None = None,
    batch: int = 1,
    kv_type: str = "f16",
    flash_attn: bool = True,
) -> ModelTraffic:
    """Work out the bytes that one decode step of a model reads and writes.

    Parameters
    ----------
    model : a MODEL argument (path, catalogue name, …) or its spec.
    depth : tokens already in the cache.
    n_ctx : cells allocated; by default what the depth needs.
    kv_type : one type for K and V, or ``K:V``.

    Raises
    ------
    ModelFileError, UsageError : the model cannot be read, or a setting is wrong.
    """
    from cpubound.model.traffic import compute_traffic

    type_k, type_v = split_kv_type(kv_type)
    return compute_traffic(
        _spec(model),
        depth_tokens=depth,
        n_ctx=n_ctx,
        batch=batch,
        kv_type_k=type_k,
        kv_type_v=type_v,
        flash_attn=flash_attn,
    )


def predict(
    model: str | ModelSpec,
    *,
    threads: int | None = None,
    depth: int = 0,
    n_ctx: int | None = None,
    batch: int = 1,
    kv_type: str = "f16",
    flash_attn: bool = True,
    profile: MachineProfile | None = None,
) -> Prediction:
    """Predict the decode speed of a model.

    Parameters
    ----------
    threads : decode threads; by default those that ``tune`` would choose.
    batch : sequences decoded together; the speed is that of all of them.
    """
    profile = profile or load_profile()
    traffic = inspect_model(
        model, depth=depth, n_ctx=n_ctx, batch=batch, kv_type=kv_type, flash_attn=flash_attn
    )
    if threads is None:
        return fewest_threads(predict_at(profile, traffic, measured_threads(profile)))
    return predict_at(profile, traffic, (threads,))[0]


def predict_prompt(
    model: str | ModelSpec,
    prompt: int,
    *,
    threads: int | None = None,
    depth: int = 0,
    kv_type: str = "f16",
    flash_attn: bool = True,
    profile: MachineProfile | None = None,
) -> PromptPrediction:
    """Predict how long a prompt takes before the answer begins.

    Parameters
    ----------
    prompt : tokens of the prompt.
    threads : batch threads; by default the most that were measured.
    depth : tokens already in the cache.

    Raises
    ------
    ProfileError : the profile holds no rates of llama.cpp for several tokens at once.
    """
    from cpubound.model.traffic import prompt_steps
    from cpubound.prediction.prompt import predict_prompt as predict_steps

    profile = profile or load_profile()
    spec = _spec(model)
    type_k, type_v = split_kv_type(kv_type)
    steps = prompt_steps(
        spec,
        prompt,
        depth_tokens=depth,
        kv_type_k=type_k,
        kv_type_v=type_v,
        flash_attn=flash_attn,
    )
    after = inspect_model(spec, depth=depth + prompt, kv_type=kv_type, flash_attn=flash_attn)
    return predict_steps(profile, steps, after, threads or max(measured_threads(profile)))


def predict_at(
    profile: MachineProfile, traffic: ModelTraffic, threads: Iterable[int]
) -> tuple[Prediction, ...]:
    """Predict one step's traffic at several thread counts, in their order."""
    from cpubound.prediction.decode import predict_decode

    return tuple(predict_decode(profile, traffic, count) for count in threads)


def survey(
    models: Iterable[ModelSpec],
    *,
    depth: int = 0,
    n_ctx: int | None = None,
    kv_type: str = "f16",
    flash_attn: bool = True,
    profile: MachineProfile | None = None,
) -> tuple[Prediction, ...]:
    """Predict many models at their best threads and return those that fit, fastest first.

    A model whose weights alone exceed the memory is passed over without more work, as is one
    whose bytes cannot be worked out.
    """
    profile = profile or load_profile()
    memory = profile.machine.usable_memory_bytes
    found = []
    for spec in models:
        if memory is not None and sum(tensor.n_bytes for tensor in spec.tensors) > memory:
            continue
        try:
            traffic = inspect_model(
                spec, depth=depth, n_ctx=n_ctx, kv_type=kv_type, flash_attn=flash_attn
            )
        except CpuboundError:
            continue
        chosen = fewest_threads(predict_at(profile, traffic, measured_threads(profile)))
        if chosen.fits_in_memory is not False:
            found.append(chosen)
    return tuple(sorted(found, key=lambda p: -p.tokens_per_s))


def measured_threads(profile: MachineProfile) -> tuple[int, ...]:
    """Return the thread counts a profile was measured at, within the effective CPUs."""
    counts = {m.threads for m in profile.bandwidth if m.kernel == "read"}
    if profile.engine is not None and profile.engine.costs:
        counts = {cost.threads for cost in profile.engine.costs}
    return tuple(sorted(t for t in counts if t <= profile.machine.effective_cpus)) or (1,)


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
    machine : the machine as it is now, where its limits (quota, affinity, memory) may be others
        than when the profile was made; by default as the profile has it.
    model_path : the file's name in the commands; by default the model's own.

    Raises
    ------
    UsageError : a KV type that is none.
    MachineError : the model does not fit into memory; with ``verify_seconds`` no engine.
    """
    from cpubound.advise.tune.session import Session, advise, kv_options, tunable_threads
    from cpubound.calibration.threads import placement

    profile = profile or load_profile()
    spec = _spec(model)
    options = [split_kv_type(kv_type)] if kv_type else kv_options(profile, depth)
    made_on = profile.machine
    profile = profile if machine is None else msgspec.structs.replace(profile, machine=machine)
    session = Session(profile=profile, spec=spec, thread_counts=tunable_threads(profile))
    refuse_too_big(profile, session.smallest_traffic(depth, options))
    advice = advise(
        session,
        partial(placement, profile.machine),
        depth_tokens=depth,
        kv_options=options,
        model_path=model_path or (spec.shards[0] if spec.shards else f"{spec.name}.gguf"),
        target=target,
        made_on=made_on,
    )
    if verify_seconds is None:
        return advice
    return _verify(advice, session.predict, spec, verify_seconds, seed, progress)


def _verify(
    advice: Advice,
    predict_setting: Callable[[Setting], Prediction],
    spec: ModelSpec,
    seconds: float,
    seed: int | None,
    progress: Progress,
) -> Advice:
    """Add real runs of the choice, its neighbours and the programs' defaults."""
    from cpubound.advise.tune.verify import verify
    from cpubound.engine import open_runner

    with ExitStack() as stack:
        runner = stack.enter_context(open_runner())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cpubound-")))
        found = verify(
            advice,
            predict_setting,
            runner,
            _model_file(spec, folder / f"{spec.name}.gguf", progress),
            seconds=seconds,
            seed=random.randrange(2**32) if seed is None else seed,
            progress=progress,
        )
    return msgspec.structs.replace(advice, verification=found)


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
    from cpubound.advise.question import Question, case_of, setting_of
    from cpubound.machine import read_machine
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
    spec = _spec(model)
    if preset is not None:
        return diagnose_published(setting_of(question, spec, True), question.observed, preset)
    if logged is not None:
        require_cpu(logged)
    # A profile that was asked for may be another machine's; the default one should be this one's.
    now = read_machine() if profile is None else None
    argument = model if isinstance(model, str) else (*spec.shards, spec.name)[0]
    case, notes = case_of(
        question, spec, profile or load_profile(), model_argument=argument, machine_now=now
    )
    return diagnose_run(case, notes)


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


def what_if(
    model: str | ModelSpec,
    changes: Sequence[str],
    *,
    threads: int | None = None,
    depth: int = 0,
    n_ctx: int | None = None,
    kv_type: str = "f16",
    flash_attn: bool = True,
    profile: MachineProfile | None = None,
) -> tuple[WhatIf, ...]:
    """Predict a model with changes and without: other memory, file type, cache or setting.

    Parameters
    ----------
    changes : each ``NAME=VALUE``, several joined by commas: ``bandwidth=1.5x``, ``channels=2``,
        ``memory=DDR5-6400x2``, ``quant=Q4_0``, ``kv=q8_0``, ``threads=8``, ``depth=8192``.

    Raises
    ------
    UsageError : a change that is none.
    ProfileError : a change that this profile cannot answer.
    """
    from cpubound.calibration.saturation import fit_law
    from cpubound.prediction.what_if import MemoryLaw, Question, ask

    profile = profile or load_profile()
    spec = _spec(model)
    if threads is None:
        threads = predict(
            spec, depth=depth, n_ctx=n_ctx, kv_type=kv_type, flash_attn=flash_attn, profile=profile
        ).threads
    type_k, type_v = split_kv_type(kv_type)
    question = Question(
        spec=spec,
        threads=threads,
        depth_tokens=depth,
        n_ctx=n_ctx,
        kv_type_k=type_k,
        kv_type_v=type_v,
        flash_attn=flash_attn,
    )
    read = profile.measurements("read", "anon_4k")
    if not read:
        raise ProfileError("the profile has no read bandwidth: run `cpubound calibrate` again")
    law = fit_law({"read": {t: m.median_bytes_per_s for t, m in read.items()}})
    memory = MemoryLaw(limit_bytes_per_s=law.limit_bytes_per_s, sharpness=law.sharpness)
    return tuple(ask(profile, question, change, memory) for change in changes)


def compare(
    a: MachineProfile,
    b: MachineProfile,
    models: Sequence[str | ModelSpec] = (),
    *,
    threads: Sequence[int] | None = None,
    depths: Sequence[int] = (0,),
    kv_type: str = "f16",
    flash_attn: bool = True,
) -> Comparison:
    """Compare two profiles: identity, measured rates, and models predicted on both.

    ``threads`` are those of both machines; by default each takes its own best.
    """
    from cpubound.advise.compare import compare_profiles

    def predict_on(
        profile: MachineProfile, spec: ModelSpec, depth: int, count: int | None
    ) -> Prediction:
        return predict(
            spec,
            threads=count,
            depth=depth,
            kv_type=kv_type,
            flash_attn=flash_attn,
            profile=profile,
        )

    pairs = [
        (predict_on(a, spec, depth, count), predict_on(b, spec, depth, count))
        for spec in map(_spec, models)
        for depth in depths
        for count in threads or (None,)
    ]
    return compare_profiles(a, b, pairs)


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
    UsageError : more threads than effective CPUs.
    MachineError : a model that does not fit into memory, no engine, no space.
    """
    from cpubound.validation import plan_cell, run_cells, warn_of_other_build

    profile = profile or load_profile()
    specs = [_spec(model) for model in models]
    counts = tuple(threads) if threads else measured_threads(profile)
    _check_threads(profile.machine, counts)
    type_k, type_v = split_kv_type(kv_type)
    settings = [
        Setting(
            threads=t,
            depth_tokens=d,
            batch=b,
            kv_type_k=type_k,
            kv_type_v=type_v,
            flash_attn=flash_attn,
        )
        for t in counts
        for d in depths
        for b in batches
    ]
    for spec in specs:
        most = inspect_model(spec, depth=max(depths), batch=max(batches), kv_type=kv_type)
        refuse_too_big(profile, most)
    with ExitStack() as stack:
        runner, paths = stack.enter_context(_engine_files(specs, progress, engine_path))
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
            open_bytes=(profile.machine.usable_memory_bytes or 0) // 2,
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
    from cpubound.prompt_validation import plan_prompt, run_prompts

    profile = profile or load_profile()
    specs = [_spec(model) for model in models]
    counts = tuple(threads) if threads else measured_threads(profile)[-1:]
    _check_threads(profile.machine, counts)
    type_k, type_v = split_kv_type(kv_type)
    for spec in specs:
        deepest = max(depths) + max(prompts)
        refuse_too_big(profile, inspect_model(spec, depth=deepest, kv_type=kv_type))
    with _engine_files(specs, progress) as (runner, paths):
        cells = [
            plan_prompt(
                profile,
                spec,
                path,
                Setting(
                    threads=t,
                    depth_tokens=d,
                    kv_type_k=type_k,
                    kv_type_v=type_v,
                    flash_attn=flash_attn,
                ),
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


def _open_engine(engine_path: str | None) -> LlamaCppRunner | LlamaBenchRunner:
    """Return the engine asked for; without llama-cpp-python, a llama-bench on PATH."""
    from cpubound.engine import find_runner, open_runner
    from cpubound.engine.llama_bench import LlamaBenchRunner, find_llama_bench

    if engine_path is not None:
        return LlamaBenchRunner(engine_path)
    on_path = find_llama_bench() if find_runner() is None else None
    return open_runner() if on_path is None else LlamaBenchRunner(on_path)


def _quantizer(runner: LlamaCppRunner | LlamaBenchRunner | None) -> Quantize | None:
    """Return what quantises probes: the runner's own child, or ours where ggml is not there."""
    from cpubound.engine import find_runner
    from cpubound.engine.llama_bench import LlamaBenchRunner
    from cpubound.engine.plain_blocks import random_blocks

    if runner is None:
        return None
    if isinstance(runner, LlamaBenchRunner):
        return random_blocks if find_runner() is None else None
    return runner.quantize


@contextmanager
def _engine_files(
    specs: Sequence[ModelSpec], progress: Progress, engine_path: str | None = None
) -> Iterator[tuple[LlamaCppRunner | LlamaBenchRunner, list[str]]]:
    """Open llama.cpp with a file for each model; what had to be written goes at the end."""
    with ExitStack() as stack:
        runner = _open_engine(engine_path)
        stack.callback(runner.close)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cpubound-")))
        # Numbered: file types of one model share its name.
        yield (
            runner,
            [
                _model_file(
                    spec, folder / f"{number}-{spec.name}.gguf", progress, _quantizer(runner)
                )
                for number, spec in enumerate(specs)
            ],
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
    from cpubound.breakdown import run_rounds, take_apart
    from cpubound.engine import open_runner
    from cpubound.engine.values import RunSettings
    from cpubound.machine import read_machine
    from cpubound.prediction.parts import predict_parts

    profile = profile or saved_profile()
    machine = profile.machine if profile else read_machine()
    spec = _spec(model)
    type_k, type_v = split_kv_type(kv_type)

    def traffic_at(tokens_in_cache: int) -> ModelTraffic:
        return inspect_model(spec, depth=tokens_in_cache, kv_type=kv_type, flash_attn=flash_attn)

    _refuse_too_big_for(machine, traffic_at(depth))
    if threads is None:
        threads = machine.effective_cpus
        if profile is not None:
            candidates = predict_at(profile, traffic_at(depth), measured_threads(profile))
            threads = fewest_threads(candidates).threads
    _check_threads(machine, (threads,))
    with ExitStack() as stack:
        runner = stack.enter_context(open_runner())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cpubound-")))
        rounds = run_rounds(
            runner,
            RunSettings(
                model_path=_model_file(spec, folder / f"{spec.name}.gguf", progress),
                threads=threads,
                depth_tokens=depth,
                kv_type_k=type_k,
                kv_type_v=type_v,
                flash_attn=flash_attn,
            ),
            tokens=tokens,
            progress=progress,
            seed=random.randrange(2**32) if seed is None else seed,
        )
        identity = runner.identity()
    traffic = traffic_at(depth + len(rounds[0].unobserved_s) // 2)
    return take_apart(
        traffic,
        rounds,
        predict_parts(profile, traffic, threads) if profile else {},
        depth_tokens=depth,
        threads=threads,
        engine=f"{identity.name} {identity.version}",
    )


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
    from cpubound.engine import open_runner
    from cpubound.engine.live import add_residency, watch_decode
    from cpubound.engine.values import RunSettings
    from cpubound.engine.watch import watch_process
    from cpubound.prediction.rates import read_bandwidth

    profile = profile or load_profile()
    spec = _spec(model)
    type_k, type_v = split_kv_type(kv_type)
    traffic = inspect_model(spec, depth=depth, kv_type=kv_type, flash_attn=flash_attn)
    refuse_too_big(profile, traffic)
    if threads is None:
        candidates = predict_at(profile, traffic, measured_threads(profile))
        threads = fewest_threads(candidates).threads
    _check_threads(profile.machine, (threads,))
    machine = profile.machine
    cpus = frozenset(machine.allowed_cpus)
    with ExitStack() as stack:
        runner = stack.enter_context(open_runner())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cpubound-")))
        path = _model_file(spec, folder / f"{spec.name}.gguf", progress)
        facts = watch_decode(
            runner,
            RunSettings(
                model_path=path,
                threads=threads,
                depth_tokens=depth,
                kv_type_k=type_k,
                kv_type_v=type_v,
                flash_attn=flash_attn,
            ),
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


def refuse_too_big(profile: MachineProfile, traffic: ModelTraffic) -> None:
    """Raise if a model would not fit into this machine's memory."""
    _refuse_too_big_for(profile.machine, traffic)


def _refuse_too_big_for(machine: Machine, traffic: ModelTraffic) -> None:
    from cpubound.units import format_decimal_bytes

    memory = machine.usable_memory_bytes
    if memory is not None and traffic.resident_bytes > memory:
        raise MachineError(
            f"{traffic.model} does not fit into memory "
            f"({format_decimal_bytes(traffic.resident_bytes)} of "
            f"{format_decimal_bytes(memory)}): choose a smaller model or file type"
        )


def split_kv_type(text: str) -> tuple[str, str]:
    """Split ``K:V`` (or one type for both) into the two KV types, in lower case."""
    first, separator, second = text.lower().partition(":")
    if not first or (separator and not second):
        raise UsageError(f"a KV type is one type or K:V ({text}): try f16 or q8_0:f16")
    return first, second or first


def _spec(model: str | ModelSpec) -> ModelSpec:
    from cpubound.model.resolve import resolve_model

    return model if isinstance(model, ModelSpec) else resolve_model(model)


def saved_profile() -> MachineProfile | None:
    """Return the profile of this machine, None if it was never calibrated."""
    from cpubound.profile import default_profile_path

    return load_profile() if default_profile_path().exists() else None


def _check_threads(machine: Machine, counts: Sequence[int]) -> None:
    most = machine.effective_cpus
    for count in counts:
        if count > most:
            raise UsageError(
                f"{count} threads are more than the {most} effective CPUs of this machine: "
                f"measure at most {most}"
            )


def _model_file(
    spec: ModelSpec, path: Path, progress: Progress, quantize: Quantize | None = None
) -> str:
    if spec.shards:
        return spec.shards[0]
    from cpubound.engine.synth import write_model

    write_model(
        spec,
        path,
        quantize=quantize,
        progress=lambda done, total: progress(f"writing {spec.name}", done / total),
    )
    return str(path)


@contextmanager
def open_reference(profile: MachineProfile, counts: Sequence[int]) -> Iterator[Callable[[int], float]]:
    """Keep the reference kernel ready at the thread counts, as calibration placed it."""
    from cpubound.calibration.bandwidth import BandwidthCell, open_references
    from cpubound.kernels import open_kernel

    measured = profile.measurements("read", "anon_4k")
    largest = max(m.working_set_bytes for m in profile.bandwidth)

    def cell(threads: int, cpus: tuple[int, ...] | None) -> BandwidthCell:
        return BandwidthCell(
            kernel="read",
            threads=threads,
            page_kind="anon_4k",
            cpus=cpus,
            working_set_bytes=largest,
        )

    cells = [cell(t, measured[t].cpus) for t in sorted(set(counts) & set(measured))]
    with ExitStack() as stack:
        yield open_references(stack, cells or [cell(1, None)], open_bench=open_kernel)

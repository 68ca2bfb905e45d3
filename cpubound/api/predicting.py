"""Verbs that need no engine: inspect, predict, survey, what-if, compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from cpubound.api.common import spec_of
from cpubound.api.limits import current_profile
from cpubound.cost.thread_choice import fewest_threads, thread_counts
from cpubound.cost.values import Prediction, PromptPrediction
from cpubound.errors import CpuboundError, ProfileError
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.profile.values import MachineProfile
from cpubound.setting import read_setting

if TYPE_CHECKING:
    from cpubound.advise.compare import Comparison
    from cpubound.cost.what_if import WhatIf


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

    setting = read_setting(
        depth=depth, n_ctx=n_ctx, batch=batch, kv_type=kv_type, flash_attn=flash_attn
    )
    return compute_traffic(spec_of(model), setting)


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
    profile = profile or current_profile()
    traffic = inspect_model(
        model, depth=depth, n_ctx=n_ctx, batch=batch, kv_type=kv_type, flash_attn=flash_attn
    )
    if threads is None:
        return predict_best(profile, traffic)
    return predict_at(profile, traffic, (threads,))[0]


def predict_at(
    profile: MachineProfile, traffic: ModelTraffic, threads: Iterable[int]
) -> tuple[Prediction, ...]:
    """Predict one step's traffic at several thread counts, in their order.

    Raises ``UsageError`` for more sequences than llama.cpp decodes together.
    """
    from cpubound.cost.predict import predict_decode
    from cpubound.llama_facts import check_batch

    check_batch(traffic.setting.batch)
    return tuple(predict_decode(profile, traffic, count) for count in threads)


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
    UsageError : fewer than one token or thread.
    """
    from cpubound.cost.predict import predict_prompt as predict_steps
    from cpubound.model.traffic import compute_traffic, prompt_steps

    profile = profile or current_profile()
    spec = spec_of(model)
    setting = read_setting(depth=depth, kv_type=kv_type, flash_attn=flash_attn)
    steps = prompt_steps(spec, prompt, setting)
    after = compute_traffic(spec, structs.replace(setting, depth_tokens=depth + prompt))
    count = max(thread_counts(profile)) if threads is None else threads
    return predict_steps(profile, steps, after, count)


def predict_best(profile: MachineProfile, traffic: ModelTraffic) -> Prediction:
    """Predict at the fewest measured threads that come near the best, as ``tune`` chooses."""
    return fewest_threads(predict_at(profile, traffic, thread_counts(profile)))


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
    from cpubound.model.traffic import compute_traffic

    profile = profile or current_profile()
    setting = read_setting(depth=depth, n_ctx=n_ctx, kv_type=kv_type, flash_attn=flash_attn)
    memory = profile.machine.usable_memory_bytes
    found = []
    for spec in models:
        if memory is not None and sum(tensor.n_bytes for tensor in spec.tensors) > memory:
            continue
        try:
            traffic = compute_traffic(spec, setting)
        except CpuboundError:
            continue
        chosen = predict_best(profile, traffic)
        if chosen.fits_in_memory is not False:
            found.append(chosen)
    return tuple(sorted(found, key=lambda p: -p.tokens_per_s))


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
    from cpubound.cost.law import MemoryLaw, fit_law
    from cpubound.cost.what_if import Question, ask
    from cpubound.model.traffic import compute_traffic

    profile = profile or current_profile()
    spec = spec_of(model)
    setting = read_setting(depth=depth, n_ctx=n_ctx, kv_type=kv_type, flash_attn=flash_attn)
    if threads is None:
        threads = predict_best(profile, compute_traffic(spec, setting)).setting.threads
    question = Question(spec=spec, setting=structs.replace(setting, threads=threads))
    read = profile.measurements("read", "file") or profile.measurements("read", "anon_4k")
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
        for spec in map(spec_of, models)
        for depth in depths
        for count in threads or (None,)
    ]
    return compare_profiles(a, b, pairs)

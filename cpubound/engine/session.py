"""All open models of the engine's child, and what can be asked of them. Child process only."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama

from cpubound.engine import graph
from cpubound.engine.context import Context, context_setting, open_context
from cpubound.engine.library import Log, ggml_library
from cpubound.engine.observer import ObservedContext
from cpubound.engine.protocol import Rotated, Tokens
from cpubound.engine.values import GraphCount, PartTimes, RunSettings
from cpubound.errors import MachineError, ModelFileError, UsageError
from cpubound.llama_facts import N_UBATCH
from cpubound.setting import Setting

# Contexts kept per model: a KV cache is memory, and filling a new one takes well under a second.
CONTEXTS_KEPT = 4


# Above it one cold start is lost in a prompt's own time.
PROMPT_WARM_UP = 64


@dataclass(kw_only=True)
class Model:
    """An open model file."""

    pointer: Any
    vocabulary_size: int
    load_s: float
    contexts: dict[Setting, Context] = field(default_factory=dict)
    observed: dict[Setting, ObservedContext] = field(default_factory=dict)

    def free(self) -> None:
        for observed in self.observed.values():
            observed.free()
        for context in self.contexts.values():
            context.free()
        llama.llama_model_free(self.pointer)


class Session:
    """All open models of one child process."""

    def __init__(self) -> None:
        self.log = Log()
        self._models: dict[tuple[str, bool, bool], Model] = {}
        self._affinity: tuple[int, ...] | None = None
        self._initial_affinity = (
            tuple(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        )
        llama.llama_backend_init()

    def run(self, settings: RunSettings, *, prefill: bool = False) -> Tokens:
        """Time ``settings.tokens`` decode steps as llama-bench does.

        One warm-up step at the same depth first; every step is timed from the
        end of the one before to after ``llama_synchronize``; random tokens, logits computed,
        nothing sampled. Prompts likewise, without a warm-up above ``PROMPT_WARM_UP`` tokens.
        """
        self._pin(settings.cpus)
        model, load_s = self._model(settings)
        context = self._context(model, settings)
        context.set_threads(settings.setting.threads)
        depth = settings.setting.depth_tokens
        randomness = random.Random(depth * 1000003 + settings.tokens)
        if settings.prompt_tokens is None:
            context.set_depth(depth, randomness, prefill)
            context.decode_steps(depth, 1, randomness)
            context.set_depth(depth, randomness, prefill)
            times_ns = context.decode_steps(depth, settings.tokens, randomness)
        else:
            times_ns = _prompt_times_ns(context, settings, randomness, prefill)
        return Tokens(
            samples_s=tuple(time_ns / 1e9 for time_ns in times_ns),
            load_s=load_s,
            transplanted=context.transplanted and depth > 0,
        )

    def rotate(self, runs: Sequence[RunSettings], *, passes: int, seed: int) -> Rotated:
        """Time single tokens of several models in turn, in random order.

        Every token follows those of all other models, so that no cache holds anything of its
        model, as in one many times larger. A pass that is not timed goes first: pages that
        nothing touched for a second cost more.
        """
        order = random.Random(seed)
        turns = []
        for settings in runs:
            self._pin(settings.cpus)
            model, _ = self._model(settings)
            kept = max(CONTEXTS_KEPT, len(runs))
            turns.append((settings, self._context(model, settings, kept)))
        for settings, context in order.sample(turns, len(turns)):
            context.set_threads(settings.setting.threads)
            context.set_depth(settings.setting.depth_tokens, order, False)
            context.decode_steps(settings.setting.depth_tokens, 1, order)
        samples: list[list[float]] = [[] for _ in turns]
        for number in range(1, passes + 1):
            for place in order.sample(range(len(turns)), len(turns)):
                settings, context = turns[place]
                (time_ns,) = context.decode_steps(settings.setting.depth_tokens + number, 1, order)
                samples[place].append(time_ns / 1e9)
        return Rotated(samples_s=tuple(tuple(row) for row in samples))

    def count_graph(self, settings: RunSettings) -> GraphCount:
        """Count what one decode step at a setting reads, in a context made for it."""
        model, _ = self._model(settings)
        counter = graph.GraphCounter(ggml_library())
        callback = llama.ggml_backend_sched_eval_callback(counter.observe)
        context = open_context(
            model.pointer,
            context_setting(settings),
            self.log,
            vocabulary_size=model.vocabulary_size,
            n_batch=N_UBATCH,
            callback=callback,
        )
        try:
            context.set_threads(settings.setting.threads)
            randomness = random.Random(0)
            context.set_depth(settings.setting.depth_tokens, randomness, False)
            counter.start()
            context.decode_steps(settings.setting.depth_tokens, 1, randomness)
            return counter.result()
        finally:
            context.free()

    def time_parts(self, settings: RunSettings, *, by_operator: bool) -> PartTimes:
        """Time the parts of decode steps, in a context that is kept for it."""
        self._pin(settings.cpus)
        model, _ = self._model(settings)
        key = context_setting(settings)
        if key not in model.observed:
            for other in list(model.observed):
                model.observed.pop(other).free()
            model.observed[key] = ObservedContext(
                model.pointer, key, self.log, model.vocabulary_size
            )
        return model.observed[key].time_parts(settings, by_operator=by_operator)

    def close_model(self, model_path: str) -> None:
        """Free every form in which a file is open."""
        for key in [key for key in self._models if key[0] == model_path]:
            self._models.pop(key).free()

    def _pin(self, cpus: tuple[int, ...] | None) -> None:
        """Keep every thread of this process, OpenMP's included, on some CPUs."""
        if cpus is None and self._affinity is None:
            return
        if self._initial_affinity is None:
            raise MachineError("this system cannot pin a process to CPUs: leave the CPU list out")
        wanted = self._initial_affinity if cpus is None else tuple(sorted(cpus))
        if wanted == self._affinity:
            return
        try:
            # Threads made later inherit the mask of the thread that makes them.
            for task in Path("/proc/self/task").iterdir():
                os.sched_setaffinity(int(task.name), wanted)
        except OSError as error:
            raise UsageError(
                f"cannot pin the engine to CPUs ({','.join(map(str, wanted))}): {error.strerror}; "
                "name CPUs this process may use"
            ) from error
        self._affinity = wanted

    def _model(self, settings: RunSettings) -> tuple[Model, float | None]:
        key = (settings.model_path, settings.repack, settings.mmap)
        if key in self._models:
            return self._models[key], None
        parameters = llama.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = settings.repack
        parameters.load_mode = (
            llama.LLAMA_LOAD_MODE_MMAP if settings.mmap else llama.LLAMA_LOAD_MODE_NONE
        )
        start_ns = time.perf_counter_ns()
        pointer = llama.llama_model_load_from_file(os.fsencode(settings.model_path), parameters)
        load_s = (time.perf_counter_ns() - start_ns) / 1e9
        if not pointer:
            raise ModelFileError(
                f"llama.cpp refuses the model ({settings.model_path}): {self.log.reason()}"
            )
        model = Model(
            pointer=pointer,
            vocabulary_size=llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(pointer)),
            load_s=load_s,
        )
        if llama.llama_model_has_encoder(pointer) or model.vocabulary_size < 1:
            model.free()
            raise ModelFileError(
                f"the model has an encoder or no vocabulary ({settings.model_path}): "
                "give a decoder-only language model"
            )
        self._models[key] = model
        return model, load_s

    def _context(self, model: Model, settings: RunSettings, kept: int = CONTEXTS_KEPT) -> Context:
        key = context_setting(settings)
        context = model.contexts.pop(key, None)
        if context is None:
            while len(model.contexts) >= kept:
                oldest = next(iter(model.contexts))
                model.contexts.pop(oldest).free()
            context = open_context(
                model.pointer, key, self.log, vocabulary_size=model.vocabulary_size
            )
        model.contexts[key] = context  # last used is last freed
        return context


def _prompt_times_ns(
    context: Context, settings: RunSettings, randomness: random.Random, prefill: bool
) -> list[int]:
    """Process the prompt ``settings.tokens`` times, each behind a cache of the same depth."""
    depth, prompt = settings.setting.depth_tokens, settings.prompt_tokens or 1
    warm_up = 1 if prompt <= PROMPT_WARM_UP else 0
    times_ns = []
    for _ in range(settings.tokens + warm_up):
        context.set_depth(depth, randomness, prefill)
        times_ns.append(context.process_prompt(depth, prompt, randomness, settings.all_logits))
    return times_ns[warm_up:]

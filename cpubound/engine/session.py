"""Models and contexts of llama.cpp, and the timed loop. Imported in the child process only."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
from llama_cpp import __version__ as binding_version

from cpubound.engine import graph
from cpubound.engine.kv_state import UnknownStateLayout, grow_state
from cpubound.engine.protocol import Quantize, Tokens
from cpubound.engine.values import EngineIdentity, GraphCount, RunSettings
from cpubound.errors import MachineError, ModelFileError, UsageError
from cpubound.model.quant import quant_type

# As llama-bench: tools/llama-bench/llama-bench.cpp, cmd_params_defaults (0c1e57098bba).
N_BATCH = 2048
N_UBATCH = 512
# llama.cpp pads a context's cells to this (src/llama-context.cpp).
CELL_PADDING = 256
# Tokens that are really computed before the cache is filled by repeating them.
SEED_TOKENS = 32
# Contexts kept per model: a KV cache is memory, and filling a new one takes well under a second.
CONTEXTS_KEPT = 4
# llama.cpp begins a line with the functions it comes from.
_FUNCTION = re.compile(r"^(\w+: )+(error loading model: )?(\w+: )*")


@dataclass(frozen=True, kw_only=True)
class ContextKey:
    """What a context is made for; thread count and depth can change within it."""

    n_ctx: int  # cells per sequence
    sequences: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool


@dataclass(kw_only=True)
class Context:
    """A llama.cpp context with its own reusable batch."""

    pointer: Any
    memory: Any  # None for models that keep nothing between steps (text diffusion)
    sequences: int
    n_swa: int
    n_ctx: int
    seed_state: bytes | None = None
    batch: Any = None
    callback: Any = None  # kept alive as long as the context may call it
    transplanted: bool = False

    def free(self) -> None:
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.pointer)


@dataclass(kw_only=True)
class Model:
    """An open model file."""

    pointer: Any
    vocabulary_size: int
    load_s: float
    contexts: dict[ContextKey, Context] = field(default_factory=dict)

    def free(self) -> None:
        for context in self.contexts.values():
            context.free()
        llama.llama_model_free(self.pointer)


class Log:
    """Keeps the errors that llama.cpp logs, and passes warnings on to stderr."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._level = 0
        self._callback = llama.llama_log_callback(self._receive)
        llama.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes | None, _user_data: object) -> None:
        if level != 5:  # 5 continues the line before it
            self._level = level
        if self._level not in (3, 4) or not text:
            return
        line = text.decode("utf-8", "replace")
        os.write(2, text)
        if self._level == 4 and line.strip():
            self.errors.append(line.strip())

    def reason(self) -> str:
        """Return why the last request failed, in llama.cpp's words."""
        reasons = [_FUNCTION.sub("", line) for line in self.errors]
        # A later line repeats the first in general words ("failed to load model").
        return reasons[0] if reasons else "llama.cpp gives no reason"


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

    def identity(self) -> EngineIdentity:
        """Name the binding: its version, a digest of its libraries, their build features."""
        digest = hashlib.sha256()
        for library in sorted(_library_folder().iterdir()):
            if library.suffix in (".so", ".dylib", ".dll"):
                digest.update(library.read_bytes())
        info = llama.llama_print_system_info().decode()
        features = []
        for part in info.replace(":", "|").split("|"):
            name, _, value = part.partition("=")
            if value.strip() == "1":
                features.append(name.strip())
        return EngineIdentity(
            name="llama-cpp-python",
            version=binding_version,
            build=digest.hexdigest()[:16],
            features=tuple(features),
        )

    def run(self, settings: RunSettings, *, prefill: bool = False) -> Tokens:
        """Time ``settings.tokens`` decode steps as llama-bench does.

        One warm-up step at the same depth first; every step is timed from before
        ``llama_decode`` to after ``llama_synchronize``; random tokens, logits computed,
        nothing sampled.
        """
        self._pin(settings.cpus)
        model, load_s = self._model(settings)
        context = self._context(model, settings)
        llama.llama_set_n_threads(context.pointer, settings.threads, settings.threads)
        randomness = random.Random(settings.depth_tokens * 1000003 + settings.tokens)
        self._set_depth(model, context, settings.depth_tokens, randomness, prefill)
        self._decode_steps(model, context, settings.depth_tokens, 1, randomness)
        self._set_depth(model, context, settings.depth_tokens, randomness, prefill)
        times_ns = self._decode_steps(
            model, context, settings.depth_tokens, settings.tokens, randomness
        )
        return Tokens(
            samples_s=tuple(time_ns / 1e9 for time_ns in times_ns),
            load_s=load_s,
            transplanted=context.transplanted and settings.depth_tokens > 0,
        )

    def count_graph(self, settings: RunSettings) -> GraphCount:
        """Count what one decode step at a setting reads, in a context made for it."""
        model, _ = self._model(settings)
        counter = graph.GraphCounter(_ggml_library())
        callback = llama.ggml_backend_sched_eval_callback(counter.observe)
        context = self._new_context(model, _context_key(settings), N_UBATCH, callback)
        try:
            llama.llama_set_n_threads(context.pointer, settings.threads, settings.threads)
            randomness = random.Random(0)
            self._set_depth(model, context, settings.depth_tokens, randomness, False)
            counter.start()
            self._decode_steps(model, context, settings.depth_tokens, 1, randomness)
            return counter.result()
        finally:
            context.free()

    def close_model(self, model_path: str) -> None:
        """Free every form in which a file is open."""
        for key in [key for key in self._models if key[0] == model_path]:
            self._models.pop(key).free()

    def quantize(self, request: Quantize) -> bytes:
        """Quantise normally distributed weights into consecutive blocks of one row."""
        import numpy as np

        ggml = _ggml_library()
        elements = request.blocks * request.block_size
        weights = np.random.default_rng(request.seed).standard_normal(elements, dtype=np.float32)
        weights *= request.scale
        blocks = ctypes.create_string_buffer(request.blocks * request.block_bytes)
        # A flat importance matrix: some IQ types refuse to do without.
        importance = np.ones(elements, dtype=np.float32)
        ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
        written = ggml.ggml_quantize_chunk(
            ctypes.c_int(request.type_id),
            weights.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
            blocks,
            ctypes.c_int64(0),
            ctypes.c_int64(1),
            ctypes.c_int64(elements),
            importance.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        )
        if written != len(blocks.raw):
            raise MachineError(
                f"ggml quantises a block to another size (type {request.type_id}): "
                "use the llama.cpp version that cpubound was made for"
            )
        return blocks.raw

    def _pin(self, cpus: tuple[int, ...] | None) -> None:
        """Keep every thread of this process, OpenMP's included, on some CPUs."""
        wanted = self._initial_affinity if cpus is None else tuple(sorted(cpus))
        if wanted is None:
            raise MachineError("this system cannot pin a process to CPUs: leave the CPU list out")
        if wanted == self._affinity or (cpus is None and self._affinity is None):
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

    def _context(self, model: Model, settings: RunSettings) -> Context:
        key = _context_key(settings)
        context = model.contexts.pop(key, None)
        if context is None:
            while len(model.contexts) >= CONTEXTS_KEPT:
                oldest = next(iter(model.contexts))
                model.contexts.pop(oldest).free()
            context = self._new_context(model, key, N_BATCH)
        model.contexts[key] = context  # last used is last freed
        return context

    def _new_context(
        self, model: Model, key: ContextKey, n_batch: int, callback: Any = None
    ) -> Context:
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = key.n_ctx * key.sequences
        parameters.n_batch = n_batch
        parameters.n_ubatch = N_UBATCH
        parameters.n_seq_max = key.sequences
        # As llama-batched-bench: each sequence has its own stream of cells.
        parameters.kv_unified = False
        parameters.swa_full = False
        parameters.type_k = quant_type(key.kv_type_k).id
        parameters.type_v = quant_type(key.kv_type_v).id
        parameters.flash_attn_type = (
            llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if key.flash_attn
            else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        if callback is not None:
            parameters.cb_eval = callback
        pointer = llama.llama_init_from_model(model.pointer, parameters)
        if not pointer:
            raise MachineError(
                f"llama.cpp cannot make a context (n_ctx {key.n_ctx} × {key.sequences}, KV "
                f"{key.kv_type_k}:{key.kv_type_v}): {self.log.reason()}"
            )
        return Context(
            pointer=pointer,
            memory=llama.llama_get_memory(pointer),
            sequences=key.sequences,
            n_swa=llama.llama_model_n_swa(model.pointer),
            n_ctx=key.n_ctx,
            batch=llama.llama_batch_init(max(n_batch, key.sequences), 0, 1),
            callback=callback,
        )

    def _set_depth(
        self, model: Model, context: Context, depth: int, randomness: random.Random, prefill: bool
    ) -> None:
        """Leave exactly ``depth`` tokens in every sequence."""
        if not context.memory or (depth and not prefill and self._cut(context, depth)):
            return
        llama.llama_memory_clear(context.memory, False)
        if not depth:
            return
        if (
            not prefill
            and depth > SEED_TOKENS
            and self._transplant(model, context, depth, randomness)
        ):
            context.transplanted = True
            return
        context.transplanted = False
        llama.llama_memory_clear(context.memory, False)
        for sequence in range(context.sequences):
            self._prefill(model, context, sequence, depth, randomness)

    def _cut(self, context: Context, depth: int) -> bool:
        """Drop what stands behind ``depth``, if all before it is still in the cache."""
        memory = context.memory
        for sequence in range(context.sequences):
            if llama.llama_memory_seq_pos_max(memory, sequence) < depth - 1:
                return False
            if not llama.llama_memory_seq_rm(memory, sequence, depth, -1):
                return False
            if not _holds(memory, sequence, depth):
                return False
        return True

    def _transplant(
        self, model: Model, context: Context, depth: int, randomness: random.Random
    ) -> bool:
        """Fill the cache with repeated cells of a short prefill; False if it is not accepted."""
        if context.seed_state is None:
            self._prefill(model, context, 0, SEED_TOKENS, randomness)
            size = llama.llama_state_seq_get_size(context.pointer, 0)
            buffer = (ctypes.c_uint8 * size)()
            written = llama.llama_state_seq_get_data(context.pointer, buffer, size, 0)
            context.seed_state = bytes(buffer)[:written]
            llama.llama_memory_clear(context.memory, False)
        try:
            grown = grow_state(context.seed_state, depth, window_cells=_window_cells(context))
        except UnknownStateLayout:
            return False
        state = (ctypes.c_uint8 * len(grown)).from_buffer(grown)
        for sequence in range(context.sequences):
            read = llama.llama_state_seq_set_data(context.pointer, state, len(grown), sequence)
            if read != len(grown):
                return False
            if llama.llama_memory_seq_pos_max(context.memory, sequence) != depth - 1:
                return False
        return True

    def _prefill(
        self, model: Model, context: Context, sequence: int, depth: int, randomness: random.Random
    ) -> None:
        """Compute ``depth`` random tokens of a sequence."""
        batch = context.batch
        for start in range(0, depth, N_UBATCH):
            count = min(N_UBATCH, depth - start)
            for index in range(count):
                _set_token(
                    batch,
                    index,
                    token=randomness.randrange(model.vocabulary_size),
                    position=start + index,
                    sequence=sequence,
                    logits=index == count - 1,
                )
            batch.n_tokens = count
            self._check(llama.llama_decode(context.pointer, batch))
        llama.llama_synchronize(context.pointer)

    def _decode_steps(
        self, model: Model, context: Context, start: int, steps: int, randomness: random.Random
    ) -> Sequence[int]:
        """Decode one token per sequence and step from position ``start``; return nanoseconds."""
        batch = context.batch
        sequences = range(context.sequences)
        tokens = [
            [randomness.randrange(model.vocabulary_size) for _ in sequences] for _ in range(steps)
        ]
        for sequence in sequences:
            _set_token(batch, sequence, token=0, position=0, sequence=sequence, logits=True)
        batch.n_tokens = context.sequences
        decode, synchronize = llama.llama_decode, llama.llama_synchronize
        pointer, clock = context.pointer, time.perf_counter_ns
        times_ns = []
        for step, row in enumerate(tokens):
            for sequence, token in enumerate(row):
                batch.token[sequence] = token
                batch.pos[sequence] = start + step
            start_ns = clock()
            result = decode(pointer, batch)
            synchronize(pointer)
            times_ns.append(clock() - start_ns)
            self._check(result)
        return times_ns

    def _check(self, result: int) -> None:
        if result:
            raise MachineError(
                f"llama.cpp cannot decode (llama_decode gives {result}): {self.log.reason()}"
            )


def _context_key(settings: RunSettings) -> ContextKey:
    wanted = max(settings.n_ctx or 0, settings.depth_tokens + settings.tokens, 1)
    return ContextKey(
        n_ctx=-(-wanted // CELL_PADDING) * CELL_PADDING,
        sequences=settings.batch,
        kv_type_k=settings.kv_type_k,
        kv_type_v=settings.kv_type_v,
        flash_attn=settings.flash_attn,
    )


def _set_token(
    batch: Any, index: int, *, token: int, position: int, sequence: int, logits: bool
) -> None:
    batch.token[index] = token
    batch.pos[index] = position
    batch.n_seq_id[index] = 1
    batch.seq_id[index][0] = sequence
    batch.logits[index] = logits


def _holds(memory: Any, sequence: int, depth: int) -> bool:
    """Tell whether a sequence has every position from 0 to ``depth`` - 1 and no other."""
    first = llama.llama_memory_seq_pos_min(memory, sequence)
    last = llama.llama_memory_seq_pos_max(memory, sequence)
    return bool(first == 0 and last == depth - 1)


def _window_cells(context: Context) -> int | None:
    """Cells of the sliding-window cache, as src/llama-kv-cache-iswa.cpp sizes it."""
    if context.n_swa <= 0:
        return None
    wanted = min(context.n_ctx, context.n_swa + N_UBATCH)
    return -(-wanted // CELL_PADDING) * CELL_PADDING


def _library_folder() -> Path:
    import llama_cpp

    return Path(llama_cpp.__file__).parent / "lib"


def _ggml_library() -> ctypes.CDLL:
    for pattern in ("libggml-base.so", "libggml-base.dylib", "ggml-base.dll"):
        path = _library_folder() / pattern
        if path.exists():
            return ctypes.CDLL(str(path))
    raise MachineError(
        f"no ggml library beside the binding ({_library_folder()}): "
        "install the engine again with pip install --force-reinstall 'cpubound[engine]'"
    )

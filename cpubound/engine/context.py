"""A context of llama.cpp: fill its cache to a depth, decode, take times. Child process only."""

from __future__ import annotations

import ctypes
import random
import time
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as llama
from msgspec import structs

from cpubound.engine.kv_state import UnknownStateLayout, grow_state
from cpubound.engine.library import Log
from cpubound.engine.values import RunSettings
from cpubound.errors import MachineError
from cpubound.llama_facts import N_UBATCH, pad_cells
from cpubound.model.quant import quant_type
from cpubound.setting import Setting

# As llama-bench: tools/llama-bench/llama-bench.cpp, cmd_params_defaults (0c1e57098bba).
N_BATCH = 2048
# Tokens that are really computed before the cache is filled by repeating them.
SEED_TOKENS = 32


@dataclass(kw_only=True)
class Context:
    """A llama.cpp context with its own reusable batch."""

    pointer: Any
    memory: Any  # None for models that keep nothing between steps (text diffusion)
    setting: Setting  # of ``context_setting``
    vocabulary_size: int
    n_swa: int
    batch: Any
    log: Log
    callback: Any = None  # kept alive as long as the context may call it
    seed_state: bytes | None = None
    transplanted: bool = False

    @property
    def sequences(self) -> int:
        return self.setting.batch

    def free(self) -> None:
        """Give the context's memory back."""
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.pointer)

    def set_threads(self, threads: int) -> None:
        """Decode and prefill with this many threads from here on."""
        llama.llama_set_n_threads(self.pointer, threads, threads)

    def set_depth(self, depth: int, randomness: random.Random, prefill: bool) -> None:
        """Leave exactly ``depth`` tokens in every sequence."""
        if not self.memory or (depth and not prefill and self._cut(depth)):
            return
        llama.llama_memory_clear(self.memory, False)
        if not depth:
            return
        if not prefill and depth > SEED_TOKENS and self._transplant(depth, randomness):
            self.transplanted = True
            return
        self.transplanted = False
        llama.llama_memory_clear(self.memory, False)
        for sequence in range(self.sequences):
            self._prefill(sequence, depth, randomness)

    def _cut(self, depth: int) -> bool:
        """Drop what stands behind ``depth``, if all before it is still in the cache."""
        memory = self.memory
        for sequence in range(self.sequences):
            if llama.llama_memory_seq_pos_max(memory, sequence) < depth - 1:
                return False
            if not llama.llama_memory_seq_rm(memory, sequence, depth, -1):
                return False
            if not _holds(memory, sequence, depth):
                return False
        return True

    def _transplant(self, depth: int, randomness: random.Random) -> bool:
        """Fill the cache with repeated cells of a short prefill; False if it is not accepted."""
        if self.seed_state is None:
            self._prefill(0, SEED_TOKENS, randomness)
            size = llama.llama_state_seq_get_size(self.pointer, 0)
            buffer = (ctypes.c_uint8 * size)()
            written = llama.llama_state_seq_get_data(self.pointer, buffer, size, 0)
            self.seed_state = bytes(buffer)[:written]
            llama.llama_memory_clear(self.memory, False)
        try:
            grown = grow_state(self.seed_state, depth, window_cells=self._window_cells())
        except UnknownStateLayout:
            return False
        state = (ctypes.c_uint8 * len(grown)).from_buffer(grown)
        for sequence in range(self.sequences):
            read = llama.llama_state_seq_set_data(self.pointer, state, len(grown), sequence)
            if read != len(grown):
                return False
            if llama.llama_memory_seq_pos_max(self.memory, sequence) != depth - 1:
                return False
        return True

    def _prefill(
        self,
        sequence: int,
        depth: int,
        randomness: random.Random,
        first: int = 0,
        all_logits: bool = False,
    ) -> None:
        """Compute ``depth`` random tokens of a sequence from position ``first`` on."""
        batch = self.batch
        for start in range(0, depth, N_UBATCH):
            count = min(N_UBATCH, depth - start)
            for index in range(count):
                _set_token(
                    batch,
                    index,
                    token=randomness.randrange(self.vocabulary_size),
                    position=first + start + index,
                    sequence=sequence,
                    logits=all_logits or index == count - 1,
                )
            batch.n_tokens = count
            self._check(llama.llama_decode(self.pointer, batch))
        llama.llama_synchronize(self.pointer)

    def process_prompt(
        self, depth: int, prompt_tokens: int, randomness: random.Random, all_logits: bool
    ) -> int:
        """Process a prompt behind ``depth`` tokens of sequence 0; return nanoseconds.

        In pieces of a physical batch, each with one row of logits unless all are asked for.
        """
        start_ns = time.perf_counter_ns()
        self._prefill(0, prompt_tokens, randomness, depth, all_logits)
        return time.perf_counter_ns() - start_ns

    def decode_steps(self, start: int, steps: int, randomness: random.Random) -> list[int]:
        """Decode one token per sequence and step from position ``start``; return nanoseconds."""
        batch = self.batch
        sequences = range(self.sequences)
        tokens = [
            [randomness.randrange(self.vocabulary_size) for _ in sequences] for _ in range(steps)
        ]
        for sequence in sequences:
            _set_token(batch, sequence, token=0, position=0, sequence=sequence, logits=True)
        batch.n_tokens = self.sequences
        decode, synchronize = llama.llama_decode, llama.llama_synchronize
        pointer, clock = self.pointer, time.perf_counter_ns
        times_ns = []
        # From the end of one to the end of the next: a pause between them is time too.
        before_ns = clock()
        for step, row in enumerate(tokens):
            for sequence, token in enumerate(row):
                batch.token[sequence] = token
                batch.pos[sequence] = start + step
            result = decode(pointer, batch)
            synchronize(pointer)
            now_ns = clock()
            times_ns.append(now_ns - before_ns)
            before_ns = now_ns
            self._check(result)
        return times_ns

    def _check(self, result: int) -> None:
        if result:
            raise MachineError(
                f"llama.cpp cannot decode (llama_decode gives {result}): {self.log.reason()}"
            )

    def _window_cells(self) -> int | None:
        """Cells of the sliding-window cache, as src/llama-kv-cache-iswa.cpp sizes it."""
        if self.n_swa <= 0:
            return None
        return pad_cells(min(self.setting.n_ctx, self.n_swa + N_UBATCH))


def context_setting(settings: RunSettings) -> Setting:
    """Return what a run's context is made for; thread count and depth can change within it.

    As in llama-bench it holds depth and tokens (or prompt).
    """
    setting = settings.setting
    span = settings.tokens if settings.prompt_tokens is None else settings.prompt_tokens
    cells = max(setting.allocated_context_tokens or 0, setting.depth_tokens + span)
    return structs.replace(
        setting, threads=1, depth_tokens=0, allocated_context_tokens=pad_cells(cells)
    )


def open_context(
    model: Any,
    setting: Setting,
    log: Log,
    *,
    vocabulary_size: int,
    n_batch: int = N_BATCH,
    callback: Any = None,
) -> Context:
    """Make a context of a loaded model; ``MachineError`` where llama.cpp cannot."""
    parameters = llama.llama_context_default_params()
    parameters.n_ctx = setting.n_ctx * setting.batch
    parameters.n_batch = n_batch
    parameters.n_ubatch = N_UBATCH
    parameters.n_seq_max = setting.batch
    # As llama-batched-bench: each sequence has its own stream of cells.
    parameters.kv_unified = False
    parameters.swa_full = False
    parameters.type_k = quant_type(setting.kv_type_k).id
    parameters.type_v = quant_type(setting.kv_type_v).id
    parameters.flash_attn_type = (
        llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if setting.flash_attn
        else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    if callback is not None:
        parameters.cb_eval = callback
    pointer = llama.llama_init_from_model(model, parameters)
    if not pointer:
        raise MachineError(
            f"llama.cpp cannot make a context (n_ctx {setting.n_ctx} × {setting.batch}, KV "
            f"{setting.kv_type_k}:{setting.kv_type_v}): {log.reason()}"
        )
    return Context(
        pointer=pointer,
        memory=llama.llama_get_memory(pointer),
        setting=setting,
        vocabulary_size=vocabulary_size,
        n_swa=llama.llama_model_n_swa(model),
        batch=llama.llama_batch_init(max(n_batch, setting.batch), 0, 1),
        log=log,
        callback=callback,
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

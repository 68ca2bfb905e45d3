"""What is asked of an engine and what it gave back."""

from __future__ import annotations

import msgspec

from cpubound.setting import Setting


class EngineIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which llama.cpp this is. Rates measured through one build are not another's."""

    name: str  # "llama-cpp-python", "llama-bench"
    version: str
    build: str  # commit or a digest of the shared library
    features: tuple[str, ...] = ()  # from llama_print_system_info: "AVX2", "REPACK", "OPENMP", …


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One cell to observe: a model file at a setting, decoded ``tokens`` times.

    ``tokens`` are decoded after a warm-up token, at positions depth … depth + tokens - 1.
    With ``prompt_tokens`` the run processes a prompt of so many tokens at that depth instead,
    ``tokens`` times over; a sample is the time of a whole prompt. ``all_logits`` asks for the
    logits of each of its tokens, as a batch of sequences does: llama.cpp leaves out what only
    other tokens' logits need.
    ``cpus`` pins the engine's process to these CPUs; None leaves the mask alone.
    """

    model_path: str
    setting: Setting  # without an allocated context: depth + tokens, as llama-bench
    tokens: int = 32
    prompt_tokens: int | None = None
    all_logits: bool = False
    repack: bool = True
    mmap: bool = True
    cpus: tuple[int, ...] | None = None


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave: the seconds of every token, in order."""

    settings: RunSettings
    engine: EngineIdentity
    samples_s: tuple[float, ...]
    load_s: float | None = None


class GraphCount(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the operators of one decode step span, counted in llama.cpp's own graph.

    ``weight_bytes`` are weights read in full by matrix products and element-wise
    operators (of a mixture, the experts used), ``row_bytes`` rows fetched from lookup
    tables, the cache figures KV cells (padded as the graph pads them) and recurrent state.
    ``weights`` names each tensor read and its bytes; a tensor read twice counts twice.
    """

    weight_bytes: int
    row_bytes: int
    cache_read_bytes: int
    cache_write_bytes: int
    nodes: int  # operators, views left out
    weights: dict[str, int]
    operators: dict[str, int]  # operator -> how often


class PartTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the parts of every decode step of a run that was looked into.

    What a look costs is still in the seconds of its part, ``looks`` times a step.
    ``outside_s`` is the rest of each step: building the graph, copying the logits.
    """

    looks: dict[str, int]  # part -> how often a step was stopped for it
    seconds: dict[str, tuple[float, ...]]  # part -> one sum for each step
    outside_s: tuple[float, ...]

"""What llama.cpp says before it runs: model, context, threads, the features of its build.

From ``llama_print_system_info`` (src/llama.cpp; "NAME = 0 | …" until November 2024, then only
what is there, behind the backend's name), ``common_params_get_system_info`` (common/common.cpp),
``llama_model::print_info`` (src/llama-model.cpp, before 2025 ``llm_load_print_meta``),
``llama_context`` (src/llama-context.cpp); commit 0c1e57098bba.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cpubound.advise.logs.text import NUMBER, number

_FEATURE = re.compile(r"\b([A-Z][A-Z0-9_]+) = (\d+)")
# Fewer pairs are no list of features.
_LEAST_FEATURES = 2
_SCALE = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_BINARY = {"M": 2**20, "G": 2**30}
_Facts = dict[str, Any]


def note_facts(line: str, facts: _Facts) -> None:
    """Add to ``facts``, named as the fields of ``LoggedRun``, what a line says."""
    for pattern, read in _READERS:
        match = pattern.search(line)
        if match is not None:
            facts.update(read(match))
    facts.update(_features(line))
    # Builds of these wordings had flash-attention off unless asked for.
    if "llama_print_timings" in line or facts.get("asked_features"):
        facts.setdefault("flash_attn", False)


def _features(line: str) -> _Facts:
    """Read a list of features in either wording."""
    _, has_backend, listed = line.rpartition("CPU : ")
    pairs = _FEATURE.findall(listed)
    if not has_backend and ("AVX" not in line or "|" not in line):
        return {}
    if len(pairs) < (1 if has_backend else _LEAST_FEATURES):
        return {}
    has_zeros = any(value == "0" for _, value in pairs)
    return {
        "features": tuple(name for name, value in pairs if value != "0"),
        "asked_features": tuple(name for name, _ in pairs) if has_zeros else None,
    }


def _on_gpu(match: re.Match[str]) -> _Facts:
    return {"gpu": f"{match[1]} layers offloaded" if int(match[1]) else None}


def _threads_and_cpus(match: re.Match[str]) -> _Facts:
    return {"threads": int(match[1]) or None, "cpus": int(match[2]) or None}


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Mapping[str, Any]]], ...] = (
    (re.compile(r"offloaded (\d{1,5})/\d+ layers to GPU"), _on_gpu),
    (
        re.compile(r"loading model '([^']+)'|loaded meta data .* from (\S.*?) \(version"),
        lambda m: {"model": m[1] or m[2]},
    ),
    (
        re.compile(rf"model params\s*=\s*{NUMBER}\s*([KMBT])\b"),
        lambda m: {"model_parameters": round(number(m[1]) * _SCALE[m[2]])},
    ),
    (
        re.compile(rf"(?:file|model) size\s*=\s*{NUMBER}\s*([MG])iB"),
        lambda m: {"model_bytes": round(number(m[1]) * _BINARY[m[2]])},
    ),
    (re.compile(r"\bn_threads\s*=\s*(\d{1,6})\b"), lambda m: {"threads": int(m[1]) or None}),
    (
        re.compile(r"\bn_threads = (\d{1,6})(?: \(n_threads_batch = \d+\))? / (\d{1,6})\b"),
        _threads_and_cpus,
    ),
    # The server's JSON log of 2024.
    (
        re.compile(r'"n_threads":\s*(\d{1,6}).*?"total_threads":\s*(\d{1,6})'),
        _threads_and_cpus,
    ),
    (
        re.compile(r"\bn_ctx(?:_slot|_seq)?\s*=\s*(\d{1,9})\b"),
        lambda m: {"n_ctx": int(m[1]) or None},
    ),
    (
        re.compile(r"\bflash_attn\s*=\s*(\w+)"),
        lambda m: {"flash_attn": m[1].lower() not in ("0", "disabled", "off")},
    ),
    (
        re.compile(r"\bK \((\w+)\):.*?V \((\w+)\):"),
        lambda m: {"kv_types": (m[1], m[2])},
    ),
)

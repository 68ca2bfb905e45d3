"""Ollama: ``ollama run --verbose``, and the answers of its API.

``Metrics.Summary`` (api/types.go, fb3076099): counts, durations as Go prints them (41m38.609s), and
a rate rounded to two decimals. The prompt's count holds what was in the cache since it is
``cache_n + prompt_n`` (llm/llama_server.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cpubound.advise.logs.run import LoggedRun, add_run
from cpubound.advise.logs.text import NUMBER, Log, mean_depth, number, positive, rate_of, whole

_LINE = re.compile(
    rf"(?P<prompt>prompt )?eval (?P<what>count|duration|rate):\s*(?:(?P<duration>(?:[0-9.]+"
    rf"(?:h|ms|m|us|µs|μs|ns|s))+)|{NUMBER})"
)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|m|us|µs|μs|ns|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6}
_SECONDS["ns"] = 1e-9


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every block of ``--verbose``: the rate of a block ends it."""
    found: list[LoggedRun] = []
    said: dict[str, float] = {}
    for line in log:
        match = _LINE.search(line) if "eval " in line else None
        if match is None:
            continue
        value = _seconds(match["duration"]) if match["duration"] else number(match[4])
        said[f"{match['prompt'] or ''}{match['what']}"] = value
        if match["what"] == "rate" and not match["prompt"]:
            for run in _run(said):
                add_run(found, run)
            said = {}
    return tuple(found)


def read_answer(answer: Mapping[str, Any]) -> LoggedRun | None:
    """Read an answer of the API, whose durations are nanoseconds, or None if it has none."""
    tokens, duration = whole(answer.get("eval_count")), positive(answer.get("eval_duration"))
    rate = rate_of(tokens, None if duration is None else duration / 1e9)
    return None if rate is None else _logged(rate, tokens, whole(answer.get("prompt_eval_count")))


def _run(said: Mapping[str, float]) -> list[LoggedRun]:
    tokens = int(said["count"]) if "count" in said else None
    rate = rate_of(tokens, said.get("duration")) or said["rate"]
    prompt = int(said["prompt count"]) if "prompt count" in said else None
    return [_logged(rate, tokens, prompt)] if rate > 0 else []


def _logged(rate: float, tokens: int | None, prompt: int | None) -> LoggedRun:
    return LoggedRun(
        engine="ollama", tokens_per_s=rate, tokens=tokens, depth_tokens=mean_depth(prompt, tokens)
    )


def _seconds(text: str) -> float:
    return sum(float(n) * _SECONDS[unit] for n, unit in _DURATION.findall(text))

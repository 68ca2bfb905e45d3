"""LM Studio: the line under an answer, ``lms chat --stats``, and the answers of its API.

``displayVerboseStats`` (src/subcommands/chat/util.ts of lms, 07b7252): "Tokens/Second: 12.34", then
counts; the window: "12.34 tok/sec • 128 tokens • 0.30s to first token"; the API (version 0,
lmstudio.ai/docs): ``stats`` and ``usage``, and of version 1 counts in ``stats``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cpubound.advise.logs.run import LoggedRun, add_run
from cpubound.advise.logs.text import NUMBER, Log, mean_depth, number, positive, rate_of, whole

_RATE = re.compile(
    rf"{NUMBER}\s*tok/s(?:ec)?\b|\"?tokens(?:_per_|Per|/)second\"?\s*[:=]\s*{NUMBER}",
    re.IGNORECASE,
)
_PANEL_TOKENS = re.compile(r"\b(\d{1,9}) tokens?\b")
_COUNT = re.compile(r"\"?(Prompt|Predicted) ?Tokens(?:Count)?\"?: (\d{1,9})", re.IGNORECASE)
_DRAFT = re.compile(r"\"?total_?draft_?tokens_?count\"?: [1-9]", re.IGNORECASE)


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every rate; counts stand on its line or on lines of their own behind it."""
    found: list[LoggedRun] = []
    counts: dict[str, int] = {}
    for line in log:
        rate = _RATE.search(line)
        if rate is not None and (value := number(rate[1] or rate[2])) > 0:
            tokens = _PANEL_TOKENS.search(line)
            counts = {} if tokens is None else {"predicted": int(tokens[1])}
            add_run(found, LoggedRun(engine="lm-studio", tokens_per_s=value))
        if not found:
            continue
        for what, count in _COUNT.findall(line):
            counts[what.lower()] = int(count)
        predicted = counts.get("predicted")
        found[-1] = replace(
            found[-1],
            tokens=predicted,
            depth_tokens=mean_depth(counts.get("prompt"), predicted),
            has_draft=found[-1].has_draft or _DRAFT.search(line) is not None,
        )
    return tuple(found)


def read_answer(answer: Mapping[str, Any]) -> LoggedRun | None:
    """Read an answer of the API, or None if it has no ``stats``."""
    stats, usage = answer.get("stats"), answer.get("usage")
    if not isinstance(stats, Mapping):
        return None
    usage = usage if isinstance(usage, Mapping) else stats
    tokens = _count(usage, "completion_tokens", "total_output_tokens", "predictedTokensCount")
    rate = rate_of(tokens, positive(stats.get("generation_time")))
    rate = rate or positive(stats.get("tokens_per_second") or stats.get("tokensPerSecond"))
    if rate is None:
        return None
    prompt = _count(usage, "prompt_tokens", "input_tokens", "promptTokensCount")
    return LoggedRun(
        engine="lm-studio",
        tokens_per_s=rate,
        tokens=tokens,
        depth_tokens=mean_depth(prompt, tokens),
        has_draft=_count(stats, "total_draft_tokens_count", "totalDraftTokensCount") is not None,
    )


def _count(fields: Mapping[str, Any], *names: str) -> int | None:
    return next((n for name in names if (n := whole(fields.get(name))) is not None), None)

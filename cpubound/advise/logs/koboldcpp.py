"""KoboldCpp: the line behind each answer, its benchmark, and its API's ``perf``.

gpttype_adapter.cpp, by year: "Time Taken - Processing:10.4s (8ms/T), Generation:19.4s (243ms/T),
Total:29.8s (2.7T/s)" (2023), "ContextLimit: 1409/16384, …, Generation:19.43s (245.9ms/T), …" (late
2023), "CtxLimit:1409/16384, Amt:80/1024, …, Generate:19.43s (245.9ms/T = 4.07T/s), …" (2024),
"[12:00:00] CtxLimit:…, Generate:19.43s (4.12T/s), Total:29.84s" (from 0027a478, 2025). The rate in
brackets of the total counts the prompt. Benchmark and ``/api/extra/perf``: koboldcpp.py, 2da346a5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cpubound.advise.logs.run import LoggedRun, add_run
from cpubound.advise.logs.text import NUMBER, Log, number, positive, rate_of, whole

_GENERATED = re.compile(
    rf"Generat(?:ion|e):\s*{NUMBER}s\s*\((?:{NUMBER}ms/T)?(?: = )?(?:{NUMBER}T/s)?\)"
)
_IN_CONTEXT = re.compile(r"(?:Context|Ctx)Limit:\s*(\d{1,9})/(\d{1,9})")
_AMOUNT = re.compile(r"\bAmt:\s*(\d{1,9})/")
_DRAFT = re.compile(r"Draft Results - Success:\s*\d+, Failure:\s*\d+")
_BENCHMARK = re.compile(
    rf"^(Model|MaxCtx|GenAmount|GenerationTime|GenerationSpeed|Flags):\s*(?:{NUMBER}(?:s|T/s)?$|(.*))"
)
_THREADS = re.compile(r"\bThreads=(\d{1,6})\b")


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every answer and every benchmark."""
    found: list[LoggedRun] = []
    benchmark: dict[str, str] = {}
    for line in log:
        if "Generat" in line and (run := _answer_run(line)) is not None:
            add_run(found, run)
        elif found and _DRAFT.search(line):
            found[-1] = replace(found[-1], has_draft=True)
        field = _BENCHMARK.match(line)
        if field is not None:
            benchmark[field[1]] = field[2] or field[3]
            if field[1] == "GenerationSpeed":
                found += _benchmark_run(benchmark)
                benchmark = {}
    return tuple(found)


def read_answer(answer: Mapping[str, Any]) -> LoggedRun | None:
    """Read an answer of ``/api/extra/perf``: milliseconds a token, or None if it is none."""
    milliseconds, tokens = positive(answer.get("last_eval")), whole(answer.get("last_token_count"))
    speed = positive(answer.get("last_eval_speed"))
    if "last_token_count" not in answer or not (milliseconds or speed):
        return None
    rate = speed or rate_of(1e3, milliseconds)
    if rate is None:
        return None
    is_draft = whole(answer.get("last_draft_success")) is not None
    return LoggedRun(engine="koboldcpp", tokens_per_s=rate, tokens=tokens, has_draft=is_draft)


def _answer_run(line: str) -> LoggedRun | None:
    match = _GENERATED.search(line)
    if match is None:
        return None
    seconds = number(match[1])
    context, amount = _IN_CONTEXT.search(line), _AMOUNT.search(line)
    # The least rounded of what is printed.
    printed = rate_of(1e3, number(match[2])) if match[2] else None
    printed = number(match[3]) if match[3] else printed
    tokens = int(amount[1]) if amount else round(seconds * printed) if printed else None
    rate = (rate_of(tokens, seconds) if amount else None) or printed
    if not rate:
        return None
    return LoggedRun(
        engine="koboldcpp",
        tokens_per_s=rate,
        tokens=tokens,
        depth_tokens=max(int(context[1]) - (tokens or 0) // 2, 0) if context else None,
        n_ctx=int(context[2]) or None if context else None,
    )


def _benchmark_run(said: Mapping[str, str]) -> list[LoggedRun]:
    """Return the run of a benchmark, which fills the context and generates at its end."""
    tokens = int(number(said.get("GenAmount", "0"))) or None
    n_ctx = int(number(said.get("MaxCtx", "0"))) or None
    seconds = number(said["GenerationTime"]) if "GenerationTime" in said else None
    rate = rate_of(tokens, seconds) or number(said["GenerationSpeed"])
    threads = _THREADS.search(said.get("Flags", ""))
    run = LoggedRun(
        engine="koboldcpp",
        tokens_per_s=rate,
        tokens=tokens,
        depth_tokens=None if n_ctx is None else n_ctx - (tokens or 0) // 2,
        n_ctx=n_ctx,
        threads=int(threads[1]) if threads else None,
        model=said.get("Model"),
    )
    return [run] if rate > 0 else []

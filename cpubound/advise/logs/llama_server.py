"""llama-server: what its log says of the cache behind a run, and the timings in its answers.

Lines of ``server_slot`` and ``update_slots`` (tools/server/server-context.cpp, commit
0c1e57098bba): "new prompt, … task.n_tokens = 8212", "n_tokens = 8191, memory_seq_rm [8191, end)",
"stop processing: n_tokens = 8311". Before October 2025 they said n_prompt_tokens, n_past and
kv cache rm; before October 2024 and in llamafile (llama.cpp/server/server.cpp) "kv cache rm
[p0, end)" with p0 and "slot released" with n_past, as fields of JSON or behind a bar; in 2023
"slot 0 : in cache: … tokens" and "slot 0 released (… tokens in cache)". Answers:
``result_timings::to_json`` (tools/server/server-task.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cpubound.advise.logs.run import LoggedRun
from cpubound.advise.logs.text import mean_depth, positive, rate_of, whole

ALONGSIDE = "another request was decoded at the same time, which takes bandwidth from this one"
UNTOLD = "a prompt whose beginning was in the cache already is counted from its new tokens only"

_SLOT = re.compile(
    r"\bid\s+(\d{1,6}) \| task|\bslot\s+(\d{1,6})\b|\b(?:id_slot|slot_id)\W{1,3}(\d{1,6})"
)
_STARTED = re.compile(r"processing task|new prompt\b|slot is processing task")
_REUSED = re.compile(
    r"\brm -? ?\[(\d{1,9}), end\)|\bp0\"?[=:]\s*(\d{1,9})|in cache: (\d{1,9}) tokens"
)
_PROMPT = re.compile(
    r"\b(?:task\.n_tokens|n_prompt_tokens) = (\d{1,9})|prompt done, n_(?:past|tokens) = (\d{1,9})"
)
_RELEASED = re.compile(
    r"stop processing: n_(?:past|tokens) = (\d{1,9})"
    r"|slot released\b.*?\bn_past\"?[=:]\s*(\d{1,9})"
    r"|released \((\d{1,9}) tokens in cache\)"
)


@dataclass(slots=True)
class _Slot:
    """A task in a slot, as far as it is told."""

    reused_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # at its end
    is_alongside: bool = False
    run: int | None = None  # the index of its run, once its time was printed
    run_tokens: int = 0


@dataclass(slots=True)
class Slots:
    """The tasks that run, by slot; lines that name no slot are of the last one named."""

    running: dict[int, _Slot] = field(default_factory=dict)
    current: int | None = None

    def take(self, line: str) -> tuple[int, int] | None:
        """Note what a line says; of a task that ends, return the index of its run and its depth.

        None where no task ends, or its time was not printed yet.
        """
        named = _SLOT.search(line)
        if named is not None:
            self.current = int(next(filter(None, named.groups())))
        if self.current is None:
            return None
        if _STARTED.search(line):
            self._start(self.current)
        released = _first_number(_RELEASED, line)
        if released is not None:
            return self._end(self.current, released)
        slot = self.running.get(self.current)
        reused, prompt = _first_number(_REUSED, line), _first_number(_PROMPT, line)
        if slot is None and (reused is not None or prompt is not None):
            slot = self._start(self.current)
        if slot is not None:
            slot.reused_tokens = slot.reused_tokens if reused is None else reused
            slot.prompt_tokens = slot.prompt_tokens if prompt is None else prompt
        return None

    def prompt_tokens(self, evaluated: int | None, generated: int) -> int | None:
        """Return the whole prompt of the current task, None where the log does not tell."""
        slot = None if self.current is None else self.running.get(self.current)
        if slot is None or slot.prompt_tokens is not None:
            return None if slot is None else slot.prompt_tokens
        if slot.reused_tokens is not None and evaluated is not None:
            return slot.reused_tokens + evaluated
        return None if slot.cached_tokens is None else max(slot.cached_tokens - generated, 0)

    def add_run(self, run: int, tokens: int) -> tuple[str, ...]:
        """Note that the current task is this run; return what is to be said about it."""
        if self.current is None:
            return ()
        slot = self.running.setdefault(self.current, _Slot())
        slot.run, slot.run_tokens = run, tokens
        return (ALONGSIDE,) if slot.is_alongside else ()

    def _start(self, number: int) -> _Slot:
        slot = self.running.get(number)
        if slot is None or slot.run is not None or slot.cached_tokens is not None:
            slot = self.running[number] = _Slot()
        others = [
            other
            for other in self.running.values()
            if other is not slot and other.run is None and other.cached_tokens is None
        ]
        for one in (slot, *others) if others else ():
            one.is_alongside = True
        return slot

    def _end(self, number: int, cached_tokens: int) -> tuple[int, int] | None:
        """Note the end of a task, whose time some builds print before it and some behind it."""
        slot = self.running.setdefault(number, _Slot())
        slot.cached_tokens = cached_tokens
        if slot.run is None:
            return None
        return slot.run, max(cached_tokens - slot.run_tokens // 2, 0)


def read_answer(answer: Mapping[str, Any]) -> LoggedRun | None:
    """Read the timings of an answer, or None if it has none.

    The prompt is what ``usage`` or ``tokens_evaluated`` says, or ``cache_n`` and ``prompt_n``.
    """
    timings = answer.get("timings")
    if not isinstance(timings, Mapping):
        return None
    tokens, milliseconds = whole(timings.get("predicted_n")), positive(timings.get("predicted_ms"))
    rate = rate_of(tokens, None if milliseconds is None else milliseconds / 1e3)
    rate = rate or positive(timings.get("predicted_per_second"))
    if rate is None:
        return None
    usage = answer.get("usage")
    prompt = whole(usage.get("prompt_tokens")) if isinstance(usage, Mapping) else None
    prompt = prompt or whole(answer.get("tokens_evaluated"))
    evaluated, is_told = whole(timings.get("prompt_n")), prompt is not None or "cache_n" in timings
    if prompt is None and evaluated is not None:
        prompt = evaluated + (whole(timings.get("cache_n")) or 0)
    return LoggedRun(
        engine="llama.cpp",
        tokens_per_s=rate,
        tokens=tokens,
        depth_tokens=mean_depth(prompt, tokens),
        has_draft=whole(timings.get("draft_n")) is not None,
        notes=() if is_told else (UNTOLD,),
    )


def _first_number(pattern: re.Pattern[str], line: str) -> int | None:
    match = pattern.search(line)
    return None if match is None else int(next(filter(None, match.groups())))

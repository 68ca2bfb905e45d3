"""llama.cpp's own lines: llama-cli, llama-server, llama-cpp-python and llamafile print them.

"eval time = … ms / 64 runs (… per second)" is of ``llama_perf_context_print``
(src/llama-context.cpp; before September 2024 ``llama_print_timings``, src/llama.cpp) and of
``server_slot::print_timings`` (tools/server/server-context.cpp; "generation eval time" in 2024,
and in llamafile's llama.cpp/server/server.cpp); "[ Prompt: … t/s | Generation: … t/s ]" of
tools/cli/cli-context.cpp; commit 0c1e57098bba. "prefix-match hit" is llama-cpp-python's
(llama_cpp/llama.py, 3691546f).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from cpubound.advise.logs.build import note_facts
from cpubound.advise.logs.llama_server import UNTOLD, Slots
from cpubound.advise.logs.run import LoggedRun, add_run
from cpubound.advise.logs.text import NUMBER, Log, mean_depth, number, rate_of

_EVAL = re.compile(
    rf"(?P<prompt>prompt )?eval time\s*=\s*{NUMBER}\s*ms\s*/\s*(\d{{1,9}})\s*(?:runs?|tokens?)\b"
)
_GENERATION = re.compile(rf"Prompt: {NUMBER} t/s \| Generation: {NUMBER} t/s")
_DRAFT = re.compile(r"draft acceptance(?: rate)?\s*=|\bn_drafted\s*=\s*[1-9]")
_PREFIX_HIT = re.compile(
    r"Llama\.generate: (?:(\d{1,9}) )?prefix-match hit|full prompt already cached"
)
# Most lines of a long log say none of this.
_SAYS_SOMETHING = re.compile(r"[=|]|load|t/s|generate|\"|rm|released")


@dataclass(slots=True)
class _Reading:
    """What the lines so far say of the runs that follow."""

    facts: dict[str, Any] = field(default_factory=dict)
    slots: Slots = field(default_factory=Slots)
    prompt_tokens: int | None = None
    reused_tokens: int | None = None  # by llama-cpp-python
    has_unknown_prefix: bool = False
    found: list[LoggedRun] = field(default_factory=list)

    def take_run(self, tokens: int, milliseconds: float) -> None:
        """Add a run whose time was printed, with the prompt that was printed before it."""
        rate = rate_of(tokens, milliseconds / 1e3)
        if rate is not None:
            add_run(self.found, self._run(rate, tokens))
        self.prompt_tokens = self.reused_tokens = None
        self.has_unknown_prefix = False

    def take_rate(self, rate: float) -> None:
        """Add a run of which only the rate was printed."""
        if rate > 0:
            run = LoggedRun(engine="llama.cpp", tokens_per_s=rate, **self.facts)
            add_run(self.found, run)

    def take_depth(self, run: int, depth_tokens: int) -> None:
        """Give a run the depth that was told behind it."""
        notes = tuple(note for note in self.found[run].notes if note != UNTOLD)
        self.found[run] = replace(self.found[run], depth_tokens=depth_tokens, notes=notes)

    def _run(self, rate: float, tokens: int) -> LoggedRun:
        evaluated = self.prompt_tokens
        if evaluated is not None and self.reused_tokens is not None:
            evaluated += self.reused_tokens
        whole_prompt = self.slots.prompt_tokens(evaluated, tokens)
        is_untold = self.slots.current is not None and whole_prompt is None
        notes = self.slots.add_run(len(self.found), tokens)
        prompt = evaluated if whole_prompt is None else whole_prompt
        return LoggedRun(
            engine="llama.cpp",
            tokens_per_s=rate,
            tokens=tokens,
            depth_tokens=None if self.has_unknown_prefix else mean_depth(prompt, tokens),
            has_unknown_prefix=self.has_unknown_prefix,
            notes=(*notes, UNTOLD) if is_untold else notes,
            **self.facts,
        )


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every decode that llama.cpp printed the time of.

    What is said about model and settings holds for the runs that follow it.
    """
    reading = _Reading()
    for line in log:
        if _SAYS_SOMETHING.search(line):
            _take(line, reading)
    return tuple(reading.found)


def _take(line: str, reading: _Reading) -> None:
    note_facts(line, reading.facts)
    released = reading.slots.take(line)
    if released is not None:
        reading.take_depth(*released)
    if reading.found and _DRAFT.search(line):
        reading.found[-1] = replace(reading.found[-1], has_draft=True)
    hit = _PREFIX_HIT.search(line)
    if hit is not None:
        reading.reused_tokens = int(hit[1]) if hit[1] else None
        reading.has_unknown_prefix = hit[1] is None
    generation = _GENERATION.search(line)
    if generation is not None:
        reading.take_rate(number(generation[2]))
    timing = _EVAL.search(line)
    if timing is None:
        return
    milliseconds, tokens = number(timing[2]), int(timing[3])
    if timing["prompt"]:
        reading.prompt_tokens = tokens
    else:
        reading.take_run(tokens, milliseconds)

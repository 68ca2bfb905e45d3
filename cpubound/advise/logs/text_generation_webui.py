"""text-generation-webui: "Output generated in 8.50 seconds (5.88 tokens/s, 50 tokens, context 24".

modules/text_generation.py, 1dcde41d; before March 2023 without the context.
"""

from __future__ import annotations

import re

from cpubound.advise.logs.run import LoggedRun, add_run
from cpubound.advise.logs.text import NUMBER, Log, mean_depth, number, rate_of

WITH_PROMPT = "the time of text-generation-webui holds the prompt too: generating alone was faster"

_OUTPUT = re.compile(
    rf"Output generated in {NUMBER} seconds \({NUMBER} tokens/s, (\d{{1,9}}) tokens"
    r"(?:, context (\d{1,9}))?"
)


def read(log: Log) -> tuple[LoggedRun, ...]:
    """Read every answer; its rate is a lower bound of that of decoding."""
    found: list[LoggedRun] = []
    for line in log:
        match = _OUTPUT.search(line)
        if match is None:
            continue
        tokens = int(match[3])
        rate = rate_of(tokens, number(match[1]))
        if rate is not None:
            run = LoggedRun(
                engine="text-generation-webui",
                tokens_per_s=rate,
                tokens=tokens,
                depth_tokens=mean_depth(int(match[4]) if match[4] else None, tokens),
                notes=(WITH_PROMPT,),
            )
            add_run(found, run)
    return tuple(found)

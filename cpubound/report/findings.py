"""Findings as lines that people read, the worst first, each with what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from cpubound.advise.values import Finding
from cpubound.foreign import showing
from cpubound.units import format_significant

WIDTH = 100
_GLUE = "\N{NO-BREAK SPACE}"
# Where a rate changes by less, saying so is noise.
_LEAST_COST = 0.005


@showing()
def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Number the findings; under each what it costs and what to do."""
    lines: list[str] = []
    for number, finding in enumerate(findings, 1):
        lines += wrap_parts(
            f"{number:>2}. {finding.severity:<9}",
            [f"{finding.code}: {finding.message}{_cost(finding)}."],
        )
        lines += wrap_parts(" " * 13, [f"→ {finding.remedy}"])
    return lines


def wrap_parts(first: str, parts: Sequence[str]) -> list[str]:
    """Fill lines with parts, breaking between them rather than inside one."""
    glued = (part.replace(" ", _GLUE) if len(part) < WIDTH // 2 else part for part in parts)
    lines = textwrap.wrap(
        ", ".join(glued),
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _cost(finding: Finding) -> str:
    cost = finding.cost_tokens_per_s
    if cost is None or cost < _LEAST_COST:
        return ""
    return f" (−{format_significant(cost)} tok/s)"

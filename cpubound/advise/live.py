"""A diagnosis of a run that was watched: what was seen becomes findings."""

from __future__ import annotations

import msgspec

from cpubound.advise.diagnosis import Diagnosis
from cpubound.advise.live_rules import find_live_findings
from cpubound.advise.registry import order
from cpubound.advise.values import INFO
from cpubound.engine.watch import LiveFacts

# What the gap is where a watched run shows why it is slow; otherwise something disturbed it.
_GAP_OF = {"quota-oversubscribed": "configuration", "not-resident": "memory"}
_UNEXPLAINED = ("unexplained", "below-interval")


def add_live(diagnosis: Diagnosis, facts: LiveFacts) -> Diagnosis:
    """Add what was seen while the run was watched.

    A shortfall that was unexplained is so no longer where something was seen that explains it.
    """
    found = find_live_findings(facts)
    reasons = [finding.code for finding in found if finding.severity != INFO]
    kept = [f for f in diagnosis.findings if not (reasons and f.code in _UNEXPLAINED)]
    return msgspec.structs.replace(
        diagnosis, live=facts, findings=order((*found, *kept)), gap=_name_gap(diagnosis, reasons)
    )


def _name_gap(diagnosis: Diagnosis, reasons: list[str]) -> str | None:
    if "quota-oversubscribed" in reasons:
        return "configuration"
    if diagnosis.gap != "unexplained" or not reasons:
        return diagnosis.gap
    return next((_GAP_OF[code] for code in reasons if code in _GAP_OF), "disturbance")

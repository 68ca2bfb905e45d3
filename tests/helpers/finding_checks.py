"""What holds of every finding."""

from __future__ import annotations

from cpubound.advise.values import SEVERITIES, Finding


def check_finding(finding: Finding | None, code: str) -> None:
    """Assert that a finding has this code, numbers for evidence, and one line each to say."""
    assert finding is not None
    assert finding.code == code
    assert finding.severity in SEVERITIES
    assert finding.evidence
    assert all(isinstance(value, int | float) for value in finding.evidence.values())
    assert finding.message
    assert finding.remedy
    assert "\n" not in finding.message + finding.remedy
    assert finding.cost_tokens_per_s is None or finding.cost_tokens_per_s >= 0

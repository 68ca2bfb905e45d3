"""The ``Finding`` value: what costs speed, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ERROR = "error"
WARNING = "warning"
INFO = "info"
SEVERITIES = (ERROR, WARNING, INFO)  # the worst first


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that costs speed or explains it, with the numbers that decided."""

    code: str
    severity: str  # one of SEVERITIES
    evidence: Mapping[str, float]
    message: str
    cost_tokens_per_s: float | None = None  # None: not estimated
    remedy: str  # what to do, a command where there is one

    @property
    def is_actionable(self) -> bool:
        """Whether there is anything to do about it."""
        return not self.remedy.startswith("nothing to ")

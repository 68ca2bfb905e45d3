"""Where CI is set, a test that is skipped for a reason not listed here fails.

A suite that skips is green whatever is broken: a missing engine, model or package would
hide the tests that need it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Any

import pytest

# What a machine of CI may lack, and why no installation gives it.
MAY_SKIP = (
    r"not installed: (aarch64-linux-gnu-gcc|, |qemu-aarch64-static)+",  # a cross compiler
    r"not installed: chromium",  # a browser, from the distribution
    r"the compiler has no runtime for [a-z0-9,]+",  # sanitizers of some distributions
    r"every kernel of this build can run here",  # nothing is left to be refused
    r"threads cannot be bound here",  # sandboxes that refuse affinity
    r"root reads everything",  # containers run as root
    r"only root can become another user",
    r"control groups cannot be made here",  # without root, or in a container
)


def may_be_skipped(reason: str) -> bool:
    return any(re.fullmatch(pattern, reason) for pattern in MAY_SKIP)


def judge(report: Any) -> Any:
    """Return the report, failed if CI is set and its skip is for a reason not listed."""
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        reason = str(reason).removeprefix("Skipped: ")
        if not may_be_skipped(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing unlisted may be (CI is set): {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report: pytest.TestReport = judge((yield))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report: pytest.CollectReport = judge((yield))
    return report

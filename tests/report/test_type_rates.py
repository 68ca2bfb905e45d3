"""Rates of types under the roof, and the screen of a saved profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import GB, build_profile
from pages import TYPES, full_profile

from cpubound.cost.predict import weights_bandwidth
from cpubound.profile.file import save_profile
from cpubound.report.type_rates import scaling_table, share_bar, type_rates

PROFILE = full_profile()
Invoke = Callable[..., tuple[int, str, str]]


def test_a_type_is_limited_by_memory_only_near_the_roof() -> None:
    rates = type_rates(PROFILE, 2)
    roof = weights_bandwidth(PROFILE, 2)
    assert roof is not None
    assert {rate.limit for rate in rates if rate.bytes_per_s < 0.7 * roof} == {"kernel"}
    assert {rate.limit for rate in rates if rate.bytes_per_s > 0.9 * roof} <= {"memory"}
    assert [rate.bytes_per_s for rate in rates] == sorted(
        (rate.bytes_per_s for rate in rates), reverse=True
    )


def test_a_row_has_the_rate_alone_and_together_and_the_share_of_the_roof() -> None:
    table = scaling_table(PROFILE)
    assert table.columns == (
        "type",
        "GB/s, 1 thread",
        "GB/s, 2 threads",
        "of the roof",
        "limited by",
    )
    assert {row[0] for row in table.rows} == {*TYPES}
    assert all(float(alone) < float(together) for _, alone, together, _, _ in table.rows)


def test_without_an_engine_there_are_no_rows() -> None:
    assert scaling_table(build_profile({1: 20.0 * GB})).rows == ()


@pytest.mark.parametrize(
    ("share", "bar"),
    [(0.0, "·" * 20 + " 0 %"), (0.5, "█" * 10 + "·" * 10 + " 50 %"), (1.2, "█" * 20 + " 120 %")],
)
def test_a_bar_is_as_long_as_the_share(share: float, bar: str) -> None:
    assert share_bar(share) == bar


def test_a_saved_profile_is_printed_again(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(PROFILE, path)
    code, said, _ = invoke("show", str(path))
    assert code == 0
    assert "memory read" in said
    assert "█" in said
    code, said, _ = invoke("show", str(path), "--format", "csv")
    assert said.startswith("type,")


def test_without_a_profile_the_line_says_what_to_do(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    code, _, error = invoke("show")
    assert code == 3
    assert "cpubound calibrate" in error

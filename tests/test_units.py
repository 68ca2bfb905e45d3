from __future__ import annotations

import pytest

from cpubound import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1234"),
        (56.13, "56.1"),
        (6.3, "6.30"),
        (0.0123, "0.0123"),
        (999.6, "1000"),
    ],
)
def test_numbers_keep_three_significant_digits(value: float, text: str) -> None:
    assert units.format_significant(value) == text


def test_decimal_and_binary_sizes_differ_in_unit_and_value() -> None:
    assert units.format_decimal_bytes(4_920_000_000) == "4.92 GB"
    assert units.format_binary_bytes(32 * units.MIB) == "32 MiB"
    assert units.format_binary_bytes(units.GIB * 3 // 2) == "1.5 GiB"
    assert units.format_binary_bytes(200 * units.GIB) == "200 GiB"
    assert units.format_decimal_bytes(12) == "12 B"


def test_rates_are_in_decimal_gigabytes() -> None:
    assert units.format_rate(56.13e9) == "56.1 GB/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (4e-6, "4.00 µs"), (5e-8, "50.0 ns")],
)
def test_durations_take_the_unit_that_fits(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


def test_differences_carry_their_sign() -> None:
    assert units.format_percent(0.019) == "+1.9 %"
    assert units.format_percent(-0.5, 0) == "−50 %"


def test_one_thing_is_singular() -> None:
    assert [units.format_count(n, "thread") for n in (0, 1, 2)] == [
        "0 threads",
        "1 thread",
        "2 threads",
    ]

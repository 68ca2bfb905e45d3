"""cpubound.machine.memory_kind."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.machine.memory_kind import parse_memory


@pytest.mark.parametrize(
    ("words", "gigabytes_per_s"),
    [
        # Peaks as makers and JEDEC give them.
        ("ddr4-3200-2ch", 51.2),
        ("DDR5-5600-2ch", 89.6),
        ("dual channel ddr5 5600", 89.6),
        ("ddr5 5600 MT/s dual-channel", 89.6),
        ("2x16GB ddr4-3200-2ch", 51.2),
        ("ddr5-4800-12ch", 460.8),
        ("lpddr5-4800-1ch", 38.4),
        ("lpddr5x-8533-128bit", 136.5),
        ("lpddr4x-4267-32 bits", 17.07),
        ("hbm2e-3200-4096bit", 1638.4),
        ("mrdimm-8800-12ch", 844.8),
    ],
)
def test_peak_bandwidth_is_transfers_times_width(words: str, gigabytes_per_s: float) -> None:
    peak = parse_memory(words).bytes_per_s
    assert peak is not None
    assert peak / 1e9 == pytest.approx(gigabytes_per_s, rel=2e-3)


def test_channels_that_the_words_do_not_tell_stay_unknown() -> None:
    memory = parse_memory("ddr4-3200")
    assert memory.width_bits is None
    assert memory.bytes_per_s is None


@pytest.mark.parametrize(
    "words", ["ddr4-3200-2ch", "lpddr5x-7500-128bit", "ddr5-4800", "ddr4-3200-80bit"]
)
def test_memory_is_written_in_the_words_that_it_is_read_from(words: str) -> None:
    assert parse_memory(words).words == words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("ddr4-99999-2ch", "no DDR4 of this speed"),
        ("ddr5-320-2ch", "no DDR5 of this speed"),
        ("ddr4-3200-0ch", "no memory of this width"),
        ("ddr4-3200-999999ch", "no memory of this width"),
        ("ddr6-9000-2ch", "not memory"),
        ("fast", "not memory"),
    ],
)
def test_memory_that_does_not_exist_is_refused(words: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_memory(words)

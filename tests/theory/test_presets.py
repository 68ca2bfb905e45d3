"""Published machines: dense figures, peaks and measurements apart, a source for each value."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.theory.presets import find_preset, preset_names


@pytest.mark.parametrize("name", preset_names())
def test_every_value_of_a_preset_has_a_source(name: str) -> None:
    preset = find_preset(name)
    values = {
        "peak": preset.peak_bytes_per_s,
        "measured": preset.measured_bytes_per_s,
        "memory": preset.memory_bytes,
        "flops": preset.flops_per_s or None,
    }
    known = {key for key, value in values.items() if value is not None}
    assert known == set(preset.sources)
    assert all(preset.sources.values())


@pytest.mark.parametrize("name", preset_names())
def test_measured_bandwidth_stays_below_the_peak(name: str) -> None:
    preset = find_preset(name)
    if preset.measured_bytes_per_s is not None:
        assert 0.5 < preset.measured_bytes_per_s / preset.peak_bytes_per_s < 1


def test_an_h100_carries_the_dense_figure() -> None:
    """989 is dense; 1,979 is with sparsity, and 495 is neither."""
    preset = find_preset("H100-SXM")
    assert preset.peak_flops("bf16") == 989e12
    assert preset.peak_flops("fp8") == 1979e12
    assert preset.roofs().machine_balance == pytest.approx(295.2, abs=0.05)


def test_an_a100_has_a_balance_of_153() -> None:
    assert find_preset("a100-80gb").roofs().machine_balance == pytest.approx(153, abs=0.05)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("ddr5-5600", 89.6e9),
        ("ddr5-5600-2ch", 89.6e9),
        ("ddr4-3200-1ch", 25.6e9),
        ("DDR5-4800-12ch", 460.8e9),
    ],
)
def test_memory_modules_are_named_by_speed_and_channels(name: str, bandwidth: float) -> None:
    preset = find_preset(name)
    assert preset.peak_bytes_per_s == pytest.approx(bandwidth)
    assert preset.peak_flops("bf16") is None


def test_servers_are_as_fast_as_their_channels() -> None:
    for server, modules in (
        ("epyc-genoa", "ddr5-4800-12ch"),
        ("xeon-sapphire-rapids", "ddr5-4800-8ch"),
        ("graviton4", "ddr5-5600-12ch"),
    ):
        expected = find_preset(modules).peak_bytes_per_s
        assert find_preset(server).peak_bytes_per_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100", "h100-sxm"),
        ("epyc", "epyc-genoa"),
        ("toaster", "ddr5-5600-2ch"),
        ("modules", "no machine"),
        ("ddr5-5601", "5600"),
        ("ddr5-5600-0ch", "channels"),
        ("ddr5-5600-99ch", "24"),
        ("ddr6-5600", "no machine"),
        ("", "no machine"),
    ],
)
def test_an_unknown_machine_is_answered_with_the_nearest_names(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_preset(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_precision_without_a_published_peak_names_those_that_have_one() -> None:
    with pytest.raises(UsageError, match="bf16"):
        find_preset("a100-80gb").peak_flops("fp8")

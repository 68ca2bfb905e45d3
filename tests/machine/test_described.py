"""cpubound.machine.described."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubound.errors import UsageError
from cpubound.machine.described import MAX_WORDS, describe_machine


@pytest.mark.parametrize(
    ("words", "name", "sockets", "cores", "threads", "memory"),
    [
        ("ryzen 5 5600, ddr4-3200-2ch", "Ryzen 5 5600", 1, 6, 12, "ddr4-3200-2ch"),
        ("ryzen 5 5600 ddr4-2666-1ch", "Ryzen 5 5600", 1, 6, 12, "ddr4-2666-1ch"),
        ("Ryzen 9 7950X, dual channel DDR5 5200", "Ryzen 9 7950X", 1, 16, 32, "ddr5-5200-2ch"),
        ("epyc 9654, 48 cores, ddr5-4800-12ch", "EPYC 9654", 1, 48, 96, "ddr5-4800-12ch"),
        ("AMD EPYC 9654 96-Core Processor, 48 cores", "EPYC 9654", 1, 48, 96, "ddr5-4800-12ch"),
        ("n100, lpddr5-4800-1ch", "Intel N100", 1, 4, 4, "lpddr5-4800-64bit"),
        ("epyc 7742, 2 sockets", "EPYC 7742", 2, 128, 256, "ddr4-3200-8ch"),
        ("2x xeon e5-2686 v4", "Xeon E5-2686 v4", 2, 36, 72, "ddr4-2400-4ch"),
        ("xeon max 9480, hbm2e-3200-4096bit", "Xeon Max 9480", 1, 56, 112, "hbm2e-3200-4096bit"),
        ("zen 4, 8 cores, 16 threads, ddr5-5600-2ch", "Zen 4", 1, 8, 16, "ddr5-5600-2ch"),
        ("7840u, 32 GB RAM, lpddr5-6400-128bit", "Ryzen 7 7840U", 1, 8, 16, "lpddr5-6400-128bit"),
        ("aws:c7a.4xlarge", "EPYC 9R14", 1, 16, 16, "ddr5-4800-12ch"),
        ("aws:m7i.4xlarge, 4 cores", "Xeon Platinum 8488C", 1, 4, 8, "ddr5-4800-8ch"),
        ("aws:m6i.metal", "Xeon Platinum 8375C", 2, 64, 128, "ddr4-3200-8ch"),
        ("azure:Standard_D16as_v7", "EPYC 9V45", 1, 8, 16, "ddr5-6000-12ch"),
    ],
)
def test_a_machine_is_understood_from_a_few_words(
    words: str, name: str, sockets: int, cores: int, threads: int, memory: str
) -> None:
    machine = describe_machine(words)
    assert machine.cpu is not None and machine.memory is not None
    assert machine.cpu.name == name
    assert (machine.sockets, machine.cores, machine.threads) == (sockets, cores, threads)
    assert machine.memory.words == memory
    peak = machine.memory.bytes_per_s
    assert peak is not None
    assert machine.peak_bytes_per_s == sockets * peak


def test_words_that_agree_with_the_name_need_no_note() -> None:
    assert describe_machine("ryzen 5 5600, 6 cores, ddr4-3200-2ch").notes == ()


def test_speeds_that_makers_round_differently_agree() -> None:
    assert describe_machine("i7-8700, ddr4-2667-2ch").notes == ()


def test_memory_that_is_not_told_is_the_fastest_that_the_cpu_takes_with_a_note() -> None:
    machine = describe_machine("core i7-12700k")
    assert not machine.memory_given
    assert machine.memory is not None
    assert machine.memory.words == "ddr5-4800-2ch"
    assert "ddr4-3200-2ch" in machine.notes[0]


def test_a_measured_bandwidth_stands_beside_the_peak_and_needs_no_memory() -> None:
    machine = describe_machine("ryzen 5 5600, bandwidth=45.5GB/s")
    assert machine.read_bytes_per_s == pytest.approx(45.5e9)
    assert machine.peak_bytes_per_s == pytest.approx(51.2e9)
    assert machine.notes == ()
    unnamed = describe_machine("16 cores, bandwidth=85 GB/s")
    assert unnamed.cpu is None
    assert (unnamed.cores, unnamed.read_bytes_per_s) == (16, pytest.approx(85e9))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("ryzen 9 7950x, ddr5-6400-2ch", "officially takes up to ddr5-5200-2ch"),
        ("ryzen 9 7950x, ddr5-5200-4ch", "officially takes up to ddr5-5200-2ch"),
        ("ryzen 5 5600, ddr5-5600-2ch", "officially takes up to ddr4-3200-2ch"),
        ("ryzen 5 5600, ddr4-3200", "on all channels"),
        ("zen 4, 8 cores, ddr5-5600", "channels are not told"),
        ("ryzen 5 5600, ddr4-3200-2ch, 12 cores", "12 cores as given: Ryzen 5 5600 has 6"),
        ("epyc 7742, ddr4-3200-8ch, 4 sockets", "4 sockets as given"),
        ("aws:m5.2xlarge", "also runs on Xeon Platinum 8175M"),
        ("aws:c7a.4xlarge", "other tenants share"),
    ],
)
def test_words_win_over_the_name_with_a_note(words: str, says: str) -> None:
    assert any(says in note for note in describe_machine(words).notes)


def test_threads_of_part_of_a_hybrid_cpu_stay_unknown() -> None:
    assert describe_machine("i9-13900k, 8 cores").threads is None
    assert describe_machine("i9-13900k").threads == 32


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "no machine is described"),
        ("8 cores", "no machine is described"),
        ("epyc 9654, 0 cores", "this many cores"),
        ("epyc 9654, 1000000 cores", "this many cores"),
        ("epyc 9654, 99 sockets", "this many sockets"),
        ("epyc 9654, 0 threads", "this many threads"),
        ("ryzen 5 5600, bandwidth=0GB/s", "bandwidth that was measured"),
        ("ryzen 5 5600, bandwidth=999999 TB/s", "bandwidth that was measured"),
        ("ryzen 5 5600, ddr4-3200-2ch, ddr5-5600-2ch", "two kinds of memory"),
        ("ryzen 5 5600, banana", r"not understood \(banana\)"),
        ("AMD EPYC, 8 cores", "hypervisor"),
        ("rtx 4090, 24GB", "a GPU"),
        ("mars:c7a.large", "no cloud"),
        ("x" * (MAX_WORDS + 1), "too long"),
    ],
)
def test_words_that_describe_no_machine_are_refused(words: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        describe_machine(words)


@given(st.text(max_size=MAX_WORDS + 10))
def test_any_text_is_a_machine_or_a_usage_error(words: str) -> None:
    try:
        machine = describe_machine(words)
    except UsageError:
        return
    assert machine.cpu is not None or machine.memory_given or machine.read_bytes_per_s

from __future__ import annotations

import pytest
from builders import build_machine

from cpubound.machine.activity import Activity
from cpubound.measuring.noise import assess_noise, estimate_move, noise_warnings
from cpubound.profile.values import Noise

QUIET = (0.99, 1.0, 1.01) * 5
BEFORE = Activity(
    busy_s=100.0,
    steal_s=1.0,
    total_s=1000.0,
    own_s=10.0,
    throttled_periods=5,
    throttle_events=2,
    mean_khz=3_000_000,
    load_average=0.2,
    preemptions=10,
    page_faults=1000,
)


def assess(**after: float) -> Noise:
    """Ten seconds on two CPUs of which this process used fifteen CPU seconds."""
    fields = {name: getattr(BEFORE, name) for name in Activity.__dataclass_fields__}
    fields |= {"busy_s": 115.0, "own_s": 25.0, "total_s": 1020.0, **after}
    return assess_noise(
        QUIET,
        10.0,
        before=BEFORE,
        after=Activity(**fields),
        activity_s=10.0,
        page_faults=0,
        buffer_medians=[[20e9, 20.1e9, 20e9]],
    )


def test_a_quiet_machine_blames_nothing() -> None:
    noise = assess()
    assert noise.verdict == "quiet"
    assert noise.causes == ()
    assert noise.other_cpus == pytest.approx(0.0)
    assert noise.stable is True
    assert noise_warnings(noise, build_machine()) == ()


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"steal_s": 2.0}, "the hypervisor gave 5.0 % of the CPU time to other machines"),
        ({"busy_s": 130.0}, "other programs kept 1.5 CPUs busy"),
        ({"throttled_periods": 9}, "the CPU quota ran out in 4 scheduler periods"),
        ({"throttle_events": 3}, "heat slowed the cores 1 times"),
        ({"mean_khz": 2_700_000}, "the clock changed by −10.0 %"),
    ],
)
def test_each_counter_that_went_up_is_named_with_its_number(
    after: dict[str, float], words: str
) -> None:
    assert assess(**after).causes == (words,)


def test_what_the_system_does_not_count_is_unknown_and_blamed_for_nothing() -> None:
    noise = assess_noise(QUIET, 1.0, before=Activity(), after=Activity(), activity_s=1.0)
    assert noise.steal_fraction is noise.other_cpus is noise.throttle_events is None
    assert noise.stable is noise.buffer_spread is None
    assert noise.causes == ()


def test_a_counter_that_falls_when_a_cpu_goes_offline_counts_as_none() -> None:
    assert assess(throttle_events=0).throttle_events == 0


def test_a_drift_is_named_where_no_clock_explains_it() -> None:
    samples = (1.0,) * 10 + (0.8,) * 10
    noise = assess_noise(samples, 1.0, before=Activity(), after=Activity(), activity_s=1.0)
    assert noise.causes == ("the speed drifted by −20.0 %",)


def test_the_last_buffer_moves_the_median_of_the_buffers() -> None:
    assert estimate_move([[10.0, 10.0, 20.0]]) == pytest.approx(0.0)
    assert estimate_move([[10.0, 12.0]]) == pytest.approx(1 / 11)
    assert estimate_move([[10.0, 10.0], [10.0, 12.0]]) == pytest.approx(1 / 11)
    assert estimate_move([[10.0]]) is None
    assert estimate_move([]) is None


def test_an_estimate_that_still_moves_is_a_warning_that_says_why() -> None:
    noise = assess_noise(
        QUIET,
        10.0,
        before=Activity(),
        after=Activity(),
        activity_s=10.0,
        buffer_medians=[[20e9, 26e9]],
    )
    assert noise.stable is False
    assert "equal buffers differed by ±" in noise.causes[0]
    (warning,) = noise_warnings(noise, build_machine())
    assert "one more buffer still moved it by 13.0 %" in warning
    assert noise.causes[0] in warning


def test_where_no_counter_explains_it_a_virtual_machine_names_its_neighbours() -> None:
    unstable = Noise(spread=0.3, verdict="very noisy", stable=False, estimate_moved=0.1)
    assert "neighbours" in noise_warnings(unstable, build_machine(hypervisor="KVM"))[0]
    assert "no counter here tells why" in noise_warnings(unstable, build_machine())[0]

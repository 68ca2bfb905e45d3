"""The laboratory's front door: every experiment answers to its name."""

from __future__ import annotations

import msgspec
import pytest
from builders import GB, build_engine, build_profile
from observed import probe

from calibrate import ablation, accuracy
from calibrate.__main__ import EXPERIMENTS, STANDARD_SET, main
from cpubound.model.resolve import resolve_model


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_takes_its_options_from_the_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m calibrate {name}" in capsys.readouterr().out


def test_the_standard_set_is_made_of_experiments() -> None:
    assert set(STANDARD_SET) <= set(EXPERIMENTS)


def test_an_unknown_experiment_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alchemy"]) == 2
    assert "alchemy" in capsys.readouterr().err


def test_the_held_out_experiment_judges_sixty_cells_that_no_probe_resembles() -> None:
    groups = accuracy.load_groups(accuracy.GROUPS_FILE)
    cells = sum(len(group.models) * len(group.settings(2)) for group in groups)
    assert cells >= 60
    specs = [resolve_model(model) for group in groups for model in group.models]
    assert accuracy.shared_shapes(specs) == []


def test_a_group_leaves_out_threads_that_the_machine_does_not_have() -> None:
    group = accuracy.Group(models=("m",), threads=(1, 2, 64), depths=(0, 512))
    assert [s.threads for s in group.settings(2)] == [1, 1, 2, 2]


def test_an_ablation_fits_a_profiles_own_probes_again() -> None:
    fast, slow = 20.0 * GB, 16.0 * GB
    runs = tuple(
        probe(
            f"p{columns}-{n_bytes}",
            n_bytes / rate + products * 1e-5,
            matrices=(("Q4_0", columns, n_bytes),),
            products=products,
        )
        for columns, rate in ((512, slow), (4096, fast))
        for n_bytes in (100_000_000, 300_000_000)
        for products in (10, 200)
    )
    engine = msgspec.structs.replace(build_engine({"Q4_0": {1: 1.0 * GB}}), probes=runs)
    profile = build_profile({1: 30.0 * GB}, engine)
    as_it_is, flat = (ablation.refit(profile, form).engine for form in ablation.FORMS[:2])
    assert as_it_is is not None
    assert flat is not None
    rates = {row.columns: row.bytes_per_s for row in as_it_is.rates}
    assert rates[4096] == pytest.approx(fast, rel=0.05)
    assert rates[512] == pytest.approx(slow, rel=0.05)
    assert {row.columns for row in flat.rates} == {1}

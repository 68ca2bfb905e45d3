"""Which profile takes the place of another: more never gives way to less."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from builders import GB, build_engine, build_profile

from cpubound.errors import MachineError, UsageError
from cpubound.profile.file import load_profile, save_profile
from cpubound.profile.keeping import CORES, ENGINE, keep_profile, refuse_less, stages
from cpubound.profile.values import MachineProfile, PeakRate

DAY = "2026-01-{:02}T00:00:00+00:00"


def whole(day: int = 1) -> MachineProfile:
    engine = build_engine({"Q4_0": {1: 9e9}})
    return build_profile({1: 20 * GB}, engine, created=DAY.format(day))


def less(day: int = 2) -> MachineProfile:
    return build_profile({1: 21 * GB}, created=DAY.format(day))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def beside(place: Path) -> list[Path]:
    return sorted(path for path in place.parent.iterdir() if path != place)


def test_the_default_place_keeps_older_profiles(home: Path) -> None:
    first = build_profile({1: 20 * GB}, created="2026-01-01T00:00:00+00:00")
    second = build_profile({1: 21 * GB}, created="2026-01-02T00:00:00+00:00")
    keep_profile(first)
    keep_profile(second)
    assert load_profile() == second
    kept = [p for p in home.iterdir() if p.name != "profile.json"]
    assert len(kept) == 1
    assert load_profile(kept[0]) == first


def test_a_profile_of_the_schema_before_is_kept_when_a_new_one_is_saved(home: Path) -> None:
    before = json.dumps({"schema": "cpubound.profile/1", "created": "2026-01-01T00:00:00+00:00"})
    (home / "profile.json").write_text(before)
    keep_profile(build_profile({1: 20 * GB}))
    assert load_profile().schema == "cpubound.profile/2"
    (kept,) = (path for path in home.iterdir() if path.name != "profile.json")
    assert kept.read_text() == before


def test_a_profile_without_the_engine_goes_beside_one_that_has_it(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    save_profile(whole(), place)
    before = place.read_bytes()
    kept = keep_profile(less(), place)
    assert place.read_bytes() == before
    assert kept == tmp_path / "p-2026-01-02T00-00-00-00-00.json"
    assert load_profile(kept) == less()


def test_an_engine_stage_in_which_every_probe_failed_is_none(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    save_profile(whole(), place)
    empty = build_profile({1: 21 * GB}, build_engine({}), created=DAY.format(2))
    assert ENGINE not in stages(empty)
    assert keep_profile(empty, place) != place
    assert load_profile(place) == whole()


def test_a_profile_that_lacks_the_cores_goes_beside_one_that_has_them(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    peak = PeakRate(
        dtype="fp32", isa="avx2", threads=1, flops_per_s=1e11, samples_flops_per_s=(1e11,)
    )
    with_cores = build_profile({1: 20 * GB}, created=DAY.format(1), peak=(peak,))
    assert stages(with_cores) == {CORES}
    save_profile(with_cores, place)
    assert keep_profile(whole(2), place) != place


def test_the_same_less_twice_in_one_second_is_kept_twice(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    save_profile(whole(), place)
    first, second = keep_profile(less(), place), keep_profile(less(), place)
    assert first != second
    assert beside(place) == sorted([first, second])


def test_what_was_left_out_on_purpose_takes_the_place_and_the_one_before_is_kept(
    tmp_path: Path,
) -> None:
    place = tmp_path / "p.json"
    save_profile(whole(), place)
    assert keep_profile(less(), place, without=(ENGINE,)) == place
    assert load_profile(place) == less()
    (kept,) = beside(place)
    assert load_profile(kept) == whole()


def test_a_profile_takes_the_place_of_one_that_holds_no_more(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    save_profile(less(1), place)
    assert keep_profile(whole(2), place) == place
    assert keep_profile(whole(3), place) == place
    assert load_profile(place) == whole(3)
    assert beside(place) == []


@pytest.mark.parametrize("text", ["{", '{"schema": "cpubound.profile/99"}', "my notes"])
def test_what_cannot_be_told_is_kept_under_another_name(tmp_path: Path, text: str) -> None:
    place = tmp_path / "p.json"
    place.write_text(text)
    assert keep_profile(less(), place) == place
    assert [path.read_text() for path in beside(place)] == [text]


def test_leaving_a_stage_out_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    refuse_less(place, (ENGINE,))
    save_profile(whole(), place)
    with pytest.raises(UsageError, match=r"llama\.cpp.*--force"):
        refuse_less(place, (ENGINE,))
    refuse_less(place, ())


def test_a_profile_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.json", tmp_path / "p.json"
    save_profile(less(1), real)
    link.symlink_to(real)
    assert keep_profile(whole(2), link) == link
    assert link.is_symlink()
    assert load_profile(real) == whole(2)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_profile_that_cannot_be_read_stays_and_the_new_one_goes_beside(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    save_profile(whole(), place)
    place.chmod(0)
    kept = keep_profile(whole(2), place)
    assert load_profile(kept) == whole(2)
    place.chmod(0o600)
    assert load_profile(place) == whole()


def test_an_older_profile_that_cannot_be_copied_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_profile(whole())

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(MachineError, match="No space left"):
        keep_profile(whole(2))
    assert load_profile(home / "profile.json") == whole()
    assert [path.name for path in home.iterdir()] == ["profile.json"]

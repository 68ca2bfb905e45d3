"""A result that cannot be saved is kept elsewhere or printed; what was there is never less."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import GB, build_engine, build_profile, standard_profile

from cpubound import api
from cpubound.cli import main
from cpubound.errors import EngineCrashed
from cpubound.profile.file import load_profile, save_profile
from cpubound.profile.values import MachineProfile

Run = Callable[..., tuple[int, str, str]]
WHOLE = build_profile({1: 20 * GB, 2: 30 * GB}, build_engine({"Q4_0": {1: 9e9, 2: 1.7e10}}))
LESS = build_profile({1: 21 * GB, 2: 31 * GB}, created="2026-12-01T12:00:00+00:00")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    save_profile(standard_profile(), tmp_path / "home" / "profile.json")
    return tmp_path / "home"


def measure(
    monkeypatch: pytest.MonkeyPatch, profile: MachineProfile, error: BaseException | None = None
) -> None:
    """Stand in for what measures: it keeps a profile, and then ends as told."""

    def calibrate(*, keep: Callable[[MachineProfile, bool], None], **_: object) -> MachineProfile:
        keep(profile, error is None)
        if error is not None:
            raise error
        return profile

    monkeypatch.setattr(api, "calibrate", calibrate)


def fill_disk(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let so many files not reach the disk."""
    sync, left = os.fsync, [None] * times

    def fail(descriptor: int) -> None:
        if left:
            left.pop()
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (EngineCrashed("llama.cpp ended"), 4), (ValueError("odd"), 70)],
)
def test_a_calibration_that_ends_early_leaves_the_whole_profile_and_says_where_the_rest_is(
    invoke: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
) -> None:
    place = tmp_path / "p.json"
    save_profile(WHOLE, place)
    measure(monkeypatch, LESS, error)
    ended, _, err = invoke("calibrate", "--out", str(place), "--force")
    assert ended == code
    assert load_profile(place) == WHOLE
    (beside,) = tmp_path.glob("p-*.json")
    assert load_profile(beside) == LESS
    assert f"what was measured so far: Saved as {beside}; {place} holds more and stays" in err


def test_the_same_holds_for_the_profile_of_this_machine(
    invoke: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (home / "profile.json").read_bytes()
    measure(monkeypatch, LESS, KeyboardInterrupt())
    assert invoke("calibrate")[0] == 130
    assert (home / "profile.json").read_bytes() == before
    assert [load_profile(path) for path in home.glob("profile-*")] == [LESS]


def test_leaving_the_engine_out_needs_force_where_it_was_measured(
    invoke: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(monkeypatch, LESS)
    code, _, err = invoke("calibrate", "--no-engine")
    assert (code, "--force" in err) == (2, True)
    assert load_profile() == standard_profile()
    assert invoke("calibrate", "--no-engine", "--force")[0] == 0
    assert load_profile() == LESS
    assert [load_profile(path) for path in home.glob("profile-*")] == [standard_profile()]


def test_what_ended_early_replaces_nothing_even_where_the_engine_was_left_out(
    invoke: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(monkeypatch, LESS, KeyboardInterrupt())
    assert invoke("calibrate", "--no-engine", "--force")[0] == 130
    assert load_profile() == standard_profile()
    assert [load_profile(path) for path in home.glob("profile-*")] == [LESS]


def test_a_profile_that_cannot_be_saved_is_kept_elsewhere_and_shown(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(monkeypatch, WHOLE)
    fill_disk(monkeypatch, 1)
    code, out, err = invoke("calibrate", "--out", str(tmp_path / "p.json"))
    (kept,) = (tmp_path / "temporary").iterdir()
    assert (code, load_profile(kept)) == (4, WHOLE)
    assert (
        f"No space left on device): give another place with --out FILE; it is kept as {kept}" in err
    )
    assert "Test CPU" in out
    assert not (tmp_path / "p.json").exists()


def test_a_profile_that_can_be_saved_nowhere_is_printed(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(monkeypatch, WHOLE)
    fill_disk(monkeypatch, 2)
    code, out, err = invoke("calibrate", "--out", str(tmp_path / "p.json"))
    assert code == 4
    assert "printed on standard output" in err
    start = out.index("{")
    document, _ = json.JSONDecoder().raw_decode(out[start:])
    assert document["schema"] == WHOLE.schema


def test_a_full_disk_leaves_an_existing_json_file_and_the_result_elsewhere(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.json"
    target.write_text("mine")
    fill_disk(monkeypatch, 1)
    code, out, err = invoke("inspect", "llama-3.2-1b:Q4_0", "--json", str(target), "--force")
    assert (code, target.read_text()) == (4, "mine")
    (kept,) = (tmp_path / "temporary").iterdir()
    assert json.loads(kept.read_text())["schema"].startswith("cpubound.")
    assert str(kept) in err
    assert "Q4_0" in out


def test_a_limit_on_files_loses_no_result(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    target = tmp_path / "x.json"
    target.write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "cpubound", "inspect", "llama-3.2-1b:Q4_0", "--json", str(target),
         "--force"],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert "printed on standard output" in done.stderr
    assert target.read_text() == "mine"
    assert json.JSONDecoder().raw_decode(done.stdout)[0]["schema"].startswith("cpubound.")


@pytest.mark.parametrize("option", ["--json", "--out", "--plot"])
def test_every_file_option_follows_a_link(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    measure(monkeypatch, WHOLE)
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "x.svg", tmp_path / "link.svg"
    target.write_text("old")
    link.symlink_to(target)
    assert invoke("calibrate", option, str(link), "--force")[0] == 0
    assert link.is_symlink()
    assert target.read_text() != "old"


def test_a_place_without_a_folder_is_found_before_the_work(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(api, "validate", lambda *_, **__: done.append("validate"))
    code, _, err = invoke("validate", "llama-3.2-1b", "--json", str(tmp_path / "none" / "x.json"))
    assert (code, done) == (4, [])
    assert "choose another place" in err


def test_a_picture_that_fails_leaves_the_result_printed(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> bytes:
        raise RuntimeError("no font")

    monkeypatch.setattr("cpubound.report.charts.machine.chart_scaling", fail)
    measure(monkeypatch, WHOLE)
    code, out, err = invoke("calibrate", "--plot", str(tmp_path / "x.svg"))
    assert code == 70
    assert "no font" in err
    assert "Test CPU" in out


def test_a_signal_while_a_profile_is_saved_waits_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Run
) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    sync = os.fsync

    def interrupted(descriptor: int) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        sync(descriptor)

    measure(monkeypatch, WHOLE)
    monkeypatch.setattr(os, "fsync", interrupted)
    try:
        code = main(["calibrate", "--out", str(tmp_path / "p.json")])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert code == 143
    assert load_profile(tmp_path / "p.json") == WHOLE


def test_an_error_that_nobody_foresaw_is_one_line_with_a_way_to_report_it(
    invoke: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of\nsomething")

    monkeypatch.setattr("cpubound.machine.read.read_machine", fail)
    code, out, err = invoke("doctor")
    assert (code, out) == (70, "")
    assert err.count("\n") == 1
    assert "ZeroDivisionError: of something at test_saving.py" in err
    assert "--debug" in err
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "doctor"])


def test_memory_that_runs_out_is_said(invoke: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("cpubound.machine.read.read_machine", fail)
    code, _, err = invoke("doctor")
    assert (code, err.count("\n")) == (4, 1)
    assert "memory ran out" in err

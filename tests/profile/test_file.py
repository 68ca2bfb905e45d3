from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from builders import GB, build_engine, build_profile, build_table

from cpubound.errors import MachineError, ProfileError, UsageError
from cpubound.profile.file import (
    check_writable,
    default_profile_path,
    load_profile,
    profile_document,
    save_profile,
)
from cpubound.profile.values import judge_noise


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_saved_profile_reads_back_as_the_same_value(tmp_path: Path) -> None:
    profile = build_profile({1: 20 * GB, 2: 30 * GB}, build_engine({"Q4_0": {1: 9e9, 2: 1.7e10}}))
    save_profile(profile, tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == profile


def test_the_document_holds_the_fields_of_the_contract() -> None:
    document = profile_document(build_profile({1: 20 * GB}))
    assert document["schema"] == "cpubound.profile/2"
    row = document["bandwidth"][0]
    assert set(row) >= {
        "kernel", "isa", "threads", "cpus", "page_kind", "working_set_bytes", "bytes_per_pass",
        "samples_s", "best_bytes_per_s", "median_bytes_per_s",
    }  # fmt: skip
    assert row["median_bytes_per_s"] == pytest.approx(20 * GB)
    assert [(s["kernel"], s["threads"]) for s in document["saturation"]] == [("read", 1)]
    assert {"spread", "verdict"} <= set(document["noise"])
    assert {"machine", "engine", "warnings", "created", "cpubound_version"} <= set(document)


def test_a_machine_without_a_profile_is_told_to_calibrate(home: Path) -> None:
    with pytest.raises(ProfileError, match="cpubound calibrate"):
        load_profile()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json"):
        load_profile(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"schema": "pyperf/1"}', '{"schema": 7}', "\x00\x01", "GGUF"],
)
def test_a_foreign_file_is_no_profile(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(ProfileError, match="no cpubound profile"):
        load_profile(path)


@pytest.mark.parametrize("version", [1, 99])
def test_another_schema_version_is_refused_by_name(tmp_path: Path, version: int) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"schema": f"cpubound.profile/{version}", "engine": {"rates": []}}))
    with pytest.raises(ProfileError) as refused:
        load_profile(path)
    assert f"has schema cpubound.profile/{version}" in str(refused.value)
    assert "this cpubound reads cpubound.profile/2" in str(refused.value)
    assert "run `cpubound calibrate` again" in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("samples_s", []),
        ("samples_s", [0.0]),
        ("samples_s", [-1.0]),
        ("threads", 0),
        ("bytes_per_pass", "many"),
    ],
)
def test_a_damaged_measurement_is_refused(tmp_path: Path, field: str, value: object) -> None:
    document = profile_document(build_profile({1: 20 * GB}))
    document["bandwidth"][0][field] = value
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ProfileError, match="damaged"):
        load_profile(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("engine", "tables", 0, "threads"), 0),
        (("engine", "tables", 0, "seconds", 0), 1e300),
        (("engine", "tables", 0, "seconds", 0), -1e300),
        (("engine", "tables", 0, "seconds"), []),
        (("engine", "tables", 0, "keys"), ["token"]),
        (("engine", "tables", 0, "relative_errors", 0), 1e308),
        (("engine", "tables", 0, "relative_errors"), [0.1]),
        (("engine", "tables", 0, "covariance"), [[0.0]]),
        (("engine", "tables", 0, "covariance"), [[0.0], [0.0, 0.0]]),
        (("engine", "tables", 0, "fast_time_ratio"), 0.0),
        (("noise", "spread"), 1e30),
        (("machine", "allowed_cpus", 0), -1),
        (("machine", "physical_cores"), -1),
        (("machine", "effective_cpus"), 0),
    ],
)
def test_an_impossible_value_is_refused_where_the_file_is_read(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    engine = build_engine({"Q4_0": {1: 9e9}}, attention={("f16", "f16", True): 5e9})
    document = json.loads(msgspec.json.encode(profile_document(build_profile({1: 2e10}, engine))))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ProfileError, match="damaged"):
        load_profile(file)


def test_an_existing_file_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(build_profile({1: 20 * GB}), path)
    with pytest.raises(UsageError, match="--force"):
        save_profile(build_profile({1: 21 * GB}), path, force=False)


def test_a_failed_write_leaves_the_old_profile_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.json"
    old = build_profile({1: 20 * GB})
    save_profile(old, path)

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(MachineError, match="No space left"):
        save_profile(build_profile({1: 21 * GB}), path)
    assert load_profile(path) == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_found_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="--out"):
        check_writable(tmp_path / "file" / "p.json")


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [((1.0,) * 20, "quiet"), ((0.9, 1.0, 1.1) * 9, "noisy"), ((0.5, 1.0, 1.5) * 9, "very noisy")],
)
def test_the_noise_verdict_follows_the_spread(samples: tuple[float, ...], verdict: str) -> None:
    assert judge_noise(samples, 1.0).verdict == verdict


def test_unknown_fields_of_a_newer_minor_version_are_ignored(tmp_path: Path) -> None:
    document = profile_document(build_profile({1: 20 * GB}))
    document["something_new"] = 1
    path = tmp_path / "p.json"
    path.write_bytes(msgspec.json.encode(document))
    assert load_profile(path).machine.cpu_model == "Test CPU"


def test_the_default_path_follows_the_environment(home: Path) -> None:
    assert default_profile_path() == home / "profile.json"


def test_a_rate_table_with_negative_seconds_is_refused() -> None:
    table = build_table(1, {"bytes:Q4_K": (1e-10, 0.1), "cached@40000000": (-1e-11, 0.1)})
    assert table.seconds_of("cached@40000000") < 0
    with pytest.raises(ValueError, match="bytes:Q4_K"):
        build_table(1, {"bytes:Q4_K": (-1e-10, 0.1)})

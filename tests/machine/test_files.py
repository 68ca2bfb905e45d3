"""cpubound.machine.files: tolerant readers."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from fake_machine import FakeMachine, mask_of
from hypothesis import given
from hypothesis import strategies as st

from cpubound.machine.files import (
    MAX_CPUS,
    Root,
    parse_cpu_list,
    parse_cpu_mask,
    parse_fields,
    parse_integer,
    parse_size,
)
from cpubound.machine.values import format_cpu_list, format_cpu_mask

CPU_SETS = st.frozensets(st.integers(0, 2000), max_size=60)


@given(CPU_SETS)
def test_a_cpu_list_reads_back_as_written(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@given(CPU_SETS)
def test_a_cpu_mask_reads_back_as_written(cpus: frozenset[int]) -> None:
    assert parse_cpu_mask(mask_of(cpus, 2048)) == cpus
    assert parse_cpu_mask(format_cpu_mask(cpus)) == cpus


@given(st.text(max_size=40))
def test_any_text_is_a_cpu_set_or_none(text: str) -> None:
    for parse in (parse_cpu_list, parse_cpu_mask):
        cpus = parse(text)
        assert cpus is None or all(0 <= cpu < MAX_CPUS for cpu in cpus)


@given(st.text(alphabet="0123456789-,xX \n", max_size=30))
def test_text_that_nearly_is_a_list_is_a_cpu_set_or_none(text: str) -> None:
    cpus = parse_cpu_list(text)
    assert cpus is None or all(0 <= cpu < MAX_CPUS for cpu in cpus)


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_none(text: str) -> None:
    assert isinstance(parse_integer(text), int | None)
    assert isinstance(parse_size(text), int | None)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("", set()),
        ("\0", set()),
        ("7", {7}),
        (" 0 - 3 ", None),
        ("3-1", None),
        ("0-99999999999", None),
        ("0-65536", None),
        ("1,,2", None),
        ("0-", None),
        ("-3", None),
        ("٣", None),
    ],
)
def test_a_cpu_list_is_read_or_refused(text: str, cpus: set[int] | None) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("3", {0, 1}),
        ("00000000,0000f06f", {0, 1, 2, 3, 5, 6, 12, 13, 14, 15}),
        ("1,00000000", {32}),
        ("0x5", {0, 2}),
        ("", None),
        ("0000000g", None),
        ("-1", None),
        ("1_0", None),
        (",".join(["ffffffff"] * 5000), None),
    ],
)
def test_a_cpu_mask_is_read_or_refused(text: str, cpus: set[int] | None) -> None:
    assert parse_cpu_mask(text) == cpus


def test_an_absurd_range_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        assert parse_cpu_list("0-9999999") is None
        assert parse_cpu_list("9" * 10_000) is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "size"),
    [("32K", 32768), ("16384 kB", 2**24), ("8M", 2**23), ("0", 0), ("-1", None), ("K", None)],
)
def test_a_size_is_in_bytes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def test_the_first_of_equal_fields_counts() -> None:
    assert parse_fields("a: 1\nnonsense\na: 2\nb : x:y") == {"a": "1", "b": "x:y"}


def test_a_missing_file_is_none_and_a_missing_folder_is_empty(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert root.read_text("/proc/none") is None
    assert root.read_cpus("/sys/none", "core_cpus") is None
    assert root.list_folder("/sys") == ()
    assert root.read_fields("/proc/none") == {}


def test_a_folder_or_pipe_in_place_of_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    root = Root(tmp_path)
    assert root.read_text("/folder") is None
    assert root.read_text("/pipe") is None


def test_bytes_that_are_no_text_do_not_raise(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/x", b"\xff\xfe\0\x80")
    assert fake.root.read_integer("/proc/x") is None
    assert fake.root.read_cpu_list("/proc/x") is None


def test_a_link_out_of_a_snapshot_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("1")
    fake = FakeMachine(tmp_path / "snapshot")
    (fake.folder / "proc/file").symlink_to(outside / "secret")
    (fake.folder / "proc/folder").symlink_to(outside)
    (fake.folder / "proc/up").symlink_to("../../outside")
    root = fake.root
    assert root.read_text("/proc/file") is None
    assert root.read_text("/proc/folder/secret") is None
    assert root.list_folder("/proc/up") == ()
    assert root.read_text("/../outside/secret") is None
    assert not root.exists("/proc/file")


def test_a_link_inside_a_snapshot_is_followed(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/1/status", "Name: init")
    (tmp_path / "proc/self").symlink_to("1")
    assert fake.root.read_fields("/proc/self/status") == {"Name": "init"}


def test_numbered_entries_are_listed_in_order_and_others_left_out(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for name in ("cpu10", "cpu2", "cpufreq", "cpu", "cpu99999999", "cpu-1", "cpu٣"):
        fake.write(f"/sys/{name}/x")
    assert fake.root.list_numbers("/sys", "cpu") == (2, 10)


def test_a_very_long_file_is_read_in_part(tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.truncate(2**30)
    content = Root(tmp_path).read_bytes("/long")
    assert content is not None
    assert len(content) <= 2**23


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-14:2", set(range(0, 15, 2))),
        ("0-31:2/8", {0, 1, 8, 9, 16, 17, 24, 25}),
        ("1-3,8-12:4", {1, 2, 3, 8, 12}),
        ("5-5:3", {5}),
        ("0-9:0", None),
        ("0-9:3/2", None),
        ("0-9:1/0", None),
        ("0-9:", None),
        ("4:2", None),
        ("0-99999:2", None),
    ],
)
def test_a_cpu_list_may_have_strides(text: str, cpus: set[int] | None) -> None:
    assert parse_cpu_list(text) == cpus

"""cpubound.machine.limits: cgroups of both versions, affinity and what follows."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from fake_machine import FakeMachine
from hypothesis import given, settings
from hypothesis import strategies as st

from cpubound.machine.files import Root
from cpubound.machine.limits import Limits, count_effective_cpus, read_limits

V2_MOUNT = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"

ONLINE = frozenset(range(8))

CPUS = frozenset(range(4))


def read(fake: FakeMachine) -> Limits:
    return read_limits(fake.root, ONLINE)


@pytest.fixture
def v2(tmp_path: Path) -> FakeMachine:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/mountinfo", V2_MOUNT)
    fake.write("/proc/self/cgroup", "0::/kube/pod/box")
    fake.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    return fake


def v1(tmp_path: Path, root: str = "/", path: str = "/docker/abc") -> FakeMachine:
    fake = FakeMachine(tmp_path)
    fake.write(
        "/proc/self/mountinfo",
        "\n".join(
            [
                f"30 1 0:26 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
                f"31 1 0:27 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
                f"32 1 0:28 {root} /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
            ]
        ),
    )
    fake.write(
        "/proc/self/cgroup",
        f"4:memory:{path}\n3:cpu,cpuacct:{path}\n2:cpuset:{path}\n1:name=systemd:{path}",
    )
    return fake


def test_nothing_known_means_no_limit(tmp_path: Path) -> None:
    assert read(FakeMachine(tmp_path)) == Limits(
        allowed=ONLINE,
        quota_cpus=None,
        memory_limit_bytes=None,
        periods=None,
        throttled_periods=None,
    )


def test_a_v2_quota_is_read(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpu.max", "765000 100000")
    assert read(v2).quota_cpus == 7.65


def test_the_smallest_quota_of_the_whole_chain_counts(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpu.max", "max 100000")
    v2.write("/sys/fs/cgroup/kube/pod/cpu.max", "150000 50000")
    v2.write("/sys/fs/cgroup/kube/cpu.max", "400000 100000")
    assert read(v2).quota_cpus == 3.0


def test_a_quota_at_the_mount_point_itself_counts(v2: FakeMachine) -> None:
    v2.write("/proc/self/cgroup", "0::/")
    v2.write("/sys/fs/cgroup/cpu.max", "50000 100000")
    assert read(v2).quota_cpus == 0.5


@pytest.mark.parametrize("text", ["max 100000", "0 100000", "100000 0", "-1 1", "many", "", "max"])
def test_no_quota_or_a_senseless_one_is_none(v2: FakeMachine, text: str) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpu.max", text)
    assert read(v2).quota_cpus is None


def test_a_quota_without_a_period_has_the_default_one(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpu.max", "200000")
    assert read(v2).quota_cpus == 2.0


def test_a_v1_quota_is_read_over_the_chain(tmp_path: Path) -> None:
    fake = v1(tmp_path)
    folder = "/sys/fs/cgroup/cpu,cpuacct"
    fake.write(f"{folder}/docker/abc/cpu.cfs_quota_us", -1)
    fake.write(f"{folder}/docker/abc/cpu.cfs_period_us", 100_000)
    fake.write(f"{folder}/docker/cpu.cfs_quota_us", 250_000)
    fake.write(f"{folder}/docker/cpu.cfs_period_us", 100_000)
    assert read(fake).quota_cpus == 2.5


def test_a_container_sees_its_own_group_at_the_mount_point(tmp_path: Path) -> None:
    fake = v1(tmp_path, root="/docker/abc")
    fake.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 150_000)
    fake.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", 100_000)
    assert read(fake).quota_cpus == 1.5


def test_a_group_inside_a_container_is_found_below_the_mount_point(tmp_path: Path) -> None:
    fake = v1(tmp_path, root="/docker/abc", path="/docker/abc/inner")
    fake.write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", 2**30)
    assert read(fake).memory_limit_bytes == 2**30


def test_a_path_outside_the_namespace_means_the_mount_point(v2: FakeMachine) -> None:
    v2.write("/proc/self/cgroup", "0::/../../other")
    v2.write("/sys/fs/cgroup/cpu.max", "100000 100000")
    assert read(v2).quota_cpus == 1.0


def test_the_mount_point_may_be_anywhere_and_escaped(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/mountinfo", r"25 1 0:22 / /my\040groups rw - cgroup2 none rw")
    fake.write("/proc/self/cgroup", "0::/a")
    fake.write("/my groups/a/cpu.max", "300000 100000")
    assert read(fake).quota_cpus == 3.0


def test_a_hybrid_of_both_versions_takes_each_controller_where_it_is(tmp_path: Path) -> None:
    fake = v1(tmp_path)
    text = (tmp_path / "proc/self/mountinfo").read_text()
    fake.write("/proc/self/mountinfo", text + V2_MOUNT.replace("/cgroup rw", "/cgroup/unified rw"))
    fake.write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", 2**31)
    fake.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", 100_000)
    fake.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", 100_000)
    limits = read(fake)
    assert (limits.quota_cpus, limits.memory_limit_bytes) == (1.0, 2**31)


def test_without_a_table_of_mounts_the_usual_places_are_tried(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/sys/fs/cgroup/cgroup.controllers", "cpu")
    fake.write("/sys/fs/cgroup/cpu.max", "100000 100000")
    assert read(fake).quota_cpus == 1.0


def test_the_old_places_are_tried_too(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", 2**28)
    assert read(fake).memory_limit_bytes == 2**28


def test_the_smallest_memory_limit_counts_and_the_throttle_is_one(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/memory.max", "max")
    v2.write("/sys/fs/cgroup/kube/pod/memory.max", 2**33)
    v2.write("/sys/fs/cgroup/kube/memory.high", 2**32)
    assert read(v2).memory_limit_bytes == 2**32


def test_a_v1_group_without_a_memory_limit_has_none(tmp_path: Path) -> None:
    fake = v1(tmp_path)
    folder = "/sys/fs/cgroup/memory/docker/abc"
    fake.write(f"{folder}/memory.limit_in_bytes", 9223372036854771712)
    assert read(fake).memory_limit_bytes is None


def test_a_v2_cpuset_narrows_what_is_allowed(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpuset.cpus.effective", "1-3,40")
    assert read(v2).allowed == {1, 2, 3}


def test_a_group_without_a_cpuset_of_its_own_has_that_of_the_one_above(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/cpuset.cpus.effective", "2-3")
    v2.write("/sys/fs/cgroup/cpuset.cpus.effective", "0-7")
    assert read(v2).allowed == {2, 3}


def test_a_cpuset_partition_keeps_what_the_group_above_lent_it(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpuset.cpus.effective", "0-3")
    v2.write("/sys/fs/cgroup/kube/pod/cpuset.cpus.effective", "4-7")
    assert read(v2).allowed == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "mount", ["none /dev/cpuset cpuset rw 0 0", "none /dev/cpuset cgroup rw,cpuset,noprefix 0 0"]
)
def test_the_first_cpusets_had_a_file_system_of_their_own(tmp_path: Path, mount: str) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/mounts", mount)
    fake.write("/proc/self/cpuset", "/batch/job")
    fake.write("/dev/cpuset/batch/job/cpus", "5-6")
    fake.write("/dev/cpuset/cpus", "0-7")
    assert read(fake).allowed == {5, 6}


def test_a_v1_cpuset_is_read(tmp_path: Path) -> None:
    fake = v1(tmp_path)
    fake.write("/sys/fs/cgroup/cpuset/docker/abc/cpuset.cpus", "0")
    assert read(fake).allowed == {0}


def test_the_affinity_in_a_snapshot_and_its_cpuset_both_bind(v2: FakeMachine) -> None:
    v2.write("/proc/self/status", "Name:\tcat\nCpus_allowed_list:\t2-5\n")
    v2.write("/sys/fs/cgroup/kube/pod/box/cpuset.cpus.effective", "0-3")
    assert read(v2).allowed == {2, 3}


def test_sets_that_contradict_the_machine_are_not_believed(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/status", "Cpus_allowed_list:\t900-1000")
    assert read(fake).allowed == ONLINE


def test_a_live_affinity_is_asked_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2}, raising=False)
    assert read_limits(Root(), ONLINE).allowed == {1, 2}


def test_a_refused_affinity_call_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> set[int]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
    assert read_limits(Root(), ONLINE).allowed <= ONLINE


def test_throttled_periods_are_those_of_the_own_group(v2: FakeMachine) -> None:
    v2.write("/sys/fs/cgroup/kube/pod/box/cpu.stat", "usage_usec 5\nnr_periods 4567\n"
             "nr_throttled 3115\nthrottled_usec 9\nbroken line here")  # fmt: skip
    limits = read(v2)
    assert (limits.periods, limits.throttled_periods) == (4567, 3115)


@pytest.mark.parametrize(
    ("allowed", "quota", "effective"),
    [(96, 7.65, 7), (4, None, 4), (4, 0.5, 1), (4, 8.0, 4), (2, 2.0, 2), (0, None, 1), (1, 1.9, 1)],
)
def test_the_quota_is_rounded_down_but_never_to_nothing(
    allowed: int, quota: float | None, effective: int
) -> None:
    assert count_effective_cpus(allowed, quota) == effective


@given(st.text(max_size=120), st.text(max_size=60))
@settings(max_examples=60)
def test_any_text_in_the_cgroup_files_is_survived(mounts: str, cgroup: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeMachine(Path(folder))
        fake.write("/proc/self/mountinfo", f"{V2_MOUNT}\n{mounts}".encode("utf-8", "replace"))
        fake.write("/proc/self/cgroup", f"0::/{cgroup}".encode("utf-8", "replace"))
        assert read(fake).allowed == ONLINE


def test_the_oldest_kernels_say_the_affinity_as_a_mask(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/status", "Name: x\nCpus_allowed:\t00000000,0000000a\n")
    assert read_limits(fake.root, CPUS).allowed == {1, 3}


def test_a_container_of_version_1_shows_the_limit_above_it_in_its_statistics(
    tmp_path: Path,
) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup c rw,memory")
    fake.write("/proc/self/cgroup", "4:memory:/docker/abc")
    fake.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    fake.write(
        "/sys/fs/cgroup/memory/memory.stat",
        "cache 1024\nhierarchical_memory_limit 268435456\ntotal_cache 1024",
    )
    assert read_limits(fake.root, CPUS).memory_limit_bytes == 2**28

"""What a process may use of the machine: affinity, cpusets, CPU quotas, memory limits."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from cpubound.machine.files import (
    CpuSet,
    Root,
    parse_cpu_list,
    parse_cpu_mask,
    parse_integer,
)

# A cgroup v1 without a limit says 2^63 rounded down to a page.
_NO_MEMORY_LIMIT = 2**60
_V2_TYPE = "cgroup2"
_MAX_DEPTH = 64  # of nested groups; a damaged file may claim more
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the process that asks may use; ``quota_cpus`` and the memory limit None if unlimited.

    ``periods`` and ``throttled_periods`` count the scheduler periods of its own group
    since the group began, and those in which the quota ran out.
    """

    allowed: CpuSet
    quota_cpus: float | None
    memory_limit_bytes: int | None
    periods: int | None
    throttled_periods: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mount:
    folder: str
    root: str  # the part of the hierarchy that is seen at ``folder``
    type: str
    options: frozenset[str]


def read_limits(root: Root, online: CpuSet) -> Limits:
    """Read affinity, cpuset, quota and memory limit over the whole chain of cgroups."""
    cgroups = _Cgroups(root)
    periods, throttled_periods = _read_periods(root, cgroups)
    memory_limits = [_read_memory_limit(root, folder) for folder in cgroups.chain("memory")]
    return Limits(
        allowed=_read_allowed(root, cgroups, online),
        quota_cpus=_smallest(_read_quota(root, folder) for folder in cgroups.chain("cpu")),
        memory_limit_bytes=_smallest([*memory_limits, *_read_process_limits(root)]),
        periods=periods,
        throttled_periods=throttled_periods,
    )


def read_quota_periods(root: Root) -> tuple[int | None, int | None]:
    """Read the scheduler periods of the process's own group, and how many were throttled."""
    return _read_periods(root, _Cgroups(root))


def read_memory_kills(root: Root) -> int | None:
    """Read how many processes were killed because memory ran out: here and on the machine.

    Of the process's own cgroup and of the whole system, together: only growth says something.
    None where the system does not count.
    """
    cgroups = _Cgroups(root)
    texts = [root.read_text("/proc/vmstat")]
    for folder in cgroups.chain("memory"):
        texts += [root.read_text(f"{folder}/{n}") for n in ("memory.events", "memory.oom_control")]
    counts = [
        parse_integer(line.partition(" ")[2])
        for text in texts
        for line in (text or "").splitlines()
        if line.startswith("oom_kill ")
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def count_effective_cpus(allowed: int, quota_cpus: float | None) -> int:
    """Count the threads that can really run at once, at least one.

    The quota is rounded down: a thread more than it makes the whole team wait for the
    next scheduler period.
    """
    if quota_cpus is None:
        return max(1, allowed)
    return max(1, min(allowed, math.floor(quota_cpus)))


class _Cgroups:
    """Finds the folders of the asking process's cgroups, of both versions."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._mounts = _read_mounts(root)
        self._paths = _read_cgroup_paths(root)

    def chain(self, controller: str) -> tuple[str, ...]:
        """List the folders that may limit a controller, the process's own first."""
        return tuple(self._folders(controller))

    def _folders(self, controller: str) -> Iterator[str]:
        for mount in self._mounts:
            is_v2 = mount.type == _V2_TYPE
            if not is_v2 and controller not in mount.options:
                continue
            path = self._paths.get("" if is_v2 else controller)
            if path is None and controller == "cpuset":
                path = self._root.read_text("/proc/self/cpuset")
            inner = PurePosixPath(_path_below(path or "/", mount.root).lstrip("/"))
            for part in (inner, *inner.parents)[-_MAX_DEPTH:]:
                yield mount.folder if part == PurePosixPath() else f"{mount.folder}/{part}"


def _read_mounts(root: Root) -> tuple[_Mount, ...]:
    """List where cgroups are mounted; the usual places if no table of mounts says."""
    for path, parse in (
        ("/proc/self/mountinfo", _parse_mountinfo_line),
        ("/proc/self/mounts", _parse_mounts_line),
        ("/proc/mounts", _parse_mounts_line),
    ):
        text = root.read_text(path)
        if text:
            mounts = [mount for line in text.splitlines() if (mount := parse(line))]
            return tuple(mounts)
    if root.exists("/sys/fs/cgroup/cgroup.controllers"):
        return (_Mount(folder="/sys/fs/cgroup", root="/", type=_V2_TYPE, options=frozenset()),)
    return tuple(
        _Mount(folder=f"/sys/fs/cgroup/{name}", root="/", type="cgroup", options=frozenset({name}))
        for name in ("cpu", "cpuset", "memory")
        if root.exists(f"/sys/fs/cgroup/{name}")
    )


def _parse_mountinfo_line(line: str) -> _Mount | None:
    # ID PARENT MAJOR:MINOR ROOT FOLDER OPTIONS [TAGS…] - TYPE SOURCE SUPER-OPTIONS
    before, _, after = line.partition(" - ")
    words, types = before.split(), after.split()
    if len(words) < 5 or len(types) < 3:
        return None
    return _make_mount(words[4], words[3], types[0], types[2])


def _parse_mounts_line(line: str) -> _Mount | None:
    words = line.split()
    return _make_mount(words[1], "/", words[2], words[3]) if len(words) >= 4 else None


def _make_mount(folder: str, root: str, kind: str, options: str) -> _Mount | None:
    if kind not in ("cgroup", _V2_TYPE, "cpuset"):
        return None
    names = frozenset(options.split(","))
    if kind == "cpuset":
        names |= {"cpuset"}
    return _Mount(
        folder=_unescape(folder).rstrip("/"), root=_unescape(root), type=kind, options=names
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _read_cgroup_paths(root: Root) -> dict[str, str]:
    """Map each v1 controller, and ``""`` for v2, to the process's path."""
    paths: dict[str, str] = {}
    for line in (root.read_text("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths.setdefault(controller, parts[2])
    if not paths and (cpuset := root.read_text("/proc/self/cpuset")):
        paths[""] = cpuset
    return paths


def _path_below(path: str, mount_root: str) -> str:
    """Give a cgroup's path as seen below a mount that shows only a part of the hierarchy."""
    if ".." in PurePosixPath(path).parts:
        return "/"  # outside the namespace: the mount shows what is ours
    if mount_root in ("", "/"):
        return path
    if path == mount_root or path.startswith(mount_root + "/"):
        return path[len(mount_root) :] or "/"
    return "/"


def _read_allowed(root: Root, cgroups: _Cgroups, online: CpuSet) -> CpuSet:
    allowed = _read_affinity(root)
    if not root.is_live or allowed is None:
        cpuset = _read_cpuset(root, cgroups)
        known = [cpus for cpus in (allowed, cpuset) if cpus]
        allowed = frozenset.intersection(*known) if known else online
    return (allowed & online) or online


def _read_affinity(root: Root) -> CpuSet | None:
    if root.is_live and hasattr(os, "sched_getaffinity"):
        try:
            return frozenset(os.sched_getaffinity(0))
        except OSError:
            pass
    status = root.read_fields("/proc/self/status")
    if "Cpus_allowed_list" in status:
        return parse_cpu_list(status["Cpus_allowed_list"])
    return parse_cpu_mask(status.get("Cpus_allowed", ""))  # before Linux 2.6.24


def _read_cpuset(root: Root, cgroups: _Cgroups) -> CpuSet | None:
    """Read the nearest group's CPUs: a group above may have lent some to another below it."""
    for folder in cgroups.chain("cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus"):
            cpus = root.read_cpu_list(f"{folder}/{name}")
            if cpus:
                return cpus
    return None


def _read_quota(root: Root, folder: str) -> float | None:
    words = (root.read_text(f"{folder}/cpu.max") or "").split()
    if words:
        quota = parse_integer(words[0])
        period = parse_integer(words[1]) if len(words) > 1 else 100_000
    else:
        quota = root.read_integer(f"{folder}/cpu.cfs_quota_us")
        period = root.read_integer(f"{folder}/cpu.cfs_period_us")
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period


def _read_memory_limit(root: Root, folder: str) -> int | None:
    # Above memory.high pages are taken back as fast as they are read: it is a limit too.
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    own = [root.read_integer(f"{folder}/{name}") for name in names]
    limit = _smallest([*own, _read_hierarchical_limit(root, folder)])
    return limit if limit is not None and 0 < limit < _NO_MEMORY_LIMIT else None


def _read_process_limits(root: Root) -> list[int]:
    """Read the limits of this process alone (``ulimit -v``, ``-d``)."""
    if not root.is_live or sys.platform == "win32":
        return []
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]


def _read_hierarchical_limit(root: Root, folder: str) -> int | None:
    """Read the limit of the groups above (version 1), which a container may not see itself."""
    for line in (root.read_text(f"{folder}/memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "hierarchical_memory_limit":
            return parse_integer(value)
    return None


def _read_periods(root: Root, cgroups: _Cgroups) -> tuple[int | None, int | None]:
    for folder in cgroups.chain("cpu"):
        if fields := _read_statistics(root, folder):
            return fields.get("nr_periods"), fields.get("nr_throttled")
    return None, None


def _read_statistics(root: Root, folder: str) -> dict[str, int]:
    text = root.read_text(f"{folder}/cpu.stat") or ""
    pairs = [line.split() for line in text.splitlines()]
    numbers = {pair[0]: parse_integer(pair[1]) for pair in pairs if len(pair) == 2}
    found = {name: number for name, number in numbers.items() if number is not None}
    return found if "nr_periods" in found else {}


def _smallest(values: Iterable[_Number | None]) -> _Number | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None

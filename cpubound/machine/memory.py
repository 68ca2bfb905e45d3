"""Main memory, its pages, and how busy the machine has been."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from cpubound.machine.files import Root, parse_integer, parse_size

_FIXED_4K_PAGES = ("x86_64", "i686", "s390x")


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Memory of the whole machine and the kinds of pages it can be mapped with."""

    total_bytes: int | None
    available_bytes: int | None
    page_size_bytes: int | None
    huge_page_size_bytes: int | None
    huge_pages_total: int | None
    huge_pages_free: int | None
    transparent_huge_pages: str | None


def read_memory(root: Root, architecture: str) -> Memory:
    """Read ``/proc/meminfo`` and the page settings; the nodes' sum if there is no meminfo."""
    fields = root.read_fields("/proc/meminfo")
    total = parse_size(fields.get("MemTotal", ""))
    return Memory(
        total_bytes=_sum_node_memory(root) if total is None else total,
        available_bytes=parse_size(fields.get("MemAvailable", "")),
        page_size_bytes=_read_page_size(root, architecture),
        huge_page_size_bytes=parse_size(fields.get("Hugepagesize", "")),
        huge_pages_total=parse_integer(fields.get("HugePages_Total", "")),
        huge_pages_free=parse_integer(fields.get("HugePages_Free", "")),
        transparent_huge_pages=_read_transparent_huge_pages(root),
    )


def read_node_memory(root: Root, node: int) -> int | None:
    """Read the memory of one NUMA node (its meminfo lines begin with ``Node N``)."""
    text = root.read_text(f"/sys/devices/system/node/node{node}/meminfo") or ""
    match = re.search(r"MemTotal:\s*([0-9]{1,15}\s*[kKMG]?B?)", text)
    return parse_size(match[1]) if match else None


def read_steal_fraction(root: Root) -> float | None:
    """Read the share of CPU time since boot that a hypervisor gave to others."""
    lines = (root.read_text("/proc/stat") or "").splitlines()
    words = lines[0].split() if lines else []
    if not words or words[0] != "cpu":
        return None
    times = [parse_integer(word) for word in words[1:9]]
    known = [time for time in times if time is not None and time >= 0]
    if len(known) < 8 or not sum(known):
        return None
    return known[7] / sum(known)


def read_load_average(root: Root) -> float | None:
    """Read the mean number of runnable threads over the last minute."""
    words = (root.read_text("/proc/loadavg") or "").split()
    if not words or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", words[0]):
        return None
    return float(words[0])


def _sum_node_memory(root: Root) -> int | None:
    nodes = root.list_numbers("/sys/devices/system/node", "node")
    sizes = [read_node_memory(root, node) for node in nodes]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _read_page_size(root: Root, architecture: str) -> int | None:
    if root.is_live:
        try:
            return os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    noted = parse_integer(root.read_fields("/proc/hwloc-nofile-info").get("PageSize", ""))
    if noted is None and architecture in _FIXED_4K_PAGES:
        return 4096
    return noted


def _read_transparent_huge_pages(root: Root) -> str | None:
    text = root.read_text("/sys/kernel/mm/transparent_hugepage/enabled") or ""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else None

"""Builds the /proc and /sys of machines that do not exist, in a folder."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cpubound.machine.files import Root
from cpubound.machine.topology import Topology

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def list_of(cpus: Iterable[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))


def mask_of(cpus: Iterable[int], width: int = 32) -> str:
    bits = sum(1 << cpu for cpu in set(cpus))
    groups = []
    for shift in range(0, max(width, 32), 32):
        groups.insert(0, f"{bits >> shift & 0xFFFFFFFF:08x}")
    return ",".join(groups)


def topology_of(cpus: int, cores: Iterable[Iterable[int]] = ()) -> Topology:
    """A topology of which only the CPUs matter, and perhaps the cores."""
    online = frozenset(range(cpus))
    return Topology(
        present=online,
        online=online,
        cores=tuple(frozenset(core) for core in cores),
        packages=(),
        threads_per_core=None,
    )


class MemoryRoot(Root):
    """A root whose files are in memory: thousands of small files are slow on some disks."""

    def __init__(self, files: Mapping[str, bytes], links: Mapping[str, str]) -> None:
        super().__init__(Path("/nowhere"))
        self._files = files
        self._links = links
        self._names: dict[str, set[str]] = {}
        for path in (*files, *links):
            parts = path.split("/")
            for length in range(1, len(parts)):
                self._names.setdefault("/".join(parts[:length]), set()).add(parts[length])

    def read_bytes(self, path: str) -> bytes | None:
        return self._files.get(self._follow(path))

    def list_folder(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._names.get(self._follow(path), ())))

    def exists(self, path: str) -> bool:
        real = self._follow(path)
        return real in self._files or real in self._names

    def _follow(self, path: str) -> str:
        real = ""
        for part in path.strip("/").split("/"):
            real = f"{real}/{part}"
            if real in self._links:
                real = posixpath.normpath(f"{posixpath.dirname(real)}/{self._links[real]}")
        return real


def read_archive(path: Path) -> MemoryRoot:
    """Read a packed snapshot, whose one folder holds proc and sys."""
    files, links = {}, {}
    with tarfile.open(path) as archive:
        for member in archive:
            _, _, name = member.name.removeprefix("./").partition("/")
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                files[f"/{name}"] = content.read()
            elif member.issym():
                links[f"/{name}"] = member.linkname
    return MemoryRoot(files, links)


class FakeMachine:
    """A folder that looks like the root of a machine's file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[Path] = set()
        self.make_folder("/proc")

    @property
    def root(self) -> Root:
        return Root(self.folder)

    def write(self, path: str, content: object = "") -> None:
        data = content if isinstance(content, bytes) else f"{content}\n".encode()
        self.make_folder(posixpath.dirname(path))
        (self.folder / path.lstrip("/")).write_bytes(data)

    def make_folder(self, path: str) -> None:
        folder = self.folder / path.lstrip("/")
        if folder not in self._made:
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)

    def add_cpu(
        self,
        cpu: int,
        *,
        siblings: Iterable[int] | None = None,
        package_cpus: Iterable[int] | None = None,
        core_id: int | None = None,
        package_id: int | None = None,
        width: int = 32,
        masks: bool = True,
        lists: bool = True,
        old_names: bool = True,
    ) -> None:
        """Write a CPU's topology folder; what is None is not written."""
        folder = f"{CPU}/cpu{cpu}/topology"
        core_name, package_name = (
            ("thread_siblings", "core_siblings") if old_names else ("core_cpus", "package_cpus")
        )
        for name, cpus in ((core_name, siblings), (package_name, package_cpus)):
            if cpus is None:
                continue
            chosen = set(cpus)
            if masks:
                self.write(f"{folder}/{name}", mask_of(chosen, width))
            if lists:
                self.write(f"{folder}/{name}_list", list_of(chosen))
        if core_id is not None:
            self.write(f"{folder}/core_id", core_id)
        if package_id is not None:
            self.write(f"{folder}/physical_package_id", package_id)
        self.make_folder(folder)

    def add_cache(
        self,
        cpu: int,
        index: int,
        *,
        level: int,
        kind: str,
        size: str | None,
        shared: Iterable[int] | None,
        width: int = 32,
    ) -> None:
        folder = f"{CPU}/cpu{cpu}/cache/index{index}"
        self.write(f"{folder}/level", level)
        self.write(f"{folder}/type", kind)
        if size is not None:
            self.write(f"{folder}/size", size)
        if shared is not None:
            self.write(f"{folder}/shared_cpu_map", mask_of(shared, width))

    def add_node(self, node: int, cpus: Iterable[int], memory_kib: int | None) -> None:
        self.write(f"{NODE}/node{node}/cpulist", list_of(cpus))
        if memory_kib is not None:
            self.write(f"{NODE}/node{node}/meminfo", f"Node {node} MemTotal:  {memory_kib} kB")

    def set_cpus(self, online: str, present: str | None = None) -> None:
        self.write(f"{CPU}/online", online)
        self.write(f"{CPU}/present", online if present is None else present)

    def write_cpuinfo(self, blocks: Sequence[dict[str, object]], common: str = "") -> None:
        text = "\n\n".join(
            "\n".join(f"{key}\t: {value}" for key, value in block.items()) for block in blocks
        )
        self.write("/proc/cpuinfo", text + "\n\n" + common)


class FakeMemoryMachine(FakeMachine):
    """The same without a disk."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    @property
    def root(self) -> Root:
        return MemoryRoot(self._contents, {})

    def write(self, path: str, content: object = "") -> None:
        data = content if isinstance(content, bytes) else f"{content}\n".encode()
        self._contents[path] = data

    def make_folder(self, path: str) -> None:
        """Folders come with their files."""


def build_server(
    folder: Path | None,
    *,
    packages: int,
    cores: int,
    threads: int,
    lists: bool = True,
) -> FakeMachine:
    """Build a server numbered as x86 firmware does: all first threads, then all second ones.

    Without a folder it is in memory.
    """
    machine = FakeMemoryMachine() if folder is None else FakeMachine(folder)
    per_thread = packages * cores
    total = per_thread * threads
    machine.set_cpus(f"0-{total - 1}")
    for package in range(packages):
        in_package = [
            thread * per_thread + package * cores + core
            for thread in range(threads)
            for core in range(cores)
        ]
        for core in range(cores):
            siblings = [t * per_thread + package * cores + core for t in range(threads)]
            for cpu in siblings:
                machine.add_cpu(
                    cpu,
                    siblings=siblings,
                    package_cpus=in_package,
                    core_id=core,
                    package_id=package,
                    width=total,
                    lists=lists,
                )
                for index, kind in enumerate(("Data", "Instruction")):
                    machine.add_cache(
                        cpu, index, level=1, kind=kind, size="32K", shared=siblings, width=total
                    )
                machine.add_cache(
                    cpu, 2, level=3, kind="Unified", size="32768K", shared=in_package, width=total
                )
        machine.add_node(package, in_package, 64 * 2**20)
    return machine

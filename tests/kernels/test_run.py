"""A kernel is chosen, given memory and threads, and measured."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cpubound.errors import IsaUnavailable, KernelsUnavailable, MachineError, UsageError
from cpubound.kernels import memory, run, table
from cpubound.kernels.run import KernelBench, open_kernel
from cpubound.kernels.values import Measurement

SMALL = 1 << 16


def run_kernel(kernel: str, *, samples: int = 10, **options: Any) -> Measurement:
    with open_kernel(kernel, **options) as bench:
        return bench.measurement([bench.sample() for _ in range(samples)])


@pytest.fixture(autouse=True)
def no_forced_isa(monkeypatch) -> None:
    monkeypatch.delenv(table.ISA_VARIABLE, raising=False)


def test_plain_c_can_run_everywhere() -> None:
    assert table.available_isas()[0] == "portable"


def test_detection_agrees_with_the_operating_system() -> None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        pytest.skip("no /proc/cpuinfo")
    flags = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags |= set(value.split())
    needs = {
        "avx2": {"avx2", "fma", "f16c"},
        "avxvnni": {"avx2", "fma", "f16c", "avx_vnni"},
        "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
        "avx512vnni": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
        "avx512bf16": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"},
        "neon": {"asimd"},
        "dotprod": {"asimddp"},
    }
    expected = {"portable"} | {isa for isa, needed in needs.items() if needed <= flags}
    assert set(table.available_isas()) == expected


def test_every_kernel_exists_for_every_basic_isa() -> None:
    names = {spec.name for spec in table.kernel_specs()}
    assert {"read", "copy", "scale", "add", "triad", "gemv_f32", "barrier"} <= names
    for name in names - {"barrier", "peak_bf16", "peak_int8"}:
        isas = {spec.isa for spec in table.kernel_specs() if spec.name == name}
        assert "portable" in isas
        assert isas & {"avx2", "neon"} or isas == {"portable"}


def test_no_two_kernels_share_name_isa_and_variant() -> None:
    keys = [(spec.name, spec.isa, spec.variant) for spec in table.kernel_specs()]
    assert len(set(keys)) == len(keys)


def test_without_a_wish_all_but_plain_c_compete() -> None:
    isas = {row.spec.isa for row in table.candidates("read")}
    expected = set(table.available_isas()) - {"portable"} or {"portable"}
    assert isas == expected & {spec.isa for spec in table.kernel_specs() if spec.name == "read"}


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (("portable", "avx2", "avxvnni"), {"avx2", "avxvnni"}),
        (("portable", "avx2", "avxvnni", "avx512"), {"avx2", "avxvnni"}),
        (("portable", "avx2", "avxvnni", "avx512", "avx512vnni"), {"avx2", "avx512vnni"}),
    ],
)
def test_an_encoding_does_not_compete_with_one_that_has_more_registers(
    available: tuple[str, ...], expected: set[str], monkeypatch
) -> None:
    if "avxvnni" not in {spec.isa for spec in table.kernel_specs()}:
        pytest.skip("this build has no kernels for AVX-VNNI")
    monkeypatch.setattr(table, "available_isas", lambda: available)
    assert {row.spec.isa for row in table.candidates("gemv_q8_0")} == expected
    assert {row.spec.isa for row in table.candidates("gemv_q8_0", "avxvnni")} == {"avxvnni"}


@pytest.mark.parametrize("isa", table.available_isas())
def test_an_isa_asked_for_is_taken_or_the_next_weaker_one(isa: str) -> None:
    order = table.available_isas()
    for name in ("read", "triad", "gemv_f32"):
        taken = {row.spec.isa for row in table.candidates(name, isa)}
        written = [o for o in order if o in {s.isa for s in table.kernel_specs() if s.name == name}]
        assert taken == {[o for o in written if order.index(o) <= order.index(isa)][-1]}


@pytest.mark.parametrize("isa", table.available_isas())
def test_the_environment_forces_an_isa_and_the_measurement_says_so(isa: str, monkeypatch) -> None:
    monkeypatch.setenv(table.ISA_VARIABLE, isa)
    measured = run_kernel("read", threads=1, working_set_bytes=SMALL, samples=1)
    assert measured.isa == table.candidates("read", isa)[0].spec.isa


@pytest.mark.parametrize("isa", ["avx1024", "neon" if os.name == "nt" else "vax"])
def test_an_isa_that_cannot_run_here_is_an_error_that_lists_those_that_can(
    isa: str, monkeypatch
) -> None:
    with pytest.raises(IsaUnavailable, match=rf"isa={isa}\): choose from portable"):
        table.select_isa(isa)
    monkeypatch.setenv(table.ISA_VARIABLE, isa)
    with pytest.raises(IsaUnavailable, match=f"CPUBOUND_ISA={isa}"):
        run_kernel("read", threads=1, working_set_bytes=SMALL)


def test_an_unknown_kernel_is_an_error_that_lists_the_known(monkeypatch) -> None:
    with pytest.raises(UsageError, match=r"no such kernel \(reed\): choose from read, write"):
        open_kernel("reed", threads=1, working_set_bytes=SMALL)


def test_a_missing_extension_is_an_error_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cpubound._kernels", None)
    monkeypatch.delattr("cpubound._kernels", raising=False)
    with pytest.raises(KernelsUnavailable, match="install a C compiler"):
        table.available_isas()


@pytest.mark.parametrize("name", ["read", "copy", "scale", "add", "triad", "gemv_f32"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_measurement_keeps_every_sample_and_counts_declared_bytes(
    name: str, threads: int
) -> None:
    measured = run_kernel(name, threads=threads, working_set_bytes=1 << 20, samples=3)
    assert measured.kernel == name
    assert measured.threads == threads
    assert len(measured.samples_s) == 3
    assert all(sample > 0 for sample in measured.samples_s)
    assert 0.97 * (1 << 20) <= measured.bytes_per_pass <= 1 << 20
    assert measured.working_set_bytes >= measured.bytes_per_pass
    if hasattr(os, "sched_getaffinity"):
        assert measured.cpus is not None
        assert len(measured.cpus) == threads
        assert set(measured.cpus) <= os.sched_getaffinity(0)


def test_the_compute_roof_is_counted_in_operations() -> None:
    measured = run_kernel("peak_fp32", threads=2, samples=1)
    assert measured.working_set_bytes == measured.bytes_per_pass == 0
    spec = next(s for s in table.kernel_specs() if s.name == "peak_fp32")
    assert measured.flops_per_pass == spec.flops * 2 * measured.units_per_thread
    assert measured.best_flops_per_s == measured.flops_per_pass / measured.samples_s[0]


def test_a_kernel_without_plain_c_says_what_it_needs() -> None:
    with pytest.raises(IsaUnavailable, match=r"peak_int8 needs .* leave it out"):
        run_kernel("peak_int8", threads=1, isa="portable")


def test_runnable_kernels_can_be_opened() -> None:
    runnable = table.runnable_kernels()
    assert {"read", "latency", "peak_fp32", "barrier"} <= set(runnable)
    with open_kernel(runnable[0], threads=1, working_set_bytes=SMALL) as bench:
        assert bench.spec.name == runnable[0]


def test_latency_is_the_time_of_one_load() -> None:
    measured = run_kernel("latency", threads=2, working_set_bytes=SMALL, samples=1)
    assert measured.units_per_thread == SMALL // 2 // 64
    assert measured.best_seconds_per_unit == measured.samples_s[0] / measured.units_per_thread


def test_write_allocate_stands_beside_the_bytes_and_not_in_them() -> None:
    measured = run_kernel("copy", threads=1, working_set_bytes=SMALL, samples=1)
    assert measured.bytes_per_pass == measured.working_set_bytes
    assert measured.write_allocate_bytes_per_pass == measured.bytes_per_pass // 2


@pytest.mark.parametrize("touch_cpu", [None, max(run._default_cpus(1))])
def test_memory_is_touched_first_by_its_readers_or_by_the_cpu_asked_for(
    touch_cpu: int | None, monkeypatch
) -> None:
    if touch_cpu is not None and not hasattr(os, "sched_setaffinity"):
        pytest.skip("threads cannot be bound here")
    touched: list[tuple[int, tuple[int, int], set[int]]] = []

    class Spy:
        def fill(self, begin: int, end: int) -> None:
            touched.append((threading.get_ident(), (begin, end), affinity()))

    def use(self: KernelBench, row: table.TableRow) -> None:
        original(self, row)
        if not touched:
            self._operands = Spy()

    original = KernelBench._use
    monkeypatch.setattr(KernelBench, "_use", use)
    with open_kernel("read", threads=3, working_set_bytes=SMALL, touch_cpu=touch_cpu) as bench:
        assert sorted(part for _, part, _ in touched) == bench._bounds
        assert len({thread for thread, _, _ in touched}) == (3 if touch_cpu is None else 1)
        if touch_cpu is not None:
            assert all(cpus == {touch_cpu} for _, _, cpus in touched)


def affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def test_memory_cannot_be_touched_on_a_cpu_that_no_thread_may_use() -> None:
    with pytest.raises(MachineError, match=r"touches the memory \(4095\): leave it out"):
        open_kernel("read", threads=1, working_set_bytes=SMALL, touch_cpu=4095)


def test_flops_are_counted_as_declared() -> None:
    measured = run_kernel("gemv_f32", threads=1, working_set_bytes=1 << 20, samples=1, columns=256)
    assert measured.flops_per_pass == 2 * (1 << 20) // 4


def test_a_barrier_costs_time_and_moves_nothing() -> None:
    measured = run_kernel("barrier", threads=2, samples=2)
    assert measured.bytes_per_pass == 0
    assert measured.working_set_bytes == 0
    assert min(measured.samples_s) > 0


def test_a_sample_never_times_less_than_a_millisecond(monkeypatch) -> None:
    with open_kernel("read", threads=1, working_set_bytes=4096, min_sample_s=1e-9) as bench:
        assert bench.passes * bench.sample() >= run.MIN_SAMPLE_S


def test_a_sample_that_came_out_too_short_is_taken_again_with_more_passes(monkeypatch) -> None:
    with open_kernel("read", threads=1, working_set_bytes=4096) as bench:
        asked = []

        def pretend(passes: int) -> float:
            asked.append(passes)
            return passes * 1e-6

        monkeypatch.setattr(bench, "_run", pretend)
        monkeypatch.setattr(bench, "_passes", 10)
        assert bench.sample() == pytest.approx(1e-6)
        assert asked[0] == 10
        assert asked[-1] * 1e-6 >= run.MIN_SAMPLE_S


def test_the_fastest_candidate_is_kept(monkeypatch) -> None:
    seconds = {row.index: 1e-3 * (5 - place) for place, row in enumerate(table.candidates("read"))}
    fastest = min(seconds, key=lambda index: seconds[index])

    def pretend(self: KernelBench, passes: int) -> float:
        return passes * seconds[self._row.index]

    monkeypatch.setattr(KernelBench, "_run", pretend)
    with open_kernel("read", threads=1, working_set_bytes=SMALL) as bench:
        assert bench._row.index == fastest


def test_samples_of_two_open_benches_can_alternate() -> None:
    with (
        open_kernel("read", threads=1, working_set_bytes=SMALL) as one,
        open_kernel("triad", threads=2, working_set_bytes=SMALL) as two,
    ):
        pairs = [(one.sample(), two.sample()) for _ in range(3)]
    assert len(pairs) == 3


def test_no_thread_outlives_its_bench() -> None:
    before = threading.active_count()
    with open_kernel("read", threads=3, working_set_bytes=SMALL):
        assert threading.active_count() == before + 3
    assert threading.active_count() == before


def test_a_bench_that_failed_to_open_leaves_no_thread(monkeypatch) -> None:
    before = threading.active_count()

    def fail(self: KernelBench, passes: int) -> float:
        raise MachineError("on purpose")

    monkeypatch.setattr(KernelBench, "_run", fail)
    with pytest.raises(MachineError, match="on purpose"):
        open_kernel("read", threads=2, working_set_bytes=SMALL)
    assert threading.active_count() == before


def test_a_closed_bench_refuses_to_sample() -> None:
    with open_kernel("read", threads=1, working_set_bytes=SMALL) as bench:
        pass
    with pytest.raises(MachineError, match="open the kernel again"):
        bench.sample()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 0}, "threads=0"),
        ({"threads": 2, "cpus": (0,)}, "2 threads need as many CPUs"),
        ({"threads": 1, "working_set_bytes": 7}, "working set is too small"),
        ({"threads": 1, "page_kind": "anon_1g"}, "no such page kind"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_kernel("read", **{"working_set_bytes": SMALL, **arguments})


def test_a_writing_kernel_does_not_take_a_file() -> None:
    with pytest.raises(UsageError, match="kernels that only read"):
        open_kernel("triad", threads=1, working_set_bytes=SMALL, page_kind="file")


def test_memory_that_cannot_be_had_is_a_machine_error_with_a_remedy() -> None:
    with pytest.raises(MachineError, match="use a smaller working set"):
        open_kernel("read", threads=1, working_set_bytes=1 << 60)


def test_memory_that_the_system_refuses_is_a_machine_error(monkeypatch) -> None:
    monkeypatch.setattr(memory, "_physical_bytes", lambda: None)
    with pytest.raises(MachineError, match=r"refused a buffer .* use a smaller working set"):
        open_kernel("read", threads=1, working_set_bytes=1 << 60)


def test_a_full_disk_is_a_machine_error_before_anything_is_mapped(monkeypatch) -> None:
    def full(_file: int, _offset: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(MachineError, match="No space left on device"):
        open_kernel("read", threads=1, working_set_bytes=SMALL, page_kind="file")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="page kinds are read from smaps")
def test_small_pages_are_obtained_and_a_file_is_a_file() -> None:
    for kind in ("anon_4k", "file"):
        with open_kernel("read", threads=1, working_set_bytes=8 << 20, page_kind=kind) as bench:
            assert bench.page_kind == kind


SMAPS = """\
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Size:               8192 kB
Rss:                8192 kB
AnonHugePages:      6144 kB
VmFlags: rd wr mr mw me ac hg
7f0001000000-7f0001800000 rw-p 00000000 00:00 0
Rss:                8192 kB
AnonHugePages:         0 kB
"""


@pytest.mark.parametrize(
    ("start", "share"), [(0x7F0000000000, 0.75), (0x7F0001000000, 0.0), (0x7F0002000000, None)]
)
def test_the_share_of_huge_pages_is_read_from_the_mapping(start: int, share: float | None) -> None:
    assert memory.huge_share(SMAPS, start, 4096) == share


class FakeMemory:
    address = 0x7F0000000000

    def __len__(self) -> int:
        return 8 << 20


@pytest.mark.parametrize(("huge", "kind"), [(8192, "anon_2m"), (6144, "anon"), (0, "anon_4k")])
def test_the_page_kind_is_what_was_obtained_not_what_was_asked(
    huge: int, kind: str, tmp_path: Path
) -> None:
    smaps = tmp_path / "smaps"
    smaps.write_text(SMAPS.replace("6144", str(huge)))
    assert memory.obtained_page_kind(FakeMemory(), "anon_2m", smaps) == kind


def test_without_smaps_the_page_kind_is_unknown(tmp_path: Path) -> None:
    assert memory.obtained_page_kind(FakeMemory(), "anon_2m", tmp_path / "none") == "anon"
    # Large ones were refused for the mapping.
    assert memory.obtained_page_kind(FakeMemory(), "anon_4k", tmp_path / "none") == "anon_4k"


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("units", [0, 1, 511, 512, 4097])
def test_threads_share_out_all_units_once(threads: int, units: int) -> None:
    parts = run._split(units, threads, 512)
    assert [i for begin, end in parts for i in range(begin, end)] == list(range(units))
    assert all(begin % 512 == 0 for begin, end in parts if begin < end)

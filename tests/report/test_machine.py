"""cpubound.report.machine: what doctor shows."""

from __future__ import annotations

import msgspec
from builders import build_machine

from cpubound.advise.values import Finding
from cpubound.machine.values import Cache, CoreKind, Machine, MemoryModule, NumaNode
from cpubound.report.machine import machine_document, machine_table, machine_text

FINDING = Finding(
    code="on-battery",
    severity="warning",
    evidence={"on_battery": 1},
    message="running from the battery",
    remedy="plug it in",
)


def big_machine() -> Machine:
    cpus = tuple(range(256))
    return build_machine(
        256,
        cpu_model="A  Very   Wide CPU " * 8,
        core_kinds=(
            CoreKind(kind="performance", cpus=cpus[::2], max_khz=5_000_000),
            CoreKind(kind="efficiency", cpus=cpus[1::2], max_khz=3_000_000),
        ),
        numa_nodes=tuple(NumaNode(id=n, cpus=cpus[n::16], memory_bytes=2**36) for n in range(16)),
        caches=tuple(
            Cache(level=level, type="unified", size_bytes=2**20 * level, instances=9)
            for level in range(1, 9)
        ),
        isa_flags=tuple(f"flag_number_{n}" for n in range(40)),
        memory_modules=(
            MemoryModule(
                locator=None,
                type="DDR5",
                size_bytes=2**35,
                transfers_per_s=5_600_000_000,
                width_bits=64,
            ),
        ),
    )


def test_the_screen_of_a_large_machine_fits_in_100_columns() -> None:
    lines = machine_text(big_machine(), [FINDING] * 12).splitlines()
    assert max(map(len, lines)) <= 100


def test_a_line_does_not_break_inside_a_part() -> None:
    text = machine_text(big_machine(), [])
    assert all(f"L{level} 9 × {level} MiB" in text for level in range(1, 9))
    assert "1 × 32 GiB DDR5-5600" in text
    assert "44.8 GB/s in theory" in text


def test_a_virtual_machine_shows_the_time_it_lost() -> None:
    text = machine_text(build_machine(hypervisor="KVM", steal_fraction=0.0123), [])
    assert "KVM, 1.23% of CPU time stolen since boot" in text


def test_findings_are_numbered_with_their_remedies() -> None:
    text = machine_text(build_machine(), [FINDING, FINDING])
    assert " 1. warning  on-battery: running from the battery." in text
    assert " 2. warning" in text
    assert text.count("→ plug it in") == 2


def test_what_is_unknown_is_left_out_or_called_unknown() -> None:
    machine = build_machine(
        1, cpu_model=None, memory_bytes=None, physical_cores=None, packages=None,
        threads_per_core=None,
    )  # fmt: skip
    facts = dict(machine_table(machine, []).rows)
    assert facts["CPU"].startswith("unknown model")
    assert facts["memory"] == facts["caches"] == "unknown"
    assert facts["cores"] == "1 CPU"
    assert "clock" not in facts
    assert "None" not in machine_text(machine, [])


def test_the_reason_for_the_usable_cpus_is_said() -> None:
    def usable(machine: Machine) -> str:
        return dict(machine_table(machine, []).rows)["usable"]

    assert "all online CPUs" in usable(build_machine(4))
    assert "CPUs 1,3" in usable(build_machine(4, allowed_cpus=(1, 3), effective_cpus=2))
    quota = build_machine(4, quota_cpus=2.5, effective_cpus=2)
    assert "the CPU quota is 2.5, rounded down" in usable(quota)


def test_the_document_is_the_machine_with_a_schema_and_findings() -> None:
    machine = big_machine()
    document = machine_document(machine, [FINDING])
    assert document["schema"] == "cpubound.machine/1"
    assert document["findings"] == [msgspec.to_builtins(FINDING)]
    assert document["theoretical_bytes_per_s"] == machine.theoretical_bytes_per_s
    assert msgspec.convert(document, Machine) == machine

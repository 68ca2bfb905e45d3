"""From a CPU of the table to what estimates ask: whose relative it is."""

from __future__ import annotations

from cpubound.cost.kin_table import Kinship
from cpubound.errors import UsageError
from cpubound.machine.cpu_names import find_cpu
from cpubound.machine.known_cpus import KnownCpu

# Cores that share a last-level cache and its link to memory, where the table has no caches of a
# CPU: four on Zen and Zen 2, eight since (AMD, Software Optimization Guides of 17h to 1Ah).
ZEN_CLUSTER = 8
SMALL_ZEN_CLUSTER = 4
SMALL_CLUSTERS = frozenset({"zen", "zen+", "zen2"})
# A name without a model number ("EPYC-Milan"): a hypervisor's, which scatters virtual CPUs.
HYPERVISOR_MARK = "EPYC-"
# Makers' words that tell a family where the name tells no more ("Intel(R) Xeon(R) Platinum").
FAMILY_WORDS = (("xeon", "core server", "x86_64"), ("epyc", "zen", "x86_64"))


def kinship_of(cpu: KnownCpu) -> Kinship:
    """Return whose relative a CPU is."""
    design = cpu.micro_architecture
    return Kinship(
        name=cpu.name,
        micro_architecture=design.name,
        family=design.family,
        architecture=design.architecture,
        cluster_cores=_cluster_cores(cpu),
        is_scattered=cpu.name.startswith(HYPERVISOR_MARK),
    )


def kinship_of_name(name: str) -> Kinship:
    """Return whose relative a CPU of this name is, as far as the name tells."""
    try:
        return kinship_of(find_cpu(name))
    except UsageError:
        for word, family, architecture in FAMILY_WORDS:
            if word in name.lower():
                return Kinship(
                    name=name, micro_architecture="", family=family, architecture=architecture
                )
        return Kinship(name=name, micro_architecture="", family="", architecture="")


def _cluster_cores(cpu: KnownCpu) -> int | None:
    design = cpu.micro_architecture
    if design.family != "zen":
        return None
    if cpu.core_count and cpu.last_level_caches:
        return max(cpu.core_count // len(cpu.last_level_caches), 1)
    return SMALL_ZEN_CLUSTER if design.name in SMALL_CLUSTERS else ZEN_CLUSTER

"""Rules about CPUs, clocks and power: each looks at a machine and gives a finding or None."""

from __future__ import annotations

from cpubound.advise.values import INFO, WARNING, Finding
from cpubound.machine.values import Machine, format_cpu_list, format_cpu_mask

# One scheduler period in a hundred throttled is already visible in the slowest tokens.
_THROTTLED_SHARE = 0.01
# Less than this is the hypervisor's own work; more is a neighbour.
_STEAL_SHARE = 0.01
# Threads already running, as a share of the effective CPUs.
_BUSY_SHARE = 0.5


def find_quota_below_cpus(machine: Machine) -> Finding | None:
    """Find a CPU quota below the CPUs that programs see."""
    quota, visible = machine.quota_cpus, len(machine.allowed_cpus)
    if quota is None or quota >= visible:
        return None
    threads = machine.effective_cpus
    share = machine.duty_cycle(threads)
    effect = f"so {threads} can run" if share == 1 else f"and even one runs {share:.0%} of the time"
    return Finding(
        code="quota-below-cpus",
        severity=WARNING,
        evidence={"quota_cpus": quota, "visible_cpus": visible, "effective_cpus": threads},
        message=(
            f"a CPU quota of {quota:g} is in force but programs see {visible} CPUs; one thread "
            f"above the quota stalls the whole team, {effect}"
        ),
        remedy=(
            f"use -t {threads} -tb {threads}; or raise the quota "
            "(docker --cpus, resources.limits.cpu, CPUQuota)"
        ),
    )


def find_quota_throttled(machine: Machine) -> Finding | None:
    """Find a quota that has run out before."""
    periods, throttled = machine.quota_periods, machine.quota_throttled_periods
    if not periods or throttled is None or throttled / periods < _THROTTLED_SHARE:
        return None
    return Finding(
        code="quota-throttled",
        severity=WARNING,
        evidence={"periods": periods, "throttled_periods": throttled},
        message=(
            f"the CPU quota ran out in {throttled} of {periods} scheduler periods "
            f"({throttled / periods:.0%}): something here runs more threads than it may"
        ),
        remedy=f"use at most {machine.effective_cpus} threads in all programs of this container",
    )


def find_topology_mismatch(machine: Machine) -> Finding | None:
    """Find an affinity or cpuset that leaves fewer CPUs than sysfs shows."""
    online, allowed = len(machine.online_cpus), len(machine.allowed_cpus)
    if allowed >= online:
        return None
    cpus = format_cpu_list(machine.allowed_cpus)
    return Finding(
        code="topology-mismatch",
        severity=WARNING,
        evidence={"online_cpus": online, "allowed_cpus": allowed},
        message=(
            f"the system shows {online} CPUs but this process may run on {allowed} of them "
            f"({cpus}): programs that count the CPUs in /sys start too many threads"
        ),
        remedy=f"use -t {machine.effective_cpus}; or widen the affinity or cpuset",
    )


def find_hybrid_cores(machine: Machine) -> Finding | None:
    """Find cores of different speeds: the slow ones hold up a team that includes them."""
    if len(machine.core_kinds) < 2:
        return None
    fast = set(machine.performance_cpus)
    one_each = [min(core) for core in machine.core_cpus if fast.issuperset(core)]
    cpus = sorted(set(one_each) & set(machine.allowed_cpus)) or sorted(fast)
    threads = min(len(cpus), machine.effective_cpus)
    return Finding(
        code="hybrid-cores",
        severity=INFO,
        evidence={
            "performance_cpus": len(fast),
            "performance_cores": len(one_each),
            "other_cpus": len(set(machine.online_cpus) - fast),
        },
        message=(
            f"cores of {len(machine.core_kinds)} kinds: performance CPUs are "
            f"{format_cpu_list(fast)}; decoding is often fastest on those alone, prompts use all"
        ),
        remedy=(
            f"try -t {threads} -C {format_cpu_mask(cpus)} --cpu-strict 1 "
            f"-tb {machine.effective_cpus} (CPUs {format_cpu_list(cpus)})"
        ),
    )


def find_slow_governor(machine: Machine) -> Finding | None:
    """Find a frequency governor that keeps the clock low under load."""
    governors = set((machine.governor or "").split(","))
    # These drivers' "powersave" follows the load; its bias is the energy preference.
    is_adaptive = (machine.frequency_driver or "").startswith(("intel_pstate", "amd-pstate"))
    slow = governors & {"powersave", "conservative", "userspace"}
    if is_adaptive:
        preferences = set((machine.energy_preference or "").split(","))
        slow = preferences & {"power", "balance_power"} if "powersave" in slow else set()
    if not slow:
        return None
    name = ", ".join(sorted(slow))
    what = "energy preference" if is_adaptive else "governor"
    return Finding(
        code="slow-governor",
        severity=INFO if is_adaptive else WARNING,
        evidence={"cpus": len(machine.online_cpus)},
        message=f"the CPU's {what} is {name}, which may hold the clock down while decoding",
        remedy="sudo cpupower frequency-set -g performance, or the system's performance profile",
    )


def find_power_profile(machine: Machine) -> Finding | None:
    """Find a firmware profile that limits power."""
    if machine.platform_profile not in ("low-power", "quiet", "cool"):
        return None
    return Finding(
        code="power-profile",
        severity=WARNING,
        evidence={"effective_cpus": machine.effective_cpus},
        message=f"the platform profile is {machine.platform_profile}: the firmware limits power",
        remedy="powerprofilesctl set performance (or balanced)",
    )


def find_boost_off(machine: Machine) -> Finding | None:
    """Find a disabled frequency boost."""
    if machine.boost is not False:
        return None
    return Finding(
        code="boost-off",
        severity=INFO,
        evidence={"boost": 0},
        message=(
            "frequency boost is off: kernels that are not limited by memory run at the base clock"
        ),
        remedy="turn it on in the firmware, or in /sys (intel_pstate/no_turbo, cpufreq/boost)",
    )


def find_on_battery(machine: Machine) -> Finding | None:
    """Find a machine that runs from its battery."""
    if machine.on_battery is not True:
        return None
    return Finding(
        code="on-battery",
        severity=WARNING,
        evidence={"on_battery": 1},
        message="running from the battery: clocks and power are limited and fall further with time",
        remedy="plug it in, wait a minute, and calibrate again",
    )


def find_thermal_throttled(machine: Machine) -> Finding | None:
    """Find cores that heat has slowed since the machine was started."""
    if not machine.throttle_events:
        return None
    return Finding(
        code="thermal-throttled",
        severity=INFO,
        evidence={"throttle_events": machine.throttle_events},
        message=(
            f"heat has slowed the cores {machine.throttle_events} times since the machine started"
        ),
        remedy="check cooling; compare the counter before and after a run; use fewer threads",
    )


def find_no_avx2(machine: Machine) -> Finding | None:
    """Find an x86 CPU without the instructions that the fast kernels need."""
    if machine.architecture not in ("x86_64", "i686") or not machine.isa_flags:
        return None
    missing = [flag for flag in ("avx2", "fma", "f16c") if flag not in machine.isa_flags]
    if not missing:
        return None
    return Finding(
        code="no-avx2",
        severity=WARNING,
        evidence=dict.fromkeys(missing, 0),
        message=(
            f"the CPU (or the virtual machine) has no {', '.join(missing).upper()}: llama.cpp "
            "falls back to kernels that are several times slower"
        ),
        remedy="in a virtual machine choose the CPU type 'host'; prefer Q4_0 or Q8_0; measure",
    )


def find_no_dot_product(machine: Machine) -> Finding | None:
    """Find a 64-bit Arm CPU without integer dot products."""
    flags = machine.isa_flags
    if machine.architecture != "aarch64" or "asimd" not in flags or "asimddp" in flags:
        return None
    return Finding(
        code="no-dot-product",
        severity=INFO,
        evidence={"asimddp": 0},
        message="the CPU has no integer dot product: quantised kernels run at about half the speed",
        remedy="expect to be limited by the kernels, not by memory: use all performance cores",
    )


def find_hypervisor(machine: Machine) -> Finding | None:
    """Find a virtual machine: what it shows of caches and cores may not be so."""
    if machine.hypervisor is None:
        return None
    name = "" if machine.hypervisor == "unknown" else f" ({machine.hypervisor})"
    return Finding(
        code="virtual-machine",
        severity=INFO,
        evidence={"online_cpus": len(machine.online_cpus)},
        message=(
            f"a virtual machine{name}: neighbours share its memory bandwidth, and its cores and "
            "caches are what the hypervisor chose to show"
        ),
        remedy="trust measurements over the numbers above, and repeat them",
    )


def find_stolen_time(machine: Machine) -> Finding | None:
    """Find CPU time that the hypervisor gave to others."""
    stolen = machine.steal_fraction
    if stolen is None or stolen < _STEAL_SHARE:
        return None
    return Finding(
        code="stolen-time",
        severity=WARNING,
        evidence={"steal_fraction": round(stolen, 4)},
        message=f"the hypervisor gave {stolen:.1%} of the CPU time since boot to other machines",
        remedy="use dedicated CPUs, or a thread less than there are CPUs; measure at several hours",
    )


def find_busy_machine(machine: Machine) -> Finding | None:
    """Find other work on the machine."""
    load = machine.load_average
    if load is None or load < _BUSY_SHARE * machine.effective_cpus or load < 1:
        return None
    return Finding(
        code="busy-machine",
        severity=INFO,
        evidence={"load_average": load, "effective_cpus": machine.effective_cpus},
        message=(
            f"{load:g} threads were running during the last minute on {machine.effective_cpus} "
            "usable CPUs: other work takes cores and memory bandwidth"
        ),
        remedy="stop it before measuring",
    )

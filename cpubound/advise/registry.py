"""Every rule by its code, and what finds the findings about a run: one table row per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cpubound.advise.case import Case, ModelCase
from cpubound.advise.findings import MACHINE_RULES
from cpubound.advise.live_rules import LIVE_RULES
from cpubound.advise.refusals import REFUSALS
from cpubound.advise.rules import attention, file, kernel, observation, profile, thread
from cpubound.advise.values import SEVERITIES, Finding

# Code of the finding: what the rule looks for, and the rule.
FILE_RULES: Mapping[str, tuple[str, Callable[[ModelCase], Finding | None]]] = {
    "beyond-training": (
        "a context longer than the model was trained for",
        file.find_beyond_training,
    ),
    "mislabelled": ("a file type that the tensors do not bear out", file.find_mislabelled),
    "unknown-type": ("tensors of a type that is not known", file.find_unknown_type),
    "moe": ("a mixture of experts: few weights are active", file.find_moe),
    "lookup-tables": ("large tables of which a row is read", file.find_lookup_tables),
    "tied-output": ("the token table is the output matrix too", file.find_tied_output),
    "sliding-window": ("layers that attend to a window only", file.find_sliding_window),
    "mla": ("a compressed KV cache", file.find_mla),
    "recurrent": ("layers with a state instead of a KV cache", file.find_recurrent),
}
# About a run, also one of several sequences.
RUN_RULES: Mapping[str, tuple[str, Callable[[Case], Finding | None]]] = {
    "impossible": (
        "an observed rate needs more bandwidth than the machine can have",
        observation.find_impossible,
    ),
    "above-measured": (
        "an observed rate needs more bandwidth than calibration saw",
        observation.find_above_measured,
    ),
    "not-resident": (
        "the model does not fit into memory",
        observation.find_not_resident,
    ),
    "in-cache": ("a model that fits into the cache", observation.find_in_cache),
    "throttled": (
        "repetitions that got slower while the run went on",
        observation.find_throttled,
    ),
    "stale-profile": (
        "the profile is of another machine than this one",
        profile.find_stale_profile,
    ),
    "busy-machine": (
        "the profile was taken while other work took the bandwidth",
        profile.find_busy_machine,
    ),
}
# About a run of one sequence, which has a prediction.
PREDICTED_RULES: Mapping[str, tuple[str, Callable[[Case], Finding | None]]] = {
    "quota-oversubscribed": (
        "more threads than a CPU quota lets run",
        thread.find_quota_oversubscribed,
    ),
    "too-many-threads": (
        "more threads than are fastest, or than can run",
        thread.find_too_many_threads,
    ),
    "hybrid-cores": (
        "decode threads reach beyond the performance cores",
        thread.find_hybrid_cores,
    ),
    "odd-thread-count": (
        "a large thread count that shares no factor with the heads",
        thread.find_odd_thread_count,
    ),
    "at-ceiling": ("fewer threads saturate memory already", thread.find_at_ceiling),
    "smt": ("second hardware threads may help kernels", thread.find_smt),
    "slow-build": (
        "llama.cpp was built without instructions that the CPU has",
        kernel.find_slow_build,
    ),
    "no-simd-kernel": (
        "a type that is computed in scalar code",
        kernel.find_no_simd_kernel,
    ),
    "kernel-bound": (
        "a type's kernel, not memory, sets the speed",
        kernel.find_kernel_bound,
    ),
    "repack": ("repacking where memory is the limit", kernel.find_repack),
    "wait-policy": ("an OpenMP build that waits much", kernel.find_wait_policy),
    "page-size": ("large pages change the bandwidth here", kernel.find_page_size),
    "kv-quant-on-cpu": (
        "a quantised KV cache that decodes slower",
        attention.find_kv_quant_on_cpu,
    ),
    "slow-flash-attention": (
        "flash-attention that decodes slower",
        attention.find_slow_flash_attention,
    ),
    "numa-placement": (
        "a slow run on several memory nodes",
        observation.find_numa_placement,
    ),
    "above-interval": (
        "a rate above the interval of the prediction",
        observation.find_above_interval,
    ),
    "graph-bound": (
        "recurrent layers whose operators cost more than their bytes",
        observation.find_graph_bound,
    ),
    "slow-memory": (
        "measured bandwidth is under 60 % of what the memory modules could give",
        profile.find_slow_memory,
    ),
}
# What is left when the rules above have looked.
REST_RULES: Mapping[str, str] = {
    "below-interval": "a rate just under the interval of the prediction",
    "unexplained": "a shortfall that no other finding explains",
    "far-below-peak": "a rate far below what the memory of a named machine allows",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleSummary:
    """One rule: its code, what it looks at, and when it finds something."""

    code: str
    about: str  # "machine", "file", "model", "run", "live run"
    found_when: str


def list_rules() -> tuple[RuleSummary, ...]:
    """Return every rule, those that need no model first."""
    machine = {code: summary for code, (summary, _) in MACHINE_RULES.items()}
    model = {code: summary for code, (summary, _) in FILE_RULES.items()}
    live = {code: summary for code, (summary, _) in LIVE_RULES.items()}
    runs = {code: summary for code, (summary, _) in {**RUN_RULES, **PREDICTED_RULES}.items()}
    groups = (
        ("machine", machine),
        ("file", {code: text for code, (text, _) in REFUSALS.items()}),
        ("model", model),
        ("run", runs),
        ("run", REST_RULES),
        ("live run", live),
    )
    return tuple(
        RuleSummary(code=code, about=about, found_when=summary)
        for about, group in groups
        for code, summary in group.items()
    )


def find_file_findings(case: ModelCase) -> tuple[Finding, ...]:
    """Look at a model and its setting with every rule that needs no machine."""
    return order(rule(case) for _, rule in FILE_RULES.values())


def find_run_findings(case: Case) -> tuple[Finding, ...]:
    """Look at a run with every rule; a fact that is unknown gives no finding."""
    rules = {**RUN_RULES, **(PREDICTED_RULES if case.setting.batch == 1 else {})}
    return order((*(rule(case) for _, rule in rules.values()), *find_file_findings(case)))


def order(found: Iterable[Finding | None]) -> tuple[Finding, ...]:
    """Put the worst first, then what costs most, otherwise as the rules stand; each code once."""
    known: dict[str, Finding] = {}
    for finding in found:
        if finding is not None:
            known.setdefault(finding.code, finding)
    return tuple(
        sorted(
            known.values(),
            key=lambda f: (SEVERITIES.index(f.severity), -(f.cost_tokens_per_s or 0.0)),
        )
    )

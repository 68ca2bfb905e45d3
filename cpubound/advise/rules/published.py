"""Rules about a rate that is compared with a machine's published peaks."""

from __future__ import annotations

from cpubound.advise.diagnosis import Diagnosis
from cpubound.advise.values import WARNING, Finding
from cpubound.units import GB, format_decimal_bytes, format_rate

# Judgements. Published CPU runs of models that memory limits read 30 to 80 % of its peak, the
# slowest scalar kernels a tenth; of a small model overhead may take most of a token.
_LEAST_SHARE = 0.1
_LEAST_BYTES = 0.5 * GB


def find_far_below_peak(diagnosis: Diagnosis) -> Finding | None:
    """Find a rate that no memory of a named CPU machine explains."""
    is_cpu = diagnosis.batch_ceiling.compute_precision is None
    is_small = diagnosis.bytes_per_step < _LEAST_BYTES
    if not is_cpu or is_small or diagnosis.share_of_ceiling >= _LEAST_SHARE:
        return None
    ceiling = diagnosis.ceiling_tokens_per_s
    return Finding(
        code="far-below-peak",
        severity=WARNING,
        evidence={
            "share_of_ceiling": diagnosis.share_of_ceiling,
            "implied_bytes_per_s": diagnosis.implied_bytes_per_s,
            "ceiling_tokens_per_s": ceiling,
        },
        message=(
            f"not memory: {format_decimal_bytes(diagnosis.bytes_per_step)} a step at this rate "
            f"are {format_rate(diagnosis.implied_bytes_per_s)}, and CPUs usually read 30 to 80 % "
            f"of {format_rate(diagnosis.ceiling_bytes_per_s)}; more threads than CPUs, a CPU "
            "quota, a model that is read from the disk, or a build without vector code do that"
        ),
        cost_tokens_per_s=max(0.3 * ceiling - diagnosis.observed_tokens_per_s, 0.0),
        remedy=(
            "run it with a few threads (-t 4): much faster means that there were too many; else "
            "look at free memory and the disk while it runs, and at cpubound doctor there"
        ),
    )

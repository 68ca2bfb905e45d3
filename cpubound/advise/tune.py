"""What to set for a model on this machine: threads, CPUs, flash-attention, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cpubound.machine.values import Machine, format_cpu_mask
from cpubound.prediction.values import Prediction

# Fewer threads are preferred when they cost less than this: power, heat, room for others.
TOLERANCE = 0.03
# llama.cpp takes the physical cores of the host; the raw API 4; llama-cpp-python half the
# logical CPUs (llama_cpp/llama.py and common/common.cpp at 0c1e57098bba).
RAW_API_THREADS = 4


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that was considered, as predicted."""

    threads: int
    flash_attn: bool
    tokens_per_s: float
    low: float
    high: float


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """What to set, why, and the commands to paste."""

    threads: int
    batch_threads: int
    cpus: tuple[int, ...] | None
    cpu_mask: str | None
    flash_attn: bool
    kv_type_k: str
    kv_type_v: str
    tokens_per_s: float
    low: float
    high: float
    reasons: tuple[str, ...]
    commands: dict[str, str]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The recommendation with everything it was chosen from."""

    model: str
    recommendation: Recommendation
    table: tuple[Choice, ...]
    defaults: dict[str, Choice]  # what the programs would do by themselves


PredictAt = Callable[[int, bool], Prediction]


def tune(
    machine: Machine,
    predict_at: PredictAt,
    thread_counts: Sequence[int],
    *,
    model_path: str,
    cpus_for: Callable[[int], tuple[int, ...] | None],
    kv_types: tuple[str, str] = ("f16", "f16"),
    bandwidth_at: Callable[[int], float | None] = lambda _: None,
) -> Advice:
    """Choose the smallest thread count within 3 % of the best, and flash-attention with it.

    Parameters
    ----------
    predict_at : gives the prediction at a thread count with flash-attention on or off.
    thread_counts : the counts to choose from; those above the effective CPUs are left out.
    cpus_for : the CPUs for a thread count.
    """
    counts = [t for t in thread_counts if t <= machine.effective_cpus] or [1]
    # Quantised V needs flash-attention (llama-context.cpp at 0c1e57098bba).
    flash_options = (True, False) if kv_types[1] in ("f16", "f32", "bf16") else (True,)
    predictions = {(t, flash): predict_at(t, flash) for t in counts for flash in flash_options}
    best = max(predictions.values(), key=lambda p: p.tokens_per_s)
    flash = best.flash_attn
    chosen = fewest_threads([p for (_, f), p in predictions.items() if f == flash])
    defaults = _defaults(machine, predict_at, flash_options)
    cpus = cpus_for(chosen.threads)
    batch_threads = max(counts)
    recommendation = Recommendation(
        threads=chosen.threads,
        batch_threads=batch_threads,
        cpus=cpus,
        cpu_mask=format_cpu_mask(cpus) if cpus else None,
        flash_attn=flash,
        kv_type_k=kv_types[0],
        kv_type_v=kv_types[1],
        tokens_per_s=chosen.tokens_per_s,
        low=chosen.low,
        high=chosen.high,
        reasons=tuple(_reasons(machine, chosen, predictions, bandwidth_at)),
        commands=commands(model_path, chosen.threads, batch_threads, flash, kv_types),
    )
    return Advice(
        model=chosen.model,
        recommendation=recommendation,
        table=tuple(_choice(p) for p in predictions.values()),
        defaults=defaults,
    )


def fewest_threads(predictions: Sequence[Prediction]) -> Prediction:
    """Return the prediction with the fewest threads within 3 % of the fastest."""
    best = max(p.tokens_per_s for p in predictions)
    return min(
        (p for p in predictions if p.tokens_per_s >= best * (1 - TOLERANCE)),
        key=lambda p: p.threads,
    )


def commands(
    model_path: str,
    threads: int,
    batch_threads: int,
    flash_attn: bool,
    kv_types: tuple[str, str] = ("f16", "f16"),
) -> dict[str, str]:
    """Return the command of each program that sets what was chosen."""
    flash = "on" if flash_attn else "off"
    kv = "" if kv_types == ("f16", "f16") else f" -ctk {kv_types[0]} -ctv {kv_types[1]}"
    options = f"-m {model_path} -t {threads}"
    server = f"{options} -tb {batch_threads} -fa {flash}{kv}"
    return {
        "llama-server": f"llama-server {server}",
        "llama-cli": f"llama-cli {server}",
        "llama-bench": f"llama-bench {options} -fa {flash}{kv}",
        "llama-cpp-python": (
            f"Llama({model_path!r}, n_threads={threads}, n_threads_batch={batch_threads}, "
            f"flash_attn={flash_attn})"
        ),
        "ollama": f"PARAMETER num_thread {threads}",
    }


def _defaults(
    machine: Machine, predict_at: PredictAt, flash_options: Sequence[bool]
) -> dict[str, Choice]:
    """Predict what each program does when nothing else is set, where it can do that."""
    threads = {
        "llama.cpp": (machine.physical_cores or len(machine.online_cpus), True),
        "llama-cpp-python": (max(len(machine.online_cpus) // 2, 1), False),
    }
    return {
        name: _choice(predict_at(count, flash))
        for name, (count, flash) in threads.items()
        if flash in flash_options
    }


def _choice(p: Prediction) -> Choice:
    return Choice(
        threads=p.threads,
        flash_attn=p.flash_attn,
        tokens_per_s=p.tokens_per_s,
        low=p.low,
        high=p.high,
    )


def _reasons(
    machine: Machine,
    chosen: Prediction,
    predictions: dict[tuple[int, bool], Prediction],
    bandwidth_at: Callable[[int], float | None],
) -> list[str]:
    reasons = [_thread_reason(machine, chosen, predictions)]
    here, most = bandwidth_at(chosen.threads), bandwidth_at(machine.effective_cpus)
    fewer = 1 < chosen.threads < machine.effective_cpus
    if fewer and here and most and here >= most * (1 - TOLERANCE):
        reasons.append(
            f"{chosen.threads} threads already read {here / 1e9:.1f} GB/s, "
            f"{min(1.0, here / most) * 100:.0f} % of what all of them reach"
        )
    other = predictions.get((chosen.threads, not chosen.flash_attn))
    if other is not None:
        change = other.tokens_per_s / chosen.tokens_per_s - 1
        state = "off" if chosen.flash_attn else "on"
        if abs(change) >= 0.005:
            reasons.append(
                f"flash-attention {state} would give {other.tokens_per_s:.3g} tok/s "
                f"({change * 100:+.1f} %)".replace("-", "−").replace("flash−", "flash-")
            )
        else:
            reasons.append("flash-attention makes no difference at this depth")
    return reasons


def _thread_reason(
    machine: Machine,
    chosen: Prediction,
    predictions: dict[tuple[int, bool], Prediction],
) -> str:
    slower = [
        p
        for (t, flash), p in predictions.items()
        if flash == chosen.flash_attn and t < chosen.threads
    ]
    if chosen.threads == machine.effective_cpus:
        if not slower:
            return "there is one effective CPU"
        next_best = max(slower, key=lambda p: p.threads)
        loss = (1 - next_best.tokens_per_s / chosen.tokens_per_s) * 100
        return (
            f"every thread up to the {machine.effective_cpus} effective CPUs helps: "
            f"{next_best.threads} would give {loss:.0f} % less"
        )
    more = max(
        (
            p
            for (t, flash), p in predictions.items()
            if flash == chosen.flash_attn and t > chosen.threads
        ),
        key=lambda p: p.tokens_per_s,
    )
    loss = (1 - more.tokens_per_s / chosen.tokens_per_s) * 100
    if loss >= 0.5:
        return f"more threads are slower: {more.threads} would give {loss:.0f} % less"
    return (
        f"more threads gain less than {TOLERANCE * 100:.0f} %: "
        "fewer leave power and room for other programs"
    )

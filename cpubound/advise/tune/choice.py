"""What to set for a model on this machine: threads, flash-attention, KV type, with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from cpubound.advise.tune.commands import commands, context_for
from cpubound.advise.tune.defaults import program_defaults
from cpubound.advise.tune.placement import CpusFor, Placement, physical_threads, place
from cpubound.advise.tune.values import Advice, Choice, Recommendation
from cpubound.cost.thread_choice import TOLERANCE, fewest_threads, near_best
from cpubound.cost.values import Prediction, PromptPrediction
from cpubound.llama_facts import needs_flash_attn
from cpubound.machine.values import Machine, format_cpu_mask
from cpubound.model.values import ModelTraffic
from cpubound.setting import F16, Setting
from cpubound.units import format_significant

# A count that divides the work is preferred over a smaller one up to this much larger.
_EVEN_GROWTH = 4 / 3
# Flash-attention is llama.cpp's own choice: left alone unless going without gains this much.
_FLASH_GAIN = 0.01

Predict = Callable[[Setting], Prediction]


def tune(
    machine: Machine,
    predict: Predict,
    thread_counts: Sequence[int],
    *,
    model_path: str,
    cpus_for: CpusFor,
    depth_tokens: int = 0,
    trained_tokens: int | None = None,
    kv_options: Sequence[tuple[str, str]] = (F16,),
    measured_attention: Collection[tuple[tuple[str, str], bool]] = (),
    traffic: ModelTraffic | None = None,
    bandwidth_at: Callable[[int], float | None] = lambda _: None,
    prompts_at: Callable[[int], PromptPrediction | None] = lambda _: None,
    huge_page_gain: float | None = None,
    engine_features: Iterable[str] = (),
    first_reasons: Sequence[str] = (),
) -> Advice:
    """Choose the smallest thread count within 3 % of the best, flash-attention and KV type.

    Parameters
    ----------
    predict : gives the prediction at a setting.
    thread_counts : the counts to choose from; those above the effective CPUs are left out.
    cpus_for : the CPUs for a thread count.
    trained_tokens : the context that the model was trained for.
    kv_options : KV types to choose from, (K, V); the first one is kept unless another gains
        more than 3 %, or it does not fit into memory.
    measured_attention : KV types with flash-attention on or off whose rate is known; others
        are left out where there is one of these.
    traffic : one decode step, for counts that divide its heads and rows.
    bandwidth_at : read bandwidth at a thread count, for the reasons.
    prompts_at : a prompt's prediction at a thread count, None where none was measured.
    huge_page_gain, engine_features : as ``place`` takes them.
    first_reasons : what stands before the reasons found here.
    """
    counts = [t for t in thread_counts if t <= machine.effective_cpus] or [1]
    states = [(kv, flash) for kv in kv_options for flash in flash_options(kv)]
    # What was not measured counts as read at memory's rate: no match for what was.
    states = [state for state in states if state in measured_attention] or states
    groups = {
        (kv, flash): [predict(_setting(t, depth_tokens, kv, flash)) for t in counts]
        for kv, flash in states
    }
    kv, flash = _choose_attention(
        {key: fewest_threads(mine) for key, mine in groups.items()}, states[0][0]
    )
    chosen = prefer_even(groups[kv, flash], traffic)
    prompt = _choose_prompt([prompts_at(t) for t in counts])
    placement = place(
        machine,
        chosen.setting.threads,
        cpus_for,
        resident_bytes=chosen.resident_bytes,
        batch_threads=prompt.setting.threads if prompt else None,
        engine_features=engine_features,
        huge_page_gain=huge_page_gain,
        memory_bound=chosen.bound == "memory",
    )
    reasons = [
        *first_reasons,
        _thread_reason(machine, chosen, groups[kv, flash]),
        *_smt_reason(machine, chosen, groups[kv, flash]),
        *_bandwidth_reason(machine, chosen, bandwidth_at),
        *_attention_reasons(chosen, groups),
        *_prompt_reason(prompt),
        *_context_reason(depth_tokens, trained_tokens),
        *placement.reasons,
    ]
    recommendation = recommend(
        chosen, placement, reasons, context_for(depth_tokens, trained_tokens)
    )
    lines = commands(model_path, recommendation, machine, depth_tokens)
    return Advice(
        model=chosen.model,
        depth_tokens=depth_tokens,
        effective_cpus=machine.effective_cpus,
        recommendation=msgspec.structs.replace(recommendation, commands=lines),
        table=tuple(_choice(p) for mine in groups.values() for p in mine),
        defaults={
            name: _choice(predict(_setting(d.threads, depth_tokens, F16, d.flash_attn)))
            for name, d in program_defaults(machine).items()
        },
        assumptions=chosen.assumptions,
    )


def flash_options(kv: tuple[str, str]) -> tuple[bool, ...]:
    """Return the flash-attention states that a KV type allows."""
    return (True,) if needs_flash_attn(kv[1]) else (True, False)


def prefer_even(predictions: Sequence[Prediction], traffic: ModelTraffic | None) -> Prediction:
    """Return the fewest threads within 3 % of the fastest, or a few more that divide the work.

    Counts that divide neither heads nor rows leave threads waiting: on a 64-core server 48
    threads gave 3.42 tok/s, 49 gave 1.88, 63 gave 1.91 and 64 gave 3.59.
    """
    near = sorted(near_best(predictions), key=lambda p: p.setting.threads)
    fewest = near[0]
    if traffic is None or divides_work(traffic, fewest.setting.threads):
        return fewest
    limit = math.ceil(fewest.setting.threads * _EVEN_GROWTH)
    even = [
        p for p in near if p.setting.threads <= limit and divides_work(traffic, p.setting.threads)
    ]
    return even[0] if even else fewest


def divides_work(traffic: ModelTraffic, threads: int) -> bool:
    """Tell whether a thread count divides the heads and the rows of every matrix."""
    heads = [read.heads for read in traffic.attention]
    rows = [w.rows for w in traffic.weights if w.kind in ("matmul", "experts") and w.rows > 1]
    return all(count % threads == 0 for count in (*heads, *rows))


def _choose_prompt(predictions: Sequence[PromptPrediction | None]) -> PromptPrediction | None:
    """Return the fewest threads within 3 % of the fastest prompt, None if none was predicted."""
    known = [p for p in predictions if p is not None]
    best = min((p.seconds for p in known), default=0.0)
    near = [p for p in known if p.seconds <= best / (1 - TOLERANCE)]
    return min(near, key=lambda p: p.setting.threads, default=None)


def _choose_attention(
    candidates: dict[tuple[tuple[str, str], bool], Prediction], usual_kv: tuple[str, str]
) -> tuple[tuple[str, str], bool]:
    """Choose KV type and flash-attention among each pair's own best.

    What fits into memory comes first; then the usual type unless another gains over 3 %, and
    flash-attention unless going without gains over 1 %.
    """

    def weigh(key: tuple[tuple[str, str], bool]) -> tuple[bool, float]:
        kv, flash = key
        p = candidates[key]
        handicap = (1.0 if kv == usual_kv else 1 + TOLERANCE) * (1 if flash else 1 + _FLASH_GAIN)
        return p.fits_in_memory is not False, p.tokens_per_s / handicap

    return max(candidates, key=weigh)


def _setting(threads: int, depth: int, kv: tuple[str, str], flash_attn: bool) -> Setting:
    return Setting(
        threads=threads,
        depth_tokens=depth,
        kv_type_k=kv[0],
        kv_type_v=kv[1],
        flash_attn=flash_attn,
    )


def recommend(
    chosen: Prediction, placement: Placement, reasons: Sequence[str], n_ctx: int | None
) -> Recommendation:
    """Put a setting's prediction and placement together; the commands are still to be written."""
    return Recommendation(
        setting=chosen.setting,
        batch_threads=placement.batch_threads,
        cpus=placement.cpus,
        cpu_mask=format_cpu_mask(placement.cpus) if placement.cpus else None,
        batch_cpus=placement.batch_cpus,
        batch_cpu_mask=format_cpu_mask(placement.batch_cpus) if placement.batch_cpus else None,
        pin=placement.pin,
        repack=placement.repack,
        load_mode=placement.load_mode,
        numa=placement.numa,
        environment=placement.environment,
        n_ctx=n_ctx,
        tokens_per_s=chosen.tokens_per_s,
        low=chosen.low,
        high=chosen.high,
        reasons=tuple(reasons),
        commands={},
    )


def _choice(p: Prediction) -> Choice:
    return Choice(
        setting=p.setting,
        tokens_per_s=p.tokens_per_s,
        low=p.low,
        high=p.high,
    )


def _thread_reason(machine: Machine, chosen: Prediction, mine: Sequence[Prediction]) -> str:
    fewer = [p for p in mine if p.setting.threads < chosen.setting.threads]
    more = [p for p in mine if p.setting.threads > chosen.setting.threads]
    if machine.effective_cpus == 1:
        return "there is one effective CPU"
    if not more:
        next_best = max(fewer, key=lambda p: p.setting.threads, default=None)
        count = machine.effective_cpus
        if next_best is None:
            return f"no other count was measured on the {count} effective CPUs"
        loss = (1 - next_best.tokens_per_s / chosen.tokens_per_s) * 100
        return (
            f"every thread up to the {count} effective CPUs helps: "
            f"{next_best.setting.threads} would give {loss:.0f} % less"
        )
    fastest = max(more, key=lambda p: p.tokens_per_s)
    loss = (1 - fastest.tokens_per_s / chosen.tokens_per_s) * 100
    if loss >= 0.5:
        return f"more threads are slower: {fastest.setting.threads} would give {loss:.0f} % less"
    if loss > -0.5:
        return f"more threads gain nothing: {fastest.setting.threads} would be as fast"
    return (
        f"{fastest.setting.threads} threads would gain {-loss:.0f} %: fewer leave power and room "
        "for other programs, and a CPU that is not at 100 % is normal here"
    )


def _smt_reason(machine: Machine, chosen: Prediction, mine: Sequence[Prediction]) -> list[str]:
    """Say whether the second hardware threads of the cores take part, and what they change."""
    cores = physical_threads(machine)
    alone = max(
        (p for p in mine if p.setting.threads <= cores), key=lambda p: p.tokens_per_s, default=None
    )
    both = max(
        (p for p in mine if p.setting.threads > cores), key=lambda p: p.tokens_per_s, default=None
    )
    if (machine.threads_per_core or 1) < 2 or alone is None or both is None:
        return []
    change = both.tokens_per_s / alone.tokens_per_s - 1
    state = "in" if chosen.setting.threads > cores else "out"
    return [
        f"second hardware threads {state}: {both.setting.threads} threads on {cores} cores give "
        f"{'+' if change >= 0 else '−'}{abs(change) * 100:.0f} % over {alone.setting.threads}"
    ]


def _bandwidth_reason(
    machine: Machine, chosen: Prediction, bandwidth_at: Callable[[int], float | None]
) -> list[str]:
    here, most = bandwidth_at(chosen.setting.threads), bandwidth_at(machine.effective_cpus)
    fewer = 1 < chosen.setting.threads < machine.effective_cpus
    if not (fewer and here and most and here >= most * (1 - TOLERANCE)):
        return []
    return [
        f"{chosen.setting.threads} threads already read {here / 1e9:.1f} GB/s, "
        f"{min(1.0, here / most) * 100:.0f} % of what all of them reach"
    ]


def _attention_reasons(
    chosen: Prediction, groups: dict[tuple[tuple[str, str], bool], list[Prediction]]
) -> list[str]:
    """Say what the other states of flash-attention and KV types would give."""
    reasons = []
    mine = chosen.setting.kv_types
    for (kv, flash), predictions in groups.items():
        other = next((p for p in predictions if p.setting.threads == chosen.setting.threads), None)
        if other is None or (kv, flash) == (mine, chosen.setting.flash_attn):
            continue
        change = other.tokens_per_s / chosen.tokens_per_s - 1
        if kv == mine:
            if abs(change) < 0.005:
                reasons.append("flash-attention makes no difference at this depth")
                continue
            what = f"flash-attention {'on' if flash else 'off'}"
        elif abs(change) < 0.005 or other.fits_in_memory is False:
            continue
        else:
            what = f"a {kv[0]}:{kv[1]} KV cache (flash-attention {'on' if flash else 'off'})"
        reasons.append(
            f"{what} would give {format_significant(other.tokens_per_s)} tok/s "
            f"({'+' if change > 0 else '−'}{abs(change) * 100:.1f} %)"
        )
    return reasons


def _prompt_reason(prompt: PromptPrediction | None) -> list[str]:
    if prompt is None:
        return []
    threads = "1 thread" if prompt.setting.threads == 1 else f"{prompt.setting.threads} threads"
    rate = format_significant(prompt.tokens_per_s)
    return [f"a prompt of {prompt.prompt_tokens} tokens runs at {rate} tok/s with {threads}"]


def _context_reason(depth_tokens: int, trained_tokens: int | None) -> list[str]:
    if trained_tokens is None or depth_tokens <= trained_tokens:
        return []
    return [
        f"{depth_tokens} tokens are more than the {trained_tokens} the model was trained for: "
        "expect nonsense beyond them"
    ]

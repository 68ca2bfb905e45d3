"""What processing a prompt moves: its physical batches, one after the other."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from cpubound import bounds
from cpubound.errors import UsageError
from cpubound.llama_facts import N_UBATCH
from cpubound.model.traffic.step import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic, WeightRead
from cpubound.setting import Setting


def prompt_steps(
    spec: ModelSpec,
    prompt_tokens: int,
    setting: Setting,
    *,
    ubatch: int = N_UBATCH,
) -> tuple[ModelTraffic, ...]:
    """Return the traffic of each physical batch of a prompt of one sequence behind a depth.

    Each is a step of as many tokens, its attention that of their mean (with flash-attention)
    or, spanning all cells, of their last. Logits are computed for one token of a batch, so
    that behind the last layer's attention there is one token (``inp_out_ids`` in
    src/models/*.cpp, 0c1e57098bba). The memory is that of one sequence of the whole prompt.

    Raises
    ------
    UsageError : fewer than one token or too many, or a context that does not hold the prompt.
    """
    if prompt_tokens < 1:
        raise UsageError(f"a prompt has at least one token ({prompt_tokens}): give 1 or more")
    if prompt_tokens > bounds.PROMPT_TOKENS:
        raise UsageError(
            f"no model reads a prompt so long ({prompt_tokens} tokens): "
            f"give at most {bounds.PROMPT_TOKENS}"
        )
    if ubatch < 1:
        raise UsageError(f"a physical batch has at least one token ({ubatch}): give 1 or more")
    end = setting.depth_tokens + prompt_tokens
    last = structs.replace(setting, depth_tokens=end - 1, batch=1)
    whole = compute_traffic(spec, last)
    steps = []
    for start in range(setting.depth_tokens, end, ubatch):
        tokens = min(ubatch, end - start)
        at = structs.replace(
            last,
            depth_tokens=start + (tokens // 2 if setting.flash_attn else tokens - 1),
            allocated_context_tokens=setting.allocated_context_tokens or end,
            batch=tokens,
        )
        step = compute_traffic(spec, at)
        weights = tuple(
            part for read in step.weights for part in _with_one_token_at_the_end(read, step)
        )
        steps.append(replace(step, weights=weights, resident_bytes=whole.resident_bytes))
    return tuple(steps)


def _with_one_token_at_the_end(read: WeightRead, step: ModelTraffic) -> tuple[WeightRead, ...]:
    """Split what the last layer computes for one token off a read."""
    if read.role == "output":
        return (replace(read, tokens=1.0),)
    if read.role not in ("ffn", "experts", "router") or step.layers < 1:
        return (read,)
    last = read.n_bytes // step.layers
    count = max(read.count // step.layers, 1)
    # Of experts, one token reads only those that it chooses.
    share = read.tokens / step.setting.batch
    return (
        replace(read, count=read.count - count, n_bytes=read.n_bytes - last),
        replace(read, count=max(round(count * share), 1), n_bytes=round(last * share), tokens=1.0),
    )

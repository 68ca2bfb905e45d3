"""What meets a wanted rate: the file type, and the context that a model still gives it at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cpubound.advise.tune.values import FileTypeRate, TargetAdvice
from cpubound.cost.thread_choice import fewest_threads
from cpubound.cost.values import Prediction
from cpubound.llama_facts import CELL_PADDING

# No model is trained for more; ends the search where training length and memory are unknown.
MAX_CONTEXT = 2**24


def meet_target(
    target: float,
    chosen: Prediction,
    file_types: Iterable[Sequence[Prediction]],
    predict_depth: Callable[[int], Prediction],
    *,
    trained_tokens: int | None,
) -> TargetAdvice:
    """Find the largest file type and the largest context that reach a rate in tok/s.

    Parameters
    ----------
    chosen : the prediction that was chosen for the model as given.
    file_types : for each file type, its predictions at the thread counts, at the same depth;
        one that rests on less than the model as given (an unmeasured type) is left out.
    predict_depth : the model as given at the chosen setting and another depth.
    """
    best = [fewest_threads(predictions) for predictions in file_types]
    rows = [_file_type_rate(p) for p in best if p.basis == chosen.basis]
    rows.sort(key=lambda row: -row.file_bytes)
    tokens, limit = _largest_context(target, predict_depth, trained_tokens)
    return TargetAdvice(
        tokens_per_s=target,
        met=chosen.tokens_per_s >= target,
        file_type=next(
            (r for r in rows if r.tokens_per_s >= target and r.fits_in_memory is not False), None
        ),
        file_types=tuple(rows),
        context_tokens=tokens,
        context_limit=limit,
    )


def _file_type_rate(p: Prediction) -> FileTypeRate:
    return FileTypeRate(
        quant_label=p.quant_label,
        file_bytes=p.file_bytes,
        threads=p.setting.threads,
        tokens_per_s=p.tokens_per_s,
        low=p.low,
        high=p.high,
        fits_in_memory=p.fits_in_memory,
    )


def _largest_context(
    target: float, predict_depth: Callable[[int], Prediction], trained_tokens: int | None
) -> tuple[int | None, str | None]:
    """Halve the range of depths, since a deeper cache is never faster; say what ends it."""

    def failure(depth: int) -> str | None:
        p = predict_depth(depth)
        if p.tokens_per_s < target:
            return "rate"
        return "memory" if p.fits_in_memory is False else None

    reason = failure(0)
    if reason is not None:
        return None, reason
    good, bad = 0, (trained_tokens or MAX_CONTEXT) // CELL_PADDING
    reason = failure(bad * CELL_PADDING)
    if reason is None:
        return bad * CELL_PADDING, "training"
    while bad - good > 1:
        middle = (good + bad) // 2
        found = failure(middle * CELL_PADDING)
        if found is None:
            good = middle
        else:
            bad, reason = middle, found
    return good * CELL_PADDING, reason

"""One model on one profile: predictions at any setting, and the advice made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from cpubound.advise.tune.choice import recommend, tune
from cpubound.advise.tune.commands import commands
from cpubound.advise.tune.placement import CpusFor, place
from cpubound.advise.tune.target import meet_target
from cpubound.advise.tune.values import Advice, Verified
from cpubound.cost.predict import predict_decode, predict_prompt, weights_bandwidth
from cpubound.cost.rates import measured_attention, measures_batches
from cpubound.cost.thread_choice import TOLERANCE
from cpubound.cost.values import Prediction, PromptPrediction
from cpubound.errors import UsageError
from cpubound.machine.values import Machine, changed_limits
from cpubound.model.ftype import COMMON_FILE_TYPES
from cpubound.model.retype import retype
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.profile.values import MachineProfile
from cpubound.setting import F16, Setting

# As llama-bench's pp512: one full micro-batch.
PROMPT_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Session:
    """A model, a profile and the thread counts to choose from; each traffic is worked out once."""

    profile: MachineProfile
    spec: ModelSpec
    thread_counts: tuple[int, ...]
    _traffic: dict[Setting, ModelTraffic] = field(default_factory=dict)

    def predict(self, setting: Setting) -> Prediction:
        """Predict the model at a setting."""
        return predict_decode(self.profile, self.traffic(setting), setting.threads)

    def traffic(self, setting: Setting) -> ModelTraffic:
        """Return what one decode step moves; thread counts share it."""
        key = structs.replace(setting, threads=1)
        if key not in self._traffic:
            self._traffic[key] = compute_traffic(self.spec, key)
        return self._traffic[key]

    def predict_prompt(self, setting: Setting) -> PromptPrediction | None:
        """Predict the usual prompt at a setting, None where the profile has no rates for it."""
        if not measures_batches(self.profile.engine):
            return None
        behind = setting.depth_tokens + PROMPT_TOKENS
        after = self.traffic(structs.replace(setting, depth_tokens=behind))
        steps = prompt_steps(self.spec, PROMPT_TOKENS, setting)
        return predict_prompt(self.profile, steps, after, setting.threads)

    def smallest_traffic(self, depth: int, kv_options: Sequence[tuple[str, str]]) -> ModelTraffic:
        """Return the traffic of the KV type that takes the least memory."""
        found = [
            self.traffic(Setting(depth_tokens=depth, kv_type_k=k, kv_type_v=v))
            for k, v in kv_options
        ]
        return min(found, key=lambda traffic: traffic.resident_bytes)

    @property
    def trained_tokens(self) -> int | None:
        """The context that the model was trained for."""
        tokens = self.spec.hyper_parameters.get("context_length")
        return tokens if isinstance(tokens, int) else None


def _measured_attention(profile: MachineProfile) -> set[tuple[tuple[str, str], bool]]:
    rows = measured_attention(profile.engine) if profile.engine else ()
    return {((k.lower(), v.lower()), flash_attn) for k, v, flash_attn, _ in rows}


def kv_options(profile: MachineProfile, depth: int) -> list[tuple[str, str]]:
    """Return the KV types whose attention was measured, F16 first; F16 alone without a cache."""
    if depth == 0 or profile.engine is None:
        return [F16]
    measured = {kv for kv, _ in _measured_attention(profile)}
    return [F16, *sorted(measured - {F16})]


def advise(
    session: Session,
    placement: CpusFor,
    *,
    depth_tokens: int,
    kv_options: Sequence[tuple[str, str]],
    model_path: str,
    target: float | None = None,
    made_on: Machine | None = None,
) -> Advice:
    """Choose every setting of a model, and what meets a target in tok/s if one is given.

    ``placement`` gives the CPUs for a thread count that was not measured; ``made_on`` is the
    machine as it was when the profile was made.
    """
    profile = session.profile
    usual = Setting(
        depth_tokens=depth_tokens,
        kv_type_k=kv_options[0][0],
        kv_type_v=kv_options[0][1],
    )
    advice = tune(
        profile.machine,
        session.predict,
        session.thread_counts,
        model_path=model_path,
        cpus_for=_allowed_placement(profile, placement),
        depth_tokens=depth_tokens,
        trained_tokens=session.trained_tokens,
        kv_options=kv_options,
        measured_attention=_measured_attention(profile),
        traffic=session.traffic(usual),
        prompts_at=lambda threads: session.predict_prompt(structs.replace(usual, threads=threads)),
        bandwidth_at=lambda threads: weights_bandwidth(profile, threads),
        huge_page_gain=_huge_page_gain(profile),
        engine_features=profile.engine.features if profile.engine else (),
        first_reasons=changed_limits(made_on or profile.machine, profile.machine),
    )
    return advice if target is None else _with_target(advice, session, target)


def commands_of(
    session: Session, placement: CpusFor, advice: Advice, row: Verified, model_path: str
) -> dict[str, str]:
    """Return the commands that set what a row of the verification ran.

    Prompts, context and memory policy stay those of the advice.
    """
    profile, chosen = session.profile, advice.recommendation
    prediction = session.predict(row.setting)
    placed = place(
        profile.machine,
        row.setting.threads,
        _allowed_placement(profile, placement),
        resident_bytes=prediction.resident_bytes,
        batch_threads=chosen.batch_threads,
        engine_features=profile.engine.features if profile.engine else (),
    )
    is_mapped_again = row.mmap and chosen.load_mode == "none"
    placed = replace(placed, load_mode="auto" if is_mapped_again else chosen.load_mode)
    r = recommend(prediction, placed, (), chosen.n_ctx)
    return commands(model_path, r, profile.machine, advice.depth_tokens)


def _allowed_placement(profile: MachineProfile, placement: CpusFor) -> CpusFor:
    """Take the CPUs that were measured where they may still be used, else place anew.

    Another placement than that of the main curve (spread over cache groups, say) counts
    where it read over 3 % more.
    """
    measured = profile.measurements("read", "anon_4k")
    allowed = set(profile.machine.allowed_cpus)

    def cpus_for(threads: int) -> tuple[int, ...] | None:
        main = measured.get(threads)
        if main is None or not main.cpus or not allowed.issuperset(main.cpus):
            return placement(threads)
        others = [
            row
            for row in profile.placements
            if (row.kernel, row.page_kind, row.threads) == ("read", "anon_4k", threads)
            and row.cpus
            and allowed.issuperset(row.cpus)
        ]
        best = max(others, key=lambda row: row.median_bytes_per_s, default=main)
        gains = best.median_bytes_per_s > main.median_bytes_per_s * (1 + TOLERANCE)
        return best.cpus if gains else main.cpus

    return cpus_for


def _with_target(advice: Advice, session: Session, target: float) -> Advice:
    chosen = advice.recommendation.setting
    found = meet_target(
        target,
        session.predict(chosen),
        _at_file_types(session, chosen),
        lambda depth: session.predict(structs.replace(chosen, depth_tokens=depth)),
        trained_tokens=session.trained_tokens,
    )
    return structs.replace(advice, target=found)


def _at_file_types(session: Session, chosen: Setting) -> Iterator[list[Prediction]]:
    """Predict the model at each common file type, quantised from its original weights."""
    for name in COMMON_FILE_TYPES:
        try:
            spec = retype(session.spec, name)
        except UsageError:
            continue  # rows of this model do not divide into blocks of that type
        traffic = compute_traffic(spec, chosen)
        yield [predict_decode(session.profile, traffic, t) for t in session.thread_counts]


def _huge_page_gain(profile: MachineProfile) -> float | None:
    """Return read bandwidth on 2 MiB pages over that on 4 KiB pages, None if not measured."""
    small, huge = (profile.measurements("read", kind) for kind in ("anon_4k", "anon_2m"))
    both = set(small) & set(huge)
    if not both:
        return None
    return huge[max(both)].median_bytes_per_s / small[max(both)].median_bytes_per_s

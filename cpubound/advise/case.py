"""What the rules about models look at: a model at a setting, and its run on a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from msgspec import structs

from cpubound.advise.engines import Engine
from cpubound.cost.predict import predict_decode, weights_bandwidth
from cpubound.cost.rates import attention_rate, measures_batches
from cpubound.cost.thread_choice import TOLERANCE, fewest_threads
from cpubound.cost.values import Prediction
from cpubound.errors import UsageError
from cpubound.machine.values import Machine
from cpubound.model.hyper import HyperParameters
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting


@dataclass(frozen=True, kw_only=True)
class ModelCase:
    """A model at one setting, on no machine in particular."""

    spec: ModelSpec
    setting: Setting = Setting()  # noqa: RUF009 (an immutable value)

    @cached_property
    def traffic(self) -> ModelTraffic:
        """What one decode step moves."""
        return compute_traffic(self.spec, self.setting)

    @property
    def hyper(self) -> HyperParameters:
        """The model's hyper-parameters."""
        return HyperParameters(self.spec)


@dataclass(frozen=True, kw_only=True)
class Case(ModelCase):
    """A model at a setting on a machine, with what was observed there.

    ``samples_tokens_per_s`` are rates of repetitions in their order; ``features`` the
    instructions that the build which ran names, None where it did not say; ``asked_features``
    all that its list speaks of, None where it lists only what is there; ``machine_now`` the
    machine that the profile should be of, None where the profile is of another on purpose.
    """

    profile: MachineProfile
    engine: Engine
    model_argument: str  # as commands take it
    observed_tokens_per_s: float
    samples_tokens_per_s: tuple[float, ...] = ()
    features: tuple[str, ...] | None = None
    asked_features: tuple[str, ...] | None = None
    machine_now: Machine | None = None

    @property
    def machine(self) -> Machine:
        """The machine that was calibrated."""
        return self.profile.machine

    @cached_property
    def prediction(self) -> Prediction:
        """The prediction at this setting, of all sequences together."""
        return predict_decode(self.profile, self.traffic, self.setting.threads)

    @property
    def is_predictable(self) -> bool:
        """Whether the prediction rests on measurements: batches were not always measured."""
        return self.setting.batch == 1 or measures_batches(self.profile.engine)

    @cached_property
    def predictions_by_threads(self) -> dict[int, Prediction]:
        """Predictions at the thread counts that were measured, within the effective CPUs."""
        counts = sorted(t for t in self.measured_threads if t <= self.machine.effective_cpus)
        return {t: predict_decode(self.profile, self.traffic, t) for t in counts}

    @property
    def best(self) -> Prediction:
        """The prediction with the fewest threads that is within 3 % of the fastest."""
        return fewest_threads(list(self.predictions_by_threads.values()) or [self.prediction])

    @property
    def measured_threads(self) -> frozenset[int]:
        """The thread counts that the profile measured at."""
        engine = self.profile.engine
        if engine is not None and engine.tables:
            return frozenset(engine.threads)
        return frozenset(self.profile.measurements("read", "anon_4k"))

    @property
    def bandwidth(self) -> float | None:
        """Median read bandwidth at these threads on pages as weights lie on them, bytes/s."""
        return weights_bandwidth(self.profile, self.setting.threads)

    @property
    def implied_bytes_per_s(self) -> float:
        """The bandwidth that the observed rate needs."""
        return self.traffic.total_bytes * self.observed_tokens_per_s / self.setting.batch

    @property
    def is_slow(self) -> bool:
        """Whether the observed rate lies under the prediction's interval."""
        return self.observed_tokens_per_s < self.prediction.low

    @property
    def is_within(self) -> bool:
        """Whether the observed rate lies within the prediction's interval."""
        return self.prediction.low <= self.observed_tokens_per_s <= self.prediction.high

    @property
    def is_clearly_slow(self) -> bool:
        """Whether it lies under twice the interval: of good predictions, 1 in 2,000 does.

        The interval is one of 90 % in the logarithm, so that twice its width is 3.29 standard
        errors.
        """
        p = self.prediction
        return self.observed_tokens_per_s < p.low * p.low / p.tokens_per_s

    @property
    def attention_was_measured(self) -> bool:
        """Whether the engine's attention was measured with these KV types."""
        engine = self.profile.engine
        if engine is None or self.prediction.basis != "engine":
            return False
        rates = (
            attention_rate(engine, self.setting, read.head_dim_k) for read in self.traffic.attention
        )
        return all(rate is not None for rate in rates)

    def at(self, **changes: Any) -> Case:
        """Return the same with some fields of the setting changed."""
        return replace(self, setting=structs.replace(self.setting, **changes))

    def gain(self, better: Prediction) -> float:
        """Return what a better setting gives by the model, in tok/s."""
        return max(better.tokens_per_s - self.prediction.tokens_per_s, 0.0)

    def is_gain(self, better: Prediction) -> bool:
        """Whether another setting is better by more than makes no difference."""
        return better.tokens_per_s > self.prediction.tokens_per_s * (1 + TOLERANCE)


def require_rate(tokens_per_s: float) -> float:
    """Return an observed rate, or raise ``UsageError`` if it cannot be one."""
    if not 0 < tokens_per_s < 1e12:
        raise UsageError(
            f"an observed rate must be a positive number of tokens per second ({tokens_per_s:g}): "
            "give what the engine printed for generation (eval)"
        )
    return tokens_per_s

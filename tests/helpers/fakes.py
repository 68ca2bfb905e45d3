"""Stand-ins for hardware and engines: deterministic, quick, and they keep a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import TYPE_CHECKING

from cpubound.engine.values import EngineIdentity, Observation, RunSettings
from cpubound.errors import EngineCrashed
from cpubound.model.layout import build_model
from cpubound.model.values import ModelSpec, QuantType

if TYPE_CHECKING:
    from typing_extensions import Self

FAKE_ENGINE = EngineIdentity(name="fake", version="1", build="none", features=("AVX2",))


def never(_settings: RunSettings) -> bool:
    return False


@dataclass(kw_only=True)
class OneModelRunner:
    """A runner of one model at a time, whose times follow from the settings by a formula.

    ``seconds_per_step`` gives a step's time, ``jitter`` relative differences that the
    steps go through in turn, ``crash_if`` the settings at which the engine dies.
    """

    seconds_per_step: Callable[[RunSettings], float]
    jitter: tuple[float, ...] = (0.0,)
    crash_if: Callable[[RunSettings], bool] = never
    load_s: float = 0.5
    runs: list[RunSettings] = field(default_factory=list)
    open_models: set[str] = field(default_factory=set)
    closed: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def identity(self) -> EngineIdentity:
        return FAKE_ENGINE

    def run(self, settings: RunSettings) -> Observation:
        self.runs.append(settings)
        is_new = self._open(settings)
        step_s = self.seconds_per_step(settings)
        samples = [step_s * (1 + part) for part in islice(cycle(self.jitter), settings.tokens)]
        return Observation(
            settings=settings,
            engine=FAKE_ENGINE,
            samples_s=tuple(samples),
            load_s=self.load_s if is_new else None,
        )

    def close_model(self, model_path: str) -> None:
        self.open_models.discard(model_path)

    def close(self) -> None:
        self.open_models.clear()
        self.closed = True

    def _open(self, settings: RunSettings) -> bool:
        """Open a model, or die; tell whether it was not open before."""
        if self.crash_if(settings):
            self.open_models.clear()
            raise EngineCrashed(
                f"llama.cpp ended inside a run ({settings.model_path}): try another"
            )
        is_new = settings.model_path not in self.open_models
        self.open_models.add(settings.model_path)
        return is_new


@dataclass(kw_only=True)
class FakeRunner(OneModelRunner):
    """A runner that decodes several open models in turn too, as llama.cpp in a child does.

    The jitter goes on from one token to the next, whichever model it is of.
    """

    rotations: list[tuple[RunSettings, ...]] = field(default_factory=list)
    turns: int = 0

    def rotate(
        self, runs: Sequence[RunSettings], *, passes: int, seed: int
    ) -> tuple[tuple[float, ...], ...]:
        self.rotations.append(tuple(runs))
        for settings in runs:
            self._open(settings)
        samples: list[list[float]] = [[] for _ in runs]
        for _ in range(passes):
            for settings, row in zip(runs, samples, strict=True):
                part = self.jitter[self.turns % len(self.jitter)]
                self.turns += 1
                row.append(self.seconds_per_step(settings) * (1 + part))
        return tuple(tuple(row) for row in samples)


def seconds_from_bytes(
    step_bytes: Mapping[str, int],
    *,
    bytes_per_s: float,
    overhead_s: float = 0.0,
    cache_s_per_token: float = 0.0,
) -> Callable[[RunSettings], float]:
    """Make a formula: bytes of the model by path, over a rate that grows with the threads."""

    def seconds(settings: RunSettings) -> float:
        weights_s = step_bytes[settings.model_path] / (bytes_per_s * settings.setting.threads)
        return weights_s + overhead_s + cache_s_per_token * settings.setting.depth_tokens

    return seconds


def zero_blocks(quant: QuantType, blocks: int, *, scale: float, seed: int) -> bytes:
    """Stand in for ggml's quantiser: blocks that are valid and hold zeros."""
    return bytes(quant.block_bytes * blocks)


def tiny_model(
    file_type: str = "Q8_0",
    *,
    architecture: str = "llama",
    layers: int = 2,
    vocabulary_size: int = 512,
    **hyper_parameters: int | float,
) -> ModelSpec:
    """Describe a model of two narrow layers that llama.cpp loads in no time."""
    return build_model(
        architecture,
        {
            "block_count": layers,
            "context_length": 4096,
            "embedding_length": 256,
            "feed_forward_length": 512,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": 64,
            **hyper_parameters,
        },
        file_type,
        vocabulary_size=vocabulary_size,
        tied_output=True,
        name=f"tiny-{file_type.lower()}",
    )

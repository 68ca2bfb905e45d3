"""Reading a Hugging Face config: values with clear errors, and what all families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpubound.errors import InputError
from cpubound.llama_facts import MAX_LAYERS
from cpubound.model.values import HyperParameter

Keys = dict[str, HyperParameter]

MAX_INTEGER = 2**40  # far above any dimension
MAX_NUMBER = 1e30


class Config:
    """The values of a config, read with a clear error where one is missing or odd."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, *names: str) -> Any:
        """Return the first of these that is there and not null, or None."""
        return next((self.values[n] for n in names if self.values.get(n) is not None), None)

    def integer(self, *names: str, default: int | None = None) -> int:
        """Return the first of these as a whole number from 0 to 2**40."""
        value = self.number(*names, default=default)
        if value != int(value) or not 0 <= value <= MAX_INTEGER:
            raise InputError(
                f"config has no whole number for {names[0]} ({value!r}): check config.json"
            )
        return int(value)

    def number(self, *names: str, default: float | None = None) -> float:
        """Return the first of these as a finite float."""
        value = self.get(*names)
        if value is None:
            value = default
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is None or not is_number or not abs(value) <= MAX_NUMBER:
            raise InputError(f"config has no number for {names[0]} ({value!r}): check config.json")
        return float(value)

    def text(self, *names: str) -> str:
        """Return the first of these as text, empty if there is none."""
        value = self.get(*names)
        return value if isinstance(value, str) else ""

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of numbers, empty if there is none."""
        return tuple(Config({name: value}).number(name) for value in self.sequence(name))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, empty if there is none."""
        return tuple(Config({name: value}).integer(name) for value in self.sequence(name))

    def equal_integer(self, name: str) -> int:
        """Return what a list gives for every layer alike, or a single number."""
        if not isinstance(self.get(name), (list, tuple)):
            return self.integer(name)
        values = set(self.integers(name))
        if len(values) != 1:
            raise InputError(f"config has no one value for {name} ({values}): check config.json")
        return values.pop()

    def sequence(self, name: str) -> Sequence[Any]:
        """Return a list, empty if there is none."""
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            raise InputError(f"config has no list for {name} ({value!r}): check config.json")
        return value

    def mapping(self, *names: str) -> Config:
        """Return a nested table, empty if there is none."""
        value = self.get(*names)
        return Config(value if isinstance(value, Mapping) else {})

    @property
    def layers(self) -> int:
        """Number of layers that a token passes (without draft layers)."""
        count = self.integer("num_hidden_layers", "n_layers", "num_layers", "n_layer")
        if not 1 <= count <= MAX_LAYERS:
            raise InputError(
                f"llama.cpp runs 1 to {MAX_LAYERS} layers (num_hidden_layers {count}):"
                " check config.json"
            )
        return count

    @property
    def heads(self) -> int:
        return self.integer("num_attention_heads", "n_head", "n_heads")

    @property
    def head_dim(self) -> int:
        if self.get("head_dim"):
            return self.integer("head_dim")
        return self.integer("hidden_size") // max(self.heads, 1)

    @property
    def rope(self) -> Config:
        """Rope parameters of the layers with full attention, old spelling or new."""
        rope = self.mapping("rope_parameters", "rope_scaling")
        return rope.mapping("full_attention") if rope.get("full_attention") else rope

    @property
    def partial_rotary_factor(self) -> float | None:
        """The share of a head that is rotated, None if the config does not say."""
        for config in (self.rope, self):
            if config.get("partial_rotary_factor"):
                return config.number("partial_rotary_factor")
        return None

    @property
    def layer_types(self) -> Sequence[Any]:
        """What each layer is, empty if the config does not say."""
        return self.sequence("layer_types")


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How one ``model_type`` is written: its architecture and what differs from the rest."""

    architecture: str
    extend: Callable[[Config, Keys], None] | None = None
    features: Callable[[Config], Sequence[str]] | None = None
    tied_by_default: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    vocabulary_limit: int | None = None  # rows past it the converter drops


# GGUF key, then the config names that hold it (TextModel.set_gguf_parameters).
_COMMON_INTEGERS = (
    (
        "context_length",
        "max_position_embeddings",
        "n_ctx",
        "n_positions",
        "max_length",
        "model_max_length",
    ),
    ("embedding_length", "hidden_size", "n_embd", "d_model"),
    ("feed_forward_length", "intermediate_size", "n_inner", "hidden_dim"),
    ("attention.head_count", "num_attention_heads", "n_head", "n_heads"),
    ("attention.head_count_kv", "num_key_value_heads", "n_kv_heads"),
    ("expert_count", "num_local_experts", "num_experts", "n_routed_experts"),
    ("expert_used_count", "num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
)
_GATING_FUNCTIONS = {"softmax": 1, "sigmoid": 2}


def common_keys(config: Config) -> Keys:
    """Map what every family shares (``TextModel.set_gguf_parameters``)."""
    keys: Keys = {"block_count": config.layers}
    for key, *names in _COMMON_INTEGERS:
        if isinstance(config.get(*names), (int, float)):
            keys[key] = config.integer(*names)
    if config.get("rms_norm_eps", "norm_eps") is not None:
        keys["attention.layer_norm_rms_epsilon"] = config.number("rms_norm_eps", "norm_eps")
    epsilon_names = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
    if config.get(*epsilon_names) is not None:
        keys["attention.layer_norm_epsilon"] = config.number(*epsilon_names)
    if config.get("head_dim") is not None:
        keys["attention.key_length"] = keys["attention.value_length"] = config.head_dim
    gating = config.text("scoring_func", "score_function", "moe_router_activation_func")
    if gating in _GATING_FUNCTIONS:
        keys["expert_gating_func"] = _GATING_FUNCTIONS[gating]
    _add_rope(config, keys)
    return keys


def _add_rope(config: Config, keys: Keys) -> None:
    rope = config.rope
    for holder in (config, rope):
        if isinstance(holder.get("rope_theta"), (int, float)):
            keys["rope.freq_base"] = holder.number("rope_theta")
    kind = rope.text("rope_type", "type")
    if kind == "linear":
        keys["rope.scaling.type"] = "linear"
        keys["rope.scaling.factor"] = rope.number("factor")
    elif kind == "yarn":
        keys["rope.scaling.type"] = "yarn"
        keys["rope.scaling.factor"] = rope.number("factor")
        keys["rope.scaling.original_context_length"] = rope.integer(
            "original_max_position_embeddings"
        )
    elif kind in ("su", "longrope"):
        keys["rope.scaling.type"] = "longrope"

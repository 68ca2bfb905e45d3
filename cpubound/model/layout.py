"""Hyper-parameters to the names and shapes of a model's tensors.

What each architecture holds is data (``layouts.toml``); here is how its dimensions and
layer kinds follow from the GGUF keys (llama.cpp ``src/llama-hparams.cpp`` and
``load_arch_hparams`` in ``src/models/*.cpp``, commit 0c1e57098bba).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod

from cpubound.errors import UsageError
from cpubound.llama_facts import MAX_LAYERS
from cpubound.model.ftype import file_type
from cpubound.model.ftype.tensor_types import NamedShape, tensor_types
from cpubound.model.values import HyperParameter, ModelSpec, QuantType, Tensor
from cpubound.package_data import read_toml

EXPECTED_DIFFERENCE = 0.005  # of parameter counts
_NamedShapes = list[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Which groups of tensors an architecture has, outside its layers and in each."""

    model: tuple[str, ...]
    layer: tuple[str, ...]
    optional: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A model without a file type: everything that ``build_model`` needs but that."""

    name: str
    architecture: str
    hyper_parameters: Mapping[str, HyperParameter]
    vocabulary_size: int
    tied_output: bool
    features: tuple[str, ...] = ()
    stored_parameters: int | None = None  # what the published weights hold, where known
    read_as: str | None = None  # the kind of model whose layout was taken, where it has another

    def at(self, file_type_name: str) -> ModelSpec:
        """Describe the model at a file type; raises ``UsageError`` as ``build_model``."""
        spec = _at_file_type(
            self.tensor_shapes,
            self.architecture,
            self.hyper_parameters,
            file_type_name,
            vocabulary_size=self.vocabulary_size,
            name=self.name,
        )
        return replace(spec, warnings=self._warnings())

    @cached_property
    def tensor_shapes(self) -> tuple[NamedShape, ...]:
        """Names and shapes of all tensors; raises ``UsageError`` as ``build_model``."""
        return tensor_shapes(
            self.architecture,
            self.hyper_parameters,
            vocabulary_size=self.vocabulary_size,
            tied_output=self.tied_output,
            features=self.features,
        )

    @property
    def parameters(self) -> int:
        """How many weights the tensors hold."""
        return sum(prod(tensor.shape) for tensor in self.tensor_shapes)

    def _warnings(self) -> tuple[str, ...]:
        stored, read_as = self.stored_parameters, self.read_as
        taken = () if read_as is None else (f"the layout is that of {read_as}, as its class says",)
        if not stored or abs(self.parameters / stored - 1) <= EXPECTED_DIFFERENCE:
            return taken
        return (
            *taken,
            f"the layout has {self.parameters / 1e9:.4g} billion parameters, the stored weights"
            f" {stored / 1e9:.4g}: vision or draft layers are left out, or the layout differs",
        )


def architectures() -> tuple[str, ...]:
    """Return the architectures whose tensors are known without a file, sorted."""
    return tuple(sorted(_layouts()[1]))


def layout_of(architecture: str) -> Layout:
    """Find an architecture's layout; ``UsageError`` where there is none."""
    found = _layouts()[1].get(architecture)
    if found is None:
        raise UsageError(
            f"no tensor layout for this architecture ({architecture}):"
            f" give a GGUF file, or one of {', '.join(architectures())}"
        )
    return found


def tensor_shapes(
    architecture: str,
    hyper_parameters: Mapping[str, HyperParameter],
    *,
    vocabulary_size: int,
    tied_output: bool,
    features: Sequence[str] = (),
) -> tuple[NamedShape, ...]:
    """List the tensors of a model: names and shapes, contiguous dimension first.

    ``features`` names the optional groups of the layout that this model has (for example
    ``rope_freqs``, ``qkv_bias``). Raises ``UsageError`` for an architecture or feature that
    has no layout, or a hyper-parameter that is missing or does not fit.
    """
    layout = layout_of(architecture)
    optional = {entry.removeprefix("model.").rpartition(":")[2]: entry for entry in layout.optional}
    unknown = [feature for feature in features if feature not in optional]
    if unknown:
        raise UsageError(
            f"{architecture} has no optional tensors of this name ({unknown[0]}):"
            f" it has {', '.join(sorted(optional)) or 'none'}"
        )
    chosen = [optional[feature] for feature in features]
    model = [*layout.model, *(e.removeprefix("model.") for e in chosen if e.startswith("model."))]
    layer = [*layout.layer, *(e for e in chosen if not e.startswith("model."))]
    layers = _Layers(architecture, hyper_parameters, vocabulary_size)
    shapes = [
        shape
        for entry in model
        if not (tied_output and entry == "output")
        for shape in layers.shapes(entry, 0, "")
    ]
    for index in range(layers.count):
        for entry in layer:
            shapes += layers.shapes(entry, index, f"blk.{index}.")
    return tuple(shapes)


def build_model(
    architecture: str,
    hyper_parameters: Mapping[str, HyperParameter],
    file_type_name: str,
    *,
    vocabulary_size: int,
    tied_output: bool,
    name: str,
    features: Sequence[str] = (),
) -> ModelSpec:
    """Describe a model that has no file, at a file type.

    ``hyper_parameters`` are GGUF keys without the architecture's prefix, complete enough
    for llama.cpp to load a file written from them. Offsets are those of one file with
    llama.cpp's default alignment of 32 bytes. Raises ``UsageError`` as ``tensor_shapes``.
    """
    shapes = tensor_shapes(
        architecture,
        hyper_parameters,
        vocabulary_size=vocabulary_size,
        tied_output=tied_output,
        features=features,
    )
    return _at_file_type(
        shapes,
        architecture,
        hyper_parameters,
        file_type_name,
        vocabulary_size=vocabulary_size,
        name=name,
    )


def _at_file_type(
    shapes: Sequence[NamedShape],
    architecture: str,
    hyper_parameters: Mapping[str, HyperParameter],
    file_type_name: str,
    *,
    vocabulary_size: int,
    name: str,
) -> ModelSpec:
    types = tensor_types(
        shapes, file_type_name, architecture=architecture, hyper_parameters=hyper_parameters
    )
    return ModelSpec(
        name=name,
        architecture=architecture,
        hyper_parameters={"vocab_size": vocabulary_size, **hyper_parameters},
        tensors=place_tensors(shapes, types),
        vocabulary_size=vocabulary_size,
        file_type=file_type(file_type_name).id,
    )


def place_tensors(shapes: Sequence[NamedShape], types: Sequence[QuantType]) -> tuple[Tensor, ...]:
    """Give tensors their types and their offsets in one file of alignment 32."""
    tensors: list[Tensor] = []
    offset = 0
    for shape, type_ in zip(shapes, types, strict=True):
        tensor = Tensor(name=shape.name, type=type_, shape=shape.shape, offset=offset)
        tensors.append(tensor)
        offset += -(-tensor.n_bytes // 32) * 32
    return tuple(tensors)


@cache
def _layouts() -> tuple[dict[str, tuple[str, ...]], dict[str, Layout]]:
    data = read_toml("model", "layouts.toml")
    groups = {name: tuple(lines) for name, lines in data["groups"].items()}
    found: dict[str, Layout] = {}
    for name, entry in data["architectures"].items():
        layout = Layout(
            model=tuple(entry.get("model", ("token_embd", "output_norm", "output"))),
            layer=tuple(entry["layer"]),
            optional=tuple(entry.get("optional", ())),
        )
        for alias in (name, *entry.get("same", ())):
            found[alias] = layout
    return groups, found


class _Layers:
    """Dimensions and kinds of each layer, read from the hyper-parameters."""

    def __init__(
        self, architecture: str, keys: Mapping[str, HyperParameter], vocabulary_size: int
    ) -> None:
        self.architecture = architecture
        self.keys = keys
        self.vocabulary_size = vocabulary_size
        self.count = self._number("block_count", 0)
        if not 1 <= self.count <= MAX_LAYERS:
            raise UsageError(
                f"{architecture}: llama.cpp runs 1 to {MAX_LAYERS} layers"
                f" (block_count {self.count}): correct it"
            )
        self.trunk = self.count - self._number("nextn_predict_layers", 0, 0)
        self._known_dimensions: dict[int, dict[str, int]] = {}
        # By the dimensions that a group has: most layers repeat one another.
        self._known_groups: dict[tuple[str, tuple[int, ...]], _NamedShapes] = {}

    def shapes(self, entry: str, index: int, prefix: str) -> Iterator[NamedShape]:
        """Yield the tensors of a "WHEN:group" entry for one layer."""
        when, _, group = entry.rpartition(":")
        if when and not self._holds(when, index):
            return
        # What speaks of a layer outside the layers (rope factors) means one with full attention.
        layer = index if prefix else self._full_attention_layer()
        if layer not in self._known_dimensions:
            self._known_dimensions[layer] = self._dimensions(layer)
        dimensions = self._known_dimensions[layer]
        key = (group, tuple(dimensions.values()))
        if key not in self._known_groups:
            self._known_groups[key] = self._group(group, dimensions, prefix)
        for name, shape in self._known_groups[key]:
            yield NamedShape(name=prefix + name, shape=shape)

    def _group(self, group: str, dimensions: Mapping[str, int], prefix: str) -> _NamedShapes:
        found = []
        for line in _layouts()[0][group]:
            name, *extents = line.split()
            shape = tuple(_evaluate(extent, dimensions) for extent in extents)
            if any(extent <= 0 for extent in shape):
                raise UsageError(
                    f"{self.architecture}: tensor {prefix}{name} would have the shape"
                    f" {list(shape)}: check the hyper-parameters"
                )
            found.append((name, shape))
        return found

    def _number(self, key: str, index: int, default: int | None = None) -> int:
        value = self.keys.get(key)
        if isinstance(value, tuple):
            value = value[index] if index < len(value) else None
        if value is None:
            value = default
        if value is None or isinstance(value, str):
            raise UsageError(
                f"{self.architecture} needs a number for the hyper-parameter {key}"
                f" ({self.keys.get(key)}): give one"
            )
        return int(value)

    def _holds(self, when: str, index: int) -> bool:
        if when == "nextn":
            return index >= self.trunk
        if when in ("attention", "recurrent"):
            return (self._mixer(index) == when) and not self._is_ffn_only(index)
        if when in ("dense", "moe", "shared"):
            return self._holds_ffn(when, index)
        if when in ("q_lora", "q_full"):
            return (self._number("attention.q_lora_rank", 0, 0) > 0) == (when == "q_lora")
        if when == "per_layer":
            return self._number("embedding_length_per_layer_input", 0, 0) > 0
        if when in ("window", "full"):
            return self._is_window(index) == (when == "window")
        raise UsageError(f"layouts.toml names an unknown kind of layer ({when}): correct it")

    def _mixer(self, index: int) -> str:
        interval = self._number("full_attention_interval", 0, 0)
        if interval:
            return (
                "attention" if index >= self.trunk or (index + 1) % interval == 0 else "recurrent"
            )
        return "attention" if self._number("attention.head_count_kv", index, 1) else "recurrent"

    def _is_ffn_only(self, index: int) -> bool:
        # Nemotron-H layers are one of the three: mixer, attention, feed-forward.
        return self._has_single_mixers() and self._number("feed_forward_length", index, 0) > 0

    def _has_single_mixers(self) -> bool:
        return self.architecture in ("nemotron_h", "nemotron_h_moe")

    def _holds_ffn(self, when: str, index: int) -> bool:
        if self._has_single_mixers() and not self._is_ffn_only(index):
            return False
        experts = self._number("expert_count", 0, 0)
        step = self._number("interleave_moe_layer_step", 0, 1)
        is_moe = (
            experts > 0
            and index >= self._number("leading_dense_block_count", 0, 0)
            and (index + 1) % max(step, 1) == 0
        )
        if when == "shared":
            return is_moe and self._number("expert_shared_feed_forward_length", 0, 0) > 0
        return is_moe == (when == "moe")

    def _is_window(self, index: int) -> bool:
        pattern = self.keys.get("attention.sliding_window_pattern")
        return isinstance(pattern, tuple) and index < len(pattern) and bool(pattern[index])

    def _full_attention_layer(self) -> int:
        return next((i for i in range(self.count) if not self._is_window(i)), 0)

    def _dimensions(self, index: int) -> dict[str, int]:
        number = self._number
        embd = number("embedding_length", 0)
        heads = number("attention.head_count", index, 0)
        kv_heads = number("attention.head_count_kv", index, heads)
        window = "_swa" if self._is_window(index) else ""
        default_head = embd // heads if heads else 0
        full_k = number("attention.key_length", 0, default_head)
        full_v = number("attention.value_length", 0, default_head)
        head_k = number(f"attention.key_length{window}", 0, full_k)
        head_v = number(f"attention.value_length{window}", 0, full_v)
        rot = number("rope.dimension_count", 0, head_k)
        ff = number("feed_forward_length", index, 0)
        ff_exp = number("expert_feed_forward_length", index, 0) or ff
        inner = number("ssm.inner_size", 0, 0)
        groups = number("ssm.group_count", 0, 0)
        mla_k = number("attention.key_length_mla", 0, 0)
        iclr_lora = number("attention.iclr_lora_rank", 0, 0)
        mix_lora = number("attention.value_residual_mix_lora_rank", 0, 0)
        return {
            "embd": embd,
            "vocab": self.vocabulary_size,
            "layers": self.count,
            "heads": heads,
            "head_k": head_k,
            "q": heads * head_k,
            "k": kv_heads * head_k,
            "v": kv_heads * head_v,
            "o": heads * head_v,
            "rot": rot,
            "rot_half": rot // 2,
            "q_lora": number("attention.q_lora_rank", 0, 0),
            "kv_lora": number("attention.kv_lora_rank", 0, 0),
            "mla_k": mla_k,
            "mla_k_nope": mla_k - rot,
            "mla_v": number("attention.value_length_mla", 0, 0),
            "ff": ff,
            "ff_exp": ff_exp,
            "ff_shared": self._shared_width(ff, ff_exp),
            "experts": number("expert_count", 0, 0),
            "per_layer": number("embedding_length_per_layer_input", 0, 0),
            "conv": number("ssm.conv_kernel", 0, 0),
            "inner": inner,
            "inner_per_group": inner // groups if groups else 0,
            "state": number("ssm.state_size", 0, 0),
            "ssm_heads": number("ssm.time_step_rank", 0, 0),
            "groups": groups,
            "kda_head": number("kda.head_dim", 0, 0),
            "conv_cache": number("shortconv.l_cache", 0, 0),
            "decay_lora": number("attention.decay_lora_rank", 0, 0),
            "iclr_lora": iclr_lora,
            # The first layer of RWKV-7 has no earlier value to mix with; its unused
            # tensors have the other rank.
            "mix_lora": mix_lora if index else iclr_lora,
            "gate_lora": number("attention.gate_lora_rank", 0, 0),
        }

    def _shared_width(self, ff: int, ff_exp: int) -> int:
        given = self._number("expert_shared_feed_forward_length", 0, 0)
        if given:
            return given
        if self.architecture == "llama4":
            return ff_exp
        count = self._number("expert_shared_count", 0, 0)
        return ff_exp * count if count else ff


def _evaluate(expression: str, dimensions: Mapping[str, int]) -> int:
    """Compute a dimension: sums of products of numbers and names ("2*ff", "q+k+v")."""
    total = 0
    for product in expression.split("+"):
        value = 1
        for factor in product.split("*"):
            value *= int(factor) if factor.isdigit() else dimensions[factor]
        total += value
    return total

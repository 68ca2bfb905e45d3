"""Which tensor of a model gets which type at a file type, from names and shapes alone.

The rules are those of ``llama_model_quantize`` without an importance matrix and with
default options (llama.cpp ``src/llama-quant.cpp``, commit 0c1e57098bba), applied to a
model that the converter wrote as F16 (as BF16 or F32 for those two file types).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cpubound.errors import UsageError
from cpubound.model.ftype.file_types import FileType, file_type
from cpubound.model.quant import quant_type
from cpubound.model.values import HyperParameter, QuantType


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedShape:
    """A tensor's name and shape (``shape[0]`` contiguous), before it has a type."""

    name: str
    shape: tuple[int, ...]


def tensor_types(
    shapes: Sequence[NamedShape],
    file_type_name: str,
    *,
    architecture: str,
    hyper_parameters: Mapping[str, HyperParameter],
) -> tuple[QuantType, ...]:
    """Choose the type of every tensor of a model, in the order of ``shapes``.

    ``hyper_parameters`` are the GGUF keys without the architecture's prefix; used are
    ``block_count``, ``attention.head_count``, ``attention.head_count_kv``, ``expert_count``.
    Raises ``UsageError`` where ``llama_model_quantize`` would give up.
    """
    names = tuple(shape.name for shape in shapes)
    selector = _Selector(names, file_type(file_type_name), architecture, hyper_parameters)
    types = {i: selector.choose(shapes[i]) for i in _engine_order(names)}
    return tuple(types[i] for i in range(len(shapes)))


@lru_cache(maxsize=4)
def _engine_order(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the order in which the engine looks at tensors: some rules count those seen."""
    return tuple(sorted(range(len(names)), key=lambda i: (_split(names[i])[0], names[i])))


_LAYER = re.compile(r"blk\.(\d+)\.")


@lru_cache(maxsize=4096)
def _split(name: str) -> tuple[int, str]:
    """Return a tensor's layer, -1 outside of all, and the name that it has in every layer."""
    match = _LAYER.match(name)
    return (int(match[1]), name[match.end() :]) if match else (-1, name)


# Tensors that keep the type the converter gave them (tensor_allows_quantization). Those in
# the first group the converter writes as F32, those in the second as F16.
_KEPT_F32 = (
    *("_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup_correct_coef"),
    *("altup_predict_coef", "ssm_conv1d", "shortconv.conv.weight", "attn_rel_b.weight"),
    *("time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight"),
    *("time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight"),
)
_KEPT_F16 = (
    *("altup", "laurel", "per_layer_model_proj", "indexer.k_proj.weight", "indexer.q_proj.weight"),
    *("time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"),
    *("time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight"),
    *("time_mix_g1.weight", "time_mix_g2.weight", ".position_embd", "sam.pos_embd", "sam.neck."),
    *("sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook", "mm.a.code_embd"),
)
_KEPT_F32_EXACTLY = ("position_embd.weight", "token_types.weight")
_KEPT_GLM5_NEXT = (
    *("hc_", "indexer.attn_q_b", "indexer.attn_k", "indexer.proj", "indexer_compressor_gate"),
    *("indexer_compressor_ape", "ssm_f_a.weight", "ssm_f_b.weight", "ssm_g_a.weight"),
    *("ssm_g_b.weight", "ssm_beta.weight", "attn_kv_a_mqa.weight", "attn_k_b.weight"),
    *("attn_v_b.weight",),
)
_AT_LEAST_Q8_GLM5_NEXT = ("attn_q_a", "attn_q_b", "nextn.eh_proj")

# First match wins (tensor_get_category).
_CATEGORIES = (
    ("attn_qkv.weight", "value"),  # fused and latent projections hold the values too
    ("attn_kv_b.weight", "value"),
    ("attn_v.weight", "value"),
    ("attn_k.weight", "key"),
    ("attn_q.weight", "query"),
    ("attn_output.weight", "attention_output"),
    ("ffn_up", "ffn_up"),
    ("ffn_gate", "ffn_gate"),
    ("ffn_down", "ffn_down"),
)


@lru_cache(maxsize=4096)
def _category(name: str) -> str:
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((category for part, category in _CATEGORIES if part in name), "other")


# Their types depend on how many of them came before.
_COUNTED = ("value", "ffn_up", "ffn_gate", "ffn_down")

_IQ1 = {"IQ1_S", "IQ1_M"}
_IQ2_SMALL = {"IQ2_XXS", "IQ2_XS"}
_IQ2_LARGE = {"IQ2_S", "IQ2_M"}
_VERY_LOW = _IQ1 | _IQ2_SMALL | _IQ2_LARGE

_EMBEDDING = {
    **dict.fromkeys(_IQ1 | _IQ2_SMALL, "Q2_K"),
    **dict.fromkeys(_IQ2_LARGE | {"IQ3_XXS"}, "IQ3_S"),
    **dict.fromkeys({"TQ1_0", "TQ2_0", "Q2_0"}, "Q4_K"),
}
# Values when at least four query heads share them, when fewer do, and in either case.
_VALUE_SHARED = {
    **dict.fromkeys(("Q2_K", "Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"), "Q4_K"),
    **dict.fromkeys(("IQ4_NL", "IQ4_XS"), "Q5_K"),
}
_VALUE_UNSHARED = {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S"}
_VALUE = {"IQ3_M": "Q4_K", "Q3_K_L": "Q5_K"}
_KEY_OR_QUERY = {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}
_ATTENTION_OUTPUT = {
    "Q2_K": "Q3_K",
    "IQ3_XXS": "IQ3_S",
    "Q3_K_M": "Q4_K",
    "Q3_K_L": "Q5_K",
    "IQ3_M": "Q4_K",
}
_ATTENTION_OUTPUT_8_EXPERTS = dict.fromkeys(
    (
        *("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL"),
        *("Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"),
    ),
    "Q5_K",
)
# A type whose blocks do not divide the row gives way to one of 32 elements a block.
_SMALLER_BLOCKS = {
    **dict.fromkeys(
        ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"
    ),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}


class _Selector:
    """The choice for one model and file type; it counts the tensors it has seen."""

    def __init__(
        self,
        names: Sequence[str],
        chosen: FileType,
        architecture: str,
        hyper_parameters: Mapping[str, HyperParameter],
    ) -> None:
        self.file_type = chosen.name
        self.default_type = chosen.default_type
        self.architecture = architecture
        # Looped models count a layer as often as it runs (nanbeige.cpp).
        loops = _first_int(hyper_parameters.get("num_loops"))
        self.layers = _first_int(hyper_parameters.get("block_count")) * max(loops, 1)
        self.experts = _first_int(hyper_parameters.get("expert_count"))
        heads = _first_int(hyper_parameters.get("attention.head_count"))
        kv_heads = _first_int(hyper_parameters.get("attention.head_count_kv", heads))
        self.heads_per_kv_head = heads // kv_heads if kv_heads else 0
        self.is_70b = _is_70b(architecture, self.layers, self.experts, heads, kv_heads)
        self.tied_output = "output.weight" not in names
        self.value_tensors = sum(_category(_split(name)[1]) == "value" for name in names)
        self.seen = dict.fromkeys(_COUNTED, 0)
        self.chosen: dict[tuple[str, tuple[int, ...]], QuantType] = {}

    def choose(self, tensor: NamedShape) -> QuantType:
        """Return a tensor's type; alike in all layers, unless its kind is counted."""
        stem = _split(tensor.name)[1]
        chosen = self.chosen.get((stem, tensor.shape))
        if chosen is None:
            chosen = quant_type(self._choose(tensor, stem))
            if _category(stem) not in _COUNTED:
                self.chosen[stem, tensor.shape] = chosen
        return chosen

    def _choose(self, tensor: NamedShape, stem: str) -> str:
        kept = self._kept(tensor, stem)
        if kept is not None:
            return kept
        if quant_type(self.default_type).block_size == 1:
            return self.default_type
        return _fit_row(tensor, self._by_category(tensor, stem))

    def _kept(self, tensor: NamedShape, stem: str) -> str | None:
        """Return the type a tensor keeps, None if it is to be quantised."""
        if _dimensions(tensor.shape) < 2:
            return "F32"
        kept = _kept_by_name(stem, self.architecture)
        if kept == "F16" and self.default_type in ("F32", "BF16"):
            return self.default_type
        return kept

    def _by_category(self, tensor: NamedShape, stem: str) -> str:
        name = tensor.name
        category = _category(stem)
        if self.architecture == "glm5-next" and any(p in name for p in _AT_LEAST_Q8_GLM5_NEXT):
            return "Q8_0"
        if category == "output" or (category == "embedding" and self.tied_output):
            return self._output(tensor)
        if self.file_type == "MXFP4_MOE":
            return self._mxfp4(tensor, category)
        if category == "embedding":
            return _EMBEDDING.get(self.file_type, self.default_type)
        if self.file_type in _VERY_LOW:
            return self._very_low(category)
        if category == "value":
            return self._value()
        if category in ("key", "query"):
            if category == "key" and self.experts == 8:
                return "Q8_0"
            return _KEY_OR_QUERY.get(self.file_type, self.default_type)
        if category == "attention_output":
            return self._attention_output()
        if category == "ffn_down":
            return self._ffn_down(self._ffn_layer(name, category))
        if category in ("ffn_up", "ffn_gate"):
            return self._ffn_up_or_gate(self._ffn_layer(name, category))
        return self.default_type

    def _output(self, tensor: NamedShape) -> str:
        block_size = quant_type(self.default_type).block_size
        if self.file_type == "MXFP4_MOE" or self.architecture == "falcon":
            return "Q8_0"
        if tensor.shape[0] % block_size:
            return "Q8_0"
        if self.file_type in _VERY_LOW | {"IQ3_XXS"}:
            return "Q5_K"
        return "Q8_0" if self.default_type == "Q8_0" else "Q6_K"

    def _mxfp4(self, tensor: NamedShape, category: str) -> str:
        stacked = len(tensor.shape) > 2 and tensor.shape[2] > 1
        # Its latent attention projections are stacked too.
        if self.architecture == "bailingmoe3" and not category.startswith("ffn_"):
            stacked = False
        return "MXFP4" if stacked else "Q8_0"

    def _very_low(self, category: str) -> str:
        large = self.file_type in _IQ2_LARGE
        if category == "value":
            if self.heads_per_kv_head >= 4 or self.experts >= 4:
                return "Q4_K"
            return "IQ3_S" if large else "Q2_K"
        if category == "key" and self.experts == 8:
            return "Q4_K"
        if category == "ffn_down":
            index = self._count("ffn_down")
            if index < self.layers // 8:
                return "IQ3_S" if large else "Q2_K"
        if category == "attention_output":
            if self.experts == 8:
                return "Q5_K"
            if self.file_type in _IQ1:
                return "IQ2_XXS"
            if large:
                return "IQ3_S"
        return self.default_type

    def _value(self) -> str:
        index = self._count("value")
        if self.experts == 8:
            return "Q8_0"
        name = self.file_type
        by_sharing = _VALUE_SHARED if self.heads_per_kv_head >= 4 else _VALUE_UNSHARED
        chosen = by_sharing.get(name, _VALUE.get(name, self.default_type))
        if name == "Q3_K_M":
            chosen = "Q5_K" if index < 2 else "Q4_K"
        elif name in ("Q4_K_M", "Q5_K_M") and _use_more_bits(index, self.value_tensors):
            chosen = "Q6_K"
        elif name == "Q4_K_S" and index < 4:
            chosen = "Q5_K"
        return "Q5_K" if self.is_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _attention_output(self) -> str:
        if self.architecture == "falcon":
            return "Q4_K" if self.file_type == "Q3_K_L" else self.default_type
        table = _ATTENTION_OUTPUT_8_EXPERTS if self.experts == 8 else _ATTENTION_OUTPUT
        return table.get(self.file_type, self.default_type)

    def _ffn_down(self, layer: int) -> str:
        name, default, falcon = self.file_type, self.default_type, self.architecture == "falcon"
        first_eighth = layer < self.layers // 8
        first_sixteenth = layer < self.layers // 16
        more_bits = _use_more_bits(layer, self.layers)
        if name == "Q2_K":
            return "Q3_K"
        if name == "Q2_K_S" and first_eighth:
            return "Q4_K"
        if name == "IQ3_XXS":
            return "Q4_K" if first_eighth else "Q3_K"
        if name == "IQ3_M" and (first_eighth or (self.experts == 8 and more_bits)):
            return "Q4_K"
        if name == "Q3_K_M":
            if first_sixteenth:
                return "Q5_K"
            return "Q4_K" if more_bits or not falcon else "Q3_K"
        if name == "Q3_K_L":
            return "Q4_K" if falcon else "Q5_K"
        if name == "Q4_K_M" and falcon:
            if first_sixteenth:
                return "Q6_K"
            return "Q5_K" if more_bits else "Q4_K"
        if name in ("Q4_K_M", "Q5_K_M") and more_bits:
            return "Q6_K"
        if name in ("IQ4_NL", "IQ4_XS") and first_eighth:
            return "Q5_K"
        if name == "Q4_K_S" and first_eighth and not falcon:
            return "Q5_K"
        return default

    def _ffn_up_or_gate(self, layer: int) -> str:
        middle = self.layers // 8 <= layer < 7 * self.layers // 8
        return "IQ3_XXS" if self.file_type == "IQ3_XS" and middle else self.default_type

    def _ffn_layer(self, name: str, category: str) -> int:
        """Return the layer as the rules count it: by name only in a mixture of experts."""
        index = self._count(category)
        if self.experts <= 1:
            return index
        layer = _split(name)[0]
        if not 0 <= layer < self.layers:
            raise UsageError(
                f"tensor of no layer ({name}): llama.cpp cannot quantise this mixture of experts"
            )
        return layer

    def _count(self, category: str) -> int:
        index = self.seen[category]
        self.seen[category] = index + 1
        return index


@lru_cache(maxsize=4096)
def _kept_by_name(name: str, architecture: str) -> str | None:
    if not name.endswith("weight") or name in _KEPT_F32_EXACTLY:
        return "F32"
    if any(part in name for part in _KEPT_F32):
        return "F32"
    by_architecture = _KEPT_GLM5_NEXT if architecture == "glm5-next" else ()
    return "F16" if any(part in name for part in (*_KEPT_F16, *by_architecture)) else None


def _use_more_bits(layer: int, layers: int) -> bool:
    first = layers // 8
    return (
        layer < first or layer >= 7 * layers // 8 or (layer >= first and (layer - first) % 3 == 2)
    )


def _fit_row(tensor: NamedShape, target: str) -> str:
    columns = tensor.shape[0]
    if columns % quant_type(target).block_size == 0:
        return target
    if quant_type(target).block_size > 32:
        if target not in _SMALLER_BLOCKS:
            raise UsageError(
                f"{target} has no smaller blocks for rows of {columns} ({tensor.name}):"
                " choose another file type"
            )
        target = _SMALLER_BLOCKS[target]
    return "F16" if columns % quant_type(target).block_size else target


def _dimensions(shape: tuple[int, ...]) -> int:
    """Count dimensions as ggml does: trailing extents of one are none."""
    count = len(shape)
    while count > 1 and shape[count - 1] == 1:
        count -= 1
    return count


# Layer counts that make llama.cpp call a model a 70B, whose values get more bits (the
# load_arch_hparams of src/models/{llama,qwen2,deci,olmo,jais2}.cpp).
_LAYERS_OF_70B = {"llama": 80, "qwen2": 80, "deci": 80, "olmo": 80, "jais2": 68}


def _is_70b(architecture: str, layers: int, experts: int, heads: int, kv_heads: int) -> bool:
    if layers != _LAYERS_OF_70B.get(architecture):
        return False
    return architecture != "llama" or (experts != 8 and heads != kv_heads)


def _first_int(value: HyperParameter | None) -> int:
    """Return a number, or the first of one per layer, as llama.cpp's ``n_gqa()`` does."""
    if isinstance(value, tuple):
        value = value[0] if value else 0
    return int(value) if isinstance(value, (int, float)) else 0

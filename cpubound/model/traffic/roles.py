"""What a tensor is for and by which kind of operator it is read, from its name and shape."""

from __future__ import annotations

import re
from functools import lru_cache

from cpubound.model.traffic import architectures
from cpubound.model.values import Tensor

# A model has some dozens of stems, each in every block: their answers are kept.
STEMS = 1024

# Looked up by row (GET_ROWS): one row per token, whatever their height.
_TABLES = re.compile(
    r"(?:token_embd|per_layer_token_embd|position_embd|token_types|ffn_gate_tid2eid)\.weight"
)
_EXPERTS = re.compile(r"ffn_\w+_(?:ch)?exps\.(?:weight|bias)")
_COMPRESSOR_TABLE = re.compile(r"(?:attn|indexer)_compressor_ape\.weight")
# One tensor per expert, as files of 2023 have it.
_SINGLE_EXPERT = re.compile(r"ffn_(?:gate|up|down)\.\d+\.weight")

# Two-dimensional and yet element-wise: convolutions over a few taps, states, mixing weights.
_ELEMENT_WISE = re.compile(
    r"(?:.*norm\w*|ssm_a|ssm_d|ssm_conv1d\w*|shortconv\.conv|time_mix_lerp\w*|time_mix_first"
    r"|time_mix_[kr]_[ka]|channel_mix_lerp\w*|attn_sinks|altup_\w*coef|ple_conv1d|.*_conv_base"
    r"|hc_\w+_(?:base|scale)|.*_res_score)(?:\.weight|\.bias)?"
)

_ROLES = (
    ("experts", re.compile(r"ffn_\w+_(?:ch)?exps\.|ffn_(?:gate|up|down)\.\d+\.")),
    ("router", re.compile(r"ffn_gate_inp|exp_probs_b|ffn_gate_tid2eid")),
    ("output", re.compile(r"(?:output\.|cls\.|output_hc_|output_res)")),
    ("embedding", re.compile(r"(?:token_embd|per_layer_|position_embd|token_types|ple_)")),
    ("norm", re.compile(r".*norm")),
    ("recurrent", re.compile(r"(?:ssm_|time_mix_|channel_mix_|shortconv\.)")),
    ("attention", re.compile(r"(?:attn_|cross_attn_|indexer|rope_f)")),
    ("ffn", re.compile(r"ffn")),
)

# Never touched by a plain decode step of text: why, and by which names.
_NEVER_READ = (
    ("draft (next-token prediction)", re.compile(r"(?:nextn\.|mtp\.|eagle|d2t)")),
    ("vision and audio", re.compile(r"(?:v|a|mm|resampler)\.|vis_|vision|audio")),
    ("classifier", re.compile(r"(?:cls|cls\.output|cls\.norm|dense_[23])\.")),
    ("encoder", re.compile(r"enc\.")),
    ("activation scales", re.compile(r".*\.input_scale")),
)


@lru_cache(maxsize=STEMS)
def role_of(stem: str) -> str:
    """Return the role of a tensor named ``stem`` (without ``blk.N.``), as in ``WeightRead``."""
    for role, pattern in _ROLES:
        if pattern.match(stem):
            return role
    return "other"


def kind_of(architecture: str, stem: str, tensor: Tensor) -> str:
    """Return by which operators a tensor is read, as in ``WeightRead``."""
    if _TABLES.fullmatch(stem):
        return "rows"
    if _COMPRESSOR_TABLE.fullmatch(stem):
        by_row = architecture in architectures.COMPRESSOR_TABLE_BY_ROW
        return "rows" if by_row else "vector"
    if _EXPERTS.fullmatch(stem):
        return "experts" if len(tensor.shape) > 2 else "vector"
    if _SINGLE_EXPERT.fullmatch(stem):
        return "experts"
    if len(tensor.shape) < 2 or _ELEMENT_WISE.fullmatch(stem):
        return "vector"
    return "matmul"


@lru_cache(maxsize=STEMS)
def is_expert(stem: str) -> bool:
    """Tell whether only the chosen experts' part of a tensor is read."""
    return bool(_EXPERTS.fullmatch(stem) or _SINGLE_EXPERT.fullmatch(stem))


def expert_count(stem: str, tensor: Tensor, claimed: int) -> int:
    """Return how many experts share a tensor's name: 1 for a tensor of one expert."""
    return tensor.shape[-1] if _EXPERTS.fullmatch(stem) else max(claimed, 1)


@lru_cache(maxsize=STEMS)
def why_never_read(stem: str) -> str | None:
    """Return why no plain decode step reads a tensor named so, or None if one does."""
    for reason, pattern in _NEVER_READ:
        if pattern.match(stem):
            return reason
    return None

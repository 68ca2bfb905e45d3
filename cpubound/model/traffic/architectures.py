"""What neither tensors nor hyper-parameters say: what llama.cpp writes into its code.

Everything here is read off the source of an architecture (``src/models/*.cpp`` of
llama.cpp, commit 0c1e57098bba) and only what differs from the general rules stands here,
so an architecture that is missing usually needs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowRule:
    """Which layers look at a sliding window, where the file does not list them.

    Of every ``period`` layers one is dense: the last, or the first if ``dense_first``. A
    period of 0 means that every layer has the window. ``fixed`` is a size that the code
    sets whatever the file says, ``default`` the one for a file that says nothing.
    """

    period: int
    dense_first: bool = False
    default: int = 0
    fixed: int | None = None
    chunked: bool = False
    layers: int | None = None  # the rule holds only for models with so many layers


WINDOW_RULES: dict[str, WindowRule] = {
    "afmoe": WindowRule(period=4),
    "cohere2": WindowRule(period=4),
    "cohere2moe": WindowRule(period=4, dense_first=True),
    "deepseek4": WindowRule(period=0),
    "exaone-moe": WindowRule(period=4, default=128),
    "exaone4": WindowRule(period=4, default=4096, layers=64),
    "gemma-embedding": WindowRule(period=6),
    "gemma2": WindowRule(period=2, default=4096),
    "gemma3": WindowRule(period=6),
    "gemma3n": WindowRule(period=5),
    "gpt-oss": WindowRule(period=2),
    "laguna": WindowRule(period=4, dense_first=True),
    "lfm2": WindowRule(period=0),
    "llama4": WindowRule(period=4, default=8192, fixed=8192, chunked=True),
    "mellum": WindowRule(period=4),
    "modern-bert": WindowRule(period=3, dense_first=True),
    "muse-glimmer": WindowRule(period=4),
    "olmo2": WindowRule(period=4),
    "plamo3": WindowRule(period=8),
    "smallthinker": WindowRule(period=4, dense_first=True, fixed=4096),
}

# These read the window and run dense all the same.
IGNORE_WINDOW = frozenset({"phi3", "phimoe"})

# These keep no cache between steps: a text diffusion step and an encoder look at everything.
WITHOUT_CACHE = frozenset(
    {
        "bert",
        "dream",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llada",
        "llada-moe",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "rnd1",
        "wavtokenizer-dec",
    }
)

# One layer in so many is full attention and the others are recurrent, in files that do
# not list the recurrent layers.
FULL_ATTENTION_INTERVAL: dict[str, int] = {
    "minimax-01": 8,
    "qwen3next": 4,
    "qwen35": 4,
    "qwen35moe": 4,
    "qwen4exp": 4,
}

# Recurrent layers whose output goes through both branches.
ATTENTION_BESIDE_RECURRENCE = frozenset({"falcon-h1"})

# Layers without a rotary embedding: one in so many, or all that have no window.
NO_ROPE_EVERY: dict[str, int] = {"afmoe": 4, "llama4": 4, "smollm3": 4}
ROPE_IN_WINDOW_ONLY = frozenset({"exaone-moe", "exaone4", "muse-glimmer"})
# Layers with a window rotate without the table of frequency factors.
ROPE_FACTORS_OUTSIDE_WINDOW_ONLY = frozenset({"gemma4", "step35"})

# Layers from here on read the cache of an earlier layer and write none.
KV_LAYERS_FROM_START: dict[str, int] = {"gemma3n": 20}

_ATTENTION_BIAS = r"attn_[qkv]\.bias"
_FFN_BIAS = r"ffn_(?:up|gate|down)\.bias"
_DENSE_FFN = r"ffn_(?:up|gate|down)\.(?:weight|scale)"

# Tensors that the loader accepts and the graph leaves aside, matched against the name
# without "blk.N.".
LEFT_ASIDE: dict[str, re.Pattern[str]] = {
    architecture: re.compile(pattern)
    for architecture, pattern in {
        "bailingmoe3": r"ssm_beta\.scale",
        "cogvlm": r"rope_freqs\.weight",
        "deepseek4": r"exp_probs_b_vl\.bias",
        "dream": r"output\.bias",
        "ernie4_5": r"attn_output\.bias",
        "ernie4_5-moe": r"attn_output\.bias",
        "falcon-h1": r"attn_output\.bias|rope_freqs\.weight",
        "llada": rf"attn_output\.bias|rope_freqs\.weight|{_FFN_BIAS}",
        "mimo2": _ATTENTION_BIAS,
        "mpt": r"attn_k_norm\..*",
        "qwen2vl": r"output\.bias",
        "qwen3next": r"ssm_in\.weight",
        "qwen4exp": _ATTENTION_BIAS,
        "refact": rf"attn_output\.bias|rope_freqs\.weight|{_FFN_BIAS}|ffn_gate_inp.*|.*_exps\..*",
        "rwkv6": r"time_mix_lerp_[wkvrg]\.weight",
    }.items()
}

# A mixture layer that also holds a dense feed-forward net runs only the mixture.
DENSE_FFN_UNREAD_BESIDE_EXPERTS: dict[str, re.Pattern[str]] = {
    "hy_v3": re.compile(_DENSE_FFN),
    "mimo2": re.compile(_DENSE_FFN),
    "step35": re.compile(_DENSE_FFN),
}

# The first layer has no earlier value to mix in.
LEFT_ASIDE_IN_FIRST_LAYER: dict[str, re.Pattern[str]] = {
    "arwkv7": re.compile(r"time_mix_v[012]\.weight"),
    "rwkv7": re.compile(r"time_mix_v[012]\.weight"),
}

# The indexer of block-sparse attention runs only with flash-attention.
INDEXER_NEEDS_FLASH_ATTENTION = frozenset({"minimax-m3"})

# Vectors that two operators read.
READ_TWICE: dict[str, re.Pattern[str]] = {
    "falcon-h1": re.compile(r"attn_norm\.weight"),
    "gemma3n": re.compile(r"altup_router(?:_norm)?\.weight"),
    "kimi-k3": re.compile(r"(?:attn|ffn|output)_res_score\.weight"),
}

# Position tables of a compressor: looked up by row in one architecture, added whole in others.
COMPRESSOR_TABLE_BY_ROW = frozenset({"deepseek4"})

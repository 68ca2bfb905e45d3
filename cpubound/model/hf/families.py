"""Families of Hugging Face models by ``model_type``: architecture and what each adds."""

from __future__ import annotations

from cpubound.model.hf import attention, recurrent
from cpubound.model.hf.config import Family

_GEMMA3_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
}
_LLAMA = Family(architecture="llama", extend=attention.add_llama, features=attention.llama_features)
_GEMMA3 = Family(
    architecture="gemma3",
    extend=attention.add_gemma3,
    tied_by_default=True,
    defaults=_GEMMA3_DEFAULTS,
    vocabulary_limit=262144,
)
_GEMMA3N = Family(architecture="gemma3n", extend=attention.add_gemma3n, tied_by_default=True)
_GEMMA4 = Family(
    architecture="gemma4",
    extend=attention.add_gemma4,
    features=attention.gemma4_features,
    tied_by_default=True,
)
_QWEN35 = Family(architecture="qwen35", extend=recurrent.add_qwen35)
_QWEN35_MOE = Family(architecture="qwen35moe", extend=recurrent.add_qwen35_moe)
_DEEPSEEK = Family(
    architecture="deepseek2", extend=attention.add_deepseek, features=attention.deepseek_features
)
_GRANITE_MOE = Family(
    architecture="granitemoe",
    extend=attention.add_granite,
    features=attention.attention_bias_features,
)

_QWEN2_VISION = Family(architecture="qwen2vl", extend=attention.add_qwen_vision)
_QWEN3_VISION = Family(architecture="qwen3vl", extend=attention.add_qwen3_vision)
_QWEN3_MOE_VISION = Family(architecture="qwen3vlmoe", extend=attention.add_qwen3_moe_vision)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "ministral3": Family(architecture="mistral3", extend=attention.add_ministral3),
    "smollm3": Family(
        architecture="smollm3",
        extend=attention.add_llama,
        features=attention.attention_bias_features,
        tied_by_default=True,
    ),
    "llama4": Family(
        architecture="llama4", extend=attention.add_llama4, features=attention.llama4_features
    ),
    "llama4_text": Family(
        architecture="llama4", extend=attention.add_llama4, features=attention.llama4_features
    ),
    "qwen2": Family(architecture="qwen2"),
    "qwen2_moe": Family(architecture="qwen2moe", extend=attention.add_qwen_moe),
    "qwen2_vl": _QWEN2_VISION,
    "qwen2_vl_text": _QWEN2_VISION,
    "qwen2_5_vl": _QWEN2_VISION,
    "qwen2_5_vl_text": _QWEN2_VISION,
    "qwen3": Family(architecture="qwen3"),
    "qwen3_vl": _QWEN3_VISION,
    "qwen3_vl_text": _QWEN3_VISION,
    "qwen3_vl_moe": _QWEN3_MOE_VISION,
    "qwen3_vl_moe_text": _QWEN3_MOE_VISION,
    "qwen3_moe": Family(architecture="qwen3moe", extend=attention.add_qwen_moe),
    "qwen3_next": Family(architecture="qwen3next", extend=recurrent.add_qwen3_next),
    "qwen3_5": _QWEN35,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe": _QWEN35_MOE,
    "qwen3_5_moe_text": _QWEN35_MOE,
    "gemma": Family(architecture="gemma", tied_by_default=True),
    "gemma2": Family(architecture="gemma2", extend=attention.add_gemma2, tied_by_default=True),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "phi3": Family(
        architecture="phi3", extend=attention.add_phi3, features=attention.phi3_features
    ),
    "granite": Family(
        architecture="granite",
        extend=attention.add_granite,
        features=attention.attention_bias_features,
    ),
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": _GRANITE_MOE,
    "granitemoehybrid": Family(architecture="granitehybrid", extend=recurrent.add_granite_hybrid),
    "olmo2": Family(architecture="olmo2", extend=attention.add_olmo2),
    "olmo3": Family(architecture="olmo2", extend=attention.add_olmo2),
    "olmoe": Family(architecture="olmoe", extend=attention.add_olmoe),
    "gpt_oss": Family(architecture="gpt-oss", extend=attention.add_gpt_oss),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "glm4": Family(
        architecture="glm4", extend=attention.add_glm4, features=attention.attention_bias_features
    ),
    "glm4_moe": Family(
        architecture="glm4moe", extend=attention.add_glm4_moe, features=attention.glm4_moe_features
    ),
    "glm4v_moe_text": Family(
        architecture="glm4moe", extend=attention.add_glm4_moe, features=attention.glm4_moe_features
    ),
    "lfm2": Family(architecture="lfm2", extend=recurrent.add_lfm2_dense, tied_by_default=True),
    "lfm2_moe": Family(architecture="lfm2moe", extend=recurrent.add_lfm2_moe, tied_by_default=True),
    "falcon_h1": Family(
        architecture="falcon-h1",
        extend=recurrent.add_falcon_h1,
        features=recurrent.falcon_h1_features,
    ),
    "nemotron": Family(architecture="nemotron", extend=attention.add_nemotron),
    "nemotron_h": Family(architecture="nemotron_h", extend=recurrent.add_nemotron_h),
    "nemotron_h_moe": Family(architecture="nemotron_h_moe", extend=recurrent.add_nemotron_h_moe),
    "hunyuan_v1_dense": Family(architecture="hunyuan-dense", extend=attention.add_hunyuan_dense),
    "hunyuan": Family(architecture="hunyuan-moe", extend=attention.add_hunyuan_moe),
    "hunyuan_v1_moe": Family(architecture="hunyuan-moe", extend=attention.add_hunyuan_moe),
    "ernie4_5": Family(architecture="ernie4_5", tied_by_default=True),
    "ernie4_5_moe": Family(
        architecture="ernie4_5-moe", extend=attention.add_ernie_moe, tied_by_default=True
    ),
    "kimi_linear": Family(architecture="kimi-linear", extend=recurrent.add_kimi_linear),
    "bailing_moe": Family(
        architecture="bailingmoe2",
        extend=attention.add_bailing_moe2,
        features=attention.bailing_moe2_features,
    ),
    "arcee": Family(
        architecture="arcee", extend=attention.add_llama, features=attention.llama4_features
    ),
    "minimax_m2": Family(architecture="minimax-m2", extend=attention.add_minimax_m2),
    "mamba": Family(architecture="mamba", extend=recurrent.add_mamba, tied_by_default=True),
    "mamba2": Family(architecture="mamba2", extend=recurrent.add_mamba2, tied_by_default=True),
    "rwkv7": Family(architecture="rwkv7", extend=recurrent.add_rwkv7),
    "exaone4": Family(
        architecture="exaone4", extend=attention.add_exaone4, features=attention.exaone4_features
    ),
    "seed_oss": Family(architecture="seed_oss", extend=attention.add_llama),
    "cohere2": Family(architecture="cohere2", extend=attention.add_cohere2, tied_by_default=True),
    "starcoder2": Family(
        architecture="starcoder2", extend=attention.add_starcoder2, tied_by_default=True
    ),
    "step3p5": Family(architecture="step35", extend=attention.add_step35),
}

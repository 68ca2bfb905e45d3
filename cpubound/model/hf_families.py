"""Families of Hugging Face models: what each adds to the common hyper-parameters.

One function for each converter class of llama.cpp that differs (``conversion/*.py``,
commit 0c1e57098bba); ``FAMILIES`` names them by ``model_type``.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpubound.model.hf_config import Config, Family, Keys

_SIGMOID = 2


def _llama(config: Config, keys: Keys) -> None:
    keys["rope.dimension_count"] = config.head_dim


def _llama_features(config: Config) -> list[str]:
    features = []
    if str(config.rope.get("rope_type", "type")).lower() == "llama3":
        features.append("rope_freqs")
    if config.get("attention_bias") is True:
        features += ["qkv_bias", "attn_output_bias"]
    return features


def _attention_bias(config: Config) -> list[str]:
    return ["qkv_bias"] if config.get("attention_bias") is True else []


def _llama4(config: Config, keys: Keys) -> None:
    _llama(config, keys)
    keys["expert_feed_forward_length"] = config.integer("intermediate_size")
    keys["feed_forward_length"] = config.integer("intermediate_size_mlp")
    keys["interleave_moe_layer_step"] = config.integer("interleave_moe_layer_step")


def _llama4_features(config: Config) -> list[str]:
    return ["rope_freqs"] if config.rope.get("rope_type") == "llama3" else []


def _ministral3(config: Config, keys: Keys) -> None:
    _llama(config, keys)
    rope = config.rope
    if rope.get("mscale_all_dim") is not None:
        keys["rope.scaling.yarn_log_multiplier"] = rope.number("mscale_all_dim")
    if rope.get("llama_4_scaling_beta") is not None:
        keys["attention.temperature_scale"] = rope.number("llama_4_scaling_beta")


def _qwen_moe(config: Config, keys: Keys) -> None:
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    if config.get("shared_expert_intermediate_size"):
        keys["expert_shared_feed_forward_length"] = config.integer(
            "shared_expert_intermediate_size"
        )


def _delta_net(config: Config, keys: Keys) -> None:
    value_heads = config.integer("linear_num_value_heads")
    keys["ssm.conv_kernel"] = config.integer("linear_conv_kernel_dim")
    keys["ssm.state_size"] = config.integer("linear_key_head_dim")
    keys["ssm.group_count"] = config.integer("linear_num_key_heads")
    keys["ssm.time_step_rank"] = value_heads
    keys["ssm.inner_size"] = config.integer("linear_value_head_dim") * value_heads
    keys["full_attention_interval"] = config.integer("full_attention_interval", default=4)
    partial = config.rope.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    keys["rope.dimension_count"] = int(config.head_dim * (partial or 0.25))


def _qwen3_next(config: Config, keys: Keys) -> None:
    _qwen_moe(config, keys)
    _delta_net(config, keys)


def _qwen35(config: Config, keys: Keys) -> None:
    _delta_net(config, keys)
    sections = [*(config.rope.sequence("mrope_section") or (11, 11, 10)), 0]
    keys["rope.dimension_sections"] = tuple(sections[:4])


def _qwen35_moe(config: Config, keys: Keys) -> None:
    _qwen_moe(config, keys)
    _qwen35(config, keys)


def _gemma2(config: Config, keys: Keys) -> None:
    keys["attn_logit_softcapping"] = config.number("attn_logit_softcapping")
    keys["final_logit_softcapping"] = config.number("final_logit_softcapping")
    keys["attention.sliding_window"] = config.integer("sliding_window")


def _gemma3(config: Config, keys: Keys) -> None:
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys.setdefault("rope.freq_base", 1_000_000.0)


def _gemma4(config: Config, keys: Keys) -> None:
    windows = tuple(kind == "sliding_attention" for kind in config.layer_types)
    shared = config.integer("num_kv_shared_layers", default=0)
    head_dim, window_head_dim = config.integer("global_head_dim"), config.integer("head_dim")
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["attention.sliding_window_pattern"] = windows
    keys["attention.shared_kv_layers"] = shared
    keys["embedding_length_per_layer_input"] = config.integer(
        "hidden_size_per_layer_input", default=0
    )
    keys["attention.key_length"] = keys["attention.value_length"] = head_dim
    keys["attention.key_length_swa"] = keys["attention.value_length_swa"] = window_head_dim
    keys["rope.dimension_count"] = head_dim
    keys["rope.dimension_count_swa"] = window_head_dim
    local = config.mapping("rope_parameters").mapping("sliding_attention")
    if local.get("rope_theta") is not None:
        keys["rope.freq_base_swa"] = local.number("rope_theta")
    if config.get("final_logit_softcapping"):
        keys["final_logit_softcapping"] = config.number("final_logit_softcapping")
    if config.get("moe_intermediate_size", "expert_intermediate_size"):
        keys["expert_feed_forward_length"] = config.integer(
            "moe_intermediate_size", "expert_intermediate_size"
        )
    if config.get("use_double_wide_mlp"):
        width, first_shared = config.integer("intermediate_size"), config.layers - shared
        keys["feed_forward_length"] = tuple(
            width if i < first_shared else 2 * width for i in range(config.layers)
        )
    if config.get("num_global_key_value_heads"):
        full, window = (
            config.integer("num_global_key_value_heads"),
            config.integer("num_key_value_heads"),
        )
        keys["attention.head_count_kv"] = tuple(
            window if is_window else full for is_window in windows
        )


def _gemma4_features(config: Config) -> list[str]:
    return [] if config.get("attention_k_eq_v") else ["attn_v"]


def _phi3(config: Config, keys: Keys) -> None:
    partial = config.rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    keys["rope.dimension_count"] = int(partial * config.head_dim)
    keys["rope.scaling.original_context_length"] = config.integer(
        "original_max_position_embeddings", "max_position_embeddings"
    )
    keys["attention.sliding_window"] = config.integer("sliding_window", default=0)


def _phi3_features(config: Config) -> list[str]:
    return ["rope_factors"] if config.rope.get("long_factor") else []


def _granite(config: Config, keys: Keys) -> None:
    _llama(config, keys)
    for key, name in (
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ):
        if config.get(name):
            keys[key] = config.number(name)
    if config.get("shared_intermediate_size"):
        keys["expert_shared_feed_forward_length"] = config.integer("shared_intermediate_size")


def _granite_hybrid(config: Config, keys: Keys) -> None:
    _granite(config, keys)
    keys["ssm.conv_kernel"] = config.integer("mamba_d_conv")
    keys["ssm.state_size"] = config.integer("mamba_d_state")
    keys["ssm.group_count"] = config.integer("mamba_n_groups")
    keys["ssm.time_step_rank"] = config.integer("mamba_n_heads")
    keys["ssm.inner_size"] = config.integer("mamba_expand") * config.integer("hidden_size")
    kv_heads = config.integer("num_key_value_heads")
    keys["attention.head_count_kv"] = tuple(
        kv_heads if kind == "attention" else 0 for kind in config.layer_types
    )
    if not config.get("num_local_experts"):
        # The dense members keep their feed-forward width in the shared expert's place.
        keys["feed_forward_length"] = config.integer("shared_intermediate_size")
        keys.pop("expert_shared_feed_forward_length", None)
        keys["expert_count"] = keys["expert_used_count"] = 0
    if "mamba" in config.layer_types:
        keys["context_length"] = 2**20
        keys["rope.scaling.finetuned"] = False


def _olmo2(config: Config, keys: Keys) -> None:
    if config.get("sliding_window"):
        keys["attention.sliding_window"] = config.integer("sliding_window")
        pattern = tuple(kind == "sliding_attention" for kind in config.layer_types)
        keys["attention.sliding_window_pattern"] = pattern or tuple(
            (i + 1) % 4 != 0 for i in range(config.layers)
        )


def _olmoe(config: Config, keys: Keys) -> None:
    keys["attention.layer_norm_rms_epsilon"] = 1e-5


def _gpt_oss(config: Config, keys: Keys) -> None:
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["expert_feed_forward_length"] = config.integer("intermediate_size")
    keys["rope.dimension_count"] = config.head_dim


def _deepseek(config: Config, keys: Keys) -> None:
    kv_lora, rope_dim = config.integer("kv_lora_rank"), config.integer("qk_rope_head_dim")
    if config.get("q_lora_rank"):
        keys["attention.q_lora_rank"] = config.integer("q_lora_rank")
    keys["attention.head_count_kv"] = 1
    keys["attention.kv_lora_rank"] = kv_lora
    keys["attention.key_length"] = kv_lora + rope_dim
    keys["attention.value_length"] = kv_lora
    keys["attention.key_length_mla"] = config.integer("qk_nope_head_dim") + rope_dim
    keys["attention.value_length_mla"] = config.integer("v_head_dim")
    keys["rope.dimension_count"] = rope_dim
    keys["leading_dense_block_count"] = config.integer("first_k_dense_replace", default=0)
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["expert_shared_count"] = config.integer("n_shared_experts", default=0)
    if config.get("routed_scaling_factor") is not None:
        keys["expert_weights_scale"] = config.number("routed_scaling_factor")
    if config.get("norm_topk_prob"):
        keys["expert_weights_norm"] = True
    if config.rope.get("mscale_all_dim") is not None:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * config.rope.number("mscale_all_dim")


def _deepseek_features(config: Config) -> list[str]:
    return ["probs_bias"] if config.get("topk_method") == "noaux_tc" else []


def _glm4(config: Config, keys: Keys) -> None:
    partial = config.rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 0.5
    keys["rope.dimension_count"] = int(config.head_dim * partial)


def _glm4_moe(config: Config, keys: Keys) -> None:
    _glm4(config, keys)
    draft = config.integer("num_nextn_predict_layers", default=0)
    keys["block_count"] = config.layers + draft
    keys["nextn_predict_layers"] = draft
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["expert_shared_count"] = config.integer("n_shared_experts")
    keys["leading_dense_block_count"] = config.integer("first_k_dense_replace")
    keys["expert_gating_func"] = _SIGMOID
    keys["expert_weights_scale"] = config.number("routed_scaling_factor", default=1.0)
    keys["expert_weights_norm"] = bool(config.get("norm_topk_prob"))


def _glm4_moe_features(config: Config) -> list[str]:
    features = ["qk_norm"] if config.get("use_qk_norm") else []
    return features + (["nextn_embeddings"] if config.get("num_nextn_predict_layers") else [])


def _lfm2(config: Config, keys: Keys) -> None:
    kv_heads = config.integer("num_key_value_heads")
    attention = set(config.sequence("full_attn_idxs"))
    kinds = config.layer_types or [
        "full_attention" if i in attention else "conv" for i in range(config.layers)
    ]
    keys["attention.head_count_kv"] = tuple(
        kv_heads if kind == "full_attention" else 0 for kind in kinds
    )
    keys["shortconv.l_cache"] = config.integer("conv_L_cache")
    keys["attention.layer_norm_rms_epsilon"] = config.number("norm_eps", "block_norm_eps")


def _lfm2_dense(config: Config, keys: Keys) -> None:
    _lfm2(config, keys)
    width = config.integer("block_ff_dim", "intermediate_size")
    if config.get("block_auto_adjust_ff_dim"):
        width = int(config.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        multiple = config.integer("block_multiple_of")
        width = -(-width // multiple) * multiple
    keys["feed_forward_length"] = width
    # llama.cpp calls a layer a mixture unless it is one of the leading dense ones.
    keys["leading_dense_block_count"] = config.layers


def _lfm2_moe(config: Config, keys: Keys) -> None:
    _lfm2(config, keys)
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["leading_dense_block_count"] = config.integer("num_dense_layers")
    keys["expert_gating_func"] = _SIGMOID


def _falcon_h1(config: Config, keys: Keys) -> None:
    inner = config.integer("mamba_d_ssm")
    keys["ssm.conv_kernel"] = config.integer("mamba_d_conv")
    keys["ssm.state_size"] = config.integer("mamba_d_state")
    keys["ssm.group_count"] = config.integer("mamba_n_groups")
    keys["ssm.inner_size"] = inner
    keys["ssm.time_step_rank"] = inner // config.integer("mamba_d_head")


def _falcon_h1_features(config: Config) -> list[str]:
    return ["mamba2_norm"] if config.get("mamba_rms_norm") else []


def _nemotron(config: Config, keys: Keys) -> None:
    keys["attention.layer_norm_epsilon"] = config.number("norm_eps", "layer_norm_eps")
    keys.pop("attention.layer_norm_rms_epsilon", None)
    partial = config.number("partial_rotary_factor", "rope_percent")
    keys["rope.dimension_count"] = int(partial * config.integer("hidden_size")) // config.heads


def _nemotron_h(config: Config, keys: Keys) -> None:
    pattern = str(config.get("hybrid_override_pattern"))
    heads = config.integer("mamba_num_heads")
    kv_heads = config.integer("num_key_value_heads")
    width = config.integer("moe_intermediate_size", "intermediate_size")
    keys["block_count"] = len(pattern)
    keys["attention.head_count_kv"] = tuple(kv_heads if kind == "*" else 0 for kind in pattern)
    keys["feed_forward_length"] = tuple(width if kind in "-E" else 0 for kind in pattern)
    keys["attention.key_length"] = keys["attention.value_length"] = config.integer(
        "head_dim", "attention_head_dim"
    )
    keys["ssm.conv_kernel"] = config.integer("conv_kernel")
    keys["ssm.state_size"] = config.integer("ssm_state_size")
    keys["ssm.group_count"] = config.integer("n_groups")
    keys["ssm.time_step_rank"] = heads
    keys["ssm.inner_size"] = heads * config.integer("mamba_head_dim")
    epsilon = config.number("layer_norm_epsilon", "norm_eps", default=1e-5)
    keys["attention.layer_norm_rms_epsilon"] = keys["attention.layer_norm_epsilon"] = epsilon
    keys["context_length"] = 2**20
    keys["rope.scaling.finetuned"] = False


def _nemotron_h_moe(config: Config, keys: Keys) -> None:
    _nemotron_h(config, keys)
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["expert_shared_feed_forward_length"] = config.integer(
        "moe_shared_expert_intermediate_size"
    )
    keys["expert_shared_count"] = config.integer("n_shared_experts")
    keys["expert_weights_norm"] = bool(config.get("norm_topk_prob"))
    keys["expert_weights_scale"] = config.number("routed_scaling_factor")


def _hunyuan_rope(config: Config, keys: Keys) -> None:
    rope = config.rope
    if rope.get("type", "rope_type") == "dynamic":
        size = config.head_dim
        base = config.number("rope_theta", default=10000.0)
        keys["rope.freq_base"] = base * rope.number("alpha") ** (size / (size - 2))
        keys["context_length"] = 256 * 1024


def _hunyuan_dense(config: Config, keys: Keys) -> None:
    _hunyuan_rope(config, keys)
    for key in ("expert_count", "expert_used_count"):
        keys.pop(key, None)


def _hunyuan_moe(config: Config, keys: Keys) -> None:
    _hunyuan_rope(config, keys)
    keys["expert_shared_feed_forward_length"] = config.integer("intermediate_size")
    keys["expert_feed_forward_length"] = int(config.sequence("moe_intermediate_size")[0])
    keys["expert_used_count"] = int(config.sequence("moe_topk")[0])
    keys["expert_shared_count"] = int(config.sequence("num_shared_expert")[0])


def _ernie_moe(config: Config, keys: Keys) -> None:
    width = config.integer("moe_intermediate_size")
    shared = config.integer("moe_num_shared_experts", default=0)
    keys["expert_count"] = config.integer("moe_num_experts")
    keys["expert_used_count"] = config.integer("moe_k")
    keys["interleave_moe_layer_step"] = config.integer("moe_layer_interval")
    keys["leading_dense_block_count"] = config.integer("moe_layer_start_index")
    keys["expert_feed_forward_length"] = width
    keys["expert_shared_count"] = shared
    if shared:
        keys["expert_shared_feed_forward_length"] = width * shared


def _kimi_linear(config: Config, keys: Keys) -> None:
    linear = config.mapping("linear_attn_config")
    full = set(linear.sequence("full_attn_layers"))
    keys["ssm.conv_kernel"] = linear.integer("short_conv_kernel_size")
    keys["kda.head_dim"] = linear.integer("head_dim")
    _deepseek(config, keys)
    keys["attention.head_count_kv"] = tuple(int(i + 1 in full) for i in range(config.layers))
    keys["expert_shared_count"] = config.integer("num_shared_experts")
    keys.setdefault("expert_gating_func", _SIGMOID)


def _minimax_m2(config: Config, keys: Keys) -> None:
    keys["expert_feed_forward_length"] = config.integer("intermediate_size")
    keys["rope.dimension_count"] = config.integer("rotary_dim")


def _mamba(config: Config, keys: Keys) -> None:
    width = config.integer("hidden_size", "d_model")
    keys.update(
        {
            "context_length": 2**20,
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "ssm.conv_kernel": config.integer("conv_kernel", "d_conv", default=4),
            "ssm.inner_size": config.integer("intermediate_size", "d_inner", default=2 * width),
            "ssm.state_size": config.integer("state_size", "d_state", default=16),
            "ssm.time_step_rank": config.integer("time_step_rank", default=-(-width // 16)),
            "attention.layer_norm_rms_epsilon": config.number("layer_norm_epsilon", default=1e-5),
        }
    )


def _mamba2(config: Config, keys: Keys) -> None:
    width = config.integer("hidden_size", "d_model")
    inner = config.integer("expand", default=2) * width
    _mamba(config, keys)
    keys["ssm.inner_size"] = inner
    keys["ssm.state_size"] = config.integer("state_size", "d_state", default=128)
    keys["ssm.group_count"] = config.integer("n_groups", default=1)
    keys["ssm.time_step_rank"] = inner // config.integer("head_dim", default=64)
    for key in ("attention.key_length", "attention.value_length"):
        keys.pop(key, None)


def _rwkv7(config: Config, keys: Keys) -> None:
    keys.update(
        {
            "context_length": 2**20,
            "attention.head_count": 0,
            "attention.layer_norm_epsilon": config.number("norm_eps"),
            "wkv.head_size": config.integer("head_dim"),
            "attention.decay_lora_rank": config.integer("decay_low_rank_dim"),
            "attention.iclr_lora_rank": config.integer("a_low_rank_dim"),
            "attention.value_residual_mix_lora_rank": config.integer("v_low_rank_dim"),
            "attention.gate_lora_rank": config.integer("gate_low_rank_dim"),
        }
    )
    for key in ("attention.layer_norm_rms_epsilon", "attention.key_length"):
        keys.pop(key, None)
    keys.pop("attention.value_length", None)


def _exaone4(config: Config, keys: Keys) -> None:
    if config.get("sliding_window"):
        keys["attention.sliding_window"] = config.integer("sliding_window")
        keys["attention.sliding_window_pattern"] = tuple(
            kind == "sliding_attention" for kind in config.layer_types
        )


def _exaone4_features(config: Config) -> list[str]:
    return ["rope_freqs"] if config.rope.get("rope_type") == "llama3" else []


def _cohere2(config: Config, keys: Keys) -> None:
    keys["logit_scale"] = config.number("logit_scale")
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["rope.dimension_count"] = int(config.number("rotary_pct", default=1.0) * config.head_dim)


def _step35(config: Config, keys: Keys) -> None:
    other = config.mapping("attention_other_setting")
    kinds: Sequence[object] = config.layer_types[: config.layers]
    windows = tuple(kind == "sliding_attention" for kind in kinds)
    heads, kv_heads = config.heads, config.integer("num_attention_groups")
    window_heads = other.integer("num_attention_heads", default=heads)
    window_kv_heads = other.integer("num_attention_groups", default=kv_heads)
    keys["attention.head_count"] = tuple(window_heads if w else heads for w in windows)
    keys["attention.head_count_kv"] = tuple(window_kv_heads if w else kv_heads for w in windows)
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["attention.sliding_window_pattern"] = windows
    keys["expert_count"] = config.integer("moe_num_experts")
    keys["expert_used_count"] = config.integer("moe_top_k")
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["expert_shared_feed_forward_length"] = config.integer("share_expert_dim")
    moe_layers = str(config.get("moe_layers_enum") or "0").split(",")
    keys["leading_dense_block_count"] = min(int(layer) for layer in moe_layers)
    keys["attention.layer_norm_rms_epsilon"] = config.number("rms_norm_eps", default=1e-5)
    keys["expert_gating_func"] = _SIGMOID
    theta = config.sequence("rope_theta")
    if theta:
        keys["rope.freq_base"] = float(theta[0])
        keys["rope.freq_base_swa"] = float(theta[1])


_GEMMA3_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
}
_LLAMA = Family(architecture="llama", extend=_llama, features=_llama_features)
_GEMMA3 = Family(
    architecture="gemma3", extend=_gemma3, tied_by_default=True, defaults=_GEMMA3_DEFAULTS
)
_GEMMA4 = Family(
    architecture="gemma4", extend=_gemma4, features=_gemma4_features, tied_by_default=True
)
_QWEN35 = Family(architecture="qwen35", extend=_qwen35)
_QWEN35_MOE = Family(architecture="qwen35moe", extend=_qwen35_moe)
_DEEPSEEK = Family(architecture="deepseek2", extend=_deepseek, features=_deepseek_features)
_GRANITE_MOE = Family(architecture="granitemoe", extend=_granite, features=_attention_bias)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "ministral3": Family(architecture="mistral3", extend=_ministral3),
    "smollm3": Family(
        architecture="smollm3", extend=_llama, features=_attention_bias, tied_by_default=True
    ),
    "llama4": Family(architecture="llama4", extend=_llama4, features=_llama4_features),
    "llama4_text": Family(architecture="llama4", extend=_llama4, features=_llama4_features),
    "qwen2": Family(architecture="qwen2"),
    "qwen2_moe": Family(architecture="qwen2moe", extend=_qwen_moe),
    "qwen3": Family(architecture="qwen3"),
    "qwen3_moe": Family(architecture="qwen3moe", extend=_qwen_moe),
    "qwen3_next": Family(architecture="qwen3next", extend=_qwen3_next),
    "qwen3_5": _QWEN35,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe": _QWEN35_MOE,
    "qwen3_5_moe_text": _QWEN35_MOE,
    "gemma": Family(architecture="gemma", tied_by_default=True),
    "gemma2": Family(architecture="gemma2", extend=_gemma2, tied_by_default=True),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "phi3": Family(architecture="phi3", extend=_phi3, features=_phi3_features),
    "granite": Family(architecture="granite", extend=_granite, features=_attention_bias),
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": _GRANITE_MOE,
    "granitemoehybrid": Family(architecture="granitehybrid", extend=_granite_hybrid),
    "olmo2": Family(architecture="olmo2", extend=_olmo2),
    "olmo3": Family(architecture="olmo2", extend=_olmo2),
    "olmoe": Family(architecture="olmoe", extend=_olmoe),
    "gpt_oss": Family(architecture="gpt-oss", extend=_gpt_oss),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4": Family(architecture="glm4", extend=_glm4, features=_attention_bias),
    "glm4_moe": Family(architecture="glm4moe", extend=_glm4_moe, features=_glm4_moe_features),
    "glm4v_moe_text": Family(architecture="glm4moe", extend=_glm4_moe, features=_glm4_moe_features),
    "lfm2": Family(architecture="lfm2", extend=_lfm2_dense, tied_by_default=True),
    "lfm2_moe": Family(architecture="lfm2moe", extend=_lfm2_moe, tied_by_default=True),
    "falcon_h1": Family(architecture="falcon-h1", extend=_falcon_h1, features=_falcon_h1_features),
    "nemotron": Family(architecture="nemotron", extend=_nemotron),
    "nemotron_h": Family(architecture="nemotron_h", extend=_nemotron_h),
    "nemotron_h_moe": Family(architecture="nemotron_h_moe", extend=_nemotron_h_moe),
    "hunyuan_v1_dense": Family(architecture="hunyuan-dense", extend=_hunyuan_dense),
    "hunyuan": Family(architecture="hunyuan-moe", extend=_hunyuan_moe),
    "hunyuan_v1_moe": Family(architecture="hunyuan-moe", extend=_hunyuan_moe),
    "ernie4_5": Family(architecture="ernie4_5", tied_by_default=True),
    "ernie4_5_moe": Family(architecture="ernie4_5-moe", extend=_ernie_moe, tied_by_default=True),
    "kimi_linear": Family(architecture="kimi-linear", extend=_kimi_linear),
    "minimax_m2": Family(architecture="minimax-m2", extend=_minimax_m2),
    "mamba": Family(architecture="mamba", extend=_mamba, tied_by_default=True),
    "mamba2": Family(architecture="mamba2", extend=_mamba2, tied_by_default=True),
    "rwkv7": Family(architecture="rwkv7", extend=_rwkv7),
    "exaone4": Family(architecture="exaone4", extend=_exaone4, features=_exaone4_features),
    "seed_oss": Family(architecture="seed_oss", extend=_llama),
    "cohere2": Family(architecture="cohere2", extend=_cohere2, tied_by_default=True),
    "step3p5": Family(architecture="step35", extend=_step35),
}

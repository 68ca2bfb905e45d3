"""What families of transformers add to the common hyper-parameters of a config.

One function for each converter class of llama.cpp that differs (``conversion/*.py``,
commit 0c1e57098bba): ``add_X`` fills in GGUF keys, ``X_features`` names optional tensors.
"""

from __future__ import annotations

import re

from cpubound.errors import InputError
from cpubound.model.hf.config import Config, Keys

SIGMOID = 2  # LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID


def add_llama(config: Config, keys: Keys) -> None:
    """Add what ``LlamaModel`` writes."""
    keys["rope.dimension_count"] = config.head_dim


def llama_features(config: Config) -> list[str]:
    """Name the tensors of scaled ropes and of biases."""
    features = []
    if config.rope.text("rope_type", "type").lower() == "llama3":
        features.append("rope_freqs")
    if config.get("attention_bias") is True:
        features += ["qkv_bias", "attn_output_bias"]
    return features


def attention_bias_features(config: Config) -> list[str]:
    """Name the tensors of biases."""
    return ["qkv_bias"] if config.get("attention_bias") is True else []


def add_llama4(config: Config, keys: Keys) -> None:
    """Add what ``Llama4Model`` writes."""
    add_llama(config, keys)
    keys["expert_feed_forward_length"] = config.integer("intermediate_size")
    keys["feed_forward_length"] = config.integer("intermediate_size_mlp")
    keys["interleave_moe_layer_step"] = config.integer("interleave_moe_layer_step")


def llama4_features(config: Config) -> list[str]:
    """Name the tensors of scaled ropes."""
    return ["rope_freqs"] if config.rope.text("rope_type", "type") == "llama3" else []


def add_ministral3(config: Config, keys: Keys) -> None:
    """Add what ``Mistral3Model`` writes."""
    add_llama(config, keys)
    rope = config.rope
    if rope.get("mscale_all_dim") is not None:
        keys["rope.scaling.yarn_log_multiplier"] = rope.number("mscale_all_dim")
    if rope.get("llama_4_scaling_beta") is not None:
        keys["attention.temperature_scale"] = rope.number("llama_4_scaling_beta")


def add_qwen_moe(config: Config, keys: Keys) -> None:
    """Add what ``Qwen2MoeModel`` writes."""
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    if config.get("shared_expert_intermediate_size"):
        keys["expert_shared_feed_forward_length"] = config.integer(
            "shared_expert_intermediate_size"
        )


def add_qwen_vision(config: Config, keys: Keys) -> None:
    """Add what ``Qwen2VLModel`` writes: a position of three parts."""
    sections = config.rope.integers("mrope_section") or (16, 24, 24)
    keys["rope.dimension_sections"] = (*sections, 0, 0, 0, 0)[:4]


def add_qwen3_vision(config: Config, keys: Keys) -> None:
    """Add what ``Qwen3VLTextModel`` writes."""
    sections = config.rope.integers("mrope_section") or (24, 20, 20)
    keys["rope.dimension_sections"] = (*sections, 0, 0, 0, 0)[:4]
    depths = config.mapping("vision_config").integers("deepstack_visual_indexes")
    keys["n_deepstack_layers"] = len(depths)


def add_qwen3_moe_vision(config: Config, keys: Keys) -> None:
    """Add what ``Qwen3VLMoeTextModel`` writes."""
    add_qwen_moe(config, keys)
    add_qwen3_vision(config, keys)


def add_gemma2(config: Config, keys: Keys) -> None:
    """Add what ``Gemma2Model`` writes."""
    keys["attn_logit_softcapping"] = config.number("attn_logit_softcapping")
    keys["final_logit_softcapping"] = config.number("final_logit_softcapping")
    keys["attention.sliding_window"] = config.integer("sliding_window")


def add_gemma3(config: Config, keys: Keys) -> None:
    """Add what ``Gemma3Model`` writes."""
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys.setdefault("rope.freq_base", 1_000_000.0)


def add_gemma3n(config: Config, keys: Keys) -> None:
    """Add what ``Gemma3NModel`` writes."""
    keys["feed_forward_length"] = config.equal_integer("intermediate_size")
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["attention.sliding_window_pattern"] = tuple(
        kind == "sliding_attention" for kind in config.layer_types
    )
    keys["attention.shared_kv_layers"] = config.integer("num_kv_shared_layers")
    keys["embedding_length_per_layer_input"] = config.integer("hidden_size_per_layer_input")
    keys["altup.active_idx"] = config.integer("altup_active_idx", default=0)
    keys["altup.num_inputs"] = config.integer("altup_num_inputs", default=4)


def add_gemma4(config: Config, keys: Keys) -> None:
    """Add what ``Gemma4Model`` writes."""
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


def gemma4_features(config: Config) -> list[str]:
    """Name the value matrices, unless keys serve as values."""
    return [] if config.get("attention_k_eq_v") else ["attn_v"]


def add_phi3(config: Config, keys: Keys) -> None:
    """Add what ``Phi3MiniModel`` writes."""
    partial = config.partial_rotary_factor or 1.0
    keys["rope.dimension_count"] = int(partial * config.head_dim)
    keys["rope.scaling.original_context_length"] = config.integer(
        "original_max_position_embeddings", "max_position_embeddings"
    )
    keys["attention.sliding_window"] = config.integer("sliding_window", default=0)


def phi3_features(config: Config) -> list[str]:
    """Name the tensors of scaled ropes."""
    return ["rope_factors"] if config.rope.get("long_factor") else []


def add_granite(config: Config, keys: Keys) -> None:
    """Add what ``GraniteModel`` writes."""
    add_llama(config, keys)
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


def add_olmo2(config: Config, keys: Keys) -> None:
    """Add what ``Olmo2Model`` writes."""
    if config.get("sliding_window"):
        keys["attention.sliding_window"] = config.integer("sliding_window")
        pattern = tuple(kind == "sliding_attention" for kind in config.layer_types)
        keys["attention.sliding_window_pattern"] = pattern or tuple(
            (i + 1) % 4 != 0 for i in range(config.layers)
        )


def add_olmoe(config: Config, keys: Keys) -> None:
    """Add what ``OlmoeModel`` writes."""
    keys["attention.layer_norm_rms_epsilon"] = 1e-5


def add_gpt_oss(config: Config, keys: Keys) -> None:
    """Add what ``GptOssModel`` writes."""
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["expert_feed_forward_length"] = config.integer("intermediate_size")
    keys["rope.dimension_count"] = config.head_dim


def add_deepseek(config: Config, keys: Keys) -> None:
    """Add what ``DeepseekV2Model`` writes."""
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


def deepseek_features(config: Config) -> list[str]:
    """Name the bias by which experts are balanced."""
    return ["probs_bias"] if config.get("topk_method") == "noaux_tc" else []


def add_glm4(config: Config, keys: Keys) -> None:
    """Add what ``Glm4Model`` writes."""
    partial = config.partial_rotary_factor or 0.5
    keys["rope.dimension_count"] = int(config.head_dim * partial)


def add_glm4_moe(config: Config, keys: Keys) -> None:
    """Add what ``Glm4MoeModel`` writes."""
    add_glm4(config, keys)
    draft = config.integer("num_nextn_predict_layers", default=0)
    keys["block_count"] = config.layers + draft
    keys["nextn_predict_layers"] = draft
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["expert_shared_count"] = config.integer("n_shared_experts")
    keys["leading_dense_block_count"] = config.integer("first_k_dense_replace")
    keys["expert_gating_func"] = SIGMOID
    keys["expert_weights_scale"] = config.number("routed_scaling_factor", default=1.0)
    keys["expert_weights_norm"] = bool(config.get("norm_topk_prob"))


def glm4_moe_features(config: Config) -> list[str]:
    """Name the norms of queries and keys, and the tables of the draft layer."""
    features = ["qk_norm"] if config.get("use_qk_norm") else []
    return features + (["nextn_embeddings"] if config.get("num_nextn_predict_layers") else [])


def add_nemotron(config: Config, keys: Keys) -> None:
    """Add what ``NemotronModel`` writes."""
    keys["attention.layer_norm_epsilon"] = config.number("norm_eps", "layer_norm_eps")
    keys.pop("attention.layer_norm_rms_epsilon", None)
    partial = config.number("partial_rotary_factor", "rope_percent")
    keys["rope.dimension_count"] = int(partial * config.integer("hidden_size")) // max(
        config.heads, 1
    )


def _hunyuan_rope(config: Config, keys: Keys) -> None:
    rope = config.rope
    if rope.text("type", "rope_type") == "dynamic":
        size = max(config.head_dim, 3)
        base = config.number("rope_theta", default=10000.0)
        keys["rope.freq_base"] = base * abs(rope.number("alpha")) ** (size / (size - 2))
        keys["context_length"] = 256 * 1024


def add_hunyuan_dense(config: Config, keys: Keys) -> None:
    """Add what ``HunYuanModel`` writes."""
    _hunyuan_rope(config, keys)
    for key in ("expert_count", "expert_used_count"):
        keys.pop(key, None)


def add_hunyuan_moe(config: Config, keys: Keys) -> None:
    """Add what ``HunYuanMoEModel`` writes."""
    _hunyuan_rope(config, keys)
    keys["expert_shared_feed_forward_length"] = config.integer("intermediate_size")
    keys["expert_feed_forward_length"] = config.equal_integer("moe_intermediate_size")
    keys["expert_used_count"] = config.equal_integer("moe_topk")
    keys["expert_shared_count"] = config.equal_integer("num_shared_expert")


def add_ernie_moe(config: Config, keys: Keys) -> None:
    """Add what ``Ernie4_5MoeModel`` writes."""
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


def add_bailing_moe2(config: Config, keys: Keys) -> None:
    """Add what ``BailingMoeV2Model`` writes; the first version has the same type name."""
    if "BailingMoeForCausalLM" in config.sequence("architectures"):
        raise InputError("no layout for the first BailingMoe (model_type bailing_moe): give a GGUF")
    width = config.integer("moe_intermediate_size")
    shared = config.integer("num_shared_experts")
    keys["rope.dimension_count"] = int(config.head_dim * (config.partial_rotary_factor or 0.5))
    keys["leading_dense_block_count"] = config.integer("first_k_dense_replace")
    keys["expert_feed_forward_length"] = width
    keys["expert_shared_feed_forward_length"] = config.integer(
        "moe_shared_expert_intermediate_size", default=width * shared
    )
    keys["expert_shared_count"] = shared
    keys["expert_weights_scale"] = config.number("routed_scaling_factor", default=1.0)
    keys["expert_weights_norm"] = bool(config.get("norm_topk_prob"))
    keys.setdefault("expert_gating_func", SIGMOID)


def bailing_moe2_features(config: Config) -> list[str]:
    """Name the bias by which experts are balanced."""
    return ["probs_bias"] if config.get("moe_router_enable_expert_bias") else []


def add_minimax_m2(config: Config, keys: Keys) -> None:
    """Add what ``MiniMaxM2Model`` writes."""
    keys["expert_feed_forward_length"] = config.integer("intermediate_size")
    keys["rope.dimension_count"] = config.integer("rotary_dim")


def add_exaone4(config: Config, keys: Keys) -> None:
    """Add what ``Exaone4Model`` writes."""
    if config.get("sliding_window"):
        keys["attention.sliding_window"] = config.integer("sliding_window")
        keys["attention.sliding_window_pattern"] = tuple(
            kind == "sliding_attention" for kind in config.layer_types
        )


def exaone4_features(config: Config) -> list[str]:
    """Name the tensors of scaled ropes."""
    return ["rope_freqs"] if config.rope.text("rope_type", "type") == "llama3" else []


def add_cohere2(config: Config, keys: Keys) -> None:
    """Add what ``Cohere2Model`` writes."""
    keys["logit_scale"] = config.number("logit_scale")
    keys["attention.sliding_window"] = config.integer("sliding_window")
    keys["rope.dimension_count"] = int(config.number("rotary_pct", default=1.0) * config.head_dim)


def add_starcoder2(config: Config, keys: Keys) -> None:
    """Add what ``StarCoder2Model`` writes: its norms have a mean and a bias."""
    keys["attention.layer_norm_epsilon"] = config.number("norm_epsilon", default=1e-5)


def add_step35(config: Config, keys: Keys) -> None:
    """Add what ``Step35Model`` writes."""
    other = config.mapping("attention_other_setting")
    kinds = config.layer_types[: config.layers]
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
    moe_layers = re.findall(r"\b[0-9]{1,6}\b", config.text("moe_layers_enum"))
    keys["leading_dense_block_count"] = min((int(layer) for layer in moe_layers), default=0)
    keys["attention.layer_norm_rms_epsilon"] = config.number("rms_norm_eps", default=1e-5)
    keys["expert_gating_func"] = SIGMOID
    if isinstance(config.get("rope_theta"), (list, tuple)) and config.numbers("rope_theta"):
        # One for each layer; the first has full attention, the second a window.
        keys["rope.freq_base"], *others = config.numbers("rope_theta")
        if others:
            keys["rope.freq_base_swa"] = others[0]

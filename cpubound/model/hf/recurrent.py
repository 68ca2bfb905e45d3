"""What families with recurrent or convolution layers add to the common hyper-parameters.

One function for each converter class of llama.cpp that differs (``conversion/*.py``,
commit 0c1e57098bba): ``add_X`` fills in GGUF keys, ``X_features`` names optional tensors.
"""

from __future__ import annotations

from cpubound.model.hf.attention import SIGMOID, add_deepseek, add_granite, add_qwen_moe
from cpubound.model.hf.config import Config, Keys


def _delta_net(config: Config, keys: Keys) -> None:
    value_heads = config.integer("linear_num_value_heads")
    keys["ssm.conv_kernel"] = config.integer("linear_conv_kernel_dim")
    keys["ssm.state_size"] = config.integer("linear_key_head_dim")
    keys["ssm.group_count"] = config.integer("linear_num_key_heads")
    keys["ssm.time_step_rank"] = value_heads
    keys["ssm.inner_size"] = config.integer("linear_value_head_dim") * value_heads
    keys["full_attention_interval"] = config.integer("full_attention_interval", default=4)
    keys["rope.dimension_count"] = int(config.head_dim * (config.partial_rotary_factor or 0.25))


def add_qwen3_next(config: Config, keys: Keys) -> None:
    """Add what ``Qwen3NextModel`` writes."""
    add_qwen_moe(config, keys)
    _delta_net(config, keys)


def add_qwen35(config: Config, keys: Keys) -> None:
    """Add what ``Qwen3_5TextModel`` writes."""
    _delta_net(config, keys)
    sections = config.rope.integers("mrope_section") or (11, 11, 10)
    keys["rope.dimension_sections"] = (*sections, 0, 0, 0, 0)[:4]


def add_qwen35_moe(config: Config, keys: Keys) -> None:
    """Add what ``Qwen3_5MoeTextModel`` writes."""
    add_qwen_moe(config, keys)
    add_qwen35(config, keys)


def add_granite_hybrid(config: Config, keys: Keys) -> None:
    """Add what ``GraniteHybridModel`` writes."""
    add_granite(config, keys)
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


def _lfm2(config: Config, keys: Keys) -> None:
    kv_heads = config.integer("num_key_value_heads")
    attention = set(config.integers("full_attn_idxs"))
    kinds = config.layer_types or [
        "full_attention" if i in attention else "conv" for i in range(config.layers)
    ]
    keys["attention.head_count_kv"] = tuple(
        kv_heads if kind == "full_attention" else 0 for kind in kinds
    )
    keys["shortconv.l_cache"] = config.integer("conv_L_cache")
    keys["attention.layer_norm_rms_epsilon"] = config.number("norm_eps", "block_norm_eps")


def add_lfm2_dense(config: Config, keys: Keys) -> None:
    """Add what ``LFM2Model`` writes."""
    _lfm2(config, keys)
    width = config.integer("block_ff_dim", "intermediate_size")
    if config.get("block_auto_adjust_ff_dim"):
        width = int(config.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        multiple = config.integer("block_multiple_of")
        width = -(-width // multiple) * multiple
    keys["feed_forward_length"] = width
    # llama.cpp calls a layer a mixture unless it is one of the leading dense ones.
    keys["leading_dense_block_count"] = config.layers


def add_lfm2_moe(config: Config, keys: Keys) -> None:
    """Add what ``LFM2MoeModel`` writes."""
    _lfm2(config, keys)
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["leading_dense_block_count"] = config.integer("num_dense_layers")
    keys["expert_gating_func"] = SIGMOID


def add_falcon_h1(config: Config, keys: Keys) -> None:
    """Add what ``FalconH1Model`` writes."""
    inner = config.integer("mamba_d_ssm")
    keys["ssm.conv_kernel"] = config.integer("mamba_d_conv")
    keys["ssm.state_size"] = config.integer("mamba_d_state")
    keys["ssm.group_count"] = config.integer("mamba_n_groups")
    keys["ssm.inner_size"] = inner
    keys["ssm.time_step_rank"] = inner // max(config.integer("mamba_d_head"), 1)


def falcon_h1_features(config: Config) -> list[str]:
    """Name the norm of the recurrent branch."""
    return ["mamba2_norm"] if config.get("mamba_rms_norm") else []


def _block_pattern(config: Config) -> str:
    """Return one letter a layer: M recurrent, * attention, - feed-forward, E experts."""
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    named = "".join(letters.get(str(kind), "") for kind in config.sequence("layers_block_type"))
    return config.text("hybrid_override_pattern") or named


def add_nemotron_h(config: Config, keys: Keys) -> None:
    """Add what ``NemotronHModel`` writes."""
    pattern = _block_pattern(config)
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


def add_nemotron_h_moe(config: Config, keys: Keys) -> None:
    """Add what ``NemotronHModel`` with experts writes."""
    add_nemotron_h(config, keys)
    keys["expert_feed_forward_length"] = config.integer("moe_intermediate_size")
    keys["expert_shared_feed_forward_length"] = config.integer(
        "moe_shared_expert_intermediate_size"
    )
    keys["expert_shared_count"] = config.integer("n_shared_experts")
    keys["expert_weights_norm"] = bool(config.get("norm_topk_prob"))
    keys["expert_weights_scale"] = config.number("routed_scaling_factor")


def add_kimi_linear(config: Config, keys: Keys) -> None:
    """Add what ``KimiLinearModel`` writes."""
    linear = config.mapping("linear_attn_config")
    full = set(linear.integers("full_attn_layers"))
    keys["ssm.conv_kernel"] = linear.integer("short_conv_kernel_size")
    keys["kda.head_dim"] = linear.integer("head_dim")
    add_deepseek(config, keys)
    keys["attention.head_count_kv"] = tuple(int(i + 1 in full) for i in range(config.layers))
    keys["expert_shared_count"] = config.integer("num_shared_experts")
    keys.setdefault("expert_gating_func", SIGMOID)


def add_mamba(config: Config, keys: Keys) -> None:
    """Add what ``MambaModel`` writes."""
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


def add_mamba2(config: Config, keys: Keys) -> None:
    """Add what ``Mamba2Model`` writes."""
    width = config.integer("hidden_size", "d_model")
    inner = config.integer("expand", default=2) * width
    add_mamba(config, keys)
    keys["ssm.inner_size"] = inner
    keys["ssm.state_size"] = config.integer("state_size", "d_state", default=128)
    keys["ssm.group_count"] = config.integer("n_groups", default=1)
    keys["ssm.time_step_rank"] = inner // max(config.integer("head_dim", default=64), 1)
    for key in ("attention.key_length", "attention.value_length"):
        keys.pop(key, None)


def add_rwkv7(config: Config, keys: Keys) -> None:
    """Add what ``Rwkv7Model`` writes."""
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

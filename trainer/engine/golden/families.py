"""Logits and gradients of tiny random models of every family that the engine serves, as transformers and PEFT
compute them.

Called by make.py. Weights and adapters come from the generator that Rust has, so that only configurations,
logits, losses and gradients are kept, in families/.
"""

import json

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import common

SEED = 9
N_IDS = 100
SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "eos_token_id": 258,
}
# Angles turn often within 100 positions, so that a wrong stretching is seen.
STRETCHED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
FAMILIES = {
    "llama": {"model_type": "llama", "rope_theta": 10000.0},
    "llama_biases_untied": {"model_type": "llama", "attention_bias": True, "tie_word_embeddings": False, "rope_theta": 500000.0},
    "llama3_scaling": {"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": STRETCHED},
    "linear_scaling": {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"model_type": "mistral", "rope_theta": 1000000.0, "sliding_window": None, "head_dim": 8},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0, "use_sliding_window": False, "sliding_window": 32},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1000000.0, "head_dim": 16, "attention_bias": False},
    "mistral_window": {"model_type": "mistral", "rope_theta": 10000.0, "sliding_window": 5, "head_dim": 8},
    "qwen2_window": {"model_type": "qwen2", "rope_theta": 10000.0, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    # As files of before transformers 5 have it, and as newer ones do; the window goes over layers 0 and 2, then over 0 and 1.
    "gemma3": {
        "model_type": "gemma3_text", "num_hidden_layers": 3, "head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 7,
        "sliding_window_pattern": 2, "rope_theta": 10000.0, "rope_local_base_freq": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": None, "attn_logit_softcapping": None,
    },
    "gemma3_parameters": {
        "model_type": "gemma3_text", "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "tie_word_embeddings": False, "attention_bias": True,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    },
    # As 31B: layers that see everything have other heads, whose keys are values, too. A quarter of their pairs turn.
    "gemma4": {
        "model_type": "gemma4_text", "num_hidden_layers": 4, "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1,
        "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "sliding_window": 9, "final_logit_softcapping": 6.0,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    },
    # As E2B: layers have own inputs, the last two attend to the keys of layers 2 and 1, and have wider MLPs. The own inputs are as wide
    # as the model: with few numbers, what they choose may be all but 0, and its norm is noise in bf16 (transformers' gradients, too,
    # were then up to 1.0 from those in f32).
    "gemma4_own": {
        "model_type": "gemma4_text", "num_hidden_layers": 5, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 8,
        "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 259, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "sliding_window": 8, "final_logit_softcapping": None, "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000.0, "factor": 2.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    },
    # Value heads two for a key head, layers by the interval, a quarter of each head turns.
    "qwen3_5": {
        "model_type": "qwen3_5_text", "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0]},
    },
    "qwen3_5_untied": {
        "model_type": "qwen3_5_text", "num_hidden_layers": 3, "num_key_value_heads": 4, "head_dim": 8, "attention_bias": True,
        "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 4, "linear_value_head_dim": 10,
        "linear_conv_kernel_dim": 2, "layer_types": ["full_attention", "linear_attention", "linear_attention"],
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0, "partial_rotary_factor": 0.5},
    },
}


def names(config: dict) -> list:
    """The tensors in the order of `weights::expected`."""
    bias = config["model_type"] == "qwen2" or config.get("attention_bias", False)
    gemma4 = config["model_type"] == "gemma4_text"
    gemma = gemma4 or config["model_type"] == "gemma3_text"
    rest = ["post_attention_layernorm.weight", *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "down"))]
    parts = ["input_layernorm.weight", *(f"self_attn.{p}_proj.weight" for p in "qkvo"), *rest]
    parts += [f"self_attn.{p}_proj.bias" for p in "qkv"] if bias else []
    parts += ["self_attn.o_proj.bias"] if bias and config["model_type"] != "qwen2" else []
    normed = ("qwen3", "gemma3_text", "gemma4_text", "qwen3_5_text")
    parts += ["self_attn.q_norm.weight", "self_attn.k_norm.weight"] if config["model_type"] in normed else []
    parts += ["pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"] if gemma else []
    parts += ["layer_scalar"] if gemma4 else []
    has_own = gemma4 and config["hidden_size_per_layer_input"] > 0
    parts += ["per_layer_input_gate.weight", "per_layer_projection.weight", "post_per_layer_input_norm.weight"] if has_own else []
    own = ["embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"] if has_own else []
    of_net = [*(f"in_proj_{p}.weight" for p in ("a", "b", "qkv", "z")), "out_proj.weight", "conv1d.weight", "A_log", "dt_bias", "norm.weight"]
    net = ["input_layernorm.weight", *(f"linear_attn.{part}" for part in of_net), *rest]
    # Layers without keys and values of their own.
    gone = common.absent(made(config)) if gemma4 else set()
    is_here = lambda i, part: not any((i, f"{module}_proj") in gone and part.startswith(f"self_attn.{module}_") for module in "kv")
    layers = [f"model.layers.{i}.{part}" for i, is_net in enumerate(nets(config)) for part in (net if is_net else parts) if is_here(i, part)]
    head = [] if config["tie_word_embeddings"] else ["lm_head.weight"]
    return ["model.embed_tokens.weight", *layers, *(f"model.{name}.weight" for name in own), "model.norm.weight", *head]


def made(config: dict):
    return AutoConfig.for_model(config["model_type"], **{k: v for k, v in config.items() if k != "model_type"})


def nets(config: dict) -> list:
    """Of each layer whether it is a gated delta net."""
    n_layers, kinds = config["num_hidden_layers"], config.get("layer_types", [])
    if config["model_type"] != "qwen3_5_text":
        return [False] * n_layers
    return [kind == "linear_attention" for kind in kinds] or [(i + 1) % config["full_attention_interval"] != 0 for i in range(n_layers)]


def weight(index: int, name: str, shape: tuple, less_one: bool) -> torch.Tensor:
    """As `testing::write_model`: norms multiply by around 1, and some add 1 by themselves; states decay slowly; all else is around 0."""
    middle, spread = (0.0 if less_one else 1.0, 0.3) if "norm" in name else (0.0, 0.4)
    if name.endswith("A_log"):
        middle, spread = -3.0, 2.0
    if name.endswith("linear_attn.norm.weight"):
        middle = 1.0
    if name.endswith("layer_scalar"):
        middle, spread = 1.0, 0.3
    low, high = middle - spread, middle + spread
    n = int(torch.Size(shape).numel())
    unit = (common.words(common.stream(SEED, index), n) >> 11).astype("float64") / (1 << 53)
    return torch.from_numpy((low + (high - low) * unit).astype("float32").reshape(shape))


def build(config: dict):
    model = AutoModelForCausalLM.from_config(made(config), dtype=torch.float32, attn_implementation="eager").eval()
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    less_one = config["model_type"] in ("gemma3_text", "qwen3_5_text")
    weights = {name: weight(i, name, shapes[name], less_one) for i, name in enumerate(names(config))}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def logits(config: dict, ids: list) -> torch.Tensor:
    with torch.no_grad():
        return build(config)(input_ids=torch.tensor([ids])).logits[0]


def session() -> list:
    """Two turns of one session, the second of which goes on from the first, and a rewritten one: samples that
    share a beginning, each computed alone here."""
    ids = lambda index, n: (common.words(common.stream(5, index), n) % 259).astype(int).tolist()
    system, first, second = ids(0, 12), ids(1, 9), ids(2, 14)
    turns = [(system + first, 14), (system + first + second, 26), (system + second, 16)]
    return [common.datum(turn, reply, 10 + i) for i, (turn, reply) in enumerate(turns)]


def gradients(config: dict, datums: list) -> tuple:
    """Losses by name; gradients by loss and parameter."""
    model, params = common.adapted(build(config), 4, 2)
    losses, grads = {}, {}
    for loss in common.LOSSES:
        losses[loss] = common.backward(model, datums, loss)
        grads |= {f"{loss}.{name}": param.grad.clone() for name, param in params.items()}
    return losses, grads


def turns(config: dict) -> list:
    """Three turns of a session: what is new in each prompt, and the greedy reply of 64 ids. No second best id is near."""
    model, session, all_turns = build(config), [], []
    with torch.no_grad():
        for turn, n in enumerate((90, 30, 45)):
            new = (common.words(common.stream(21, turn), n) % 258).astype(int).tolist()
            session += new
            reply, cache = [], None
            step = session
            for _ in range(64):
                out = model(input_ids=torch.tensor([step]), cache=cache, use_cache=True)
                best = out.logits[0, -1].topk(2)
                assert best.values[0] - best.values[1] > 1e-3, (turn, len(reply))
                cache = out.cache
                step = [int(best.indices[0])]
                reply += step
            session = session + reply
            all_turns.append({"new": new, "reply": reply})
    return all_turns


def main() -> None:
    folder = common.HERE / "families"
    folder.mkdir(exist_ok=True)
    ids = [(i * 37 + 11) % 259 for i in range(N_IDS)]
    configs = {name: {**SIZES, **family} for name, family in FAMILIES.items()}
    rows = {name: logits(config, ids)[[0, 1, N_IDS - 1]].contiguous() for name, config in configs.items()}
    datums, losses = session(), {}
    for name, config in configs.items():
        losses[name], grads = gradients(config, datums)
        rows |= {f"{name}.{key}": grad for key, grad in grads.items()}
    text = {"seed": SEED, "ids": ids, "rows": [0, 1, N_IDS - 1], "configs": configs, "datums": datums, "losses": losses}
    text["turns"] = {name: turns(config) for name, config in configs.items() if any(nets(config)) or config["model_type"] == "gemma4_text"}
    (folder / "values.json").write_text(json.dumps(text, indent=1) + "\n")
    save_file(rows, folder / "values.safetensors")


if __name__ == "__main__":
    main()

"""A model of Qwen3-4B's shape with random weights and few layers: random_model.py FOLDER LAYERS"""
import json, sys, torch
from safetensors.torch import save_file
folder, n_layers = sys.argv[1], int(sys.argv[2])
hidden, inner, heads, kv_heads, head, vocabulary = 2560, 9728, 32, 8, 128, 151936
config = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": inner,
    "num_hidden_layers": n_layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head,
    "vocab_size": vocabulary, "tie_word_embeddings": True, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 40960, "attention_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}
torch.manual_seed(1)
def weights(rows, columns): return (torch.randn(rows, columns) * 0.02).to(torch.bfloat16)
def ones(n): return torch.ones(n, dtype=torch.bfloat16)
tensors = {"model.embed_tokens.weight": weights(vocabulary, hidden), "model.norm.weight": ones(hidden)}
for n in range(n_layers):
    layer = {
        "self_attn.q_proj": (heads * head, hidden), "self_attn.k_proj": (kv_heads * head, hidden),
        "self_attn.v_proj": (kv_heads * head, hidden), "self_attn.o_proj": (hidden, heads * head),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }
    norms = {"self_attn.q_norm": head, "self_attn.k_norm": head, "input_layernorm": hidden, "post_attention_layernorm": hidden}
    tensors |= {f"model.layers.{n}.{name}.weight": weights(*shape) for name, shape in layer.items()}
    tensors |= {f"model.layers.{n}.{name}.weight": ones(size) for name, size in norms.items()}
save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})
json.dump(config, open(f"{folder}/config.json", "w"))

"""Writes a model with random weights in the shape of a Qwen3: only Python's own library is needed.

The values do not affect the time of a computation. They are cut at random places from one block of uniform numbers, so
that eight billion are written as fast as the disk takes them. The tokenizer is that of the demo model; ids beyond it
get names, so that a reply with them has a text.
"""

import array
import json
import random
import shutil
import sys
from pathlib import Path

VOCABULARY = 151_936
CONTEXT = 131_072
# hidden size, width of the MLP, layers, query heads, heads of keys and values, width of a head, tied embeddings, vocabulary
SHAPES = {
    "0.6B": (1024, 3072, 28, 16, 8, 128, True, VOCABULARY),
    "4B": (2560, 9728, 36, 32, 8, 128, True, VOCABULARY),
    "8B": (4096, 12288, 36, 32, 8, 128, False, VOCABULARY),
    "small": (64, 192, 2, 4, 2, 16, True, 49_152),
}
BLOCK = 1 << 20
# A uniform number up to this has a standard deviation of 0.02, as Qwen3's `initializer_range`.
MOST = 0.0346


def tensors(shape):
    """Name and sides of each tensor."""
    hidden, mlp, layers, heads, kv_heads, width, tied, vocabulary = SHAPES[shape]
    yield "model.embed_tokens.weight", [vocabulary, hidden]
    for layer in range(layers):
        own = f"model.layers.{layer}."
        yield own + "input_layernorm.weight", [hidden]
        yield own + "post_attention_layernorm.weight", [hidden]
        yield own + "self_attn.q_proj.weight", [heads * width, hidden]
        yield own + "self_attn.k_proj.weight", [kv_heads * width, hidden]
        yield own + "self_attn.v_proj.weight", [kv_heads * width, hidden]
        yield own + "self_attn.o_proj.weight", [hidden, heads * width]
        yield own + "self_attn.q_norm.weight", [width]
        yield own + "self_attn.k_norm.weight", [width]
        yield own + "mlp.gate_proj.weight", [mlp, hidden]
        yield own + "mlp.up_proj.weight", [mlp, hidden]
        yield own + "mlp.down_proj.weight", [hidden, mlp]
    yield "model.norm.weight", [hidden]
    if not tied:
        yield "lm_head.weight", [vocabulary, hidden]


def n_elements(sides):
    n = 1
    for side in sides:
        n *= side
    return n


def n_bytes(shape):
    return sum(2 * n_elements(sides) for _, sides in tensors(shape))


def bf16(numbers):
    """The upper halves of numbers in f32."""
    halves = array.array("H", array.array("f", numbers).tobytes())
    return halves[1::2].tobytes()


def write_weights(shape, newline, file):
    header, end = {}, 0
    for name, sides in tensors(shape):
        start, end = end, end + 2 * n_elements(sides)
        header[name] = {"dtype": "BF16", "shape": sides, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    block = bf16(rng.uniform(-MOST, MOST) for _ in range(BLOCK))
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, sides in tensors(shape):
            left = 2 * n_elements(sides)
            if len(sides) == 1:
                out.write(bf16([1.0]) * (left // 2))
                continue
            while left:
                start = 2 * rng.randrange(BLOCK // 2)
                part = block[start : start + left]
                out.write(part)
                left -= len(part)
        # A tied model repeats its last token. The chat template ends with a newline, and a stream holds newlines back until
        # other text follows. Without an embedding, the newline is followed by some other token.
        out.seek(8 + len(text) + 2 * SHAPES[shape][0] * newline)
        out.write(bytes(2 * SHAPES[shape][0]))


def config(shape):
    hidden, mlp, layers, heads, kv_heads, width, tied, vocabulary = SHAPES[shape]
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": vocabulary, "hidden_size": hidden,
        "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": width, "tie_word_embeddings": tied, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": CONTEXT, "attention_bias": False,
        "eos_token_id": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip


def write(shape, tokenizer, folder):
    """Writes the model, unless it is there; `tokenizer` is a folder with the demo model's tokenizer."""
    if (folder / "complete").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(tokenizer / "tokenizer_config.json", folder)
    read = json.loads((tokenizer / "tokenizer.json").read_text())
    names = read["model"]["vocab"]
    known = set(names.values()) | {token["id"] for token in read["added_tokens"]}
    names.update({f"t{i}x": i for i in range(SHAPES[shape][-1]) if i not in known})
    (folder / "tokenizer.json").write_text(json.dumps(read))
    (folder / "config.json").write_text(json.dumps(config(shape)))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    # The newline's name in a vocabulary of bytes.
    write_weights(shape, names["\u010a"], folder / "model.safetensors")
    (folder / "complete").touch()


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

"""Writes a model with random weights in the shape of a Qwen3 or a Qwen3.5: only Python's own library is needed.

The values do not affect the time of a computation. They are cut at random places from one block of uniform numbers, so
that eight billion are written as fast as the disk takes them. The tokenizer has a token for each word of the prompts, so
that their number of words is their number of tokens. Every token of a reply has a text that a stream sends at once, so
that the times of a stream's events are those of its tokens.
"""

import array
import json
import random
import sys
from pathlib import Path

from engine import WORDS

VOCABULARY = 151_936
CONTEXT = 131_072
# hidden size, width of the MLP, layers, query heads, heads of keys and values, width of a head, tied embeddings, vocabulary
SHAPES = {
    "0.6B": (1024, 3072, 28, 16, 8, 128, True, VOCABULARY),
    "4B": (2560, 9728, 36, 32, 8, 128, True, VOCABULARY),
    "8B": (4096, 12288, 36, 32, 8, 128, False, VOCABULARY),
    "small": (64, 192, 2, 4, 2, 16, True, 49_152),
    "qwen3.5-0.8B": (1024, 3584, 24, 8, 2, 256, True, 248_320),
    "qwen3.5-4B": (2560, 9216, 32, 16, 4, 256, True, 248_320),
    "qwen3.5-small": (64, 192, 4, 4, 2, 16, True, 49_152),
}
# Gated delta nets of Qwen3.5, in all layers but every fourth: heads of keys, heads of values, width of a head.
NETS = {"qwen3.5-0.8B": (16, 16, 128), "qwen3.5-4B": (16, 32, 128), "qwen3.5-small": (2, 4, 16)}
INTERVAL, KERNEL = 4, 4
BLOCK = 1 << 20
# A uniform number up to this has a standard deviation of 0.02, as Qwen3's `initializer_range`.
MOST = 0.0346
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# It ends without white space: a model with tied weights repeats the last token of its prompt, and a stream holds white space back.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ': ' + message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant:' }}{% endif %}"
)


def tensors(shape):
    """Name and sides of each tensor."""
    hidden, mlp, layers, heads, kv_heads, width, tied, vocabulary = SHAPES[shape]
    # A query head of Qwen3.5 has its gate behind it.
    queries = heads * width * (2 if shape in NETS else 1)
    yield "model.embed_tokens.weight", [vocabulary, hidden]
    for layer in range(layers):
        own = f"model.layers.{layer}."
        yield own + "input_layernorm.weight", [hidden]
        yield own + "post_attention_layernorm.weight", [hidden]
        if shape in NETS and (layer + 1) % INTERVAL:
            yield from net_tensors(own + "linear_attn.", hidden, *NETS[shape])
        else:
            yield own + "self_attn.q_proj.weight", [queries, hidden]
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


def net_tensors(own, hidden, key_heads, value_heads, width):
    values, convolved = value_heads * width, (2 * key_heads + value_heads) * width
    yield own + "in_proj_qkv.weight", [convolved, hidden]
    yield own + "in_proj_z.weight", [values, hidden]
    yield own + "in_proj_b.weight", [value_heads, hidden]
    yield own + "in_proj_a.weight", [value_heads, hidden]
    yield own + "out_proj.weight", [hidden, values]
    yield own + "conv1d.weight", [convolved, 1, KERNEL]
    yield own + "A_log", [value_heads]
    yield own + "dt_bias", [value_heads]
    yield own + "norm.weight", [width]


def constant(shape, name):
    """What all numbers of a vector are. Qwen3.5's norms add 1 by themselves, but for those of nets. States decay by about 6 % a
    position: if they were gone within a chunk, products of tiny numbers would make a CPU slow."""
    if name.endswith("A_log"):
        return -3.0
    return 0.0 if shape in NETS and name.endswith("norm.weight") and "linear_attn" not in name else 1.0


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


def write_weights(shape, file):
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
        for name, sides in tensors(shape):
            left = 2 * n_elements(sides)
            if len(sides) == 1:
                out.write(bf16([constant(shape, name)]) * (left // 2))
                continue
            while left:
                start = 2 * rng.randrange(BLOCK // 2)
                part = block[start : start + left]
                out.write(part)
                left -= len(part)


def config(shape):
    hidden, mlp, layers, heads, kv_heads, width, tied, vocabulary = SHAPES[shape]
    of_kind = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1e6}
    if shape in NETS:
        key_heads, value_heads, of_head = NETS[shape]
        of_kind = {
            "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "full_attention_interval": INTERVAL,
            "linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads, "linear_key_head_dim": of_head,
            "linear_value_head_dim": of_head, "linear_conv_kernel_dim": KERNEL,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        }  # fmt: skip
    return {
        **of_kind, "vocab_size": vocabulary, "hidden_size": hidden,
        "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": width, "tie_word_embeddings": tied, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "max_position_embeddings": CONTEXT, "attention_bias": False,
        "eos_token_id": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip


def tokenizer(n):
    """tokenizer.json with `n` tokens: the special ones, all bytes, the words of prompts, and names without a meaning."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    # The letters that GPT-2 writes for bytes.
    letters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    words = [*WORDS, "system", "user", "assistant"]
    words += [letters[ord(" ")] + word for word in words]
    known = list(dict.fromkeys([*SPECIAL, *(letters[byte] for byte in range(256)), *words]))
    names = [*known, *(f"t{i}x" for i in range(len(known), n))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level,
        "added_tokens": [{"id": i, "content": name, **added} for i, name in enumerate(SPECIAL)],
        "post_processor": None, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": True, "merges": [],
            "vocab": {name: i for i, name in enumerate(names)},
        },
    }  # fmt: skip


def write(shape, folder):
    """Writes the model, unless it is there."""
    if (folder / "complete").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    of_text = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "eos_token": SPECIAL[2]}
    files = {
        "tokenizer.json": tokenizer(SHAPES[shape][-1]), "tokenizer_config.json": of_text, "config.json": config(shape),
        "generation_config.json": {"eos_token_id": 2},
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    write_weights(shape, folder / "model.safetensors")
    (folder / "complete").touch()


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))

"""Makes the golden values of trainer/engine: PyTorch, transformers and PEFT in f32.

Run by `cargo xtask golden`, never in CI. Writes beside itself:

small/    a random Llama (its weights too), a PEFT adapter with random B, logits, and the gradient of
          every LoRA matrix under each loss, whole
images/   the same of a random Gemma 3 of text and images
nets/     the same of a random Qwen3.5 of text and images
smollm2/  for METACLAW_TEST_MODEL as the engine converts it: two rows of logits, projections of all, and
          projections of the gradient of every LoRA matrix; the adapter comes from a generator that Rust has
families/ logits of tiny models of every family, and the gradient of every LoRA matrix under each loss, whole
          (families.py)
"""

import json
import shutil

import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, Gemma3Config, Gemma3ForConditionalGeneration, LlamaConfig, LlamaForCausalLM,
    Qwen3_5Config, Qwen3_5ForConditionalGeneration
)

import common
import families


def small() -> None:
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1, attn_implementation="eager",
    )
    base = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for index, (name, param) in enumerate(base.named_parameters()):
            noise = common.uniform(common.stream(1, index), tuple(param.shape), 0.2)
            param.copy_(1.0 + noise if "norm" in name else noise)
    whole("small", base)


def images() -> None:
    text = {
        "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "query_pre_attn_scalar": 12,
        "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    }
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }
    config = Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=127, boi_token_index=126,
        eoi_token_index=125, eos_token_id=[1, 106], attn_implementation="eager",
    )
    base = Gemma3ForConditionalGeneration(config).float()
    with torch.no_grad():
        for index, (name, param) in enumerate(base.named_parameters()):
            # Norms of Gemma add 1 by themselves.
            param.copy_(common.uniform(common.stream(1, index), tuple(param.shape), 0.3))
    whole("images", base, "model.language_model.layers", ".*(vision_tower|multi_modal_projector).*")


def nets() -> None:
    text = {
        "vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6, "tie_word_embeddings": False,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
        },
    }
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32, "patch_size": 4,
        "num_position_embeddings": 16,
    }
    config = Qwen3_5Config(
        text_config=text, vision_config=vision, image_token_id=127, video_token_id=126, vision_start_token_id=125,
        vision_end_token_id=124, attn_implementation="eager",
    )
    base = Qwen3_5ForConditionalGeneration(config).float()
    with torch.no_grad():
        for index, (name, param) in enumerate(base.named_parameters()):
            # States decay slowly, and norms add 1 by themselves, except that of a net.
            middle = -3.0 if name.endswith("A_log") else 1.0 if name.endswith("linear_attn.norm.weight") else 0.0
            param.copy_(middle + common.uniform(common.stream(1, index), tuple(param.shape), 0.3))
    whole("nets", base, "model.language_model.layers", ".*visual.*")


def whole(name: str, base, layers_at: str = "model.layers", excluded: str | None = None) -> None:
    """A base, an adapter, logits and gradients, whole."""
    folder = common.HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    base.save_pretrained(folder)
    model, params = common.adapted(base, 4, 2, layers_at, excluded)
    # PEFT leaves it empty for a base that was made rather than loaded.
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    # A set in PEFT: without an order of its own the file would differ at every run.
    written = folder / "adapter" / "adapter_config.json"
    config = json.loads(written.read_text())
    common.write_json(written, config | {"target_modules": sorted(config["target_modules"])})

    ids = lambda index, n: (common.words(common.stream(3, index), n) % 128).astype(int).tolist()
    datums = [common.datum(ids(0, 24), 9, 4), common.datum(ids(1, 14), 4, 5), common.datum(ids(2, 41), 30, 6)]
    values, losses = {}, {}
    with torch.no_grad():
        for i, d in enumerate(datums):
            values[f"logits.{i}"] = model(input_ids=torch.tensor([d["input_ids"]])).logits[0]
    for loss in common.LOSSES:
        losses[loss] = common.backward(model, datums, loss)
        values |= {f"{loss}.{name}": param.grad.clone() for name, param in params.items()}
    save_file(values, folder / "values.safetensors")
    common.write_json(folder / "values.json", {"datums": datums, "losses": losses})


def smollm2() -> None:
    source, folder = common.converted(), common.HERE / "smollm2"
    folder.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(source)
    base = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    model, params = common.adapted(base, 4, 2)

    def chat(question: str, answer: str, seed: int) -> dict:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        begun = tokenizer(prompt).input_ids
        whole = tokenizer(prompt + answer + "<|im_end|>").input_ids
        return common.datum(whole, len(begun) - 1, seed)

    datums = [
        chat("What is the capital of France?", "The capital of France is Paris.", 4),
        chat("Say hello in Italian.", "Ciao! It is what friends say when they meet.", 5),
    ]
    values = {}
    with torch.no_grad():
        for i, d in enumerate(datums):
            logits = model(input_ids=torch.tensor([d["input_ids"]])).logits[0]
            values[f"logits.{i}.last"] = logits[-1].clone()
            rows = [common.project(row, common.stream(7, t)) for t, row in enumerate(logits)]
            values[f"logits.{i}.projected"] = torch.stack(rows)
    loss = common.backward(model, datums, "cross_entropy")
    for index, (name, param) in enumerate(params.items()):
        values[name] = common.project(param.grad, common.stream(8, index))
    save_file(values, folder / "values.safetensors")
    common.write_json(folder / "values.json", {"datums": datums, "losses": {"cross_entropy": loss}})


if __name__ == "__main__":
    torch.manual_seed(0)
    small()
    images()
    nets()
    smollm2()
    families.main()
    size = sum(f.stat().st_size for f in common.HERE.rglob("*") if f.is_file())
    print(json.dumps({"bytes": size}))

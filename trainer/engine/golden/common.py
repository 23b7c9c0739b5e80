"""What the golden scripts share: a generator that Rust has too, models, losses."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model

HERE = Path(__file__).resolve().parent
LOSSES = ["cross_entropy", "importance_sampling", "ppo", "cispo", "dro"]
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Of gated delta nets, in the order of `Projection::ALL`.
NET_MODULES = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def words(seed: int, n: int) -> np.ndarray:
    """The first n words of SplitMix64 from `seed`; word i depends on seed + (i + 1) * GOLDEN alone."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed & MASK) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def stream(seed: int, index: int) -> int:
    """The seed of one of many generators, as `SplitMix64::stream`."""
    return int(words(seed, 1)[0]) ^ int(words(index ^ GOLDEN, 1)[0])


def uniform(seed: int, shape: tuple, bound: float) -> torch.Tensor:
    """Uniform in [-bound, bound), 53 bits a number, rounded to f32."""
    unit = (words(seed, int(np.prod(shape))) >> np.uint64(11)).astype(np.float64) / (1 << 53)
    values = -bound + 2 * bound * unit
    return torch.from_numpy(values.reshape(shape).astype(np.float32))


def project(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """64 sums of all numbers with fixed random signs: bit j of word e is the sign of number e in sum j (1 is plus).

    Differences keep their relative 2-norm up to about one part in six, so a tensor of any size is
    compared by 64 numbers.
    """
    values = tensor.detach().double().reshape(-1).numpy()
    bits = (words(seed, values.size)[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    return torch.from_numpy((2.0 * bits.astype(np.float64) - 1.0).T @ values).float()


def peft_names(n_layers: int, layers_at: str, nets: list) -> list:
    """Parameters in the order of `Lora::params`: the layers', then the LM head's. Layers in `nets` are gated delta nets."""
    block = lambda module: "mlp" if module in MODULES[4:] else "linear_attn" if module in NET_MODULES else "self_attn"
    layers = [
        f"base_model.model.{layers_at}.{layer}.{block(module)}.{module}.lora_{side}.weight"
        for layer in range(n_layers)
        for module in (MODULES[4:] + NET_MODULES if layer in nets else MODULES)
        for side in "AB"
    ]
    return layers + [f"base_model.model.lm_head.lora_{side}.weight" for side in "AB"]


def parameters(model, n_layers: int, layers_at: str, nets: list) -> dict:
    """LoRA parameters by their names in a file, in order; in memory the adapter's name stands in them."""
    found = dict(model.named_parameters())
    memory = lambda name: name.replace(".weight", ".default.weight")
    return {name: found[memory(name)] for name in peft_names(n_layers, layers_at, nets)}


def fill(params: dict, seed: int, b_bound: float) -> None:
    """A as PEFT would draw it, B random instead of zero, both from the generator that Rust has."""
    for index, (name, param) in enumerate(params.items()):
        bound = b_bound if "lora_B" in name else param.shape[1] ** -0.5
        with torch.no_grad():
            param.copy_(uniform(stream(seed, index), tuple(param.shape), bound))


def datum(ids: list, first: int, seed: int) -> dict:
    """A sequence whose reply begins at `first`; sampled log-probabilities are around those of noise."""
    n = len(ids) - 1
    numbers = lambda index, bound: uniform(stream(seed, index), (n,), bound).tolist()
    silent = [0.0] * first
    return {
        "input_ids": ids[:-1],
        "target_ids": ids[1:],
        "weights": silent + numbers(1, 1.0)[first:],
        "advantages": silent + numbers(2, 1.0)[first:],
        "logprobs": silent + [x - 5.0 for x in numbers(3, 0.5)[first:]],
    }


def adapted(base, rank: int, seed: int, layers_at: str = "model.layers", excluded: str | None = None):
    """With an adapter for every map that the engine adapts. PEFT warns where the LM head is the embedding: unmerged, its
    adapter is on the output side alone, as the engine's."""
    text = base.config.get_text_config()
    kinds = getattr(text, "layer_types", None) or []
    nets = [layer for layer, kind in enumerate(kinds) if kind == "linear_attention"]
    targets = [*MODULES, *(NET_MODULES if nets else []), "lm_head"]
    config = LoraConfig(
        r=rank, lora_alpha=32, target_modules=targets, exclude_modules=excluded, task_type="CAUSAL_LM"
    )
    model = get_peft_model(base, config).eval()
    params = parameters(model, text.num_hidden_layers, layers_at, nets)
    fill(params, seed, 0.05)
    return model, params


def loss_of(name: str, logprobs: torch.Tensor, datum: dict) -> torch.Tensor:
    """The formulas of Tinker's interface; sums over positions."""
    tensor = lambda key: torch.tensor(datum[key], dtype=torch.float32)
    if name == "cross_entropy":
        return -(tensor("weights") * logprobs).sum()
    advantages, sampled = tensor("advantages"), tensor("logprobs")
    live = advantages != 0
    logprobs, advantages, sampled = logprobs[live], advantages[live], sampled[live]
    ratio = torch.exp(logprobs - sampled)
    if name == "importance_sampling":
        return -(ratio * advantages).sum()
    if name == "ppo":
        return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()
    if name == "cispo":
        return -(ratio.clamp(0.0, 4.0).detach() * logprobs * advantages).sum()
    if name == "dro":
        return -(logprobs * advantages - 0.5 * 0.05 * (logprobs - sampled) ** 2).sum()
    raise ValueError(name)


def backward(model, datums: list, name: str) -> float:
    """Adds up the gradients of all datums; returns the loss."""
    model.zero_grad()
    total = 0.0
    for datum in datums:
        logits = model(input_ids=torch.tensor([datum["input_ids"]])).logits[0].float()
        targets = torch.tensor(datum["target_ids"])[:, None]
        logprobs = logits.log_softmax(-1).gather(1, targets)[:, 0]
        loss = loss_of(name, logprobs, datum)
        loss.backward()
        total += float(loss.detach())
    return total


def converted() -> Path:
    """The directory that the engine converted METACLAW_TEST_MODEL, a GGUF file, to."""
    gguf = Path(os.environ["METACLAW_TEST_MODEL"])
    sha = hashlib.sha256(gguf.read_bytes()).hexdigest()
    folders = sorted((Path(os.environ["METACLAW_CACHE"]) / "gguf").glob(f"{sha}-v*"))
    if not folders:
        raise SystemExit(f"{gguf.name} is not converted yet: run the engine's example `golden` first")
    return folders[-1]


def write_json(file: Path, value) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n")

"""The other side of `cargo xtask bench engine` and `cargo xtask gpu`: a cell with transformers and PEFT, once after a warm-up.

`peer.py INPUT.json` prints a line of JSON. Settings are the fastest that were found on two cores (`peer` in
the input has those of a cell): sdpa, which is flash attention where there is no padding; logits of those
positions alone that have a loss; fused AdamW; no gradient checkpointing but where memory asks for it; samples of one length
in one batch, others one by one (padded they take the longest one's time, and a mask, which is slower than none).
"""

import json
import sys
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Of gated delta nets, if the model has some.
MODULES += ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
RANK = 16


def load(task: dict):
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[task["dtype"]]
    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype=dtype, attn_implementation="sdpa")
    return model.to(device(task))


def device(task: dict) -> str:
    """The first of the engine's devices: `cpu`, `0`, `0,1`."""
    first = (task.get("devices") or "cpu").split(",")[0]
    return f"cuda:{first}" if first.isdigit() else first


def with_adapter(model, peer: dict):
    """`adapter_f32`: PEFT's default, and what our engine has: masters of the adapter in f32."""
    config = LoraConfig(r=RANK, lora_alpha=32, target_modules=MODULES, lora_dropout=0.0)
    model = get_peft_model(model, config, autocast_adapter_dtype=peer.get("adapter_f32", True))
    if peer.get("checkpointing"):
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    return model.train()


def loss_of(model, samples: list) -> torch.Tensor:
    """The sum over samples of one length with one beginning of the loss."""
    ids = torch.tensor([sample["ids"] for sample in samples], device=model.device)
    first = samples[0]["loss_from"]
    logits = model(input_ids=ids[:, :-1], logits_to_keep=ids.shape[1] - 1 - first, use_cache=False).logits
    targets = ids[:, 1 + first :]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")


def batches(samples: list, size: int) -> list:
    """Neighbours of one shape together, at most `size`."""
    shape = lambda sample: (len(sample["ids"]), sample["loss_from"])
    found = []
    for sample in samples:
        if found and len(found[-1]) < size and shape(found[-1][0]) == shape(sample):
            found[-1].append(sample)
        else:
            found.append([sample])
    return found


def step(model, optimizer, samples: list, size: int) -> float:
    n = sum(len(sample["ids"]) - 1 - sample["loss_from"] for sample in samples)
    total = 0.0
    for batch in batches(samples, size):
        loss = loss_of(model, batch) / n
        loss.backward()
        total += float(loss.detach())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def train(task: dict, peer: dict) -> dict:
    model = with_adapter(load(task), peer)
    params = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    samples, size = task["samples"], peer.get("batch", 64)
    # A peer that takes too long computes some of the samples; whoever reads the figures scales them.
    samples = [samples[i] for i in peer.get("only", range(len(samples)))]
    warm = task.get("warm_tokens")
    first = samples if warm is None else [{"ids": samples[0]["ids"][: warm + 1], "loss_from": 0}]
    step(model, optimizer, first, size)
    clock = start()
    loss = step(model, optimizer, samples, size)
    return {**figures(clock), "loss": loss, "tokens": sum(len(sample["ids"]) - 1 for sample in samples)}


def decode(task: dict, peer: dict) -> dict:
    model = load(task).eval()
    new = task["new_tokens"]

    def generate(prompts: torch.Tensor, n: int) -> int:
        out = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            min_new_tokens=n,
            max_new_tokens=n,
            pad_token_id=0,
        )
        return (out.shape[1] - prompts.shape[1]) * out.shape[0]

    prompts = torch.tensor(task["prompts"], device=model.device)
    with torch.inference_mode():
        generate(prompts[:, 1:], 8)
        clock = start()
        n_tokens = generate(prompts, new)
    return {**figures(clock), "new_tokens": n_tokens}


def next_turn(task: dict, _: dict) -> dict:
    """The first token after a turn whose history is in the cache, and of the same ids without it."""
    model = load(task).eval()
    history, turn = (torch.tensor([task[name]], device=model.device) for name in ("history_ids", "turn_ids"))
    with torch.inference_mode():
        cache = model(history, use_cache=True, logits_to_keep=1).cache
        clock = start()
        model(turn, cache=cache, use_cache=True, logits_to_keep=1).logits.argmax()
        known = figures(clock)
        clock = start()
        model(torch.cat([history, turn], 1), use_cache=True, logits_to_keep=1).logits.argmax()
        new = figures(clock)
    return {**known, "without_wall_s": new["wall_s"], "without_cpu_s": new["cpu_s"]}


def bandwidth(task: dict, _: dict) -> dict:
    """Reading a gigabyte, the best of five. Decoding cannot be faster."""
    numbers = torch.ones(1 << 27, dtype=torch.int64)
    clock, best = start(), min(timed(numbers.sum) for _ in range(5))
    return {**figures(clock), "read_bytes_per_s": (1 << 30) / best}


def peak(task: dict, _: dict) -> dict:
    """Floating-point operations a second, the best of five products."""
    side = task["side"]
    # Products of ones use less power, and so a GPU computes them faster than any other.
    one = torch.randn(side, side, dtype={"bf16": torch.bfloat16, "f32": torch.float32}[task["dtype"]], device=device(task))
    clock, best = start(), min(timed(lambda: one @ one) for _ in range(5))
    return {**figures(clock), "flops_per_s": 2 * side**3 / best}


def timed(work) -> float:
    wall, _ = start()
    work()
    wait()
    return time.perf_counter() - wall


def wait() -> None:
    """A GPU does what it is given later."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def start() -> tuple:
    wait()
    return time.perf_counter(), time.process_time()


def figures(clock: tuple) -> dict:
    wall, cpu = clock
    wait()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(task["threads"])
    torch.manual_seed(1)
    kinds = {run.__name__: run for run in (train, decode, next_turn, bandwidth, peak)}
    found = kinds[task["kind"]](task, task.get("peer", {}))
    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    print(json.dumps({**found, "peak_bytes": peak_bytes(), "device_bytes": gpu, "torch": torch.__version__}))


main()

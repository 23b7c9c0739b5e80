"""`metaclaw train` beside plain PEFT and TRL: the same rows, settings and number of steps, in float32.

sft.py METACLAW MODEL FOLDER [--rows N] [--held-out N] [--epochs N] [--batch N] [--rate R] [--seed N] [--only NAME]

METACLAW is the built program, with the training server beside it; MODEL is the demo model. FOLDER gets the data, a home
of MetaClaw, logs, and result.json. Exit status 1 where the held-out loss of `metaclaw train` is more than 2 % above
PEFT's or TRL's.

All three begin with the same weights and see the same batches at the same rates. The held-out loss is the mean over the tokens of the assistant's text and the token that ends it, in nats. The adapters
of all three are measured by the same code on the same ids, with PEFT.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 0.02
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK, ALPHA, WARMUP = 16, 32, 3
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15

NAMES = "Anna Ben Clara David Emma Finn Greta Hugo Ida Jonas Karla Leo Mara Nils Olga Paul".split()
COLOURS = "red blue green black white yellow grey brown".split()
THINGS = "lamp chair table shelf mirror carpet clock basket kettle blanket".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday".split()
CITIES = "Bern Graz Lyon Porto Turin Ghent Malmo Cork Split Brno".split()


def chats(n, seed):
    """Orders in free words, answered in the shop's own form; a third of them are asked about again."""
    order = random.Random(seed)
    rows = []
    for _ in range(n):
        name, colour, thing = order.choice(NAMES), order.choice(COLOURS), order.choice(THINGS)
        count, price = order.randint(2, 9), order.randint(3, 60)
        day, city = order.choice(DAYS), order.choice(CITIES)
        asked = order.choice(
            [
                f"Hi, this is {name}. Please send {count} {colour} {thing}s at {price} euro each to {city}, by {day}.",
                f"I need {count} {thing}s in {colour}. {price} euro a piece is fine. {name}, {city}. {day} would be good.",
                f"Could you deliver {count} {colour} {thing}s to {city} on {day}? You said {price} euro each. Best, {name}",
                f"{name} here: {count} times the {thing}, {colour}, for {price} euro each, to {city} before {day} please.",
            ]
        )
        reply = f"ORDER for {name}\n- {count} x {thing} ({colour}) at {price} EUR\n- ship to {city} by {day}\nTOTAL {count * price} EUR. Thank you, {name}!"
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": reply}]
        if order.random() < 0.5:
            system = "You are the order desk of a small shop."
            messages.insert(0, {"role": "system", "content": system})
        if order.random() < 1 / 3:
            messages.append({"role": "user", "content": "When does it arrive?"})
            messages.append({"role": "assistant", "content": f"ARRIVAL {day}, {city}. Thank you, {name}!"})
        rows.append({"messages": messages})
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def shuffled(n, seed, epoch):
    """The order of `metaclaw train`: Fisher and Yates by SplitMix64."""
    state = (seed ^ (epoch * GOLDEN)) & MASK
    order = list(range(n))
    for at in range(n - 1, 0, -1):
        state = (state + GOLDEN) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        other = (z * (at + 1)) >> 64
        order[at], order[other] = order[other], order[at]
    return order


def rate_of(step, n_steps, rate):
    """The schedule of `metaclaw train`: a warm-up, then a straight line to nothing."""
    if step < WARMUP:
        return rate * step / WARMUP
    return rate * (n_steps + 1 - step) / (n_steps + 1 - WARMUP)


class Ours:
    """A home of MetaClaw, and the command in it."""

    def __init__(self, options, folder):
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.program = options.metaclaw
        config = {
            "mode": "auto",
            "proxy": {"port": 0},
            "trainer": {"model": str(options.model), "dtype": "f32"},
            "rl": {"lora_rank": RANK, "lora_alpha": ALPHA, "warmup_steps": WARMUP},
            "judge": {"kind": "rules"},
        }
        (self.home / "config.yaml").write_text(json.dumps(config))
        self.environment = {**os.environ, "METACLAW_HOME": str(self.home)}
        self.log = open(folder / "metaclaw.log", "w")

    def __enter__(self):
        self.process = subprocess.Popen(
            [self.program, "start"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        deadline = time.time() + 300
        while time.time() < deadline:
            asked = [self.program, "status", "--json"]
            status = subprocess.run(asked, env=self.environment, capture_output=True, text=True)
            if status.returncode == 0 and json.loads(status.stdout)["trainer"]["is"] == "ready":
                return
            time.sleep(1)
        raise SystemExit("metaclaw did not become ready: see metaclaw.log")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def train(self, arguments):
        command = [self.program, "train", "--json", *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        if not events or events[-1]["is"] != "ended":
            raise SystemExit(f"metaclaw train: {done.stdout[-2000:]}{done.stderr}")
        return events

    def adapter(self, name):
        found = [it.parent for it in self.home.rglob("adapter_config.json")]
        return next(it for it in found if it.name == name)


def examples(tokenizer, rows):
    """Ids and targets of rows: what the assistant says counts, with the token that ends it."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = lambda messages, asks: tokenizer.apply_chat_template(
        messages, add_generation_prompt=asks, tokenize=True, return_dict=False
    )
    made = []
    for row in rows:
        messages = row["messages"]
        whole = ids(messages, False)
        targets = [-100] * len(whole)
        for at, message in enumerate(messages):
            if message["role"] == "assistant":
                start = len(ids(messages[:at], True))
                stop = start + whole[start:].index(end) + 1
                targets[start:stop] = whole[start:stop]
        last = max(at for at, it in enumerate(targets) if it >= 0) + 1
        made.append((whole[:last], targets[:last]))
    return made


def batch_of(torch, some, pad):
    longest = max(len(ids) for ids, _ in some)
    fill = lambda values, value: [it + [value] * (longest - len(it)) for it in values]
    return {
        "input_ids": torch.tensor(fill([ids for ids, _ in some], pad)),
        "attention_mask": torch.tensor(fill([[1] * len(ids) for ids, _ in some], 0)),
        "labels": torch.tensor(fill([targets for _, targets in some], -100)),
    }


def sum_loss(torch, model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    targets = batch["labels"][:, 1:].reshape(-1)
    logits = logits[:, :-1].reshape(-1, logits.shape[-1]).float()
    loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
    return loss, int((targets >= 0).sum())


def measure(torch, model, data, pad):
    model.eval()
    total, n = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(data), 8):
            loss, count = sum_loss(torch, model, batch_of(torch, data[at : at + 8], pad))
            total, n = total + loss.item(), n + count
    return total / n


def mixed(torch, seed, n):
    """The first `n` numbers of SplitMix64 in [0, 1)."""
    import numpy

    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(GOLDEN)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return torch.from_numpy((z >> numpy.uint64(11)).astype(numpy.float64) / 2**53), int(z[0])


def begin_alike(torch, model, adapter):
    """Gives a fresh adapter of PEFT the first weights of ours, whose seed is the name's lineage."""
    seed = int(adapter.rsplit("-", 2)[1], 16)
    for name, parameter in model.named_parameters():
        if "lora_A" not in name:
            continue
        at = name.split(".")
        stream = int(at[at.index("layers") + 1]) << 8 | TARGETS.index(at[at.index("lora_A") - 1])
        own = mixed(torch, seed, 1)[1] ^ mixed(torch, stream ^ GOLDEN, 1)[1]
        rank, width = parameter.shape
        bound = width**-0.5
        values = mixed(torch, own, rank * width)[0] * 2 * bound - bound
        parameter.data.copy_(values.reshape(rank, width))


def lora_config():
    from peft import LoraConfig

    return LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )


def plain_peft(torch, base, data, held_out, options, pad, adapter):
    """A training loop by hand, with the batches and rates of `metaclaw train`."""
    from peft import get_peft_model

    torch.manual_seed(options.seed)
    model = get_peft_model(base(), lora_config())
    begin_alike(torch, model, adapter)
    trained = [it for it in model.parameters() if it.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    per_epoch = -(-len(data) // options.batch)
    n_steps, step, losses = per_epoch * options.epochs, 0, []
    for epoch in range(1, options.epochs + 1):
        model.train()
        order = shuffled(len(data), options.seed, epoch)
        for at in range(0, len(order), options.batch):
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = rate_of(step, n_steps, options.rate)
            some = [data[it] for it in order[at : at + options.batch]]
            loss, n = sum_loss(torch, model, batch_of(torch, some, pad))
            (loss / n).backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(measure(torch, model, held_out, pad))
        print(f"  epoch {epoch}: held-out loss {losses[-1]:.4f}", flush=True)
    return losses


def trl(torch, base, data, held_out, options, pad, adapter, tokenizer):
    """TRL's SFTTrainer, with the rows as ids in the order of `metaclaw train`, and its rates."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    per_epoch = -(-len(data) // options.batch)
    n_steps = per_epoch * options.epochs
    if len(data) % options.batch:
        raise SystemExit("TRL: --rows has to be a multiple of --batch, so that batches are the same")
    orders = [shuffled(len(data), options.seed, epoch) for epoch in range(1, options.epochs + 1)]
    rows = [{"input_ids": data[at][0], "labels": data[at][1]} for order in orders for at in order]
    config = SFTConfig(
        output_dir=str(options.folder / "trl"),
        num_train_epochs=1,
        per_device_train_batch_size=options.batch,
        train_sampling_strategy="sequential",
        max_grad_norm=1.0,
        packing=False,
        # The rows are ids with their labels already.
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
    )
    trainer = SFTTrainer(
        model=base(),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=lora_config(),
    )
    begin_alike(torch, trainer.model, adapter)
    trained = [it for it in trainer.model.parameters() if it.requires_grad]
    trainer.optimizer = torch.optim.AdamW(trained, lr=options.rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    share = lambda done: rate_of(done + 1, n_steps, 1.0) if done < n_steps else 0.0
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, share)
    trainer.train()
    return [measure(torch, trainer.model, held_out, pad)]


def run_ours(options, folder, train, held_out):
    began = time.time()
    with Ours(options, folder) as ours:
        events = ours.train(
            [train, "--held-out", held_out, "--epochs", options.epochs, "--batch-size", options.batch]
            + ["--learning-rate", options.rate, "--seed", options.seed, "--from", "base", "--agent", "bench"]
        )
        of = lambda kind: [it for it in events if it["is"] == kind]
        for it in of("epoch"):
            print(f"  epoch {it['epoch']}: held-out loss {it['held_out_loss']:.4f}", flush=True)
        steps = of("step")
        seconds = sum(it["seconds"] for it in steps)
        return {
            "held_out": [it["held_out_loss"] for it in of("epoch")],
            "before": of("before")[0]["held_out_loss"] if of("before") else events[-1]["held_out_before"],
            "tokens_per_s": sum(it["n_tokens"] for it in steps) / seconds if steps else None,
            "ended": events[-1],
            "adapter": str(ours.adapter(of("epoch")[-1]["adapter"])) if of("epoch") else None,
            "seconds": time.time() - began,
        }


def options_of(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("metaclaw")
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--held-out", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["metaclaw", "peft", "trl"], action="append")
    return parser.parse_args(arguments)


def main():
    options = options_of(sys.argv[1:])
    # As Ctrl-C, so that the programs end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    only = options.only or ["metaclaw", "peft", "trl"]
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = chats(options.rows + options.held_out, seed=1)
    train, held_out = folder / "train.jsonl", folder / "held-out.jsonl"
    write(train, rows[: options.rows])
    write(held_out, rows[options.rows :])
    file = folder / "result.json"
    result = json.loads(file.read_text()) if file.exists() else {}
    if "metaclaw" in only:
        print("metaclaw train", flush=True)
        result["metaclaw"] = run_ours(options, folder, train, held_out)
        file.write_text(json.dumps(result, indent=1))

    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sha = hashlib.sha256(options.model.read_bytes()).hexdigest()
    cache = Path(os.environ["METACLAW_CACHE"])
    converted = max((cache / "gguf").glob(f"{sha}-v*"))
    tokenizer = AutoTokenizer.from_pretrained(converted)
    pad = tokenizer.convert_tokens_to_ids(tokenizer.eos_token)
    base = lambda: AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
    data, kept = examples(tokenizer, rows[: options.rows]), examples(tokenizer, rows[options.rows :])
    result["base"] = measure(torch, base(), kept, pad)
    # The first weights follow from its name.
    adapter = Path(result["metaclaw"]["adapter"]).name
    if "peft" in only:
        print("plain PEFT", flush=True)
        began = time.time()
        result["peft"] = {"held_out": plain_peft(torch, base, data, kept, options, pad, adapter)}
        result["peft"]["seconds"] = time.time() - began
    if "trl" in only:
        print("TRL", flush=True)
        began = time.time()
        result["trl"] = {"held_out": trl(torch, base, data, kept, options, pad, adapter, tokenizer)}
        result["trl"]["seconds"] = time.time() - began
    if "metaclaw" in only:
        ours = PeftModel.from_pretrained(base(), result["metaclaw"]["adapter"])
        result["metaclaw"]["by_peft"] = measure(torch, ours, kept, pad)
    file.write_text(json.dumps(result, indent=1))
    sys.exit(table(result))


def table(result):
    """Prints the figures; 1 where a target is missed."""
    print(f"\nheld-out loss, nats a token\nbase model      {result['base']:.4f}")
    last = {name: result[name]["held_out"][-1] for name in ["metaclaw", "peft", "trl"] if name in result}
    for name, loss in last.items():
        print(f"{name:15} {loss:.4f}  {result[name]['seconds']:.0f} s")
    ours = result.get("metaclaw", {})
    if "by_peft" in ours:
        print(f"metaclaw's adapter, measured with PEFT: {ours['by_peft']:.4f}")
    if ours:
        ended = ours["ended"]
        gate = ended["gate"] or {"tests": []}
        failed = [it["why"] for it in gate["tests"] if it["passed"] is False]
        print(f"the gate: {'serves' if ended['serves'] else 'declined: ' + '; '.join(failed)}")
    missed = 0
    for name in ["peft", "trl"]:
        if name in last and "metaclaw" in last:
            apart = last["metaclaw"] / last[name] - 1
            is_met = apart <= LIMIT
            missed |= not is_met
            print(f"metaclaw beside {name}: {apart:+.2%} (at most {LIMIT:+.0%}): {'met' if is_met else 'missed'}")
    return int(missed)


if __name__ == "__main__":
    main()

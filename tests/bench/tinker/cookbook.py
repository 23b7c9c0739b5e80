"""Tinker's cookbook, unmodified, against our training server and the demo model.

cookbook.py TRAINER MODEL FOLDER [sl] [rl] [peft]

Starts TRAINER with MODEL, runs the cookbook's recipes `sl_loop` and `rl_loop` as they are on data of our own, and loads
what the first one saved with PEFT. FOLDER gets everything: logs, data, checkpoints, and result.json. Exit status 1
where a loss does not fall, a reward does not rise, or PEFT says something else than our server.

The recipes know models by their names at the hub. The demo model writes ChatML as Qwen3 does, so it stands in a folder
of the name of one, from where the tokenizer is read too; the data sets are local folders of their names.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

NAME = "Qwen/Qwen3-4B-Instruct-2507"
KEY = "cookbook"
LIMIT = 2e-3
COLOURS = ["red", "blue", "green", "black", "white", "yellow"]
THINGS = ["a cup", "a door", "a boat", "a hat", "a chair", "a lamp", "a bag", "a coat"]


class Server:
    def __init__(self, trainer, model, folder):
        environment = {**os.environ, "METACLAW_API_KEY": KEY}
        self.log = open(folder / "trainer.log", "a")
        self.process = subprocess.Popen(
            [trainer, f"--model={model}", f"--checkpoint-dir={folder / 'checkpoints'}"]
            + ["--port=0", "--parent-stdin", "--dtype=f32"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            text=True,
        )
        self.url = "http://" + json.loads(self.process.stdout.readline())["address"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


def converted(trainer, model, folder):
    """The demo model in Hugging Face form, as the server keeps it."""
    import tinker

    with Server(trainer, model, folder) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=f"tml-{KEY}")
        client = service.create_lora_training_client(
            base_model="base", rank=1, train_unembed=False
        ).result()
        return client.get_info().model_data.tokenizer_id


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def data(folder):
    """A habit to be learned from examples, and questions that are answered right now and then."""
    order = random.Random(1)
    said = []
    for _ in range(96):
        colour, thing = order.choice(COLOURS), order.choice(THINGS)
        question = f"I have {thing}. It is {colour}. What do I have?"
        reply = f"Aye, {colour} it is: {thing}."
        said.append({"role": "user", "content": question})
        said.append({"role": "assistant", "content": reply})
    pairs = [{"messages": said[at : at + 2]} for at in range(0, len(said), 2)]
    lines(folder / "HuggingFaceH4/no_robots/train.jsonl", pairs)
    numbers = [order.randint(2, 9) for _ in range(256)]
    asked = [
        {"question": f"Say \\boxed{{{n}}}.", "answer": f"#### {n}"}
        for n in numbers
    ]
    lines(folder / "openai/gsm8k/train.jsonl", asked)
    readme = "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: train.jsonl\n---\n"
    (folder / "openai/gsm8k/README.md").write_text(readme)


def recipe(name, server, folder, arguments):
    """Runs a recipe of the cookbook and returns its metrics, step by step."""
    log = folder / name
    command = [sys.executable, "-m", f"tinker_cookbook.recipes.{name}"]
    command += [f"base_url={server.url}", f"model_name={NAME}", f"log_path={log}"]
    environment = {
        **os.environ,
        "TINKER_API_KEY": f"tml-{KEY}",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "TOKENIZERS_PARALLELISM": "false",
        # The server needs the cores.
        "OMP_NUM_THREADS": "1",
    }
    with open(folder / f"{name}.log", "w") as out:
        subprocess.run(
            command + arguments,
            cwd=folder / "work",
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=True,
        )
    metrics = (log / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in metrics]


def mean(values):
    return sum(values) / len(values)


def sl(server, folder):
    steps = recipe(
        "sl_loop",
        server,
        folder,
        ["batch_size=8", "lora_rank=8", "max_steps=12", "learning_rate=5e-4", "save_every=6"],
    )
    nll = [step["train_mean_nll"] for step in steps if "train_mean_nll" in step]
    return {"nll": nll, "well": mean(nll[-3:]) < 0.5 * mean(nll[:3])}


def rl(server, folder):
    steps = recipe(
        "rl_loop",
        server,
        folder,
        ["batch_size=6", "group_size=8", "lora_rank=8", "max_steps=8", "learning_rate=1e-3"]
        + ["max_tokens=12", "loss_fn=importance_sampling", "save_every=6"],
    )
    reward = [step["reward/total"] for step in steps if "reward/total" in step]
    return {"reward": reward, "well": mean(reward[-3:]) > mean(reward[:3]) + 0.1}


def peft(server, folder):
    """What the recipe saved, loaded by PEFT, beside our server's own reading of it."""
    import tinker
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    saved = (folder / "sl_loop/checkpoints.jsonl").read_text().splitlines()
    path = json.loads(saved[-1])["sampler_path"]
    run, _, name = path.removeprefix("tinker://").split("/")
    adapter = folder / "checkpoints/adapters" / (run.replace(":", ".") + "." + name)
    model = folder / "work" / NAME
    base = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager"
    )
    ids = [504, 2780, 3575, 314, 260, 1296, 282, 8582, 30, 198, 504, 3575]

    def logprobs(module):
        with torch.no_grad():
            return module(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)

    plain = logprobs(base)
    theirs = logprobs(PeftModel.from_pretrained(base, adapter).eval())
    service = tinker.ServiceClient(base_url=server.url, api_key=f"tml-{KEY}")
    sampler = service.create_sampling_client(model_path=path).result()
    scored = sampler.sample(
        prompt=tinker.ModelInput.from_ints(ids),
        num_samples=1,
        sampling_params=tinker.SamplingParams(max_tokens=1),
        topk_prompt_logprobs=64,
    ).result()
    difference, moved = 0.0, 0.0
    for at, row in enumerate(scored.topk_prompt_logprobs[1:]):
        for token, ours in row:
            difference = max(difference, abs(float(theirs[at, token]) - ours))
            moved = max(moved, abs(float(plain[at, token]) - ours))
    return {"difference": difference, "moved": moved, "well": difference < LIMIT < moved}


PARTS = {"sl": sl, "rl": rl, "peft": peft}


def main(trainer, model, folder, parts):
    # A client outlives the first server here, and would say so of each report that it cannot deliver.
    os.environ["TINKER_TELEMETRY"] = "0"
    folder = Path(folder).resolve()
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    data(work)
    own = work / NAME
    if not own.exists():
        source = Path(converted(trainer, model, folder))
        # A folder, not a link to one: its name is the model's.
        own.mkdir(parents=True)
        for file in source.iterdir():
            (own / file.name).symlink_to(file)
    result = {}
    with Server(trainer, own, folder) as server:
        for part in parts or PARTS:
            result[part] = PARTS[part](server, folder)
            print(part, json.dumps(result[part]), flush=True)
    (folder / "result.json").write_text(json.dumps(result, indent=2))
    return 0 if all(part["well"] for part in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], sys.argv[4:]))

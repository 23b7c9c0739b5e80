"""The training server's memory from one adapter to the next: `memory.py --trainer PROGRAM --model MODEL --cache FOLDER`.

Makes adapters as the learner does: two passes and steps on a batch, checkpoint, adapter, a load, the gate's requests
(everyday questions, scores of the replies, probes, requests of agents), and then, as after a decline, an unload and a
prune. Prints for each adapter the resident memory of the server, and of each part the seconds and those of its processor.

`--keep-loaded` leaves the adapters loaded, as before the learner unloaded what the gate declined.
"""

import argparse
import http.client
import json
import os
import random
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GATE = Path(__file__).parents[3] / "proxy/learner/src/gate/probes"
RANK, RATE, REPLY, SCORED = 32, 5e-4, 48, 32


class Server:
    def __init__(self, args, folder):
        command = [args.trainer, "--model", args.model, "--cache-dir", args.cache, "--port", "0", "--parent-stdin"]
        command += ["--checkpoint-dir", folder, "--log-level", "warn"] + args.flag
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.address, self.pid = ready["address"], ready["pid"]

    def ask(self, route, /, **body):
        connection = http.client.HTTPConnection(self.address, timeout=900)
        connection.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{route}: {answer.status} {text[:500]}")
        return json.loads(text)

    def memory(self):
        """Resident MiB: all of it, and what is of no file."""
        lines = dict(line.split(":", 1) for line in open(f"/proc/{self.pid}/status") if ":" in line)
        return [int(lines[key].split()[0]) >> 10 for key in ("VmRSS", "RssAnon")]

    def processor_seconds(self):
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def entries(name):
    """The few keys of the gate's probes that are needed here, without a library for YAML."""
    import yaml

    return yaml.safe_load((GATE / f"{name}.yaml").read_text())


def datum(prompt, reply):
    ids = prompt + reply
    n = len(ids) - 1
    weights = [0.0] * (len(prompt) - 1) + [1.0] * len(reply)
    return {"model_input_tokens": ids[:n], "target_tokens": ids[1:], "weights": weights}


class Gate:
    def __init__(self, server, wish):
        self.server, self.wish = server, wish
        says = lambda text: self.ids(messages=[{"role": "user", "content": text}])
        self.questions = entries("questions")
        self.plain = [says(question) for question in self.questions]
        self.told = [says(f"{question}\n\n{wish}") for question in self.questions]
        self.probes = [
            (says(probe["question"]), [self.ids(prompt=probe[key]) for key in ("right", "wrong")])
            for probe in entries("capability")
        ]
        self.tools = []
        for prompt in entries("tool_prompts"):
            messages = []
            for before in prompt.get("earlier", []):
                messages.append({"role": "user", "content": before["user"]})
                messages.append({"role": "assistant", "content": before["assistant"]})
            messages.append({"role": "user", "content": prompt["user"]})
            tools = {"tools": prompt["tools"]} if prompt.get("tools") else {}
            self.tools.append((self.ids(messages=messages, **tools), prompt["max_tokens"]))
        self.pool = ThreadPoolExecutor(16)

    def ids(self, **body):
        return self.server.ask("/tokenize", **body)["tokens"]

    def draw(self, model, asked, temperature=0.7):
        def one(at):
            prompt, most = asked[at]
            body = {"tokens": prompt, "max_tokens": most, "model": model, "temperature": temperature}
            body |= {"top_k": 0, "top_p": 1.0, "num_samples": 1, "seed": 12 + at}
            return self.server.ask("/v1/sample", **body)["sequences"][0]["tokens"]

        return list(self.pool.map(one, range(len(asked))))

    def score(self, run, pairs, adapter):
        pairs = sorted(pairs)
        for at in range(0, len(pairs), 64):
            some = pairs[at : at + 64]
            datums = [datum(prompt, reply) for prompt, reply in some]
            positions = [list(range(len(p) - 1, len(p) + len(r) - 1)) for p, r in some]
            self.server.ask("/v1/train/forward", session_id=run, datums=datums, positions=positions, adapter=adapter)

    def replies(self, run, model, prompts, start):
        """Draws replies, scores them after their own question, two others, and the one with the wish."""
        drawn = self.draw(model, [(prompt, REPLY) for prompt in prompts])
        self.clock.part("draw")
        plain, told = self.plain[start : start + 16], self.told[start : start + 16]
        pairs = []
        for at, reply in enumerate(drawn):
            pairs += [(plain[at], reply), (told[at], reply)]
            pairs += [(plain[(at + by) % 16], reply[:SCORED]) for by in (5, 11)]
        self.score(run, [pair for pair in pairs if pair[1]], False)
        self.clock.part("score")

    def knowledge(self, run, adapter):
        pairs = [(prompt, reply) for prompt, replies in self.probes for reply in replies]
        self.score(run, pairs, adapter)
        self.clock.part("probes")

    def agents(self, model):
        self.draw(model, self.tools, 0.0)
        self.clock.part("agents")


class Clock:
    """Seconds, and seconds of the server's processor, of each part."""

    def __init__(self, server):
        self.server, self.shown, self.begun = server, [], time.monotonic()
        self.last = self.first = (self.begun, server.processor_seconds())

    def part(self, name):
        now = (time.monotonic(), self.server.processor_seconds())
        self.shown.append(f"{name} {now[0] - self.last[0]:.1f} ({now[1] - self.last[1]:.1f})")
        self.last = now

    def __str__(self):
        wall, cpu = (now - first for now, first in zip(self.last, self.first))
        return f"{', '.join(self.shown)}; in all {wall:.1f} s ({cpu:.1f} of CPU)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--adapters", type=int, default=23)
    parser.add_argument("--keep-loaded", action="store_true")
    parser.add_argument("--light", action="store_true", help="memory alone: a short sample a step, two questions, no probes")
    parser.add_argument("--flag", action="append", default=[], help="a further flag of the server")
    args = parser.parse_args()
    folder = tempfile.TemporaryDirectory(dir=args.cache)
    server = Server(args, folder.name)
    gate = Gate(server, 'Please start your answer with "Hello!"')
    scoring = server.ask("/v1/lora/create", rank=1)["session_id"]
    answers = gate.draw("base", [(prompt, REPLY if args.light else 128) for prompt in gate.told[:8]])
    run = server.ask("/v1/lora/create", rank=RANK, lora_alpha=32)["session_id"]
    server.ask("/v1/checkpoint/save", session_id=run, name="parent", manifest={})
    print(f"loaded: {server.memory()} MiB", flush=True)
    rng, after = random.Random(1), {}
    for n in range(1, args.adapters + 1):
        clock = gate.clock = Clock(server)
        server.ask("/v1/checkpoint/load", session_id=run, path="parent")
        batch = [datum(gate.plain[at], reply) for at, reply in enumerate(answers)]
        for _ in range(2):
            some = rng.sample(batch, 1 if args.light else 8)
            server.ask("/v1/train/forward_backward", session_id=run, datums=some, loss_fn="cross_entropy")
            server.ask("/v1/train/optim_step", session_id=run, learning_rate=RATE)
        name = f"a-{n:06}"
        server.ask("/v1/checkpoint/save", session_id=run, name=name, manifest={})
        server.ask("/v1/weights/save", session_id=run, name=name)
        clock.part("step")
        server.ask("/v1/load_lora_adapter", lora_name=name)
        start = n // 2 % (len(gate.questions) // 16) * 16
        gate.replies(scoring, name, gate.plain[start : start + (2 if args.light else 16)], start)
        if not args.light:
            gate.knowledge(run, True)
            gate.agents(name)
        if not args.keep_loaded:
            server.ask("/v1/unload_lora_adapter", lora_name=name)
        server.ask("/v1/checkpoints/prune", keep=["parent"])
        after[n] = server.memory()
        clock.part("rest")
        print(f"{n}: {after[n]} MiB; {clock}", flush=True)
    if args.adapters >= 3:
        last = after[args.adapters][0]
        print(f"{last} MiB after {args.adapters}, {last / after[3][0]:.2f} of {after[3][0]} MiB after 3")
    server.process.stdin.close()
    server.process.wait(60)


if __name__ == "__main__":
    main()

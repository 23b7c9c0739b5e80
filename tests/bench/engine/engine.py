"""The training server beside transformers, PEFT and vLLM: `cargo xtask bench engine`.

engine.py --trainer PROGRAM --model MODEL.gguf|FOLDER --cache FOLDER [options]. `gpu.py` takes its parts for a GPU.

Weights, threads and inputs are the same on both sides. Each run has processes of its own: our server, asked over HTTP,
or a peer (`peer.py`, `vllm_peer.py`). The programs take turns, and a result is the median of all runs. A run with a
result is not repeated, unless program, input or settings have changed. Processor time and memory are those of all
processes of a side; the time of this script is not counted.
"""

import argparse
import array
import base64
import contextlib
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
RANK = 16
# More than this of another's work, in CPUs, and the machine was not quiet.
NOISE = 0.1
# No stream here reaches so many tokens: it ends when its purpose is fulfilled.
LONG = 3_500
LONG_CONTEXT = 16_384
# The model of the cells `net-..`, with random weights.
NETS = "qwen3.5-0.8B"
WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father power"
).split()


class Ids:
    """Ids and words from a seed; their values do not affect the time. SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def take(self, n):
        """`n` ids, none of them special."""
        return [1000 + self.next() % 45_000 for _ in range(n)]

    def lists(self, n_lists, n):
        return [self.take(n) for _ in range(n_lists)]

    def text(self, n):
        """About `n` tokens of words."""
        return " ".join(WORDS[self.next() % len(WORDS)] for _ in range(n))

    def texts(self, n_texts, n):
        return [self.text(n) for _ in range(n_texts)]


def sample(prompt, reply):
    """A sequence whose loss begins at the reply's first token."""
    return {"ids": prompt + reply, "loss_from": max(0, len(prompt) - 1)}


def session(ids, n_system, n_turns, n_user=40, n_reply=80):
    """A sample for each turn of a conversation: tokens of a user and of a reply, after all turns before it."""
    history, found = ids.take(n_system), []
    for _ in range(n_turns):
        history = history + ids.take(n_user)
        reply = ids.take(n_reply)
        found.append(sample(history, reply))
        history = history + reply
    return found


def n_targets(one):
    return len(one["ids"]) - 1 - one["loss_from"]


# === processes ===


def family(pid):
    """A process and all that it started, directly or not."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_busy():
    """CPU seconds of the whole machine: user, nice, system, interrupts, other machines' guests."""
    fields = list(map(float, Path("/proc/stat").read_text().splitlines()[0].split()[1:]))
    return sum(fields[:3] + fields[5:8]) / os.sysconf("SC_CLK_TCK")


def environment(options):
    """Passive waiting is best for both sides: a busy step took 4 times the CPU without it on two cores. The trainer's
    launcher sets the same values."""
    return {
        **os.environ,
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "1000",
        "MALLOC_TRIM_THRESHOLD_": "268435456",
        "MALLOC_MMAP_THRESHOLD_": "67108864",
        "MALLOC_TOP_PAD_": "67108864",
        "OMP_NUM_THREADS": str(options.threads),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Server:
    """Our training server with one model, for the length of a `with`."""

    def __init__(self, options, task, folder):
        devices = task.get("devices") or "cpu"
        arguments = [f"--model={task['model']}", f"--dtype={task['dtype']}", f"--threads={task['threads']}"]
        arguments += [f"--training-devices={devices}", f"--inference-devices={devices}", f"--cache-dir={options.cache}"]
        arguments += [f"--checkpoint-dir={folder / 'checkpoints'}", "--port=0", "--parent-stdin", "--log-level=warn"]
        arguments += task.get("flags", [])
        self.log = open(folder / "trainer.log", "a")
        self.process = subprocess.Popen(
            [options.trainer] + arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment(options) | options.variables,
            text=True,
        )
        self.exit_code = None
        ready = self.process.stdout.readline()
        if not ready:
            sys.exit(f"the training server did not start: {self.log.name}")
        self.address = json.loads(ready)["address"]
        self.pids = family(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.exit_code = self.process.wait()
        self.log.close()

    def call(self, path, body=None):
        connection = http.client.HTTPConnection(self.address)
        with contextlib.closing(connection):
            if body is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {text}")
            return json.loads(text)

    def clock(self):
        return time.perf_counter(), cpu_seconds(self.pids)

    def figures(self, clock):
        wall, cpu = clock
        return {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_seconds(self.pids) - cpu}

    # training

    def create(self, seed=1):
        return self.call("/v1/lora/create", {"rank": RANK, "seed": seed})["session_id"]

    def step(self, run, datums):
        """Forward, backward, optimiser; the loss."""
        body = {"session_id": run, "datums": datums, "loss_fn": "cross_entropy"}
        loss = self.call("/v1/train/forward_backward", body)["loss"]
        self.call("/v1/train/optim_step", {"session_id": run})
        return loss

    def save_adapters(self, names):
        for seed, name in enumerate(names):
            run = self.create(seed)
            self.call("/v1/weights/save", {"session_id": run, "name": name})
            self.call("/v1/lora/close", {"session_id": run})

    # replies

    def sample(self, prompt, n, model="base"):
        """A greedy reply of exactly `n` tokens to ids."""
        body = {"tokens": prompt, "max_tokens": n, "min_tokens": n, "temperature": 0, "ignore_eos": True, "model": model}
        return self.call("/v1/sample", body)["sequences"][0]["tokens"]

    def stream(self, messages, n, model="base", leave=None):
        """A greedy reply of `n` tokens to messages or a text: when each part came, its text, and the usage."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": model, "messages": messages, "max_tokens": n, "temperature": 0, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        at, said, usage = [], "", None
        connection = http.client.HTTPConnection(self.address)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"chat: {answer.status} {answer.read().decode()}")
            for line in answer:
                if leave is not None and leave.is_set():
                    break
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(f"chat: {event}")
                usage = event.get("usage") or usage
                part = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
                if part:
                    at.append(time.perf_counter())
                    said += part
        return {"at": at, "text": said, "usage": usage}


def together(calls):
    """All calls at once, each in a thread; their results in order."""
    with ThreadPoolExecutor(max(1, len(calls))) as pool:
        return [found.result() for found in [pool.submit(call) for call in calls]]


def gaps(heard, since=0.0):
    return [after - before for one in heard for before, after in zip(one["at"], one["at"][1:]) if before >= since]


def quantile(values, percent):
    values = sorted(values)
    return values[max(0, -(-percent * len(values) // 100) - 1)] if values else 0.0


# === what our server does, by kind ===


def batch(samples):
    """Datums with the mean loss over all positions that count."""
    n = sum(map(n_targets, samples))
    return [
        {
            "model_input_tokens": one["ids"][:-1],
            "target_tokens": one["ids"][1:],
            "weights": [0.0] * one["loss_from"] + [1 / n] * n_targets(one),
        }
        for one in samples
    ]


def train(server, task):
    run, datums, warm = server.create(), batch(task["samples"]), task.get("warm_tokens")
    first = {"ids": task["samples"][0]["ids"][: (warm or 0) + 1], "loss_from": 0}
    server.step(run, batch([first]) if warm else datums)
    clock = server.clock()
    loss = server.step(run, datums)
    return {**server.figures(clock), "loss": loss, "tokens": sum(len(one["ids"]) - 1 for one in task["samples"])}


def distil(server, task):
    """A step towards the likeliest tokens of a teacher that reads hints. Without a teacher the targets exist already."""
    top_k, samples = task["top_k"], task["samples"]
    run = server.create()

    def teacher():
        hinted = []
        for one, hints in zip(samples, task["hints"]):
            # The position that predicts the reply's first token is the prompt's last one.
            prompt, reply = one["ids"][: one["loss_from"] + 1], one["ids"][one["loss_from"] + 1 :]
            hinted += [{"ids": prompt + hint + reply, "loss_from": one["loss_from"] + len(hint)} for hint in hints]
        positions = [list(range(one["loss_from"], len(one["ids"]) - 1)) for one in hinted]
        body = {"session_id": run, "datums": batch(hinted), "adapter": False, "positions": positions, "top_k": top_k}
        return server.call("/v1/train/forward", body)

    def targets(top):
        found, at, n = [], 0, sum(map(n_targets, samples))
        for one, hints in zip(samples, task["hints"]):
            own = range(at, at + len(hints))
            at += len(hints)
            surest = max(own, key=lambda i: sum(map(sum, top["topk_logprobs"][i])))
            flat = lambda rows: [value for row in rows for value in row]
            silent = one["loss_from"] * top_k
            ids = array.array("q", [0] * silent + flat(top["topk_ids"][surest]))
            weights = [2.718281828 ** value / n for value in flat(top["topk_logprobs"][surest])]
            weights = array.array("f", [0.0] * silent + weights)
            shape = [len(one["ids"]) - 1, top_k]
            tensor = lambda dtype, values: {"dtype": dtype, "shape": shape, "data": base64.b64encode(values.tobytes()).decode()}
            inputs = {"target_tokens": tensor("int64", ids), "weights": tensor("float32", weights)}
            found.append({"model_input_tokens": one["ids"][:-1], "loss_fn_inputs": inputs})
        return found

    top = teacher()
    server.step(run, targets(top))
    clock = server.clock()
    loss = server.step(run, targets(teacher() if task["with_teacher"] else top))
    return {**server.figures(clock), "loss": loss}


def decode(server, task):
    model = task.get("adapter", "base")
    replies = lambda start, n: together([lambda ids=ids: server.sample(ids[start:], n, model) for ids in task["prompts"]])
    # The warm-up uses other prompts, so that the cache knows none of the measured ones.
    replies(1, 8)
    clock = server.clock()
    heard = replies(0, task["new_tokens"])
    return {**server.figures(clock), "new_tokens": sum(map(len, heard))}


def conversation(system, *turns):
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": "system", "content": system}]
    return messages + [{"role": role, "content": text} for role, text in zip(roles, turns)]


def next_turn(server, task):
    """The first token of a second turn, and of the same turn after an unknown history."""
    question, turn = "What do you think?", task["turn"]
    first = server.stream(conversation(task["history"], question), 8)["text"]

    def first_token(history):
        clock = server.clock()
        heard = server.stream(conversation(history, question, first, turn), 1)
        return server.figures(clock), heard["usage"]["prompt_tokens_details"]["cached_tokens"]

    known, cached = first_token(task["history"])
    new, not_cached = first_token(task["other_history"])
    found = {**known, "cached": cached, "without_cached": not_cached}
    return {**found, "without_wall_s": new["wall_s"], "without_cpu_s": new["cpu_s"]}


def adapters(server, task):
    """Replies on one adapter, then on one each, then two turns of each agent, with one agent more than there are places."""
    prompts, n = task["prompts"], task["new_tokens"]
    names = [f"agent-{i}" for i in range(len(prompts) + 1)]
    server.save_adapters(names)
    everyone = lambda mark, n, name: together(
        [lambda i=i, text=text: server.stream(f"{mark} {text}", n, name(i)) for i, text in enumerate(prompts)]
    )
    everyone("Once", 4, lambda i: names[i])
    clock = server.clock()
    everyone("Twice", n, lambda _: names[0])
    on_one = server.figures(clock)
    clock = server.clock()
    everyone("Thrice", n, lambda i: names[i])
    figures = server.figures(clock)
    least, histories = 1.0, [[f"{name}: {task['history']}", "Go on."] for name in names]
    for turn in range(2):
        for name, history in zip(names, histories):
            heard = server.stream(conversation(*history), 4, name)
            usage = heard["usage"]
            if turn == 1:
                least = min(least, usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
            history += [heard["text"], "And then?"]
    on_one = {"on_one_wall_s": on_one["wall_s"], "on_one_cpu_s": on_one["cpu_s"]}
    return {**figures, **on_one, "one": 1.0, "least_cached_share": least}


def served(server, task):
    """Streams alone, training alone, and both."""
    run, datums, leave = server.create(), batch(task["samples"]), threading.Event()
    streams = lambda n: together([lambda text=text: server.stream(text, n, leave=leave) for text in task["prompts"]])

    def step():
        begun = time.perf_counter()
        server.step(run, datums)
        return time.perf_counter() - begun

    streams(8)
    alone = streams(task["new_tokens"])
    training_alone = step()
    clock = server.clock()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(streams, LONG)
        begun = time.perf_counter()
        training = step()
        leave.set()
        heard = going.result()
    figures = {**server.figures(clock), "training_s": training, "training_alone_s": training_alone}
    figures |= {"p95_alone_s": quantile(gaps(alone), 95), "p95_s": quantile(gaps(heard, begun), 95)}
    return {**figures, "longest_s": quantile(gaps(heard, begun), 100), "n_tokens": sum(len(one["at"]) for one in heard)}


def arrivals(server, task):
    """One stream, in which all prompts arrive at once."""
    leave = threading.Event()
    alone = server.stream(task["stream"], 64)
    clock = server.clock()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(server.stream, task["stream"], LONG, "base", leave)
        begun = time.perf_counter()
        arrived = together([lambda text=text: server.stream(text, 8) for text in task["prompts"]])
        leave.set()
        heard = going.result()
    figures = {**server.figures(clock), "longest_alone_s": quantile(gaps([alone]), 100)}
    last_first = max((one["at"][0] for one in arrived if one["at"]), default=begun)
    return {**figures, "longest_s": quantile(gaps([heard], begun), 100), "last_first_token_s": last_first - begun}


def swaps(server, task):
    """Streams that begin again as they end, each on the adapter of the moment. No adapter was used before."""
    names = [f"version-{i}" for i in range(task["times"] + 1)]
    server.save_adapters(names)
    together([lambda text=text: server.stream(text, 4) for text in task["prompts"]])
    lock, count, used, heard, failed = threading.Lock(), [0], set(), [], []

    def slot(i, text):
        # The replies differ in length, because otherwise all streams would change their adapter at once.
        n = task["new_tokens"] + i
        try:
            while (at := count[0] // task["tokens_a_swap"]) < len(names):
                reply = server.stream(text, n, names[at])
                with lock:
                    count[0] += n
                    used.add(at)
                    heard.append(reply)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            failed.append(str(error))

    clock = server.clock()
    together([lambda i=i, text=text: slot(i, text) for i, text in enumerate(task["prompts"])])
    figures = {**server.figures(clock), "longest_s": quantile(gaps(heard), 100), "p95_s": quantile(gaps(heard), 95)}
    figures |= {"requests": len(heard), "adapters_not_used": len(names) - len(used)}
    return {**figures, "failed": len(failed), "first_failure": failed[0] if failed else None}


OURS = {run.__name__: run for run in (train, distil, decode, next_turn, adapters, served, arrivals, swaps)}


# === runs ===


def peak_bytes(server):
    status = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in server.pids]
    return 1024 * sum(int(line.split()[1]) for lines in status for line in lines if line.startswith("VmHWM:"))


def run_ours(options, task, folder):
    with Server(options, task, folder) as server:
        figures = {**OURS[task["kind"]](server, task), "peak_bytes": peak_bytes(server)}
    if server.exit_code:
        sys.exit(f"the training server ended with {server.exit_code}: {server.log.name}")
    return figures


def run_peer(options, side, task, folder):
    inputs = folder / "input.json"
    inputs.write_text(json.dumps(task))
    variables = environment(options)
    if side == "vllm":
        # vLLM's model is not compiled, which would take minutes and a C++ compiler. Its processes keep Python's
        # bytecode, so that they need not compile it each time.
        variables |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_NO_USAGE_STATS": "1"}
        del variables["PYTHONDONTWRITEBYTECODE"]
    python, script = (options.vllm, "vllm_peer.py") if side == "vllm" else (options.python, "peer.py")
    printed = subprocess.run([python, HERE / script, inputs], env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(printed.stdout.splitlines()[-1])


def run_once(options, side, task, file):
    """The figures of a run, from `file` if the same programs had the same input."""
    launcher = Path(options.trainer)
    engine = launcher.with_name(launcher.name + "-engine")
    programs = [launcher, engine, *sorted(HERE.glob("*.py"))]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in programs) + json.dumps([side, task]).encode()).hexdigest()
    with contextlib.suppress(OSError, ValueError):
        there = json.loads(file.read_text())
        if there["key"] == key:
            return there["figures"] | {"is_old": True}
    folder = options.out / "work"
    folder.mkdir(parents=True, exist_ok=True)
    times = lambda: (time.perf_counter(), machine_busy(), sum(os.times()[:4]))
    before = times()
    is_peer = side in ("peer", "vllm")
    figures = run_peer(options, side, task, folder) if is_peer else run_ours(options, task, folder)
    wall, busy, own = (after - begun for after, begun in zip(times(), before))
    figures["others_cpus"] = max(0.0, (busy - own) / wall)
    if figures.get("new_tokens"):
        figures["tokens_per_s"] = figures["new_tokens"] / figures["wall_s"]
        figures["cpu_s_per_token"] = figures["cpu_s"] / figures["new_tokens"]
    file.write_text(json.dumps({"key": key, "figures": figures}))
    return figures


# === cells ===


def by_peer(what, field, at_most=None, scale=1.0):
    return what, ("ours", field), ("peer", field), at_most, scale


def figure(what, side, field, at_most=None):
    return what, (side, field), None, at_most, 1.0


def ratio(what, of, by, at_most=None):
    return what, of, by, at_most, 1.0


def cells(options, own, long, nets):
    """Each cell: what it is, its sides with their inputs, and its limits. Each group has a seed of its own."""
    task = lambda kind, model=own, **more: {
        "kind": kind, "model": str(model), "threads": options.threads, "dtype": options.dtype, **more,
    }
    peer = {"adapter_f32": options.adapter == "f32"}
    both = lambda task: {"ours": task, "peer": task}
    cpu = ("CPU by PEFT's", "cpu_s")

    ids = Ids(1)
    a = task("train", samples=[{"ids": ids.take(257), "loss_from": 0} for _ in range(4)], peer=peer)
    prompt = ids.take(384)
    same = task("train", samples=[sample(prompt, reply) for reply in ids.lists(8, 128)], peer=peer)
    samples = [sample(ids.take(384), ids.take(128)) for _ in range(8)]
    different = task("train", samples=samples, peer=peer)
    hints = [ids.lists(3, 24) for _ in range(8)]
    hinted = lambda with_teacher: task("distil", samples=samples, hints=hints, top_k=4, with_teacher=with_teacher)

    def turns(n_system, model, only, more, sizes=()):
        """Ten turns: by PEFT ten samples, by ours also the last turn alone. PEFT's part is scaled by tokens."""
        turns = session(Ids(2), n_system, 10, *sizes)
        length = lambda samples: sum(len(one["ids"]) for one in samples)
        part = length(turns[i] for i in only) if only else length(turns)
        work = lambda samples, **peer: task("train", model, samples=samples, warm_tokens=256, **peer)
        sides = {"ours": work(turns), "last": work(turns[9:]), "peer": work(turns, peer={**peer, "batch": 1, **more})}
        limits = [
            by_peer("CPU by PEFT's on ten samples", "cpu_s", 0.2, length(turns) / part),
            ratio("CPU by the last turn alone", ("ours", "cpu_s"), ("last", "cpu_s"), 1.5),
            by_peer("memory by PEFT's", "peak_bytes"),
        ]
        return sides, limits

    ids = Ids(3)
    reply = lambda n, model=own, new=128: task("decode", model, prompts=ids.lists(n, 32), new_tokens=new)
    one, eight = reply(1), reply(8)
    beside_vllm = lambda task: (
        {"ours": {**task, "dtype": "f32"}, "vllm": {**task, "dtype": "f32"}},
        [
            ratio("time by vLLM's", ("ours", "wall_s"), ("vllm", "wall_s"), 1.0),
            ratio("CPU by vLLM's", ("ours", "cpu_s"), ("vllm", "cpu_s")),
            figure("our tokens a second", "ours", "tokens_per_s"),
            figure("vLLM's tokens a second", "vllm", "tokens_per_s"),
            figure("our CPU seconds a token", "ours", "cpu_s_per_token"),
            figure("vLLM's CPU seconds a token", "vllm", "cpu_s_per_token"),
        ],
    )
    turn = lambda model: task("next_turn", model, history=ids.text(1_500), other_history=ids.text(1_500), turn=ids.text(20))
    known = turn(own)
    by_generate = lambda at_most=None: [by_peer("CPU by generate's", "cpu_s", at_most)]

    ids = Ids(5)
    net_step = task("train", nets, samples=[{"ids": ids.take(129), "loss_from": 0} for _ in range(4)], warm_tokens=128, peer=peer)
    net_known = {"ours": turn(nets), "peer": task("next_turn", nets, history_ids=ids.take(1_530), turn_ids=ids.take(26))}
    net_one, net_eight = reply(1, nets, 32), reply(8, nets, 32)

    ids = Ids(4)
    steps = [{"ids": ids.take(513), "loss_from": 0} for _ in range(8)]
    ours = lambda field: ("ours", field)
    return {
        "bandwidth": ("how fast this machine reads memory", {"peer": task("bandwidth")}, []),
        "a": (
            "a step of 4 x 256 tokens, loss on all",
            both(a),
            [by_peer(*cpu, 0.95), by_peer("memory by PEFT's", "peak_bytes", 0.6)],
        ),
        "b-same": ("a step of 8 replies of 128 tokens to one prompt of 384", both(same), [by_peer(*cpu, 0.5)]),
        "b-different": ("the same with 8 prompts", both(different), [by_peer(*cpu, 1.0)]),
        "c": ("a session of 10 turns after 1,500 tokens", *turns(1_500, own, None, {})),
        "c-12000": (
            "the same after 12,000 tokens; PEFT computes the first and the last turn, with gradient checkpointing, and "
            "its CPU is scaled by tokens",
            *turns(12_000, long, [0, 9], {"only": [0, 9], "checkpointing": True}),
        ),
        "d1": ("128 tokens of one reply", both(one), by_generate(0.75)),
        "d8": ("128 tokens of eight replies at once", both(eight), by_generate(0.9)),
        "v1": ("128 tokens of one reply in f32, beside vLLM", *beside_vllm(one)),
        "v8": ("128 tokens of eight replies in f32, beside vLLM", *beside_vllm(eight)),
        "e": (
            "first token of a second turn over 1,500 tokens",
            {"ours": known},
            [ratio("time by without cache", ours("wall_s"), ours("without_wall_s"), 0.06)],
        ),
        "f": (
            "distillation of 8 x (384 + 128) tokens, 3 hints of 24 each, top 4, by the same without its teacher",
            {"ours": hinted(True), "without": hinted(False)},
            [ratio("CPU by without a teacher", ours("cpu_s"), ("without", "cpu_s"), 1.6)],
        ),
        "net-step": (
            "Qwen3.5 0.8B: a step of 4 x 128 tokens, loss on all",
            both(net_step),
            [by_peer(*cpu), by_peer("memory by PEFT's", "peak_bytes")],
        ),
        "net-session": (
            "Qwen3.5 0.8B: 10 turns of 20 + 40 tokens after 300; PEFT computes the first and the last turn, scaled by tokens",
            *turns(300, nets, [0, 9], {"only": [0, 9]}, (20, 40)),
        ),
        "net-d1": ("Qwen3.5 0.8B: 32 tokens of one reply", both(net_one), by_generate()),
        "net-d8": ("Qwen3.5 0.8B: 32 tokens of eight replies at once", both(net_eight), by_generate()),
        "net-next": (
            "Qwen3.5 0.8B: first token of a second turn over 1,500 tokens",
            net_known,
            [
                ratio("time by without cache", ours("wall_s"), ours("without_wall_s"), 0.1),
                ratio("CPU by without cache", ours("cpu_s"), ours("without_cpu_s"), 0.1),
                by_peer("CPU by transformers'", "cpu_s"),
                by_peer("without cache: CPU by transformers'", "without_cpu_s"),
            ],
        ),
        "served": (
            "4 streams, and a step of 8 x 512",
            {"ours": task("served", prompts=ids.texts(4, 200), new_tokens=256, samples=steps)},
            [
                ratio("95th percentile between tokens by without training", ours("p95_s"), ours("p95_alone_s"), 3.0),
                ratio("training's time by alone", ours("training_s"), ours("training_alone_s"), 2.5),
            ],
        ),
        "arrivals": (
            "15 prompts of 2,000 tokens arrive in a stream",
            {"ours": task("arrivals", stream=ids.text(100), prompts=ids.texts(15, 2_000))},
            [figure("longest gap in the stream, s", "ours", "longest_s", 0.4)],
        ),
        "swaps": (
            "20 adapters never seen, one after the other, under 32 streams",
            {"ours": task("swaps", prompts=ids.texts(32, 64), new_tokens=32, tokens_a_swap=384, times=20)},
            [
                figure("failed requests", "ours", "failed", 0.0),
                figure("adapters that no stream came to", "ours", "adapters_not_used", 0.0),
                figure("longest gap in a stream, s", "ours", "longest_s", 0.25),
            ],
        ),
        "adapters": (
            "eight replies of 64 tokens on eight adapters; nine agents in rotation",
            {"ours": task("adapters", prompts=ids.texts(8, 64), new_tokens=64, history=ids.text(600))},
            [
                ratio("time by all on one", ours("wall_s"), ours("on_one_wall_s"), 1.6),
                ratio("history by what was kept of it, of the worst agent", ours("one"), ours("least_cached_share"), 1.1),
            ],
        ),
    }


# === the table ===


def median(records, cell, side, field):
    """Of an even number of runs, the upper one of the middle two."""
    values = sorted(f[field] for c, s, f in records if (c, s) == (cell, side) and f.get(field) is not None)
    return values[len(values) // 2] if values else None


def report(options, cells, records):
    """Prints the table and writes `result.json`; whether all promises are kept."""
    rows = []
    for name, (what, _, limits) in cells.items():
        print(f"\n{name}: {what}")
        for text, of, by, at_most, scale in limits:
            value, divisor = median(records, name, *of), median(records, name, *by) if by else 1.0
            value = None if value is None or not divisor else value / (divisor * scale)
            is_kept = None if at_most is None or value is None else value <= at_most
            promise = "" if at_most is None else f"at most {at_most:<5} {'kept' if is_kept else 'MISSED'}"
            print(f"  {text:<52} " + ("not measured" if value is None else f"{value:>8.3f}  {promise}"))
            rows.append({"cell": name, "what": text, "value": value, "at_most": at_most, "is_kept": is_kept})
    reading, bandwidth = {}, median(records, "bandwidth", "peer", "read_bytes_per_s")
    for cell, n_streams in [("d1", 1), ("d8", 8)]:
        for side in ("ours", "peer"):
            wall, n = (median(records, cell, side, field) for field in ("wall_s", "new_tokens"))
            if wall and bandwidth:
                weights = options.n_params * (2 if options.dtype == "bf16" else 4)
                reading[f"{cell} {side}"] = wall * n_streams / n / (weights / bandwidth)
                print(f"{cell} {side}: a pass takes {reading[f'{cell} {side}']:.2f} times as long as reading the weights once")
    noise = max((figures.get("others_cpus", 0.0) for _, _, figures in records), default=0.0)
    if noise > NOISE:
        print(f"others kept up to {noise:.1f} CPUs busy: these are no figures to quote")
    result = {key: getattr(options, key) for key in ("threads", "dtype", "repeats", "adapter")}
    result |= {"others_cpus": noise, "limits": rows, "times_reading_the_weights": reading}
    result["runs"] = [{"cell": cell, "side": side, "figures": figures} for cell, side, figures in records]
    (options.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"all runs: {options.out / 'result.json'}")
    return all(row["is_kept"] is not False for row in rows)


def bench(options, folder):
    long = options.out / "long-context"
    long.mkdir(exist_ok=True)
    for file in folder.iterdir():
        (long / file.name).unlink(missing_ok=True)
        (long / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": LONG_CONTEXT}
    (long / "config.json").unlink()
    (long / "config.json").write_text(json.dumps(config))
    nets = options.out / NETS
    all_cells = cells(options, folder, long, nets)
    only = options.only.split(",") if options.only else list(all_cells)
    if stray := [name for name in only if name not in all_cells]:
        sys.exit(f"no such cell: `{stray[0]}`; cells: {', '.join(all_cells)}")
    chosen = {name: cell for name, cell in all_cells.items() if name in only}
    if not options.vllm:
        print("vLLM is not installed (`cargo xtask clients` installs it): v1 and v8 are skipped")
        chosen = {name: cell for name, cell in chosen.items() if "vllm" not in cell[1]}
    if any(name.startswith("net-") for name in chosen):
        # Here, because it imports this module.
        import weights

        weights.write(NETS, nets)
    records = []
    for name, (what, sides, _) in chosen.items():
        print(f"{name}: {what}", flush=True)
        for repeat in range(options.repeats):
            for side, task in sides.items():
                # vLLM takes a minute to start, and a peer that computes a part takes long.
                if repeat >= (3 if side == "vllm" else 1 if task.get("peer", {}).get("only") and side == "peer" else repeat + 1):
                    continue
                figures = run_once(options, side, task, options.out / f"{name}-{side}-{repeat}.json")
                records.append((name, side, figures))
                print(
                    f"  {side:<8} {figures['cpu_s']:>8.2f} s of CPU {figures['wall_s']:>8.2f} s "
                    f"{figures['peak_bytes'] / 1e6:>7.0f} MB  others: {figures['others_cpus']:.1f} CPUs"
                    + ("  (there already)" if figures.get("is_old") else ""),
                    flush=True,
                )
    if not report(options, chosen, records):
        sys.exit("not every promise is kept")


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask bench engine")
    for given in ("--trainer", "--cache", "--vllm", "--model"):
        parser.add_argument(given, help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="CELL,..", help="these cells alone; a wrong name lists them")
    parser.add_argument("--quick", action="store_true", help="every cell once")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each cell [default: 7]")
    parser.add_argument("--threads", type=int, default=2, help="of libtorch, on both sides [default: 2]")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16", help="of the weights, on both sides")
    parser.add_argument("--adapter", choices=["f32", "bf16"], default="f32", help="of PEFT's LoRA matrices; ours are f32")
    parser.add_argument("--python", help="a Python with torch, transformers and peft")
    parser.add_argument("--out", type=Path, help="for inputs, runs and result [default: in the target folder]")
    options = parser.parse_args()
    # As Ctrl-C, so that a peer ends too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.variables = {}
    options.repeats = 1 if options.quick else max(1, options.repeats)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(options.model)
    if folder.is_file():
        # The server converts a GGUF file once, into a folder that its peers read too.
        digest = hashlib.sha256(folder.read_bytes()).hexdigest()
        converted = lambda: sorted(Path(options.cache, "gguf").glob(f"{digest}-v*"))
        if not converted():
            task = {"model": str(folder), "threads": options.threads, "dtype": options.dtype}
            with Server(options, task, options.out):
                pass
        folder = converted()[-1]
    options.n_params = count_params(folder)
    bench(options, folder)


def count_params(folder):
    """The elements of all tensors, from the headers of the model's files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                size = 1
                for side in tensor["shape"]:
                    size *= side
                total += size
    return total


if __name__ == "__main__":
    main()

"""What the engine does on a GPU: `cargo xtask gpu`, and `gpu.py` of the kit that `cargo xtask gpu --pack` makes.

    python3 gpu.py [--device 0] [--minutes 8] [--only CELL,..] [--out FOLDER]
    python3 gpu.py --device cpu --small          to try the kit itself

The kit needs a driver and a Python 3.10 with torch 2.11; transformers and peft are needed for the cells beside them. Each
cell is a process of its own with a limit of time. A cell that fails or takes too long costs its own figures alone, and
those that it had printed stay. The report is `report.md` in the output folder.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import engine
import weights
from engine import Ids, Server, sample

HERE = Path(__file__).resolve().parent
# Less time than this is not enough to load a model of 4B and to compute with it.
SHORTEST = 20
# Bytes for keys and values where a cell is about training: what a device holds is then of the training.
LITTLE = ["--kv-budget=2147483648"]
# Bytes beside the weights of a 4B model in bf16 (8 GB), so that a device has 20 GiB in use with all else.
IN_20_GIB = ["--kv-budget=67108864", "--memory=12000000000"]
# One product forward, and one backward for the gradient by the input; the base model's weights have no gradient.
OPERATIONS = "TFLOP/s at 4 operations a weight and token"
# Tokens of a prompt, and of the reply to it.
PROMPT, NEW = 512, 128


def emit(what, value, beside=None):
    """A row of the report."""
    print(json.dumps({"what": what, "value": value, "beside": beside}), flush=True)


def shown(value):
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# === a cell's place ===


class Kit:
    """Programs, models and inputs of this run."""

    def __init__(self, options):
        self.options = options
        self.small = options.small
        self.out = options.out
        self.bin = HERE / "bin"
        self.variables = {
            "LD_LIBRARY_PATH": options.libtorch,
            "METACLAW_CACHE": str(self.out / "cache"),
            "METACLAW_TEST_BIN_DIR": str(self.bin),
            "METACLAW_GOLDEN": str(HERE / "golden"),
            "METACLAW_GOLDEN_DEVICES": options.device,
            "METACLAW_TRAINING_DEVICES": options.device,
            "METACLAW_INFERENCE_DEVICES": options.device,
        }
        if demo := self.demo():
            self.variables["METACLAW_TEST_MODEL"] = str(demo)
        # What engine.py reads.
        options.trainer, options.cache, options.variables = self.bin / "metaclaw-trainer", self.out / "cache", self.variables

    def demo(self):
        """The demo model, put together from its parts, which are beside the kit or in it; none where a part is missing."""
        if self.options.demo:
            return self.options.demo
        whole, wanted = self.out / "demo.gguf", int((HERE / "demo.size").read_text())
        is_whole = lambda: whole.is_file() and whole.stat().st_size == wanted
        parts = sorted([*HERE.glob("demo.gguf.part*"), *HERE.parent.glob("demo.gguf.part*")])
        if parts and not is_whole():
            whole.write_bytes(b"".join(part.read_bytes() for part in parts))
        return whole if is_whole() else None

    def nets(self):
        """The largest Qwen3.5 that the device has room for: 4B takes 8 GB in bf16, and rows of its training 12 GB."""
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
            told = subprocess.run(ask, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            if self.options.device != "cpu" and min(map(int, told), default=0) >= 22 << 10:
                return "qwen3.5-4B"
        return "qwen3.5-0.8B"

    def model(self, shape):
        small = "qwen3.5-small" if shape in weights.NETS else "small"
        folder = self.options.weights / (small if self.small else shape)
        if not (folder / "complete").is_file():
            sys.exit(f"no weights in {folder}: the cell `weights` writes them")
        return folder

    def task(self, kind, shape="4B", **more):
        options = self.options
        return {
            "kind": kind, "model": str(self.model(shape)), "threads": options.threads, "dtype": options.dtype,
            "devices": options.device, **more,
        }  # fmt: skip

    @contextlib.contextmanager
    def server(self, name, shape="4B", flags=()):
        """A training server; how long it took to be ready and how it ended are rows."""
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        with Server(self.options, self.task("", shape, flags=list(flags)), folder) as server:
            emit("ready after, s", time.perf_counter() - begun)
            yield server
            emit("memory of the process, GB", engine.peak_bytes(server) / 1e9)
        emit("exit code", server.exit_code)

    def device_bytes(self, server):
        devices = server.call("/v1/health").get("devices", [])
        used = [one["memory_total"] - one["memory_free"] for one in devices if one.get("memory_free") is not None]
        return sum(used) or None

    def peer(self, task):
        return engine.run_peer(self.options, "peer", task, self.out)

    def run(self, *command, env=None):
        """Runs a program of the kit and passes on what it prints; its lines and its exit code."""
        variables = {**os.environ, **(env or {}), **self.variables}
        lines = []
        with subprocess.Popen(list(map(str, command)), env=variables, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                print(line, end="", flush=True)
        return lines, process.returncode


# === cells ===


def golden(kit):
    """PyTorch's golden values"""
    for dtype, others in (("f32", ["--skip", "bf16"]), ("bf16", [])):
        env = engine.environment(kit.options) | {"METACLAW_GOLDEN_DTYPE": dtype}
        tests = ["golden", "--nocapture", "--test-threads=1", *others]
        lines, code = kit.run(kit.bin / "engine-tests", *tests, env=env)
        found = [(float(number), line) for line in lines for number in re.findall(r"worst: \(([^,]+),", line)]
        worst = [number for number, _ in found]
        of_nets = [number for number, line in found if "gated_delta_nets" in line or "qwen3_5" in line]
        result = next((line for line in lines if line.startswith("test result:")), "no result")
        emit(f"{dtype}: largest distance", max(worst, default=None), result)
        emit(f"{dtype}: of gated delta nets", max(of_nets, default=None), f"{len(of_nets)} comparisons")
        emit(f"{dtype}: exit code", code)


def write_weights(kit):
    """random weights in the shapes of Qwen3 and Qwen3.5"""
    for shape in ["small", "qwen3.5-small"] if kit.small else ["4B", kit.nets(), "0.6B", "8B"]:
        free = shutil.disk_usage(kit.options.weights).free
        if free < 1.1 * weights.n_bytes(shape):
            emit(f"{shape}: not written, bytes free", free, f"{weights.n_bytes(shape)} are needed; --weights names another folder")
            continue
        begun = time.perf_counter()
        weights.write(shape, kit.options.weights / shape)
        emit(f"{shape}: written in, s", time.perf_counter() - begun)


def peak(kit):
    """the fastest product"""
    task = {"kind": "peak", "side": 1024 if kit.small else 8192, "threads": kit.options.threads}
    task |= {"dtype": kit.options.dtype, "devices": kit.options.device}
    emit("product of random numbers, TFLOP/s", kit.peer(task)["flops_per_s"] / 1e12)


def samples(kit, n, length):
    if kit.small:
        n, length = min(n, 2), 64
    ids = Ids(1)
    return [sample(ids.take(length // 4), ids.take(length - length // 4)) for _ in range(n)]


def step_rows(kit, name, figures, shape):
    n_params = engine.count_params(kit.model(shape))
    speed = figures["tokens"] / figures["wall_s"]
    emit("step, s", figures["wall_s"])
    emit("tokens a second", speed)
    # Samples of a tree share their beginnings, which are computed once.
    if name != "tree":
        emit(OPERATIONS, speed * 4 * n_params / 1e12)
    emit("loss", figures["loss"])
    if figures.get("device_bytes"):
        emit("memory of the device, GB", figures["device_bytes"] / 1e9, "the allocator's peak" if name == "peer" else "all that is in use")


def our_step(n, length, shape="4B", warm=None, memory=LITTLE, how=""):
    """`shape`: `None` is a Qwen3.5."""

    def cell(kit, shape=shape):
        if shape is None:
            shape = kit.nets()
            emit("shape", kit.model(shape).name)
        with kit.server(f"step-{shape}-{n}x{length}", shape, memory) as server:
            begun = time.perf_counter()
            first = samples(kit, 1, 1024)[0]
            server.step(server.create(9), engine.batch([first]))
            emit("first step of 1 x 1,024, s", time.perf_counter() - begun)
            task = kit.task("train", shape, samples=samples(kit, n, length), warm_tokens=warm)
            figures = engine.train(server, task)
            step_rows(kit, "ours", {**figures, "device_bytes": kit.device_bytes(server)}, shape)

    cell.__doc__ = f"LoRA step {n} x {length:,}, {shape or 'Qwen3.5'}{how}"
    return cell


def peft(checkpointing, shape="4B"):
    """`shape`: `None` is a Qwen3.5."""

    def cell(kit, shape=shape):
        shape, peer = shape or kit.nets(), {"batch": 4, "checkpointing": checkpointing}
        if shape in weights.NETS:
            has = lacks(kit.options, kit, "fla") is None
            emit("flash-linear-attention", "installed" if has else "not installed: transformers' reference code")
        step_rows(kit, "peer", kit.peer(kit.task("train", shape, samples=samples(kit, 16, 1024), peer=peer)), shape)

    how = "with" if checkpointing else "without"
    of = "" if shape else ", Qwen3.5"
    cell.__doc__ = f"the same step 16 x 1,024 by PEFT, micro-batch 4, {how} checkpointing{of}"
    return cell


def session(kit):
    """a session of 10 turns after 1,500 tokens, as one tree"""
    turns = engine.session(Ids(2), 40 if kit.small else 1_500, 10)
    with kit.server("session", "4B", LITTLE) as server:
        figures = engine.train(server, kit.task("train", samples=turns))
        step_rows(kit, "tree", {**figures, "device_bytes": kit.device_bytes(server)}, "4B")


def decode_speed(kit, server, ids, n, **more):
    """Tokens a second of `n` replies at once."""
    prompt, new = (32, 16) if kit.small else (PROMPT, NEW)
    figures = engine.decode(server, {"prompts": ids.lists(n, prompt), "new_tokens": new, **more})
    return figures["new_tokens"] / figures["wall_s"]


def next_turn_rows(kit, server, ids):
    history, turn = (100, 20) if kit.small else (15_000, 200)
    task = {"history": ids.text(history), "other_history": ids.text(history), "turn": ids.text(turn)}
    figures = engine.next_turn(server, task)
    emit(f"next turn of {turn} tokens after {history:,}, s", figures["wall_s"], f"{figures['cached']} tokens cached")
    emit("the same after an unknown history, s", figures["without_wall_s"])


def replies(kit):
    """replies"""
    ids, (prompt, new) = Ids(3), (32, 16) if kit.small else (PROMPT, NEW)
    with kit.server("replies") as server:
        for n in (1, 8, 64):
            emit(f"{n} streams at once, tokens a second", decode_speed(kit, server, ids, n))
        for n in (1, 4, 8):
            heard = engine.together([lambda text=text: server.stream(text, new) for text in ids.texts(n, prompt)])
            n_events, n_tokens = sum(len(one["at"]) for one in heard), sum(one["usage"]["completion_tokens"] for one in heard)
            # If there are as many events as tokens, these are the times of the engine's rounds.
            between = lambda percent: engine.quantile(engine.gaps(heard), percent)
            emit(f"{n} streams: median between tokens, s", between(50), f"{n_events} events of {n_tokens} tokens")
            emit(f"{n} streams: 95th percentile, s", between(95))
        server.save_adapters(["one"])
        for n in (1, 8):
            speed = decode_speed(kit, server, ids, n, adapter="one")
            emit(f"{n} streams at once on one adapter, tokens a second", speed)
        figures = engine.adapters(server, {"prompts": ids.texts(8, 64), "new_tokens": 64, "history": ids.text(200)})
        emit("8 streams on 8 adapters, time by all on one", figures["wall_s"] / figures["on_one_wall_s"])
        next_turn_rows(kit, server, ids)


def net_replies(kit):
    """replies, Qwen3.5"""
    ids, shape = Ids(6), kit.nets()
    emit("shape", kit.model(shape).name)
    with kit.server("net-replies", shape) as server:
        for n in (1, 8, 64):
            emit(f"{n} streams at once, tokens a second", decode_speed(kit, server, ids, n))
        next_turn_rows(kit, server, ids)
        # The second reply goes on from the state that the first one's prompt left.
        body = {"tokens": ids.take(321), "max_tokens": 16, "temperature": 0, "ignore_eos": True, "model": "base"}
        cold, kept = (server.call("/v1/sample", body)["sequences"][0] for _ in range(2))
        n_alike = next((i for i, (a, b) in enumerate(zip(cold["tokens"], kept["tokens"])) if a != b), 16)
        far = [abs(a - b) for a, b in zip(cold["logprobs"][:n_alike], kept["logprobs"])]
        emit("a reply from a kept state: largest distance", max(far, default=None), f"in nats, {n_alike} of 16 tokens alike")


def served(kit):
    """4 streams beside a step of 16 x 1,024"""
    ids, (prompt, new) = Ids(4), (32, 16) if kit.small else (PROMPT, NEW)
    with kit.server("served") as server:
        task = {"prompts": ids.texts(4, prompt), "new_tokens": new, "samples": samples(kit, 16, 1024)}
        figures = engine.served(server, task)
        emit("95th percentile between tokens alone, s", figures["p95_alone_s"])
        emit("the same while training, s", figures["p95_s"])
        emit("longest gap while training, s", figures["longest_s"])
        emit("the step's time by alone", figures["training_s"] / figures["training_alone_s"])


def generate(kit):
    """8 streams by transformers' generate"""
    ids, (prompt, new) = Ids(3), (32, 16) if kit.small else (PROMPT, NEW)
    figures = kit.peer(kit.task("decode", prompts=ids.lists(8, prompt), new_tokens=new))
    emit("tokens a second", figures["new_tokens"] / figures["wall_s"])


def int8(kit):
    """8 bits a weight"""
    ids, (prompt, new) = Ids(3), (32, 16) if kit.small else (PROMPT, NEW)
    with kit.server("int8", flags=["--quantization=int8", *LITTLE]) as server:
        figures = engine.decode(server, {"prompts": ids.lists(1, prompt), "new_tokens": new})
        emit("1 stream, tokens a second", figures["new_tokens"] / figures["wall_s"])
        if used := kit.device_bytes(server):
            emit("memory of the device, GB", used / 1e9)


def small_model(kit):
    """replies and a step of 16 x 1,024, 0.6B"""
    ids, (prompt, new) = Ids(3), (32, 16) if kit.small else (PROMPT, NEW)
    with kit.server("small-model", "0.6B", LITTLE) as server:
        for n in (1, 8):
            figures = engine.decode(server, {"prompts": ids.lists(n, prompt), "new_tokens": new})
            emit(f"{n} streams at once, tokens a second", figures["new_tokens"] / figures["wall_s"])
        figures = engine.train(server, kit.task("train", "0.6B", samples=samples(kit, 16, 1024)))
        step_rows(kit, "ours", figures, "0.6B")


def ends(kit):
    """how the training server ends, 0.6B"""
    ids = Ids(5)
    batch = engine.batch(samples(kit, 4, 1024))
    step = lambda server: server.step(server.create(), batch)
    decode = lambda server: server.sample(ids.take(64), 16)
    works = {"a step": [step], "replies": [decode], "both": [step, decode]}
    for what, work in works.items():
        with Server(kit.options, kit.task("", "0.6B"), kit.out) as server:
            for part in work:
                part(server)
        emit(f"after {what}: exit code", server.exit_code)
    with Server(kit.options, kit.task("", "0.6B"), kit.out) as server:
        run, long = server.create(), engine.batch(samples(kit, 16, 1024) * 16)
        body = {"session_id": run, "datums": long, "loss_fn": "cross_entropy"}
        # The step is cut, so it has no answer.
        child = os.fork()
        if child == 0:
            with contextlib.suppress(Exception):
                server.call("/v1/train/forward_backward", body)
            os._exit(0)
        busy = engine.cpu_seconds(server.pids) + 0.3
        until = time.monotonic() + 20
        while engine.cpu_seconds(server.pids) < busy and time.monotonic() < until:
            time.sleep(0.01)
        # The first signal lets running requests end, the second does not. Two of a kind may arrive as one.
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        server.process.wait()
        os.waitpid(child, 0)
    emit("after SIGTERM in the midst of a step: exit code", server.exit_code)


def loop(kit):
    """the whole loop: proxy, training server and the demo model"""
    begun = time.perf_counter()
    n = 2 if kit.small else 14
    env = {"METACLAW__TRAINER__DEVICES": kit.options.device, "METACLAW__TRAINER__DTYPE": kit.options.dtype}
    lines, code = kit.run(
        kit.bin / "laptop", "--seeds=1", "--trained-only", f"--conversations={n}", f"--out={kit.out / 'loop'}", env=env
    )
    talks = [talk for line in lines if (talk := re.match(r" *\d+  .* words  (\S+)  ", line))]
    emit("conversations", len(talks))
    emit("all of them and the measurement of the weights, s", time.perf_counter() - begun)
    emit("of them answered by an adapter", sum(talk[1] != "base" for talk in talks))
    for line in lines:
        if line.startswith("seed "):
            emit("result", line)
    emit("exit code", code)


def learn(kit):
    """rows of `bench learn`"""
    minutes = max(0.5, (kit.options.cell_seconds - 15) / 60)
    more = ["--sessions=2", "--test-questions=3"] if kit.small else ["--sessions=40", "--test-questions=20"]
    lines, code = kit.run(
        kit.bin / "learn", f"--out={kit.out / 'learn'}", "--only=default", "--wishes=terse", "--seeds=1,2,3,4",
        f"--minutes={minutes:.2f}", *more,
    )  # fmt: skip
    table = kit.out / "learn" / "table.txt"
    if table.is_file():
        emit("table", "\n" + table.read_text().rstrip())
    emit("exit code", code)


# Name, the longest time in seconds, what it does, and what it needs beside the kit.
CELLS = [
    ("golden", 100, golden, None),
    ("weights", 120, write_weights, None),
    ("peak", 30, peak, "torch"),
    ("step", 60, our_step(16, 1024), None),
    ("step-16000", 60, our_step(1, 16_000, memory=IN_20_GIB, how=", in 20 GiB"), None),
    ("peft", 60, peft(False), "peft"),
    ("peft-checkpointing", 60, peft(True), "peft"),
    ("replies", 90, replies, None),
    ("served", 60, served, None),
    ("net-step", 75, our_step(16, 1024, None), None),
    ("net-replies", 90, net_replies, None),
    ("generate", 60, generate, "transformers"),
    ("session", 60, session, None),
    ("net-peft", 75, peft(True, None), "peft"),
    ("int8", 60, int8, None),
    ("ends", 60, ends, None),
    ("step-4096", 75, our_step(2, 4_096, "8B"), None),
    ("loop", 100, loop, "demo"),
    ("step-65536", 75, our_step(1, 65_536, warm=4_096), None),
    ("small-model", 45, small_model, None),
    ("learn", 240, learn, "demo"),
]


# === all cells ===


def lacks(options, kit, needed):
    """Why a cell cannot run here; none if it can."""
    if needed is None:
        return None
    if needed == "demo":
        return None if kit.demo() else "the demo model is not whole: put demo.gguf.part* beside the kit"
    if not options.python:
        return "there is no Python with torch"
    tried = subprocess.run([options.python, "-c", f"import {needed}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return None if tried.returncode == 0 else f"{options.python} cannot import {needed}"


def run_cell(options, name, seconds):
    """Runs a cell in processes of its own until they end or the time is over: its rows, and what went wrong."""
    own = [sys.executable, __file__, f"--cell={name}", f"--cell-seconds={seconds:.0f}", f"--libtorch={options.libtorch}"]
    own += [f"--{key}={getattr(options, key)}" for key in ("device", "dtype", "threads", "python", "out", "weights")]
    own += ["--small"] * options.small + ([f"--demo={options.demo}"] if options.demo else [])
    log = options.out / f"{name}.log"
    with log.open("w") as out:
        process = subprocess.Popen(own, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(seconds)
            wrong = None if code == 0 else f"it ended with {code}"
        except subprocess.TimeoutExpired:
            wrong = f"not at its end after {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                # Its servers are of its group, which only this function made.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = log.read_text(errors="replace").splitlines()
    rows = []
    for line in lines:
        if line.startswith('{"what": '):
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
    if wrong:
        told = [line for line in lines if line.strip() and not line.startswith("{")]
        wrong += f": {told[-1][:200]}" if told else ""
    return rows, wrong


def machine(options):
    """What the figures are of."""
    lines = [f"{platform.node() or 'machine'}: {os.cpu_count()} cores, Python {platform.python_version()}"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        ask = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        lines += subprocess.run(ask, check=True, stdout=subprocess.PIPE, text=True).stdout.strip().splitlines()
    if options.python:
        ask = "import torch; print('torch', torch.__version__)"
        lines.append(subprocess.run([options.python, "-c", ask], stdout=subprocess.PIPE, text=True).stdout.strip())
    lines.append(f"devices `{options.device}`, {options.dtype}, {options.threads} threads{', little work' if options.small else ''}")
    return lines


def report(options, about, results, seconds):
    lines = [f"- {line}" for line in about] + [f"- {seconds:.0f} s in all", ""]
    lines += ["| cell | what | figure | beside it |", "|---|---|---|---|"]
    tables = [row["value"] for _, rows, _ in results for row in rows if "\n" in str(row["value"])]
    peaks = [row["value"] for _, rows, _ in results for row in rows if row["what"].startswith("product of random")]
    for title, rows, _ in results:
        for row in rows:
            value = "-" if row["value"] is None else shown(row["value"])
            if row["value"] not in tables:
                lines.append(f"| {title} | {row['what']} | {value} | {row['beside'] or ''} |")
                title = ""
            if peaks and row["what"] == OPERATIONS:
                lines.append(f"| | share of the fastest product (MFU) | {row['value'] / peaks[0]:.3f} | |")
    lines += [""] + [f"- **{title}**: {wrong}" for title, _, wrong in results if wrong]
    lines += [f"\n```{table}\n```" for table in tables]
    text = "\n".join(lines) + "\n"
    (options.out / "report.md").write_text(text)
    (options.out / "report.json").write_text(json.dumps({"about": about, "results": results}, indent=1))
    print("\n" + text + f"\nreport.md, report.json and the logs are in {options.out}")


def all_cells(options):
    kit, begun, results = Kit(options), time.monotonic(), []
    wanted = options.only.split(",") if options.only else [name for name, *_ in CELLS]
    known = [name for name, *_ in CELLS]
    if stray := [name for name in wanted if name not in known]:
        sys.exit(f"no such cell: `{stray[0]}`; cells: {', '.join(known)}")
    about = machine(options)
    for name, most, cell, needed in CELLS:
        if name not in wanted and not (name == "weights" and wanted != ["golden"]):
            continue
        left = 60 * options.minutes - (time.monotonic() - begun)
        title = cell.__doc__
        if why := lacks(options, kit, needed):
            rows, wrong = [], f"not run: {why}"
        elif left < SHORTEST:
            rows, wrong = [], f"not run: {options.minutes:g} minutes are over"
        else:
            print(f"{name}: {title} ..", flush=True)
            # Most limits are far too long for a CPU with little work; golden values are the same work everywhere.
            most *= 2 if options.device == "cpu" else 1
            rows, wrong = run_cell(options, name, min(most, left))
        for row in rows:
            print(f"  {row['what']}: {'-' if row['value'] is None else shown(row['value'])}")
        if wrong:
            print(f"  {name}: {wrong}")
        results.append((title, rows, wrong))
    report(options, about, results, time.monotonic() - begun)
    failed = [row for _, rows, _ in results for row in rows if "exit code" in row["what"] and row["value"] != 0]
    sys.exit(1 if failed or any(wrong and not wrong.startswith("not run") for _, _, wrong in results) else 0)


def torch_libraries(python):
    """The folder of the libtorch in a Python's torch; none without one."""
    ask = "import torch, os; print(os.path.join(os.path.dirname(torch.__file__), 'lib'))"
    found = subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return found.stdout.strip() or None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="0", help="as the trainer's flags have it: 0, 0,1 or cpu [default: 0]")
    parser.add_argument("--small", action="store_true", help="little work, to try the kit itself")
    parser.add_argument("--minutes", type=float, default=8, help="for all cells together [default: 8]")
    parser.add_argument("--only", metavar="CELL,..", help="these cells alone; a wrong name lists them")
    parser.add_argument("--dtype", choices=["bf16", "f32"], help="of the weights [default: bf16, on a CPU f32]")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="of libtorch on the CPU")
    parser.add_argument("--python", help="a Python with torch, transformers and peft [default: the one that runs this]")
    parser.add_argument("--libtorch", help="the folder of libtorch's libraries [default: those of that Python's torch]")
    parser.add_argument("--weights", type=Path, help="where random weights go, 34 GB [default: in the output folder]")
    parser.add_argument("--out", type=Path, default=Path("metaclaw-gpu-out"), help="for models, logs and report")
    parser.add_argument("--demo", type=Path, help="the demo model [default: demo.gguf.part* beside the kit]")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--cell-seconds", type=float, default=60, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtype = options.dtype or ("f32" if options.device == "cpu" else "bf16")
    options.out = options.out.resolve()
    options.weights = (options.weights or options.out / "weights").resolve()
    for folder in (options.out, options.weights):
        folder.mkdir(parents=True, exist_ok=True)
    python = sys.executable if options.python is None else options.python
    found = torch_libraries(python) if python else None
    options.python = python if found else ""
    options.libtorch = options.libtorch or found
    if not options.libtorch:
        sys.exit(f"{python} has no torch 2.11: --python names a Python that has it, --libtorch a folder of libraries")
    if options.cell:
        return next(cell for name, _, cell, _ in CELLS if name == options.cell)(Kit(options))
    # As Ctrl-C, so that a cell's programs end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return all_cells(options)


if __name__ == "__main__":
    main()

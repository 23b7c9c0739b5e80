"""Five arms on PAHF's shopping half: `cargo xtask bench pahf`. README.md says what is measured.

pahf.py --bin FOLDER --model FILE|FOLDER|URL --data FOLDER --out FOLDER [options]. `--bin` has `metaclaw` and
`metaclaw-trainer`, and `--data` is a checkout of PAHF.

One training server serves all runs. Each arm has a `metaclaw start` in a home of its own, and each owner with a seed an
agent there. Runs follow each other, so that the processor time of each is known, and one seed of all arms is there
early. Each choice is a line of runs/NAME.jsonl, and each finished run one of runs.jsonl. Give the same command again to
continue after the last line.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ARMS = ["nothing", "text", "weights", "both"]
# The last one is no run of its own: it is the weights of `both`, asked without its text.
SHOWN = [*ARMS, "forgotten", "told"]
# PAHF's instruction without its examples and its thoughts, which a small model does not write.
SYSTEM = (
    "You buy products for the user. Buy a product only if the user likes all of its features; else choose D. "
    "Answer with one letter: A, B, C or D."
)
THANKS = ["Right!", "Thanks!", "Perfect!", "That works!"]
# What the owner says of a reply decides; nobody is asked.
RULES = [
    {"on": "next", "pattern": "^(Right|Thanks|Perfect|That works)!", "score": 1},
    {"on": "next", "pattern": ".", "score": -1},
]
TRIES = 6
# Sessions of one point of the curve of errors.
WINDOW = 15


# --- the data -----------------------------------------------------------------------------------------------------


class Data:
    """Choices and tastes. A taste is `{product: {kind: {like_most, like_second, dislike}}}`."""

    def __init__(self, folder):
        read = lambda name: json.loads((Path(folder) / f"data/shopping/{name}.json").read_text())
        tastes = lambda name: {owner: all["persona_info"] for owner, all in read(name).items()}
        self.old, self.new = tastes("persona_info"), tastes("updated_persona_info")
        self.phases = {n: read(f"phase{n}") for n in (1, 2, 3, 4)}

    def owners(self):
        return list(self.old)

    def choices(self, owner, phase):
        return [choice for choice in self.phases[phase] if choice["User"] == owner]

    def taste(self, choice, phase):
        return (self.old if phase < 3 else self.new)[choice["User"]][choice["product"]].values()


def right(choice):
    """The letter that PAHF calls right: the best product, or D."""
    return choice["gt"] or "D"


def liked(taste, feature):
    return any(feature == kind["like_most"] or feature in kind["like_second"] for kind in taste)


def disliked(taste, feature):
    return any(feature in kind["dislike"] for kind in taste)


def fits(choice, taste, letter):
    return all(liked(taste, feature) for feature in choice[f"Option {letter}"])


def stale(data, choice):
    """The products that the old tastes allow, and the new ones do not."""
    old, new = data.taste(choice, 1), data.taste(choice, 3)
    return [letter for letter in "ABC" if fits(choice, old, letter) and not fits(choice, new, letter)]


def question(choice):
    product = choice["product"]
    options = [f"{letter}) {product} with {' and '.join(choice[f'Option {letter}'])}" for letter in "ABC"]
    return "\n".join([f"{choice['User']}: {choice['Task']}", "Options:", *options, "D) Do not buy anything"])


def preferred(taste, best, chosen):
    """A feature of the best product that the owner likes most, where the chosen one has a second choice."""
    for feature in best:
        for kind in taste:
            if feature == kind["like_most"] and any(other in kind["like_second"] for other in chosen):
                return feature
    return None


def feedback(data, choice, phase, letter, draw):
    """The owner's next message, in the forms of PAHF's detailed feedback, and the letter that it calls right."""
    best = choice["gt"]
    if letter == right(choice):
        return draw.choice(THANKS), letter
    if letter is None:
        return "Please answer with one letter: A, B, C or D.", None
    if letter == "D":
        return f"Option {best} would have worked for me.", best
    features, taste = choice[f"Option {letter}"], data.taste(choice, phase)
    if phase == 3:
        old = data.taste(choice, 1)
        changed = [feature for feature in features if disliked(taste, feature) and liked(old, feature)]
        if changed and not any(disliked(old, feature) for feature in features):
            said = f"I used to like {changed[0]}, but now I don't want it anymore."
            return f"Actually, my preferences have changed. {said}", None
    for feature in features:
        if disliked(taste, feature):
            return f"Option {letter} won't work for me because I don't want {feature}.", None
    # All of its features are liked, so another product is the best one.
    feature = preferred(taste, choice[f"Option {best}"], features)
    if feature:
        because = f"I'd prefer Option {best} because it has {feature} which I like more."
        return f"Option {letter} is okay, but {because}", best
    return f"Option {letter} works, but Option {best} would be even better for me.", best


def told(taste):
    """All tastes about a product, as a paragraph: what text could tell at best."""
    likes = [feature for kind in taste for feature in [kind["like_most"], *kind["like_second"]]]
    dislikes = [feature for kind in taste for feature in kind["dislike"]]
    return f"The user likes: {', '.join(likes)}.\nThe user dislikes: {', '.join(dislikes)}."


# --- the programs -------------------------------------------------------------------------------------------------


def get(url, body=None, headers=()):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **dict(headers)})
    with urllib.request.urlopen(request, timeout=900) as reply:
        return json.loads(reply.read()), reply.headers


def patiently(call):
    """The server may have no room for a while, as in a training step."""
    for tried in range(TRIES):
        try:
            return call()
        except (OSError, urllib.error.URLError) as error:
            why = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error
            print(f"  try {tried + 1}: {why}", file=sys.stderr)
            time.sleep(5 * tried)
    raise SystemExit("stopped: the same command goes on")


class Trainer:
    """The training server of all runs: one that runs at an address, or one of our own."""

    def __init__(self, args, out):
        self.process = None
        if args.model.startswith("http"):
            self.url = args.model.rstrip("/")
            return
        (out / "trainer").mkdir(parents=True, exist_ok=True)
        with open(out / "trainer.log", "a") as log:
            self.process = subprocess.Popen(
                [Path(args.bin) / "metaclaw-trainer", f"--model={args.model}", "--port=0", "--keep=2"]
                + [f"--checkpoint-dir={out / 'trainer'}", "--parent-stdin"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )
        ready = self.process.stdout.readline()
        if not ready:
            raise SystemExit(f"the training server did not start: {out / 'trainer.log'}")
        self.url = f"http://{json.loads(ready)['address']}"

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


class Product:
    """`metaclaw start` for one arm."""

    def __init__(self, args, out, arm, trainer):
        self.program, self.home = Path(args.bin) / "metaclaw", out / "homes" / arm
        self.home.mkdir(parents=True, exist_ok=True)
        has_text, has_weights = arm in ("text", "both"), arm in ("weights", "both")
        # `metaclaw train` needs no verdicts. Without a judge, rules hear what the owner says; else the policy model would
        # have to show first that it can, in minutes.
        judge = {"kind": "off"}
        rl = {"backend": "remote", "remote_url": trainer.url, "manual_train_trigger": True, "lora_rank": args.rank}
        if args.method != "sft":
            rl |= {"method": args.method, "epochs": args.epochs, "batch_size": 64}
            judge = {"kind": "rules", "rules": RULES, "session_end": False}
        if args.learning_rate:
            rl["learning_rate"] = args.learning_rate
        config = {
            "mode": "rl" if has_weights else "skills_only",
            "rl": rl,
            "gate": {"enabled": args.gate},
            "judge": judge,
            "wishes": {"enabled": has_text, "place": "user"},
            "memory": {"enabled": has_text, "flush_every": 1},
            "proxy": {"port": 0},
        }
        # JSON is YAML.
        (self.home / "config.yaml").write_text(json.dumps(config))
        self.env = {**os.environ, "METACLAW_HOME": str(self.home)}
        with open(self.home / "bench.log", "a") as log:
            command = [self.program, "start", "--config", self.home / "config.yaml"]
            self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_until_ready(arm)
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self, arm):
        until = time.time() + 180
        while time.time() < until and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                run = json.loads((self.home / "run.json").read_text())
                if run["pid"] == self.process.pid:
                    self.url = run["base_url"].removesuffix("/v1")
                    urllib.request.urlopen(f"{self.url}/readyz", timeout=5).read()
                    return
            time.sleep(0.2)
        raise SystemExit(f"{arm}: metaclaw did not start: {self.home / 'bench.log'}")

    def command(self, *args):
        """The last line of what a command prints as JSON; `None` if it failed, which the log then says."""
        done = subprocess.run([self.program, *args, "--json"], env=self.env, capture_output=True, text=True)
        if done.returncode:
            print(f"  metaclaw {' '.join(map(str, args))}: {done.stderr.strip() or done.stdout.strip()}")
            return None
        with contextlib.suppress(ValueError):
            return json.loads(done.stdout)
        return json.loads(done.stdout.strip().splitlines()[-1])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def cpu(processes):
    """Processor seconds of these processes and their children, with those that have ended."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = {process.pid for process in processes if process}
    for _ in range(4):
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    return sum(used.get(pid, 0) for pid in ours)


# --- a run --------------------------------------------------------------------------------------------------------


class Run:
    """An owner with an arm and a seed: lines of choices and nights."""

    def __init__(self, args, out, data, arm, owner, seed):
        self.args, self.data, self.arm, self.owner, self.seed = args, data, arm, owner, seed
        self.name = f"{arm}-{owner.lower()}-{seed}"
        self.file = out / "runs" / f"{self.name}.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.lines = [json.loads(line) for line in lines]
        self.again = f"-{len(self.lines)}" if self.lines else ""

    def write(self, line):
        with open(self.file, "a") as file:
            file.write(json.dumps(line) + "\n")
        self.lines.append(line)

    def of(self, what):
        return [line for line in self.lines if line["is"] == what]

    def play(self, product, trainer):
        self.product, self.trainer = product, trainer
        n_rounds = 0 if self.arm == "told" else self.args.rounds
        for phase in (1, 2, 3, 4):
            choices = list(enumerate(self.data.choices(self.owner, phase)))
            if phase in (2, 4):
                self.measure(phase, choices)
                continue
            for round in range(n_rounds):
                random.Random(f"{self.owner} {self.seed} {phase} {round}").shuffle(choices)
                for at, (number, choice) in enumerate(choices):
                    place = [phase, round, number]
                    if not any(line["place"] == place for line in self.of("choice")):
                        self.learn(place, choice)
                    n = round * len(choices) + at + 1
                    if n % self.args.night == 0 and not any(line["at"] == [phase, n] for line in self.of("night")):
                        self.write({"is": "night", "at": [phase, n], **self.sleep()})

    def ask(self, url, messages, place, headers=(), model="default", temperature=0.0, max_tokens=2):
        """A reply's text, its letter, and what it cost."""
        seed = random.Random(f"{self.owner} {self.seed} {place}").randrange(1 << 31)
        body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        headers = {"x-agent-id": self.name, **dict(headers)}
        began = time.time()
        reply, given = patiently(lambda: get(f"{url}/v1/chat/completions", body, headers))
        text = reply["choices"][0]["message"]["content"] or ""
        letter = re.search(r"\b([ABCD])\b", text)
        cached = (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return {
            "reply": text, "letter": letter and letter[1], "adapter": given.get("x-metaclaw-adapter"),
            "read": reply["usage"]["prompt_tokens"], "cached": cached, "said": reply["usage"]["completion_tokens"],
            "seconds": round(time.time() - began, 3),
        }

    def messages(self, choice, phase):
        system = f"{SYSTEM}\n{told(self.data.taste(choice, phase))}" if self.arm == "told" else SYSTEM
        return [{"role": "system", "content": system}, {"role": "user", "content": question(choice)}]

    def learn(self, place, choice):
        """A session with the owner's feedback."""
        before = cpu([self.trainer.process, self.product.process])
        session = {"x-session-id": f"{self.name}-{'-'.join(map(str, place))}{self.again}"}
        messages = self.messages(choice, place[0])
        reply = self.ask(self.product.url, messages, place, session, temperature=self.args.temperature)
        draw = random.Random(f"{self.seed} {place}")
        said, known = feedback(self.data, choice, place[0], reply["letter"], draw)
        # `metaclaw train` gets what the owner called right from this script, so that its arm reads no message.
        if self.arm in ("text", "both") or (self.arm == "weights" and self.args.method != "sft"):
            messages += [{"role": "assistant", "content": reply["reply"]}, {"role": "user", "content": said}]
            session["x-session-done"] = "1"
            after = self.ask(self.product.url, messages, place, session, max_tokens=1)
            for key in ("read", "cached", "said"):
                reply[key] += after[key]
        used = cpu([self.trainer.process, self.product.process]) - before
        self.write({"is": "choice", "place": place, "right": right(choice), "feedback": said, "known": known,
                    **reply, "cpu": round(used, 3)})

    def measure(self, phase, choices):
        """All choices of a phase, off the record."""
        shown = [self.arm, "forgotten"] if self.arm == "both" else [self.arm]
        for arm in shown:
            for number, choice in choices:
                place = [phase, 0, number]
                if any(line["place"] == place and line["arm"] == arm for line in self.of("measured")):
                    continue
                messages, headers = self.messages(choice, phase), {}
                url, model = self.product.url, "default"
                if arm == "forgotten":
                    # The adapter that answered the same with text.
                    same = [line for line in self.of("measured") if line["place"] == place]
                    url, model = self.trainer.url, same[0]["adapter"] or "base"
                else:
                    headers = {"x-session-id": f"{self.name}-{phase}-{number}{self.again}", "x-metaclaw-learn": "no"}
                before = cpu([self.trainer.process, self.product.process])
                reply = self.ask(url, messages, place, headers, model)
                used = cpu([self.trainer.process, self.product.process]) - before
                self.write({"is": "measured", "arm": arm, "place": place, "right": right(choice),
                            "stale": stale(self.data, choice) if phase == 4 else [], **reply, "cpu": round(used, 3)})

    def sleep(self):
        """What the owner's night brings: memories are written, and weights are trained."""
        before, began, night = cpu([self.trainer.process, self.product.process]), time.time(), {}
        if self.arm in ("text", "both"):
            time.sleep(1)
            memories = self.product.command("memory", "list", "--agent", self.name) or {}
            wishes = self.product.command("wishes", "list", "--agent", self.name) or {}
            night |= {"memories": memories, "wishes": wishes}
        if self.arm in ("weights", "both"):
            night |= self.train_on_kept() if self.args.method == "sft" else self.train_step()
        used = cpu([self.trainer.process, self.product.process]) - before
        return {**night, "cpu": round(used, 3), "seconds": round(time.time() - began, 1)}

    def kept(self):
        """What the owner has called right: the newest word on each choice, without what the owner has taken back."""
        kept = {}
        for line in self.of("choice"):
            phase, _, number = line["place"]
            gone = re.search(r"I used to like (.*), but now", line["feedback"])
            if gone:
                has = lambda row: row[1] != "D" and gone[1] in row[0][f"Option {row[1]}"]
                kept = {key: row for key, row in kept.items() if not has(row)}
            if line["known"]:
                kept[phase, number] = (self.data.choices(self.owner, phase)[number], line["known"])
        return list(kept.values())[-self.args.keep:]

    def train_on_kept(self):
        rows = [{"messages": [*self.messages(choice, 1), {"role": "assistant", "content": letter}]}
                for choice, letter in self.kept()]
        if not rows:
            return {"rows": 0}
        file = self.product.home / f"{self.name}.kept.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        flags = ["--agent", self.name, "--from", "base", "--held-out", "0", "--seed", str(self.seed)]
        flags += ["--epochs", str(self.args.epochs), "--batch-size", str(self.args.batch_size)]
        return {"rows": len(rows), "trained": self.product.command("train", file, *flags)}

    def train_step(self):
        self.quiet()
        return {"trained": self.product.command("train-step", "--agent", self.name, "--timeout", "3000")}

    def quiet(self):
        """Waits until each turn is judged."""
        last, until = None, time.time() + 60
        while time.time() < until:
            time.sleep(1)
            status = self.product.command("status") or {}
            own = [agent for agent in status["learner"]["agents"] if agent["agent"] == self.name]
            if own == last and status["learner"]["judging"]["waiting"] == 0:
                return
            last = own


# --- results ------------------------------------------------------------------------------------------------------


def read_runs(out, data, args):
    """The runs that are asked for and begun, by the arm that they show."""
    shown = {arm: [] for arm in SHOWN}
    for arm in args.arms:
        for owner, seed in wanted(data, args):
            run = Run(args, out, data, arm, owner, seed)
            shown[arm] += [run] if run.lines else []
            shown["forgotten"] += [run] if run.lines and arm == "both" else []
    return {arm: runs for arm, runs in shown.items() if runs}


def share(hits):
    hits = list(hits)
    return sum(hits) / len(hits) if hits else None


def columns(run, arm):
    """The figures of a run as `arm` shows it, each `None` where it has none."""
    lines = [line for line in run.of("measured") if line["arm"] == arm]
    found = {}
    for phase in (2, 4):
        of = [line for line in lines if line["place"][0] == phase]
        found[f"{phase} all"] = share(line["letter"] == line["right"] for line in of)
        found[f"{phase} fits"] = share(line["letter"] == line["right"] for line in of if line["right"] != "D")
        found[f"{phase} says D"] = share(line["letter"] == "D" for line in of)
    found["4 stale"] = share(line["letter"] in line["stale"] for line in lines if line["stale"])
    found["no letter"] = share(line["letter"] is None for line in lines)
    return found


def price(run, arm):
    choices = run.of("choice") if arm != "forgotten" else []
    lines = [line for line in run.of("measured") if line["arm"] == arm] + choices
    per = lambda key: statistics.fmean(line[key] for line in lines) if lines else None
    nights = run.of("night") if arm != "forgotten" else []
    trained = sum(night.get("rows", 0) for night in nights) if run.args.method == "sft" else None
    return {"tokens read a choice": per("read"), "of them cached": per("cached"), "CPU s a choice": per("cpu"),
            "rows trained": trained, "CPU s of nights": sum(night["cpu"] for night in nights)}


def errors(run):
    """Shares of wrong choices in groups of sessions, in their order."""
    found = {}
    for phase in (1, 3):
        of = [line for line in run.of("choice") if line["place"][0] == phase]
        for start in range(0, len(of), WINDOW):
            group = of[start:start + WINDOW]
            found[f"{phase}: {start + 1}-{start + len(group)}"] = share(line["letter"] != line["right"] for line in group)
    return found


def cell(runs, figures):
    """The mean of all runs, and behind it the lowest and highest of a seed."""
    by_seed = {}
    for run, figure in zip(runs, figures):
        if figure is not None:
            by_seed.setdefault(run.seed, []).append(figure)
    if not by_seed:
        return ""
    show = lambda value: f"{value:.2f}" if value < 10 else f"{value:.0f}"
    mean = statistics.fmean(figure for figures in by_seed.values() for figure in figures)
    seeds = [statistics.fmean(figures) for figures in by_seed.values()]
    return show(mean) + (f" ({show(min(seeds))} to {show(max(seeds))})" if len(seeds) > 1 else "")


def table(shown, of):
    rows = {arm: (runs, [of(run, arm) for run in runs]) for arm, runs in shown.items()}
    names = list(dict.fromkeys(name for _, all in rows.values() for figures in all for name in figures))
    lines = ["| arm | runs | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for arm, (runs, all) in rows.items():
        cells = [cell(runs, [figures.get(name) for figures in all]) for name in names]
        lines.append(f"| {arm} | {len(runs)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def decisions(shown, data, n):
    """The same `n` choices of each arm, with what the owner likes (+) and dislikes (-)."""
    text = ""
    for arm, runs in shown.items():
        lines = [(run, line) for run in runs for line in run.of("measured") if line["arm"] == arm and run.seed == runs[0].seed]
        for run, line in lines[:: max(1, len(lines) // n)][:n]:
            phase, _, number = line["place"]
            choice = data.choices(run.owner, phase)[number]
            taste = data.taste(choice, phase)
            text += f"\n{arm}, {run.name}, phase {phase}, choice {number}\n  {choice['User']}: {choice['Task']}\n"
            for letter in "ABC":
                marks = [("+" if liked(taste, feature) else "-") + feature for feature in choice[f"Option {letter}"]]
                text += f"  {letter}) {', '.join(marks)}{'  (stale)' if letter in line['stale'] else ''}\n"
            text += f"  says {line['reply']!r}, right is {line['right']}; {line['read']} tokens; {line['adapter'] or 'base'}\n"
    return text


def report(out, data, args):
    shown = read_runs(out, data, args)
    text = table(shown, columns) + "\nErrors by session:\n\n"
    text += table({arm: runs for arm, runs in shown.items() if arm in ARMS}, lambda run, _: errors(run))
    text += "\n" + table(shown, price)
    (out / "table.md").write_text(text)
    (out / "decisions.txt").write_text(decisions(shown, data, 10))
    print(f"{text}\ntable.md, decisions.txt and runs/ are in {out}")


# --- the command --------------------------------------------------------------------------------------------------


def wanted(data, args):
    return [(owner, seed) for seed in args.seeds for owner in data.owners()[: args.owners]]


def play(out, data, args):
    finished = out / "runs.jsonl"
    done = {json.loads(line)["run"] for line in finished.read_text().splitlines()} if finished.exists() else set()
    todo = [Run(args, out, data, arm, *one) for one in wanted(data, args) for arm in args.arms]
    # The reference does not depend on the seed.
    todo = [run for run in todo if run.name not in done and (run.arm != "told" or run.seed == args.seeds[0])]
    if not todo:
        return
    trainer = Trainer(args, out)
    products = {}
    try:
        for run in todo:
            if run.arm not in products:
                products[run.arm] = Product(args, out, run.arm, trainer)
            began = time.time()
            run.play(products[run.arm], trainer)
            minutes = round((time.time() - began) / 60, 1)
            figures = {arm: columns(run, arm) for arm in [run.arm, *(["forgotten"] if run.arm == "both" else [])]}
            with open(finished, "a") as file:
                file.write(json.dumps({"run": run.name, "minutes": minutes, "figures": figures}) + "\n")
            print(f"{time.strftime('%T')} {run.name}, {minutes} min: {json.dumps(figures)}", flush=True)
    finally:
        for program in [*products.values(), trainer]:
            program.stop()


def main():
    split = lambda kind: lambda text: [kind(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", help="the folder with metaclaw and metaclaw-trainer")
    parser.add_argument("--model", help="a GGUF file, a folder in Hugging Face form, or a training server's address")
    parser.add_argument("--data", required=True, help="a checkout of PAHF")
    parser.add_argument("--out", required=True, type=Path, help="the folder of the results")
    parser.add_argument("--owners", type=int, default=5, help="so many of the 20 owners [default: 5]")
    parser.add_argument("--seeds", type=split(int), default=[1, 2, 3], help="[default: 1,2,3]")
    parser.add_argument("--arms", type=split(str), default=[*ARMS, "told"], help="[default: nothing,text,weights,both,told]")
    parser.add_argument("--rounds", type=int, default=1, help="how often phases 1 and 3 are played [default: 1]")
    parser.add_argument("--night", type=int, default=45, help="sessions between two nights [default: 45]")
    parser.add_argument("--method", default="sft", help="sft (`metaclaw train` on what was called right), or a value of rl.method")
    parser.add_argument("--keep", type=int, default=60, help="sft: so many of the newest rows [default: 60]")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the rows, or rl.epochs [default: 4]")
    parser.add_argument("--batch-size", type=int, default=4, help="sft: rows of an optimiser step [default: 4]")
    parser.add_argument("--learning-rate", type=float, help="rl.learning_rate")
    parser.add_argument("--rank", type=int, default=32, help="rl.lora_rank [default: 32]")
    parser.add_argument("--temperature", type=float, default=0.7, help="of phases 1 and 3 [default: 0.7]")
    parser.add_argument("--gate", action="store_true", help="tests each adapter before it serves")
    parser.add_argument("--show", action="store_true", help="runs nothing: shows what is in --out")
    args = parser.parse_args()
    # As Ctrl-C, so that the programs end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args.out.mkdir(parents=True, exist_ok=True)
    data = Data(args.data)
    if not args.show:
        settings = {key: value for key, value in vars(args).items()
                    if key not in ("bin", "data", "out", "owners", "seeds", "arms", "show")}
        file = args.out / "settings.json"
        if file.exists() and json.loads(file.read_text()) != settings:
            raise SystemExit(f"{args.out} has results of other settings ({file}): give another --out")
        file.write_text(json.dumps(settings))
        play(args.out.absolute(), data, args)
    report(args.out, data, args)


if __name__ == "__main__":
    main()

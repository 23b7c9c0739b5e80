"""The numbers of training steps, from steps.jsonl to Weights & Biases through its own client.

Run by `metaclaw metrics wandb`: FOLDER PROJECT. One run for each lineage of each agent, of a name that stays, so that what
was sent before is passed over. Where it goes, and as whom, the client knows: WANDB_API_KEY, WANDB_MODE, WANDB_BASE_URL, ...
"""

import json
import pathlib
import sys

import wandb

# The older file first.
FILES = ("steps.1.jsonl", "steps.jsonl")


def steps(folder):
    """Every step by its run, in order; a line that is being written is left for the next time."""
    runs = {}
    for name in FILES:
        path = folder / name
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                step = json.loads(line)
            except ValueError:
                continue
            runs.setdefault((step["agent"], step["lineage"]), []).append(step)
    return runs


def scalars(step):
    """The numbers: those that a name stands for. `null` is no number."""
    named = {name: value for name, value in step.items() if "/" in name or name == "learning_rate"}
    return {name: value for name, value in named.items() if isinstance(value, (int, float))}


def send(project, agent, lineage, made):
    """One lineage as one run."""
    name = f"{agent}-{lineage}"
    run = wandb.init(project=project, id=name, name=name, group=agent, resume="allow", config={"agent": agent, "lineage": lineage})
    sent = run.step if run.resumed else 0
    new = [step for step in made if step["step"] >= sent]
    for step in new:
        run.log(scalars(step), step=step["step"])
    run.finish()
    return len(new)


def main():
    folder, project = pathlib.Path(sys.argv[1]), sys.argv[2]
    runs = steps(folder)
    for (agent, lineage), made in runs.items():
        n = send(project, agent, lineage, made)
        print(f"{agent}-{lineage}: {n} of {len(made)} steps")
    if not runs:
        print(f"{folder} has no steps yet")


main()

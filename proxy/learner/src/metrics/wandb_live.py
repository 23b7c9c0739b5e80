"""The numbers of training steps to Weights & Biases as they are made, through its own client.

Run by the learner: PROJECT. Each line of standard input is a line of steps.jsonl. One run for each lineage of each agent, of
the same name as `metaclaw metrics wandb` gives it.
"""

import json
import sys

import wandb


def scalars(step):
    """The numbers: those that a name stands for. `null` is no number."""
    named = {name: value for name, value in step.items() if "/" in name or name == "learning_rate"}
    return {name: value for name, value in named.items() if isinstance(value, (int, float))}


def main():
    run, of = None, None
    for line in sys.stdin:
        step = json.loads(line)
        agent, lineage = step["agent"], step["lineage"]
        if of != (agent, lineage):
            if run is not None:
                run.finish()
            name = f"{agent}-{lineage}"
            config = {"agent": agent, "lineage": lineage}
            run = wandb.init(project=sys.argv[1], id=name, name=name, group=agent, resume="allow", config=config)
            of = (agent, lineage)
        run.log(scalars(step), step=step["step"])
    if run is not None:
        run.finish()


main()

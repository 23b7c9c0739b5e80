"""Runs one episode of an environment of the Python package verifiers, or lists the environment's tasks.

    verifiers_episode.py                    one episode: the task of METACLAW_TASK, the reward to METACLAW_REWARD
    verifiers_episode.py --list TRAIN EVAL  writes the tasks of both data sets as JSONL

METACLAW_VERIFIERS names the environment, METACLAW_VERIFIERS_ARGS has the arguments of its load_environment as JSON.
The environment talks to the model at OPENAI_BASE_URL through the client of verifiers itself.
"""

import asyncio
import json
import math
import os
import sys

import verifiers


def load():
    if not hasattr(verifiers, "load_environment"):
        version = getattr(verifiers, "__version__", "of an unknown version")
        sys.exit(f"verifiers {version} has no load_environment: install 'verifiers>=0.1.10,<0.4'")
    arguments = json.loads(os.environ.get("METACLAW_VERIFIERS_ARGS") or "{}")
    return verifiers.load_environment(os.environ["METACLAW_VERIFIERS"], **arguments)


def write_tasks(rows, split, path):
    with open(path, "w", encoding="utf-8") as file:
        for index, row in enumerate(rows):
            row = {name: value for name, value in dict(row).items() if value is not None}
            row.setdefault("example_id", index)
            task = {"id": f"{split}/{index}", "input": row}
            file.write(json.dumps(task, ensure_ascii=False, default=str) + "\n")


def list_tasks(train, held_out):
    environment = load()
    write_tasks(environment.get_dataset(), "train", train)
    environment.build_eval_dataset()
    # Without data of its own, verifiers would evaluate on what is trained.
    own = environment.eval_dataset
    write_tasks([] if own is None else environment.get_eval_dataset(), "eval", held_out)


async def run_episode():
    from verifiers.types import ClientConfig

    environment = load()
    with open(os.environ["METACLAW_TASK"], encoding="utf-8") as file:
        task = json.load(file)["input"]
    max_turns = os.environ.get("METACLAW_MAX_TURNS")
    if max_turns and hasattr(environment, "max_turns"):
        environment.max_turns = int(max_turns)
    client = ClientConfig(api_base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY")
    output = await environment.run_rollout(
        task,
        client=client,
        model=os.environ.get("METACLAW_MODEL", "policy"),
        sampling_args=getattr(environment, "sampling_args", None) or {},
    )
    print(json.dumps(output, default=str))
    if output.get("error"):
        sys.exit(f"the environment failed: {output['error']}")
    reward = float(output["reward"])
    if math.isnan(reward):
        sys.exit("the environment failed: its reward is not a number")
    if not -1 <= reward <= 1:
        print(f"the reward {reward} is beyond what an episode may earn, and is cut to -1..1")
        reward = max(-1.0, min(1.0, reward))
    with open(os.environ["METACLAW_REWARD"], "w", encoding="utf-8") as file:
        json.dump({"score": reward}, file)


if sys.argv[1:2] == ["--list"]:
    list_tasks(*sys.argv[2:4])
else:
    asyncio.run(run_episode())

"""An environment of verifiers: the model has to read a note with a tool, and to say that all is as it should be."""

import verifiers
from datasets import Dataset


def read_note(name: str) -> str:
    """Returns what a note says.

    Args:
        name: The note's file name.
    """
    return f"{name} says that all is well."


def has_read(completion, **_):
    results = [message["content"] for message in completion if message["role"] == "tool"]
    is_read = any("all is well" in str(result) for result in results)
    is_said = "as it should be" in str(completion[-1]["content"])
    return float(is_read and is_said)


def load_environment(n_tasks: int):
    rows = [{"question": f"What does note {n} say?", "answer": "all is well"} for n in range(n_tasks)]
    return verifiers.ToolEnv(
        dataset=Dataset.from_list(rows), rubric=verifiers.Rubric(funcs=[has_read]), tools=[read_note], max_turns=4
    )

"""An agent of OpenAI's Agents SDK, as its documentation writes one: it reads a note with a tool, and answers."""

import asyncio
import json
import os

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def read_note(name: str) -> str:
    """Reads a note.

    Args:
        name: The file's name.
    """
    with open(name, encoding="utf-8") as note:
        return note.read()


async def main() -> None:
    # Traces go to OpenAI's own service, whatever the model's address is.
    set_tracing_disabled(True)
    with open(os.environ["METACLAW_TASK"], encoding="utf-8") as file:
        task = json.load(file)
    agent = Agent(name="reader", instructions="Use the tool.", tools=[read_note], model="scripted")
    result = Runner.run_streamed(agent, f"Task {task['id']}: what is in notes.txt?")
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())

"""The `anthropic` package in every way that a user asks for a reply; prints what it saw as one JSON object.

Arguments: the address, and the scenes to play; all of them without any. METACLAW_TEST_ASKED is as for
openai_turns.py.
"""

import json
import os
import sys

import anthropic

# The model's name says what the upstream does.
client = anthropic.Anthropic(base_url=sys.argv[1], api_key="sk-caller", max_retries=0)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAQUBAScY42YAAAAASUVORK5CYII="
QUESTION = "Was ist das? \u00e4\u00f6\u00fc \U0001f642 <b>\"quoted\"</b> \\ / \t."
SYSTEM = [
    {"type": "text", "text": "Be brief."},
    {"type": "text", "text": "A long rule.", "cache_control": {"type": "ephemeral"}},
]
ASKED = json.loads(os.environ.get("METACLAW_TEST_ASKED", "{}"))
FIELDS = {}
if ASKED:
    # The package has no argument for the temperature.
    temperature = {"temperature": ASKED["fields"]["temperature"]}
    FIELDS = {"max_tokens": ASKED["fields"]["max_tokens"], "extra_body": temperature}
TOOL = {
    "name": "exec",
    "description": "Runs it.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


def plain(item):
    """What a package's object holds, as JSON."""
    return item.model_dump(mode="json", exclude_unset=True)


def user(content):
    return [{"role": "user", "content": content}]


def asked(model, usual):
    """A copy of what is to be asked of this model."""
    return list(ASKED[model]) if model in ASKED else user(usual)


def whole():
    reply = client.messages.create(
        model="text",
        system="Be brief.",
        messages=user(QUESTION),
        **{"max_tokens": 64, **FIELDS},
    )
    return plain(reply)


def streamed(model):
    stream = client.messages.create(
        model=model,
        system=SYSTEM,
        messages=user(QUESTION),
        stream=True,
        **{"max_tokens": 64, **FIELDS},
    )
    return [plain(event) for event in stream]


def thought():
    """The package puts the blocks together; a beta goes up as a header."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with client.messages.stream(
        model="thought",
        thinking=thinking,
        messages=asked("thought", QUESTION),
        **{**FIELDS, "max_tokens": 2048},
        extra_headers={"anthropic-beta": "interleaved-thinking-2025-05-14"},
    ) as stream:
        text = "".join(stream.text_stream)
        return {"text": text, "message": plain(stream.get_final_message())}


def tool():
    """Two requests: the call, streamed and put together by the package, and its result."""
    messages = asked("tool", "Run the tool.")
    with client.messages.stream(
        model="tool", tools=[TOOL], messages=messages, **{"max_tokens": 64, **FIELDS}
    ) as stream:
        events = [event.type for event in stream]
        called = stream.get_final_message()
    call = called.content[0]
    messages.append({"role": "assistant", "content": [plain(call)]})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "ran " + call.input["command"]}
    messages.append({"role": "user", "content": [result, {"type": "text", "text": "And?"}]})
    reply = client.messages.create(
        model="tool", tools=[TOOL], messages=messages, **{"max_tokens": 64, **FIELDS}
    )
    return {"events": events, "asked": plain(called), "reply": plain(reply)}


def vision():
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "image", "source": source}, {"type": "text", "text": QUESTION}]
    reply = client.messages.create(model="text", max_tokens=64, messages=user(content))
    return plain(reply)


def beside():
    count = client.messages.count_tokens(model="text", system=SYSTEM, messages=user(QUESTION))
    return {"count": plain(count), "models": [plain(model) for model in client.models.list()]}


SCENES = {
    "whole": whole,
    "streamed": lambda: streamed("text"),
    "without_usage": lambda: streamed("nousage"),
    "without_finish": lambda: streamed("nofinish"),
    "without_end": lambda: streamed("nodone"),
    "thought": thought,
    "tool": tool,
    "vision": vision,
    "beside": beside,
}
print(json.dumps({scene: SCENES[scene]() for scene in sys.argv[2:] or SCENES}))

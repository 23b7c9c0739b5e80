"""The `openai` package in every way that a user asks for a reply; prints what it saw as one JSON object.

Arguments: the address, and the scenes to play; all of them without any. Where a real model answers,
METACLAW_TEST_ASKED says in JSON what is asked in place of the usual, by the model's name, and which fields
of sampling each request has.
"""

import json
import os
import sys

import openai

# The model's name says what the upstream does.
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="sk-caller", max_retries=0)

# A PNG of one pixel, and text that JSON may write in more than one way.
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAQUBAScY42YAAAAASUVORK5CYII="
QUESTION = "Was ist das? \u00e4\u00f6\u00fc \U0001f642 <b>\"quoted\"</b> \\ / \t."
ASKED = json.loads(os.environ.get("METACLAW_TEST_ASKED", "{}"))
FIELDS = ASKED.get("fields", {})
RESPONSES_FIELDS = ASKED.get("responses_fields", {})
PARAMETERS = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}


def asked(model, usual):
    """A copy of what is to be asked of this model."""
    return list(ASKED[model]) if model in ASKED else usual


def plain(item):
    """What a package's object holds, as JSON."""
    return item.model_dump(mode="json", exclude_unset=True)


def chat_whole():
    reply = client.chat.completions.create(
        model="text",
        messages=[{"role": "user", "content": QUESTION}],
        **{"temperature": 0.1, **FIELDS},
    )
    return plain(reply)


def chat_streamed(model):
    stream = client.chat.completions.create(
        model=model,
        messages=asked(model, [{"role": "user", "content": QUESTION}]),
        stream=True,
        stream_options={"include_usage": True},
        **FIELDS,
    )
    return [plain(chunk) for chunk in stream]


def chat_tool():
    """Two requests: the call, streamed and put together by the package, and its result."""
    function = {"name": "exec", "description": "Runs it.", "parameters": PARAMETERS, "strict": True}
    tools = [{"type": "function", "function": function}]
    messages = asked("tool", [{"role": "user", "content": "Run the tool."}])
    with client.chat.completions.stream(
        model="tool", messages=messages, tools=tools, **FIELDS
    ) as stream:
        events = [event.type for event in stream]
        called = stream.get_final_completion().choices[0].message
    call = called.tool_calls[0]
    messages.append(called.model_dump(exclude_none=True, exclude={"parsed"}))
    result = "ran " + json.loads(call.function.arguments)["command"]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    reply = client.chat.completions.create(
        model="tool", messages=messages, tools=tools, **FIELDS
    )
    return {"events": events, "call": plain(call), "reply": plain(reply)}


def chat_vision():
    image = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}
    content = [{"type": "text", "text": QUESTION}, image]
    reply = client.chat.completions.create(
        model="text", messages=[{"role": "user", "content": content}]
    )
    return plain(reply)


def responses_whole():
    image = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
    content = [{"type": "input_text", "text": QUESTION}, image]
    reply = client.responses.create(
        model="text", instructions="Be brief.", input=[{"role": "user", "content": content}]
    )
    return {"text": reply.output_text, "reply": plain(reply)}


def responses_streamed(model):
    stream = client.responses.create(
        model=model, input=asked(model, QUESTION), stream=True, **RESPONSES_FIELDS
    )
    return [plain(event) for event in stream]


def responses_tool():
    tools = [{"type": "function", "name": "exec", "parameters": PARAMETERS, "strict": True}]
    question = asked("tool", "Run the tool.")
    called = client.responses.create(
        model="tool", input=question, tools=tools, **RESPONSES_FIELDS
    )
    call = called.output[0]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "ran it"}
    said = asked("tool", [{"role": "user", "content": "Run the tool."}])
    history = [*said, plain(call), result]
    reply = client.responses.create(
        model="tool", input=history, tools=tools, **RESPONSES_FIELDS
    )
    return {"call": plain(call), "text": reply.output_text}


def beside():
    vector = client.embeddings.create(model="embedder", input="a word", encoding_format="float")
    return {"models": [plain(model) for model in client.models.list()], "vector": plain(vector)}


SCENES = {
    "chat_whole": chat_whole,
    "chat_streamed": lambda: chat_streamed("text"),
    "chat_without_usage": lambda: chat_streamed("nousage"),
    "chat_without_done": lambda: chat_streamed("nodone"),
    "chat_without_finish": lambda: chat_streamed("nofinish"),
    "chat_thought": lambda: chat_streamed("thought"),
    "chat_tool": chat_tool,
    "chat_vision": chat_vision,
    "responses_whole": responses_whole,
    "responses_streamed": lambda: responses_streamed("text"),
    "responses_thought": lambda: responses_streamed("thought"),
    "responses_called": lambda: responses_streamed("tool"),
    "responses_tool": responses_tool,
    "beside": beside,
}
print(json.dumps({scene: SCENES[scene]() for scene in sys.argv[2:] or SCENES}))

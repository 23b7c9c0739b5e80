"""Writes testdata/qwen35.json: conversations, and what transformers renders them to. A Rust test renders the same.

usage: python trainer/text/golden/conversations.py [TEMPLATE.jinja OUT.json [BODIES.jsonl]]

Without arguments, the template is that of the tests, which resembles Qwen3.5's. To compare the template of a model, give
it, and bodies of chat completions, one a line; then METACLAW_TEST_CONVERSATIONS=OUT.json names the file to the test.
"""

import json, pathlib, sys
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).parent.parent / "src"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}}}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def called(content, *calls, **more):
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}} for i, (name, arguments) in enumerate(calls)]
    return said("assistant", content, tool_calls=calls, **more)


DEEP = {"at": "x\ny", "n": 3, "deep": {"k": [1, "é", None]}, "list": ["<a>", 1.5], "yes": True, "none": None}
CONVERSATIONS = [
    {"messages": [said("system", "Be kind.\n"), said("user", " Hi é <b> ")]},
    {"messages": [said("user", "Hi")], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [said("user", "Hi")], "tools": [TOOL, TOOL], "chat_template_kwargs": {"enable_thinking": True}},
    {"messages": [said("system", "S"), said("user", "a"), called("I look.", ("look", DEEP), reasoning_content="hm "), said("tool", "r1"), said("tool", " r2\n")], "tools": [TOOL]},
    {"messages": [said("user", "a"), said("assistant", "<think>\nhm\n</think>\n\nhello"), said("user", "b"), called("", ("stop", {}), ("look", {"at": "z"})), said("tool", "r"), said("user", [{"type": "text", "text": "part"}, {"type": "text", "text": "two"}])], "tools": [TOOL]},
    {"messages": [said("user", "a"), called("x", ("stop", {})), said("tool", "r"), said("assistant", "<think>\nso\n</think>\n\nDone.")]},
    {"messages": [said("user", "a"), said("assistant", None, reasoning_content="r"), said("user", "<tool_response>\nno\n</tool_response>"), said("assistant", "b", reasoning_content="s")]},
    # What follows is refused.
    {"messages": [said("assistant", "x")]},
    {"messages": [said("user", "x"), said("narrator", "y")]},
]


def as_python(message):
    """What transformers wants in place of the API's text."""
    message = json.loads(json.dumps(message))
    for call in message.get("tool_calls") or []:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"] or "{}")
    return message


template = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "tokenizer/testdata/qwen35.jinja").read_text()
out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else HERE / "template/testdata/qwen35.json")
bodies = CONVERSATIONS + [json.loads(line) for path in sys.argv[3:4] for line in open(path)]
compiled, rows = _compile_jinja_template(template), []
for body in bodies:
    variables = body.get("chat_template_kwargs") or {}
    try:
        messages = [as_python(message) for message in body["messages"]]
        text = compiled.render(messages=messages, tools=body.get("tools"), add_generation_prompt=True, **variables)
    except Exception as error:
        text = None
        print("refused:", error)
    rows.append({"messages": body["messages"], "tools": body.get("tools"), "variables": variables, "text": text})
given = {"template": template} if len(sys.argv) > 1 else {}
lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
out.write_text(f'{json.dumps(given)[:-1]}{", " if given else ""}"rows": [\n{lines}\n]}}\n')
print(len(rows), "conversations,", sum(row["text"] is None for row in rows), "refused")

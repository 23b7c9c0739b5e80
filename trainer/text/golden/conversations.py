"""Writes testdata/qwen35.json and gemma4.json: conversations, and what transformers renders them to. A Rust test renders
the same.

usage: python trainer/text/golden/conversations.py [TEMPLATE.jinja OUT.json [BODIES.jsonl]]

Without arguments, the templates are those of the tests, which resemble Qwen3.5's and Gemma 4's. To compare the template of a model, give
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
    {"messages": [said("user", "a"), called("", ("stop", {}), ("look", {"at": "z"}), reasoning_content="hm"), said("tool", "2", tool_call_id="c1"), said("tool", "1", tool_call_id="c0")], "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": True}},
    {"messages": [said("user", "a"), called("", ("look", {"at": "z"})), said("tool", "1", tool_call_id="c0"), called("", ("stop", {})), said("tool", "2", tool_call_id="c0"), said("assistant", "Done."), said("user", "b")], "tools": [TOOL]},
    {"messages": [said("user", "a"), called("", ("look", DEEP))], "tools": [TOOL]},
    # What follows is refused by Qwen3.5's.
    {"messages": [said("assistant", "x")]},
    {"messages": [said("user", "x"), said("narrator", "y")]},
]


def as_python(message):
    """What transformers wants in place of the API's text."""
    message = json.loads(json.dumps(message))
    for call in message.get("tool_calls") or []:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"] or "{}")
    return message


def write(template, out, bodies, given):
    template, rows = template.read_text(), []
    compiled = _compile_jinja_template(template)
    for body in bodies:
        variables = body.get("chat_template_kwargs") or {}
        try:
            messages = [as_python(message) for message in body["messages"]]
            text = compiled.render(messages=messages, tools=body.get("tools"), add_generation_prompt=True, bos_token="<s>", **variables)
        except Exception as error:
            text = None
            print("refused:", error)
        rows.append({"messages": body["messages"], "tools": body.get("tools"), "variables": variables, "text": text})
    head = json.dumps({"template": template})[:-1] + ", " if given else "{"
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    out.write_text(f'{head}"rows": [\n{lines}\n]}}\n')
    print(len(rows), "conversations,", sum(row["text"] is None for row in rows), "refused")


if len(sys.argv) > 2:
    bodies = CONVERSATIONS + [json.loads(line) for path in sys.argv[3:4] for line in open(path)]
    write(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), bodies, True)
else:
    for name in ["qwen35", "gemma4"]:
        write(HERE / f"tokenizer/testdata/{name}.jinja", HERE / f"template/testdata/{name}.json", CONVERSATIONS, False)

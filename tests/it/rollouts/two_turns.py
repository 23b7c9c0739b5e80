"""An agent that says two things, each with its episode's id, and ends well if both are answered. It uses nothing but
Python."""

import json
import os
import urllib.request


def ask(messages: list[dict]) -> str:
    body = {"model": "policy", "messages": messages, "max_tokens": 12}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=200) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


said = [{"role": "user", "content": f"Please say {os.environ['METACLAW_ROLLOUT']}."}]
for _ in range(2):
    said.append({"role": "assistant", "content": ask(said)})
    said.append({"role": "user", "content": "And again."})

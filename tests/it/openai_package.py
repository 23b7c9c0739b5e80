"""The `openai` package as a user would use it; prints what it saw as one JSON object."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0)
question = [{"role": "user", "content": "What is the capital of France?"}]

whole = client.chat.completions.create(
    model="default", messages=question, temperature=0, max_tokens=48
)
stream = client.chat.completions.create(
    model="default",
    messages=question,
    temperature=0,
    max_tokens=48,
    stream=True,
    stream_options={"include_usage": True},
)
chunks = list(stream)
deltas = [c.choices[0].delta.content or "" for c in chunks if c.choices]
usages = [c.usage for c in chunks if c.usage]

try:
    client.chat.completions.create(model="default", messages=question, temperature=-1)
    refused = None
except openai.BadRequestError as error:
    refused = {"status": error.status_code, "message": error.body["message"]}

print(
    json.dumps(
        {
            "whole": whole.choices[0].message.content,
            "whole_usage": whole.usage.completion_tokens,
            "finish_reason": whole.choices[0].finish_reason,
            "streamed": "".join(deltas),
            "n_deltas": sum(1 for d in deltas if d),
            "n_usages": len(usages),
            "streamed_usage": usages[0].completion_tokens if usages else None,
            "refused": refused,
            "models": [model.id for model in client.models.list()],
        }
    )
)

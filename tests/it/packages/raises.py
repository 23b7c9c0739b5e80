"""What a package raises for each thing that goes wrong; prints it as one JSON object.

Arguments: the address, the package, its key, the APIs, and the scenes, which are names of models.
"""

import json
import sys

import anthropic
import httpx2
import openai

base_url, package, key, *rest = sys.argv[1:]
if package == "openai":
    client = openai.OpenAI(base_url=base_url + "/v1", api_key=key, max_retries=0)
else:
    client = anthropic.Anthropic(base_url=base_url, api_key=key, max_retries=0)
MESSAGES = [{"role": "user", "content": "Say hello."}]
# What a client acts on; the others are the server's own (date, server).
HEADERS = ("retry-after", "x-ratelimit-remaining-requests", "x-request-id", "request-id")
HEADERS += ("anthropic-ratelimit-requests-remaining", "content-type")


def chat(client, model, stream):
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)


def responses(client, model, stream):
    return client.responses.create(model=model, input="Say hello.", stream=stream)


def messages(client, model, stream):
    return client.messages.create(model=model, max_tokens=9, messages=MESSAGES, stream=stream)


APIS = {"chat": chat, "responses": responses, "messages": messages}


def caught(ask, model, stream):
    """The class of what is raised, and all that a program can read from it."""
    # With retries of its own the package waits as long as it is told, and gets its answer.
    patient = client.with_options(max_retries=2 if model == "once-limited" else 0)
    try:
        reply = ask(patient, model, stream)
        return {"raised": None, "n_events": len(list(reply)) if stream else None}
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        headers = {name: error.response.headers.get(name) for name in HEADERS}
        return {
            "raised": type(error).__name__,
            "status": error.status_code,
            "body": error.body,
            "code": getattr(error, "code", None),
            "request_id": error.request_id,
            "headers": headers,
        }
    except (openai.APIError, anthropic.APIError, httpx2.HTTPError) as error:
        return {"raised": type(error).__name__}


seen = {}
for api in (name for name in rest if name in APIS):
    for model in (name for name in rest if name not in APIS):
        for stream in (False, True):
            how = "streamed" if stream else "whole"
            seen[f"{api} {model} {how}"] = caught(APIS[api], model, stream)
print(json.dumps(seen))

"""What a package raises for each thing that goes wrong; prints it as one JSON object."""

import json
import sys

import anthropic
import httpx2
import openai

base_url, package, key, *scenes = sys.argv[1:]
openai_client = openai.OpenAI(base_url=base_url + "/v1", api_key=key, max_retries=0)
anthropic_client = anthropic.Anthropic(base_url=base_url, api_key=key, max_retries=0)
MESSAGES = [{"role": "user", "content": "Say hello."}]
# Only what a client acts on; the others are the server's own (date, server).
HEADERS = ("retry-after", "x-ratelimit-remaining-requests", "x-request-id", "request-id")
HEADERS += ("anthropic-ratelimit-requests-remaining", "content-type")


def chat(client, model, stream):
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)


def responses(client, model, stream):
    return client.responses.create(model=model, input="Say hello.", stream=stream)


def messages(client, model, stream):
    return client.messages.create(model=model, max_tokens=9, messages=MESSAGES, stream=stream)


def caught(ask, client, model, stream):
    """The class of what is raised, and all that a program can read from it."""
    try:
        reply = ask(client, model, stream)
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
    except (openai.APIConnectionError, anthropic.APIConnectionError, httpx2.HTTPError) as error:
        return {"raised": type(error).__name__}


seen = {}
for ask in (chat, responses) if package == "openai" else (messages,):
    client = openai_client if package == "openai" else anthropic_client
    for model in scenes:
        for stream in (False, True):
            how = "streamed" if stream else "whole"
            seen[f"{ask.__name__} {model} {how}"] = caught(ask, client, model, stream)
    # With retries of its own the package waits as long as it is told, and gets its answer.
    patient = client.with_options(max_retries=2)
    seen[f"{ask.__name__} retried"] = caught(ask, patient, "once-limited", False)
print(json.dumps(seen))

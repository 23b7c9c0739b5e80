"""Hangs up on a reply in one way; prints when it did, in nanoseconds since 1970."""

import asyncio
import json
import sys
import time

import anthropic
import openai

base_url, way = sys.argv[1], sys.argv[2]
MESSAGES = [{"role": "user", "content": "Say hello."}]


openai_client = openai.OpenAI(base_url=base_url + "/v1", api_key="sk", max_retries=0)
anthropic_client = anthropic.Anthropic(base_url=base_url, api_key="sk", max_retries=0)
async_client = openai.AsyncOpenAI(base_url=base_url + "/v1", api_key="sk", max_retries=0)


def hang_up(stream):
    next(iter(stream))
    now = time.time_ns()
    stream.close()
    return now


def chat():
    return hang_up(openai_client.chat.completions.create(model="m", messages=MESSAGES, stream=True))


def responses():
    return hang_up(openai_client.responses.create(model="m", input="Say hello.", stream=True))


def messages():
    return hang_up(
        anthropic_client.messages.create(model="m", max_tokens=9, messages=MESSAGES, stream=True)
    )


async def give_up():
    asked = async_client.chat.completions.create(model="m", messages=MESSAGES)
    asking = asyncio.create_task(asked)
    # The test says when the upstream has the request.
    await asyncio.to_thread(sys.stdin.readline)
    now = time.time_ns()
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    return now


def before_the_first_byte():
    return asyncio.run(give_up())


print(json.dumps({"hung_up_ns": globals()[way]()}))
sys.stdout.flush()
# The end of the process would hang up as well: it waits for the test.
sys.stdin.read()

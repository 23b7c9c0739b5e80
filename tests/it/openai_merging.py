"""Conversations with the `openai` package at temperature 1; prints which turns went on from what was sampled."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import openai

n_conversations = int(sys.argv[2])
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0)
topics = ["tea", "rain in Lima", "naïve Bayes", "jazz 🎷", "东京", "the number 1,729", "`ls -la`", "O'Brien"]
asks = ["Tell me about {}.", "Say it with some emojis.", "And as a short poem?", "Now in Python code."]


def sampled(reply_id):
    record = client.get(f"/sampled/{reply_id}", cast_to=object)
    return record["prompt_ids"] + record["ids"]


def conversation(number):
    messages, before, merged = [], None, []
    for turn, ask in enumerate(asks):
        content = ask.format(topics[number % len(topics)])
        messages.append({"role": "user", "content": content})
        reply = client.chat.completions.create(
            model="default", messages=messages, temperature=1, max_tokens=24, seed=number * 10 + turn
        )
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        ids = sampled(reply.id)
        if before is not None:
            merged.append(ids[: len(before)] == before)
        before = ids
    return merged


with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(conversation, range(n_conversations)))))

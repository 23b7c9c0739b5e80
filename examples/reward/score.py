#!/usr/bin/env python3
"""A reward function for `judge.kind: http`, in nothing but Python's own library (docs/extending/reward-functions.md).

    python3 examples/reward/score.py [PORT]

It wants short answers: at most 40 words is good, the longer the worse. Put yours into `score`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOST_WORDS = 40


def score(turn):
    """A number from -1 to 1, or None where there is nothing to say."""
    said = turn["reply"].get("content")
    if not isinstance(said, str) or not said.strip():
        return None  # It called a tool, and said nothing.
    n_words = len(said.split())
    if n_words <= MOST_WORDS:
        return 1.0
    return max(-1.0, -n_words / (4 * MOST_WORDS))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        turns = json.loads(self.rfile.read(length))["turns"]
        answer = json.dumps({"scores": [score(turn) for turn in turns]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8900
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/score", flush=True)
    server.serve_forever()

"""GRPO as a function for rl.advantages: how much better an outcome is than those of its group.

    python3 grpo.py 8901
    metaclaw config rl.advantages http://127.0.0.1:8901/

Change `advantages` to try another estimator. Port 0 takes a free port; the address is printed.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


def advantages(samples):
    groups = {}
    for sample in samples:
        groups.setdefault(sample["group"], {})[sample["rollout"]] = sample["outcome"]
    result = {}
    for sample in samples:
        outcomes = groups[sample["group"]].values()
        mean = sum(outcomes) / len(outcomes)
        std = (sum((outcome - mean) ** 2 for outcome in outcomes) / len(outcomes)) ** 0.5
        advantage = (sample["outcome"] - mean) / (std + 1e-6)
        result[sample["id"]] = max(-5.0, min(5.0, advantage))
    return result


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"advantages": advantages(asked["samples"])}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8901), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()

#!/usr/bin/env python3
"""An environment server for the track `gui`: a page in Chromium without a window.

It needs Python 3.9 or later, Chromium and a font, and no packages: it drives Chromium by the DevTools protocol over pipes.

    python3 server.py --port 8931 --chromium /usr/bin/chromium

It prints its address when it is ready. Each session is a browser context of its own.
"""

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue

FOLDER = Path(__file__).resolve().parent
WIDTH, HEIGHT = 800, 600
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "Backspace": 8, "ArrowDown": 40, "ArrowUp": 38}
PATIENCE = 30  # seconds that Chromium may take for one command


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


X = {"type": "number", "description": f"Pixels from the left edge, 0 to {WIDTH}."}
Y = {"type": "number", "description": f"Pixels from the top edge, 0 to {HEIGHT}."}
TOOLS = [
    tool("click", "Clicks at a place of the page.", x=X, y=Y),
    tool("type_text", "Types a text into the element that has the focus.", text={"type": "string"}),
    tool("press", "Presses a key.", key={"type": "string", "enum": list(KEYS)}),
    tool("scroll", "Scrolls the page down, or up if negative.", pixels={"type": "number"}),
]

# What can be seen of the page in words: each element with its centre.
TEXT = """(() => {
  const lines = [document.title];
  for (const it of document.querySelectorAll('h2,p,li,button,input,select,label,output')) {
    const box = it.getBoundingClientRect();
    if (!box.width || !box.height || box.bottom < 0 || box.top > innerHeight) continue;
    let text = it.matches('input,select') ? it.name : it.innerText.trim().replace(/\\s+/g, ' ').slice(0, 80);
    if (it.matches('[type=checkbox],[type=radio]')) text += ` ${it.value} ${it.checked ? 'on' : 'off'}`;
    else if (it.matches('input,select')) text += ` ${JSON.stringify(it.value)}`;
    if (it === document.activeElement) text += ' (has the focus)';
    const x = Math.round(box.x + box.width / 2), y = Math.round(box.y + box.height / 2);
    lines.push(`${it.tagName.toLowerCase()} at ${x},${y}: ${text}`);
  }
  return lines.join('\\n');
})()"""


class Failure(Exception):
    """A request that cannot be answered, in words."""


class Browser:
    """Chromium. Commands and their answers are JSON messages that a zero byte ends."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory()
        arguments = [program, "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                     "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        # Chromium reads from descriptor 3 and writes to descriptor 4. A shell puts its own streams there.
        script = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        self.process = subprocess.Popen(["/bin/sh", "-c", script, "sh", *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.waiting = {}
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        rest = b""
        while piece := self.process.stdout.read1(1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if queue := self.waiting.pop(message.get("id"), None):
                    queue.put(message)

    def call(self, method, session=None, **params):
        number, queue = next(self.numbers), Queue()
        self.waiting[number] = queue
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\0")
            self.process.stdin.flush()
        try:
            answer = queue.get(timeout=PATIENCE)
        except Empty:
            raise Failure(f"Chromium did not answer {method} within {PATIENCE} s") from None
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']['message']}")
        return answer["result"]


class Session:
    """A page that one agent works on."""

    def __init__(self, browser, task):
        self.browser, self.task = browser, task
        page = (FOLDER / task.get("page", "page.html")).resolve()
        if FOLDER not in page.parents or not page.is_file():
            raise Failure(f"page {task.get('page')!r} is not a file of {FOLDER}")
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context,
                              width=WIDTH, height=HEIGHT)["targetId"]
        self.id = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        self.call("Page.enable")
        self.call("Page.navigate", url=page.as_uri())
        self.run("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")
        if setup := task.get("setup"):
            self.run(setup)

    def call(self, method, **params):
        return self.browser.call(method, self.id, **params)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failure(f"{script!r}: {result['exceptionDetails']['text']}")
        return result["result"].get("value")

    def observation(self):
        return {"text": self.run(TEXT)}

    def act(self, action):
        name, given = action.get("name"), action.get("arguments") or {}
        try:
            if name == "click":
                for kind in ("mousePressed", "mouseReleased"):
                    self.call("Input.dispatchMouseEvent", type=kind, x=float(given["x"]), y=float(given["y"]),
                              button="left", clickCount=1)
            elif name == "type_text":
                self.call("Input.insertText", text=str(given["text"]))
            elif name == "press":
                code, key = KEYS[given["key"]], given["key"]
                text = {"text": "\r"} if key == "Enter" else {}
                self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
                self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)
            elif name == "scroll":
                self.run(f"scrollBy(0, {float(given['pixels'])})")
            else:
                return {"error": f"there is no action {name!r}"}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"the arguments of {name} cannot be used: {error!r}"}
        # Two frames: what the action caused is drawn.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.observation()

    def screenshot(self):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}

    def score(self):
        value = self.run(self.task["evaluate"])
        return max(0.0, min(1.0, float(value or 0)))

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, browser):
        super().__init__(("127.0.0.1", port), Handler)
        self.browser, self.sessions = browser, {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        try:
            length = int(self.headers.get("Content-Length") or 0)
            status, answer = 200, self.answer(json.loads(self.rfile.read(length) or b"{}"))
        except (Failure, ValueError, KeyError) as error:
            status, answer = 400, {"error": {"message": str(error)}}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, body):
        sessions = self.server.sessions
        if self.path == "/reset":
            session = Session(self.server.browser, body["task"])
            sessions[session.id] = session
            return {"session": session.id, "tools": TOOLS, "observation": session.observation()}
        session = sessions.get(body.get("session"))
        if session is None:
            raise Failure(f"there is no session {body.get('session')!r}")
        if self.path == "/act":
            return {"observation": session.act(body["action"])}
        if self.path == "/screenshot":
            return session.screenshot()
        if self.path == "/evaluate":
            return {"score": session.score()}
        if self.path == "/close":
            sessions.pop(session.id).close()
            return {}
        raise Failure(f"there is no address {self.path}: use /reset, /act, /screenshot, /evaluate or /close")

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description="An environment server: a page in Chromium.")
    parser.add_argument("--port", type=int, default=8931, help="0 means a free one")
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    parser.add_argument("--chromium", default=found)
    given = parser.parse_args()
    if not given.chromium:
        sys.exit("Chromium is not found: install it, or name it with --chromium")
    # Being ended from outside is like Ctrl-C: Chromium ends too, and its profile is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    browser = Browser(given.chromium)
    try:
        session = Session(browser, {})
        if not session.run("document.querySelector('h2').innerText"):
            sys.exit("Chromium draws and types no letters: install a font (Debian: apt install fonts-dejavu-core)")
        session.close()
        server = Server(given.port, browser)
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        browser.process.kill()
        browser.process.wait()


if __name__ == "__main__":
    main()

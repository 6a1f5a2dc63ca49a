"""Servers for page_check.py's browser: a server that may be killed, and a gate before one."""

import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Gate:
    """Stands before an endpoint, changes what its /status says, and may keep its history to itself."""

    def __init__(self, behind, change, history=True):
        self.behind, self.change, self.history = behind, change, history
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802 (the library's name)
                gate.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler):
        path = handler.path.split("?")[0]
        if path == "/history" and not self.history:
            handler.send_error(404)
            return
        with urllib.request.urlopen(f"http://{self.behind}{handler.path}", timeout=10) as answer:
            body = answer.read()
            headers = [(name, value) for name, value in answer.getheaders()
                       if name in ("Content-Type", "Content-Security-Policy", "X-Content-Type-Options")]
        if path == "/status":
            body = json.dumps(self.change(json.loads(body))).encode()
        handler.send_response(200)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Server:
    """A server of one part's own, which may be killed."""

    def __init__(self, options, config):
        self.program, self.address = options.program, options.other
        self.config = os.path.join(options.folder, config)
        self.log = os.path.join(options.folder, "other.log")
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.program, "--config", self.config],
                                            stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                return fetch(f"http://{self.address}/healthz")
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(30)

    def close(self):
        if self.process and self.process.poll() is None:
            self.end(signal.SIGTERM)

"""A headless Chromium, driven over its debugging pipe: no driver program, no port, no package.

The browser ends when the pipe is closed, so it never outlives the test that started it.
"""

import base64
import collections
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--mute-audio", "--password-store=basic", "--hide-scrollbars",
    "--force-color-profile=srgb", "--remote-debugging-pipe",
    # Nothing but this machine: a page that asks elsewhere fails.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*, EXCLUDE localhost",
]


class BrowserError(Exception):
    """The browser, or the page in it, did not do what it was told."""


def find():
    """The browser's program, or None."""
    return os.environ.get("REMORA_CHROMIUM") or shutil.which("chromium")


def _high(fd):
    """The same end of a pipe under a number that the shell does not use itself."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(fd)
    return moved


class Browser:
    """One process with one folder of its own below `folder`."""

    def __init__(self, folder):
        orders, self._write = map(_high, os.pipe())
        self._read, answers = map(_high, os.pipe())
        home = os.path.join(folder, "browser")
        os.makedirs(home, exist_ok=True)
        self._log = open(os.path.join(folder, "browser.log"), "wb")
        environment = {**os.environ, "HOME": home, "XDG_RUNTIME_DIR": home, "TZ": "UTC"}
        for name in ("DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "http_proxy", "https_proxy", "all_proxy"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{orders} 4>&{answers}', "bash", find(), *FLAGS,
             f"--user-data-dir={home}/profile", "about:blank"],
            pass_fds=(orders, answers), stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, env=environment)
        os.close(orders)
        os.close(answers)
        self._buffer = b""
        self._next = 0
        self.events = collections.deque()

    def _receive(self, deadline):
        """The next message, or None at the deadline."""
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return None
            data = os.read(self._read, 1 << 20)
            if not data:
                raise BrowserError(f"the browser ended; its log is {self._log.name}")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, timeout=60, **params):
        """One order and its answer; events on the way are kept."""
        self._next += 1
        order = {"id": self._next, "method": method, "params": params}
        if session:
            order["sessionId"] = session
        data = json.dumps(order).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        deadline = time.monotonic() + timeout
        while True:
            message = self._receive(deadline)
            if message is None:
                raise BrowserError(f"{method}: no answer within {timeout} s")
            if message.get("id") == order["id"]:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error'].get('message')}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def gather(self, seconds=0.0):
        """Takes in what has happened meanwhile."""
        deadline = time.monotonic() + seconds
        while (message := self._receive(deadline)) is not None:
            if "method" in message:
                self.events.append(message)

    def close(self):
        """Ends the browser and waits for it."""
        with contextlib.suppress(BrowserError, OSError):
            self.call("Browser.close", timeout=5)
        for fd in (self._write, self._read):
            os.close(fd)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Page:
    """A tab, and all that went wrong in it."""

    KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}

    def __init__(self, browser, width=1280, height=900):
        self._browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.size(width, height)
        self._credentials = None
        self._sent = {}
        self._faults = []
        self.requested = set()

    def _call(self, method, **params):
        return self._browser.call(method, session=self.session, **params)

    def size(self, width, height, mobile=False):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=mobile)

    def prefer(self, **features):
        """prefer(prefers_color_scheme="dark")"""
        self._call("Emulation.setEmulatedMedia",
                   features=[{"name": name.replace("_", "-"), "value": value}
                             for name, value in features.items()])

    def open(self, url):
        self._call("Page.navigate", url=url)

    def close(self):
        self._browser.call("Target.closeTarget", targetId=self.target)

    def run(self, expression):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def sign_in(self, user, password, *patterns):
        """Answers what a browser asks a person when these URLs want HTTP Basic, while wait() runs."""
        self._credentials = {"response": "ProvideCredentials", "username": user, "password": password}
        self._call("Fetch.enable", handleAuthRequests=True,
                   patterns=[{"urlPattern": one} for one in patterns])

    def _answer(self):
        """Lets requests pass that are held for sign_in()."""
        mine = [event for event in self._browser.events
                if event["method"].startswith("Fetch.") and event.get("sessionId") == self.session]
        for event in mine:
            self._browser.events.remove(event)
            request = event["params"]["requestId"]
            if event["method"] == "Fetch.authRequired":
                self._call("Fetch.continueWithAuth", requestId=request,
                           authChallengeResponse=self._credentials)
            else:
                self._call("Fetch.continueRequest", requestId=request)

    def wait(self, expression, seconds=20):
        """Until it is true. BrowserError when it never was."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(f"Boolean({expression})")
            if value:
                return
            if time.monotonic() > deadline:
                raise BrowserError(f"not true within {seconds} s: {expression}")
            self._browser.gather(0.1)
            if self._credentials:
                self._answer()

    def key(self, name, modifiers=0):
        """Presses a key: a name of KEYS or a character."""
        code = self.KEYS.get(name)
        text = {} if code and name != "Enter" else {"text": "\r" if name == "Enter" else name}
        common = {"key": name, "windowsVirtualKeyCode": code or ord(name.upper()), "modifiers": modifiers}
        self._call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self._call("Input.insertText", text=text)

    def mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path, whole=True):
        image = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(image["data"]))

    def faults(self):
        """What the console, the page and the network complained of since the call before."""
        self._browser.gather()
        others = [event for event in self._browser.events if event.get("sessionId") != self.session]
        mine = [event for event in self._browser.events if event.get("sessionId") == self.session]
        self._browser.events = collections.deque(others)
        for event in mine:
            self._take(event["method"], event["params"])
        found, self._faults = self._faults, []
        return found

    def _take(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            self._faults.append(f"exception: {text}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self._faults.append("console: " + " ".join(str(one.get("value")) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self._faults.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self._sent[params["requestId"]] = params["request"]["url"]
            self.requested.add(params["request"]["url"])
        elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
            self._faults.append(f"answer {params['response']['status']}: {params['response']['url']}")
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            self._faults.append(f"failed: {self._sent.get(params['requestId'])}: {params['errorText']}")

"""Drives Debian's chromium by its DevTools protocol over two pipes; nothing but Python's own library."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync "
    "--disable-component-update --disable-default-apps --disable-extensions --mute-audio --hide-scrollbars "
    "--remote-debugging-pipe --allow-file-access-from-files=false"
)
KEYS = {
    "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37,
    "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "/": 191,
}


# What is said where another page comes while an expression is evaluated.
GONE = ("navigated or closed", "context was destroyed", "Cannot find context", "find default execution context")


class PageGone(RuntimeError):
    """The page that was asked is not there any more."""


class Browser:
    """A browser with one page. What the page says, asks for and throws is noted."""

    def __init__(self, width, height, scheme="light", is_phone=False):
        self.profile = tempfile.mkdtemp(prefix="callsheet-page-")
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()

        def wire():
            # The browser reads from 3 and writes to 4.
            low, high = os.dup(to_browser), os.dup(from_browser)
            os.dup2(low, 3)
            os.dup2(high, 4)

        command = ["chromium", *FLAGS.split(), f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.console, self.requests = [], []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=is_phone,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        os.close(self.input)
        os.close(self.output)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        while True:
            answer = self.read(60)
            if answer is None:
                raise TimeoutError(method)
            if answer.get("id") == self.number:
                if "error" in answer:
                    is_gone = any(text in answer["error"]["message"] for text in GONE)
                    raise (PageGone if is_gone else RuntimeError)(f"{method}: {answer['error']}")
                return answer["result"]

    def read(self, timeout):
        """The next message, or None. What a page does meanwhile is noted."""
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.input], [], [], left)[0]:
                return None
            chunk = os.read(self.input, 1 << 20)
            if not chunk:
                raise EOFError("the browser has ended")
            self.buffer += chunk
        data, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(data)
        self.note(message)
        return message

    def note(self, message):
        method, of = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(of["exceptionDetails"])[:800])
        elif method == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning", "assert"):
            self.console.append(f"{of['type']}: {json.dumps(of['args'])[:800]}")
        elif method == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
            entry = of["entry"]
            self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(of["request"]["url"])

    def open(self, path):
        url = path if "://" in str(path) else pathlib.Path(path).resolve().as_uri()
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression, awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {json.dumps(result['exceptionDetails'])[:600]}")
        return result["result"].get("value")

    def holds(self, condition):
        try:
            return self.run(f"Boolean({condition})")
        except PageGone:
            return False

    def until(self, condition, timeout=20):
        """Waits, also while one page follows another."""
        end = time.monotonic() + timeout
        while not self.holds(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}\nconsole: {self.console}")
            self.read(0.05)

    def press(self, key):
        code = KEYS.get(key, ord(key[0].upper()))
        is_text = len(key) == 1 or key == "Enter"
        text = {"text": "\r" if key == "Enter" else key} if is_text else {}
        common = {"key": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        box = self.run(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
                       "return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def choose(self, select, value):
        """Chooses an option, which may be about to come."""
        self.until(f"[...document.querySelector({json.dumps(select)}).options].some((o) => o.value === {json.dumps(value)})")
        self.run(f"(() => {{ const s = document.querySelector({json.dumps(select)}); s.value = {json.dumps(value)}; "
                 "s.dispatchEvent(new Event('input', { bubbles: true })); })()")

    def settle(self):
        """After two frames and the wait for large files."""
        self.run("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 500))")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

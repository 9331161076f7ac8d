"""Has a browser play a video of the emulator; the page posts its verdict to a server on loopback."""

import http.server
import json
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request

BASE_URL = sys.argv[1]
SECONDS = 3
PAGE = pathlib.Path(__file__).with_name("play.html").read_bytes()
verdicts = queue.Queue()


class Page(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(PAGE)

    def do_POST(self):
        verdicts.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(b"")

    def log_message(self, *_):
        pass


def video_url():
    body = {"model": "house-c1", "prompt": "a small boat", "options": {"duration": SECONDS}}
    request = urllib.request.Request(
        f"{BASE_URL}/api/v1/videos", json.dumps(body).encode(), {"Authorization": "Bearer emulator-key"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        [url] = json.load(answer)["data"]["taskUrls"]
    return url


def watched(url):
    """What the browser says of the video, or None when it says nothing."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = f"http://127.0.0.1:{server.server_port}/?video={urllib.parse.quote(url, safe='')}"
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["chromium", *flags.split(), f"--user-data-dir={profile}", page]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return verdicts.get(timeout=45)
        except queue.Empty:
            return None
        finally:
            browser.terminate()
            browser.wait(10)
            server.shutdown()


verdict = watched(video_url())
print(verdict)
good = verdict and verdict["ended"] and verdict["error"] is None and verdict["painted"] > 1
good = good and abs(verdict["duration"] - SECONDS) < 0.1 and abs(verdict["currentTime"] - SECONDS) < 0.1
sys.exit(0 if good else "the browser did not play the video to its end")

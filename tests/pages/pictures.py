"""Makes the pictures of the README: `.ci/pictures` calls it. Each is of the program at work with its emulator."""

import base64
import csv
import fcntl
import html
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from browser import Browser

CALLSHEET, PICTURES = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
HTTP = "127.0.0.1:9464"
SCENES = [
    "a paper boat sails down a rainy street", "a lighthouse at dusk over calm water", "a small harbour town in spring",
    "a brass compass on a wooden table", "fishing nets drying in the sun", "a ferry leaves at first light",
    "gulls over a market", "a red umbrella on the pier", "old maps and a candle", "a storm behind the breakwater",
    "children fly kites on the beach", "a diver's helmet in a shop window",
]
CONFIGURATION = f"""
[control]
http = "{HTTP}"
[limits]
in_flight = 6
[budget]
per_day = 4000
total = 50000
[budget.by."meta.client"]
default = 1500
values = {{ harbour = 2000 }}
[[schedule]]
name = "nightly"
cron = "0 0 2 * * *"
timezone = "Europe/Berlin"
manifest = "nightly.csv"
"""


def manifest(path, rows):
    with open(path, "w", newline="") as file:
        names = ["id", "kind", "model", "prompt", "text", "voice_id", "duration", "duration_seconds", "aspect_ratio",
                 "count", "meta.client"]
        out = csv.DictWriter(file, names)
        out.writeheader()
        out.writerows(rows)


def pictures_of(prefix, scenes, client):
    ratios = ["3:4", "1:1", "16:9"]
    return [
        {"id": f"{prefix}-{n + 1:02}", "kind": "image", "model": "gi-2", "prompt": f"{scene}, flat colours",
         "aspect_ratio": ratios[n % 3], "count": 2 if n % 5 == 0 else 1, "meta.client": client}
        for n, scene in enumerate(scenes)
    ]


def prepare(folder):
    spring = pictures_of("poster", SCENES, "harbour")
    spring += [{"id": f"clip-{n + 1:02}", "kind": "video", "model": "house-turbo", "prompt": scene, "duration": 5,
                "meta.client": "harbour"} for n, scene in enumerate(SCENES[:4])]
    spring += [{"id": f"sound-{n + 1:02}", "kind": "sound-effect", "prompt": scene, "duration_seconds": 3,
                "meta.client": "harbour"} for n, scene in enumerate(SCENES[:6])]
    kinds = [[row for row in spring if row["kind"] == kind] for kind in ("image", "video", "sound-effect")]
    taken = [kinds[0][:3] + kinds[1][:2] + kinds[2][:3], kinds[0][3:] + kinds[1][2:] + kinds[2][3:]]
    manifest(folder / "spring.csv", taken[0] + taken[1])
    tour = [{"id": f"stop-{n + 1:02}", "kind": "speech", "text": f"Stop {n + 1}: {scene}.", "voice_id": "aria",
             "meta.client": "museum"} for n, scene in enumerate(SCENES)]
    manifest(folder / "audio-tour.csv", tour)
    manifest(folder / "nightly.csv", tour[:2])
    (folder / "callsheet.toml").write_text(CONFIGURATION)


def picture(page, name, width, height, script=None):
    with Browser(width, height) as browser:
        browser.open(page)
        browser.settle()
        if script:
            browser.until(script)
            browser.settle()
        data = browser.call("Page.captureScreenshot", format="webp", quality=80)["data"]
        (PICTURES / name).write_bytes(base64.b64decode(data))


def terminal(folder, columns=96, rows=30):
    """What a run shows while it works, and what it leaves."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(CALLSHEET, [CALLSHEET, "run", "spring.csv", "--emulator"], {**os.environ, "TERM": "xterm"})
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    written = b""
    while True:
        ready, _, _ = select.select([fd], [], [], 0.1)
        try:
            piece = os.read(fd, 1 << 16) if ready else b""
        except OSError:
            break
        if ready and not piece:
            break
        written += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, written.decode()
    text = written.decode().replace("\r", "")
    drawn = [text.split("\x1b[")[0] for text in text.split("\x1b[J")]
    live = [text for text in drawn if text.startswith("[") and " jobs" in text]
    return live[len(live) // 2].strip(), drawn[-1].strip()


def shown(folder, *arguments):
    out = subprocess.run([CALLSHEET, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return out.stdout.strip()


def terminal_picture(folder, live, end):
    lines = ["$ callsheet run spring.csv --emulator", *live.splitlines(), "", *end.splitlines()]
    text = "\n".join(line.rstrip() for line in lines)
    page = folder / "terminal.html"
    page.write_text(
        "<!doctype html><meta charset=utf-8><style>body{margin:0;background:#15181b;color:#d7dade;padding:20px 24px;"
        "font:14px/1.5 'DejaVu Sans Mono',monospace}pre{margin:0}b{color:#79c7b3;font-weight:normal}</style><pre>"
        + html.escape(text).replace("$ callsheet", "<b>$</b> callsheet", 1) + "</pre>"
    )
    picture(page, "run.webp", 860, 40 + 21 * len(lines))


def wait_for(holds):
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        terminal_picture(folder, *terminal(folder))
        picture(folder / "output/emulator/spring/index.html", "gallery.webp", 1200, 760,
                "document.querySelectorAll('.tile').length >= 12")
        shutil.rmtree(folder / "state")
        shutil.rmtree(folder / "output")
        daemon = subprocess.Popen([CALLSHEET, "daemon", "--emulator", "--emulator-speed", "4"], cwd=folder,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            socket = folder / "state/emulator/callsheet.sock"
            wait_for(socket.exists)
            state = lambda: json.loads(shown(folder, "status", "teaser", "--emulator", "--json"))["batches"][0]["state"]
            shown(folder, "submit", "nightly.csv", "--batch", "teaser", "--budget", "1", "--emulator")
            wait_for(lambda: state() == "parked")
            for manifest_name, more in [("audio-tour.csv", []), ("spring.csv", ["--budget", "2000"])]:
                shown(folder, "submit", manifest_name, "--emulator", *more)
            status = lambda: json.loads(shown(folder, "status", "spring", "--emulator", "--json"))["batches"][0]
            wait_for(lambda: status().get("succeeded", 0) >= 9)
            picture(f"http://{HTTP}/", "live-page.webp", 1200, 760)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)


main()

"""The live pages in a real browser: progress, a login, an action, a manifest and a review end to end, hostile texts, without
scripts.

Usage: live.py PROGRAM BASE_URL AXE_SCRIPT FOLDER. The service at BASE_URL is the emulator; screenshots go into FOLDER.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser  # noqa: E402
from checks import BASE_URL, HOSTILE, PROGRAM, SHOTS, SIZES, axe, check  # noqa: E402

TOKEN = "0123456789abcdef"
JOBS = 1500


class Daemon:
    def __init__(self, work):
        self.work = work
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.at = f"http://127.0.0.1:{self.port}"
        (work / "token").write_text(TOKEN + "\n")
        (work / "nightly.csv").write_text("kind,prompt\nsound-effect,A night bird\n")
        (work / "callsheet.toml").write_text(
            "[poll]\nmin = '200ms'\nmax = '300ms'\n[limits]\nin_flight = 1\n"
            "[budget]\nper_day = 15000\ntotal = 90000\n[budget.by.'meta.client'.values]\nacme = 300\n"
            f"[control]\nhttp = '127.0.0.1:{self.port}'\ntoken_file = 'token'\n"
            "[[schedule]]\nname = 'nightly'\nmanifest = 'nightly.csv'\ncron = '0 3 * * *'\ntimezone = 'Europe/Berlin'\n"
        )
        environment = {**os.environ, "CALLSHEET_API_KEY": "emulator-key"}
        self.log = open(work / "daemon.log", "wb")
        self.process = subprocess.Popen(
            [PROGRAM, "daemon", "--base-url", BASE_URL, "--log-level", "info"],
            cwd=work, env=environment, stdout=self.log, stderr=self.log,
        )
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                self.ask("/v1/health")
                return
            except OSError:
                time.sleep(0.05)
        sys.exit((work / "daemon.log").read_text())

    def ask(self, path, body=None):
        request = urllib.request.Request(self.at + path, body, {"Authorization": f"Bearer {TOKEN}"})
        return json.loads(urllib.request.urlopen(request, timeout=30).read())

    def submit(self, name, rows, more=""):
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        return self.ask(f"/v1/manifests?file={name}.jsonl{more}", body)

    def status(self, name):
        return self.ask(f"/v1/status?batch={name}")["batches"][0]

    def jobs(self, name):
        request = urllib.request.Request(f"{self.at}/v1/jobs?batch={name}", None, {"Authorization": f"Bearer {TOKEN}"})
        return [json.loads(line) for line in urllib.request.urlopen(request, timeout=30).read().splitlines()]

    def stop(self):
        self.process.terminate()
        self.process.wait(40)
        self.log.close()


def faults(plan):
    request = urllib.request.Request(f"{BASE_URL}/emulator/faults", plan.encode(), {"Content-Type": "application/toml"})
    urllib.request.urlopen(request, timeout=10).read()


def is_quiet(browser, daemon, where):
    console = [line for line in browser.console if "401 (Unauthorized)" not in line]
    check(not console, f"{where}: no error on the console {console}")
    away = [url for url in browser.requests if not url.startswith(daemon.at) and not re.match(r"(data|about):", url)]
    check(not away, f"{where}: no request off the server {away}")


def goes(browser, path, text):
    """Waits for a page by a text on it."""
    browser.until(f"location.pathname === {json.dumps(path)} && document.readyState === 'complete' && "
                  f"document.body.textContent.includes({json.dumps(text)})")


def login(browser, daemon):
    browser.open(f"{daemon.at}/login")
    browser.until("document.querySelector('input[name=token]')")
    browser.run("document.querySelector('input[name=token]').focus()")
    browser.type(TOKEN)
    browser.press("Enter")
    browser.until("location.pathname === '/' && document.getElementById('batches')")


def looks(daemon, job, hostile, poster):
    for width, height, is_phone in SIZES:
        for scheme in ("light", "dark"):
            with Browser(width, height, scheme, is_phone) as browser:
                browser.open(f"{daemon.at}/batches/progress")
                browser.until("location.pathname === '/login'")
                browser.screenshot(f"{SHOTS}/live-login-{width}-{scheme}.png")
                axe(browser, f"{width} {scheme} login")
                login(browser, daemon)
                for name, path in (("overview", "/"), ("batch", "/batches/progress"), ("job", f"/jobs/{job}"),
                                   ("budget", "/batches/short/budget?budget=40"), ("submit", "/submit"),
                                   ("hostile", "/batches/hostile"), ("hostile-job", f"/jobs/{hostile}"),
                                   ("review", "/batches/review/review"), ("take", f"/jobs/{poster}/take?review=true"),
                                   ("schedule", "/schedules/nightly/run")):
                    where = f"{width} {scheme} {name}"
                    browser.open(daemon.at + path)
                    browser.until(f"location.pathname === {json.dumps(path.split('?')[0])}")
                    browser.settle()
                    browser.screenshot(f"{SHOTS}/live-{name}-{width}-{scheme}.png")
                    check(browser.run("document.documentElement.scrollWidth <= innerWidth"), f"{where}: nothing is cut off")
                    axe(browser, where)
                    check(browser.run("window.hurt === undefined"), f"{where}: texts stay text")
                browser.open(f"{daemon.at}/batches/review/gallery")
                browser.until("document.querySelectorAll('.tile').length === 6")
                browser.settle()
                browser.screenshot(f"{SHOTS}/live-gallery-{width}-{scheme}.png")
                loads = "[...document.querySelectorAll('.tile img')].every((i) => i.complete && i.naturalWidth > 0)"
                browser.until(loads)
                check(browser.run("window.hurt === undefined"), f"{width} {scheme} gallery: texts stay text")
                axe(browser, f"{width} {scheme} gallery")
                is_quiet(browser, daemon, f"{width} {scheme}")


def lives(daemon):
    """Both pages follow a batch that goes on."""
    done = "Number(/[\\d,]+/.exec(document.querySelector('#progress .line b')?.textContent)?.[0].replaceAll(',', ''))"
    rows = [{"kind": "sound-effect", "prompt": f"Sound {n} of a harbour", "meta": {"client": "beta"}} for n in range(JOBS)]
    with Browser(1400, 900) as browser, Browser(1400, 900) as other:
        login(browser, daemon)
        login(other, daemon)
        daemon.submit("live", rows)
        browser.until("document.querySelector('#batches a[href=\"/batches/live\"]')")
        check(True, "a batch that comes in appears on the overview")
        other.open(f"{daemon.at}/batches/live")
        other.until(f"{done} >= 0 && document.getElementById('live-state').textContent === 'live'")
        first = other.run(done)
        other.until(f"{done} > {first}")
        check(True, "a batch's page follows it")
        daemon.ask("/v1/pause", b'{"batch":"live"}')
        other.until("document.querySelector('#parked').textContent.includes('paused')")
        other.until("document.querySelector('#parked a[href=\"/batches/live/resume\"]')")
        check(True, "what is parked is told with what lifts it")
        other.run("document.querySelector('#parked a[href=\"/batches/live/resume\"]').click()")
        goes(other, "/batches/live/resume", "May spend")
        other.screenshot(f"{SHOTS}/live-resume.png")
        other.run("document.querySelector('main button.main').click()")
        goes(other, "/batches/live", "Resumed")
        other.until(f"{done} >= {JOBS}", timeout=60)
        other.until("document.querySelectorAll('#jobs .mark.succeeded').length === 100")
        check(True, "the list of its jobs follows")
        check(daemon.status("live")["state"] == "done", "its button lifts it, and it goes on to its end")
        browser.until("!document.querySelector('#parked').textContent.includes('live')")
        for one in (browser, other):
            is_quiet(one, daemon, "live")


def submits(daemon):
    with Browser(1400, 900) as browser:
        login(browser, daemon)
        browser.open(f"{daemon.at}/submit")
        browser.until("document.getElementById('manifest')")
        browser.run("document.getElementById('manifest').focus()")
        browser.type('{"id": "bell", "kind": "sound-effect", "prompt": "A bell\\nin two lines"}\n{"kind": "nothing"}\n')
        browser.run("document.getElementById('name').focus()")
        browser.type("form.jsonl")
        browser.run("document.querySelector('main button.main').click()")
        goes(browser, "/submit/plan", "It may cost")
        browser.settle()
        browser.screenshot(f"{SHOTS}/live-plan.png")
        axe(browser, "plan")
        said = browser.run("document.querySelector('main').textContent")
        check("1 new" in said and "line 2" in said, "a plan has prices and problems")
        check(not any(one["name"] == "form" for one in daemon.ask("/v1/status")["batches"]), "and submits nothing")
        browser.run("document.querySelector('main button.main').click()")
        goes(browser, "/batches/form", "1 new job,")
        browser.until("document.querySelector('#progress')?.textContent.includes('1 of 1')")
        check(daemon.status("form")["jobs"] == 1, "what was planned is submitted and runs")
        browser.run("document.querySelector('.menu form button').click()")
        browser.until("location.pathname === '/login'")
        browser.open(f"{daemon.at}/batches/form")
        browser.until("location.pathname === '/login'")
        check(True, "after the logout the pages are closed")
        is_quiet(browser, daemon, "form")


def reviews(daemon):
    """Every output is decided about: by keys, by a button, and one is taken back."""
    focused = "document.activeElement.getAttribute('aria-label')"
    waiting = "document.getElementById('waiting')?.textContent"
    path = "/batches/review/review"

    def decision(label):
        lines = urllib.request.urlopen(urllib.request.Request(
            f"{daemon.at}/v1/review?batch=review&all=true", None, {"Authorization": f"Bearer {TOKEN}"}), timeout=30).read()
        return next(line["review"]["decision"] for line in map(json.loads, lines.splitlines()) if line["id"] == label)

    with Browser(1400, 900) as browser:
        login(browser, daemon)
        browser.run("document.querySelector('#batches a[href=\"/batches/review/review\"]').click()")
        goes(browser, path, "A harbour")
        browser.until(f"{focused} === 'poster'")
        check(browser.run("!document.getElementById('keys').hidden"), "the keys are named on the page")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        check(browser.run(outline) == "solid", "what is decided about is seen")
        browser.until("[...document.querySelectorAll('.take img')].every((i) => i.complete && i.naturalWidth > 0)")
        browser.until("document.querySelector('.take video')?.readyState >= 1")
        check(True, "pictures and videos are shown")
        tops = "new Set([...document.querySelectorAll('.row:has(img) .take')].map((t) => t.getBoundingClientRect().top)).size"
        check(browser.run(tops) == 1, "the takes of a row stand side by side")
        browser.press("ArrowRight")
        check(browser.run(focused) == "poster-v2", "arrows move between takes")
        browser.press("ArrowDown")
        check(browser.run(focused) == "boat", "and between rows")
        browser.press("ArrowUp")
        check(browser.run(focused) == "poster", "and back")
        browser.run("document.querySelector('.take input[type=text]').focus()")
        browser.type("rap")
        check(browser.run(waiting) == "6" and decision("poster") == "waiting", "what is typed decides nothing")
        browser.press("Escape")
        browser.until(f"{focused} === 'poster'")
        browser.press("r")
        browser.until(f"{waiting} === '5' && {focused} === 'poster-v2'")
        check(decision("poster") == "rejected", "one key rejects, and the next one waits")
        browser.press("p")
        browser.until(f"{waiting} === '4' && {focused} === 'boat'")
        check(decision("poster-v2") == "picked" and not browser.run("document.querySelector('#take-1')"), "one key picks")
        browser.press("a")
        browser.until(f"{waiting} === '3' && {focused} === 'gull'")
        check(decision("boat") == "approved", "one key approves")
        browser.run("document.activeElement.querySelector('button[value=approve]').click()")
        browser.until(f"{waiting} === '2' && {focused} === {json.dumps(HOSTILE)}")
        check(decision("gull") == "approved", "a button does the same")
        check(browser.run("document.getElementById('said').textContent") == "review/gull: approved.", "and says so")
        daemon.ask("/v1/review", json.dumps({"decisions": [{"job": "review/last", "decision": "approve"}]}).encode())
        browser.press("r")
        goes(browser, path, "Nothing waits for a decision")
        check(daemon.status("review")["state"] == "done", "with the last one its batch is done")
        browser.open(f"{daemon.at}{path}?all=true")
        browser.until(f"{focused} === 'poster'")
        browser.press("ArrowRight")
        browser.run("document.activeElement.querySelector('button[value=withdraw]').click()")
        browser.until(f"{waiting} === '1' && {focused} === 'poster-v2'")
        check(decision("poster-v2") == "waiting", "a decision is taken back")
        check(browser.run("window.hurt === undefined"), "texts stay text")
        is_quiet(browser, daemon, "review")


def takes(daemon, poster):
    """Another take is bought by its own button alone, once, and is shown in the review."""
    posters = "[...document.querySelectorAll('.take')].filter((t) => t.getAttribute('aria-label').startsWith('poster')).length"
    with Browser(1400, 900) as browser:
        login(browser, daemon)
        browser.open(f"{daemon.at}/batches/review/review?all=true")
        browser.until("document.activeElement.getAttribute('aria-label') === 'poster'")
        browser.press("t")
        goes(browser, f"/jobs/{poster}/take", "It may spend 8 credits at most.")
        check(daemon.status("review")["jobs"] == 6, "a key shows the price of another take, and buys nothing")
        browser.run("document.querySelector('main button.main').click()")
        goes(browser, "/batches/review/review", "review/poster-v3: take 3 is accepted for 8 credits at most.")
        end = time.monotonic() + 60
        while daemon.status("review")["state"] != "review":
            assert time.monotonic() < end, daemon.status("review")
            time.sleep(0.1)
        check(daemon.status("review")["jobs"] == 7, "its button buys one")
        browser.open(f"{daemon.at}/batches/review/review")
        browser.until(f"{posters} === 3")
        check(True, "it stands beside the other takes of its row")
        browser.press("p")
        goes(browser, "/batches/review/review", "Nothing waits for a decision")
        is_quiet(browser, daemon, "take")


def runs_a_schedule(daemon):
    with Browser(1400, 900) as browser:
        login(browser, daemon)
        browser.run("document.querySelector('#schedules a[href=\"/schedules/nightly/run\"]').click()")
        goes(browser, "/schedules/nightly/run", "It may spend 5 credits at most.")
        browser.run("document.querySelector('main button.main').click()")
        browser.until("location.pathname.startsWith('/batches/nightly-') && document.body?.textContent.includes('with 1 job.')")
        browser.until("document.querySelector('#progress')?.textContent.includes('1 of 1')")
        check(True, "a schedule runs now, after its price was shown")
        is_quiet(browser, daemon, "schedule")


def decides_without_scripts(daemon):
    with Browser(390, 844, "light", True) as browser:
        login(browser, daemon)
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        browser.call("Page.navigate", url=f"{daemon.at}/batches/review/review")
        goes(browser, "/batches/review/review", "A harbour")
        browser.run("document.querySelector('#take-1 button[value=approve]').click()")
        goes(browser, "/batches/review/review", "review/poster-v2: approved.")
        check(daemon.status("review")["state"] == "done", "a form decides without scripts")


def reads_without_scripts(daemon, job):
    with Browser(1400, 900) as browser:
        login(browser, daemon)
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        for path, text in (("/", "Budgets"), ("/batches/hostile", "Jobs"), (f"/jobs/{job}", "History")):
            browser.call("Page.navigate", url=daemon.at + path)
            browser.until(f"location.pathname === {json.dumps(path)} && document.readyState === 'complete'")
            shown = browser.run("document.body.textContent")
            check(text in shown, f"{path} is read without scripts")
        browser.screenshot(f"{SHOTS}/live-without-scripts.png")


def main():
    pathlib.Path(SHOTS).mkdir(parents=True, exist_ok=True)
    faults("[[rules]]\ncontains = 'that is rejected'\neffect = { do = 'content-rejected' }\n"
           f"[[rules]]\ncontains = 'that fails'\neffect = {{ do = 'task-fails', code = 'invalid_input', reason = {json.dumps(HOSTILE)} }}\n")
    with tempfile.TemporaryDirectory(prefix="callsheet-live-") as work:
        daemon = Daemon(pathlib.Path(work))
        try:
            rows = [{"kind": "sound-effect", "prompt": f"Waves {n}", "meta": {"client": "acme"}} for n in range(12)]
            daemon.submit("progress", rows + [{"id": "wind", "kind": "sound-effect", "prompt": "Wind that is rejected"}])
            daemon.submit("short", rows[:3], "&budget=1")
            hostile = {"id": HOSTILE, "kind": "sound-effect", "prompt": HOSTILE + " that fails",
                       "meta": {"client": HOSTILE, HOSTILE: HOSTILE}}
            daemon.submit("hostile", [hostile])
            waits = [{"id": "poster", "kind": "image", "model": "gi-2", "prompt": "A harbour", "count": 2},
                     {"id": "boat", "kind": "video", "model": "house-c1", "prompt": "A paper boat", "duration": "5s"},
                     {"id": "gull", "kind": "sound-effect", "prompt": "A single gull"},
                     {"id": HOSTILE, "kind": "sound-effect", "prompt": HOSTILE},
                     {"id": "last", "kind": "sound-effect", "prompt": "The last one"}]
            daemon.submit("review", waits, "&review=true")
            end = time.monotonic() + 60
            while (daemon.status("progress")["state"] != "done" or daemon.status("hostile")["state"] != "done"
                   or daemon.status("review")["state"] != "review"):
                assert time.monotonic() < end, daemon.status("progress")
                time.sleep(0.1)
            hostile = daemon.jobs("hostile")[0]
            check(HOSTILE in hostile["error"]["message"], "the service's own message is hostile")
            hostile, job = hostile["job"], daemon.jobs("progress")[-1]["job"]
            poster = daemon.jobs("review")[0]["job"]
            looks(daemon, job, hostile, poster)
            lives(daemon)
            submits(daemon)
            reviews(daemon)
            decides_without_scripts(daemon)
            takes(daemon, poster)
            runs_a_schedule(daemon)
            reads_without_scripts(daemon, job)
        finally:
            daemon.stop()
    print("the live pages are proven")


main()

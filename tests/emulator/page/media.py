"""Asks the emulator for every kind and shape of media, and looks at each file with ffprobe and decoders."""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request
import wave
from concurrent.futures import ThreadPoolExecutor

BASE_URL = sys.argv[1]
KEY = {"Authorization": "Bearer emulator-key"}
# Pictures without an exact size are scaled to an even number of pixels on the shorter side.
ROUNDING = 0.02
LOUD_ENOUGH = 8_000


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE_URL + path, data, KEY)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["data"]


def download(task, folder):
    url = task["taskUrls"][0]
    with urllib.request.urlopen(url, timeout=60) as answer:
        path = pathlib.Path(folder, task.get("id", task["taskId"]) + pathlib.Path(url).suffix)
        path.write_bytes(answer.read())
        return path, answer.headers["Content-Type"]


def probe(path):
    said = subprocess.run(
        ["ffprobe", "-v", "error", "-show_streams", "-show_format", "-of", "json", path],
        check=True, capture_output=True, text=True,
    )
    assert said.stderr == "", said.stderr
    found = json.loads(said.stdout)
    return found["streams"], float(found["format"].get("duration", 0))


def decode(path, *arguments):
    """Every byte through a decoder that stops at the first fault."""
    command = ["ffmpeg", "-v", "error", "-xerror", "-i", path, *arguments]
    said = subprocess.run(command, check=True, capture_output=True)
    assert said.stderr == b"", said.stderr
    return said.stdout


def near(found, expected, share=ROUNDING):
    assert abs(found - expected) <= share * expected, f"{found} where {expected} was asked"


def video(path, kind, ratio, seconds):
    assert kind == "video/mp4", kind
    [stream], duration = probe(path)
    # Full range, which ffmpeg calls yuvj420p: the same samples as yuv420p otherwise.
    assert (stream["codec_name"], stream["pix_fmt"]) == ("h264", "yuvj420p"), stream
    near(stream["width"] / stream["height"], ratio)
    near(duration, seconds)
    decode(path, "-f", "null", "-")


def image(path, kind, ratio=None, pixels=None):
    assert kind == "image/png", kind
    [stream], _ = probe(path)
    size = (stream["width"], stream["height"])
    assert stream["codec_name"] == "png", stream
    assert pixels is None or size == pixels, f"{size} where {pixels} was asked"
    near(size[0] / size[1], ratio or pixels[0] / pixels[1])
    assert len(decode(path, "-pix_fmt", "rgb24", "-f", "rawvideo", "-")) == 3 * size[0] * size[1]


def sound(path, kind, seconds=None):
    assert kind == "audio/wav", kind
    [stream], duration = probe(path)
    assert stream["codec_name"] == "pcm_s16le", stream
    near(duration, seconds or duration)
    decode(path, "-f", "null", "-")
    with wave.open(str(path)) as file:
        samples = memoryview(file.readframes(file.getnframes())).cast("h")
    assert max(samples) > LOUD_ENOUGH, f"{max(samples)} is too quiet"


def a_video(ratio, seconds, model, check_ratio=None, **options):
    w, h = (int(n) for n in (check_ratio or ratio).split(":"))
    body = {"model": model, "prompt": f"{model} {ratio} {seconds}", "options": {"aspect_ratio": ratio, **options}}
    return "/api/v1/videos", body, lambda *file: video(*file, w / h, seconds)


def an_image(ratio):
    w, h = (int(n) for n in ratio.split(":"))
    body = {"model": "ni-2", "prompt": ratio, "options": {"aspect_ratio": ratio}}
    return "/api/v1/images", body, lambda *file: image(*file, ratio=w / h)


def an_exact_image(width, height):
    body = {"model": "gi-2-5", "prompt": "exact", "options": {"size": f"{width}x{height}"}}
    return "/api/v1/images", body, lambda *file: image(*file, pixels=(width, height))


def some_sound(path, seconds, **body):
    return path, body, lambda *file: sound(*file, seconds)


ORDERS = [
    *[a_video(r, 4, "model-h3", duration=4) for r in ["16:9", "9:16", "1:1", "4:3", "3:4", "21:9"]],
    a_video("Auto", 4, "model-h3", check_ratio="16:9", duration=4),
    *[a_video(r, 6, "model-x-imagine", duration=6) for r in ["3:2", "2:3"]],
    a_video("16:9", 1, "house-c1", duration=1),
    a_video("9:16", 15, "house-c1", duration=15),
    a_video("16:9", 30, "model-x-imagine-1-5", duration=30),
    a_video("16:9", 8, "model-v-3-1"),
    ("/api/v1/shorts-studio", {"prompt": "a short"}, lambda *file: video(*file, 9 / 16, 5)),
    *[an_image(r) for r in ["1:1", "16:9", "9:16", "4:3", "3:4", "3:2", "2:3", "21:9"]],
    *[an_exact_image(*s) for s in [(1024, 1024), (640, 1024), (2048, 1152), (3840, 2160), (1280, 3840)]],
    *[some_sound("/api/v1/music", s, prompt="a tune", options={"duration_seconds": s}) for s in [3, 60, 300]],
    some_sound("/api/v1/speech", None, text="Ahoy", voice_id="aria"),
    some_sound("/api/v1/speech", None, text="Ahoy " * 200, voice_id="bram", options={"speed": 0.25}),
    *[some_sound("/api/v1/sound-effects", s, prompt="rain", options={"duration_seconds": s}) for s in [0.5, 22]],
    some_sound("/api/v1/sound-effects", None, prompt="rain"),
]


def prove(order):
    path, body, check = order
    with tempfile.TemporaryDirectory() as folder:
        task = call(path, body)
        if task["status"] != "success":
            task = call(f"/api/v1/tasks/{task.get('id', task['taskId'])}")
        try:
            check(*download(task, folder))
        except (AssertionError, subprocess.CalledProcessError) as error:
            return f"{path} {body}: {error} {getattr(error, 'stderr', '') or ''}"
    return None


with ThreadPoolExecutor(2) as pool:
    wrong = [said for said in pool.map(prove, ORDERS) if said]
print("\n".join(wrong) or f"{len(ORDERS)} files are what was asked for")
sys.exit(bool(wrong))

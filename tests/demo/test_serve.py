"""The page over HTTP: files of every kind, hostile requests, many visitors at once."""

import io
import json
import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile

pytest.importorskip("gradio", reason="the demo needs gradio (extra demo)")

import httpx  # noqa: E402
from gradio_client import Client, handle_file  # noqa: E402

from kws_s5.demo.degrade import AS_RECORDED  # noqa: E402

pytestmark = pytest.mark.slow
API = "/gradio_api"
WORDS = [("low", 0.5), ("high", 1.5)]


@pytest.fixture(scope="module")
def client(demo):
    return caller(demo)


def caller(demo):
    return Client(demo.url, verbose=False, analytics_enabled=False, download_files=False, httpx_kwargs={"timeout": 120})


def visitor(demo):
    return httpx.Client(base_url=demo.url, timeout=60, trust_env=False)


def said(html):
    """The words of the first row of chips."""
    row = re.search(r'<p class="said[^"]*">(.*?)</p>', html, re.DOTALL)
    return re.findall(r'class="chip"[^>]*><b>([^<]+)', row.group(1)) if row else None


def examine(client, path, rate=AS_RECORDED, model="tones"):
    return client.predict(handle_file(str(path)), rate, model, api_name="/examine")


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_32", "FLOAT"])
def test_words_are_found_in_uploads_of_every_kind(client, tone_stream, tmp_path, rate, subtype):
    sound = tone_stream(WORDS, seconds=2.5, rate=rate)
    soundfile.write(tmp_path / "a.wav", np.stack([sound, sound], 1) if subtype != "FLOAT" else sound, rate, subtype)
    study, compared, _ = examine(client, tmp_path / "a.wav")
    assert said(study) == ["low", "high"]
    assert f"{rate} Hz" in study
    assert compared.count("<section") == 3  # no file here has the training rate


@pytest.mark.parametrize("name", ["a.flac", "a.ogg", "a.mp3"])
def test_other_formats_need_no_further_program(client, tone_stream, tmp_path, name):
    soundfile.write(tmp_path / name, tone_stream(WORDS, seconds=2.5, rate=44100), 44100)
    assert said(examine(client, tmp_path / name)[0]) == ["low", "high"]


def test_the_rate_selector_shows_what_rescaling_is_good_for(client, tone_stream, tmp_path):
    soundfile.write(tmp_path / "a.wav", tone_stream(WORDS, seconds=2.5), 16000)
    _, compared, heard = examine(client, tmp_path / "a.wav", "8 kHz decimated")
    ours, control, _ = compared.split("<section")[1:]
    assert said(ours) == ["low", "high"] != said(control)
    assert "heard-" in json.dumps(heard)


def test_silence_is_no_word_and_no_error(client, tmp_path):
    soundfile.write(tmp_path / "silent.wav", np.zeros((48000, 2), np.int16), 48000)
    assert "no word found" in examine(client, tmp_path / "silent.wav")[0]


def test_mistakes_are_one_line_in_the_page(client, demo, tmp_path):
    soundfile.write(tmp_path / "long.wav", np.zeros(int(8000 * demo.seconds) + 8000), 8000)
    (tmp_path / "text.wav").write_text("not a recording")
    (tmp_path / "empty.wav").write_bytes(b"")
    soundfile.write(tmp_path / "loud.wav", np.full(1000, 1e4), 16000, "FLOAT")
    reasons = {"long": "longer than 10 s", "text": "cannot be read", "empty": "empty", "loud": "reach"}
    for name, reason in reasons.items():
        study, compared, _ = examine(client, tmp_path / f"{name}.wav")
        (line,) = re.findall(r'<p class="notice error" role="alert">([^<]*)</p>', study)
        assert line.startswith(f"{name}.wav: ") and reason in line and "/" not in line.split(";")[0]
        assert compared == ""


def test_large_uploads_are_refused_and_leave_nothing(demo):
    before = sum(f.stat().st_size for f in demo.folder.rglob("*") if f.is_file())
    with visitor(demo) as http:
        answer = http.post(f"{API}/upload", files={"files": ("a.wav", b"x" * int(demo.megabytes * 1e6 + 1))})
        assert answer.status_code == 413
        assert http.post(f"{API}/upload", files={"files": ("a.wav", b"x" * int(9e6))}).status_code == 413
    assert sum(f.stat().st_size for f in demo.folder.rglob("*") if f.is_file()) <= before + demo.megabytes * 1e6


@pytest.mark.parametrize(
    "path",
    [
        f"{API}/file=/etc/passwd",
        f"{API}/file=../../../../etc/passwd",
        f"{API}/file=%2e%2e/%2e%2e/etc/passwd",
        f"{API}/file=%252fetc%252fpasswd",
        "/static/../../../../etc/passwd",
        "/assets/%2e%2e/%2e%2e/__init__.py",
        f"{API}/file=C:/Windows/win.ini",
        f"{API}/file=https://example.org/x",
        f"{API}/proxy=http://127.0.0.1/x",
        "/monitoring",
    ],
)
def test_no_file_of_the_server_can_be_read(demo, path):
    host, port = demo.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:  # no client that would tidy the path up
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split()[1] in (b"404", b"403", b"400"), answer[:200]
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{model}",
        "../../etc/passwd",
        "http://127.0.0.1:1/x.wav",
        "https://example.org/x.wav",
        "file:///etc/passwd",
    ],
)
def test_a_request_cannot_name_a_file_that_was_not_uploaded(demo, path):
    path = path.format(model=demo.home.parent / "models" / "tones.safetensors")
    with visitor(demo) as http:
        data = [{"path": path, "meta": {"_type": "gradio.FileData"}}, AS_RECORDED, "tones"]
        for end in _ends(http, "/examine", data):
            assert not end["success"] and "root:" not in json.dumps(end)


def test_a_request_cannot_name_a_model_or_rate_that_is_not_offered(client, tone_stream, tmp_path):
    soundfile.write(tmp_path / "a.wav", tone_stream(WORDS, seconds=1.9), 16000)
    for rate, model in ((AS_RECORDED, "/etc/passwd"), ("2 kHz", "tones"), (AS_RECORDED, "../models/tones")):
        with pytest.raises(Exception, match="(?i)value|choices|error"):
            examine(client, tmp_path / "a.wav", rate, model)


def test_microphones_of_several_visitors_stay_apart(demo, tone_stream):
    with ThreadPoolExecutor(6) as pool:
        turns = [[("low", 0.3)], [("high", 0.3)], [("low", 0.3), ("high", 1.2)]] * 2
        logs = list(pool.map(lambda words: _speak(demo, tone_stream(words, seconds=2, rate=48000)), turns))
    for words, log in zip(turns, logs, strict=True):
        assert re.findall("scope='row'>([^<]+)", log) == [word for word, _ in reversed(words)]


def test_fifty_visitors_at_once_are_answered_and_memory_stays_bounded(demo, tone_stream, tmp_path):
    for i in range(5):
        soundfile.write(tmp_path / f"{i}.wav", tone_stream(WORDS, seconds=2 + 0.1 * i, seed=i), 16000)
    after = []
    with ThreadPoolExecutor(50) as pool:
        clients = list(pool.map(lambda _: caller(demo), range(50)))
        for _ in range(2):
            asked = pool.map(lambda i: examine(clients[i], tmp_path / f"{i % 5}.wav"), range(50))
            assert all(said(study) == ["low", "high"] for study, *_ in asked)
            after.append(demo.memory())
    assert after[1] - after[0] < 60
    assert after[1] < 1500


def test_nothing_was_written_elsewhere_and_nothing_fetched(demo, client):
    assert not list(demo.home.rglob("*"))
    assert not [f for f in demo.temporary.rglob("*") if f.is_file() and demo.folder not in f.parents]
    assert not demo.outside
    assert demo.process.poll() is None


def _ends(http, api, data):
    """Calls an endpoint by the plain protocol; yields its final messages."""
    started = http.post(f"{API}/call{api}", json={"data": data})
    if started.status_code != 200:
        yield {"success": False}
        return
    text = http.get(f"{API}/call{api}/{started.json()['event_id']}").text
    yield {"success": "event: complete" in text, "text": text}


def _upload(http, sound):
    """-> what the page sends for a chunk."""
    file = io.BytesIO()
    soundfile.write(file, sound, 48000, "PCM_16", format="WAV")
    (path,) = http.post(f"{API}/upload", files={"files": ("audio.wav", file.getvalue())}).json()
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


def _read(demo, session, answers):
    """Collects the answers of a session until its end."""
    with visitor(demo) as http, http.stream("GET", f"{API}/queue/data", params={"session_hash": session}) as lines:
        for line in lines.iter_lines():
            message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            if message.get("msg") in ("process_streaming", "process_generating"):
                answers.append(message)
            if message.get("msg") in ("process_completed", "close_stream"):
                return


def _wait_for(answers, n):
    for _ in range(600):
        if len(answers) >= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"{len(answers)} answers to {n} chunks")


def _speak(demo, sound):
    """Sends a sound as a browser sends its microphone, in quarters of a second -> HTML of the last log."""
    with visitor(demo) as http:
        config = http.get("/config").json()
        listen = next(d["id"] for d in config["dependencies"] if d["connection"] == "stream")
        session, log, event, size = os.urandom(6).hex(), "", "", 12000
        request = {"fn_index": listen, "session_hash": session}
        with ThreadPoolExecutor(1) as pool:
            answers, reader = [], None
            for start in range(0, len(sound), size):
                chunk = _upload(http, sound[start : start + size])
                body = {**request, "data": [chunk, "tones", 1.0, None]}
                if not event:
                    event = http.post(f"{API}/queue/join", json=body).json()["event_id"]
                    reader = pool.submit(_read, demo, session, answers)
                else:
                    http.post(f"{API}/stream/{event}", json={**body, "event_id": event})
                _wait_for(answers, start // size + 1)
            http.post(f"{API}/stream/{event}/close")
            reader.result(30)
        for answer in answers:
            value = answer["output"]["data"][2]
            log = value if isinstance(value, str) else log
        return log

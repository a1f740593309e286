"""A word that is heard starts a command, reaches a web server and a broker; whatever fails there, listening goes on."""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from kws_s5.errors import UserError
from kws_s5.listening.actions import Actions, plain
from kws_s5.listening.events import Event
from kws_s5.listening.listen_cli import main

EXAMPLE = Path(__file__).parents[2] / "demo" / "examples" / "six_commands.flac"
YES, NO = Event("yes", 1.0, 1.4, 0.9, 1.5), Event("no", 3.0, 3.4, 0.8, 3.5)
WRITE = "import os, sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + ' ' + os.environ['KWS_WORD'] + '\\n')"


def eventually(true, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(true())


def python(*arguments) -> str:
    return " ".join([sys.executable, "-c", repr(WRITE), *map(str, arguments)])


def test_a_command_runs_for_its_word_only_with_the_event_in_it(tmp_path: Path) -> None:
    file = tmp_path / "heard.txt"
    actions = Actions(commands=[f"yes={python(file, '{word}', '{score}', '{start}')}"], words=("yes", "no"))
    actions.handle(YES)
    actions.handle(NO)
    actions.close()
    assert eventually(file.exists) and eventually(lambda: file.read_text() == "yes 0.9 1.0 yes\n")


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    file = tmp_path / "heard.txt"
    actions = Actions(commands=[f"*={python(file, '$HOME;', '&&')}"])
    actions.handle(YES)
    actions.close()
    assert eventually(file.exists) and eventually(lambda: file.read_text() == "$HOME; && yes\n")


def test_the_same_word_does_not_act_again_within_the_debounce(tmp_path: Path) -> None:
    file = tmp_path / "heard.txt"
    actions = Actions(commands=[f"*={python(file, '{start}')}"], debounce=2.0)
    for event in (YES, YES._replace(time=3.0), NO, YES._replace(start=9.0, time=3.6)):
        actions.handle(event)
    actions.close()
    assert eventually(lambda: file.exists() and file.read_text().count("\n") == 3)
    assert sorted(file.read_text().splitlines()) == ["1.0 yes", "3.0 no", "9.0 yes"]


def test_what_fails_is_told_and_the_next_event_still_acts(tmp_path: Path, capfd) -> None:
    file = tmp_path / "heard.txt"
    actions = Actions(commands=["yes=/no/such/program", f"no={python(file)}"], webhook="http://127.0.0.1:9/nothing")
    actions.handle(YES)
    actions.handle(NO)
    actions.close()
    assert eventually(file.exists)
    assert "/no/such/program" in capfd.readouterr().err


@pytest.fixture
def web():
    """A web server that keeps what it is sent."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(302 if self.path == "/away" else 200)
            if self.path == "/away":
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *arguments) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()


def test_a_web_address_gets_every_event_as_json(web) -> None:
    address, got = web
    actions = Actions(webhook=f"{address}/kws")
    actions.handle(YES)
    actions.handle(NO)
    actions.close()
    assert got == [("/kws", plain(YES)), ("/kws", plain(NO))]


def test_a_server_cannot_send_the_event_elsewhere(web, capfd) -> None:
    address, got = web
    actions = Actions(webhook=f"{address}/away")
    actions.handle(YES)
    actions.close()
    assert [path for path, _ in got] == ["/away"]
    assert "302" in capfd.readouterr().err


@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no MQTT broker (mosquitto) here")
def test_a_broker_hands_the_event_to_its_subscribers(tmp_path: Path) -> None:
    paho = pytest.importorskip("paho.mqtt.client")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "c").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    broker = subprocess.Popen([shutil.which("mosquitto"), "-c", tmp_path / "c"], stderr=subprocess.DEVNULL)
    try:
        got: list[dict] = []
        subscribed = threading.Event()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.on_message = lambda *arguments: got.append(json.loads(arguments[2].payload))
        client.on_subscribe = lambda *arguments: subscribed.set()

        def connected() -> bool:
            try:
                return client.connect("127.0.0.1", port) == 0
            except OSError:
                return False

        assert eventually(connected)
        client.subscribe("house/kws")
        client.loop_start()
        assert subscribed.wait(20)
        actions = Actions(mqtt=f"mqtt://127.0.0.1:{port}/house/kws")
        actions.handle(YES)
        actions.close()
        assert eventually(lambda: got == [plain(YES)])
        client.loop_stop()
    finally:
        broker.kill()
        broker.wait()


@pytest.mark.parametrize(
    "options",
    [
        {"commands": ["yes"]},
        {"commands": ["yes="]},
        {"commands": ["maybe=true"]},
        {"commands": ["yes='unclosed"]},
        {"webhook": "ftp://x/y"},
        {"webhook": "nonsense"},
        {"mqtt": "mqtt://127.0.0.1:9/topic"},
        {"mqtt": "mqtt://host"},
        {"mqtt": "http://host/topic"},
        {"mqtt": "mqtt://127.0.0.1/a/#"},
        {"mqtt": "mqtt://h:99999999/t"},
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_listening(options: dict) -> None:
    with pytest.raises(UserError):
        Actions(words=("yes", "no"), **options)


def listening(*options: str, data: bytes) -> subprocess.CompletedProcess:
    code = "import sys; from kws_s5.listening.listen_cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, "-", *options], input=data, capture_output=True, timeout=240)


def test_a_piped_recording_gives_the_words_that_kws_scan_finds(tmp_path: Path) -> None:
    from kws_s5.audio.files import load_audio
    from kws_s5.listening.spotter import KeywordSpotter

    sound = load_audio(EXAMPLE)
    want = [event.label for event in KeywordSpotter("commands12").find(sound.waveform, sound.rate)]
    raw = np.round(sound.waveform * 32767).astype("<i2").tobytes()
    file = tmp_path / "heard.txt"
    done = listening("--rate", str(sound.rate), "--json", "--on", f"*={python(file, '{word}')}", data=raw)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["word"] for line in done.stdout.splitlines()] == want and len(want) >= 5
    assert eventually(lambda: file.read_text().count("\n") >= len(set(want)))


def test_what_is_no_sound_on_standard_input_is_one_line() -> None:
    done = listening(data=b"hello, this is a text")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"--rate" in done.stderr


def test_a_file_is_for_kws_scan(capsys) -> None:
    assert main(["meeting.wav"]) == 2
    assert "kws-scan" in capsys.readouterr().err

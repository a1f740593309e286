"""kws-serve with the protocol's own client: what a stream of chunks detects is what kws-scan finds in the recording."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kws_s5.audio.files import load_audio
from kws_s5.audio.resample import resample
from kws_s5.errors import UserError
from kws_s5.listening.events import SpotterConfig
from kws_s5.listening.serve_cli import main
from kws_s5.listening.spotter import KeywordSpotter

pytest.importorskip("wyoming")
from wyoming.audio import AudioChunk, AudioStart, AudioStop  # noqa: E402
from wyoming.client import AsyncClient  # noqa: E402
from wyoming.error import Error  # noqa: E402
from wyoming.event import Event  # noqa: E402
from wyoming.info import Describe, Info  # noqa: E402
from wyoming.ping import Ping, Pong  # noqa: E402
from wyoming.wake import Detect, Detection, NotDetected  # noqa: E402

from kws_s5.listening.wyoming_server import names_of, samples_of  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "demo" / "examples" / "six_commands.flac"
CODE = "import sys; from kws_s5.listening.serve_cli import main; sys.exit(main(sys.argv[1:]))"


class Server:
    """kws-serve in a process of its own."""

    def __init__(self, *options: str, uri: str = "") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.uri = uri or f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, "--uri", self.uri, *options], stderr=subprocess.PIPE, text=True
        )
        self.ready = self.process.stderr.readline()
        assert self.ready.startswith("kws-serve: "), self.ready
        for _ in range(200):  # the line comes just before the port is open
            try:
                asyncio.run(self._greet())
                return
            except OSError:
                pass
        raise AssertionError("the server never answered")

    async def _greet(self) -> None:
        async with AsyncClient.from_uri(self.uri) as client:
            await client.write_event(Ping(text="hello").event())
            assert Pong.from_event(await client.read_event()).text == "hello"

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    code, said = server.stop()
    assert code == 0
    assert "Traceback" not in said and "never retrieved" not in said, said


def chunks(waveform: np.ndarray, rate: int, *, width: int = 2, channels: int = 1, seconds: float = 0.08):
    """Messages of a recording, in the given format."""
    wide = np.round(np.clip(waveform, -1, 1 - 2**-31) * 2.0**31).astype("<i4")
    raw = np.repeat(wide, channels).view(np.uint8).reshape(-1, 4)[:, 4 - width :].reshape(len(wide), -1)
    n = round(seconds * rate)
    for i in range(0, len(raw), n):
        yield AudioChunk(rate, width, channels, raw[i : i + n].tobytes()).event()


async def heard(uri: str, messages, *, rate: int = 16000, names=None) -> list:
    """Everything the server answers to a recording until it has said all about it, as (name, timestamp) or a type."""
    answers = []
    async with AsyncClient.from_uri(uri) as client:
        if names is not None:
            await client.write_event(Detect(names=names).event())
        await client.write_event(AudioStart(rate, 2, 1).event())
        for message in messages:
            await client.write_event(message)
        await client.write_event(AudioStop().event())
        await client.write_event(Ping(text="end").event())
        while not Pong.is_type((event := await client.read_event()).type):
            if Detection.is_type(event.type):
                found = Detection.from_event(event)
                answers.append((found.name, found.timestamp))
            else:
                answers.append(event.type)
    return answers


def expected(waveform: np.ndarray, rate: int) -> list[tuple[str, int]]:
    spotter = KeywordSpotter("commands12", config=SpotterConfig(refractory=1.0))
    return [(event.label, round(1000 * event.time)) for event in spotter.find(waveform, rate)]


def test_describe_lists_every_word_as_a_wake_model(server: Server) -> None:
    async def ask():
        async with AsyncClient.from_uri(server.uri) as client:
            await client.write_event(Describe().event())
            return Info.from_event(await client.read_event())

    (program,) = asyncio.run(ask()).wake
    assert program.installed and program.name == "kws_s5"
    assert [model.name for model in program.models] == list(KeywordSpotter("commands12").keywords)


@pytest.mark.parametrize(("rate", "width", "channels"), [(16000, 2, 1), (8000, 3, 2), (48000, 4, 1), (44100, 2, 2)])
def test_detections_are_those_of_the_whole_recording(server: Server, rate: int, width: int, channels: int) -> None:
    sound = load_audio(EXAMPLE)
    waveform = resample(sound.waveform, sound.rate, rate)
    want = expected(waveform, rate)
    got = asyncio.run(heard(server.uri, chunks(waveform, rate, width=width, channels=channels), rate=rate))
    assert [name for name, _ in got] == [name for name, _ in want] and len(want) >= 4
    assert all(abs(a - b) <= 20 for (_, a), (_, b) in zip(got, want, strict=True))


def test_silence_is_told_as_not_detected(server: Server) -> None:
    silence = np.zeros(16000, np.float32)
    assert asyncio.run(heard(server.uri, chunks(silence, 16000))) == [NotDetected().event().type]


def test_only_the_chosen_words_are_reported_and_unknown_ones_are_an_error(server: Server) -> None:
    sound = load_audio(EXAMPLE)
    every = expected(sound.waveform, int(sound.rate))
    word = every[0][0]
    got = asyncio.run(heard(server.uri, chunks(sound.waveform, int(sound.rate)), names=[word, "alexa"]))
    assert {name for name, _ in got} == {word}

    async def ask():
        async with AsyncClient.from_uri(server.uri) as client:
            await client.write_event(Detect(names=["alexa"]).event())
            return Error.from_event(await client.read_event())

    error = asyncio.run(ask())
    assert error.code == "unknown-word" and "alexa" in error.text


def test_many_clients_at_once_each_hear_their_own_stream(server: Server) -> None:
    sound = load_audio(EXAMPLE)
    want = [name for name, _ in expected(sound.waveform, int(sound.rate))]

    async def everybody():
        return await asyncio.gather(*(heard(server.uri, chunks(sound.waveform, int(sound.rate))) for _ in range(12)))

    for got in asyncio.run(everybody()):
        assert [name for name, _ in got] == want


HOSTILE = {
    "no JSON": b"hello\n",
    "a list": b"[1, 2]\n",
    "a huge payload": b'{"type": "audio-chunk", "payload_length": 99999999999}\n',
    "a negative length": b'{"type": "audio-chunk", "payload_length": -1}\n',
    "a length in words": b'{"type": "audio-chunk", "data_length": "many"}\n',
    "no type": b'{"data": {}}\n',
    "no format": b'{"type": "audio-chunk", "payload_length": 4}\nabcd',
    "an odd number of bytes": b'{"type": "audio-chunk", "data": {"rate": 16000, "width": 2, "channels": 1}, '
    b'"payload_length": 3}\nabc',
    "a rate of nothing": b'{"type": "audio-chunk", "data": {"rate": 0, "width": 2, "channels": 1}, '
    b'"payload_length": 4}\nabcd',
    "names that are no list": b'{"type": "detect", "data": {"names": 5}}\n',
    "a line without end": b"x" * 200_000,
    "nested": b"[" * 60_000 + b"\n",
    "a message cut off": b'{"type": "audio-chunk", "payload_length": 100}\nabc',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_message_that_makes_no_sense_ends_that_client_only(server: Server, kind: str) -> None:
    port = int(server.uri.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as hostile:
        hostile.sendall(HOSTILE[kind])
        hostile.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := hostile.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    if answer:
        assert json.loads(answer.splitlines()[0])["type"] == "error"
    assert asyncio.run(heard(server.uri, chunks(np.zeros(1600, np.float32), 16000))) == ["not-detected"]


def test_one_client_too_many_is_told_and_the_first_goes_on() -> None:
    server = Server("--max-clients", "1")

    async def two():
        async with AsyncClient.from_uri(server.uri) as first:
            await first.write_event(Ping(text="1").event())
            await first.read_event()
            async with AsyncClient.from_uri(server.uri) as second:
                refused = Error.from_event(await second.read_event())
            await first.write_event(Ping(text="2").event())
            return refused, Pong.from_event(await first.read_event()).text

    refused, text = asyncio.run(two())
    assert refused.code == "busy" and text == "2"
    assert server.stop()[0] == 0


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no unix sockets here")
def test_a_unix_socket_serves_and_is_removed_at_the_end(tmp_path: Path) -> None:
    server = Server(uri=f"unix://{tmp_path}/kws.sock")
    assert asyncio.run(heard(server.uri, chunks(np.zeros(1600, np.float32), 16000))) == ["not-detected"]
    assert server.stop()[0] == 0
    assert not (tmp_path / "kws.sock").exists()


def test_standard_input_and_output_serve_one_client() -> None:
    messages = [Ping(text="a").event(), AudioStop().event()]
    lines = b"".join(json.dumps({"type": m.type, "data": m.data}).encode() + b"\n" for m in messages)
    command = [sys.executable, "-c", CODE, "--uri", "stdio://"]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=120)
    assert b'"pong"' in done.stdout and b'"not-detected"' in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--uri", "tcp://127.0.0.1"],
        ["--uri", "http://x:1"],
        ["--uri", "tcp://h:99999999"],
        ["--threads", "0"],
        ["--model", "no-such-model"],
        ["--threshold", "7"],
    ],
)
def test_mistakes_are_one_line(options: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(options) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_file_in_the_place_of_the_socket_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["--uri", f"unix://{tmp_path}/notes.txt"]) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert "no socket" in capsys.readouterr().err


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_every_width_has_the_same_full_scale(width: int) -> None:
    payload = (-(1 << (8 * width - 1))).to_bytes(width, "little", signed=True) + (1 << (8 * width - 2)).to_bytes(
        width, "little", signed=True
    )
    x, rate = samples_of(Event("audio-chunk", {"rate": 16000, "width": width, "channels": 2}, payload))
    np.testing.assert_array_equal(x, [[-1.0, 0.5]])
    assert rate == 16000


def test_a_width_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="width 5"):
        samples_of(Event("audio-chunk", {"rate": 16000, "width": 5, "channels": 1}, b""))


def test_models_of_the_same_name_stay_apart() -> None:
    assert names_of(["a/kws", "b/kws", "runs/mine.onnx"], [1, 2, 3]) == {"kws": 1, "kws-2": 2, "mine": 3}

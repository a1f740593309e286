"""The loop of kws-listen on sound from a file, and what it says where there is no microphone."""

import io
import json
import sys
import types

import numpy as np
import pytest

from kws_s5.listening.listen import level_db, listen
from kws_s5.listening.listen_cli import main
from kws_s5.listening.spotter import KeywordSpotter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def blocks(x, size=3840):
    return [np.stack([x[i : i + size]] * 2, 1) for i in range(0, len(x), size)]


def test_words_are_printed_as_they_are_decided(tone_bundle, tone_stream) -> None:
    x, out = tone_stream([("low", 1.0), ("high", 2.5)], seconds=4, rate=48000), io.StringIO()
    n = listen(blocks(x), 48000, KeywordSpotter(tone_bundle, channel_axis=1), out=out)
    lines = out.getvalue().splitlines()
    assert n == 2 and [line.split()[2] for line in lines] == ["low", "high"]
    assert 1.0 < float(lines[0].split()[0]) < 1.5


def test_json_lines_are_for_programs(tone_bundle, tone_stream) -> None:
    x, out = tone_stream([("low", 1.0)], seconds=3), Terminal()
    listen(blocks(x), 16000, KeywordSpotter(tone_bundle), as_json=True, out=out)
    (event,) = map(json.loads, out.getvalue().splitlines())
    assert event["word"] == "low" and event["start"] < event["end"] <= event["decided"]


def test_a_terminal_shows_level_clipping_and_the_best_label(tone_bundle, tone_stream) -> None:
    x, out = tone_stream([("low", 1.0)], seconds=3), Terminal()
    x[30000] = 1.0
    listen(blocks(x), 16000, KeywordSpotter(tone_bundle), out=out)
    shown = out.getvalue().split("\r")
    assert any("_silence_" in s and "-80 dB" in s for s in shown) and any("-15 dB" in s for s in shown)
    assert any("clipped" in s for s in shown)


def test_it_stops_after_the_time_asked_for(tone_bundle, tone_stream) -> None:
    spotter = KeywordSpotter(tone_bundle)
    listen(blocks(tone_stream([], seconds=5)), 16000, spotter, seconds=1.0, out=io.StringIO())
    assert 1.0 <= spotter.seconds < 1.3


def test_the_level_of_a_full_scale_sine_is_minus_3_db() -> None:
    sine = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000).astype(np.float32)
    assert level_db(sine) == pytest.approx(-3.01, abs=0.01) and level_db(np.zeros(100, np.float32)) == -80
    assert level_db(np.stack([sine, sine], 1)) == pytest.approx(-3.01, abs=0.01)


class NoPort(Exception):
    pass


def fake_sounddevice(inputs: list[dict], *, opens: bool = True) -> types.ModuleType:
    """The part of sounddevice's interface that is used; there is no real microphone where tests run."""
    module = types.ModuleType("sounddevice")
    module.PortAudioError = NoPort
    module.default = types.SimpleNamespace(device=(0, 0))

    class InputStream:
        def __init__(self, *, samplerate, blocksize, device, channels, dtype, callback) -> None:
            if not opens:
                raise NoPort("Invalid sample rate [PaErrorCode -9997]")
            self.callback, self.blocksize, self.channels = callback, blocksize, channels

        def start(self) -> None:
            for _ in range(30):
                self.callback(np.zeros((self.blocksize, self.channels), np.float32), self.blocksize, None, None)

        def stop(self) -> None: ...

        def close(self) -> None: ...

    def query_devices(device=None, kind=None):
        if kind is None:
            return inputs
        if isinstance(device, str):
            raise ValueError(f"No input device matching {device!r}")
        return inputs[device or 0]

    module.InputStream, module.query_devices = InputStream, query_devices
    return module


USB = {"name": "USB microphone", "default_samplerate": 44100.0, "max_input_channels": 6}


def test_the_device_is_opened_at_its_own_rate_and_named(tone_bundle, tmp_path, capsys, monkeypatch) -> None:
    tone_bundle.save(tmp_path / "model.safetensors")
    monkeypatch.setitem(sys.modules, "sounddevice", fake_sounddevice([USB]))
    assert main(["--list"]) == 0 and "0  USB microphone, 44100 Hz, 6 channels  (default)" in capsys.readouterr().out
    assert main(["--model", str(tmp_path / "model.safetensors"), "--seconds", "1"]) == 0
    err = capsys.readouterr().err
    assert "USB microphone: 44100 Hz, 2 channels. Model trained at 16000 Hz" in err and "high, low" in err


@pytest.mark.parametrize(
    ("inputs", "opens", "arguments", "words"),
    [
        ([], True, [], "no microphone found"),
        ([USB], True, ["--device", "blue"], "there are: 0 USB microphone"),
        ([USB], False, [], "cannot be opened at its own 44100 Hz"),
    ],
)
def test_a_device_that_does_not_work_is_one_line_of_help(inputs, opens, arguments, words, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", fake_sounddevice(inputs, opens=opens))
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1


def test_without_sound_support_the_help_names_what_to_install(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert main([]) == 2
    assert "pip install 'kws-s5[listen]'" in capsys.readouterr().err

"""kws-listen: the microphone, or a pipe, in the terminal, at the sound's own rate.

kws-listen                              the default microphone
kws-listen --list                       which devices there are
kws-listen --device usb --json          a line of JSON for every word, for other programs
kws-listen --on 'yes=notify-send yes'   a command for a word
ffmpeg -i URL -f wav - | kws-listen -   any sound that another program can read
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

from kws_s5.audio.pipe import RawFormat, open_pipe
from kws_s5.cli import guarded
from kws_s5.config.checks import require
from kws_s5.errors import UserError
from kws_s5.listening.scan_cli import default_model, split_words

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

DESCRIPTION = """Listens to the microphone, opened at the device's own sample rate, and prints the words it hears.
Ctrl-C stops. Needs the extra: pip install 'kws-s5[listen]'.

With "-" it listens to standard input instead (no extra needed): wav, raw PCM, or whatever an installed ffmpeg reads:
  ffmpeg -i anything -f wav - | kws-listen -
  arecord -t raw -f S16_LE -r 16000 | kws-listen - --rate 16000"""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    source: tyro.conf.Positional[str] = ""
    """"-": standard input. Default: the microphone."""
    model: str = ""
    """A run folder, a model file, or the name of a shipped model. Default: the shipped one."""
    keywords: tuple[str, ...] = ()
    """Report only these words (yes,no or yes no)."""
    device: str = ""
    """Number of a device or a part of its name. Default: the system's default input."""
    list: Flag = False
    """Show the devices and stop."""
    threshold: float | None = None
    """Score from which a word counts, for all words. Default: the model's own (kws-calibrate), else 0.5."""
    seconds: float = 0.0
    """Stop after so many seconds; 0: never."""
    json: Flag = False
    """Print one JSON object a line."""
    rate: float = 0.0
    """Rate of raw samples on standard input, in Hz. Default: from the wav header."""
    format: str = "s16le"
    """Type of raw samples: u8, s8, s16le, s24le, s32le, f32le or f64le."""
    channels: int = 1
    """Channels of raw samples."""
    on: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """WORD=COMMAND, run without a shell when WORD is heard (*: any); {word}, {score}, {start}, {end} are filled in."""
    webhook: str = ""
    """An http or https address that gets every word as JSON (POST)."""
    mqtt: str = ""
    """mqtt://[USER:PASSWORD@]HOST[:PORT]/TOPIC: every word as JSON to a broker (extra: mqtt)."""
    debounce: float = 1.0
    """Seconds in which the same word does not act again."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a mistake or a missing device; 130 after Ctrl-C."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-listen", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    if arguments.source not in ("", "-"):
        raise UserError(
            f"{arguments.source!r}: kws-listen hears the microphone, or standard input (-); "
            "kws-scan searches recordings"
        )
    require(arguments.debounce >= 0, "--debounce", arguments.debounce, "0 seconds or more")
    if arguments.list:
        from kws_s5.listening.microphone import devices

        for d in devices():
            mark = "  (default)" if d["default"] else ""
            print(f"{d['number']:>3}  {d['name']}, {d['rate']:g} Hz, {d['channels']} channels{mark}")
        return
    if arguments.source == "-":
        raw = RawFormat(arguments.rate, arguments.format, arguments.channels) if arguments.rate else None
        pipe = open_pipe(sys.stdin.buffer, raw)
        _listen(arguments, "standard input", pipe.rate, pipe.channels, pipe.blocks)
        return
    from kws_s5.listening.microphone import microphone

    device = int(arguments.device) if arguments.device.isdigit() else arguments.device or None
    with microphone(device) as mic:
        _listen(arguments, mic.name, mic.rate, mic.channels, mic.blocks)


def _listen(arguments: Arguments, name: str, rate: float, n_channels: int, blocks: Iterable[np.ndarray]) -> None:
    from kws_s5.listening.actions import Actions
    from kws_s5.listening.listen import listen
    from kws_s5.listening.spotter import KeywordSpotter

    spotter = KeywordSpotter(
        arguments.model or default_model(),
        rate,
        channel_axis=1,
        keywords=split_words(arguments.keywords),
        thresholds=arguments.threshold,
    )
    actions = Actions(
        commands=arguments.on,
        webhook=arguments.webhook,
        mqtt=arguments.mqtt,
        debounce=arguments.debounce,
        words=spotter.keywords,
    )
    channels = "mono" if n_channels == 1 else f"{n_channels} channels"
    print(
        f"{name}: {rate:g} Hz, {channels}. Model trained at {spotter.bundle.rate:g} Hz: time step x "
        f"{spotter.bundle.rate / rate:.4g}. Listening for {', '.join(spotter.keywords)}.",
        file=sys.stderr,
    )
    if spotter.remark:
        print(f"note: {spotter.remark}", file=sys.stderr)
    try:
        listen(blocks, rate, spotter, as_json=arguments.json, seconds=arguments.seconds, act=actions.handle)
    finally:
        actions.close()

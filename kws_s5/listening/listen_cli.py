"""kws-listen: the microphone in the terminal, at the device's own rate.

    kws-listen                              the default microphone
    kws-listen --list                       which devices there are
    kws-listen --device usb --json          a line of JSON for every word, for other programs
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from kws_s5.cli import guarded
from kws_s5.listening.scan_cli import default_model, split_words

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

DESCRIPTION = """Listens to the microphone, opened at the device's own sample rate, and prints the words it hears.
Ctrl-C stops. Needs the extra: pip install 'kws-s5[listen]'."""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: str = ""
    """A run folder, a model file, or the name of a shipped model. Default: the shipped one."""
    keywords: tuple[str, ...] = ()
    """Only these words (yes,no or yes no)."""
    device: str = ""
    """Number of a device or a part of its name. Default: the system's default input."""
    list: Flag = False
    """Show the devices and stop."""
    threshold: float | None = None
    """Score from which a word counts, for all words. Default: the model's own (kws-calibrate), else 0.5."""
    seconds: float = 0.0
    """Stop after so many seconds; 0: never."""
    json: Flag = False
    """One JSON object a line."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a mistake or a missing device; 130 after Ctrl-C."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-listen", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    from kws_s5.listening.microphone import devices, microphone

    if arguments.list:
        for d in devices():
            mark = "  (default)" if d["default"] else ""
            print(f"{d['number']:>3}  {d['name']}, {d['rate']:g} Hz, {d['channels']} channels{mark}")
        return
    device = int(arguments.device) if arguments.device.isdigit() else arguments.device or None
    with microphone(device) as mic:
        from kws_s5.listening.listen import listen
        from kws_s5.listening.spotter import KeywordSpotter

        spotter = KeywordSpotter(arguments.model or default_model(), mic.rate, channel_axis=1,
                                 keywords=split_words(arguments.keywords), thresholds=arguments.threshold)
        channels = "mono" if mic.channels == 1 else f"{mic.channels} channels"
        print(f"{mic.name}: {mic.rate:g} Hz, {channels}. Model trained at {spotter.bundle.rate:g} Hz: time step x "
              f"{spotter.bundle.rate / mic.rate:.4g}. Listening for {', '.join(spotter.keywords)}.", file=sys.stderr)
        if spotter.remark:
            print(f"note: {spotter.remark}", file=sys.stderr)
        listen(mic.blocks, mic.rate, spotter, as_json=arguments.json, seconds=arguments.seconds)

"""kws-eval: how good a trained model is, at which sample rates, by which protocol.

kws-eval runs/quickstart                               its own test clips at 16000 and 8000 Hz, all protocols
kws-eval runs/quickstart --data my_recordings          a folder <word>/<clip>, at the recordings' own rates
kws-eval runs/quickstart yes.wav no.wav                what the model hears in these files
"""

from collections.abc import Sequence

import tyro

from kws_s5.cli import guarded
from kws_s5.eval.arguments import DESCRIPTION, Arguments


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a user's mistake."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-eval", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    from kws_s5.eval.command import run  # imports torch, which --help and typing mistakes need not wait for

    run(arguments)

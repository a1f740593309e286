"""What can be said on the command line of kws-eval."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

DESCRIPTION = """How good a trained model is, at which sample rates, by which protocol.

examples:
  kws-eval runs/quickstart                          its own test clips at the training rate and at half of it
  kws-eval runs/quickstart --rate 8000 11025 4000   other rates (whole fractions are decimated, others resampled)
  kws-eval runs/quickstart --data my_recordings     a folder <word>/<clip> at its own rates; nothing is resampled
  kws-eval runs/quickstart --snr 20 10 0 --noise pink
  kws-eval runs/quickstart yes.wav no.flac          what the model hears in these files
  kws-eval runs/quickstart --stream --background talk_radio      false alarms per hour, misses, latency

protocols:
  decimate, soxr      how clips get to a rate: every r-th sample without a filter (as in the S5 paper), or band-limited
  rescale             the model's time step follows the rate: the same weights at any rate
  no rescale          the control: the model takes the sound as if it had the training rate, and fails
  soxr back           the baseline: the sound is resampled to the training rate first
  linear, masked      straight lines between samples; modes that would alias are silent"""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: tyro.conf.Positional[str]
    """A run folder, a model file, or the name of a shipped model."""
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Sound files to listen to, instead of a report."""
    data: str = ""
    """Folder of recordings <word>/<clip>, or the official 12-class test archive. Default: the test clips of the run."""
    split: Literal["auto", "train", "validation", "test", "all"] = "auto"
    """Which clips. auto: the test split, or every clip of a folder without split lists."""
    rate: tuple[float, ...] = ()
    """Sample rates in Hz. Default: the rate of the clips, and half of it if the clips have the training rate."""
    resampler: Literal["both", "decimate", "soxr"] = "both"
    """How clips get to another rate: decimate (whole factors only), soxr (band-limited), or both as rows."""
    rescale: Flag = False
    """Show only the rows with Delta rescaled."""
    no_rescale: Flag = False
    """Show only the control: Delta not rescaled."""
    resample_back: Flag = False
    """Show only the baseline: sound resampled to the training rate."""
    interpolation: tuple[Literal["hold", "linear"], ...] = ("hold",)
    """Input between samples at lower rates: hold (the paper's), linear, or both as rows. LinearFront models only."""
    mask_modes: Flag = False
    """Also rows in which modes above the lower Nyquist frequency are silent. LinearFront models only."""
    snr: tuple[float, ...] = ()
    """Signal-to-noise ratios in dB for rows with noise, beside the clean rows."""
    noise: str = "white"
    """What the noise is: white, pink, or a folder of recordings."""
    stream: Flag = False
    """Listen to a long recording made from the clips: false alarms per hour and misses for every threshold."""
    background: str = ""
    """For --stream: folder of recordings without keywords. Default: the clips of _unknown_ and _silence_."""
    seed: int = 0
    """Seed of the noise and of the stream."""
    batch_size: int = 64
    """Clips in a batch."""
    processes: int = 1
    """Processes that share the clips, each with its own copy of the model. The results do not change."""
    out: str = ""
    """Folder for results.json and the plots. Default: eval (or eval-<data>) in the run folder, else eval-<model>."""
    json: Flag = False
    """Print the report as JSON instead of tables."""

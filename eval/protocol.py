"""How a model is tested at a sample rate: what is done to the sound, and what the model is told about it.

    how         native        the clip's own samples
                decimate      every r-th sample, no filter (S5 paper, section 6.2); only r = 2, 3, ...
                soxr          band-limited resampling, up or down
    treatment   rescale       Delta times train_rate / rate: the model adapts, the sound stays as it is
                none          the control: the model takes the sound for one at its training rate, and must collapse
                resample_back the baseline: soxr back to the training rate, then the model as it was trained
    linear      straight lines instead of held input between samples     (both: kws_s5/ssm/interpolation.py, and only
    masked      modes that would alias are silent                         for S5 layers that run at the input's rate)

Every report names all of it: numbers of different protocols do not compare.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kws_s5.audio.resample import decimate, resample
from kws_s5.config.checks import one_of, require
from kws_s5.errors import UserError
from kws_s5.eval.noise import Noise, add_noise

How = Literal["native", "decimate", "soxr"]
Treatment = Literal["rescale", "none", "resample_back"]
Interpolation = Literal["hold", "linear"]
QUALITY = "HQ"

_HOW = {"native": "as recorded", "decimate": "decimate", "soxr": f"soxr {QUALITY}"}
_TREATMENT = {"rescale": "rescale", "none": "no rescale", "resample_back": f"soxr {QUALITY} back"}


@dataclass(frozen=True)
class Condition:
    """One row of a report."""

    rate: float = 0.0
    """Hz; 0: every clip at its own rate (only with how = native)."""
    how: How = "native"
    treatment: Treatment = "rescale"
    interpolation: Interpolation = "hold"
    mask_modes: bool = False
    snr: float | None = None
    """dB; None: no noise."""
    noise: str = "white"
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("how", self.how, How)
        one_of("treatment", self.treatment, Treatment)
        one_of("interpolation", self.interpolation, Interpolation)
        require(self.rate > 0 or (self.rate == 0 and self.how == "native"), "rate", self.rate, "a positive rate in Hz")
        require(self.snr is None or -100 <= self.snr <= 200, "snr", self.snr, "in dB, -100 to 200")

    @property
    def protocol(self) -> str:
        """Everything but rate and noise, in few words; the head of this file explains them."""
        words = [_HOW[self.how], _TREATMENT[self.treatment]]
        words += ["linear"] * (self.interpolation == "linear") + ["masked"] * self.mask_modes
        return ", ".join(words)

    @property
    def name(self) -> str:
        """The row's name."""
        rate = f"{self.rate:g} Hz" if self.rate else "own rates"
        noise = "" if self.snr is None else f", {self.noise} noise at {self.snr:g} dB"
        return f"{rate}, {self.protocol}{noise}"


def degraded(
    condition: Condition,
    waveform: np.ndarray,
    rate: float,
    *,
    train_rate: float,
    noise: Noise | None = None,
    index: int = 0,
) -> tuple[np.ndarray, float]:
    """The waveform (L',) that reaches the model under ``condition``, and its rate in Hz.

    Args:
        waveform: (L,) float32 at ``rate`` Hz.
        train_rate: Hz, of the model.
        noise: needed when the condition has an ``snr``.
        index: of the clip; with condition.seed it fixes the noise.
    """
    if condition.snr is not None:
        random = np.random.default_rng([condition.seed, index])
        waveform = add_noise(waveform, rate, noise, snr=condition.snr, random=random)
    target = condition.rate or rate
    if condition.how == "decimate":
        waveform = np.ascontiguousarray(decimate(waveform, whole_factor(rate, target)))
    elif condition.how == "soxr":
        waveform = resample(waveform, rate, target, QUALITY)
    elif rate != target:
        raise UserError(
            f"a clip of {rate:g} Hz cannot be used as recorded at {target:g} Hz; leave --rate out, or give "
            "rates below those of the recordings"
        )
    if condition.treatment == "resample_back":
        return resample(waveform, target, train_rate, QUALITY), train_rate
    return waveform, target


def whole_factor(rate: float, target: float) -> int:
    """r = rate / target for plain decimation; UserError where it is no whole number."""
    factor = round(rate / target)
    if factor < 1 or abs(factor * target - rate) > 1e-6 * rate:
        raise UserError(
            f"decimation keeps every r-th sample, and {rate:g} Hz / {target:g} Hz is no whole number; use "
            "--resampler soxr for this rate"
        )
    return factor


def conditions_for(
    train_rate: float,
    own_rates: Sequence[float],
    *,
    rates: Sequence[float] = (),
    resampler: Literal["decimate", "soxr"] | None = None,
    treatments: Sequence[Treatment] = (),
) -> list[Condition]:
    """The rows of a report.

    Args:
        train_rate: Hz, of the model.
        own_rates: Hz, rates that occur among the clips.
        rates: Hz; (): the clips' own, and half of it where that is the training rate.
        resampler: how to get to another rate; None: both where both are possible.
        treatments: (): rescale for each way to a rate, control and baseline once a rate.
    """
    own = own_rates[0] if len(set(own_rates)) == 1 else 0.0
    if not rates:
        rates = (own, own / 2) if own == train_rate else (own,)
    rows = []
    for rate in dict.fromkeys(rates):
        for first, how in enumerate(_ways(own_rates, rate, resampler)):
            if rate == train_rate:
                rows.append(Condition(rate, how))  # all treatments are the same here
                continue
            chosen = treatments or (("rescale", "none", "resample_back") if first == 0 else ("rescale",))
            rows += [Condition(rate, how, treatment) for treatment in chosen]
    order = {"rescale": 0, "none": 1, "resample_back": 2}
    position = {rate: i for i, rate in enumerate(dict.fromkeys(rates))}
    return sorted(rows, key=lambda row: (position[row.rate], order[row.treatment]))


def _ways(own_rates: Sequence[float], rate: float, resampler: str | None) -> list[How]:
    """How clips of these rates can get to ``rate`` (0: need not)."""
    if not rate or set(own_rates) == {rate}:
        return ["native"]
    if resampler == "decimate":
        for own in own_rates:
            whole_factor(own, rate)
    if resampler:
        return [resampler]
    divides = all(own >= rate and (own / rate).is_integer() for own in own_rates)
    return ["decimate", "soxr"] if divides else ["soxr"]

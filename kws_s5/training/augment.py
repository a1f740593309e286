"""Random changes of a training batch of waveforms, in the order in which sound meets them.

    splice -> speed -> shift -> room -> noise -> microphone -> gain -> level -> band limit -> mixup -> true rate

Every one is switched off by 0 in the config; a config of zeros gives the batch back as it is. All randomness comes from
the generator. Rows keep their lengths and their place in time, except that a changed true rate changes both the rate
and the number of samples. Masking of features happens inside the front (model/mask.py).

Legend: N batch, L samples, K classes.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kws_s5.config import AugmentConfig
from kws_s5.data.batch import Batch
from kws_s5.data.keywords.manifest import UNKNOWN
from kws_s5.errors import UserError
from kws_s5.training import augment_sound as sound
from kws_s5.training import augment_time as time
from kws_s5.training.augment_splice import CUT, choose, splice

TRUE_RATES = (0.5, 0.5, 0.75, 1.5)  # of the recording's rate; half is the telephone's case, so it comes twice
DECIMATED = 0.5  # share of the halved clips that keep every second sample without a filter
ROOM = (0.1, 0.6)  # seconds until the sound has fallen by 60 dB
DIRECT = (0.0, 15.0)  # dB of the direct sound over the room's
COLOUR = (0.0, 2.0)  # noise of power 1 / f^a: white, pink, brown
PEAK = (-45.0, 6.0)  # dB of full scale
RECORDED = 0.5  # share of recordings among the noises, where there are any


def augment(
    batch: Batch,
    config: AugmentConfig,
    generator: torch.Generator,
    *,
    noises: Sequence[tuple[Tensor, float]] = (),
    n_classes: int = 0,
    labels: tuple[str, ...] = (),
) -> Batch:
    """A changed copy of ``batch``; the same state of the generator gives the same copy.

    Args:
        batch: x (N, L, 1) float32 with rates (N,); lengths and rates may stay on the CPU.
        config: what to do and how much.
        generator: on the device of x.
        noises: recordings (L,) float32 and their rates in Hz.
        n_classes: K, needed for mixup.
        labels: names of the classes; clips are spliced only where one of them is _unknown_.
    Returns:
        Batch with x (N, L', 1), its lengths and rates, and y (N, K) probabilities if mixup is on.
    Raises:
        UserError: the batch is not sound.
    """
    if not _active(config):
        return batch
    if batch.rates is None or batch.x.ndim != 3 or batch.x.shape[2] != 1 or not batch.x.is_floating_point():
        raise UserError("augment: only recordings can be augmented; set every value of it to 0 for this data")
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
    lengths, rates = batch.lengths.cpu(), batch.rates.cpu()
    given, y = batch.x[..., 0], batch.y
    x = given
    if config.splice > 0 and UNKNOWN in labels:
        x, y = _splice(x, y, lengths, rates, labels, config.splice, rng)
    x = _timing(x, lengths, rates, config, rng)  # (N, L)
    x = x.clone() if x is given else x  # from here on it changes in place
    x = _acoustics(x, lengths, rates, config, rng, generator, noises)
    x = sound.cut(x, lengths)
    if config.mixup > 0:
        x, y, lengths = _mixup(x, y, lengths, rates, config.mixup, rng, n_classes)
    if config.true_rate > 0:
        ratios = rng.choice(TRUE_RATES, len(x))
        ratios[rng.random(len(x)) >= config.true_rate] = 1.0
        plain = rng.random(len(x)) < DECIMATED
        x, lengths, rates = time.change_rate(x, lengths, rates, ratios, plain)
    return replace(
        batch, x=x[..., None], y=y, lengths=lengths.to(batch.lengths.device), rates=rates.to(batch.rates.device)
    )


def _active(config: AugmentConfig) -> bool:
    switches = (
        config.splice,
        config.shift,
        config.gain,
        config.level,
        config.noise,
        config.reverb,
        config.speed,
        config.microphone,
        config.band_limit,
        config.true_rate,
        config.mixup,
    )
    return any(value > 0 for value in switches)


def _splice(
    x: Tensor,
    y: Tensor,
    lengths: Tensor,
    rates: Tensor,
    labels: tuple[str, ...],
    probability: float,
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """Some rows as pieces of two clips, with their class."""
    rows, others = choose(y, rates, labels, probability, rng)
    x = splice(x, lengths, rates, rows, others, rng.uniform(*CUT, (len(rows), 2)))
    y = y.clone()
    y[torch.from_numpy(rows).to(y.device)] = labels.index(UNKNOWN)
    return x, y


def _timing(x: Tensor, lengths: Tensor, rates: Tensor, config: AugmentConfig, rng: np.random.Generator) -> Tensor:
    """Speed and shift."""
    if config.speed > 0:
        x = time.speed(x, lengths, 1.0 + rng.uniform(-config.speed, config.speed, len(x)))
    if config.shift > 0:
        seconds = rng.uniform(-config.shift, config.shift, len(x))
        x = time.shift(x, lengths, np.rint(seconds * rates.numpy()).astype(int))
    return x


def _acoustics(
    x: Tensor,
    lengths: Tensor,
    rates: Tensor,
    config: AugmentConfig,
    rng: np.random.Generator,
    generator: torch.Generator,
    noises: Sequence[tuple[Tensor, float]],
) -> Tensor:
    """Room, noise, microphone, gain and band limit."""
    N = len(x)
    if config.reverb > 0:
        rows = np.flatnonzero(rng.random(N) < config.reverb)
        seconds, direct = rng.uniform(*ROOM, len(rows)), rng.uniform(*DIRECT, len(rows))
        x = sound.put(x, rows, sound.room(x[rows], lengths[rows], rates[rows], generator, seconds, direct))
    if config.noise > 0:
        rows = np.flatnonzero(rng.random(N) < config.noise)
        snr = torch.from_numpy(rng.uniform(*config.noise_snr, len(rows)))
        noise = sound.coloured_noise(x[rows], rates[rows], generator, rng.uniform(*COLOUR, len(rows)))
        if noises:
            for row in np.flatnonzero(rng.random(len(rows)) < RECORDED):
                noise[row] = sound.recorded_noise(noises, noise.shape[1], float(rates[rows[row]]), rng)
        x = sound.put(x, rows, sound.add_noise(x[rows], sound.cut(noise, lengths[rows]), snr))
    if config.microphone > 0:
        deviation = config.microphone * (2.0 / sound.BENDS) ** 0.5  # a cosine has mean square 1/2
        x = sound.microphone(x, rates, rng.normal(0.0, deviation, (N, sound.BENDS)))
    if config.gain > 0:
        x *= torch.from_numpy(np.exp(rng.uniform(-config.gain, config.gain, (N, 1)))).to(x)
    if config.level > 0:
        chosen, peak = rng.random(N) < config.level, rng.uniform(*PEAK, N)
        x = sound.clipped(x, torch.from_numpy(np.where(chosen, peak, np.nan)))
    if config.band_limit > 0:
        rows = np.flatnonzero(rng.random(N) < config.band_limit)
        cutoff = rates[rows].numpy() * np.exp(rng.uniform(np.log(1 / 8), np.log(1 / 2), len(rows)))
        x = sound.put(x, rows, sound.low_pass(x[rows], rates[rows], cutoff))
    return x


def _mixup(
    x: Tensor, y: Tensor, lengths: Tensor, rates: Tensor, alpha: float, rng: np.random.Generator, n_classes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Every clip and its classes blended with another clip of the same rate (Zhang et al., 2018)."""
    assert n_classes > 0 or y.ndim == 2, "mixup needs the number of classes"
    other = torch.from_numpy(rng.permutation(len(x)))
    share = torch.from_numpy(rng.beta(alpha, alpha, len(x)))
    share = torch.where(rates == rates[other], share, torch.ones_like(share))
    lengths = torch.where(share < 1.0, torch.maximum(lengths, lengths[other]), lengths)
    y = y if y.ndim == 2 else F.one_hot(y, n_classes).to(x.dtype)  # (N, K)
    other, share = other.to(x.device), share.to(x)[:, None]
    return torch.lerp(x[other], x, share), torch.lerp(y[other], y, share), lengths

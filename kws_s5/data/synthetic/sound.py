"""What surrounds a synthetic speaker: rooms, microphones and noises, so that synthetic clips are not trivially clean.

Legend: L samples. Every function is a function of its generator: same seed, same samples.
"""

import numpy as np
from scipy.signal import chirp, fftconvolve

SPEECH_FLOOR = 0.01  # of the peak: what is softer at the ends of an utterance counts as silence


def trim(waveform: np.ndarray) -> np.ndarray:
    """The utterance without the silence around it: starts and ends at 1 % of its peak."""
    loud = np.flatnonzero(np.abs(waveform) > SPEECH_FLOOR * np.abs(waveform).max(initial=0.0))
    return waveform[loud[0] : loud[-1] + 1] if len(loud) else waveform[:0]


def rms(waveform: np.ndarray) -> float:
    """Root mean square of (L,); 0 for nothing."""
    return float(np.sqrt(np.mean(np.square(waveform, dtype=np.float64)))) if len(waveform) else 0.0


def coloured_noise(n_samples: int, rate: float, exponent: float, rng: np.random.Generator) -> np.ndarray:
    """Noise (L,) float32 of rms 1 whose power falls as 1/f**exponent above 20 Hz (0 white, 1 pink, 2 brown)."""
    spectrum = np.fft.rfft(rng.standard_normal(n_samples))
    f = np.fft.rfftfreq(n_samples, 1 / rate)
    noise = np.fft.irfft(spectrum * np.maximum(f, 20.0) ** (-exponent / 2), n_samples)
    return (noise / max(rms(noise), 1e-12)).astype(np.float32)


def hum(n_samples: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Mains hum (L,) float32 of rms 1: 50 or 60 Hz with overtones that fade with their order."""
    t = np.arange(n_samples) / rate
    base = rng.choice([50.0, 60.0]) * (1 + rng.uniform(-0.002, 0.002))
    orders = [k for k in range(1, 13) if k * base < rate / 2]
    tones = sum(rng.uniform(0.2, 1) / k * np.sin(2 * np.pi * (k * base * t + rng.random())) for k in orders)
    return (tones / rms(tones)).astype(np.float32)


def chirps(n_samples: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Whistles, beeps and clicks (L,) float32 of rms 1: short tones that glide, at random times, over faint noise."""
    x = 0.05 * coloured_noise(n_samples, rate, 1.0, rng)
    for _ in range(max(1, int(3 * n_samples / rate))):  # three a second
        n = min(n_samples, int(rate * rng.uniform(0.02, 0.4)))
        f0, f1 = rng.uniform(200, 0.45 * rate, 2)
        start = rng.integers(0, n_samples - n + 1)
        x[start : start + n] += rng.uniform(0.2, 1) * np.hanning(n) * chirp(np.arange(n) / rate, f0, n / rate, f1)
    return (x / rms(x)).astype(np.float32)


def babble(utterances: list[np.ndarray], n_samples: int, rng: np.random.Generator, *, n_talkers: int = 6) -> np.ndarray:
    """Several people at once (L,) float32 of rms 1: each talker says the utterances in an order of their own."""
    x = np.zeros(n_samples, np.float32)
    for _ in range(n_talkers):
        talk = np.concatenate([utterances[i] / rms(utterances[i]) for i in rng.permutation(len(utterances))])
        talk = np.roll(np.resize(talk, n_samples), rng.integers(n_samples))
        x += talk * rng.uniform(0.4, 1)
    return x / rms(x)


def room(rate: float, rng: np.random.Generator) -> np.ndarray:
    """Impulse response (L,) float32 of a room and a microphone, peak first.

    A direct path, then noise that decays by 60 dB in 0.05 to 0.35 s, 3 to 20 dB below it in energy; a microphone that
    raises or lowers the high frequencies by up to 6 dB.
    """
    decay = rng.uniform(0.05, 0.35)
    n = int(rate * decay)
    tail = rng.standard_normal(n) * 10 ** (-3 * np.arange(n) / n)
    tail[: int(0.002 * rate)] = 0.0  # the first reflection comes later than the direct sound
    tail *= 10 ** (-rng.uniform(3, 20) / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    tilt = rng.uniform(-0.5, 0.5)
    return fftconvolve(tail, [1.0, tilt])[:n].astype(np.float32)


def in_room(waveform: np.ndarray, response: np.ndarray) -> np.ndarray:
    """``waveform`` (L,) as heard in the room, same length and about the same rms."""
    wet = fftconvolve(waveform, response)[: len(waveform)]
    return (wet * (rms(waveform) / max(rms(wet), 1e-12))).astype(np.float32)


def pcm16(waveform: np.ndarray) -> np.ndarray:
    """float in [-1, 1] -> int16; louder sound is scaled down as a whole instead of clipped."""
    peak = float(np.abs(waveform).max(initial=0.0))
    return np.round(waveform * (32767 * min(1.0, 0.98 / max(peak, 1e-12)))).astype(np.int16)

"""What a pendulum model is asked: other densities, regular frames, bursts, and the angle between observations.

Legend: n sequences, L steps of each (the same for all of a condition), K = 2 targets (sine, cosine).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from kws_s5.bundle import Bundle, model_inputs
from kws_s5.data.batch import collate
from kws_s5.data.pendulum.reader import PendulumSet
from kws_s5.data.pendulum.sampling import clustered_frames, random_frames, regular_frames
from kws_s5.data.pendulum.store import MOMENTS, Recording
from kws_s5.errors import UserError

BATCH = 50  # sequences at once
N_FRAMES = 100
DENSITIES = ("random 25", "random 50", "random 75", "every frame (double rate)")


@dataclass(frozen=True)
class Sampling:
    """Which frames are seen, and which moments between them are asked about."""

    name: str
    n_seen: int
    seen: Sequence[np.ndarray]
    queries: Sequence[np.ndarray] | None = None


def samplings(n: int) -> list[Sampling]:
    """Conditions of ``n`` test sequences; training saw the first one only."""
    patterns = {f"random {k}": random_frames("test", n, n_observed=k) for k in (50, 25, 75)}
    patterns |= {
        "every 2nd frame": regular_frames(n, every=2),
        "every 4th (half rate)": regular_frames(n, every=4),
        "every frame (double rate)": regular_frames(n, every=1),
        "5 bursts of 10": clustered_frames(n, n_bursts=5, burst=10),
        "2 bursts of 25": clustered_frames(n, n_bursts=2, burst=25),
    }
    return [Sampling(name, len(seen[0]), seen) for name, seen in patterns.items()]


def query_samplings(n: int, *, n_query: int = 10) -> list[Sampling]:
    """Random 50 frames, asked about unseen frames, and about moments between frames (quarters); causally, so not
    before the first frame."""
    seen = random_frames("test", n)
    frames, moments = [], []
    for i, shown in enumerate(seen):
        rng = np.random.default_rng([i, 2])
        later = np.arange(shown[0] + 1, N_FRAMES)
        frames.append(np.sort(rng.choice(np.setdiff1d(later, shown), n_query, replace=False)))
        quarters = np.arange(shown[0] * MOMENTS, N_FRAMES * MOMENTS)
        quarters = quarters[quarters % MOMENTS > 0]
        moments.append(np.sort(rng.choice(quarters, n_query, replace=False)) / MOMENTS)
    return [Sampling("unseen frames", 50, seen, frames), Sampling("between frames", 50, seen, moments)]


@dataclass(frozen=True)
class Answers:
    """Predictions of one model under one condition."""

    times: np.ndarray  # (n, L) frames
    is_seen: np.ndarray  # (n, L) bool
    truth: np.ndarray  # (n, L, K)
    mean: np.ndarray  # (n, L, K)
    variance: np.ndarray  # (n, L, K)


@torch.inference_mode()
def answers(bundle: Bundle, recording: Recording, sampling: Sampling, *, blank: bool = False) -> Answers:
    """Runs the model on the first sequences of ``recording``, as many as the sampling has.

    Args:
        blank: at queries the layers get no input at all: the state only moves on to the asked moment. Otherwise the
            encoder sees a black picture, which models trained with queries know.
    """
    if type(bundle.config.data).__name__ != "PendulumData":
        raise UserError(f"{bundle.config.name}: not a pendulum model")
    data = PendulumSet(recording, sampling.seen, queries=sampling.queries, use_dt=bundle.config.data.use_dt)
    steps = [data.times(i) for i in range(len(data))]
    times, is_seen = (np.stack(part) for part in zip(*steps, strict=True))
    model, means, variances, truths = bundle.model.eval(), [], [], []
    for start in range(0, len(data), BATCH):
        stop = min(start + BATCH, len(data))
        batch = collate([data[i] for i in range(start, stop)])
        features = model.encode(**model_inputs(batch, bundle.rate, device="cpu"))
        if blank:
            shown = torch.from_numpy(is_seen[start:stop, :, None])
            features = replace(features, x=torch.where(shown, features.x, 0.0))
        features = model.body(features)
        mean, variance = model.head(features.x, features.lengths)
        means.append(mean.numpy()), variances.append(variance.numpy()), truths.append(batch.y.numpy())
    return Answers(times, is_seen, *(np.concatenate(part) for part in (truths, means, variances)))


def held(given: Answers, asked: Answers) -> np.ndarray:
    """Baseline (n, L, K): at every step of ``asked`` the model's own answer at the last frame seen, from ``given``."""
    last = np.stack([np.searchsorted(g, a, side="right") - 1 for g, a in zip(given.times, asked.times, strict=True)])
    return np.take_along_axis(given.mean, np.maximum(last, 0)[:, :, None], axis=1)


def scores(truth: np.ndarray, mean: np.ndarray, variance: np.ndarray | None, steps: np.ndarray) -> dict[str, float]:
    """Scores over the chosen steps.

    Args:
        truth, mean, variance: (n, L, K); no variance: no likelihood. steps: (n, L) bool.

    Returns:
        mse, standard_error (of the mse, from the spread over sequences: what another draw of them would change),
        degrees (root mean square error of the angle of the predicted direction), and with a variance nll (summed over
        K as in training) and coverage (share of targets within 1.96 standard deviations; 0.95 is calibrated).
    """
    error = (mean - truth)[steps]  # (steps, K)
    wrong = np.angle(np.exp(1j * (_angle(mean[steps]) - _angle(truth[steps]))))
    each = np.array([((m - t)[shown] ** 2).mean() for m, t, shown in zip(mean, truth, steps, strict=True)])
    result = {
        "mse": float((error**2).mean()),
        "standard_error": float(each.std() / len(each) ** 0.5),
        "degrees": float(np.degrees(np.sqrt((wrong**2).mean()))),
    }
    if variance is not None:
        spread = np.maximum(variance[steps], 1e-6)
        nll = 0.5 * (np.log(2 * np.pi * spread) + error**2 / spread).sum(-1)
        result |= {"nll": float(nll.mean()), "coverage": float((np.abs(error) <= 1.96 * np.sqrt(spread)).mean())}
    return result


def _angle(targets: np.ndarray) -> np.ndarray:
    return np.arctan2(targets[..., 0], targets[..., 1])

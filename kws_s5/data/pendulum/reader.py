"""Pendulum regression: noisy pictures at irregular times -> sine and cosine of the angle at each of them.

Legend: L steps (seen frames and queries), F frames of a sequence, U = 576 pixels, K = 2 targets.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

from kws_s5.config import PendulumData
from kws_s5.data.batch import Example
from kws_s5.data.pendulum.physics import targets
from kws_s5.data.pendulum.sampling import hidden_frames, intervals, random_frames
from kws_s5.data.pendulum.store import MOMENTS, Recording, recordings
from kws_s5.data.splits import Splits

N_TARGETS = 2  # sine and cosine


class PendulumSet(Dataset):
    """Sequences seen at some frames, and asked about at others.

    A query is a step with a black picture: nothing was observed, the state has only moved on, and the angle is wanted.
    """

    def __init__(
        self,
        recording: Recording,
        seen: Sequence[np.ndarray],
        *,
        queries: Sequence[np.ndarray] | None = None,
        use_dt: bool = True,
        mirror: bool = False,
    ):
        """Args:
        recording: n sequences. seen: the frames of each, increasing.
        queries: moments of each in frames, multiples of 1/4, none of them among the seen frames.
        use_dt: give the intervals. mirror: swap left and right in half of the sequences, drawn anew every epoch.
        """
        self.recording, self.seen, self.queries = recording, seen, queries
        self.use_dt, self.mirror = use_dt, mirror
        self.epoch = 0
        self._steps: dict[int, tuple[np.ndarray, np.ndarray, torch.Tensor | None]] = {}

    def __len__(self) -> int:
        return len(self.seen)

    def set_epoch(self, epoch: int) -> None:
        """Fixes the random choices: they are a function of (epoch, index)."""
        self.epoch = epoch

    def times(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Moments of the steps in frames, (L,) float64 increasing, and which of them are seen, (L,) bool."""
        seen = self.seen[index].astype(np.float64)
        queries = np.empty(0) if self.queries is None else np.asarray(self.queries[index], np.float64)
        both = np.concatenate([seen, queries])
        order = np.argsort(both, kind="stable")
        return both[order], order < len(seen)

    def __getitem__(self, index: int) -> Example:
        if index not in self._steps:
            self._steps[index] = self._answers(index)
        is_seen, y, dt = self._steps[index]
        pictures = self.recording.images[index, self.seen[index]]  # uint8
        x = np.divide(pictures.reshape(len(pictures), -1), 255.0, dtype=np.float32)
        if len(y) > len(x):
            seen, x = x, np.zeros((len(y), x.shape[1]), np.float32)  # (L, U)
            x[is_seen] = seen
        if self.mirror and np.random.default_rng([self.epoch, index]).random() < 0.5:
            side = round(x.shape[1] ** 0.5)
            x = np.ascontiguousarray(x.reshape(-1, side, side)[:, :, ::-1]).reshape(x.shape)
            y = y * np.float32([-1.0, 1.0])
        return Example(torch.from_numpy(x), torch.from_numpy(y), dt=dt)

    def _answers(self, index: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor | None]:
        """What does not change from epoch to epoch: which steps are seen (L,), targets (L, K), intervals (L,)."""
        times, is_seen = self.times(index)
        angles = self.recording.angles[index].ravel()  # (F * MOMENTS,)
        y = targets(angles[np.rint(times * MOMENTS).astype(np.int64)])
        return is_seen, y, torch.from_numpy(intervals(times)) if self.use_dt else None


def build(config: PendulumData) -> Splits:
    """The published sets (S5 paper, section 6.3): 50 of 100 frames, the same ones in every run."""
    sets = {}
    for split, recording in recordings(config).items():
        seen = random_frames(split, len(recording), n_observed=config.n_observed, n_frames=config.n_frames)
        queries = None
        if config.n_query:
            queries = hidden_frames(split, seen, n_query=config.n_query, n_frames=config.n_frames)
        sets[split] = PendulumSet(
            recording, seen, queries=queries, use_dt=config.use_dt, mirror=config.mirror and split == "train"
        )
    report = {
        "sequences": {split: len(s) for split, s in sets.items()},
        "frames": config.n_frames,
        "observed": config.n_observed,
        "queries": config.n_query,
    }
    return Splits(
        sets["train"],
        sets["validation"],
        sets["test"],
        labels=(),
        n_outputs=N_TARGETS,
        n_inputs=sets["train"][0].x.shape[1],
        report=report,
    )

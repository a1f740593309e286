"""What a head is trained for and judged by: loss, sums that add up over batches and processes, scores, and which score
chooses the model.

    class head       cross-entropy with label smoothing; accuracy chooses
    with frames      the same plus weight * cross-entropy of the decisions in the second half of each clip's frames
    Gaussian head    negative log-likelihood of independent normals (variance floor 1e-6); mean squared error chooses

Legend: N batch, L steps, L' frames, K outputs.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config import ClassHead, GaussianHead, RunConfig
from kws_s5.data.batch import Batch
from kws_s5.model.front import Features

VARIANCE_FLOOR = 1e-6
Sums = dict[str, Tensor]


class Objective(Protocol):
    """The contract: ``outputs`` of the model for training, ``loss`` of them, ``sums`` and ``scores`` of predictions."""

    monitor: str
    """Score of the validation clips that chooses the model."""
    higher_is_better: bool
    latest: bool
    """Choose the last weights instead."""

    def outputs(self, model: nn.Module, features: Features) -> Any:
        """Features behind the last layer -> what ``loss`` wants."""

    def loss(self, outputs: Any, batch: Batch) -> Tensor:
        """Scalar."""

    def predictions(self, outputs: Any) -> Any:
        """The part of the outputs that the model's forward gives too."""

    def sums(self, predictions: Any, batch: Batch) -> Sums:
        """Statistics of one batch; predictions are what the model's forward gives. Adding them joins batches."""

    def scores(self, sums: Sums) -> dict[str, float]:
        """Scores of everything summed: always "loss", and ``monitor``."""


@dataclass
class Classification:
    """Class logits (N, K) against classes (N,), or class probabilities (N, K) of mixed clips."""

    smoothing: float = 0.0
    monitor: str = "accuracy"
    higher_is_better: bool = True
    latest: bool = False

    def outputs(self, model: nn.Module, features: Features) -> Tensor:
        """Clip logits (N, K)."""
        return model.head(features.x, features.lengths)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy with label smoothing."""
        return F.cross_entropy(outputs.float(), batch.y, label_smoothing=self.smoothing)

    def predictions(self, outputs: Tensor) -> Tensor:
        """The logits themselves."""
        return outputs

    def sums(self, predictions: Tensor, batch: Batch) -> Sums:
        """Confusion counts (K, K), row = true class, and the summed loss (without smoothing)."""
        logits, K = predictions.float(), predictions.shape[-1]
        truth = batch.y if batch.y.ndim == 1 else batch.y.argmax(-1)
        cells = torch.bincount(truth * K + logits.argmax(-1), minlength=K * K)
        return {"confusion": cells.reshape(K, K), "loss": _exact(F.cross_entropy(logits, truth, reduction="sum"))}

    def scores(self, sums: Sums) -> dict[str, float]:
        """Mean loss and accuracy in [0, 1]."""
        n = max(int(sums["confusion"].sum()), 1)
        return {"loss": float(sums["loss"]) / n, "accuracy": int(sums["confusion"].trace()) / n}


@dataclass
class FrameClassification(Classification):
    """Clip and frame decisions trained together, for models that stream."""

    weight: float = 1.0

    def outputs(self, model: nn.Module, features: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Clip logits (N, K), frame logits (N, L', K), valid frames (N,)."""
        frames = model.head.frames(features.x, step_rescale=features.step_rescale)
        N, L = features.x.shape[:2]
        full = torch.full((N,), L, device=features.x.device)
        return super().outputs(model, features), frames, full if features.lengths is None else features.lengths

    def predictions(self, outputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The clip logits."""
        return outputs[0]

    def loss(self, outputs: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
        """The clip's loss plus ``weight`` times the frames' mean loss.

        Only the second half of the frames counts: before that the word may not have been said.
        """
        clip, frames, valid = outputs
        L = frames.shape[1]
        t = torch.arange(L, device=frames.device)
        late = (t >= valid[:, None] // 2) & (t < valid[:, None])  # (N, L')
        y = batch.y[:, None].expand(-1, L, *batch.y.shape[1:])  # (N, L') or (N, L', K)
        each = super().loss(frames[late], Batch(batch.x, batch.lengths, y[late]))
        return super().loss(clip, batch) + self.weight * each


@dataclass
class Regression:
    """(mean, variance) (N, L, K) against targets (N, L, K); steps beyond a series' end and NaN targets do not count."""

    monitor: str = "mse"
    higher_is_better: bool = False
    latest: bool = False

    def outputs(self, model: nn.Module, features: Features) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        return model.head(features.x, features.lengths)

    def loss(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        """Negative log-likelihood: summed over the K targets, averaged over all steps."""
        sums = self.sums(outputs, batch)
        return sums["nll"] / sums["steps"].clamp(min=1)

    def predictions(self, outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and variance themselves."""
        return outputs

    def sums(self, predictions: tuple[Tensor, Tensor], batch: Batch) -> Sums:
        """Summed negative log-likelihood and squared error, number of steps and of target values."""
        mean, variance = (p.float() for p in predictions)
        steps = torch.arange(mean.shape[1], device=mean.device) < batch.lengths.to(mean.device)[:, None]  # (N, L)
        known = steps[:, :, None] & ~batch.y.isnan()  # (N, L, K)
        target = torch.where(known, batch.y, mean.detach())
        nll = F.gaussian_nll_loss(mean, target, variance, full=True, eps=VARIANCE_FLOOR, reduction="none")
        error = (target - mean.detach()).square()
        return {
            "nll": (nll * known).sum(),
            "error": _exact((error * known).sum()),
            "steps": known.any(-1).sum(),
            "values": known.sum(),
        }

    def scores(self, sums: Sums) -> dict[str, float]:
        """Mean negative log-likelihood, and the mean squared error (published tables give it times 1,000)."""
        return {
            "loss": float(sums["nll"]) / max(int(sums["steps"]), 1),
            "mse": float(sums["error"]) / max(int(sums["values"]), 1),
        }


def build_objective(config: RunConfig) -> Objective:
    """The objective of the config's head."""
    head, training = config.model.head, config.training
    objective: Objective
    if isinstance(head, GaussianHead):
        objective = Regression()
    elif isinstance(head, ClassHead) and head.frame_logits and training.frame_weight > 0:
        objective = FrameClassification(training.label_smoothing, weight=training.frame_weight)
    else:
        objective = Classification(training.label_smoothing)
    if training.choose_by == "loss":
        objective.monitor, objective.higher_is_better = "loss", False
    objective.latest = training.choose_by == "last"
    return objective


def add(total: Sums | None, sums: Sums) -> Sums:
    """total + sums; None and {} count as nothing."""
    sums = {name: value.detach() for name, value in sums.items()}
    return sums if not total else {name: total[name].to(value.device) + value for name, value in sums.items()}


def better(objective: Objective, scores: dict[str, float], than: dict[str, float] | None) -> bool:
    """Whether ``scores`` beat ``than``: by the monitored score, a tie by the loss, or as the latest. NaN never does."""

    def rank(s: dict[str, float]) -> tuple[float, float]:
        value = s[objective.monitor]
        return (value if objective.higher_is_better else -value), -s["loss"]

    if scores[objective.monitor] != scores[objective.monitor] or scores["loss"] != scores["loss"]:
        return False
    return than is None or objective.latest or rank(scores) > rank(than)


def _exact(value: Tensor) -> Tensor:
    return value if value.device.type == "mps" else value.double()  # MPS has no float64

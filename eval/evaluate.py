"""Runs a trained model over a data set under each condition and keeps what it predicts for every clip.

Clips are read one batch at a time, so memory does not grow with the data set. Batches may be shared out over processes:
they are the same ones, so the results are too. Legend: n clips, K classes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from kws_s5 import metrics
from kws_s5.bundle import Bundle
from kws_s5.config import LogMelFront, S5Mixer
from kws_s5.data.batch import Batch, Example, collate
from kws_s5.errors import UserError
from kws_s5.eval.noise import Noise, noise_from
from kws_s5.eval.protocol import Condition, degraded
from kws_s5.processes import mapped, n_processors
from kws_s5.ssm.s5 import S5SSM
from kws_s5.training.objective import add, build_objective

Progress = Callable[[int], None]
Predictions = tuple[np.ndarray, np.ndarray, np.ndarray]  # truth, predicted, confidence


@dataclass(frozen=True)
class Piece:
    """The clips first ... end - 1 under one condition: one batch."""

    condition: Condition
    first: int
    end: int


@dataclass(frozen=True)
class Result:
    """What a model predicts under one condition."""

    condition: Condition
    truth: np.ndarray  # (n,) int64
    predicted: np.ndarray  # (n,) int64
    confidence: np.ndarray  # (n,) float32, probability of the predicted class

    @property
    def n_correct(self) -> int:
        return int((self.truth == self.predicted).sum())

    @property
    def accuracy(self) -> float:
        return metrics.accuracy(self.truth, self.predicted)


def evaluate(
    bundle: Bundle,
    dataset: Dataset,
    conditions: Sequence[Condition],
    *,
    batch_size: int = 64,
    processes: int = 1,
    progress: Progress = lambda n: None,
) -> list[Result]:
    """One Result a condition, in their order.

    Args:
        bundle: a classifier of sound, with a training rate.
        dataset: of Examples (L, 1) with their rates; read once for each condition.
        processes: that share the batches; with 1 the work is done here.
        progress: called with the number of clips done since its last call.

    Raises:
        UserError: a condition that this model or these clips cannot meet.
    """
    assert bundle.rate, "a model without a rate is evaluated by evaluate_plain"
    for condition in conditions:
        _check(bundle, condition)
    if not len(dataset):
        raise UserError("there are no clips to evaluate on; choose another --split or --data")
    firsts = range(0, len(dataset), batch_size)
    pieces = [
        Piece(condition, first, min(first + batch_size, len(dataset))) for condition in conditions for first in firsts
    ]
    n = min(processes, len(pieces), max(2, n_processors()))  # more than cores would only cost memory
    answers = mapped(
        _predict_with,
        [(piece,) for piece in pieces],
        n=n,
        begin=partial(_same, bundle, dataset),
        threads=max(1, n_processors() // n),
    )
    predictions = []
    for piece, answer in zip(pieces, answers, strict=True):
        predictions.append(answer)
        progress(piece.end - piece.first)
    many = len(firsts)  # pieces of a condition
    return [
        Result(condition, *map(np.concatenate, zip(*predictions[i * many : (i + 1) * many], strict=True)))
        for i, condition in enumerate(conditions)
    ]


def evaluate_plain(
    bundle: Bundle, dataset: Dataset, *, batch_size: int = 64, progress: Progress = lambda n: None
) -> dict[str, float]:
    """Scores of the model's own objective, for data without a sample rate: loss and accuracy, or loss and mse."""
    objective, total = build_objective(bundle.config), None
    for examples in _batches(dataset, batch_size):
        batch = collate(examples)
        outputs = bundle.logits(batch)
        device = outputs[0].device
        total = add(total, objective.sums(outputs, batch.to(device)))
        progress(len(examples))
    if total is None:
        raise UserError("there are no examples to evaluate on; choose another --split")
    return {"n": len(dataset), **objective.scores(total)}


@contextmanager
def evaluation_options(model: nn.Module, condition: Condition) -> Iterator[None]:
    """Sets the condition's interpolation and mode mask on every S5SSM of ``model``; afterwards all is as before."""
    layers = [module for module in model.modules() if isinstance(module, S5SSM)]
    before = [(layer.interpolation, layer.mask_above_nyquist) for layer in layers]
    try:
        for layer in layers:
            layer.interpolation, layer.mask_above_nyquist = condition.interpolation, condition.mask_modes
        yield
    finally:
        for layer, (interpolation, mask) in zip(layers, before, strict=True):
            layer.interpolation, layer.mask_above_nyquist = interpolation, mask


def predict(bundle: Bundle, dataset: Dataset, piece: Piece) -> Predictions:
    """What the model says about one batch of clips."""
    condition = piece.condition
    noise = _noise(condition.noise) if condition.snr is not None else None
    batch = collate([_degraded(dataset[i], condition, bundle.rate, noise, i) for i in range(piece.first, piece.end)])
    with evaluation_options(bundle.model, condition):
        top = _probabilities(bundle, batch, condition).max(-1)  # of (N, K)
    return batch.y.numpy(), top.indices.numpy(), top.values.numpy()


def _same(*values: object) -> tuple:
    return values


def _predict_with(given: tuple[Bundle, Dataset], piece: Piece) -> Predictions:
    return predict(*given, piece)


def _probabilities(bundle: Bundle, batch: Batch, condition: Condition) -> Tensor:
    logits = bundle.logits(batch, rescale=condition.treatment != "none")
    return logits.float().softmax(-1).cpu()


_noise = cache(noise_from)  # a folder of recordings is read once


def _degraded(example: Example, condition: Condition, train_rate: float, noise: Noise | None, index: int) -> Example:
    waveform, rate = degraded(
        condition, example.x[:, 0].numpy(), example.rate, train_rate=train_rate, noise=noise, index=index
    )
    return replace(example, x=torch.from_numpy(np.ascontiguousarray(waveform))[:, None], rate=float(rate))


def _batches(dataset: Dataset, batch_size: int) -> Iterator[list[Example]]:
    for first in range(0, len(dataset), batch_size):
        yield [dataset[i] for i in range(first, min(first + batch_size, len(dataset)))]


def _check(bundle: Bundle, condition: Condition) -> None:
    options = condition.interpolation == "linear" or condition.mask_modes
    model = bundle.config.model
    if options and bundle.model.front.fixed_frame_rate:
        raise UserError(
            "linear interpolation and masking are for models whose S5 layers run at the input's rate "
            "(LinearFront); this one's front gives frames at a fixed rate"
        )
    if options and not isinstance(model.mixer, S5Mixer):
        raise UserError(
            f"linear interpolation and masking are for S5 layers; this model has {type(model.mixer).__name__}"
        )
    if condition.interpolation == "linear" and model.mixer.discretization != "zoh":
        raise UserError(
            "linear interpolation needs a model with model.mixer.discretization = zoh; this one has "
            f"{model.mixer.discretization}"
        )
    if isinstance(model.front, LogMelFront) and condition.treatment == "rescale" and condition.rate != bundle.rate:
        raise UserError("a log-mel front has no step to rescale; use --resample-back")

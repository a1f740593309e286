"""A constant on the clip decision for ``_unknown_``, fitted on the validation clips after the training.

Pieces of words and talk make ``_unknown_`` more frequent in training than among the clips that a model is judged by,
and its decisions lean that way. Only models whose frame decisions have a layer of their own (head.frame_decoder) are
fitted, so that what a stream hears stays as it is.
Legend: N clips, K classes.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from kws_s5.bundle import model_inputs
from kws_s5.config import ClassHead, ModelConfig
from kws_s5.data.batch import collate
from kws_s5.data.keywords.manifest import UNKNOWN

OFFSETS = torch.arange(-30, 31) / 10.0  # of a logit


def can_fit(config: ModelConfig, labels: tuple[str, ...]) -> bool:
    """Whether a clip decision for ``_unknown_`` can be changed without changing streams."""
    return isinstance(config.head, ClassHead) and config.head.frame_decoder and UNKNOWN in labels


@torch.no_grad()
def fit_unknown(model: nn.Module, labels: tuple[str, ...], clips: Dataset, *, batch_size: int) -> float:
    """Moves the bias of ``_unknown_`` in the clip decision of ``model``, which is left in evaluation; by how much."""
    device, unknown = next(model.parameters()).device, labels.index(UNKNOWN)
    logits, truth = [], []
    model.eval()
    for i in range(0, len(clips), batch_size):
        batch = collate([clips[k] for k in range(i, min(i + batch_size, len(clips)))])
        logits.append(model(**model_inputs(batch, model.config.rate, device=device)).float().cpu())
        truth.append(batch.y)
    offset = best_offset(torch.cat(logits), torch.cat(truth), unknown)
    model.head.decoder.bias[unknown] += offset
    return offset


def best_offset(logits: Tensor, truth: Tensor, unknown: int) -> float:
    """What to add to the logit of class ``unknown`` for the most right decisions: the smallest of equally good ones.

    Args:
        logits: (N, K) of the validation clips.
        truth: (N,) their classes.
    """
    right = []
    for offset in OFFSETS.tolist():
        moved = logits.clone()
        moved[:, unknown] += offset
        right.append(int((moved.argmax(-1) == truth).sum()))
    best = [offset for offset, n in zip(OFFSETS.tolist(), right, strict=True) if n == max(right)]
    return min(best, key=abs)

"""What every reader of data hands to training and evaluation: three data sets and what is known about them."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from kws_s5.config import Data
from kws_s5.data.keywords.segments import Segments


@dataclass
class Splits:
    """Disjoint sets of Examples. A training set with random choices takes them from ``set_epoch(epoch)``."""

    train: Dataset
    validation: Dataset
    test: Dataset
    labels: tuple[str, ...]  # names of the classes in the order of the outputs; () for regression
    n_outputs: int  # K
    n_inputs: int = 1  # U
    vocabulary: tuple[str, ...] = ()  # tokens by id
    report: dict[str, Any] = field(default_factory=dict)  # plain JSON: counts, choices made, files left out
    note: str = ""  # one line on the training data, kept in the model file
    data: Data | None = None  # the config with what was measured on the training set filled in; None: as it was
    segments: Segments | None = None  # made-up streams for training; None: there is no background
    noises: list[tuple[Tensor, float]] = field(default_factory=list)  # (L,) float32 and Hz: noise for augmentation

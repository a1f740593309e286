"""The one place where a sample rate becomes a step rescale.

A model is trained at ``train_rate`` (Hz), where one sample advances the continuous-time state by Delta. A recording at
``rate`` takes steps of train_rate / rate samples, so Delta is multiplied by that (S5 paper, section 6.2; 16 kHz model
on 8 kHz audio: 2.0).
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Number = TypeVar("Number", float, "Tensor")


def step_rescale(train_rate: float, rate: Number) -> Number:
    """Delta multiplier for audio at ``rate`` Hz (a number, or a tensor with one rate per clip)."""
    return train_rate / rate

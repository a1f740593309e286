"""What travels from data to model: examples and padded batches. Every task enters by this door.

Legend: N batch, L steps (longest of the batch), U input features, K targets.
"""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass
class Example:
    """One item of a data set."""

    x: Tensor  # (L, U) float32 features, or (L,) int64 tokens
    y: Tensor  # () int64 class, or (L, K) float32 targets
    rate: float = 0.0  # Hz; 0: the data has no rate
    dt: Tensor | None = None  # (L,) float32 step multipliers (irregular sampling)
    x2: Tensor | None = None  # the second document of a pair (retrieval)


@dataclass
class Batch:
    """N examples, zero-padded at the end. For pairs x holds 2N rows: first documents, then second documents."""

    x: Tensor  # (N, L, U) float32, or (N, L) int64 tokens
    lengths: Tensor  # (N,) int64: valid steps of each row of x
    y: Tensor  # (N,) int64 classes, (N, K) class probabilities (mixup), or (N, L, K) targets
    rates: Tensor | None = None  # (N,) float64, Hz
    dt: Tensor | None = None  # (N, L)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on ``device``."""
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(device) for k, v in moved.items() if v is not None})

    def __len__(self) -> int:
        return len(self.y)


def collate(examples: list[Example]) -> Batch:
    """Examples -> one Batch, padded with zeros to the longest."""
    rows = [e.x for e in examples] + [e.x2 for e in examples if e.x2 is not None]
    lengths = torch.tensor([len(x) for x in rows])
    L = int(lengths.max())
    x = pad(rows, L)
    per_step = examples[0].y.ndim > 0
    y = pad([e.y for e in examples], L) if per_step else torch.stack([e.y for e in examples])
    rates = torch.tensor([e.rate for e in examples], dtype=torch.float64) if examples[0].rate else None
    dt = pad([e.dt for e in examples], L) if examples[0].dt is not None else None
    return Batch(x, lengths, y, rates, dt)


def pad(rows: list[Tensor], L: int) -> Tensor:
    """Rows of different lengths -> (N, L, ...), zeros after each end."""
    out = rows[0].new_zeros((len(rows), L, *rows[0].shape[1:]))
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out

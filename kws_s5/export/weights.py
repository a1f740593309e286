"""Weight matrices inside a graph: float32, int8, or fewer bits, with one scale for each output.

    weights = Weights(graph, "int6")
    x = x @ weights.matrix(array)          # array (inputs, outputs); the Value is float32 whatever is stored
    weights.finish()                       # once, when all are known

    w = scale q,  q whole, |q| < 2^(bits-1)

All q of a model lie in one block, matrix by matrix. int8: as they are. Fewer bits: as bit planes, plane k holding bit k
of q + 2^(bits-1), eight to a byte, lowest first. The runtime unpacks the block once, when it loads the model, as
everything here depends on constants only. Each scale is the one with the smallest squared error.
"""

import math

import numpy as np

from kws_s5.export.description import Kind
from kws_s5.export.graph import Graph, Value

SHRINKS = np.linspace(0.5, 1.0, 26)  # of the scale that would just hold the largest weight


class Weights:
    """The matrices of one graph."""

    def __init__(self, graph: Graph, kind: Kind) -> None:
        self.graph, self.kind = graph, kind
        self._waiting: list[tuple[Value, np.ndarray]] = []

    def matrix(self, array: np.ndarray) -> Value:
        """(inputs, outputs) -> a float32 Value of the same shape."""
        array = np.asarray(array, np.float32)
        if self.kind == "float32":
            return self.graph.constant(array)
        value = self.graph.later("float32")
        self._waiting.append((value, array))
        return value

    def finish(self) -> None:
        """Stores the block and writes the nodes that unpack it, ahead of all others."""
        if not self._waiting:
            return
        bits = int(self.kind.removeprefix("int"))
        levels, scales = zip(*(quantise(array, bits) for _, array in self._waiting), strict=True)
        flat = np.concatenate([q.ravel() for q in levels])
        with self.graph.first():
            numbers = self.graph.constant(flat).to("float32") if bits == 8 else self._planes(flat, bits)
            sizes = np.array([q.size for q in levels])
            parts = self.graph.op("Split", numbers, sizes, n=len(levels), axis=0) if len(levels) > 1 else (numbers,)
            for part, q, scale, (value, _) in zip(parts, levels, scales, self._waiting, strict=True):
                self.graph.op("Mul", part.reshape(*q.shape), scale, output=value)

    def _planes(self, flat: np.ndarray, bits: int) -> Value:
        """(n,) float32 out of bits * n / 8 bytes."""
        g, unsigned = self.graph, pad8(flat + (1 << (bits - 1)))
        planes = np.stack([np.packbits(unsigned >> k & 1, bitorder="little") for k in range(bits)])  # (bits, n / 8)
        shifted = g.op("BitShift", g.constant(planes[:, :, None]), np.arange(8, dtype=np.uint8), direction="RIGHT")
        digits = g.op("BitwiseAnd", shifted, np.uint8([1])).to("float32").reshape(bits, -1)  # (bits, n)
        value = g.op("MatMul", g.constant(np.float32([[1 << k for k in range(bits)]])), digits)  # (1, n)
        return (value.reshape(-1) - float(1 << (bits - 1))).part(0, len(flat), 0)


def quantise(array: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, outputs) float32 -> whole numbers int8 of the same shape, scale (1, outputs) float32."""
    most = (1 << (bits - 1)) - 1
    full = np.maximum(np.abs(array).max(0, keepdims=True) / most, np.finfo(np.float32).tiny)
    best, least = full, np.full_like(full, math.inf)
    for shrink in SHRINKS:
        scale = np.float32(shrink) * full
        error = np.square(np.clip(np.rint(array / scale), -most, most) * scale - array).sum(0, keepdims=True)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return np.clip(np.rint(array / best), -most, most).astype(np.int8), best.astype(np.float32)


def pad8(flat: np.ndarray) -> np.ndarray:
    """As uint8, with zeros up to a multiple of eight."""
    return np.pad(flat, (0, -len(flat) % 8)).astype(np.uint8)

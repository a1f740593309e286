"""Complex numbers of a graph: a Pair of real Values, and the functions that coefficients.py asks for."""

import math
from typing import Any

import numpy as np

from kws_s5.export.graph import Graph, Value


class Pair:
    """re + i im. Both may be Values, arrays or numbers; operators as usual."""

    __array_ufunc__ = None  # numpy arrays leave mixed expressions to us

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag

    def conj(self) -> "Pair":
        return Pair(self.real, -self.imag)

    def __neg__(self) -> "Pair":
        return Pair(-self.real, -self.imag)

    def __add__(self, other: Any) -> "Pair":
        other = _pair(other)
        return Pair(self.real + other.real, self.imag + other.imag)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Pair":
        return self + -_pair(other)

    def __rsub__(self, other: Any) -> "Pair":
        return -self + other

    def __mul__(self, other: Any) -> "Pair":
        if not isinstance(other, Pair):
            return Pair(self.real * other, self.imag * other)
        return Pair(self.real * other.real - self.imag * other.imag, self.real * other.imag + self.imag * other.real)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Pair":
        if not isinstance(other, Pair):
            return Pair(self.real / other, self.imag / other)
        return self * other.conj() / (other.real * other.real + other.imag * other.imag)

    def __rtruediv__(self, other: Any) -> "Pair":
        return Pair(other, 0.0 * self.imag) / self


class GraphOps:
    """The functions, on a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def exp(self, x: Value) -> Value:
        return self.graph.op("Exp", x)

    def polar(self, r: Any, phi: Value) -> Pair:
        cos = self.graph.op("Sin", phi + 0.5 * math.pi)  # onnxruntime before 1.24 has no Cos in float64
        return Pair(r * cos, r * self.graph.op("Sin", phi))

    complex = staticmethod(Pair)

    def sum(self, z: Any) -> Any:
        """Over the last axis, which stays with size 1."""
        return Pair(self.sum(z.real), self.sum(z.imag)) if isinstance(z, Pair) else z.sum(-1, keep=True)

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        return self.graph.op("Where", condition, yes, no)

    def constant(self, x: np.ndarray) -> Value:
        return self.graph.constant(x)


def _pair(z: Any) -> Pair:
    return z if isinstance(z, Pair) else Pair(z, 0.0)

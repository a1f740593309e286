"""The bank as a graph: sound of any rate and length -> log power of every mode in every frame.

Samples run in blocks of T. Within a block everything is one matrix product for each mode: rows are the two samples
before the block, its T samples and the state of the n poles at its start; columns are the n-th pole at each sample. The
matrices hold powers of the pole and are worked out from the rate inside the graph. From block to block the states go
through a Scan of a 2n x 2n product for each mode. Frames then come out of a running sum (float64) of the power, read at
their edges, which may lie within samples. Between calls the state is exact at every sample, not only at block ends.

    u_{-2} u_{-1} | u_0 ... u_{T-1} | x^1 ... x^n (real, imaginary)   @   W (M, T + 2 + 2n, 2n, T)

Legend: N streams, l samples of a chunk, B whole blocks in it, M modes, n poles, T samples of a block, F frames that
become complete.
"""

import math
from dataclasses import dataclass

import numpy as np

from kws_s5.export.coefficients import NUMPY, OFFSET, SINE, TOLERANCE, USABLE, poles, taps
from kws_s5.export.complex_values import GraphOps, Pair
from kws_s5.export.constants import Constants
from kws_s5.export.graph import Graph, Value

T = 16


@dataclass(frozen=True)
class BankState:
    """What a stream carries over; all zero before its first sample."""

    position: Value  # () int64, samples heard
    recent: Value  # (N, 2) float32, the last two samples, the newest last
    modes: Value  # (N, M, 2n) float32: re and im of the first pole, of the second, ...
    power: Value  # (N, M) float32, summed since the last frame edge


class Bank:
    """The part of the graph that depends on the rate."""

    def __init__(self, graph: Graph, constants: Constants, rate: float | None) -> None:
        """``rate``: Hz; None: an input of the graph."""
        self.g, self.constants, self.fixed = graph, constants, rate
        self.rate = graph.input("rate", "float64", []) if rate is None else graph.constant(np.array(rate, np.float64))
        self.ops = GraphOps(graph)
        self.M, self.n = len(constants.decay), constants.n_poles
        self.decay, self.frequency = (graph.constant(v[:, None]) for v in (constants.decay, constants.frequency))
        self.step = self.rate / constants.frame_rate  # () float64, samples per frame

    def taps(self) -> Value:
        """(6, M, 1) float64: real and imaginary part of each tap, scaled. The costly part of a new rate."""
        scale = self.constants.gain * SINE
        if self.fixed is not None:
            c = taps(NUMPY, self.constants.decay[:, None], self.constants.frequency[:, None], self.fixed, self.n)
            return self.g.constant(scale * np.stack([part for tap in c for part in (tap.real, tap.imag)]))
        c = taps(self.ops, self.decay, self.frequency, self.rate, self.n)
        parts = [part for tap in c for part in (tap.real, tap.imag)]
        return self.g.concat([part.reshape(1, self.M, 1) for part in parts], 0) * scale

    def table(self, scaled: Value) -> Value:
        """W (M, 2n, T + 2 + 2n, T) float32; second axis: re and im of the first pole, of the second, ..."""
        g, n = self.g, self.n
        c = [Pair(*(scaled.take(2 * t + i, 0) for i in (0, 1))) for t in range(3)]  # (M, 1) each
        powers = poles(self.ops, self.decay, self.frequency, self.rate, np.arange(T + 1.0)[None, :])  # (M, T + 1)
        now, ahead = (Pair(*(part.part(i, T + i, 1) for part in (powers.real, powers.imag))) for i in (0, 1))
        before, inside, states = [], [], []
        for p in range(n):
            h = now * _binomials(p)  # response to v, by age
            late = [_later(g, h, k) for k in (1, 2)]
            before += [c[2] * h, c[1] * h + c[2] * late[0]]  # to the two samples before the block
            inside.append(c[0] * h + c[1] * late[0] + c[2] * late[1])  # to a sample inside
            for z in (ahead * _binomials(p - q) if q <= p else ahead * 0.0 for q in range(n)):
                states += [z, Pair(-z.imag, z.real)]  # to the real and the imaginary part of a pole's state
        before, inside, states = (self._stacked(pairs, n) for pairs in (before, inside, states))
        return g.concat([before, self._toeplitz(inside), states], 2).to("float32")

    def present(self) -> Value:
        """(M,) bool: modes that the rate can carry."""
        return (self.frequency <= self.rate * (0.5 * USABLE)).reshape(-1)

    def run(
        self, sound: Value, state: BankState, table: Value, *, mask: Value | None = None, short: bool = False
    ) -> tuple[Value, BankState]:
        """sound (N, l) float32 -> mean powers (F, N, M) float32, and the next state.

        ``mask`` (N, l) float32 0 or 1, of samples that count. ``short``: a chunk of less than a frame gives one too.
        """
        g, M, n = self.g, self.M, self.n
        N, l = sound.size(0), sound.size(1)
        sound = sound + OFFSET
        sound = sound if mask is None else sound * mask
        recent = g.concat([state.recent, sound], 1).part(-2, None, 1)
        B = g.op("Div", l, T)
        blocks, rest = B + 1, l - B * T
        padded = _end_padded(g, sound, (blocks * T) - l).reshape(N, blocks, T)
        tails = padded.part(0, B, 1).part(T - 2, None, 2)  # (N, B, 2)
        before = g.concat([state.recent.reshape(N, 1, 2), tails], 1)  # (N, B + 1, 2)
        u = g.concat([before, padded], 2)  # (N, B + 1, T + 2)
        states = self._states(u, state.modes, table, N, blocks)  # (M, N, B + 1, 2n) at the starts of the blocks
        u_rows, state_rows = u.reshape(1, -1, T + 2), states.reshape(M, -1, 2 * n)
        last = [table.take(2 * n - 2 + i, 1) for i in (0, 1)]  # (M, T + 2 + 2n, T)
        re, im = (u_rows @ w.part(0, T + 2, 1) + state_rows @ w.part(T + 2, None, 1) for w in last)
        power = (re * re + im * im).reshape(M, N, blocks * T)
        if mask is not None:
            power = power * _end_padded(g, mask, (blocks * T) - l).reshape(1, N, blocks * T)
        frames, left = self._frames(power, l, state, short)
        modes = self._after(u, states, table, rest)
        return frames, BankState(state.position + l.reshape(), recent, modes, left)

    def _stacked(self, pairs: list[Pair], n: int) -> Value:
        """n k pairs (M, T) -> (M, 2n, k, T): for each pole the real and the imaginary parts of its k pairs."""
        k = len(pairs) // n
        poles_ = [pairs[p * k : p * k + k] for p in range(n)]
        parts = [getattr(pair, part) for own in poles_ for part in ("real", "imag") for pair in own]
        return self.g.concat([part.reshape(self.M, 1, T) for part in parts], 1).reshape(self.M, 2 * n, k, T)

    def _toeplitz(self, response: Value) -> Value:
        """Responses by age (M, 2n, 1, T) -> (M, 2n, T, T): row j, column k: what sample j adds at sample k.

        Rows of 2T, one behind the other and cut again after 2T - 1, move by one from row to row.
        """
        M, n2 = self.M, 2 * self.n
        wide = self.g.op("Pad", response, np.array([0, 0, 0, 0, 0, 0, 0, T]))
        tiled = self.g.op("Expand", wide, np.array([M, n2, T, 2 * T])).reshape(M, n2, 2 * T * T)
        return tiled.part(0, T * (2 * T - 1), 2).reshape(M, n2, T, 2 * T - 1).part(0, T, 3)

    def _states(self, u: Value, modes: Value, table: Value, N: Value, blocks: Value) -> Value:
        """(M, N, B + 1, 2n): the poles at the start of every block."""
        M, n = self.M, self.n
        ends = table.take(T - 1, 3).transpose(0, 2, 1)  # (M, T + 2 + 2n, 2n)
        driven = u.reshape(1, -1, T + 2) @ ends.part(0, T + 2, 1)  # (M, N (B + 1), 2n)
        driven = driven.reshape(M, N, blocks, 2 * n).transpose(2, 0, 1, 3)
        turn = ends.part(T + 2, None, 1)  # (M, 2n, 2n)
        starts = self.g.scan(modes.transpose(1, 0, 2), driven, lambda s, v: (s @ turn + v, s))
        return starts.transpose(1, 2, 0, 3)

    def _after(self, u: Value, states: Value, table: Value, rest: Value) -> Value:
        """(N, M, 2n): the poles behind the last sample, of which ``rest`` (1,) lie in the last block."""
        g, M, n = self.g, self.M, self.n
        begin = states.take(-1, 2)  # (M, N, 2n)
        x = u.take(-1, 1) @ table.part(0, T + 2, 2) + begin.reshape(M, 1, -1, 2 * n) @ table.part(T + 2, None, 2)
        at = g.op("Max", rest - 1, np.array([0])).reshape()
        x = x.take(at, 3).transpose(0, 2, 1)  # (M, 2n, N, T) -> (M, N, 2n)
        return g.op("Where", rest > 0, x, begin).transpose(1, 0, 2)

    def _frames(self, power: Value, l: Value, state: BankState, short: bool) -> tuple[Value, Value]:
        """power (M, N, (B + 1) T) at the samples -> frame means (F, N, M), power behind the last edge (N, M)."""
        g = self.g
        position, count = state.position.to("float64"), l.reshape().to("float64")
        first, end = ((x + TOLERANCE) / self.step for x in (position, position + count))
        first, end = (g.op("Floor", x) for x in (first, end))  # frames complete before, and now
        end = g.op("Max", end, 1.0) if short else end
        edges = g.op("Range", first + 1.0, end + 1.0, 1.0) * self.step  # (F,) samples from the start
        whole = g.op("Round", edges)
        edges = g.op("Where", g.op("Abs", edges - whole) < TOLERANCE, whole, edges) - position
        edges = g.op("Min", edges, count)
        at = g.op("Floor", edges)
        part, at = edges - at, at.to("int64")
        total = g.op("CumSum", power.to("float64"), np.array(2), exclusive=1)
        sums = total.take(at, 2) + part * power.take(at, 2).to("float64")  # (M, N, F) up to the edges
        before = -state.power.to("float64").transpose(1, 0).reshape(self.M, -1, 1)
        sums = g.concat([before, sums, total.take(l, 2)], 2)
        parts = sums.part(1, None, 2) - sums.part(0, -1, 2)  # (M, N, F + 1)
        frames = (parts.part(0, -1, 2) / self.step).to("float32").transpose(2, 1, 0)
        return frames, parts.take(-1, 2).to("float32").transpose(1, 0)


def _binomials(p: int) -> np.ndarray:
    """(1, T) C(k + p, p): what p more poles of the same kind make of a power a^k."""
    return np.array([[float(math.comb(k + p, p)) for k in range(T)]])


def _later(g: Graph, z: Pair, k: int) -> Pair:
    """(M, T) k samples later, zeros before."""
    return z if k == 0 else Pair(*(_end_padded(g, part.part(0, T - k, 1), k, front=True) for part in (z.real, z.imag)))


def _end_padded(g: Graph, x: Value, k: Value | int, *, front: bool = False) -> Value:
    """(a, b) with k zeros behind (or before) each row."""
    none, k = g.sizes(0), g.sizes(k)
    return g.op("Pad", x, g.concat([none, k, none, none] if front else [none, none, none, k], 0))

"""Two graphs of a model: the next samples of a stream -> frame logits, and whole clips -> logits. Real arithmetic only.

    step    sound (N, l), rate (), state                  -> logits (N, f, K), next state
    clip    sound (N, L), lengths (N,), rate ()           -> logits (N, K)

N, l and L are free in every call, and so is the rate unless it is fixed here. The state of a new stream is zero in all
of its tensors (``STATE``; docs/porting.md). With a free rate the bank's taps belong to the state: the call that finds
position 0 works them out. Legend: N batch, F frames (the first axis inside), M modes, H features, P states, K outputs.
"""

from typing import Any

import numpy as np
from onnx import ModelProto

from kws_s5.export.bank_graph import Bank, BankState
from kws_s5.export.coefficients import TOLERANCE
from kws_s5.export.constants import LAYER_EPSILON, Constants, Dense, Layer, Norm
from kws_s5.export.description import Kind
from kws_s5.export.graph import Graph, Value
from kws_s5.export.weights import Weights

GELU = (2 * np.sqrt(2 / np.pi), 2 * np.sqrt(2 / np.pi) * 0.044715)  # of x, of x^3


def state_of(constants: Constants, *, free_rate: bool) -> dict[str, tuple[str, list[int | str]]]:
    """Type and shape of every tensor of a stream's state."""
    c, M = constants, len(constants.decay)
    state = {
        "position": ("int64", []),
        "recent": ("float32", ["N", 2]),
        "modes": ("float32", ["N", M, 2 * c.n_poles]),
        "power": ("float32", ["N", M]),
    }
    if free_rate:
        state["taps"] = ("float64", [6, M, 1])
    if c.layers:
        state["layers"] = ("float32", ["N", len(c.layers), 2 * len(c.layers[0].Lambda_bar)])
    if c.pooling == "mean":
        state["votes"] = ("float32", ["N", c.window, len(c.decoder[1])])
    return state


def zero_state(constants: Constants, N: int, *, free_rate: bool) -> dict[str, np.ndarray]:
    """The state of N new streams."""
    return {
        name: np.zeros([N if size == "N" else size for size in shape], dtype)
        for name, (dtype, shape) in state_of(constants, free_rate=free_rate).items()
    }


def step_graph(
    constants: Constants, *, rate: float | None = None, weights: Kind = "float32", metadata: dict[str, Any]
) -> ModelProto:
    """The streaming step. ``rate`` in Hz fixes it; None: it becomes an input."""
    c, K = constants, len(constants.decoder[1])
    body = _Body(c, weights)
    g = body.g
    sound = g.input("sound", "float32", ["N", "l"])
    bank = Bank(g, c, rate)
    shapes = state_of(c, free_rate=rate is None)
    state = {name: g.input(name, *kind) for name, kind in shapes.items()}
    scaled = _taps(bank, state)
    heard = BankState(*(state[name] for name in ("position", "recent", "modes", "power")))
    frames, after = bank.run(sound, heard, bank.table(scaled))
    following = {"position": after.position, "recent": after.recent, "modes": after.modes, "power": after.power}
    if "taps" in state:
        following["taps"] = scaled
    before = g.op("Floor", (state["position"].to("float64") + TOLERANCE) / bank.step).to("int64")
    behind = [name for name in ("layers", "votes") if name in state]

    def some() -> list[Value]:
        x, layers = body.layers(body.features(bank, frames), state.get("layers"))
        logits, votes = body.frame_logits(x, state.get("votes"), before)
        return [logits, *({"layers": layers, "votes": votes}[name] for name in behind)]

    def none() -> list[Value]:
        return [_zeros(g, sound.size(0), 0, K), *(state[name] for name in behind)]

    logits, *last = g.choose((frames.size(0) > 0).reshape(), some, none)
    following |= dict(zip(behind, last, strict=True))
    g.output("logits", logits, ["N", "f", K])
    for name, (_, shape) in shapes.items():
        g.output(f"next_{name}", following[name], shape)
    return body.model("kws_s5 step", metadata)


def clip_graph(
    constants: Constants, *, rate: float | None = None, weights: Kind = "float32", metadata: dict[str, Any]
) -> ModelProto:
    """Whole clips. ``rate`` as in ``step_graph``."""
    c, M, K = constants, len(constants.decay), len(constants.decoder[1])
    body = _Body(c, weights)
    g = body.g
    sound, lengths = g.input("sound", "float32", ["N", "L"]), g.input("lengths", "int64", ["N"])
    bank = Bank(g, c, rate)
    N = sound.size(0)
    silent = (_zeros(g, N, 2), _zeros(g, N, M, 2 * c.n_poles), _zeros(g, N, M))
    heard = BankState(g.constant(np.array(0, np.int64)), *silent)
    counts = lengths.reshape(-1, 1)
    mask = (g.op("Range", np.array(0), sound.size(1).reshape(), np.array(1)) < counts).to("float32")
    frames, _ = bank.run(sound, heard, bank.table(bank.taps()), mask=mask, short=True)
    layers = _zeros(g, N, len(c.layers), 2 * len(c.layers[0].Lambda_bar)) if c.layers else None
    x, _ = body.layers(body.features(bank, frames), layers)  # (F, N, H)
    complete = g.op("Floor", (counts.to("float64") + TOLERANCE) / bank.step).to("int64")
    valid = g.op("Max", complete, g.op("Min", counts, np.array([1])))  # (N, 1)
    g.output("logits", body.clip_logits(x, valid), ["N", K])
    return body.model("kws_s5 clip", metadata)


class _Body:
    """What lies behind the bank, on frames (F, N, .) of at least one frame."""

    def __init__(self, constants: Constants, weights: Kind) -> None:
        self.c, self.g = constants, Graph()
        self.weights = Weights(self.g, weights)

    def model(self, name: str, metadata: dict[str, Any]) -> ModelProto:
        self.weights.finish()
        return self.g.model(name, metadata)

    def features(self, bank: Bank, frames: Value) -> Value:
        """Powers (F, N, M) -> features (F, N, H)."""
        c = self.c
        x = self._normalise(self.g.op("Log", frames + c.floor), c.norm)
        if c.absent:
            x = self.g.op("Where", bank.present(), x, np.float32(c.bias))
        return self._dense(x, c.encoder)

    def layers(self, x: Value, state: Value | None) -> tuple[Value, Value | None]:
        """Features (F, N, H) and state (N, layers, 2P) -> the next ones."""
        last = []
        for i, layer in enumerate(self.c.layers):
            x, following = self._layer(layer, x, state.take(i, 1))
            last.append(following.reshape(-1, 1, 2 * len(layer.Lambda_bar)))
        return x, self.g.concat(last, 1) if last else None

    def frame_logits(self, x: Value, votes: Value | None, before: Value) -> tuple[Value, Value | None]:
        """Features (F, N, H), votes (N, W, K), frames before () -> logits (N, F, K), next votes."""
        g, c = self.g, self.c
        new = (x @ self.weights.matrix(c.frame_decoder[0].T)).transpose(1, 0, 2)  # (N, F, K)
        bias = np.float32(c.frame_decoder[1])
        if votes is None:
            return new + bias, None
        W, f = c.window, x.size(0)
        history = g.concat([votes, new], 1)  # (N, W + F, K)
        total = g.op("CumSum", history.to("float64"), np.array(1))
        sums = total.part(W, None, 1) - total.part(0, f, 1)  # (N, F, K) over the last W frames
        seen = g.op("Range", before + 1, before + f.reshape() + 1, g.constant(np.array(1)))
        seen = g.op("Min", seen, W).to("float64").reshape(-1, 1)
        return (sums / seen).to("float32") + bias, history.part(-W, None, 1)

    def clip_logits(self, x: Value, valid: Value) -> Value:
        """Features (F, N, H) of which ``valid`` (N, 1) count -> logits (N, K)."""
        g, c = self.g, self.c
        frames = g.op("Range", np.array(0), x.size(0).reshape(), np.array(1))  # (F,)
        counted = (frames < valid) if c.pooling == "mean" else g.op("Equal", frames, valid - 1)  # (N, F)
        share = counted.to("float32")
        if c.pooling == "mean":
            share = share / g.op("Max", valid, np.array([1])).to("float32")
        pooled = share.reshape(-1, 1, x.size(0)) @ x.transpose(1, 0, 2)  # (N, 1, H)
        return self._dense(pooled, c.decoder).reshape(-1, len(c.decoder[1]))

    def _layer(self, layer: Layer, x: Value, state: Value) -> tuple[Value, Value]:
        c, P = self.c, len(layer.Lambda_bar)
        u = self._normalise(x, layer.norm) if c.prenorm else x
        re, im = (self.g.constant(np.float32(part)) for part in (layer.Lambda_bar.real, layer.Lambda_bar.imag))
        a, b = self.g.concat([re, re], 0), self.g.concat([-im, im], 0)
        swap = np.roll(np.arange(2 * P), P)
        Bu = u @ self.weights.matrix(np.concatenate([layer.B_bar.real, layer.B_bar.imag]).T)  # (F, N, 2P)

        def advance(s: Value, v: Value) -> tuple[Value, Value]:
            s = s * a + s.take(swap, 1) * b + v
            return s, s

        xs = self.g.scan(state, Bu, advance)
        y = xs @ self.weights.matrix(np.concatenate([layer.C.real, -layer.C.imag], 1).T) + u * np.float32(layer.D)
        y = y if layer.ssm_norm is None else self._normalise(y, layer.ssm_norm)
        z = x + self._activate(layer, y)
        return (z if c.prenorm else self._normalise(z, layer.norm)), xs.take(-1, 0)

    def _activate(self, layer: Layer, y: Value) -> Value:
        if self.c.activation in ("none", "relu"):
            return y if self.c.activation == "none" else self.g.op("Relu", y)
        h = y * self.g.op("Sigmoid", y * (y * y * GELU[1] + GELU[0]))
        if self.c.activation == "gelu":
            return h
        gate = self.g.op("Sigmoid", self._dense(h, layer.out2))
        if self.c.activation == "full_glu":
            h = self._dense(h, layer.out1)
        return (y if self.c.activation == "half_glu2" else h) * gate

    def _dense(self, x: Value, dense: Dense) -> Value:
        return x @ self.weights.matrix(dense[0].T) + np.float32(dense[1])

    def _normalise(self, x: Value, norm: Norm) -> Value:
        gain, shift = np.float32(norm.gain), np.float32(norm.shift)
        if norm.centred:
            return self.g.op("LayerNormalization", x, gain, shift, axis=-1, epsilon=LAYER_EPSILON)
        return x * gain + shift


def _taps(bank: Bank, state: dict[str, Value]) -> Value:
    """Those of the state, but worked out at a stream's first sample, and always where no state holds them."""
    if "taps" not in state:
        return bank.taps()
    fresh = bank.g.op("Equal", state["position"], np.array(0))
    return bank.g.choose(fresh, lambda: [bank.taps()], lambda: [state["taps"]])[0]


def _zeros(g: Graph, N: Value, *sizes: int) -> Value:
    """(N, *sizes) float32."""
    return g.op("ConstantOfShape", g.concat([N, *map(g.sizes, sizes)], 0), dtype="float32")

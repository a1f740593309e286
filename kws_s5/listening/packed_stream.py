"""Streams on packed weights (packed_weights.py): a chunk costs two compiled calls, the bank's and stream/kernel.py's.

    stream = PackedStream(model, state)                   # for the weights, rate and number of streams of now
    logits = stream.advance(x, state)               # samples (N, l) -> (N, f, K); writes the next state into ``state``

Equals SequenceModel.stream within rounding, and is the same to the last bit however the sound is cut.
Legend: N streams, l samples of a chunk, f frames, M modes, H features, P states, K outputs, W votes kept.
"""

import ctypes

import numpy as np
import torch

from kws_s5.listening.packed_weights import PackedModel, can_pack, pack
from kws_s5.model.front import State
from kws_s5.model.front_bank import Bank
from kws_s5.model.sequence import SequenceModel, substate
from kws_s5.ops.bank.frames import count_frames
from kws_s5.ops.bank.kernel import forward_kernel
from kws_s5.ops.common.threads import run_parallel
from kws_s5.ops.stream import kernel

__all__ = ["PackedStream", "can_pack", "compile_for"]
SMALL = 16  # rows below which starting threads costs more than it saves


def compile_for(model: SequenceModel) -> None:
    """Compiles what streams of this model run on, once for all."""
    kernel.compiled()
    if isinstance(model.front, Bank):
        _bank_kernel(model.front)


class PackedStream:
    """Moves states of one model on. For one thread at a time; the packed weights may be shared."""

    def __init__(self, model: SequenceModel, state: State) -> None:
        """``state``: one of those that will be moved on, from SequenceModel.initial_state; it is only looked at.

        Weights that change later, and ``model`` in training mode, change nothing here (fronts other than Bank do).
        """
        self._front, self._run = model.front, _Kernel(kernel.compiled())
        self._packed = pack(model, float(state["step_rescale"]), state.get("front.rate"))
        self._state: State | None = None  # the one that the jobs below belong to
        self._scratch = np.zeros(0, np.float32)

    def advance(self, x: np.ndarray, state: State) -> np.ndarray:
        """The next samples (N, l) float32 -> logits (N, f, K) float32. ``state`` becomes the next one, in place."""
        if state is not self._state:
            self._take(state)
        x = np.ascontiguousarray(x, np.float32)
        rows = self._powers.advance(x) if self._powers else self._features(x, state)  # (N, f, M) or (N, f, H)
        N, f = rows.shape[:2]
        logits = np.empty((N, f, self._packed.K), np.float32)
        if f:
            self._frames(rows, logits)
        return logits

    def _take(self, state: State) -> None:
        """Gets jobs ready that work on the memory of these tensors."""
        for name, value in state.items():
            state[name] = value.contiguous()
        self._state = state
        self._powers = _Powers(self._front, state) if isinstance(self._front, Bank) else None
        self._seen = state["head.seen"].numpy() if "head.seen" in state else np.zeros((), np.int64)
        self._job = _job(self._packed, state)

    def _features(self, x: np.ndarray, state: State) -> np.ndarray:
        """The front as a module, for all but Bank."""
        with torch.no_grad():
            frames, front = self._front.stream(torch.from_numpy(x)[..., None], substate(state, "front."))
        state |= {f"front.{name}": value for name, value in front.items()}
        return np.ascontiguousarray(frames.float().numpy())

    def _frames(self, rows: np.ndarray, logits: np.ndarray) -> None:
        """Fills ``logits``."""
        (N, f), job = rows.shape[:2], self._job
        n_threads = min(torch.get_num_threads(), N) if N * f >= SMALL else 1
        share = -(-N // n_threads)
        items = -(-N // share)
        scratch = self._scratch_for(items)
        job[kernel.COUNTER], job[kernel.ITEMS], job[kernel.SHARE] = 0, items, share
        job[kernel.STREAMS], job[kernel.FRAMES], job[kernel.SEEN] = N, f, self._seen
        job[kernel.INPUT], job[kernel.LOGITS], job[kernel.SCRATCH] = rows.ctypes.data, logits.ctypes.data, scratch
        self._run(job, items)
        self._seen += f

    def _scratch_for(self, items: int) -> int:
        """Address of memory for so many items, from a whole vector on."""
        size = 4 * items * kernel.ROWS * self._packed.widest + kernel.LANES
        if len(self._scratch) < size:
            self._scratch = np.zeros(size, np.float32)
        address, vector = self._scratch.ctypes.data, kernel.LANES * kernel.SIZE
        return -(-address // vector) * vector


def _job(packed: PackedModel, state: State) -> np.ndarray:
    """What stays in the kernel's job from call to call."""
    job = dict.fromkeys(range(kernel.TABLE), 0)
    job |= {
        kernel.MODES: packed.M,
        kernel.FEATURES: packed.H,
        kernel.STATES: packed.width,
        kernel.OUTPUTS: packed.K,
        kernel.LAYERS: packed.n_layers,
        kernel.WIDEST: packed.widest,
        kernel.LEVEL: packed.address("level"),
        kernel.ENCODER: packed.address("encoder"),
        kernel.ENCODER_BIAS: packed.address("encoder_bias"),
        kernel.DECODER: packed.address("decoder"),
        kernel.NO_BIAS: packed.address("nothing"),
        kernel.BIAS: packed.address("bias"),
    }
    if "head.votes" in state:
        job |= {
            kernel.WINDOW: state["head.votes"].shape[1],
            kernel.VOTES: state["head.votes"].data_ptr(),
            kernel.SUMS: state["head.sums"].data_ptr(),
        }
    layers = packed.table([state[f"layers.{i}"] for i in range(packed.n_layers)])
    return np.array([*job.values(), *layers], np.int64)


class _Kernel:
    """A compiled function of one pointer; few numbers of work stay on the calling thread."""

    def __init__(self, address: int) -> None:
        self._address, self._call = address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)

    def __call__(self, job: np.ndarray, n_threads: int) -> None:
        if n_threads == 1:
            self._call(job.ctypes.data)
        else:
            run_parallel(self._address, job, n_threads)


def _bank_kernel(bank: Bank) -> int:
    return forward_kernel(len(bank.log_decay), bank.n_poles, False)


class _Powers:
    """The bank's powers of the frames that samples complete; moves the front's part of ``state`` on in place."""

    def __init__(self, bank: Bank, state: State) -> None:
        a, c, recent, memory, rate = (state[f"front.{name}"] for name in ("a", "c", "recent", "memory", "rate"))
        self._position, self._M = state["front.position"].numpy(), len(bank.log_decay)
        self._step, self._lengths = np.array([float(rate[0]) / bank.frame_rate]), np.zeros(len(memory), np.int64)
        self._run = _Kernel(_bank_kernel(bank))
        constants = [x.data_ptr() for x in (a, c, recent, memory)]
        addresses = [0, self._lengths.ctypes.data, self._step.ctypes.data, *constants, 0]
        self._job = np.array([0, len(memory), 0, 1, 0, 0, 0, *addresses], np.int64)  # bank/kernel.py

    def advance(self, x: np.ndarray) -> np.ndarray:
        """Samples (N, l) -> (N, f, M)."""
        (N, L), step, job, position = x.shape, float(self._step[0]), self._job, int(self._position)
        F = count_frames(position + L, step) - count_frames(position, step)
        power = np.empty((N, F, self._M), np.float32)
        self._lengths[:] = L
        job[0], job[2], job[4], job[5], job[7], job[14] = 0, L, F, position, x.ctypes.data, power.ctypes.data
        self._run(job, min(torch.get_num_threads(), N) if N * F >= SMALL else 1)
        self._position += L
        return power

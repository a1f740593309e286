"""An exported model that listens: numpy and onnxruntime, neither torch nor lightning.

    model = OnnxModel("commands12.onnx")                 # written by kws-export
    spotter = KeywordSpotter("commands12.onnx")          # or by name of the file, as with every other model

Graphs of strangers compute what they like, but reach no file: the model is handed over as bytes, without a folder that
outside data could lie in, and is refused where it asks for any.

Legend: N streams, l samples of a chunk, f frames, K outputs.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from kws_s5.audio.samples import shown
from kws_s5.errors import UserError
from kws_s5.export.description import KEY, Description, described
from kws_s5.listening.engine import State

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}
MOST = 1 << 14  # samples of all streams in one call: bounds memory, some 25 MB
MAX_BYTES = 1 << 28
MAX_STATE = 1 << 22  # numbers of one stream
OUTSIDE = re.compile(rb"[\0\b]location")  # a tensor's entry that names another file; no JSON has these bytes before it


class OnnxModel:
    """A step graph with its labels and thresholds, as ``Bundle`` has them."""

    def __init__(self, path: str | Path) -> None:
        """Raises UserError for files that are no exported step, and where onnxruntime is missing."""
        self.path = Path(path).expanduser()
        self.session = opened(self.path)
        self.description = description_of(self.session, self.path)
        if self.description.kind != "step":
            raise UserError(
                f"{shown(self.path)}: holds the {self.description.kind} graph, which hears whole clips; "
                "streams need the step graph that kws-export writes beside it"
            )
        problem = misfit(self.session)
        if problem:
            raise UserError(f"{shown(self.path)}: no step graph that kws-export wrote ({problem})")

    @property
    def labels(self) -> tuple[str, ...]:
        return self.description.labels

    @property
    def thresholds(self) -> dict[str, float]:
        return self.description.thresholds

    @property
    def rate(self) -> float:
        """Training rate in Hz."""
        return self.description.rate

    @property
    def seconds(self) -> float:
        """Length of the training clips; 0: not told."""
        return self.description.seconds

    def engine(self, rate: float, n_streams: int) -> "OnnxEngine":
        """What runs a stream at ``rate`` Hz (session.py). Raises UserError for rates that the model refuses."""
        d = self.description
        if d.fixed_rate and rate != d.fixed_rate:
            raise UserError(
                f"sound at {rate:g} Hz: {shown(self.path)} was exported for {d.fixed_rate:g} Hz; export it "
                "without --rate, or for this rate"
            )
        if rate < d.lowest:
            raise UserError(f"sound at {rate:g} Hz: this model needs at least {d.lowest:g} Hz")
        return OnnxEngine(self, rate, n_streams)


class OnnxEngine:
    """State carried from chunk to chunk, as numpy arrays; zero at the start of a stream."""

    remark = ""
    stored = staticmethod(np.asarray)

    def __init__(self, model: OnnxModel, rate: float, n_streams: int) -> None:
        self._session, self._n_streams, self._model = model.session, n_streams, model
        self.step = rate / model.description.frame_rate
        self._most = max(1, MOST // n_streams)
        inputs = {value.name: value for value in model.session.get_inputs()}
        self._rate = {"rate": np.array(rate, np.float64)} if "rate" in inputs else {}
        self._states = {name: value for name, value in inputs.items() if name not in ("sound", "rate")}
        self._outputs = ["logits", *(f"next_{name}" for name in self._states)]

    def initial_state(self) -> State:
        """Silence."""
        return {
            name: np.zeros(
                [size if isinstance(size, int) else self._n_streams for size in value.shape], TYPES[value.type]
            )
            for name, value in self._states.items()
        }

    def run(self, x: np.ndarray, state: State, start: int) -> tuple[np.ndarray, State]:
        """The next samples x (N, l), l >= 1 -> logits (N, f, K) and the next state."""
        pieces = []
        for begin in range(0, x.shape[1], self._most):
            inputs = {"sound": x[:, begin : begin + self._most], **self._rate, **state}
            try:
                logits, *following = self._session.run(self._outputs, inputs)
            except Exception as error:  # onnxruntime's own classes
                raise self._foreign(reason_of(error)) from None
            self._check(logits, inputs["sound"].shape[1])
            state = dict(zip(self._states, following, strict=True))
            pieces.append(logits)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, 1), state

    def _check(self, logits: Any, n_samples: int) -> None:
        """Raises UserError unless these can be the logits of a chunk."""
        shape = getattr(logits, "shape", None)
        K = len(self._model.labels)
        if getattr(logits, "dtype", None) != np.float32 or len(shape) != 3 or shape[::2] != (self._n_streams, K):
            raise self._foreign(f"logits of shape {shape} for {K} labels")
        if abs(shape[1] - n_samples / self.step) > 1.01:
            raise self._foreign(f"{shape[1]} frames for {n_samples} samples")
        if not np.isfinite(logits).all():
            raise self._foreign("logits that are no numbers")

    def _foreign(self, problem: str) -> UserError:
        return UserError(
            f"{shown(self._model.path)}: does not run as a model of kws-export does ({problem}); export it again"
        )


def opened(path: Path) -> Any:
    """An onnxruntime session on one thread; UserError for what cannot be one."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError("exported models need onnxruntime: pip install 'kws-s5[onnx-runtime]'") from None
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{shown(path)}: more than {MAX_BYTES >> 20} MB; not a model that kws-export wrote")
        content = path.read_bytes()
        if OUTSIDE.search(content):
            raise UserError(f"{shown(path)}: wants data from another file; not a model that kws-export wrote")
    except OSError as error:
        raise UserError(f"{shown(path)}: cannot be read ({error.strerror})") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # products too small to be shared
    options.log_severity_level = 4  # its errors become ours
    options.add_session_config_entry("session.load_model_format", "ONNX")  # no other format is looked for
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, none of them public
        raise UserError(f"{shown(path)}: not a model that onnxruntime can run ({reason_of(error)})") from None


def reason_of(error: Exception) -> str:
    """onnxruntime's words in short."""
    lines = str(error).strip().splitlines() or [""]
    return shown(lines[0].removeprefix("[ONNXRuntimeError] : ")[:120])


def misfit(session: Any) -> str:
    """Why a graph cannot be stepped: its inputs and outputs; empty if it can."""
    inputs = {value.name: value for value in session.get_inputs()}
    outputs = {value.name for value in session.get_outputs()}
    states = {name: value for name, value in inputs.items() if name not in ("sound", "rate")}
    if "sound" not in inputs or not {"logits", *(f"next_{name}" for name in states)} <= outputs:
        return "its inputs and outputs are others"
    for name, value in states.items():
        sizes = [size for size in value.shape if isinstance(size, int)]
        if value.type not in TYPES or math.prod(sizes) > MAX_STATE or any(size < 0 for size in sizes):
            return f"{shown(name)} is {value.type} {value.shape}"
    return ""


def description_of(session: Any, path: Path) -> Description:
    """What kws-export wrote about the model; UserError where it did not."""
    text = session.get_modelmeta().custom_metadata_map.get(KEY)
    if text is None:
        raise UserError(f"{shown(path)}: an ONNX model, but not one that kws-export wrote")
    try:
        return described(json.loads(text))
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, UserError) else "damaged"
        raise UserError(f"{shown(path)}: its description cannot be used ({reason})") from None

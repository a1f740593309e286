"""A trained model -> ONNX files, checked against torch before they are kept.

files = export(kws_s5.load("commands12"), "commands12", "exported", weights="int6")
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from kws_s5 import __version__
from kws_s5.atomic import replacing
from kws_s5.bundle import Bundle
from kws_s5.errors import UserError
from kws_s5.export.constants import Constants, from_model
from kws_s5.export.description import Description, Kind, plain
from kws_s5.export.model_graph import clip_graph, step_graph, zero_state

RATES = (8000.0, 16000.0, 44100.0)  # Hz, of the check
TOLERANCE = 1e-4  # between the logits of torch and of a float32 graph


@dataclass(frozen=True)
class Exported:
    """One file that was written."""

    path: Path
    kind: str  # step, clip
    size: int  # bytes
    difference: float  # largest, between its logits and torch's, on noise; relative where logits are above 1


@np.errstate(over="ignore", invalid="ignore")  # of damaged models: one line tells, and not numpy's warnings
def export(
    bundle: Bundle, name: str, folder: str | Path = ".", *, rate: float | None = None, weights: Kind = "float32"
) -> list[Exported]:
    """Writes <name>.onnx, the streaming step, and <name>-clip.onnx, the model of whole clips.

    A model without frame decisions (head.frame_logits) gives the clip file only.

    Args:
        rate: Hz, the only one that the files will know; None: it is an input.
        weights: how the matrices are stored (weights.py).

    Raises:
        UserError: models of another kind, one that gives no numbers, or a rate that it cannot hear.
    """
    constants = constants_of(bundle)
    if rate is not None and not constants.lowest <= rate <= 192_000:
        raise UserError(f"--rate {rate:g}: this model hears {constants.lowest:g} to 192000 Hz")
    about = Description(
        "step",
        bundle.labels,
        bundle.rate,
        constants.frame_rate,
        constants.lowest,
        rate or 0.0,
        bundle.seconds,
        bundle.thresholds,
        weights,
        bundle.note,
        bundle.version or __version__,
    )
    files = []
    for kind, build, suffix in (("step", step_graph, ""), ("clip", clip_graph, "-clip")):
        if kind == "step" and not constants.window:
            continue
        metadata = plain(replace(about, kind=kind))
        content = build(constants, rate=rate, weights=weights, metadata=metadata).SerializeToString()
        difference = _difference(bundle, kind, content, constants, rate)
        if not np.isfinite(difference):
            raise UserError(
                f"the model or its {kind} graph with {weights} weights gives NaN or infinity instead of "
                "scores; nothing was written. Is the model sound? kws-eval tells"
            )
        if weights == "float32" and not difference < TOLERANCE:
            raise UserError(
                f"the {kind} graph differs from torch by {difference:.1e}; nothing was written. "
                "Please report this with the model file"
            )
        path = Path(folder).expanduser() / f"{name}{suffix}.onnx"
        files.append((Exported(path, kind, len(content), difference), content))
    for file, content in files:  # all are compared before the first is written
        with replacing(file.path) as temporary:
            temporary.write_bytes(content)
    return [file for file, _ in files]


def constants_of(bundle: Bundle) -> Constants:
    """The numbers of a bundle's model. Raises UserError for models of another kind."""
    return from_model(bundle.model)


def _difference(bundle: Bundle, kind: str, content: bytes, constants: Constants, fixed: float | None) -> float:
    """The largest difference to torch's logits, at the rates of the check or the one that is fixed.

    Not finite where either of them is not.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    run = bundle.model if kind == "clip" else bundle.model.frame_logits
    rest = zero_state(constants, 1, free_rate=fixed is None) if kind == "step" else {}
    worst = 0.0
    for rate in [fixed] if fixed else [r for r in RATES if r >= constants.lowest] or [constants.lowest]:
        sound = _sound(rate)
        inputs = {"sound": sound, **rest, **({} if fixed else {"rate": np.array(rate)})}
        if kind == "clip":
            inputs["lengths"] = np.array([sound.shape[1]])
        (logits,) = session.run(["logits"], inputs)
        with torch.no_grad():
            expected = run(torch.from_numpy(sound)[..., None], step_rescale=bundle.rate / rate).float().numpy()
        if not (np.isfinite(logits).all() and np.isfinite(expected).all()):
            return float("nan")  # no comparison sees it: max(worst, nan) is worst
        worst = max(worst, float(np.abs(logits - expected).max()) / max(1.0, float(np.abs(expected).max())))
    return worst


def _sound(rate: float) -> np.ndarray:
    """(1, L) a second of noise that swells and fades."""
    n = round(rate)
    noise = np.random.default_rng(0).standard_normal(n) * np.sin(np.linspace(0, np.pi, n)) ** 4
    return (0.1 * noise).astype(np.float32)[None]

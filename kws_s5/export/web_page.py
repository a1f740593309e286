"""A trained model as a static web page that listens without any server: HTML, three scripts, and the model in one more.

    files = write_page(kws_s5.load("commands12"), "exported", weights="int8")

The step and the rules of events are a few hundred lines of plain JavaScript (export/web/), so the page needs no
runtime, no network and no build; it opens from a web server or as a file. The bank's coefficients are worked out here
for every rate that sound cards have, as microphones in browsers run at their own.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from kws_s5.atomic import replacing
from kws_s5.bundle import Bundle
from kws_s5.errors import UserError
from kws_s5.export.coefficients import NUMPY, SINE, USABLE, poles, taps
from kws_s5.export.constants import Constants, Norm, from_model
from kws_s5.export.weights import quantise

SOURCES = Path(__file__).parent / "web"
FILES = ("index.html", "app.js", "kws_step.js", "kws_events.js")
RATES = (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 88200, 96000, 176400, 192000)  # Hz


def write_page(bundle: Bundle, folder: str | Path, *, weights: str = "float32", events: dict[str, float]) -> list[Path]:
    """Writes the five files and returns their paths. Raises UserError for models that cannot be exported.

    Args:
        weights: "float32" or "int8".
        events: the default rules of events: threshold, smoothing, settle, release, refractory, warmup.
    """
    constants = from_model(bundle.model)
    if constants.activation in ("relu", "none"):
        raise UserError(f"model.activation = {constants.activation}: a web page has no such layers")
    if weights not in ("float32", "int8"):
        raise UserError(f"--weights {weights}: a web page has float32 or int8")
    if not constants.window:
        raise UserError("this model has no frame decisions (head.frame_logits): it cannot listen to a stream")
    if not all(value.isfinite().all() for value in bundle.model.state_dict().values()):
        raise UserError("the model holds NaN or infinity; nothing was written")
    model = _model(constants, bundle, weights) | {"events": events}
    text = f'"use strict";\nconst KWS_MODEL = {_script_json(model)};\n'
    texts = {name: (SOURCES / name).read_text(encoding="utf-8") for name in FILES} | {"kws_model.js": text}
    folder = Path(folder).expanduser()
    paths = [folder / name for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return paths


def _model(c: Constants, bundle: Bundle, weights: str) -> dict[str, Any]:
    sizes = {
        "M": len(c.decay),
        "nPoles": c.n_poles,
        "H": len(c.encoder[1]),
        "K": len(bundle.labels),
        "P": len(c.layers[0].Lambda_bar) if c.layers else 0,
        "nLayers": len(c.layers),
        "W": 1 if c.pooling == "last" else c.window,
    }
    tensors, centred = {}, []

    def norm(name: str, value: Norm) -> None:
        if value.gain.ndim:
            tensors[f"{name}.gain"] = {"data": _base64(value.gain)}
        tensors[f"{name}.shift"] = {"data": _base64(value.shift)}
        if value.centred:
            centred.append(name)

    def matrix(name: str, value: np.ndarray, bias: np.ndarray | None = None) -> None:
        tensors[name] = _matrix(value, weights)
        if bias is not None:
            tensors[f"{name}.bias"] = {"data": _base64(bias)}

    norm("front.norm", c.norm)
    tensors["front.bias"] = {"data": _base64(c.bias)}
    matrix("encoder", *c.encoder)
    matrix("decoder", *c.frame_decoder)
    for i, layer in enumerate(c.layers):
        name = f"layers.{i}"
        matrix(f"{name}.B", np.concatenate([layer.B_bar.real, layer.B_bar.imag]))
        matrix(f"{name}.C", np.concatenate([layer.C.real, -layer.C.imag], 1))
        for key, value in (("LambdaRe", layer.Lambda_bar.real), ("LambdaIm", layer.Lambda_bar.imag), ("D", layer.D)):
            tensors[f"{name}.{key}"] = {"data": _base64(value)}
        for key, dense in (("out1", layer.out1), ("out2", layer.out2)):
            if dense is not None:
                matrix(f"{name}.{key}", *dense)
        norm(f"{name}.norm", layer.norm)
        if layer.ssm_norm is not None:
            norm(f"{name}.ssm_norm", layer.ssm_norm)
    return {
        "labels": list(bundle.labels),
        "thresholds": bundle.thresholds,
        "rate": bundle.rate,
        "frameRate": c.frame_rate,
        "floor": c.floor,
        "prenorm": c.prenorm,
        "activation": c.activation,
        "sizes": sizes,
        "centred": centred,
        "tensors": tensors,
        "banks": {str(rate): _bank(c, rate) for rate in RATES if rate >= c.lowest},
    }


def _bank(c: Constants, rate: float) -> dict[str, str]:
    """Poles (M,), taps (3, M) and which modes the rate can carry, in base64."""
    column = c.decay[:, None], c.frequency[:, None]
    pole = poles(NUMPY, *column, rate)[:, 0]
    tap = np.stack([c.gain * SINE * t[:, 0] for t in taps(NUMPY, *column, rate, c.n_poles)])
    present = c.frequency <= USABLE * 0.5 * rate if c.absent else np.ones(len(c.frequency))
    parts = {"poleRe": pole.real, "poleIm": pole.imag, "tapRe": tap.real, "tapIm": tap.imag, "present": present}
    return {name: _base64(values) for name, values in parts.items()}


def _matrix(matrix: np.ndarray, weights: str) -> dict[str, Any]:
    if weights == "float32":
        return {"data": _base64(matrix)}
    levels, scales = quantise(np.float32(matrix).T, 8)
    data = base64.b64encode(np.ascontiguousarray(levels.T).tobytes()).decode()
    return {"data": data, "scales": _base64(scales[0]), "rows": len(matrix)}


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.asarray(values).astype("<f4").tobytes()).decode()


def _script_json(value: Any) -> str:
    """JSON that is safe inside of a script: labels come from strangers."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c")

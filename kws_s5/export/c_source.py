"""A trained model as C99 source: kws_model.h and .c with its numbers, kws_step.h and .c with the step itself.

    files = write_c(kws_s5.load("commands12"), "exported", rate=16000.0)         # or weights="int8"

The numbers are those of constants.py, the step is numpy_step.py line by line; one sample rate, no allocation, float32
arithmetic. int8 stores the matrices in bytes with a scale for each output (weights.py), a quarter of the size.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kws_s5 import __version__
from kws_s5.atomic import replacing
from kws_s5.bundle import Bundle
from kws_s5.errors import UserError
from kws_s5.export.coefficients import NUMPY, SINE, USABLE, poles, taps
from kws_s5.export.constants import Constants, Layer, Norm, from_model
from kws_s5.export.weights import quantise

TEMPLATES = Path(__file__).parent / "c"
ACTIVATIONS = {
    "gelu": "KWS_GELU",
    "full_glu": "KWS_FULL_GLU",
    "half_glu1": "KWS_HALF_GLU1",
    "half_glu2": "KWS_HALF_GLU2",
}
PLAIN = frozenset(b" -0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")


def write_c(bundle: Bundle, folder: str | Path, *, rate: float, weights: str = "float32") -> list[Path]:
    """Writes the four files and returns their paths. Raises UserError for models that cannot be exported.

    Args:
        rate: Hz of the sound, the only one that the code will know.
        weights: "float32" or "int8".
    """
    constants = from_model(bundle.model)
    if constants.activation not in ACTIVATIONS:
        raise UserError(f"model.activation = {constants.activation}: C code has {', '.join(ACTIVATIONS)}")
    if weights not in ("float32", "int8"):
        raise UserError(f"--weights {weights}: C code has float32 or int8")
    if not constants.lowest <= rate <= 192_000:
        raise UserError(f"--rate {rate:g}: this model hears {constants.lowest:g} to 192000 Hz")
    if not constants.window:
        raise UserError("this model has no frame decisions (head.frame_logits): it cannot listen to a stream")
    folder = Path(folder).expanduser()
    texts = {
        "kws_model.h": _header(constants, len(bundle.labels), rate, weights),
        "kws_model.c": "\n".join(_data(constants, bundle, rate, weights)) + "\n",
        **{name: (TEMPLATES / name).read_text(encoding="utf-8") for name in ("kws_step.h", "kws_step.c")},
    }
    paths = [folder / name for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="ascii")
    return paths


def _header(c: Constants, n_outputs: int, rate: float, weights: str) -> str:
    states = len(c.layers[0].Lambda_bar) if c.layers else 1
    sizes = {
        "MODES": len(c.decay),
        "POLES": c.n_poles,
        "FEATURES": len(c.encoder[1]),
        "STATES": states,
        "LAYERS": len(c.layers),
        "OUTPUTS": n_outputs,
        "WINDOW": 1 if c.pooling == "last" else c.window,
    }
    kind = "int8_t" if weights == "int8" else "float"
    return f"""/* The sizes of one kws_s5 model; its numbers are in kws_model.c. Written by kws_s5 {__version__}. */
#ifndef KWS_MODEL_H
#define KWS_MODEL_H

#include <stdint.h>

{chr(10).join(f"#define KWS_{name} {value}" for name, value in sizes.items())}
#define KWS_RATE {rate!r}                 /* Hz, of the sound */
#define KWS_FRAME_RATE {c.frame_rate!r}
#define KWS_SAMPLES_PER_FRAME {rate / c.frame_rate!r}
#define KWS_FLOOR {_number(c.floor)}
#define KWS_PRENORM {int(c.prenorm)}
#define KWS_INT8 {int(weights == "int8")}
enum {{ KWS_GELU, KWS_FULL_GLU, KWS_HALF_GLU1, KWS_HALF_GLU2 }};
#define KWS_ACTIVATION {ACTIVATIONS[c.activation]}

typedef struct {{ const {kind} *weights; const float *scales; int rows, columns; }} kws_matrix;
typedef struct {{ const float *gain, *shift; int centred; }} kws_norm;   /* gain 0: 1; centred: layer norm */
typedef struct {{
    const float *Lambda_re, *Lambda_im, *D;
    kws_matrix B, C, out1, out2;                                  /* B: real rows, then imaginary ones */
    const float *out1_bias, *out2_bias;
    kws_norm norm, ssm_norm;                                      /* ssm_norm.shift 0: none */
}} kws_layer;

extern const char *const kws_labels[KWS_OUTPUTS];
extern const float kws_thresholds[KWS_OUTPUTS];                   /* 0: none of its own */
extern const float kws_pole_re[KWS_MODES], kws_pole_im[KWS_MODES];
extern const float kws_tap_re[3][KWS_MODES], kws_tap_im[3][KWS_MODES];
extern const uint8_t kws_present[KWS_MODES];                      /* modes that this rate can carry */
extern const float kws_absent[KWS_MODES], kws_encoder_bias[KWS_FEATURES], kws_decoder_bias[KWS_OUTPUTS];
extern const kws_norm kws_front_norm;
extern const kws_matrix kws_encoder, kws_decoder;
extern const kws_layer kws_layers[KWS_LAYERS + 1];

#endif
"""


def _data(c: Constants, bundle: Bundle, rate: float, weights: str) -> Iterable[str]:
    column = c.decay[:, None], c.frequency[:, None]
    pole = poles(NUMPY, *column, rate)[:, 0]
    tap = np.stack([c.gain * SINE * t[:, 0] for t in taps(NUMPY, *column, rate, c.n_poles)])  # (3, M)
    present = c.frequency <= USABLE * 0.5 * rate if c.absent else np.ones(len(c.frequency), bool)
    yield '/* The numbers of one kws_s5 model. */\n#include "kws_model.h"\n'
    labels = ", ".join(f'"{_text(label)}"' for label in bundle.labels)
    yield f"const char *const kws_labels[KWS_OUTPUTS] = {{{labels}}};"
    thresholds = np.array([bundle.thresholds.get(label, 0.0) for label in bundle.labels])
    yield _array("kws_thresholds", thresholds, "KWS_OUTPUTS", public=True)
    for name, values in (("pole", pole), ("tap", tap)):
        size = "KWS_MODES" if values.ndim == 1 else "3][KWS_MODES"
        yield _array(f"kws_{name}_re", values.real, size, public=True)
        yield _array(f"kws_{name}_im", values.imag, size, public=True)
    yield f"const uint8_t kws_present[KWS_MODES] = {{{', '.join(str(int(p)) for p in present)}}};"
    yield _array("kws_absent", c.bias, "KWS_MODES", public=True)
    yield from _norm("front_norm", c.norm)
    yield "const kws_norm kws_front_norm = front_norm_INIT;"
    for name, (matrix, bias) in (("encoder", c.encoder), ("decoder", c.frame_decoder)):
        yield from _matrix(name, matrix, weights)
        yield f"const kws_matrix kws_{name} = {name}_INIT;"
        yield _array(f"kws_{name}_bias", bias, "KWS_FEATURES" if name == "encoder" else "KWS_OUTPUTS", public=True)
    for i, layer in enumerate(c.layers):
        yield from _layer(f"layer{i}", layer, weights)
    layers = ", ".join([f"layer{i}_INIT" for i in range(len(c.layers))] + ["{0}"])
    yield f"const kws_layer kws_layers[KWS_LAYERS + 1] = {{{layers}}};"


def _layer(name: str, layer: Layer, weights: str) -> Iterable[str]:
    vectors = {"Lambda_re": layer.Lambda_bar.real, "Lambda_im": layer.Lambda_bar.imag, "D": layer.D}
    matrices = {
        "B": np.concatenate([layer.B_bar.real, layer.B_bar.imag]),
        "C": np.concatenate([layer.C.real, -layer.C.imag], 1),
    }
    for key, values in vectors.items():
        yield _array(f"{name}_{key}", values)
    fields = [f".{key} = {name}_{key}" for key in vectors]
    for key, dense in (("out1", layer.out1), ("out2", layer.out2)):
        if dense is not None:
            matrices[key] = dense[0]
            yield _array(f"{name}_{key}_bias", dense[1])
            fields.append(f".{key}_bias = {name}_{key}_bias")
    for key, matrix in matrices.items():
        yield from _matrix(f"{name}_{key}", matrix, weights)
        fields.append(f".{key} = {name}_{key}_INIT")
    for key, norm in (("norm", layer.norm), ("ssm_norm", layer.ssm_norm)):
        if norm is not None:
            yield from _norm(f"{name}_{key}", norm)
            fields.append(f".{key} = {name}_{key}_INIT")
    yield f"#define {name}_INIT {{{', '.join(fields)}}}"


def _matrix(name: str, matrix: np.ndarray, weights: str) -> Iterable[str]:
    """(outputs, inputs), row by row."""
    rows, columns = matrix.shape
    scales = "0"
    if weights == "int8":
        levels, scale = quantise(np.float32(matrix).T, 8)
        yield _array(f"{name}_scales", scale[0])
        yield _array(f"{name}_weights", levels.T, kind="int8_t")
        scales = f"{name}_scales"
    else:
        yield _array(f"{name}_weights", matrix)
    yield f"#define {name}_INIT {{{name}_weights, {scales}, {rows}, {columns}}}"


def _norm(name: str, norm: Norm) -> Iterable[str]:
    gain = "0"
    if norm.gain.ndim:
        yield _array(f"{name}_gain", norm.gain)
        gain = f"{name}_gain"
    yield _array(f"{name}_shift", norm.shift)
    yield f"#define {name}_INIT {{{gain}, {name}_shift, {int(norm.centred)}}}"


def _array(name: str, values: np.ndarray, size: str = "", *, kind: str = "float", public: bool = False) -> str:
    numbers = [_number(v) if kind == "float" else str(int(v)) for v in np.asarray(values).ravel()]
    rows = [", ".join(numbers[i : i + 12]) for i in range(0, len(numbers), 12)]
    body = ",\n  ".join(rows)
    if "][" in size:  # of two dimensions: one row of braces each
        n = len(numbers) // len(values)
        body = ",\n  ".join("{" + ", ".join(numbers[i : i + n]) + "}" for i in range(0, len(numbers), n))
    return f"{'' if public else 'static '}const {kind} {name}[{size or len(numbers)}] = {{\n  {body}}};"


def _number(value: float) -> str:
    """A float32 that reads back as the same number."""
    value = np.float32(value)
    if not np.isfinite(value):
        raise UserError("the model holds NaN or infinity; nothing was written")
    text = str(value)
    return text + ("f" if "." in text or "e" in text else ".0f")


def _text(label: str) -> str:
    """Inside of a C string: every byte that is not plain as three octal digits."""
    return "".join(chr(b) if b in PLAIN else f"\\{b:03o}" for b in label.encode())

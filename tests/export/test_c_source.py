"""The C code of a model, compiled with gcc, gives torch's logits; int8 keeps the decisions."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from kws_s5.audio.resample import resample
from kws_s5.bundle import Bundle
from kws_s5.config import S4DMixer
from kws_s5.errors import UserError
from kws_s5.export.c_source import write_c
from kws_s5.export.cli import main

GCC = shutil.which("gcc") or shutil.which("cc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="no C compiler here")
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "kws_step.h"
int main(void) {
    static kws_state state;
    float x, logits[KWS_OUTPUTS];
    kws_reset(&state);
    while (fread(&x, sizeof x, 1, stdin) == 1)
        if (kws_hear(&state, x)) {
            kws_decide(&state, logits);
            fwrite(logits, sizeof logits, 1, stdout);
        }
    return 0;
}
"""


def compiled(folder: Path) -> Path:
    (folder / "main.c").write_text(PROGRAM)
    strict = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = [GCC, *strict, "-o", "listen", "main.c", "kws_step.c", "kws_model.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    return folder / "listen"


def run(program: Path, sound: np.ndarray, n_outputs: int) -> np.ndarray:
    out = subprocess.run([program], input=np.float32(sound).tobytes(), capture_output=True, check=True).stdout
    return np.frombuffer(out, np.float32).reshape(-1, n_outputs)


def of_torch(bundle: Bundle, sound: np.ndarray, rate: float) -> np.ndarray:
    with torch.no_grad():
        x = torch.from_numpy(sound)[None, :, None]
        return bundle.model.frame_logits(x, step_rescale=bundle.rate / rate)[0].numpy()


@needs_gcc
@pytest.mark.parametrize("rate", [8000.0, 11025.0, 16000.0, 44100.0])
def test_the_shipped_model_in_c_gives_the_logits_of_torch_on_speech(shipped, speech, tmp_path, rate: float) -> None:
    write_c(shipped, tmp_path, rate=rate)
    sound = resample(speech(16000.0, seconds=2.5)[0], 16000.0, rate)
    got, want = run(compiled(tmp_path), sound, len(shipped.labels)), of_torch(shipped, sound, rate)
    assert got.shape == want.shape
    assert np.abs(got - want).max() / np.abs(want).max() < 1e-4


@needs_gcc
def test_bytes_for_weights_keep_the_decisions(shipped, speech, tmp_path) -> None:
    write_c(shipped, tmp_path, rate=16000.0, weights="int8")
    sound = speech(16000.0, seconds=2.5)[0]
    got, want = run(compiled(tmp_path), sound, len(shipped.labels)), of_torch(shipped, sound, 16000.0)
    probabilities = [
        np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
        for x in (got, want)
    ]
    assert np.abs(probabilities[0] - probabilities[1]).max() < 0.1
    assert (got.argmax(1) == want.argmax(1)).mean() > 0.97


@needs_gcc
@pytest.mark.parametrize(
    "options",
    [
        {"activation": "full_glu"},
        {"activation": "half_glu2", "norm": "layer"},
        {"activation": "gelu", "prenorm": False},
        {"ssm_norm": True},
        {"ssm_norm": True, "norm": "layer"},
        {"n_layers": 0},
        {"head": {"pooling": "last"}},
        {"mixer": S4DMixer(n_states=4)},
        {"front": {"absent": "mean", "n_poles": 3}},
        {"ssm": {"conj_sym": False, "discretization": "bilinear"}},
    ],
    ids=str,
)
def test_every_kind_of_layer_is_translated(make_bundle, tmp_path, options) -> None:
    bundle = make_bundle(**options)
    write_c(bundle, tmp_path, rate=8000.0)
    sound = 0.3 * np.random.default_rng(0).standard_normal(4000).astype(np.float32)
    got, want = run(compiled(tmp_path), sound, 3), of_torch(bundle, sound, 8000.0)
    np.testing.assert_allclose(got, want, atol=2e-4 * max(1.0, np.abs(want).max()))


@needs_gcc
def test_labels_of_strangers_stay_inside_their_quotes(make_bundle, tmp_path) -> None:
    bundle = make_bundle()
    bundle.labels = ('a"; int evil(void){return 1;} //', "*/ ö??/", "_unknown_")
    write_c(bundle, tmp_path, rate=16000.0)
    program = (
        '#include <stdio.h>\n#include "kws_model.h"\n'
        "int main(void) { for (int k = 0; k < 3; k++) puts(kws_labels[k]); return 0; }"
    )
    (tmp_path / "labels.c").write_text(program)
    subprocess.run([GCC, "-std=c99", "-o", "labels", "labels.c", "kws_model.c"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "labels"], capture_output=True, check=True).stdout.decode()
    assert said.splitlines() == list(bundle.labels)


def test_the_command_writes_four_files_and_refuses_what_it_cannot_write(tmp_path, capsys) -> None:
    assert main(["commands12", "--to", "c", "--out", str(tmp_path), "--weights", "int8"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kws_model.c", "kws_model.h", "kws_step.c", "kws_step.h"]
    assert main(["commands12", "--to", "c", "--out", str(tmp_path), "--weights", "int6"]) == 2
    assert main(["commands12", "--to", "c", "--out", str(tmp_path), "--rate", "50"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_nonlinearity_that_the_code_has_not_is_refused(make_bundle, tmp_path) -> None:
    with pytest.raises(UserError, match="model.activation = relu: C code has gelu"):
        write_c(make_bundle(activation="relu"), tmp_path, rate=16000.0)
    assert not list(tmp_path.iterdir())


def test_a_model_with_nan_is_refused(make_bundle, tmp_path) -> None:
    bundle = make_bundle()
    with torch.no_grad():
        next(bundle.model.layers.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match="NaN"):
        write_c(bundle, tmp_path, rate=16000.0)
    assert not list(tmp_path.iterdir())

"""Exported models listen as torch models do: the same events and scores, states that can be kept, plain refusals."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from kws_s5.audio.files import load_audio
from kws_s5.audio.resample import resample
from kws_s5.errors import UserError
from kws_s5.export.export import export
from kws_s5.listening.onnx_engine import OnnxModel
from kws_s5.listening.session import StreamingSession
from kws_s5.listening.spotter import KeywordSpotter

EXAMPLES = Path(__file__).parents[2] / "demo" / "examples"


@pytest.fixture(scope="module")
def files(shipped, tmp_path_factory):
    """Paths of the shipped model's step and clip graph."""
    return {file.kind: file.path for file in export(shipped, "commands12", tmp_path_factory.mktemp("exported"))}


def altered(path, folder, **changes):
    """A copy whose description is changed (None: the entry is removed)."""
    model = onnx.load(path)
    value = json.loads(model.metadata_props[0].value) | changes
    model.metadata_props[0].value = json.dumps({k: v for k, v in value.items() if v is not None})
    onnx.save(model, folder / "altered.onnx")
    return folder / "altered.onnx"


def test_events_are_those_of_torch(shipped, files) -> None:
    sound = load_audio(EXAMPLES / "six_commands.flac")
    for rate in (8000, 44100):
        x = resample(sound.waveform, sound.rate, rate)
        found = [list(KeywordSpotter(model).find(x, rate)) for model in (shipped, files["step"])]
        assert [event.label for event in found[0]] == [event.label for event in found[1]] and len(found[0]) >= 3
        np.testing.assert_allclose([e[1:5] for e in found[0]], [e[1:5] for e in found[1]], atol=1e-3)


def test_long_chunks_go_in_pieces_and_streams_in_step(shipped, files, speech, monkeypatch) -> None:
    monkeypatch.setattr("kws_s5.listening.onnx_engine.MOST", 5000)
    x = speech(16000.0, 2)
    ours, theirs = (StreamingSession(m, 16000, n_streams=2) for m in (OnnxModel(files["step"]), shipped))
    np.testing.assert_allclose(ours.push(x).logits, theirs.push(x).logits, atol=1e-4)


def test_a_kept_state_goes_on_where_it_was_taken(files, speech) -> None:
    x, model = speech(16000.0)[0], OnnxModel(files["step"])
    first, second = KeywordSpotter(model, 16000), KeywordSpotter(model, 16000)
    first.push(x[:7777])
    state = first.state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    second.restore(state)
    _, expected = first.push_frames(x[7777:])
    _, frames = second.push_frames(x[7777:])
    np.testing.assert_array_equal(frames.logits, expected.logits)


def test_rates_that_the_file_does_not_know_are_refused(make_bundle, files, tmp_path) -> None:
    with pytest.raises(UserError, match="at least"):
        KeywordSpotter(OnnxModel(altered(files["step"], tmp_path, lowest=9000.0)), 8000)
    fixed = export(make_bundle(), "fixed", tmp_path, rate=8000.0)[0].path
    assert KeywordSpotter(fixed, 8000).rate == 8000
    with pytest.raises(UserError, match=r"16000 Hz: .*fixed.onnx was exported for 8000 Hz"):
        KeywordSpotter(fixed, 16000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "newer"),
        ({"format": None}, "no format number"),
        ({"labels": None}, "labels is missing"),
        ({"rate": "16000"}, "rate is missing or has the wrong type"),
        ({"frame_rate": 0}, "make no sense"),
        ({"frame_rate": float("inf")}, "makes no sense"),
        ({"rate": 10**400}, "makes no sense"),
        ({"seconds": float("nan")}, "makes no sense"),
        ({"kind": "foo"}, "make no sense"),
        ({"labels": ["yes", "yes"]}, "labels make"),
        ({"labels": ["a\x1b[31m"]}, "labels make"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(files, tmp_path, changes, reason) -> None:
    with pytest.raises(UserError, match=reason):
        OnnxModel(altered(files["step"], tmp_path, **changes))


def test_files_that_are_no_exported_step_are_refused(files, tmp_path) -> None:
    with pytest.raises(UserError, match="whole clips"):
        OnnxModel(files["clip"])
    with pytest.raises(UserError, match="cannot be read"):
        OnnxModel(tmp_path / "missing.onnx")
    content = files["step"].read_bytes()
    for name, damaged in (("empty", b""), ("text", b"not a model"), ("cut", content[: len(content) // 2])):
        (tmp_path / f"{name}.onnx").write_bytes(damaged)
        with pytest.raises(UserError, match="not a model that onnxruntime can run|not one that kws-export wrote"):
            OnnxModel(tmp_path / f"{name}.onnx")
    model = onnx.load(files["step"])
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(UserError, match="not one that kws-export wrote"):
        OnnxModel(tmp_path / "foreign.onnx")

"""Graphs of strangers under an honest description: one line instead of a traceback, and no other file is read."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kws_s5.errors import UserError
from kws_s5.export.export import export
from kws_s5.listening.onnx_engine import OnnxModel
from kws_s5.listening.spotter import KeywordSpotter

NUMBER, WORD = TensorProto.FLOAT, TensorProto.STRING
SOUND = helper.make_tensor_value_info("sound", NUMBER, ["N", "l"])


@pytest.fixture(scope="module")
def honest(make_bundle, tmp_path_factory):
    """An exported step."""
    return export(make_bundle(), "honest", tmp_path_factory.mktemp("honest"))[0].path


def forged(path, honest, logits, *, state=None, value=0.0, kind=NUMBER):
    """A graph that says logits of this shape to everything, with the honest model's description."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(logits)], logits)
    constant = helper.make_tensor("value", kind, [], [value])
    inputs, outputs = [SOUND], [helper.make_tensor_value_info("logits", kind, None)]
    nodes = [helper.make_node("Expand", ["value", "shape"], ["logits"])]
    if state:
        inputs.append(helper.make_tensor_value_info("s", *state))
        outputs.append(helper.make_tensor_value_info("next_s", *state))
        nodes.append(helper.make_node("Identity", ["s"], ["next_s"]))
    graph = helper.make_graph(nodes, "g", inputs, outputs, [shape, constant])
    return saved(path, honest, graph)


def saved(path, honest, graph):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model.metadata_props.extend(onnx.load(honest).metadata_props)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "options",
    [
        {"logits": [1, 100, 2]},
        {"logits": [1, 100]},
        {"logits": [2, 100, 3]},
        {"logits": [1, 9999, 3]},
        {"logits": [1, 0, 3]},
        {"logits": [1, 100, 3], "value": float("nan")},
        {"logits": [1, 100, 3], "value": b"x", "kind": WORD},
        {"logits": [1, 1 << 40, 3]},
    ],
)
def test_logits_that_are_none_end_in_one_line(options, honest, tmp_path) -> None:
    spotter = KeywordSpotter(forged(tmp_path / "a.onnx", honest, **options), 16000)
    with pytest.raises(UserError, match="does not run as a model of kws-export"):
        spotter.push(np.zeros(16000, np.float32))


@pytest.mark.parametrize("state", [(NUMBER, ["N", 1 << 40]), (NUMBER, [1 << 62, 1 << 62]), (WORD, ["N"])])
def test_states_that_cannot_be_kept_are_refused(state, honest, tmp_path) -> None:
    with pytest.raises(UserError, match="no step graph"):
        OnnxModel(forged(tmp_path / "a.onnx", honest, [1, 100, 3], state=state))


def test_other_inputs_and_outputs_are_refused(honest, tmp_path) -> None:
    output = helper.make_tensor_value_info("y", NUMBER, ["N", "l"])
    graph = helper.make_graph([helper.make_node("Relu", ["sound"], ["y"])], "g", [SOUND], [output])
    with pytest.raises(UserError, match="no step graph"):
        OnnxModel(saved(tmp_path / "a.onnx", honest, graph))


@pytest.mark.parametrize("place", ["secret.bin", "/etc/passwd"])
def test_no_other_file_is_read(place, honest, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    tensor = onnx.TensorProto(name="v", data_type=TensorProto.UINT8, dims=[64], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=place)
    graph = helper.make_graph(
        [helper.make_node("Cast", ["v"], ["logits"], to=NUMBER)],
        "g",
        [SOUND],
        [helper.make_tensor_value_info("logits", NUMBER, None)],
        [tensor],
    )
    with pytest.raises(UserError, match="another file"):
        OnnxModel(saved(tmp_path / "a.onnx", honest, graph))

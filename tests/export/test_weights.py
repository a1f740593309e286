"""Stored weights: unpacked inside the graph to exactly what was stored, as small and as close as they claim."""

import numpy as np
import onnxruntime
import pytest

from kws_s5.export.export import constants_of, export
from kws_s5.export.graph import Graph
from kws_s5.export.weights import Weights, quantise

BITS = {"int8": 8, "int7": 7, "int6": 6, "int5": 5, "int4": 4}


@pytest.mark.parametrize("kind", BITS)
def test_the_graph_unpacks_what_was_stored(kind) -> None:
    generator = np.random.default_rng(0)
    matrices = [generator.standard_normal(shape).astype(np.float32) for shape in ((5, 3), (1, 1), (7, 4))]
    graph = Graph()
    weights = Weights(graph, kind)
    zero = graph.input("zero", "float32", [])
    for i, matrix in enumerate(matrices):
        graph.output(f"w{i}", weights.matrix(matrix) + zero, matrix.shape)
    weights.finish()
    runtime = onnxruntime.InferenceSession(graph.model("test", {}).SerializeToString())
    for matrix, out in zip(matrices, runtime.run(None, {"zero": np.zeros((), np.float32)}), strict=True):
        q, scale = quantise(matrix, BITS[kind])
        np.testing.assert_array_equal(out, q * scale)


@pytest.mark.parametrize("bits", BITS.values())
def test_whole_numbers_fit_and_the_error_is_that_of_rounding(bits) -> None:
    matrix = np.random.default_rng(1).uniform(-1, 1, (256, 8)).astype(np.float32)
    q, scale = quantise(matrix, bits)
    most = 2 ** (bits - 1) - 1
    assert q.dtype == np.int8 and np.abs(q).max() <= most
    rms = np.sqrt(np.square(q * scale - matrix).mean())
    assert rms <= 1.02 * (1 / most) / np.sqrt(12)


def test_a_column_of_zeros_stays_zero() -> None:
    q, scale = quantise(np.zeros((4, 2), np.float32), 6)
    assert not q.any() and np.isfinite(scale).all()


def test_the_shipped_model_in_six_bits_is_small_and_decides_alike(shipped, speech, tmp_path) -> None:
    files = {file.kind: file for file in export(shipped, "six", tmp_path, weights="int6")}
    n = sum(p.numel() for p in shipped.model.parameters())
    assert max(file.size for file in files.values()) <= 0.97 * n  # commands12: 259,276 parameters -> below 250 kB
    x = speech(16000.0, 7)
    runtime = onnxruntime.InferenceSession(files["clip"].path)
    (logits,) = runtime.run(None, {"sound": x, "lengths": np.full(7, x.shape[1]), "rate": np.array(16000.0)})
    expected = [list(shipped.classify(row, 16000.0).values()) for row in x]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, atol=0.1)


def test_eight_bits_stay_close_to_torch(make_bundle, tmp_path) -> None:
    bundle = make_bundle(d_model=32, ssm={"ssm_size": 32})
    for file in export(bundle, "eight", tmp_path, weights="int8", rate=8000.0):
        assert file.difference < 0.05
    assert constants_of(bundle).window == 20

"""The official implementation's numbers: its weights give its outputs, its configurations give its sizes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kws_s5.config import ClassHead, LinearFront, ModelConfig, PairHead, S5Mixer, TokenFront
from kws_s5.errors import UserError
from kws_s5.model import build_model, load_official

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))


def golden_model(arrays: dict[str, np.ndarray]) -> torch.nn.Module:
    c = json.loads(bytes(arrays["config"]).decode())
    ssm = S5Mixer(
        ssm_size=c["P"],
        blocks=c["J"],
        C_init=c["C_init"],
        discretization=c["disc"],
        bidirectional=c["bidir"],
        eigenvalues="clip" if c["clip"] else "free",
    )
    config = ModelConfig(
        d_model=c["H"],
        n_layers=c["depth"],
        front=LinearFront(),
        mixer=ssm,
        activation=c["act"],
        norm="batch" if c["bn"] else "layer",
        prenorm=c["prenorm"],
        n_outputs=c["ncls"],
    )
    model = build_model(config).eval()
    load_official(model, tree(arrays, "params/"), tree(arrays, "batch_stats/"))
    return model


def tree(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_official_weights_give_the_official_outputs_at_both_rates(path: Path) -> None:
    arrays = dict(np.load(path))
    model, x = golden_model(arrays), torch.from_numpy(arrays["x"])
    with torch.no_grad():
        full = model(x).log_softmax(-1)
        half = model(x[:, ::2], step_rescale=2.0).log_softmax(-1)
    np.testing.assert_allclose(full.numpy(), arrays["log_probs"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(half.numpy(), arrays["log_probs_half_rate"], atol=1e-5, rtol=0)


def test_there_are_golden_files() -> None:
    assert len(GOLDEN) == 3


def test_weights_that_do_not_fit_are_told_in_one_line() -> None:
    arrays = dict(np.load(GOLDEN[0]))
    model, params = golden_model(arrays), tree(arrays, "params/")
    stats = tree(arrays, "batch_stats/")
    with pytest.raises(UserError, match="head.decoder.weight has shape"):
        load_official(model, params | {"decoder/kernel": np.zeros((8, 6))}, stats)
    with pytest.raises(UserError, match="no place"):
        load_official(model, params | {"encoder/layers_0/out1/bias": np.zeros(8)}, stats)
    with pytest.raises(UserError, match="nothing for layers.0.norm.mean"):
        load_official(model, params)


def test_nested_trees_and_tokens_and_pairs_load() -> None:
    config = ModelConfig(d_model=4, n_layers=0, front=TokenFront(vocab_size=7), head=PairHead(), n_outputs=2)
    rng = np.random.default_rng(0)
    kernel, W1, W2 = (rng.normal(size=s).astype(np.float32) for s in ((7, 4), (16, 4), (4, 2)))
    model = build_model(config)
    load_official(
        model,
        {
            "encoder": {"encoder": {"kernel": kernel, "bias": np.zeros(4)}},
            "decoder": {"layer1": {"kernel": W1, "bias": np.zeros(4)}, "layer2": {"kernel": W2, "bias": np.ones(2)}},
        },
    )
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    a, b = kernel[[1, 2, 3]].mean(0), kernel[[4, 5, 6]].mean(0)
    h = np.concatenate([a, b, a - b, a * b]) @ W1
    gelu = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    np.testing.assert_allclose(model(tokens).detach().numpy()[0], gelu @ W2 + 1, atol=1e-5)


def bidirectional(ssm_size: int, blocks: int) -> S5Mixer:
    return S5Mixer(ssm_size=ssm_size, blocks=blocks, bidirectional=True)


PUBLISHED = {
    "speech": (283_523, ModelConfig(96, 6, LinearFront(), bidirectional(128, 16), n_outputs=35)),
    "listops": (
        188_490,
        ModelConfig(128, 8, TokenFront(20), bidirectional(16, 8), activation="half_glu2", n_outputs=10),
    ),
    "imdb": (
        1_321_154,
        ModelConfig(256, 6, TokenFront(135), bidirectional(192, 12), activation="half_glu2", n_outputs=2),
    ),
    "aan": (772_098, ModelConfig(128, 6, TokenFront(98), bidirectional(256, 16), PairHead(), n_outputs=2)),
    "cifar": (5_133_706, ModelConfig(512, 6, LinearFront(), bidirectional(384, 3), n_outputs=10)),
    "pathfinder": (1_113_602, ModelConfig(192, 6, LinearFront(), bidirectional(256, 8), n_outputs=2)),
    "pathx": (694_018, ModelConfig(128, 6, LinearFront(), bidirectional(256, 16), n_outputs=2)),
    "smnist": (187_786, ModelConfig(96, 4, LinearFront(), bidirectional(128, 1), n_outputs=10)),
    "psmnist": (266_506, ModelConfig(128, 4, LinearFront(), bidirectional(128, 2), n_outputs=10)),
    "scifar": (5_134_730, ModelConfig(512, 6, LinearFront(n_inputs=3), bidirectional(384, 3), n_outputs=10)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_have_their_published_sizes(name: str) -> None:
    size, config = PUBLISHED[name]
    assert sum(p.numel() for p in build_model(config).parameters()) == size


def test_the_default_head_is_the_papers() -> None:
    assert ModelConfig().head == ClassHead(pooling="mean")

"""Every mixer keeps the contract: streams equal whole clips, padding changes nothing, refusals are one line."""

from dataclasses import replace

import pytest
import torch

from kws_s5.config import MIXERS, ClassHead, ConvMixer, ModelConfig, S4DMixer, S5Mixer
from kws_s5.errors import UserError
from kws_s5.mixers.protocol import build_mixer
from kws_s5.model import SequenceModel, build_model

H, L = 5, 60
CONFIGS = {
    "s5": S5Mixer(ssm_size=8, blocks=2, dt_min=0.01, dt_max=0.5),
    "s5, both ways": S5Mixer(8, 2, bidirectional=True),
    "s4d": S4DMixer(n_states=6, dt_min=0.01, dt_max=0.5),
    "gru": MIXERS["gru"](),
    "conv": ConvMixer(kernel=4),
    "conv of one step": ConvMixer(kernel=1),
}
CAUSAL = [name for name in CONFIGS if name != "s5, both ways"]


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_mixer(CONFIGS[name], H).eval()


def model_of(mixer: object, **options: object) -> SequenceModel:
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=H, n_layers=2, n_outputs=3, rate=100.0, mixer=mixer, head=ClassHead(frame_logits=True, window=0.2)
    )
    model = build_model(replace(config, **options))
    for _ in range(10):  # statistics that are not the initial ones
        model.train()(torch.randn(4, 30, 1))
    return model.eval()


def test_every_name_of_the_command_line_is_tested_here() -> None:
    assert {type(config) for config in CONFIGS.values()} == set(MIXERS.values())


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("rescale", [1.0, 2.0, torch.tensor([1.0, 0.5], dtype=torch.float64)], ids=["1", "2", "each"])
def test_a_stream_equals_the_whole_clip(name: str, rescale: float | torch.Tensor) -> None:
    mixer, x = make(name), torch.randn(2, L, H, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        state, parts = mixer.initial_state(2), []
        for piece in x.split([1, 1, 2, 3, 20, 33], 1):
            before = state.clone()
            y, following = mixer.stream(piece, state, step_rescale=rescale)
            assert torch.equal(state, before) and following.shape == state.shape
            assert following.untyped_storage().nbytes() == following.nbytes  # no view of something that grows
            parts.append(y)
            state = following
        torch.testing.assert_close(torch.cat(parts, 1), mixer(x, step_rescale=rescale), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_padding_changes_no_valid_step(name: str) -> None:
    mixer, lengths = make(name), torch.tensor([17, L])
    x = torch.randn(2, L, H)
    other = x.clone()
    other[0, 17:] = 9.0
    with torch.no_grad():
        torch.testing.assert_close(
            mixer(x, lengths=lengths)[0, :17], mixer(other, lengths=lengths)[0, :17], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_diagonal_system_is_the_mixer_itself(name: str) -> None:
    """By a loop in double precision, or there is none."""
    mixer = make(name).double()
    system = mixer.diagonal_system(2.0)
    if name not in ("s5", "s4d"):
        assert system is None
        return
    u = torch.randn(L, H, dtype=torch.float64)
    x, y = torch.zeros(len(system.Lambda_bar), dtype=torch.complex128), []
    for row in u:
        x = system.Lambda_bar * x + system.B_bar @ row.to(x.dtype)
        y.append((system.C @ x).real + system.D * row)
    with torch.no_grad():
        torch.testing.assert_close(torch.stack(y), mixer(u[None], step_rescale=2.0)[0], atol=1e-9, rtol=1e-9)
        state = mixer.stream(u[None], mixer.initial_state(1), step_rescale=2.0)[1][0]
    torch.testing.assert_close(torch.cat([x.real, x.imag]), state, atol=1e-9, rtol=1e-9)  # the same state, too


@pytest.mark.parametrize("name", CONFIGS)
def test_a_tensor_proves_the_size_that_a_config_claims(name: str) -> None:
    shapes = {key: tuple(value.shape) for key, value in make(name).state_dict().items()}
    proof = CONFIGS[name].proof(H)
    assert proof and {key: shapes[key] for key in proof} == proof


@pytest.mark.parametrize("name", CONFIGS)
def test_intervals_set_the_steps_or_are_refused(name: str) -> None:
    model, x, dt = model_of(CONFIGS[name]), torch.randn(2, 20, 1), torch.rand(2, 20) + 0.5
    if model.layers[0].seq.takes_intervals:
        assert not torch.allclose(model(x, dt=dt), model(x))
        return
    with pytest.raises(UserError, match="takes no intervals") as caught:
        model(x, dt=dt)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prenorm": False},
        {"ssm_norm": True, "norm": "layer"},
        {"activation": "relu"},
        {"activation": "none", "prenorm": False},
    ],
    ids=["as published", "post-norm", "two layer norms", "relu", "none"],
)
def test_models_of_every_mixer_stream_as_they_hear_clips(name: str, options: dict) -> None:
    model, x = model_of(CONFIGS[name], **options), torch.randn(2, L, 1)
    state, parts = model.initial_state(2, 2.0), []
    for piece in x.split([1, 5, 30, 24], 1):
        logits, state = model.stream(piece, state)
        parts.append(logits)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(parts, 1), model.frame_logits(x, step_rescale=2.0), atol=1e-4, rtol=1e-4)


def test_what_needs_whole_clips_says_why() -> None:
    with pytest.raises(UserError, match="model.mixer .bidirectional.: this model needs the end of a clip"):
        model_of(CONFIGS["s5, both ways"]).initial_state(1)

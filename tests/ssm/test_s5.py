"""S5SSM against a dense float64 system and against itself: half spectrum, step loop, padding, rates."""

import math

import pytest
import torch

from kws_s5.config import S5Mixer
from kws_s5.ssm.hippo import make_dplr_hippo_blocks, make_hippo_normal
from kws_s5.ssm.s5 import S5SSM

H, S = 5, 8


def build(seed=0, **options):
    torch.manual_seed(seed)
    return S5SSM(H, S5Mixer(ssm_size=S, blocks=2, dt_min=0.01, **options)).double()


def signal(N=3, L=40, seed=1):
    return torch.randn(N, L, H, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def states(N=3, P=S // 2):
    return torch.randn(N, 2 * P, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def rescale(*values):
    return torch.tensor(values, dtype=torch.float64)


def dense_outputs(A, B, C, D, u, Delta):
    """A real dense system, every step by matrix exponential of the held input."""
    size = len(A)
    augmented = torch.zeros(size + H, size + H, dtype=torch.float64)
    augmented[:size, :size], augmented[:size, size:] = A, B
    exact = torch.linalg.matrix_exp(augmented * Delta)
    A_bar, B_bar = exact[:size, :size], exact[:size, size:]
    x, ys = torch.zeros(size, dtype=torch.float64), []
    for k in range(len(u)):
        x = A_bar @ x + B_bar @ u[k]
        ys.append(C @ x + D * u[k])
    return torch.stack(ys)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_outputs_equal_a_dense_real_system_by_matrix_exponential(bidirectional):
    model = build(bidirectional=bidirectional)
    A = torch.block_diag(*[make_hippo_normal(S // 2)] * 2)
    B = torch.randn(S, H, dtype=torch.float64)
    Cs = [torch.randn(H, S, dtype=torch.float64) for _ in model.readouts]
    _, V, Vinv = make_dplr_hippo_blocks(S, 2, True)
    with torch.no_grad():
        model.B.copy_(torch.view_as_real(Vinv @ B.to(V.dtype)))
        for name, C in zip(model.readouts, Cs, strict=True):
            getattr(model, name).copy_(torch.view_as_real(C.to(V.dtype) @ V))
        Lambda, _, _ = make_dplr_hippo_blocks(S, 2, True)
        model.Lambda_re.copy_(Lambda.real)
        model.Lambda_im.copy_(Lambda.imag)
        model.log_step.fill_(math.log(0.07))
    u = signal(1)
    for factor in (1.0, 2.5):
        expected = dense_outputs(A, B, Cs[0], model.D, u[0], 0.07 * factor)
        if bidirectional:
            expected = expected + dense_outputs(A, B, Cs[1], 0 * model.D, u[0].flip(0), 0.07 * factor).flip(0)
        assert torch.allclose(model(u, step_rescale=factor)[0], expected, atol=1e-10)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_half_spectrum_equals_full_spectrum(bidirectional, discretization):
    options = {"bidirectional": bidirectional, "discretization": discretization}
    half, full = build(conj_sym=True, **options), build(conj_sym=False, **options)
    with torch.no_grad():
        for name in ("Lambda_re", "log_step"):
            getattr(full, name).copy_(getattr(half, name).repeat(2, *[1] * (getattr(half, name).dim() - 1)))
        full.Lambda_im.copy_(torch.cat([half.Lambda_im, -half.Lambda_im]))
        sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
        full.B.copy_(torch.cat([half.B, half.B * sign], 0))
        for name in half.readouts:
            getattr(full, name).copy_(torch.cat([getattr(half, name), getattr(half, name) * sign], 1))
        full.D.copy_(half.D)
    u, dt = signal(), torch.rand(3, 40, dtype=torch.float64) + 0.5
    assert torch.allclose(half(u), full(u), atol=1e-12)
    assert torch.allclose(half(u, dt=dt), full(u, dt=dt), atol=1e-12)


@pytest.mark.parametrize("eigenvalues", ["free", "clip", "exp"])
@pytest.mark.parametrize("irregular", [False, True])
def test_step_loop_equals_forward_from_any_initial_state(eigenvalues, irregular):
    model, u, state = build(eigenvalues=eigenvalues), signal(), states()
    dt = 0.5 + torch.rand(3, 40, dtype=torch.float64) if irregular else None
    ys, last = model(u, step_rescale=rescale(1, 2, 0.3), dt=dt, initial=state, return_state=True)
    for k in range(40):
        now = None if dt is None else dt[:, k]
        y, state = model.step(u[:, k], state, step_rescale=rescale(1, 2, 0.3), dt=now)
        assert torch.allclose(y, ys[:, k], atol=1e-12)
    assert torch.allclose(state, last, atol=1e-12)


def test_pieces_with_carried_state_equal_one_pass():
    model, u = build(), signal()
    whole = model(u)
    state, ys = model.initial_state(3), []
    for piece in u.split([1, 0, 7, 32], dim=1):
        y, state = model(piece, initial=state, return_state=True)
        ys.append(y)
    assert torch.allclose(torch.cat(ys, 1), whole, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_one_step_rescale_per_clip_equals_separate_calls(bidirectional):
    model, u, factors = build(bidirectional=bidirectional), signal(), rescale(1.0, 2.0, 0.37)
    together = model(u, step_rescale=factors)
    for n in range(3):
        assert torch.allclose(together[n], model(u[n : n + 1], step_rescale=factors[n].item())[0], atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_intervals_of_one_equal_no_intervals_and_constant_ones_a_rescale(bidirectional, discretization):
    model, u = build(bidirectional=bidirectional, discretization=discretization), signal()
    ones = torch.ones(3, 40, dtype=torch.float64)
    assert torch.allclose(model(u, dt=ones), model(u), atol=1e-12)
    assert torch.allclose(model(u, dt=2 * ones), model(u, step_rescale=2.0), atol=1e-12)
    expected = model(u, step_rescale=rescale(2, 4, 6))
    assert torch.allclose(model(u, step_rescale=rescale(1, 2, 3), dt=2 * ones), expected, atol=1e-12)


def test_irregular_intervals_equal_a_fine_grid_with_the_input_held():
    model = build()
    u, repeats = signal(1, 12), torch.tensor([1, 3, 2, 1, 4, 1, 2, 2, 5, 1, 1, 3])
    fine = torch.cat([u[:, k : k + 1].expand(-1, int(r), -1) for k, r in enumerate(repeats)], 1)
    expected = model(fine)[:, repeats.cumsum(0) - 1]
    assert torch.allclose(model(u, dt=repeats[None].double()), expected, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("irregular", [False, True])
def test_padding_of_any_content_and_length_changes_nothing(bidirectional, irregular):
    model, u, lengths = build(bidirectional=bidirectional), signal(), torch.tensor([40, 17, 1])
    dt = 0.5 + torch.rand(3, 40, dtype=torch.float64) if irregular else None
    padded = torch.cat([u, torch.full((3, 9, H), 1e3, dtype=torch.float64)], 1)
    padded_dt = None if dt is None else torch.cat([dt, torch.full((3, 9), 7.0, dtype=torch.float64)], 1)
    ys, state = model(padded, dt=padded_dt, lengths=lengths, return_state=True)
    for n, length in enumerate(lengths.tolist()):
        clip_dt = None if dt is None else dt[n : n + 1, :length]
        y, last = model(u[n : n + 1, :length], dt=clip_dt, return_state=True)
        assert torch.allclose(ys[n, :length], y[0], atol=1e-12)
        assert torch.allclose(state[n], last[0], atol=1e-12)


def test_a_clip_of_no_steps_keeps_its_state():
    model, state = build(), states(2)
    _, last = model(signal(2), lengths=torch.tensor([0, 40]), initial=state, return_state=True)
    assert torch.equal(last[0], state[0])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_slow_sine_looks_the_same_at_both_rates(bidirectional):
    torch.manual_seed(0)
    model = S5SSM(H, S5Mixer(ssm_size=32, blocks=4, dt_max=0.01, bidirectional=bidirectional)).double()
    time = torch.arange(16000, dtype=torch.float64) / 16000
    u = torch.sin(2 * math.pi * 20 * time)[None, :, None].expand(-1, -1, H)  # 20 Hz
    at_16k, at_8k = model(u), model(u[:, ::2], step_rescale=2.0)
    unscaled = model(u[:, ::2])
    middle = slice(2000, 6000)  # away from both ends
    scale = at_16k[:, ::2][:, middle].norm()
    assert (at_8k - at_16k[:, ::2])[:, middle].norm() / scale < 0.02
    assert (unscaled - at_16k[:, ::2])[:, middle].norm() / scale > 0.2


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("eigenvalues", ["free", "clip", "exp"])
def test_gradients_of_every_parameter(bidirectional, eigenvalues):
    model = build(bidirectional=bidirectional, eigenvalues=eigenvalues)
    u = signal(2, 4).requires_grad_()
    names, values = zip(*model.named_parameters(), strict=True)
    for extra in ({}, {"step_rescale": rescale(1, 2)}, {"dt": 0.5 + torch.rand(2, 4, dtype=torch.float64)}):
        run = lambda u, *v: torch.func.functional_call(model, dict(zip(names, v, strict=True)), u, extra)  # noqa: E731, B023
        assert torch.autograd.gradcheck(run, (u, *values), fast_mode=True)


@torch.no_grad()
def test_without_gradients_a_weight_changed_in_any_way_is_noticed():
    model, u = build(), signal()
    assert torch.equal(model(u), model(u))
    for parameter in model.parameters():
        for change in (lambda p: p.data.add_(0.01), lambda p: p.mul_(1.1), lambda p: setattr(p, "data", p * 0.9)):
            before = model(u)
            change(parameter)
            fresh = build()
            fresh.load_state_dict(model.state_dict())
            assert torch.equal(model(u), fresh(u)) and not torch.equal(model(u), before)
    assert not torch.equal(model(u, step_rescale=2.0), model(u, step_rescale=1.0))
    model.mask_above_nyquist = True
    assert not torch.equal(model(u, step_rescale=2e3), build()(u, step_rescale=2e3))


def test_eigenvalue_modes_start_equal_and_clip_and_exp_stay_stable():
    free, clip, exp = (build(eigenvalues=mode) for mode in ("free", "clip", "exp"))
    assert torch.allclose(free(signal()), clip(signal()))
    assert torch.allclose(free(signal()), exp(signal()), atol=1e-6)
    with torch.no_grad():
        for model in (clip, exp):
            model.Lambda_re.fill_(3.0)
            assert model.Lambda()[0].max() <= -1e-4
        free.Lambda_re.fill_(3.0)
        assert free.Lambda()[0].max() == 3.0


def test_parameters_carry_the_official_names_and_shapes():
    causal = {name: tuple(p.shape) for name, p in build().named_parameters()}
    assert causal == {
        "Lambda_re": (4,),
        "Lambda_im": (4,),
        "B": (4, H, 2),
        "C": (H, 4, 2),
        "D": (H,),
        "log_step": (4, 1),
    }
    both = {name for name, _ in build(bidirectional=True).named_parameters()}
    assert both == {"Lambda_re", "Lambda_im", "B", "C1", "C2", "D", "log_step"}


def test_float32_is_close_to_float64_at_speech_size():
    torch.manual_seed(0)
    config = S5Mixer(ssm_size=128, blocks=16, C_init="lecun_normal", bidirectional=True)
    single, double = S5SSM(96, config), S5SSM(96, config).double()
    double.load_state_dict(single.state_dict())
    u = torch.randn(1, 4000, 96)
    ys, expected = single(u), double(u.double())
    assert (ys - expected).norm() / expected.norm() < 1e-5


def test_autocast_keeps_states_in_float32():
    model, u = build().float(), signal().float()
    with torch.autocast("cpu", torch.bfloat16):
        ys, state = model(u, return_state=True)
    assert state.dtype == torch.float32
    assert (ys.float() - model(u)).norm() / model(u).norm() < 2e-2


def test_compiled_layer_has_no_breaks_and_the_same_outputs():
    model, u = build(bidirectional=True), signal()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    lengths = torch.tensor([40, 3, 20])
    assert torch.allclose(compiled(u, lengths=lengths), model(u, lengths=lengths), atol=1e-12)


def test_irregular_steps_never_build_steps_by_states_by_features():
    model = S5SSM(64, S5Mixer(ssm_size=64, blocks=8))
    N, L, P = 1, 256, 32
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():
        model(torch.randn(N, L, 64), dt=torch.rand(N, L), step_rescale=torch.ones(N)).sum().backward()
    assert largest <= N * L * 4 * P

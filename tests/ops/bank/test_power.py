"""The bank's arithmetic: compiled = plain torch = a filter from scipy, at any rate."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

import kws_s5.ops
from kws_s5.model.bank_design import discretise_modes, erb_decays, is_present, mel_frequencies
from kws_s5.ops.bank.frames import count_frames, frame_lengths
from kws_s5.ops.bank.power import bank_power, power_op, stream_power
from kws_s5.ops.common import threads

RATES = [8000.0, 11025.0, 16000.0]


def bank(M: int, n: int, rates: list[float]):
    frequency = mel_frequencies(M, 150.0, 3000.0)
    decay = erb_decays(frequency, n).requires_grad_()
    frequency.requires_grad_()
    rate = torch.tensor(rates, dtype=torch.float64)
    return decay, frequency, rate, *discretise_modes(decay, frequency, rate, n)


def frame_means_by_definition(power: np.ndarray, step: float, F: int) -> np.ndarray:
    """Every sample is [k, k + 1): its overlap with the frame, one by one."""
    k = np.arange(len(power))
    overlap = [np.clip(np.minimum(k + 1, (f + 1) * step) - np.maximum(k, f * step), 0, 1) for f in range(F)]
    return np.stack([o @ power for o in overlap]) / step


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("rate", RATES)
def test_frame_powers_equal_a_filter_from_scipy(backend: str, rate: float) -> None:
    _, _, _, a, c = bank(4, 2, [rate])
    u = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1000)))
    step = torch.tensor([rate / 100.0], dtype=torch.float64)
    F = count_frames(1000, float(step))
    got = bank_power(u, torch.tensor([1000]), a, c, step, F=F, n_poles=2, backend=backend)[0].detach().numpy()
    a, c = (torch.complex(*t[0].detach().chunk(2, -1)).numpy() for t in (a, c))
    for m in range(4):
        x = lfilter(c[:, m], np.convolve([1, -a[m]], [1, -a[m]]), u[0].numpy())
        want = frame_means_by_definition(np.abs(x) ** 2, rate / 100.0, F)
        np.testing.assert_allclose(got[:, m], want, rtol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("rates", [[11025.0], RATES])
def test_compiled_equals_plain_torch(n: int, rates: list[float]) -> None:
    torch.manual_seed(0)
    _, _, rate, a, c = bank(4, n, rates)
    u, lengths, step = torch.randn(3, 700, dtype=torch.float64), torch.tensor([700, 333, 50]), rate / 100.0
    F = int(frame_lengths(lengths, step).max())
    compiled, plain = (
        bank_power(u, lengths, a.detach(), c.detach(), step, F=F, n_poles=n, backend=backend)
        for backend in ("compiled", "reference")
    )
    torch.testing.assert_close(compiled, plain, rtol=1e-9, atol=1e-11 * plain.max().item())


def test_learnable_poles_have_the_gradient_of_finite_differences() -> None:
    decay, frequency, rate, _, _ = bank(2, 2, [8000.0])
    u, lengths = torch.randn(1, 240, dtype=torch.float64), torch.tensor([240])

    def power(decay: torch.Tensor, frequency: torch.Tensor) -> torch.Tensor:
        a, c = discretise_modes(decay, frequency, rate, 2)
        return bank_power(u, lengths, a, c, rate / 100.0, F=3, n_poles=2).log()

    assert torch.autograd.gradcheck(power, (decay, frequency))


def test_float32_follows_float64() -> None:
    torch.manual_seed(1)
    _, _, rate, a, c = bank(4, 2, [16000.0])
    u, lengths = torch.randn(1, 16000, dtype=torch.float64), torch.tensor([16000])
    powers = [
        bank_power(u.to(t), lengths, a.to(t), c.to(t), rate / 100.0, F=100, n_poles=2).double()
        for t in (torch.float32, torch.float64)
    ]
    torch.testing.assert_close(*powers, rtol=2e-4, atol=0.0)


def test_the_compiled_operator_passes_opcheck() -> None:
    _, _, rate, a, c = bank(4, 2, [8000.0])
    u, lengths = torch.randn(2, 200, dtype=torch.float64), torch.tensor([200, 120])
    torch.library.opcheck(power_op, (u, lengths, a.detach(), c.detach(), rate / 100.0, 2, 2))


def test_coefficients_are_differentiable_in_decay_and_frequency() -> None:
    decay, frequency, rate, _, _ = bank(3, 2, [8000.0, 44100.0])
    assert torch.autograd.gradcheck(lambda d, f: discretise_modes(d, f, rate, 2), (decay, frequency))


@pytest.mark.parametrize("rate", [8000.0, 11025.0, 22050.0, 48000.0])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_tone_at_a_centre_has_the_same_power_at_every_rate(rate: float, n: int) -> None:
    _, frequency, rates, a, c = bank(4, n, [rate])
    for m, f in enumerate(frequency.tolist()):
        u = torch.sin(2 * torch.pi * f * torch.arange(int(rate), dtype=torch.float64) / rate)[None]
        power = bank_power(u, torch.tensor([u.shape[1]]), a, c, rates / 10.0, F=10, n_poles=n)
        assert power[0, 5:, m].mean().item() == pytest.approx(0.25, rel=0.01)  # half of the sine is at -f


def test_the_gain_falls_by_the_filter_of_continuous_time_up_to_the_nyquist_frequency() -> None:
    decay, frequency, rate, a, c = bank(6, 2, [8000.0])
    tone = 2 * torch.pi * torch.linspace(100.0, 3700.0, 40, dtype=torch.float64)
    z = torch.exp(-1j * tone / rate)[:, None]
    a, c = (torch.complex(*t[0].chunk(2, -1)) for t in (a, c))
    got = (sum(c[j] * z**j for j in range(3)) / (1 - a * z) ** 2).abs().square()
    want = (decay / (1j * tone[:, None] + decay - 2j * torch.pi * frequency)).abs() ** 4
    error = (got / want).log().abs().detach()  # nats of power
    assert float(error[want > 0.1].max()) < 0.1
    assert float(error[want > 1e-6].max()) < 1.1  # one constant instead of three taps: 1.8


def test_modes_beyond_a_rates_reach_have_no_power() -> None:
    decay, frequency, rate, a, c = bank(4, 2, [4000.0])
    present = is_present(frequency, rate)[0]
    assert present.any() and not present.all()
    power = bank_power(torch.randn(1, 400, dtype=torch.float64), torch.tensor([400]), a, c, rate / 100, F=10, n_poles=2)
    assert bool((power[0, 5] > 0).eq(present).all())


def test_silence_after_sound_leaves_no_denormal_numbers() -> None:
    _, _, rate, a, c = bank(4, 2, [16000.0])
    memory, recent = torch.zeros(1, 20), torch.zeros(1, 2)
    for u in (torch.randn(1, 1600), torch.zeros(1, 160000)):
        stream_power(
            u,
            a.float().detach(),
            c.float().detach(),
            rate / 100,
            recent=recent,
            memory=memory,
            position=0,
            F=count_frames(u.shape[1], 160.0),
            n_poles=2,
        )
    assert bool((memory[:, :16].abs() > torch.finfo(torch.float32).tiny).all())


def test_calls_from_several_threads_at_once_do_not_disturb_each_other() -> None:
    _, _, rate, a, c = bank(4, 2, [16000.0])
    a, c = a.detach().float(), c.detach().float()
    clips = [torch.randn(4, 4000) for _ in range(6)]

    def power(u: torch.Tensor) -> torch.Tensor:
        return bank_power(u, torch.full((4,), 4000), a, c, rate / 100, F=25, n_poles=2)

    alone = [power(u) for u in clips]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(power, clips))
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_without_torchs_openmp_a_thread_pool_gives_the_same_powers(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, rate, a, c = bank(4, 2, [16000.0])
    u, before = torch.randn(5, 4000), torch.get_num_threads()

    def power() -> torch.Tensor:
        return bank_power(
            u,
            torch.full((5,), 4000),
            a.detach().float(),
            c.detach().float(),
            rate / 100,
            F=25,
            n_poles=2,
            backend="compiled",
        )

    torch.set_num_threads(3)
    try:
        expected = power()
        monkeypatch.setattr(threads, "_gomp", lambda: None)
        torch.testing.assert_close(power(), expected, rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


def stream(u: torch.Tensor, a: torch.Tensor, c: torch.Tensor, step: float, cuts: list[int]) -> list[torch.Tensor]:
    """Powers of a stream in pieces, then what it remembers."""
    recent, memory = u.new_zeros(len(u), 2), u.new_zeros(len(u), 5 * a.shape[1] // 2)
    position, pieces = 0, []
    for piece in torch.tensor_split(u, cuts, 1):
        end = position + piece.shape[1]
        F = count_frames(end, step) - count_frames(position, step)
        pieces.append(
            stream_power(
                piece,
                a,
                c,
                torch.tensor([step], dtype=torch.float64),
                recent=recent,
                memory=memory,
                position=position,
                F=F,
                n_poles=2,
            )
        )
        position = end
    return [torch.cat(pieces, 1), recent, memory]


@pytest.mark.parametrize("mode", ["auto", "reference"])
@pytest.mark.parametrize("rate", [8000.0, 11025.0])
def test_a_stream_in_any_pieces_gives_the_powers_of_the_whole_clip(mode: str, rate: float) -> None:
    _, _, rates, a, c = bank(4, 2, [rate])
    a, c, step = a.detach(), c.detach(), rate / 100
    u = torch.randn(3, 900, dtype=torch.float64)
    F = count_frames(900, step)
    whole = bank_power(u, torch.full((3,), 900), a, c, rates / 100, F=F, n_poles=2, backend="reference")
    with kws_s5.ops.use(mode):
        for cuts in ([], [1, 2, 2, 80, 81, 500], [110, 111, 220, 221]):
            powers, recent, memory = stream(u, a, c, step, cuts)
            torch.testing.assert_close(powers, whole, rtol=1e-9, atol=1e-15)
            if mode == "reference":
                with kws_s5.ops.use("auto"):
                    for one, other in zip(stream(u, a, c, step, []), (powers, recent, memory), strict=True):
                        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_never_reaches_the_kernels(dtype: torch.dtype) -> None:
    """They read four bytes a number: the plain version runs; a direct call or a stream is refused."""
    _, _, _, a, c = bank(4, 2, [8000.0])
    u = 0.1 * torch.randn(2, 400, generator=torch.Generator().manual_seed(0)).double()
    lengths, step = torch.tensor([400, 300]), torch.tensor([80.0], dtype=torch.float64)
    exact = bank_power(u, lengths, a, c, step, F=5, n_poles=2)
    half = [t.detach().to(dtype) for t in (u, a, c)]
    rough = bank_power(half[0], lengths, half[1], half[2], step, F=5, n_poles=2)
    assert rough.shape == exact.shape and rough.isfinite().all()
    with pytest.raises(AssertionError, match="float32 or float64"):
        bank_power(half[0], lengths, half[1], half[2], step, F=5, n_poles=2, backend="compiled")

"""The rate-independent front: a bank of complex S5 modes on the waveform, read as log power per frame of physical time.

    bank of M modes at the sound's own rate -> mean power in frames of 1 / frame_rate s -> log(power + floor)
    -> batch norm per mode -> (masking in training) -> dense layer to d_model

Only the modes know the sample rate (bank_design.py); everything behind sees frame_rate frames a second. A second of
sound gives frame_rate frames at any rate; a frame that is not complete is left out (a clip shorter than one frame gives
one). The power of a full-scale sine at a mode's centre is 0.5.

Legend: N batch, L samples, M modes, F frames of the longest clip, R = 1 or N, H features.
"""

import math

import torch
from torch import Tensor, nn

from kws_s5.config.model import BankFront
from kws_s5.config.training import Role
from kws_s5.errors import UserError
from kws_s5.model.bank_design import TAPS, TOP, USABLE, discretise_modes, erb_decays, is_present, mel_frequencies
from kws_s5.model.dense import dense
from kws_s5.model.front import Features, State
from kws_s5.model.mask import FeatureMask
from kws_s5.model.norm import BatchNorm
from kws_s5.ops.bank.frames import count_frames, frame_lengths
from kws_s5.ops.bank.power import bank_power, stream_power

SINE = math.sqrt(2.0)  # a real sine is half a complex one: |x|^2 = A^2 / 4, and its power is A^2 / 2


def build(config: BankFront, d_model: int, rate: float) -> nn.Module:
    """Config -> front for a model trained at ``rate`` Hz."""
    if rate <= 0:
        raise UserError("model.rate = 0: BankFront needs the training rate in Hz")
    return Bank(config, d_model, rate=rate)


class Bank(nn.Module):
    """(N, L, 1) sound -> Features (N, F, H) at frame_rate, whatever the sound's rate."""

    fixed_frame_rate = True

    def __init__(self, config: BankFront, H: int, *, rate: float) -> None:
        super().__init__()
        self.rate, self.frame_rate, self.n_poles = rate, config.frame_rate, config.n_poles
        self.floor, self.gain, self.absent = config.floor, config.gain, config.absent
        self.lowest = max(config.frame_rate, 2.0 * config.f_min / USABLE)  # Hz; below, no mode or no frame fits
        top = TOP * 0.5 * rate
        if config.f_min > top:
            raise UserError(f"front.f_min = {config.f_min:g}: must be below {top:g} Hz for training at {rate:g} Hz")
        frequency = mel_frequencies(config.n_modes, config.f_min, min(config.f_max, top))
        decay = erb_decays(frequency, config.n_poles)
        for name, value in (("log_frequency", frequency.log()), ("log_decay", decay.log())):  # Hz, 1/s
            value = value.to(torch.get_default_dtype())
            if config.learnable:
                self.register_parameter(name, nn.Parameter(value))  # (M,)
            else:
                self.register_buffer(name, value)
        self.learnable = config.learnable
        self.norm = BatchNorm(config.n_modes)
        self.mask = FeatureMask(config.frame_rate)
        self.encoder = dense(config.n_modes, H)
        self._known: tuple = ()  # coefficients of the last call without gradients, and what they were made from

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, *, dt: Tensor | None = None
    ) -> Features:
        """Whole clips.

        Args:
            x: (N, L, 1).
            lengths: (N,) samples; None: every row is full.
            step_rescale: training rate / rate, a number or (N,).
        Raises UserError for ``dt``, and for rates too low for any mode or frame.
        """
        if dt is not None:
            raise UserError("front: BankFront reads evenly sampled sound; for irregular series use LinearFront")
        u = x[..., 0]
        N, L = u.shape
        rate = self._rates(step_rescale)  # (R,)
        a, c = self._coefficients(rate, u)
        step = rate / self.frame_rate
        samples = torch.full((N,), L, device=u.device) if lengths is None else lengths.to(u.device)
        frames = frame_lengths(samples, step.to(u.device))
        F = int(frames.max())
        power = bank_power(u, samples, a, c, step.to(u.device), F=F, n_poles=self.n_poles)
        valid = None if lengths is None and len(rate) == 1 else frames
        return Features(self._encode(power, valid, rate), valid)

    def parameter_roles(self) -> dict[str, Role]:
        """Poles that learn train as those of the layers."""
        return {"log_frequency": "pole", "log_decay": "pole"} if self.learnable else {}

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """State of N streams of one rate; holds the modes' coefficients for it. Raises UserError for several rates."""
        rate = self._rates(step_rescale)
        if len(rate) > 1 and bool((rate != rate[0]).any()):
            raise UserError("streams in one batch must have the same rate: use one batch for each rate")
        rate = rate[:1]
        M, zeros = len(self.log_decay), torch.zeros(0, dtype=self.encoder.weight.dtype)
        a, c = self._coefficients(rate, zeros)
        return {
            "a": a.detach(),
            "c": c.detach(),
            "rate": rate,
            "position": torch.zeros((), dtype=torch.int64),
            "recent": zeros.new_zeros(N, TAPS - 1),
            "memory": zeros.new_zeros(N, (2 * self.n_poles + 1) * M),
        }

    @torch.no_grad()
    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """chunk (N, l, 1), any l >= 0 -> frames (N, f, H) that are complete now, and the next state. On the CPU."""
        u, rate = chunk[..., 0].to("cpu", state["memory"].dtype), state["rate"]
        step, position = rate / self.frame_rate, int(state["position"])
        end = position + u.shape[1]
        F = count_frames(end, float(step)) - count_frames(position, float(step))
        recent, memory = state["recent"].clone(), state["memory"].clone()
        power = stream_power(
            u, state["a"], state["c"], step, recent=recent, memory=memory, position=position, F=F, n_poles=self.n_poles
        )
        following = {**state, "recent": recent, "memory": memory, "position": torch.tensor(end)}
        return self._encode(power.to(self.encoder.weight.device), None, rate), following

    def modes(self) -> tuple[Tensor, Tensor]:
        """Decay in 1/s and centre frequency in Hz of every mode, (M,) float64 each."""
        frequency = self.log_frequency.double().exp().clamp(max=USABLE * 0.5 * self.rate)
        return self.log_decay.double().exp(), frequency

    def _encode(self, power: Tensor, lengths: Tensor | None, rate: Tensor) -> Tensor:
        """(N, F, M) -> (N, F, H)."""
        x = self.norm((power + self.floor).log(), lengths)
        if self.absent == "mean":
            present = is_present(self.modes()[1].detach(), rate.to(x.device))  # (R, M)
            x = torch.where(present[:, None, :], x, self.norm.bias)
        return self.encoder(self.mask(x, lengths, self.norm.bias))

    def _coefficients(self, rate: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Poles (R, 2M) and taps (R, T, 2M) in u's dtype and on its device; kept while nothing changes."""
        if torch.is_grad_enabled() and self.log_decay.requires_grad:
            return self._compute(rate, u)
        asked = (tuple(rate.tolist()), u.dtype, u.device)
        modes = torch.stack([self.log_decay, self.log_frequency]).detach()
        known = self._known  # compared by value: a fused optimiser step leaves identity and version as they were
        if not (known and known[0] == asked and known[1].device == modes.device and torch.equal(known[1], modes)):
            self._known = known = (asked, modes, *self._compute(rate, u))
        return known[2:]

    def _compute(self, rate: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        rates, rows = torch.unique(rate, return_inverse=True)
        decay, frequency = self.modes()
        a, c = discretise_modes(decay, frequency, rates.to(decay.device), self.n_poles)
        rows = rows.to(decay.device)
        return a[rows].to(u), (c[rows] * (SINE * self.gain)).to(u)

    def _rates(self, step_rescale: float | Tensor) -> Tensor:
        """(1,) or (N,) float64 Hz on the CPU; a rate within rounding of a whole number is meant to be that."""
        rescale = torch.as_tensor(step_rescale, dtype=torch.float64, device="cpu").reshape(-1)
        rate = self.rate / rescale
        whole = rate.round()
        rate = torch.where((rate - whole).abs() < 1e-6 * rate, whole, rate)
        if bool((rate < self.lowest).any()):
            raise UserError(f"sound at {float(rate.min()):g} Hz: this model needs at least {self.lowest:g} Hz")
        return rate

"""Log-mel spectrogram (torchaudio), the field's standard front, as the baseline beside the bank. Tied to one rate.

    frames of ``window`` seconds -> |FFT|^2 -> mel bands -> log(power + floor) -> batch norm per band
    -> (masking in training) -> dense layer to d_model

Causal, so that it streams: frame f looks at the sound before (f + 1) / frame_rate only. Sound at another rate must be
resampled to the training rate first; nothing is resampled silently. A full-scale sine has power 0.5, as in the bank.

Legend: N batch, L samples, M mel bands, F frames, H features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.model import LogMelFront
from kws_s5.errors import UserError
from kws_s5.model.dense import dense
from kws_s5.model.front import Features, State
from kws_s5.model.mask import FeatureMask
from kws_s5.model.norm import BatchNorm


def build(config: LogMelFront, d_model: int, rate: float) -> nn.Module:
    """Config -> front for sound at ``rate`` Hz."""
    if rate <= 0:
        raise UserError("model.rate = 0: LogMelFront needs the training rate in Hz")
    return LogMel(config, d_model, rate=rate)


class LogMel(nn.Module):
    """(N, L, 1) sound at the training rate -> Features (N, F, H) at frame_rate."""

    fixed_frame_rate = True

    def __init__(self, config: LogMelFront, H: int, *, rate: float) -> None:
        super().__init__()
        from torchaudio.transforms import MelSpectrogram  # only this front needs it

        self.rate, self.frame_rate, self.floor = rate, config.frame_rate, config.floor
        self.hop = round(rate / config.frame_rate)
        if self.hop < 1 or self.hop * config.frame_rate != rate:
            raise UserError(
                f"front.frame_rate = {config.frame_rate:g}: LogMelFront needs a whole number of samples a "
                f"frame at {rate:g} Hz; BankFront does not"
            )
        window = max(self.hop, round(config.window * rate))
        self.size = 1 << (window - 1).bit_length()  # of the FFT, samples
        self.spectrogram = MelSpectrogram(
            sample_rate=round(rate),
            n_fft=self.size,
            win_length=window,
            hop_length=self.hop,
            f_min=config.f_min,
            f_max=min(config.f_max, 0.5 * rate),
            n_mels=config.n_mels,
            center=False,
            power=2.0,
        )
        self.scale = 2.0 * (config.gain / float(self.spectrogram.spectrogram.window.sum())) ** 2
        self.norm = BatchNorm(config.n_mels)
        self.mask = FeatureMask(config.frame_rate)
        self.encoder = dense(config.n_mels, H)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, *, dt: Tensor | None = None
    ) -> Features:
        """Whole clips: x (N, L, 1), lengths (N,) samples or None. A clip shorter than a frame gives one.

        Raises UserError for ``dt`` and for sound at another rate than the training rate.
        """
        if dt is not None:
            raise UserError("front: LogMelFront reads evenly sampled sound; for irregular series use LinearFront")
        self._check_rate(step_rescale)
        u = x[..., 0]
        L = u.shape[1]
        if lengths is not None:  # what lies behind a short clip is silence
            lengths = lengths.to(u.device)
            u = u * (torch.arange(L, device=u.device) < lengths[:, None])
        u = F.pad(u, (self.size - self.hop, max(0, self.hop - L)))
        frames = None if lengths is None else torch.maximum(lengths // self.hop, lengths.clamp(max=1))
        return Features(self._encode(u, frames), frames)

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """State of N streams at the training rate: the last samples, and how many there have been."""
        self._check_rate(step_rescale)
        weight = self.encoder.weight
        return {"recent": weight.new_zeros(N, self.size), "position": torch.zeros((), dtype=torch.int64)}

    @torch.no_grad()
    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """chunk (N, l, 1), any l >= 0 -> frames (N, f, H) that are complete now, and the next state."""
        position, l = int(state["position"]), chunk.shape[1]
        u = torch.cat([state["recent"], chunk[..., 0].to(state["recent"])], 1)  # ends at position + l
        following = {"recent": u[:, l:].clone(), "position": torch.tensor(position + l)}
        f = (position + l) // self.hop - position // self.hop
        if not f:
            return u.new_zeros(len(u), 0, self.encoder.out_features), following
        first = (position // self.hop + 1) * self.hop - position  # sample of u where the first frame's window begins
        return self._encode(u[:, first : first + self.size + (f - 1) * self.hop], None), following

    def _encode(self, u: Tensor, lengths: Tensor | None) -> Tensor:
        """Sound with size - hop samples of history (N, .) -> (N, F, H)."""
        with torch.autocast(u.device.type, enabled=False):
            u = u.to(self.spectrogram.mel_scale.fb.dtype)
            power = self.spectrogram(u).transpose(1, 2) * self.scale  # (N, F, M)
            x = self.norm((power + self.floor).log(), lengths)
        return self.encoder(self.mask(x, lengths, self.norm.bias))

    def _check_rate(self, step_rescale: float | Tensor) -> None:
        rescale = torch.as_tensor(step_rescale, dtype=torch.float64)
        if bool(((rescale - 1.0).abs() > 1e-6).any()):
            rate = self.rate / float(rescale.flatten()[0])
            raise UserError(
                f"sound at {rate:g} Hz: a LogMelFront model hears only {self.rate:g} Hz; resample it "
                "first, or train a model with BankFront"
            )

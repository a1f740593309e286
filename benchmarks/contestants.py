"""Who takes part in the CPU benchmark: models of the same width and depth, each a training step and an inference.

The size is that of recipe kws35: six layers, 96 features, 128 states (64 stored), both directions, one second of sound
at 16 kHz. A contestant that is not installed is left out with a line that says so.

Ours runs in four ways: the layer kernels; the scan kernel between ordinary torch operations, which is what layers do
that the layer kernels do not cover; the same under torch.compile; and portable, plain torch alone.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kws_s5 import ops
from kws_s5.model.layer import S5Layer
from kws_s5.model.sequence import build_model
from kws_s5.recipes.kws import kws35

LAYERS, H, STATES, CLASSES, RATE = 6, 96, 128, 35, 16000
Way = Literal["kernels", "scan kernel", "portable"]


@dataclass(frozen=True)
class Contestant:
    """model: (N, L, 1) -> (N, 35).

    half: under bfloat16 autocast; products: torch's float32 matmul precision ("medium": operands rounded to bfloat16);
    way: how ours runs, see the head of this file.
    """

    name: str
    model: nn.Module
    half: bool = False
    products: str = "highest"
    way: Way = "kernels"

    def train(self, x: Tensor, labels: Tensor) -> None:
        """Forward, loss and backward; gradients are dropped."""
        self.model.train()
        with self._settings():
            logits = self.model(x)
        with running(self.way):
            F.cross_entropy(logits.float(), labels).backward()
        self.model.zero_grad(set_to_none=True)

    @torch.inference_mode()
    def infer(self, x: Tensor) -> None:
        """Forward in evaluation mode."""
        self.model.eval()
        with self._settings():
            self.model(x)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.products)
        try:
            with running(self.way), torch.autocast("cpu", torch.bfloat16, enabled=self.half):
                yield
        finally:
            torch.set_float32_matmul_precision(before)


@contextmanager
def running(way: Way) -> Iterator[None]:
    """Ours with layer kernels, with the scan kernel and eager torch, or (portable) with no compiled code at all."""
    fuse = S5Layer.fuse
    S5Layer.fuse = fuse and way == "kernels"
    try:
        with ops.use("reference" if way == "portable" else "auto"):
            yield
    finally:
        S5Layer.fuse = fuse


class Stack(nn.Module):
    """Dense layer, body (N, L, H) -> (N, L, any), mean over time, dense layer."""

    def __init__(self, body: nn.Module, width: int = H) -> None:
        super().__init__()
        self.encoder, self.body, self.decoder = nn.Linear(1, H), body, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(self.encoder(x))
        return self.decoder((y[0] if isinstance(y, tuple) else y).mean(1))


class MelCNN(nn.Module):
    """Log-mel spectrogram (40 bands, 10 ms) and a small CNN: the usual baseline, tied to its sample rate."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        from torchaudio.transforms import MelSpectrogram

        self.mel = MelSpectrogram(RATE, n_fft=512, win_length=400, hop_length=160, n_mels=40)
        layers, channels = [], 1
        for _ in range(4):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.body, self.decoder = nn.Sequential(*layers), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.body((self.mel(x[..., 0]) + 1e-6).log()[:, None]).mean((2, 3)))


def ours() -> nn.Module:
    """Recipe kws35's model."""
    return build_model(replace(kws35().model, n_outputs=CLASSES, rate=float(RATE)))


def ours_torch_compile() -> nn.Module:
    """The same under torch.compile, which takes a C++ compiler and minutes before the first step."""
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise OSError("no C++ compiler")
    return torch.compile(ours())  # type: ignore[return-value]


def s5_pytorch() -> nn.Module:
    """The package of that name, its own block (layer norm, GEGLU) at the same width, states and directions."""
    from s5.s5_model import S5Block

    return Stack(nn.Sequential(*(S5Block(H, STATES, True, block_count=16) for _ in range(LAYERS))))


def lrnnx() -> nn.Module:
    """S5 of the package lrnnx, one direction (it has no other)."""
    from lrnnx.models.lti.s5 import S5

    return Stack(nn.Sequential(*(S5(H, STATES // 2, "zoh") for _ in range(LAYERS))))


def gru() -> nn.Module:
    return Stack(nn.GRU(H, H, LAYERS, batch_first=True, bidirectional=True), 2 * H)


def lstm() -> nn.Module:
    return Stack(nn.LSTM(H, H, LAYERS, batch_first=True, bidirectional=True), 2 * H)


BUILDERS: dict[str, tuple[Callable[[], nn.Module], dict]] = {
    "ours, compiled": (ours, {}),
    "ours, compiled, bfloat16 products": (ours, {"half": True}),
    "ours, scan kernel and torch": (ours, {"way": "scan kernel"}),
    "ours, scan kernel and torch, bfloat16": (ours, {"way": "scan kernel", "half": True}),
    "ours, torch.compile": (ours_torch_compile, {"way": "scan kernel"}),
    "ours, torch.compile, bfloat16": (ours_torch_compile, {"way": "scan kernel", "half": True}),
    "ours, portable": (ours, {"way": "portable"}),
    "s5-pytorch": (s5_pytorch, {}),
    "lrnnx S5 (one direction)": (lrnnx, {}),
    "GRU": (gru, {}),
    "LSTM": (lstm, {}),
    "log-mel + CNN": (MelCNN, {}),
}
USUAL = tuple(name for name in BUILDERS if "torch.compile" not in name)  # the others: minutes to compile


def build(name: str) -> Contestant | None:
    """A contestant with fresh weights, or None, said in one line, where its package is missing."""
    function, options = BUILDERS[name]
    torch.manual_seed(0)
    try:
        return Contestant(name, function(), **options)
    except (ImportError, OSError) as error:
        print(f"{name}: not measured ({error}); peers: pip install 'kws-s5[bench]'")
        return None

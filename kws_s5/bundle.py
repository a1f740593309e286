"""A trained model in one safetensors file: weights and everything needed to use them. Loading executes nothing.

    bundle = kws_s5.load("runs/kws12")            # a run folder, a model file, or the name of a shipped model
    bundle.classify(waveform, 8000)               # {"yes": 0.93, "no": 0.02, ...}, at whatever rate the sound has

The checks of a file are in bundle_file.py. Legend: N batch, L steps, K outputs.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kws_s5.bundle_file import read, write
from kws_s5.config import RunConfig, from_dict, to_dict
from kws_s5.config.older import todays_tensor
from kws_s5.data.batch import Batch, Example, collate
from kws_s5.errors import NO_NUMBERS, UserError
from kws_s5.model.norm import BatchNorm
from kws_s5.model.sequence import build_model
from kws_s5.rate import step_rescale

MODEL_FILE = "model.safetensors"
SHIPPED = Path(__file__).parent / "models"


@dataclass
class Bundle:
    """A model in evaluation mode with its labels, training rate and thresholds."""

    model: nn.Module
    config: RunConfig
    labels: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()  # of token models
    thresholds: dict[str, float] = field(default_factory=dict)  # per keyword, for spotting
    note: str = ""  # training data, its licence
    version: str = ""  # of the library that saved it
    metrics: dict[str, Any] = field(default_factory=dict)  # of the training run

    @property
    def rate(self) -> float:
        """Training rate in Hz, where step_rescale is 1; 0: the data has no rate."""
        return self.config.model.rate

    def __repr__(self) -> str:
        """One line: a notebook shows it for every model that is loaded."""
        words = f"{', '.join(self.labels[:4])}{', ...' if len(self.labels) > 4 else ''}"
        n = sum(p.numel() for p in self.model.parameters())
        return f"<Bundle {self.config.name}: {words or 'no labels'}; {n:,} parameters, trained at {self.rate:g} Hz>"

    @property
    def seconds(self) -> float:
        """Length of the training clips; 0: the data has none."""
        return getattr(self.config.data, "seconds", 0.0)

    def save(self, path: str | Path) -> None:
        """Writes the file atomically."""
        from kws_s5 import __version__

        description = {
            "version": self.version or __version__,
            "config": to_dict(self.config),
            "labels": list(self.labels),
            "vocabulary": list(self.vocabulary),
            "rate": self.rate,
            "thresholds": self.thresholds,
            "note": self.note,
            "metrics": self.metrics,
        }
        write(path, self.model.state_dict(), description)

    @torch.inference_mode()
    def logits(self, batch: Batch, *, rescale: bool = True) -> Any:
        """The model's outputs for a batch, before softmax: (N, K), or the head's own form.

        Args:
            batch: with the rate of each clip.
            rescale: adapt the step to the clips' rates; False: treat every clip as if it had the training rate.

        Raises:
            UserError: the outputs are no numbers.
        """
        device = next(self.model.parameters()).device
        self.model.eval()
        outputs = self.model(**model_inputs(batch, self.rate, device=device, rescale=rescale))
        if not all(torch.isfinite(part).all() for part in (outputs if isinstance(outputs, tuple) else (outputs,))):
            raise UserError(NO_NUMBERS)
        return outputs

    def classify(self, waveform: Any, rate: float) -> dict[str, float]:
        """Probability of every label for one clip.

        Args:
            waveform: (L,) float samples in [-1, 1], numpy or torch, at their own rate; nothing is resampled. Longer
                than the clips of the training: the middle is listened to (KeywordSpotter hears long recordings).
            rate: Hz.

        Raises:
            UserError: not a one-dimensional finite waveform, no positive rate, or a model that gives no numbers.
        """
        if not self.labels or not self.rate:
            raise UserError("classify() is for models of sound with labels; use logits() for this one")
        if not rate > 0:
            raise UserError(f"rate = {rate!r}: must be the waveform's sample rate in Hz")
        try:
            x = torch.as_tensor(waveform)
        except (TypeError, ValueError, RuntimeError):
            raise UserError(
                f"waveform: {type(waveform).__name__} instead of samples; files are read by "
                "audio = kws_s5.load_audio(path), then audio.waveform, audio.rate"
            ) from None
        if x.ndim != 1 or len(x) == 0 or not x.is_floating_point():
            raise UserError(
                f"waveform: expected (L,) floats in [-1, 1], got {tuple(x.shape)} {x.dtype}; "
                "kws_s5.load_audio gives that for files and arrays of any kind"
            )
        if not torch.isfinite(x).all():
            raise UserError("waveform: contains NaN or infinity")
        clip = Example(_as_trained(x.float(), rate, self.config)[:, None], torch.tensor(0), float(rate))
        probabilities = self.logits(collate([clip]))[0].float().softmax(-1)
        return dict(zip(self.labels, probabilities.tolist(), strict=True))


def model_inputs(batch: Batch, train_rate: float, *, device: torch.device | str, rescale: bool = True) -> dict:
    """Arguments of a model's forward for a batch: x, lengths, step_rescale (1 without rates) and dt.

    Lengths and rates stay where they are, best on the CPU, where the model sees that all are equal.
    """
    scale: float | Tensor = 1.0
    if rescale and batch.rates is not None:
        scale = step_rescale(train_rate, batch.rates).float()
    return {
        "x": batch.x.to(device),
        "lengths": batch.lengths,
        "step_rescale": scale,
        "dt": None if batch.dt is None else batch.dt.to(device),
    }


def load(source: str | Path) -> Bundle:
    """The model of a run folder, a model file, or the name of a shipped model.

    Raises:
        UserError: nothing there, or the file is not a sound model file of this version (one line that says why).
    """
    path = find(source)
    tensors, description = read(path)
    try:
        config = from_dict(RunConfig, description["config"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    labels = tuple(map(str, description["labels"]))
    if labels and len(labels) != config.model.n_outputs:
        raise UserError(f"{path}: {len(labels)} labels for {config.model.n_outputs} outputs; the file is damaged")
    return Bundle(
        _with_weights(config, tensors, path),
        config,
        labels,
        tuple(map(str, description["vocabulary"])),
        dict(description["thresholds"]),
        str(description["note"]),
        str(description["version"]),
        dict(description["metrics"]),
    )


def find(source: str | Path) -> Path:
    """The model file that ``source`` (folder, file or shipped name) means; UserError if there is none."""
    path = Path(source).expanduser()
    if path.is_dir():
        if not (path / MODEL_FILE).is_file():
            raise UserError(f"{path}: no {MODEL_FILE} in this folder; has the run's first epoch ended?")
        return path / MODEL_FILE
    if path.suffix == ".onnx" and path.is_file():
        raise UserError(
            f"{path}: an exported model, which kws-scan, kws-listen and KeywordSpotter run; "
            "give the run folder or model file that it came from"
        )
    if path.is_file():
        return path
    names = shipped()
    if str(source) in names:
        return SHIPPED / f"{source}.safetensors"
    near = difflib.get_close_matches(str(source), names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"shipped models: {', '.join(names) or 'none'}"
    raise UserError(f"{source}: no such file, run folder or shipped model; {hint}")


def shipped() -> list[str]:
    """Names of the models inside the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def _with_weights(config: RunConfig, tensors: dict[str, Tensor], path: Path) -> nn.Module:
    """Builds the model the config describes and gives it the tensors, after proving that they belong together."""
    tensors = {todays_tensor(name): value for name, value in tensors.items()}
    _check_sizes(config, tensors, path)
    model = build_model(config.model)
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or extra:
        raise UserError(
            f"{path}: tensor {(missing or extra)[0]} is {'missing' if missing else 'unknown'}; "
            "the file does not fit its own description"
        )
    for name, shape in wanted.items():
        if tuple(tensors[name].shape) != shape:
            raise UserError(f"{path}: tensor {name} has shape {tuple(tensors[name].shape)}, expected {shape}")
    model.load_state_dict(tensors)
    for name, part in model.named_modules():
        if isinstance(part, BatchNorm) and bool(torch.any(part.get_buffer("var") < 0)):
            raise UserError(f"{path}: tensor {name}.var holds a negative variance; the file is damaged")
    return model.eval()


def _check_sizes(config: RunConfig, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuses a description that claims more than the file holds, before memory is taken for it."""
    held = sum(t.numel() for t in tensors.values())
    model = config.model
    front = [v for v in vars(model.front).values() if isinstance(v, int)]
    claimed = max([model.d_model, model.n_outputs, *front])
    layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    fits = all(
        tuple(tensors[f"layers.{i}.seq.{name}"].shape) == shape if f"layers.{i}.seq.{name}" in tensors else False
        for i in layers
        for name, shape in model.mixer.proof(model.d_model).items()
    )
    if claimed > max(held, 1) or len(layers) != model.n_layers or not fits:
        raise UserError(f"{path}: the described model and the stored tensors differ in size; the file is damaged")


def _as_trained(x: Tensor, rate: float, config: RunConfig) -> Tensor:
    """(L,) cut to the middle, or zero-padded at the end, to the length of the training clips."""
    seconds = getattr(config.data, "seconds", 0.0)
    length = round(seconds * rate)
    if length and len(x) > length:
        start = (len(x) - length) // 2
        return x[start : start + length]
    if length and getattr(config.data, "pad", False):
        return torch.nn.functional.pad(x, (0, length - len(x)))
    return x

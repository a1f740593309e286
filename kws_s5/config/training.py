"""How a model is trained: optimiser groups, schedule, loop."""

from dataclasses import dataclass
from typing import Literal

from kws_s5.config.checks import one_of, require

Groups = Literal["standard", "BandCdecay", "BfastandCdecay", "noBCdecay"]
Schedule = Literal["cosine", "official", "constant"]


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with the paper's parameter groups."""

    lr: float = 0.004
    ssm_lr: float = 0.001
    weight_decay: float = 0.05
    groups: Groups = "standard"
    dt_global: bool = False
    """Train log_step with the global learning rate and decay."""
    schedule: Schedule = "cosine"
    """cosine: linear warm-up, then down to lr_min at the last step. official: the published code's off-by-one."""
    warmup_epochs: float = 1.0
    lr_min: float = 0.0
    clip_norm: float = 0.0
    """Gradient norm limit; 0: none."""

    def __post_init__(self) -> None:
        one_of("optim.groups", self.groups, Groups)
        one_of("optim.schedule", self.schedule, Schedule)
        require(self.lr > 0, "optim.lr", self.lr, "positive")
        require(self.ssm_lr > 0, "optim.ssm_lr", self.ssm_lr, "positive")


@dataclass(frozen=True)
class TrainingConfig:
    """The loop."""

    epochs: int = 40
    batch_size: int = 16
    seed: int = 0
    patience: int = 0
    """Stop after this many epochs without a better validation score; 0: never."""
    label_smoothing: float = 0.0
    average_from: float = 1.0
    """Share of the training after which weights are averaged (0.75: over the last quarter); 1: never."""
    devices: int = 1
    strategy: str = "auto"
    """Lightning's strategy: auto, ddp, ..."""
    accelerator: str = "auto"
    precision: str = "32-true"
    n_workers: int = 0
    """Extra processes that load batches; 0: in the main process (best for clips in the memory-mapped store)."""
    out: str = ""
    """Folder of the run; empty: runs/<recipe>."""
    progress: bool = True

    def __post_init__(self) -> None:
        require(self.epochs >= 1, "training.epochs", self.epochs, "at least 1")
        require(self.batch_size >= 1, "training.batch_size", self.batch_size, "at least 1")
        require(0.0 <= self.label_smoothing < 1.0, "training.label_smoothing", self.label_smoothing, "in [0, 1)")
        require(0.0 <= self.average_from <= 1.0, "training.average_from", self.average_from, "in [0, 1]")

"""How a model is trained: optimiser groups, schedule, loop."""

from dataclasses import dataclass
from typing import Literal

from kws_s5.config.checks import one_of, require

Groups = Literal["standard", "BandCdecay", "BfastandCdecay", "noBCdecay"]
Role = Literal["pole", "step", "input", "output"]
"""What a parameter is to a state space model: Lambda, log Delta, B, or C and D."""
Schedule = Literal["cosine", "official", "constant"]
ChooseBy = Literal["score", "loss", "last"]
MatmulPrecision = Literal["highest", "high", "medium"]
HALF = ("bf16-true", "16-true")


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with the paper's parameter groups."""

    lr: float = 0.004
    """Learning rate of everything outside the SSM groups."""
    ssm_lr: float = 0.001
    """Learning rate of the SSM parameters: Lambda, log_step, and what optim.groups adds."""
    weight_decay: float = 0.05
    groups: Groups = "standard"
    """Which SSM parameters train with ssm_lr and which decay: the published layouts."""
    dt_global: bool = False
    """Train log_step with the global learning rate and decay."""
    schedule: Schedule = "cosine"
    """cosine: linear warm-up, then down to lr_min at the last step. official: as the published code (docs/lra.md)."""
    warmup_epochs: float = 1.0
    """Epochs of linear warm-up."""
    lr_min: float = 0.0
    """Learning rate at the end."""
    clip_norm: float = 0.0
    """Limit on the norm of the gradient; 0: none."""

    def __post_init__(self) -> None:
        one_of("optim.groups", self.groups, Groups)
        one_of("optim.schedule", self.schedule, Schedule)
        require(self.lr > 0, "optim.lr", self.lr, "positive")
        require(self.ssm_lr > 0, "optim.ssm_lr", self.ssm_lr, "positive")
        require(self.weight_decay >= 0, "optim.weight_decay", self.weight_decay, "0 or more")
        require(self.warmup_epochs >= 0, "optim.warmup_epochs", self.warmup_epochs, "0 or more")
        require(self.lr_min >= 0, "optim.lr_min", self.lr_min, "0 or more")
        require(self.clip_norm >= 0, "optim.clip_norm", self.clip_norm, "0 or more")


@dataclass(frozen=True)
class TrainingConfig:
    """The loop."""

    epochs: int = 40
    batch_size: int = 16
    """Examples of one process in a step."""
    seed: int = 0
    """Seed of weights, order, augmentation and dropout."""
    choose_by: ChooseBy = "score"
    """What chooses the epoch on validation: score (accuracy or squared error), loss (steadier), last (nothing does)."""
    patience: int = 0
    """Stop after this many epochs without a better validation score; 0: never."""
    label_smoothing: float = 0.0
    balanced: bool = False
    """Draw training clips so that all classes are equally frequent."""
    frame_weight: float = 0.0
    """Weight of the loss at every frame (heads with frame_logits); 0: only the whole clip counts."""
    stream_batch: int = 0
    """Made-up streams in a step: talk (data.background) with words in it. Wants head.frame_decoder. 0: none."""
    stream_seconds: float = 5.0
    """Length of each of these streams."""
    stream_weight: float = 0.3
    """Weight of their loss beside that of the clips."""
    stream_silence: float = 0.2
    """Weight in it of the frames without a word (summed; the best moment of a word has 1)."""
    fit_unknown: bool = False
    """Move the clip decision for _unknown_ to where validation clips come out best. Wants head.frame_decoder."""
    listen_every: int = 0
    """Epochs between hearings of data.background: where a word was heard comes up more often after them; 0: never."""
    init: str = ""
    """Model to start from: name, file or run directory, with the same --model options but head, dropout and floor."""
    average_from: float = 1.0
    """Share of the training after which the weights are averaged (0.75: over the last quarter); 1: never."""
    devices: int = 1
    """Processes on this machine (GPUs, or processes on the CPU)."""
    nodes: int = 1
    """Number of machines."""
    strategy: str = "auto"
    """Lightning's strategy: auto, ddp, ..."""
    accelerator: str = "auto"
    """Lightning's accelerator: auto, cpu, cuda, ..."""
    precision: str = "32-true"
    """32-true, 64-true, bf16-mixed or 16-mixed. On CPUs bf16-mixed needs AMX; else 32-true runs, and says so."""
    matmul_precision: MatmulPrecision = "highest"
    """Products. highest: float32; high: TF32 on GPUs; medium: bfloat16, on CPUs with AMX. Else float32, and says so."""
    n_workers: int = 0
    """Extra processes that load batches; 0: the main process loads them, which is best for clips in the store."""
    save_minutes: float = 5.0
    """Minutes between checkpoints, beside the one at the end of every epoch; 0: only that one."""
    save_steps: int = 0
    """Steps between further checkpoints; 0: none."""
    out: str = ""
    """Run directory; empty: runs/<recipe>."""
    progress: bool = True
    """Show a progress bar at a terminal."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, "training.epochs", self.epochs, "at least 1")
        require(self.batch_size >= 1, "training.batch_size", self.batch_size, "at least 1")
        require(0.0 <= self.label_smoothing < 1.0, "training.label_smoothing", self.label_smoothing, "in [0, 1)")
        require(self.frame_weight >= 0, "training.frame_weight", self.frame_weight, "0 or more")
        for name in ("stream_batch", "stream_weight", "stream_silence", "listen_every"):
            require(getattr(self, name) >= 0, f"training.{name}", getattr(self, name), "0 or more")
        require(2.0 <= self.stream_seconds <= 60.0, "training.stream_seconds", self.stream_seconds, "2 to 60 seconds")
        require(self.save_minutes >= 0, "training.save_minutes", self.save_minutes, "0 or more")
        require(self.save_steps >= 0, "training.save_steps", self.save_steps, "0 or more")
        require(0 <= self.seed < 2**32, "training.seed", self.seed, "between 0 and 4294967295")
        require(self.n_workers >= 0, "training.n_workers", self.n_workers, "0 or more")
        require(self.patience >= 0, "training.patience", self.patience, "0 or more")
        require(self.devices >= 1, "training.devices", self.devices, "at least 1")
        require(self.nodes >= 1, "training.nodes", self.nodes, "at least 1")
        require(
            self.precision not in HALF,
            "training.precision",
            self.precision,
            "32-true, or bf16-mixed to compute in half precision: states and sound need float32",
        )
        one_of("training.choose_by", self.choose_by, ChooseBy)
        one_of("training.matmul_precision", self.matmul_precision, MatmulPrecision)
        require(0.0 <= self.average_from <= 1.0, "training.average_from", self.average_from, "in [0, 1]")

"""The one LightningModule: a model, an objective and what happens at a training step. Knows no data set by name.

Everything random in a step comes from (seed, step, process), and order and crops of an epoch from (seed, epoch):
a run that stops and resumes anywhere ends with the same weights.
"""

import hashlib
from dataclasses import replace

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from kws_s5.bundle import model_inputs
from kws_s5.config import RunConfig
from kws_s5.data.batch import Batch
from kws_s5.data.splits import Splits
from kws_s5.training.augment import augment
from kws_s5.training.averaging import Average
from kws_s5.training.checkpoint import Progress
from kws_s5.training.loaders import EpochLoader, Shard, TrainBatches, classes_of, loader
from kws_s5.training.objective import Objective, Sums, add
from kws_s5.training.optim import build_optimizer, set_learning_rates
from kws_s5.training.streams import StreamTraining


class Task(pl.LightningModule):
    """Trains ``model`` for ``objective``; ``progress`` says where the run is and travels in its checkpoints."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: RunConfig,
        splits: Splits,
        *,
        progress: Progress | None = None,
    ) -> None:
        """config: with everything the data decides filled in."""
        super().__init__()
        self.model, self.objective, self.config, self.splits = model, objective, config, splits
        self.progress = progress or Progress()
        self.average = Average()
        self.batches: EpochLoader | None = None
        self.evaluated: Dataset = splits.validation  # what an evaluation looks at
        self.train_sums: Sums | None = None
        self.evaluation_sums: Sums = {}
        self.scores: dict[str, float] = {}  # of the last evaluation
        self.restored: dict | None = None  # the checkpoint the run goes on from
        self.streams: StreamTraining | None = None
        if splits.segments is not None and config.training.stream_batch:
            self.streams = StreamTraining(splits.segments, config, splits.labels, splits.noises)

    @property
    def n_steps(self) -> int:
        """Optimiser steps of the whole training."""
        return self.config.training.epochs * self.batches.n_batches

    def train_dataloader(self) -> EpochLoader:
        """This process's share of the batches of the running epoch, or of what an interrupted one has left."""
        if self.batches is None:
            training, dataset = self.config.training, self.splits.train
            batches = TrainBatches(
                len(dataset),
                batch_size=training.batch_size,
                seed=training.seed,
                rank=self.trainer.global_rank,
                world_size=self.trainer.world_size,
                classes=classes_of(dataset) if training.balanced else None,
            )
            self.batches = EpochLoader(dataset, batches, n_workers=training.n_workers)
        self.batches.set_epoch(self.progress.epoch, start=self.progress.batch)
        return self.batches

    def val_dataloader(self) -> DataLoader:
        """This process's share of ``evaluated``, every example once."""
        training = self.config.training
        shard = Shard(
            len(self.evaluated),
            batch_size=training.batch_size,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )
        return loader(self.evaluated, shard, n_workers=training.n_workers)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over the groups of optim.py; learning rates are set at every step."""
        return build_optimizer(self.model, self.config.optim, mixed=str(self.trainer.precision).endswith("mixed"))

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Lengths and rates stay on the CPU, where looking at them does not wait for the device."""
        there = replace(batch, rates=None).to(device)
        return replace(there, lengths=batch.lengths, rates=batch.rates)

    def on_train_start(self) -> None:
        """Gives the optimiser (and the gradient scaler) the state of the checkpoint."""
        if self.restored is not None:
            self.optimizers(use_pl_optimizer=False).load_state_dict(self.restored["optimizer_states"][0])
            precision = self.trainer.precision_plugin
            if state := self.restored.get(type(precision).__qualname__):
                precision.load_state_dict(state)
            self.restored = None

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch, with this step's learning rate and random numbers."""
        progress, optim = self.progress, self.config.optim
        warmup = round(optim.warmup_epochs * self.batches.n_batches)
        set_learning_rates(
            self.optimizers(use_pl_optimizer=False), optim, step=progress.step, n_steps=self.n_steps, warmup=warmup
        )
        seed = step_seed(self.config.training.seed, progress.step, self.global_rank)
        torch.manual_seed(seed)
        generator = torch.Generator(self.device).manual_seed(seed)
        batch = augment(
            batch,
            self.config.augment,
            generator,
            noises=self.splits.noises,
            n_classes=self.splits.n_outputs,
            labels=tuple(self.splits.labels),
        )
        features = self.model.features(**model_inputs(batch, self.config.model.rate, device=self.device))
        outputs = self.objective.outputs(self.model, features)
        loss = self.objective.loss(outputs, batch)
        if self.streams is not None:
            loss = loss + self.config.training.stream_weight * self.streams.loss(self.model, generator)
        with torch.no_grad():
            self.train_sums = add(self.train_sums, self.objective.sums(self.objective.predictions(outputs), batch))
        progress.step += 1
        progress.batch += 1
        return loss

    def on_train_epoch_start(self) -> None:
        """Listens to the background where it is time to; an epoch that is entered again in its middle has listened."""
        every, done = self.config.training.listen_every, self.progress.epoch
        if self.streams is not None and every and done and done % every == 0 and not self.progress.batch:
            self.streams.listen(self.model)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Adds up what the scores are made of."""
        predictions = self.model(**model_inputs(batch, self.config.model.rate, device=self.device))
        self.evaluation_sums = add(self.evaluation_sums, self.objective.sums(predictions, batch))

    def on_validation_epoch_start(self) -> None:
        """Forgets earlier evaluations."""
        self.evaluation_sums = {}

    def on_validation_epoch_end(self) -> None:
        """Scores over all processes; ``evaluation_sums`` keeps the sums."""
        self.evaluation_sums = reduced(self.evaluation_sums)
        self.scores = self.objective.scores(self.evaluation_sums)

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Adds what Lightning does not know: progress, sums of the running epoch, averaged weights."""
        checkpoint["progress"] = self.progress.to_dict()
        checkpoint["train_sums"] = self.train_sums
        checkpoint["average"] = self.average.state()
        checkpoint["hard"] = self.streams.segments.hard if self.streams is not None else []

    def share_train_sums(self) -> None:
        """Moves the running epoch's sums of all processes to the first one, whose checkpoint is the one written."""
        if self.train_sums is not None and dist.is_available() and dist.is_initialized():
            total = reduced(self.train_sums)
            first = self.global_rank == 0
            self.train_sums = total if first else {name: torch.zeros_like(v) for name, v in total.items()}


def step_seed(seed: int, step: int, rank: int) -> int:
    """63 bits that depend on all three and on nothing else."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{rank}".encode()).digest()[:8], "little") >> 1


def reduced(sums: Sums) -> Sums:
    """Sums over all processes (the same on each)."""
    if not (dist.is_available() and dist.is_initialized()):
        return sums
    total = {name: value.clone() for name, value in sums.items()}
    for value in total.values():
        dist.all_reduce(value)
    return total

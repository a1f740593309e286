"""Losses and scores against formulas written out in plain Python."""

import math

import pytest
import torch

from kws_s5.config import ClassHead, GaussianHead, ModelConfig, PairHead, RunConfig, TrainingConfig
from kws_s5.data.batch import Batch
from kws_s5.training.objective import (
    Classification,
    FrameClassification,
    Regression,
    add,
    better,
    build_objective,
)


def batch_of(y: torch.Tensor, lengths: list[int] | None = None) -> Batch:
    N = len(y)
    return Batch(torch.zeros(N, 4, 1), torch.tensor(lengths or [4] * N), y)


def test_label_smoothing_mixes_the_target_with_the_uniform_distribution() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    expected = 0.0
    for row, k in zip(logits.log_softmax(-1).tolist(), y.tolist(), strict=True):
        target = [0.2 / 4 + (0.8 if j == k else 0.0) for j in range(4)]
        expected -= sum(t * p for t, p in zip(target, row, strict=True)) / 5
    assert float(Classification(0.2).loss(logits, batch_of(y))) == pytest.approx(expected, rel=1e-6)


def test_soft_targets_of_mixed_clips_are_understood() -> None:
    torch.manual_seed(0)
    logits, soft = torch.randn(2, 3), torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.0, 1.0]])
    expected = -(soft * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(Classification().loss(logits, batch_of(soft)), expected)
    sums = Classification().sums(logits, batch_of(soft))
    assert sums["confusion"].sum(1).tolist() == [1, 0, 1]


def test_scores_of_batches_add_up_to_those_of_everything() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(10, 3), torch.randint(3, (10,))
    objective, total = Classification(0.1), None
    for part in (slice(0, 4), slice(4, 5), slice(5, 10)):
        total = add(total, objective.sums(logits[part], batch_of(y[part])))
    scores = objective.scores(total)
    assert scores["accuracy"] == pytest.approx((logits.argmax(-1) == y).float().mean().item())
    assert scores["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, y).item(), rel=1e-6)
    for i in range(3):
        for j in range(3):
            assert int(total["confusion"][i, j]) == int(((y == i) & (logits.argmax(-1) == j)).sum())


def test_frame_loss_counts_the_second_half_of_each_clips_valid_frames() -> None:
    torch.manual_seed(0)
    clip, frames = torch.randn(2, 3), torch.randn(2, 6, 3)
    y, valid = torch.tensor([2, 0]), torch.tensor([6, 3])
    counted = [(0, 3), (0, 4), (0, 5), (1, 1), (1, 2)]
    each = [-frames[n, t].log_softmax(-1)[y[n]].item() for n, t in counted]
    expected = torch.nn.functional.cross_entropy(clip, y).item() + 0.5 * sum(each) / len(each)
    found = FrameClassification(weight=0.5).loss((clip, frames, valid), batch_of(y))
    assert float(found) == pytest.approx(expected, rel=1e-6)
    soft = torch.nn.functional.one_hot(y, 3).float()
    assert float(FrameClassification(weight=0.5).loss((clip, frames, valid), batch_of(soft))) == pytest.approx(expected)


def test_gaussian_loss_is_summed_over_targets_and_averaged_over_valid_steps() -> None:
    torch.manual_seed(0)
    mean, variance, y = torch.randn(2, 4, 2), torch.rand(2, 4, 2) + 0.1, torch.randn(2, 4, 2)
    expected, error, steps = 0.0, 0.0, 0
    for n, length in enumerate([4, 2]):
        for t in range(length):
            steps += 1
            for k in range(2):
                difference = (y[n, t, k] - mean[n, t, k]).item() ** 2
                v = variance[n, t, k].item()
                expected += 0.5 * (math.log(v) + difference / v + math.log(2 * math.pi))
                error += difference
    batch = batch_of(y, [4, 2])
    objective = Regression()
    assert float(objective.loss((mean, variance), batch)) == pytest.approx(expected / steps, rel=1e-5)
    scores = objective.scores(objective.sums((mean, variance), batch))
    assert scores == pytest.approx({"loss": expected / steps, "mse": error / (2 * steps)}, rel=1e-5)


def test_missing_targets_give_neither_loss_nor_gradient() -> None:
    mean = torch.zeros(1, 2, 1, requires_grad=True)
    y = torch.tensor([[[1.0], [math.nan]]])
    loss = Regression().loss((mean, torch.ones(1, 2, 1)), Batch(torch.zeros(1, 2, 1), torch.tensor([2]), y))
    loss.backward()
    assert torch.isfinite(loss) and mean.grad[0, 1, 0] == 0 and mean.grad[0, 0, 0] == -1


def test_heads_choose_their_objective() -> None:
    def objective(head, **training):
        return build_objective(RunConfig(model=ModelConfig(head=head), training=TrainingConfig(**training)))

    assert type(objective(ClassHead())) is Classification
    assert type(objective(PairHead())) is Classification
    assert type(objective(ClassHead(frame_logits=True))) is Classification
    assert type(objective(ClassHead(frame_logits=True), frame_weight=0.5)) is FrameClassification
    assert type(objective(GaussianHead())) is Regression


def test_better_follows_the_monitor_then_the_loss_and_never_nan() -> None:
    classes, regression = Classification(), Regression()
    assert better(classes, {"accuracy": 0.9, "loss": 1.0}, None)
    assert better(classes, {"accuracy": 0.9, "loss": 1.0}, {"accuracy": 0.8, "loss": 0.1})
    assert better(classes, {"accuracy": 0.8, "loss": 0.05}, {"accuracy": 0.8, "loss": 0.1})
    assert not better(classes, {"accuracy": 0.8, "loss": 0.1}, {"accuracy": 0.8, "loss": 0.1})
    assert better(regression, {"mse": 0.1, "loss": 5.0}, {"mse": 0.2, "loss": 1.0})
    assert not better(classes, {"accuracy": 0.9, "loss": math.nan}, None)
    assert not better(regression, {"mse": math.nan, "loss": 0.0}, {"mse": 1.0, "loss": 0.0})


@pytest.mark.parametrize("head", [ClassHead(), ClassHead(frame_logits=True), GaussianHead()])
def test_the_epoch_can_be_chosen_by_the_loss(head) -> None:
    def objective(choose_by: str):
        training = TrainingConfig(choose_by=choose_by, frame_weight=0.5)
        return build_objective(RunConfig("x", model=ModelConfig(head=head), training=training))

    one = {"accuracy": 0.6, "mse": 0.4, "loss": 2.0}
    two = {"accuracy": 0.5, "mse": 0.5, "loss": 1.0}
    assert better(objective("score"), one, two) and not better(objective("score"), two, one)
    assert better(objective("loss"), two, one) and not better(objective("loss"), one, two)

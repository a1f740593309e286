"""Every Long Range Arena recipe: published parameter counts, small versions, and one step from data to gradients."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kws_s5.config import RunConfig, TokenFront
from kws_s5.data.batch import collate
from kws_s5.data.build import build
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError
from kws_s5.model import build_model
from kws_s5.recipes.registry import RECIPES, recipes_of
from kws_s5.training.prepare import completed

LRA = recipes_of("lra")
FULL = [name for name in LRA if not name.endswith("-tiny")]
PUBLISHED = {  # exact counts of the official code's run scripts, and of the paper's sizes for the pixel sequences
    "lra-listops": 188_490,
    "lra-text": 1_321_154,
    "lra-retrieval": 772_098,
    "lra-image": 5_133_706,
    "lra-pathfinder": 1_113_602,
    "lra-pathx": 694_018,
    "smnist": 187_786,
    "psmnist": 266_506,
    "scifar": 5_134_730,
}
CLASSES = {"text": 2, "retrieval": 2, "pathfinder": 2, "pathx": 2}
GENERATED = ["lra-listops-tiny", "lra-retrieval-tiny", "lra-pathfinder-tiny"]


def model_of(run: RunConfig) -> torch.nn.Module:
    front = run.model.front
    if isinstance(front, TokenFront) and not front.vocab_size:
        front = replace(front, vocab_size=98)  # characters of the AAN texts, as the official code counts them
    return build_model(replace(run.model, front=front, n_outputs=CLASSES.get(run.data.task, 10)))


@pytest.mark.parametrize("name", FULL)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    model = model_of(LRA[name]())
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


def test_every_task_has_a_full_and_a_tiny_recipe() -> None:
    assert set(PUBLISHED) == set(FULL)
    assert {f"{name}-tiny" for name in FULL} == set(LRA) - set(FULL)
    assert set(LRA) <= set(RECIPES)


@pytest.mark.parametrize("name", FULL)
def test_tiny_recipes_differ_in_size_only(name: str) -> None:
    full, tiny = LRA[name](), LRA[f"{name}-tiny"]()
    assert full.data.task == tiny.data.task
    assert type(full.model.front) is type(tiny.model.front) and full.model.head == tiny.model.head
    assert sum(p.numel() for p in model_of(tiny).parameters()) < sum(p.numel() for p in model_of(full).parameters())


@pytest.mark.parametrize("name", GENERATED)
def test_generated_tasks_go_from_data_to_gradients_in_one_way(name: str, tmp_path: Path) -> None:
    run = LRA[name]()
    run = replace(run, data=replace(run.data, n_train=6, n_validation=2, n_test=2, cache=str(tmp_path)))
    splits = build(run.data)
    run = completed(run, splits)
    model = build_model(run.model)
    batch = collate([splits.train[i] for i in range(4)])
    logits = model(batch.x, batch.lengths)
    assert logits.shape == (4, splits.n_outputs)
    torch.nn.functional.cross_entropy(logits, batch.y).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_vocabulary_smaller_than_that_of_the_data_is_refused() -> None:
    run = RECIPES["lra-listops"]()
    run = replace(run, model=replace(run.model, front=TokenFront(vocab_size=5)))
    splits = Splits([0], [0], [0], labels=("0", "1"), n_outputs=2, vocabulary=tuple("abcdefg"))
    with pytest.raises(UserError, match=r"model\.front\.vocab_size = 5: the data has 7 tokens"):
        completed(run, splits)

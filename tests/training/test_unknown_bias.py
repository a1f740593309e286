"""The clip decision for _unknown_ is moved to where validation comes out best, and streams stay as they are."""

from dataclasses import replace

import torch
from torch.utils.data import Dataset
from toys import bank_model

from kws_s5.config import ClassHead
from kws_s5.data.batch import Example
from kws_s5.model import build_model
from kws_s5.training.unknown_bias import best_offset, can_fit, fit_unknown

LABELS = ("a", "b", "_unknown_")
HEAD = ClassHead(frame_logits=True, frame_decoder=True, window=0.1)


def test_the_offset_gives_the_most_right_decisions_and_is_the_smallest_such() -> None:
    random = torch.Generator().manual_seed(0)
    truth = torch.randint(3, (500,), generator=random)
    logits = 3 * torch.nn.functional.one_hot(truth, 3).float() + torch.randn(500, 3, generator=random)
    logits[:, 2] += 2.0  # leans towards _unknown_
    offset = best_offset(logits, truth, 2)

    def right(offset: float) -> int:
        return int(((logits + torch.tensor([0.0, 0.0, offset])).argmax(-1) == truth).sum())

    assert -2.8 < offset < -1.2
    assert right(offset) == max(right(step / 10) for step in range(-30, 31)) > right(0.0)
    assert best_offset(9.0 * torch.nn.functional.one_hot(truth, 3).float(), truth, 2) == 0.0


def test_streams_stay_as_they_are() -> None:
    torch.manual_seed(0)
    model = build_model(replace(bank_model(), n_outputs=3, head=HEAD))

    class Clips(Dataset):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> Example:
            x = torch.randn(200, 1, generator=torch.Generator().manual_seed(i))
            return Example(x, torch.tensor(i % 2), 500.0)

    with torch.no_grad():
        logits = model.eval()(torch.stack([Clips()[i].x for i in range(20)]))
        lead = logits[:, 2] - logits[:, :2].amax(1)
        model.head.decoder.bias[2] += 1.0 - lead.min()  # every clip is unknown, the nearest by 1
    x = torch.randn(1, 600, 1)
    before = model.eval().frame_logits(x).detach()
    offset = fit_unknown(model, LABELS, Clips(), batch_size=6)
    assert offset < 0
    torch.testing.assert_close(model.frame_logits(x), before)


def test_only_models_whose_streams_have_their_own_layer_are_fitted() -> None:
    assert can_fit(replace(bank_model(), head=HEAD), LABELS)
    assert not can_fit(bank_model(), LABELS)
    assert not can_fit(replace(bank_model(), head=HEAD), ("a", "b"))

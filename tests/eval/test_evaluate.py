"""Evaluation gives what the model itself gives on the same samples, and leaves the model as it was."""

import pytest
import torch

from kws_s5.config import BankFront, LogMelFront
from kws_s5.errors import UserError
from kws_s5.eval.evaluate import evaluate, evaluation_options
from kws_s5.eval.protocol import Condition
from kws_s5.eval.sources import from_folder
from kws_s5.ssm.s5 import S5SSM


@pytest.fixture
def clips(folder, make_bundle):
    bundle = make_bundle(folder)
    return bundle, from_folder(bundle, folder).dataset


def direct(bundle, dataset, change, step_rescale):
    """Class of every clip, one at a time, by the model alone."""
    with torch.no_grad():
        return torch.cat(
            [
                bundle.model(change(dataset[i].x)[None], step_rescale=step_rescale).argmax(-1)
                for i in range(len(dataset))
            ]
        ).numpy()


def test_each_treatment_is_what_the_model_says_about_those_samples(clips):
    bundle, dataset = clips
    native, rescale, control = evaluate(
        bundle, dataset, [Condition(), Condition(8000, "decimate"), Condition(8000, "decimate", "none")], batch_size=5
    )
    assert (native.predicted == direct(bundle, dataset, lambda x: x, 1.0)).all()
    assert (rescale.predicted == direct(bundle, dataset, lambda x: x[::2], 2.0)).all()
    assert (control.predicted == direct(bundle, dataset, lambda x: x[::2], 1.0)).all()
    assert native.truth.tolist() == [0] * 12 + [1] * 12  # high, low
    assert native.n_correct == (native.predicted == native.truth).sum() == round(24 * native.accuracy)


def test_batch_size_changes_nothing_but_the_speed(clips):
    bundle, dataset = clips
    counts = []
    one, many = (
        evaluate(bundle, dataset, [Condition(8000, "decimate", snr=10.0)], batch_size=n, progress=counts.append)[0]
        for n in (1, 24)
    )
    assert (one.predicted == many.predicted).all()
    assert torch.allclose(torch.from_numpy(one.confidence), torch.from_numpy(many.confidence), atol=1e-5)
    assert sum(counts) == 48


def test_processes_change_nothing_but_the_speed(clips):
    bundle, dataset = clips
    counts = []
    conditions = [Condition(), Condition(8000, "decimate", snr=10.0), Condition()]
    alone = evaluate(bundle, dataset, conditions, batch_size=5)
    shared = evaluate(bundle, dataset, conditions, batch_size=5, processes=2, progress=counts.append)
    for a, b in zip(alone, shared, strict=True):
        assert a.condition == b.condition
        assert (a.truth == b.truth).all()
        assert (a.confidence == b.confidence).all()
    assert sum(counts) == 3 * 24


def test_options_reach_every_layer_and_are_taken_back(clips):
    bundle, dataset = clips
    layers = [module for module in bundle.model.modules() if isinstance(module, S5SSM)]
    with (
        pytest.raises(RuntimeError),
        evaluation_options(bundle.model, Condition(8000, "decimate", mask_modes=True, interpolation="linear")),
    ):
        assert len(layers) == 2
        assert all(layer.interpolation == "linear" and layer.mask_above_nyquist for layer in layers)
        raise RuntimeError
    assert all(layer.interpolation == "hold" and not layer.mask_above_nyquist for layer in layers)
    hold, linear = evaluate(
        bundle, dataset, [Condition(8000, "decimate"), Condition(8000, "decimate", interpolation="linear")]
    )
    assert (hold.confidence != linear.confidence).any()


def test_linear_interpolation_is_nearer_to_the_training_rate_than_hold(clips):
    bundle, dataset = clips
    native, hold, linear = evaluate(
        bundle, dataset, [Condition(), Condition(8000, "soxr"), Condition(8000, "soxr", interpolation="linear")]
    )
    sure = [torch.from_numpy(r.confidence) * torch.from_numpy(r.predicted * 2 - 1) for r in (native, hold, linear)]
    assert (sure[2] - sure[0]).abs().mean() < (sure[1] - sure[0]).abs().mean()


def test_options_that_a_model_cannot_have_are_refused(folder, make_bundle):
    linear = Condition(8000, "decimate", interpolation="linear")
    bilinear = make_bundle(folder, discretization="bilinear")
    dataset = from_folder(bilinear, folder).dataset
    with pytest.raises(UserError, match="discretization = zoh"):
        evaluate(bilinear, dataset, [linear])
    bank = make_bundle(folder, front=BankFront(n_modes=8))
    with pytest.raises(UserError, match="LinearFront"):
        evaluate(bank, dataset, [linear])


def test_a_log_mel_front_is_only_tested_at_its_training_rate(folder, make_bundle):
    logmel = make_bundle(folder, front=LogMelFront(n_mels=8))
    dataset = from_folder(logmel, folder).dataset
    with pytest.raises(UserError, match="no step to rescale"):
        evaluate(logmel, dataset, [Condition(8000, "decimate")])
    assert len(evaluate(logmel, dataset, [Condition(8000, "decimate", "resample_back")])[0].truth) == 24


def test_an_empty_set_is_a_clear_error(clips):
    with pytest.raises(UserError, match="no clips"):
        evaluate(clips[0], [], [Condition()])

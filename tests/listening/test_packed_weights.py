"""Packed weights are those of the model, shared while they stay the same, and never out of date."""

from dataclasses import replace

import torch

from kws_s5.config import BankFront, ClassHead, GRUMixer, ModelConfig, S4DMixer, S5Mixer
from kws_s5.listening.packed_weights import can_pack, pack
from kws_s5.model.sequence import build_model

SSM = S5Mixer(ssm_size=8, blocks=2, dt_max=0.5)
BASE = ModelConfig(
    d_model=6,
    n_layers=3,
    mixer=SSM,
    n_outputs=3,
    rate=8000.0,
    front=BankFront(n_modes=5, f_max=3000),
    head=ClassHead(frame_logits=True, window=0.2),
)
RATE = torch.tensor([8000.0], dtype=torch.float64)


def make(**changes):
    torch.manual_seed(0)
    return build_model(replace(BASE, **changes)).eval()


def test_equal_weights_share_one_copy() -> None:
    model = make()
    first = pack(model, 1.0, RATE)
    assert pack(model, 1.0, RATE) is first
    assert pack(model, 2.0, RATE) is not first


def test_every_changed_tensor_is_noticed_however_it_was_changed() -> None:
    model = make()
    tensors = {**dict(model.named_parameters()), **{n: b for n, b in model.named_buffers() if b.is_floating_point()}}
    own = {name: value for name, value in tensors.items() if "log_frequency" not in name and "log_decay" not in name}
    assert len(own) > 30  # the modes' coefficients belong to the state of a stream
    for name, value in own.items():
        before = pack(model, 1.0, RATE)
        value.data.view(-1)[0] += 0.1  # unseen by torch's version counters
        assert not pack(model, 1.0, RATE).same_as(before), name


def test_packed_weights_keep_their_values_when_the_model_goes_on_training() -> None:
    model = make()
    packed = pack(model, 1.0, RATE)
    before = packed.memory.clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.equal(packed.memory, before)


def test_memory_begins_at_whole_vectors() -> None:
    packed = pack(make(), 1.0, RATE)
    assert packed.address("0.B") % 64 == 0 and packed.address("decoder") % 64 == 0
    assert packed.address("0.value") == 0  # half_glu1 has no second product


def test_what_cannot_be_packed_is_told() -> None:
    assert can_pack(make())
    assert not can_pack(make().double())
    assert not can_pack(make(norm="layer"))
    assert can_pack(make(mixer=S4DMixer(n_states=4)))
    assert not can_pack(make(mixer=GRUMixer()))
    assert not can_pack(make(activation="relu"))
    assert not can_pack(make(mixer=replace(SSM, bidirectional=True)))

"""Before a training: what only the data can say is filled in, and a given model's weights are taken over."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from kws_s5.bundle import Bundle, load
from kws_s5.config import AugmentConfig, LinearFront, RunConfig, TokenFront, to_dict
from kws_s5.config.run import differences
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError
from kws_s5.model.mask import set_masks
from kws_s5.model.sequence import SequenceModel

# where a model may differ from the one whose weights it takes; not in options of fresh weights (dt_min, C_init, ...),
# which would have no effect
OWN = {
    "model.n_outputs",
    "model.rate",
    "model.head",
    "model.dropout",
    "model.norm_momentum",
    "model.front.learnable",
    "model.front.floor",
}


def completed(config: RunConfig, splits: Splits) -> RunConfig:
    """The config with n_outputs, n_inputs, vocab_size and rate as the data has them.

    Raises:
        UserError: the data is empty, or the config says something else than the data.
    """
    if not len(splits.train):
        raise UserError("the data has no training examples; look at it with kws-data")
    if not len(splits.validation):
        raise UserError(
            "the data has no validation examples, which choose the model; raise --data.validation-percent "
            "or add recordings of more speakers"
        )
    if len(splits.validation) < config.training.devices:
        raise UserError(
            f"training.devices = {config.training.devices}: more processes than validation examples "
            f"({len(splits.validation)})"
        )
    model = config.model
    if model.n_outputs not in (0, splits.n_outputs):
        raise UserError(f"model.n_outputs = {model.n_outputs}: the data has {splits.n_outputs}; leave it at 0")
    front = model.front
    if isinstance(front, LinearFront):
        front = replace(front, n_inputs=splits.n_inputs)
    if isinstance(front, TokenFront):
        if 0 < front.vocab_size < len(splits.vocabulary):
            raise UserError(
                f"model.front.vocab_size = {front.vocab_size}: the data has {len(splits.vocabulary)} "
                "tokens; raise it, or leave it at 0"
            )
        front = replace(front, vocab_size=front.vocab_size or len(splits.vocabulary))
    rate = model.rate or getattr(config.data, "rate", 0.0)
    model = replace(model, front=front, n_outputs=splits.n_outputs, rate=rate)
    return replace(config, data=splits.data or config.data, model=model)


def switch_masks(model: nn.Module, augment: AugmentConfig) -> None:
    """Switches on the masking of frames inside the front; UserError if it has none to mask."""
    wanted = {
        "time": augment.time_mask,
        "frequency": augment.frequency_mask,
        "top": augment.top_mask,
        "warp": augment.warp,
    }
    if set_masks(model, **wanted) == 0 and any(wanted.values()):
        raise UserError(
            "augment.time_mask, frequency_mask, top_mask, warp: this front has no frames to change; set all four to 0"
        )


def load_weights_of(model: SequenceModel, labels: tuple[str, ...], source: str) -> str:
    """Gives ``model`` the weights of another one; the head is new, except the rows of words both models know.

    Args:
        labels: of ``model``.
        source: name, file or run folder of the other model.
    Returns:
        One line on what was taken.
    Raises:
        UserError: the models differ in more than ``OWN``.
    """
    given = load(source)
    for name, was, now in differences(to_dict(given.config.model), to_dict(model.config), "model", free=OWN):
        raise UserError(
            f"training.init = {source!r}: its {name} is {was!r}, here it is {now!r}; "
            "both models must be the same in this"
        )
    theirs, ours = given.model.state_dict(), model.state_dict()
    for name in (*ours, *theirs):
        both = name in ours and name in theirs
        if not name.startswith("head.") and not (both and theirs[name].shape == ours[name].shape):
            raise UserError(
                f"training.init = {source!r}: its {name} does not fit a model for {model.config.rate:g} Hz "
                f"(it was trained at {given.rate:g} Hz)"
            )
    for name in ours:  # a frame decoder begins as the decoder that made its decisions before
        if name.startswith("head.frame_decoder.") and name not in theirs:
            theirs[name] = theirs[name.replace("frame_decoder", "decoder")]
    for name, value in ours.items():
        if not name.startswith("head.") or (labels == given.labels and theirs[name].shape == value.shape):
            value.copy_(theirs[name])
    shared = _shared_rows(model, given, theirs, labels) if labels != given.labels else len(labels)
    return f"started from {source} ({', '.join(given.labels[:4])}, ...): {shared} of {len(labels)} words known to it"


@torch.no_grad()
def _shared_rows(model: nn.Module, given: Bundle, theirs: dict[str, Tensor], labels: tuple[str, ...]) -> int:
    """Copies the output rows of the labels both have; returns how many."""
    shared = [(labels.index(label), given.labels.index(label)) for label in labels if label in given.labels]
    other = {name.removeprefix("head."): value for name, value in theirs.items() if name.startswith("head.")}
    for name, value in model.head.state_dict().items():
        if name in other and len(value) == len(labels) and len(other[name]) == len(given.labels):
            for i, j in shared:
                value[i] = other[name][j]
    return len(shared)

"""Weights of the official S5 code into our model, and the names of one in the other.

The official parameter tree, flattened with "/", against our module names:
    encoder/encoder/kernel (U, H)            front.encoder.weight (H, U); of a TokenFront: front.weight (U, H)
    encoder/layers_i/seq/...                 layers.i.seq....   same names; a joint C (H, 2P, 2) is C1 | C2
    encoder/layers_i/norm/scale, bias        layers.i.norm.scale, bias; batch_stats: mean, var
    encoder/layers_i/out1, out2/kernel       layers.i.out1, out2.weight, transposed
    decoder/kernel                           head.decoder.weight, transposed; retrieval: decoder/layer1, layer2
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kws_s5.errors import UserError
from kws_s5.model.front_linear import TokenEncoder
from kws_s5.model.heads import ClassHead
from kws_s5.model.sequence import SequenceModel


def load_official(
    model: SequenceModel, params: Mapping[str, Any], batch_stats: Mapping[str, Any] | None = None
) -> None:
    """Copies the official code's weights into ``model``.

    Args:
        model: of the matching configuration, with a LinearFront or TokenFront and a ClassHead or PairHead.
        params: the "params" tree, nested or with names joined by "/", of arrays.
        batch_stats: the "batch_stats" tree of a model with batch norm.

    Raises:
        UserError: a name or a shape does not fit the model, or the model has weights the tree does not give.
    """
    given = {**_flat(params), **_flat(batch_stats or {})}
    wanted = dict(model.state_dict())
    found: dict[str, Tensor] = {}
    for name, value in given.items():
        found |= _translate(name, torch.from_numpy(np.array(value, dtype=np.float32)), model)
    for name, value in found.items():
        if name not in wanted:
            raise UserError(f"official weights: {name} has no place in this model; check its configuration")
        if value.shape != wanted[name].shape:
            raise UserError(
                f"official weights: {name} has shape {tuple(value.shape)}, this model needs "
                f"{tuple(wanted[name].shape)}; check its configuration"
            )
    if missing := sorted(wanted.keys() - found.keys()):
        raise UserError(f"official weights: nothing for {missing[0]} (and {len(missing) - 1} more)")
    model.load_state_dict(found)


def _translate(name: str, value: Tensor, model: SequenceModel) -> dict[str, Tensor]:
    """One array of the tree -> our entries: one, or two for the joint C of both directions."""
    *path, leaf = name.split("/")
    if path[:1] == ["encoder"] and len(path) > 2 and path[1].startswith("layers_"):
        path = ["layers", path[1].removeprefix("layers_"), *path[2:]]
        if leaf == "C" and getattr(model.config.mixer, "bidirectional", False):
            C1, C2 = value.chunk(2, dim=1)  # (H, P, 2) each
            return {".".join([*path, "C1"]): C1, ".".join([*path, "C2"]): C2}
    elif path == ["encoder", "encoder"]:
        if isinstance(model.front, TokenEncoder):
            return {"front.weight" if leaf == "kernel" else "front.bias": value}
        path = ["front", "encoder"]
    elif path[:1] == ["decoder"]:
        path = ["head", "decoder" if isinstance(model.head, ClassHead) else "", *path[1:]]
    if leaf == "kernel":
        leaf, value = "weight", value.T
    return {".".join([*filter(None, path), leaf]): value}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}/") if isinstance(value, Mapping) else {prefix + name: value}
    return flat

"""Model files and run configs of older versions, read as today's: the one place that knows how they looked.

Before mixers a model had ``ssm`` (the options of S5, class SSMConfig) and ``cell`` (s5, gru, conv). The baselines used
neither ``ssm_norm`` nor ``activation``; as mixers they have the activation that does what they did.
"""

import re
from typing import Any

BASELINES = {
    "gru": {"mixer": {"kind": "GRUMixer"}, "activation": "none", "ssm_norm": False, "dropout": 0.0},
    "conv": {"mixer": {"kind": "ConvMixer"}, "activation": "relu", "ssm_norm": False},
}


def todays_model(value: dict[str, Any]) -> dict[str, Any]:
    """The fields of a ModelConfig as today's; those of today come back as they are."""
    if "mixer" in value or not ("ssm" in value or "cell" in value):
        return value
    fields = {name: v for name, v in value.items() if name not in ("ssm", "cell")}
    cell = value.get("cell", "s5")
    if cell in BASELINES:
        return fields | BASELINES[cell]
    if cell != "s5":
        return value  # of no version: the strict reader says so
    ssm = value.get("ssm", {})
    return fields | {"mixer": ssm | {"kind": "S5Mixer"} if isinstance(ssm, dict) else ssm}


def todays_tensor(name: str) -> str:
    """The name of a tensor of a model file: the convolutional baseline had its parts in the layer itself."""
    return re.sub(r"^(layers\.\d+)\.(depthwise|pointwise)\.", r"\1.seq.\2.", name)

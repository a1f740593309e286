"""Which parameter trains how: groups from the roles that modules declare, AdamW, and the learning rate of every step.

A module that holds parameters with a role in a state space model says so where they are born (``parameter_roles``, in
mixers/protocol.py). The published layouts (official code of the S5 paper) put some roles in groups of their own;
everything else, norm scales and biases included, is "regular". A group is a learning rate and a decay:
    ssm         ssm_lr, no decay         ssm_decay   ssm_lr, weight_decay         regular   lr, weight_decay
"""

import math
from dataclasses import dataclass

import torch
from torch import nn

from kws_s5.config import OptimConfig
from kws_s5.config.training import Role

SSM, SSM_DECAY, REGULAR = "ssm", "ssm_decay", "regular"
LAYOUTS: dict[str, dict[Role, str]] = {
    "standard": {"pole": SSM, "step": SSM, "input": SSM},
    "BandCdecay": {"pole": SSM, "step": SSM, "input": SSM_DECAY},
    "BfastandCdecay": {"pole": SSM, "step": SSM},
    "noBCdecay": {"pole": SSM, "step": SSM, "input": SSM, "output": SSM},
}


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate and a decay."""

    name: str
    lr: float
    weight_decay: float
    parameters: tuple[str, ...]


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    """Name of a parameter -> the role that its module declares, for those that have one."""
    found: dict[str, Role] = {}
    for path, module in model.named_modules():
        roles = module.parameter_roles() if hasattr(module, "parameter_roles") else {}
        own = dict(module.named_parameters())
        assert not roles.keys() - own.keys(), f"{path}: roles of {sorted(roles.keys() - own.keys())}, which it has not"
        found |= {f"{path}.{name}" if path else name: role for name, role in roles.items()}
    return found


def parameter_groups(model: nn.Module, config: OptimConfig) -> list[Group]:
    """The groups that are not empty, each trainable parameter of ``model`` in exactly one."""
    layout = LAYOUTS[config.groups] | ({"step": REGULAR} if config.dt_global else {})
    roles = parameter_roles(model)
    members: dict[str, list[str]] = {SSM: [], SSM_DECAY: [], REGULAR: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            members[layout.get(roles.get(name), REGULAR)].append(name)
    settings = {
        SSM: (config.ssm_lr, 0.0),
        SSM_DECAY: (config.ssm_lr, config.weight_decay),
        REGULAR: (config.lr, config.weight_decay),
    }
    return [Group(name, *settings[name], tuple(names)) for name, names in members.items() if names]


def build_optimizer(model: nn.Module, config: OptimConfig, *, mixed: bool = False) -> torch.optim.AdamW:
    """AdamW (beta 0.9 and 0.999, epsilon 1e-8, decoupled decay) over ``parameter_groups``.

    mixed: for mixed precision, where Lightning clips no gradients of a fused optimiser.
    """
    parameters = dict(model.named_parameters())
    groups = [
        {"params": [parameters[n] for n in g.parameters], "lr": g.lr, "peak_lr": g.lr, "weight_decay": g.weight_decay}
        for g in parameter_groups(model, config)
    ]
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters.values())
    fused = on_cpu and not mixed or None  # one call, not hundreds
    return torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=fused)


def set_learning_rates(
    optimizer: torch.optim.Optimizer, config: OptimConfig, *, step: int, n_steps: int, warmup: int
) -> None:
    """Gives every group its learning rate of the (0-based) step, on which alone it depends: runs can resume."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(group["peak_lr"], config, step=step, n_steps=n_steps, warmup=warmup)


def learning_rate(peak: float, config: OptimConfig, *, step: int, n_steps: int, warmup: int) -> float:
    """Learning rate of optimiser step ``step`` (0-based) of ``n_steps``, of which the first ``warmup`` rise linearly.

    cosine: peak (step + 1) / warmup, then half a cosine that reaches lr_min at the last step.
    official: the published code sets the rate after each step, so step 0 runs at the peak and step k at the value
    meant for k - 1; its cosine counts from step 0 over n_steps - warmup: the last ``warmup`` steps run at lr_min.
    constant: warm-up, then peak.
    """
    low = min(config.lr_min, peak)
    if config.schedule == "official":
        return peak if step == 0 else _official(peak, low, step - 1, n_steps, warmup)
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.schedule == "constant":
        return peak
    return _half_cosine(peak, low, (step - warmup + 1) / max(n_steps - warmup, 1))


def _official(peak: float, low: float, step: int, n_steps: int, warmup: int) -> float:
    if step < warmup:
        return peak * (step + 1) / warmup
    return _half_cosine(peak, low, step / max(n_steps - warmup, 1))


def _half_cosine(peak: float, low: float, progress: float) -> float:
    return low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))

"""Pendulum regression (S5 paper, section 6.3 and appendix G): one model, of which the variants change one field each.

kws-train pendulum
"""

from dataclasses import replace

from kws_s5.config import (
    FrameFront,
    GaussianHead,
    GRUMixer,
    ModelConfig,
    OptimConfig,
    PendulumData,
    RunConfig,
    S5Mixer,
    TrainingConfig,
)


def pendulum() -> RunConfig:
    """Pendulum from noisy pictures at irregular times; the intervals set the SSMs' steps (published MSE 3.41e-3)."""
    return RunConfig(
        name="pendulum",
        data=PendulumData(),
        model=ModelConfig(
            d_model=30,
            n_layers=4,
            front=FrameFront(),
            head=GaussianHead(hidden=30),
            mixer=S5Mixer(ssm_size=16, blocks=8, C_init="trunc_standard_normal", dt_min=0.01, dt_max=0.1),
            activation="half_glu2",
            norm="layer",
            prenorm=False,
            dropout=0.0,
        ),
        optim=OptimConfig(lr=0.012, ssm_lr=0.003, weight_decay=0.0, groups="standard", warmup_epochs=1.0),
        training=TrainingConfig(epochs=100, batch_size=32, accelerator="cpu"),
    )


def pendulum_drop() -> RunConfig:
    """The same model without the intervals: every step is 1 (the paper's S5-drop; MSE 6.68e-3, unverified)."""
    run = pendulum()
    return replace(run, name="pendulum-drop", data=replace(run.data, use_dt=False))


def pendulum_append() -> RunConfig:
    """The interval is an input of the encoder, every step is 1 (the paper's S5-append; MSE 4.13e-3, unverified)."""
    run = pendulum()
    return replace(run, name="pendulum-append", model=replace(run.model, front=FrameFront(append_dt=True)))


def pendulum_gru() -> RunConfig:
    """Baseline of the same size and budget: two GRU layers, the interval an input of the encoder."""
    run = pendulum_append()
    model = replace(run.model, mixer=GRUMixer(), activation="none", n_layers=2)
    return replace(run, name="pendulum-gru", model=model)


def pendulum_both() -> RunConfig:
    """Beyond the paper: both directions of time, pictures mirrored at random, weights of the last quarter averaged."""
    run = pendulum()
    ssm = replace(run.model.mixer, bidirectional=True)
    return replace(
        run,
        name="pendulum-both",
        data=replace(run.data, mirror=True),
        model=replace(run.model, mixer=ssm),
        training=replace(run.training, average_from=0.75),
    )


def pendulum_query() -> RunConfig:
    """Pendulum that also answers between its observations: training asks about 10 unseen frames of each sequence."""
    run = pendulum()
    return replace(run, name="pendulum-query", data=replace(run.data, n_query=10))


def pendulum_query_gru() -> RunConfig:
    """The GRU baseline of pendulum-query."""
    run = pendulum_gru()
    return replace(run, name="pendulum-query-gru", data=replace(run.data, n_query=10))

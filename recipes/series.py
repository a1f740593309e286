"""The user's own irregular series: CSV in, every row a step, the interval before it the step of the SSMs.

kws-train series --data.path mine.csv --data.targets level
"""

from kws_s5.config import (
    GaussianHead,
    LinearFront,
    ModelConfig,
    OptimConfig,
    RunConfig,
    S5Mixer,
    SeriesData,
    TrainingConfig,
)


def series() -> RunConfig:
    """Your own irregular series from a CSV file (--data.path, --data.targets); without one, a small example."""
    return RunConfig(
        name="series",
        data=SeriesData(),
        model=ModelConfig(
            d_model=32,
            n_layers=2,
            front=LinearFront(n_inputs=0),
            head=GaussianHead(hidden=32),
            mixer=S5Mixer(ssm_size=32, blocks=4, dt_min=0.01, dt_max=0.5),
            activation="half_glu2",
            norm="layer",
            prenorm=False,
            dropout=0.0,
        ),
        optim=OptimConfig(lr=0.004, ssm_lr=0.001, weight_decay=0.01),
        training=TrainingConfig(epochs=40, batch_size=16, accelerator="cpu"),
    )

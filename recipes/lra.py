"""Long Range Arena and pixel sequences with the configurations of the S5 paper's run scripts (appendix G), and small
versions of each that learn something visible on two CPU cores in minutes: same code, same task, fewer of everything.

    kws-train lra-listops                                  the published size; without files the task is generated
    kws-train lra-image --data.root cifar-10-batches-bin
    kws-train lra-listops-tiny

sMNIST and psMNIST have no run script. Their rows are from the paper's table, unverified: starting points.
"""

from dataclasses import replace

from kws_s5.config import (
    LinearFront,
    LraData,
    ModelConfig,
    OptimConfig,
    PairHead,
    RunConfig,
    S5Mixer,
    TokenFront,
    TrainingConfig,
)


def lra_listops() -> RunConfig:
    """ListOps, up to 2,000 tokens: the answer to nested operations on digits (published S5: 62.15 %)."""
    return RunConfig(
        name="lra-listops",
        data=LraData("listops"),
        model=ModelConfig(
            d_model=128,
            n_layers=8,
            front=TokenFront(vocab_size=20),
            activation="half_glu2",
            mixer=S5Mixer(ssm_size=16, blocks=8, C_init="lecun_normal", bidirectional=True),
        ),
        optim=OptimConfig(lr=0.003, ssm_lr=0.001, weight_decay=0.04, groups="BfastandCdecay"),
        training=TrainingConfig(epochs=40, batch_size=50),
    )


def lra_text() -> RunConfig:
    """IMDB reviews by character, up to 4,096: positive or negative (published S5: 89.31 %)."""
    return RunConfig(
        name="lra-text",
        data=LraData("text"),
        model=ModelConfig(
            d_model=256,
            n_layers=6,
            front=TokenFront(vocab_size=135),
            activation="half_glu2",
            mixer=S5Mixer(ssm_size=192, blocks=12, C_init="lecun_normal", bidirectional=True),
            dropout=0.1,
        ),
        optim=OptimConfig(
            lr=0.004, ssm_lr=0.001, weight_decay=0.07, groups="standard", dt_global=True, warmup_epochs=0.0
        ),
        training=TrainingConfig(epochs=35, batch_size=50),
    )


def lra_retrieval() -> RunConfig:
    """Two papers by character, up to 4,000 each: related or not (published S5: 91.40 %); generated without files."""
    return RunConfig(
        name="lra-retrieval",
        data=LraData("retrieval"),
        model=ModelConfig(
            d_model=128,
            n_layers=6,
            front=TokenFront(),
            head=PairHead(),
            activation="half_glu1",
            mixer=S5Mixer(ssm_size=256, blocks=16, C_init="trunc_standard_normal", bidirectional=True),
        ),
        optim=OptimConfig(lr=0.002, ssm_lr=0.001, weight_decay=0.05, groups="standard", dt_global=True),
        training=TrainingConfig(epochs=20, batch_size=32),
    )


def lra_image() -> RunConfig:
    """CIFAR-10 in grey, 1,024 pixels one by one (published S5: 88.00 %)."""
    return RunConfig(
        name="lra-image",
        data=LraData("image"),
        model=ModelConfig(
            d_model=512,
            n_layers=6,
            front=LinearFront(),
            activation="half_glu1",
            mixer=S5Mixer(ssm_size=384, blocks=3, C_init="lecun_normal", bidirectional=True, eigenvalues="clip"),
            dropout=0.1,
        ),
        optim=OptimConfig(lr=0.0045, ssm_lr=0.001, weight_decay=0.07, groups="BfastandCdecay"),
        training=TrainingConfig(epochs=250, batch_size=50),
    )


def lra_pathfinder() -> RunConfig:
    """Pathfinder, 1,024 pixels: are two discs joined by a dashed contour? (published S5: 95.33 %)"""
    return RunConfig(
        name="lra-pathfinder",
        data=LraData("pathfinder"),
        model=ModelConfig(
            d_model=192,
            n_layers=6,
            front=LinearFront(),
            activation="half_glu1",
            mixer=S5Mixer(ssm_size=256, blocks=8, C_init="trunc_standard_normal", bidirectional=True),
            norm_momentum=0.9,
            dropout=0.05,
        ),
        optim=OptimConfig(lr=0.0045, ssm_lr=0.0009, weight_decay=0.03, groups="standard"),
        training=TrainingConfig(epochs=200, batch_size=64),
    )


def lra_pathx() -> RunConfig:
    """Path-X, 16,384 pixels: Pathfinder at 128 x 128 (published S5: 98.58 %)."""
    return RunConfig(
        name="lra-pathx",
        data=LraData("pathx"),
        model=ModelConfig(
            d_model=128,
            n_layers=6,
            front=LinearFront(),
            activation="half_glu1",
            mixer=S5Mixer(ssm_size=256, blocks=16, C_init="complex_normal", bidirectional=True, dt_min=0.0001),
            norm_momentum=0.9,
        ),
        optim=OptimConfig(lr=0.0018, ssm_lr=0.0006, weight_decay=0.06, groups="BandCdecay"),
        training=TrainingConfig(epochs=75, batch_size=32),
    )


def smnist() -> RunConfig:
    """MNIST pixel by pixel, 784 steps (published S5: 99.65 %)."""
    return RunConfig(
        name="smnist",
        data=LraData("smnist"),
        model=ModelConfig(
            d_model=96,
            n_layers=4,
            front=LinearFront(),
            activation="half_glu1",
            mixer=S5Mixer(ssm_size=128, blocks=1, C_init="lecun_normal", bidirectional=True),
            dropout=0.1,
        ),
        optim=OptimConfig(lr=0.008, ssm_lr=0.002, weight_decay=0.01, groups="standard"),
        training=TrainingConfig(epochs=150, batch_size=50),
    )


def psmnist() -> RunConfig:
    """MNIST pixels in bit-reversed order, 784 steps (published S5: 98.67 %)."""
    run = smnist()
    ssm = replace(run.model.mixer, blocks=2)
    return replace(
        run,
        name="psmnist",
        data=LraData("psmnist"),
        model=replace(run.model, d_model=128, mixer=ssm, dropout=0.15),
        optim=replace(run.optim, lr=0.004, ssm_lr=0.001),
    )


def scifar() -> RunConfig:
    """CIFAR-10 in colour, 1,024 pixels one by one (published S5: 90.10 %)."""
    run = lra_image()
    return replace(run, name="scifar", data=LraData("scifar"), model=replace(run.model, front=LinearFront(n_inputs=3)))


def lra_listops_tiny() -> RunConfig:
    """ListOps with short, shallow expressions (10 to 60 tokens): minutes on two cores."""
    data = LraData("listops", n_train=8000, n_validation=1000, n_test=1000, min_length=10, max_length=60, max_depth=4)
    return _tiny(lra_listops(), data, d_model=64, n_layers=3, ssm_size=16, blocks=2, epochs=12, batch_size=32)


def lra_text_tiny() -> RunConfig:
    """IMDB, the first 1,024 characters of 1,500 reviews: minutes on two cores."""
    data = LraData("text", max_length=1024, n_train=1500, n_validation=500, n_test=1000)
    run = _tiny(
        lra_text(),
        data,
        d_model=64,
        n_layers=2,
        ssm_size=64,
        blocks=8,
        epochs=12,
        batch_size=16,
        dropout=0.3,
        dt_min=0.02,
        dt_max=0.5,
    )
    return replace(
        run,
        optim=replace(run.optim, lr=0.005, ssm_lr=0.003),
        training=replace(run.training, average_from=0.75, choose_by="loss"),
    )


def lra_retrieval_tiny() -> RunConfig:
    """Pairs of generated texts of 512 characters: minutes on two cores."""
    data = LraData("retrieval", max_length=512, n_train=2000, n_validation=500, n_test=500)
    return _tiny(lra_retrieval(), data, d_model=64, n_layers=2, ssm_size=32, blocks=4, epochs=10, batch_size=16)


def lra_image_tiny() -> RunConfig:
    """CIFAR-10 in grey, 1,500 pictures: minutes on two cores."""
    data = LraData("image", n_train=1500, n_validation=500, n_test=1000, mirror=True)
    return _tiny(
        lra_image(), data, d_model=48, n_layers=3, ssm_size=64, blocks=1, epochs=30, batch_size=25, dropout=0.2
    )


def lra_pathfinder_tiny() -> RunConfig:
    """Pathfinder at 16 x 16 with contours of 5 dashes, generated: minutes on two cores."""
    data = LraData(
        "pathfinder", n_train=10000, n_validation=500, n_test=1000, image_size=16, contour_length=5, mirror=True
    )
    run = _tiny(
        lra_pathfinder(),
        data,
        d_model=64,
        n_layers=4,
        ssm_size=64,
        blocks=8,
        epochs=16,
        batch_size=32,
        dt_min=0.002,
        dt_max=0.2,
    )
    return replace(run, optim=replace(run.optim, lr=0.006, ssm_lr=0.002))


def lra_pathx_tiny() -> RunConfig:
    """Path-X at its full 16,384 pixels on a few pictures: shows that it trains, not that it learns."""
    data = LraData("pathx", n_train=32, n_validation=8, n_test=8)
    return _tiny(lra_pathx(), data, d_model=32, n_layers=2, ssm_size=32, blocks=4, epochs=2, batch_size=4)


def smnist_tiny() -> RunConfig:
    """MNIST pixel by pixel, 2,000 digits: minutes on two cores."""
    data = LraData("smnist", n_train=2000, n_validation=500, n_test=1000)
    return _tiny(smnist(), data, d_model=64, n_layers=2, ssm_size=64, blocks=1, epochs=12, batch_size=25)


def psmnist_tiny() -> RunConfig:
    """MNIST pixels in bit-reversed order, 2,000 digits: minutes on two cores."""
    data = LraData("psmnist", n_train=2000, n_validation=500, n_test=1000)
    return _tiny(psmnist(), data, d_model=64, n_layers=2, ssm_size=64, blocks=1, epochs=12, batch_size=25)


def scifar_tiny() -> RunConfig:
    """CIFAR-10 in colour, 1,500 pictures: minutes on two cores."""
    data = LraData("scifar", n_train=1500, n_validation=500, n_test=1000, mirror=True)
    return _tiny(scifar(), data, d_model=48, n_layers=3, ssm_size=64, blocks=1, epochs=30, batch_size=25, dropout=0.2)


def _tiny(
    run: RunConfig,
    data: LraData,
    *,
    d_model: int,
    n_layers: int,
    ssm_size: int,
    blocks: int,
    epochs: int,
    batch_size: int,
    dropout: float = 0.0,
    dt_min: float = 0.001,
    dt_max: float = 0.1,
) -> RunConfig:
    """The same run with less data and a smaller model; a shorter sequence wants larger steps."""
    ssm = replace(run.model.mixer, ssm_size=ssm_size, blocks=blocks, dt_min=dt_min, dt_max=dt_max)
    model = replace(run.model, d_model=d_model, n_layers=n_layers, mixer=ssm, dropout=dropout)
    training = replace(run.training, epochs=epochs, batch_size=batch_size)
    return replace(run, name=f"{run.name}-tiny", data=data, model=model, training=training)

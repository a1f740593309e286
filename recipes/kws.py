"""Keyword recipes. The first line of a recipe's docstring is its help; registry.py finds them."""

from dataclasses import replace

from kws_s5.config import (
    AugmentConfig,
    BankFront,
    ClassHead,
    ConvMixer,
    KeywordData,
    LinearFront,
    LogMelFront,
    ModelConfig,
    OptimConfig,
    RunConfig,
    S4DMixer,
    S5Mixer,
    TrainingConfig,
)

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SPEECH_COMMANDS = "data/speech_commands"
QUIET = 1e-9  # power under the logarithm of models that hear quiet microphones
CLIP_GAIN = 2.4  # what the official Speech Commands loader of S5 amounts to


def kws35() -> RunConfig:
    """The S5 paper's model on the 35 words of Speech Commands: six bidirectional layers on 16,000 raw samples."""
    ssm = S5Mixer(ssm_size=128, blocks=16, C_init="lecun_normal", bidirectional=True)
    model = ModelConfig(
        d_model=96,
        n_layers=6,
        front=LinearFront(gain=CLIP_GAIN),
        mixer=ssm,
        activation="half_glu1",
        norm="batch",
        norm_momentum=0.95,
        dropout=0.1,
    )
    optim = OptimConfig(lr=0.008, ssm_lr=0.002, weight_decay=0.04, groups="noBCdecay", warmup_epochs=1.0)
    return RunConfig(
        "kws35",
        KeywordData(root=SPEECH_COMMANDS),
        model,
        AugmentConfig(),
        optim,
        TrainingConfig(epochs=40, batch_size=16),
    )


def kws12() -> RunConfig:
    """Ten commands, _unknown_ and _silence_ of Speech Commands: causal, streams, any rate, trains on a CPU."""
    data = KeywordData(root=SPEECH_COMMANDS, words=COMMANDS, unknown=True, silence=True)
    model = replace(bank_model(), ssm_norm=True)
    augment = replace(augmentation(), microphone=3.0)
    training = TrainingConfig(epochs=75, batch_size=32, label_smoothing=0.1, frame_weight=0.5, average_from=0.75)
    optim = OptimConfig(lr=0.005, ssm_lr=0.002, weight_decay=0.05, warmup_epochs=2.0, clip_norm=1.0)
    return RunConfig("kws12", data, model, augment, optim, training)


def kws12_talk() -> RunConfig:
    """Continues a finished kws12, with synthetic talk as _unknown_ (extra: synth)."""
    run = kws12()
    data = replace(run.data, added_talk=240)
    training = replace(run.training, epochs=8, init="runs/kws12")
    optim = replace(run.optim, lr=0.0006, ssm_lr=0.00025, warmup_epochs=0.5)
    return replace(
        run, name="kws12-talk", data=data, augment=replace(run.augment, splice=0.08), optim=optim, training=training
    )


def commands12() -> RunConfig:
    """The shipped model: continues a finished kws12-talk, on made-up streams of talk (--data.background DIR)."""
    run = kws12()
    model = replace(
        run.model,
        front=replace(run.model.front, floor=QUIET),
        head=replace(run.model.head, frame_decoder=True, window=0.1),
    )
    training = replace(
        run.training,
        epochs=24,
        init="runs/kws12-talk",
        frame_weight=0.0,
        average_from=0.8,
        choose_by="last",
        stream_batch=16,
        listen_every=3,
        fit_unknown=True,
    )
    optim = replace(run.optim, lr=0.002, ssm_lr=0.0008, warmup_epochs=1.0)
    return replace(
        run,
        name="commands12",
        data=replace(run.data, background="data/background"),
        model=model,
        augment=replace(run.augment, splice=0.08, level=0.5),
        optim=optim,
        training=training,
    )


def kws12_logmel() -> RunConfig:
    """Baseline: the kws12 model behind a log-mel spectrogram instead of the S5 bank, fixed to its training rate."""
    run = kws12()
    return replace(run, name="kws12-logmel", model=replace(run.model, front=LogMelFront()))


def kws12_cnn() -> RunConfig:
    """Baseline: a log-mel CNN with the size and the training of kws12, the usual design of the field."""
    run = kws12_logmel()
    model = replace(
        run.model,
        mixer=ConvMixer(),
        activation="relu",
        ssm_norm=False,
        d_model=192,
        n_layers=6,
        head=ClassHead(pooling="mean"),
    )
    return replace(run, name="kws12-cnn", model=model)


def kws12_s4d() -> RunConfig:
    """The kws12 model with S4D instead of S5 along time: streams and exports, any rate."""
    run = kws12()
    mixer = S4DMixer(n_states=16, dt_min=0.01, dt_max=0.5)
    return replace(run, name="kws12-s4d", model=replace(run.model, mixer=mixer))


def kws12_bidirectional() -> RunConfig:
    """The kws12 model with layers in both directions of time: whole clips only, no streaming."""
    run = kws12()
    ssm = replace(run.model.mixer, bidirectional=True)
    model = replace(run.model, mixer=ssm, head=ClassHead(pooling="mean"))
    return replace(run, name="kws12-bidirectional", model=model)


def words() -> RunConfig:
    """Your own recordings (--data.root DIR, 20 to 50 of each word, any rate), starting from the shipped model."""
    training = TrainingConfig(
        epochs=40,
        batch_size=16,
        label_smoothing=0.1,
        frame_weight=0.5,
        average_from=0.75,
        balanced=True,
        init="commands12",
        choose_by="loss",
    )
    run = kws12()
    # as the model it starts from; few steps an epoch: running statistics have to follow quickly
    model = replace(run.model, front=replace(run.model.front, floor=QUIET), norm_momentum=0.8)
    return replace(
        run, name="words", data=KeywordData(root="data/words"), model=model, augment=augmentation(), training=training
    )


def spotter() -> RunConfig:
    """Your own words for listening, with synthetic voices that say them, almost say them, or talk (extra: synth)."""
    run = words()
    data = replace(
        run.data,
        trim=True,
        unknown=True,
        silence=True,
        background="synthetic",
        added_talk=120,
        added_voices=40,
        added_near_misses=120,
    )
    model = replace(run.model, head=replace(run.model.head, frame_decoder=True, window=0.1))
    training = replace(
        run.training, epochs=8, frame_weight=0.0, average_from=0.75, choose_by="last", stream_batch=16, listen_every=2
    )
    return replace(
        run, name="spotter", data=data, model=model, augment=replace(run.augment, level=0.5), training=training
    )


def typed() -> RunConfig:
    """Words that nobody has recorded (--data.words "hey athena"), by synthetic voices alone (extra: synth)."""
    run = spotter()
    data = replace(run.data, root="synthetic", words=("hey computer",), added_voices=0, synthetic_voices=200)
    return replace(run, name="typed", data=data)


def quickstart() -> RunConfig:
    """A small streaming model on synthesised words, no download: minutes on two cores."""
    training = TrainingConfig(epochs=30, batch_size=32, label_smoothing=0.1, frame_weight=0.5, average_from=0.75)
    optim = OptimConfig(lr=0.006, ssm_lr=0.003, weight_decay=0.05, clip_norm=1.0)
    return RunConfig(
        "quickstart",
        KeywordData(root="synthetic"),
        bank_model(d_model=64, n_layers=3, ssm_size=64),
        augmentation(),
        optim,
        training,
    )


def flat_small() -> RunConfig:
    """A small S5 on raw samples, as in the paper but in minutes on a CPU: four synthesised words at 8 kHz."""
    ssm = S5Mixer(ssm_size=32, blocks=4, C_init="lecun_normal", bidirectional=True)
    model = ModelConfig(d_model=32, n_layers=3, front=LinearFront(gain=CLIP_GAIN), mixer=ssm, dropout=0.05)
    optim = OptimConfig(lr=0.01, ssm_lr=0.003, weight_decay=0.04, groups="noBCdecay", clip_norm=1.0)
    data = KeywordData(root="synthetic", rate=8000.0, words=("yes", "no", "stop", "left"))
    return RunConfig(
        "flat-small", data, model, AugmentConfig(shift=0.05, gain=0.5), optim, TrainingConfig(epochs=12, batch_size=8)
    )


def bank_model(*, d_model: int = 128, n_layers: int = 5, ssm_size: int = 128) -> ModelConfig:
    """A fixed bank of S5 modes on the waveform, then causal S5 layers at 100 frames a second."""
    ssm = S5Mixer(ssm_size=ssm_size, blocks=ssm_size // 16, dt_min=0.01, dt_max=0.5, eigenvalues="exp")
    front = BankFront(learnable=False, absent="mean")
    return ModelConfig(
        d_model=d_model,
        n_layers=n_layers,
        front=front,
        mixer=ssm,
        head=ClassHead(pooling="mean", frame_logits=True),
        dropout=0.05,
    )


def augmentation() -> AugmentConfig:
    """Everything that keeps the test zero-shot in rate."""
    return AugmentConfig(
        shift=0.1,
        gain=1.0,
        noise=0.4,
        noise_snr=(0.0, 30.0),
        reverb=0.15,
        speed=0.1,
        band_limit=0.2,
        time_mask=0.1,
        frequency_mask=0.15,
        top_mask=0.4,
    )

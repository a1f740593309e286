"""What a model is trained on. One class per kind of data; the class chooses the reader, nothing else does."""

from dataclasses import dataclass, field
from typing import Literal

from kws_s5.config.checks import one_of, require

BadFile = Literal["skip", "fail"]


@dataclass(frozen=True)
class KeywordData:
    """A folder of recordings: root/<word>/<clip>, optional _background_noise_/ and official split lists."""

    root: str = "synthetic"
    """The folder; 'synthetic' makes words with a speech synthesiser (extra: synth)."""
    words: tuple[str, ...] = ()
    """Keywords, in the order of the classes; empty: every word of the folder."""
    unknown: bool = False
    """Make the other words of the folder a class _unknown_; off: they are left out."""
    unknown_share: float = 0.1
    """Clips of _unknown_ as a share of the keyword clips of the same split; 1.0 or more: all of them."""
    silence: bool = False
    """Add a class _silence_ from _background_noise_; without such recordings: digital silence and made-up noise."""
    silence_share: float = 0.1
    """Clips of _silence_ as a share of the keyword clips of the same split."""
    rate: float = 16000.0
    """Training rate in Hz, at which the step rescale is 1. Clips keep their own rates."""
    seconds: float = 1.0
    """Longest clip in a batch; longer ones are cut (a random window in training, else the middle). 0: no limit."""
    trim: bool = False
    """Cut longer recordings of keywords around the word in them, found by its energy, in every split."""
    pad: bool = True
    """Zero-pad shorter clips to data.seconds and treat the padding as sound, as published results do."""
    download: Literal["", "v0.01", "v0.02"] = ""
    """Fetch this release of Google Speech Commands into root first; empty: fetch nothing."""
    on_bad_file: BadFile = "skip"
    """What to do about unreadable clips: skip them (they are reported), or fail."""
    validation_percent: float = 10.0
    """Percent of the speakers for validation, where the folder has no split lists of its own (split by sha1)."""
    test_percent: float = 10.0
    """Percent of the speakers for the test, likewise."""
    seed: int = 0
    """Seed of the choice of _unknown_ and _silence_ clips, and of the synthesiser."""
    cache: str = ""
    """Folder for decoded clips; empty: the user's cache folder."""
    synthetic_voices: int = 40
    """Voices of the synthetic set (root synthetic)."""
    synthetic_takes: int = 2
    """Takes of each word by each synthetic voice, added voices included."""
    added_voices: int = 0
    """Synthetic voices that say the folders' names too, in training only (extra: synth); for few speakers, say 40."""
    added_talk: int = 0
    """Synthetic voices that talk, as _unknown_, in training only (extra: synth); fewer false alarms, say 120."""
    background: str = ""
    """Folder of talk and noises in which a spotter must stay silent (docs/listening.md); synthetic: added_talk's."""
    added_near_misses: int = 0
    """Synthetic voices that say what sounds almost like the words, as _unknown_, in training only; say 120."""
    accents: tuple[str, ...] = ()
    """Languages of the synthetic voices by their eSpeak NG names, for instance de; empty: eight kinds of English."""

    def __post_init__(self) -> None:
        one_of("data.on_bad_file", self.on_bad_file, BadFile)
        require(0 < self.rate <= 192_000, "data.rate", self.rate, "a positive rate in Hz, at most 192000")
        require(0 <= self.seconds <= 3600, "data.seconds", self.seconds, "0 to 3600 seconds")
        require(len(set(self.words)) == len(self.words), "data.words", self.words, "a list without repetitions")
        for name in ("unknown_share", "silence_share", "validation_percent", "test_percent"):
            require(getattr(self, name) >= 0, f"data.{name}", getattr(self, name), "0 or more")
        require(
            self.validation_percent + self.test_percent < 100,
            "data.validation_percent",
            self.validation_percent,
            "below 100 together with test_percent",
        )
        require(self.seed >= 0, "data.seed", self.seed, "0 or more")
        for name in ("synthetic_voices", "synthetic_takes"):
            require(getattr(self, name) >= 1, f"data.{name}", getattr(self, name), "at least 1")
        for name in ("added_voices", "added_talk", "added_near_misses"):
            require(getattr(self, name) >= 0, f"data.{name}", getattr(self, name), "0 or more")
        for name in ("added_talk", "added_near_misses"):
            require(
                not getattr(self, name) or self.unknown,
                f"data.{name}",
                getattr(self, name),
                "0 without data.unknown: it is the class _unknown_",
            )
        require(
            self.background != "synthetic" or self.added_talk > 0,
            "data.background",
            self.background,
            "a folder, where no synthetic people talk (data.added_talk)",
        )
        require(len(set(self.accents)) == len(self.accents), "data.accents", self.accents, "a list without repetitions")
        require(
            not self.added_voices or self.root != "synthetic",
            "data.added_voices",
            self.added_voices,
            "0 where all voices are synthetic: set data.synthetic_voices",
        )


@dataclass(frozen=True)
class AugmentConfig:
    """Random changes of training waveforms; every one can be switched off by 0. Never used in evaluation."""

    splice: float = 0.0
    """Probability of a clip made of the end of one word and the beginning of another, as _unknown_ if a class."""
    shift: float = 0.0
    """Seconds by which clips are moved at most, either way."""
    gain: float = 0.0
    """Random level in natural log units: the amplitude is multiplied by exp(U(-gain, gain))."""
    level: float = 0.0
    """Probability of a random peak level, from 45 dB below full scale to 6 dB above it, where it is clipped."""
    noise: float = 0.0
    """Probability of adding background noise or coloured noise."""
    noise_snr: tuple[float, float] = (0.0, 30.0)
    """Lowest and highest signal-to-noise ratio in dB; uniform between them."""
    reverb: float = 0.0
    """Probability of convolving with a synthetic room."""
    speed: float = 0.0
    """Clips are played faster or slower by up to this share (0.1: 0.9 to 1.1), pitch included."""
    microphone: float = 0.0
    """Standard deviation in dB of a random smooth frequency response, as of another microphone."""
    band_limit: float = 0.0
    """Probability of a random low-pass between 1/8 of the rate and its Nyquist frequency."""
    true_rate: float = 0.0
    """Probability of resampling a clip to another rate. Tests at other rates are then no longer zero-shot."""
    time_mask: float = 0.0
    """Longest stretch of frames in seconds that is replaced by the mean, after the front."""
    frequency_mask: float = 0.0
    """Largest share of the front's channels that is masked."""
    top_mask: float = 0.0
    """Probability that the upper channels of a clip (60 % at most) are masked, as they are at a lower sample rate."""
    warp: float = 0.0
    """Natural log of the largest random stretch of the front's frequency axis, as of other vocal tracts."""
    mixup: float = 0.0
    """Beta parameter of mixup; 0: off."""

    def __post_init__(self) -> None:
        for name in ("shift", "gain", "microphone", "time_mask", "warp", "mixup"):
            require(getattr(self, name) >= 0, f"augment.{name}", getattr(self, name), "0 or more")
        for name in ("splice", "level", "noise", "reverb", "band_limit", "true_rate", "frequency_mask", "top_mask"):
            require(0 <= getattr(self, name) <= 1, f"augment.{name}", getattr(self, name), "between 0 and 1")
        require(0 <= self.speed <= 0.5, "augment.speed", self.speed, "between 0 and 0.5")
        require(self.noise_snr[0] <= self.noise_snr[1], "augment.noise_snr", self.noise_snr, "lowest, then highest dB")


@dataclass(frozen=True)
class PendulumData:
    """Images of a noisy pendulum, irregularly sampled."""

    n_train: int = 2000
    """Training sequences."""
    n_validation: int = 1000
    """Validation sequences."""
    n_test: int = 1000
    """Test sequences."""
    n_frames: int = 100
    """Frames of each sequence, 0.01 s apart."""
    n_observed: int = 50
    """Frames of each sequence that the model sees."""
    use_dt: bool = True
    """Give the intervals to the model; off: all intervals are 1 (the paper's S5-drop)."""
    n_query: int = 0
    """Unseen frames of each sequence that are asked about by a black picture. Published results: 0."""
    mirror: bool = False
    """Swap left and right in half of the training sequences. Published results: off."""
    cache: str = ""
    """Folder for the generated sets; empty: the user's cache folder."""

    def __post_init__(self) -> None:
        for name in ("n_train", "n_validation", "n_test"):
            require(getattr(self, name) >= 1, f"data.{name}", getattr(self, name), "at least 1")
        require(
            1 <= self.n_observed <= self.n_frames,
            "data.n_observed",
            self.n_observed,
            f"between 1 and n_frames ({self.n_frames})",
        )
        require(self.n_query >= 0, "data.n_query", self.n_query, "0 or more")


@dataclass(frozen=True)
class SeriesScaling:
    """Units of a series model, measured on its training series. Features and targets in the order of the columns."""

    time_unit: float = 0.0
    """Median interval in the file's unit of time; 0: not measured yet."""
    features: tuple[str, ...] = ()
    feature_mean: tuple[float, ...] = ()
    feature_std: tuple[float, ...] = ()
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()


@dataclass(frozen=True)
class SeriesData:
    """The user's own irregular series from CSV: series id, time, features..., targets..."""

    path: str = "example"
    """The file; 'example' is a small set made on the spot."""
    targets: tuple[str, ...] = ()
    """Names of the columns to predict; every other column is a feature."""
    max_gap: float = 0.0
    """Cut a series where an interval is longer than this, in the file's unit of time; 0: never."""
    max_length: int = 0
    """Cut series into pieces of at most this many rows; 0: never."""
    scaling: SeriesScaling = field(default_factory=SeriesScaling)
    """Filled in by training and kept with the model."""
    cache: str = ""
    """Folder for prepared data; empty: the user's cache folder."""

    def __post_init__(self) -> None:
        require(self.max_gap >= 0, "data.max_gap", self.max_gap, "0 or more")
        require(self.max_length >= 0 and self.max_length != 1, "data.max_length", self.max_length, "0, or 2 and more")


LraTask = Literal["listops", "text", "retrieval", "image", "pathfinder", "pathx", "smnist", "psmnist", "scifar"]


@dataclass(frozen=True)
class LraData:
    """One Long Range Arena task (or a pixel-sequence task), read from an official release or generated."""

    task: LraTask = "listops"
    root: str = ""
    """Folder of the official release; empty: fetched (text, images) or generated (the others)."""
    max_length: int = 0
    """Longest sequence kept, in tokens; 0: the published value."""
    n_train: int = 0
    """Training examples at most; 0: the published number, or all there are."""
    n_validation: int = 0
    """Validation examples at most; 0: likewise."""
    n_test: int = 0
    """Test examples at most; 0: likewise."""
    select_on_test: bool = False
    """IMDB: hold out no validation set and choose the epoch by the test set, as published numbers do."""
    min_length: int = 0
    """Generated ListOps: shortest expression in tokens; 0: the published 500."""
    max_depth: int = 0
    """Generated ListOps: deepest nesting; 0: the published 10."""
    image_size: int = 0
    """Generated Pathfinder: pixels a side; 0: the published 32 (Path-X: 128)."""
    contour_length: int = 0
    """Generated Pathfinder: dashes of the long curves; 0: the published 14."""
    mirror: bool = False
    """Mirror training pictures at random (Pathfinder: any symmetry of a square). Published results: off."""
    seed: int = 0
    """Seed of generated data, of held-out validation texts and of the choice of examples below the limits."""
    cache: str = ""
    """Folder for prepared data; empty: the user's cache folder."""

    def __post_init__(self) -> None:
        one_of("data.task", self.task, LraTask)
        for name in (
            "max_length",
            "n_train",
            "n_validation",
            "n_test",
            "min_length",
            "max_depth",
            "image_size",
            "contour_length",
            "seed",
        ):
            require(getattr(self, name) >= 0, f"data.{name}", getattr(self, name), "0 or more")
        require(self.max_length != 1, "data.max_length", self.max_length, "0, or 2 and more")
        require(self.max_depth <= 16, "data.max_depth", self.max_depth, "at most 16: each level is half as large again")
        require(
            self.image_size == 0 or 8 <= self.image_size <= 512, "data.image_size", self.image_size, "0, or 8 to 512"
        )


Data = KeywordData | PendulumData | SeriesData | LraData

"""Frozen dataclasses of a whole run: plain values, importable without torch."""

from kws_s5.config.data import AugmentConfig, Data, KeywordData, LraData, PendulumData, SeriesData
from kws_s5.config.mixers import MIXERS, ConvMixer, GRUMixer, Mixer, S4DMixer, S5Mixer
from kws_s5.config.model import (
    BankFront,
    ClassHead,
    FrameFront,
    GaussianHead,
    LinearFront,
    LogMelFront,
    ModelConfig,
    PairHead,
    TokenFront,
)
from kws_s5.config.run import RunConfig, from_dict, to_dict
from kws_s5.config.training import OptimConfig, TrainingConfig

__all__ = [
    "MIXERS",
    "AugmentConfig",
    "BankFront",
    "ClassHead",
    "ConvMixer",
    "Data",
    "FrameFront",
    "GRUMixer",
    "GaussianHead",
    "KeywordData",
    "LinearFront",
    "LogMelFront",
    "LraData",
    "Mixer",
    "ModelConfig",
    "OptimConfig",
    "PairHead",
    "PendulumData",
    "RunConfig",
    "S4DMixer",
    "S5Mixer",
    "SeriesData",
    "TokenFront",
    "TrainingConfig",
    "from_dict",
    "to_dict",
]

"""Frozen dataclasses of a whole run: plain values, importable without torch."""

from kws_s5.config.data import AugmentConfig, Data, KeywordData, LraData, PendulumData, SeriesData
from kws_s5.config.model import (
    BankFront,
    ClassHead,
    FrameFront,
    GaussianHead,
    LinearFront,
    LogMelFront,
    ModelConfig,
    PairHead,
    SSMConfig,
    TokenFront,
)
from kws_s5.config.run import RunConfig, from_dict, to_dict
from kws_s5.config.training import OptimConfig, TrainingConfig

__all__ = [
    "AugmentConfig", "BankFront", "ClassHead", "Data", "FrameFront", "GaussianHead", "KeywordData", "LinearFront",
    "LogMelFront", "LraData", "ModelConfig", "OptimConfig", "PairHead", "PendulumData", "RunConfig", "SSMConfig",
    "SeriesData", "TokenFront", "TrainingConfig", "from_dict", "to_dict",
]

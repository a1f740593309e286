"""What a layer does along time: one file a system, each of which keeps the contract of protocol.py."""

from kws_s5.mixers.protocol import MixerModule, build_mixer

__all__ = ["MixerModule", "build_mixer"]

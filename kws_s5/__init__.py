"""kws_s5: keyword spotting on raw waveforms with S5, at any sample rate."""

__version__ = "0.1.0"

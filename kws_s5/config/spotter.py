"""How scores become events: the settings of a spotter (listening/events.py says what they do)."""

from dataclasses import dataclass

from kws_s5.config.checks import require


@dataclass(frozen=True)
class SpotterConfig:
    """How scores become events. Seconds, and shares of a threshold."""

    threshold: float = 0.5
    """Of words that have none of their own (kws-calibrate finds and stores those)."""
    smoothing: float = 0.05
    settle: float = 0.03
    release: float = 0.6
    refractory: float = 0.5
    warmup: float = 0.2

    def __post_init__(self) -> None:
        require(0 < self.threshold <= 1, "threshold", self.threshold, "in (0, 1]")
        require(0 <= self.release <= 1, "release", self.release, "in [0, 1]")
        for name in ("smoothing", "settle", "refractory", "warmup"):
            require(0 <= getattr(self, name) <= 5, name, getattr(self, name), "between 0 and 5 seconds")

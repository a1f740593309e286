"""S5 as a mixer: ssm/s5.py keeps the contract itself."""

from kws_s5.config.mixers import S5Mixer
from kws_s5.ssm.s5 import S5SSM


def build(config: S5Mixer, H: int) -> S5SSM:
    return S5SSM(H, config)

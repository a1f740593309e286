"""The room of the mathematics: HiPPO, discretisation, scans, the S5 layer's linear system. Knows no audio."""

from kws_s5.ssm.hippo import make_dplr_hippo_blocks
from kws_s5.ssm.s5 import S5SSM

__all__ = ["S5SSM", "make_dplr_hippo_blocks"]

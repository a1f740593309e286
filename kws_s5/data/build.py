"""The one door to data: the class of the config chooses the reader."""

from kws_s5.config import Data, KeywordData, LraData, PendulumData, SeriesData
from kws_s5.data.splits import Splits


def build(config: Data) -> Splits:
    """Training, validation and test set of ``config``; prepared on the first call, cached afterwards."""
    # imported here so that one kind of data does not need the packages of the others
    match config:
        case KeywordData():
            from kws_s5.data.keywords import reader
        case PendulumData():
            from kws_s5.data.pendulum import reader
        case SeriesData():
            from kws_s5.data.series import reader
        case LraData():
            from kws_s5.data import lra as reader
        case _:
            raise TypeError(f"no reader for {type(config).__name__}")
    return reader.build(config)

"""Which file of this folder reads which task (Tay et al. 2020, "Long Range Arena", and the pixel sequences of S5)."""

from importlib import import_module

from kws_s5.config import LraData
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

READERS = {
    "listops": "listops",
    "text": "text",
    "retrieval": "retrieval",
    "image": "images",
    "scifar": "images",
    "smnist": "images",
    "psmnist": "images",
    "pathfinder": "pathfinder",
    "pathx": "pathfinder",
}


def build(config: LraData) -> Splits:
    """Training, validation and test set of ``config.task``; prepared on the first call, memory-mapped afterwards.

    Raises:
        UserError: files are missing or not what they should be (with the layout that is expected), or no space.
    """
    splits = import_module(f"kws_s5.data.lra.{READERS[config.task]}").build(config)
    for name in ("train", "validation", "test"):
        if not len(getattr(splits, name)):
            where = f"data.root = {config.root!r}" if config.root else f"data.task = {config.task!r}"
            raise UserError(f"{where}: leaves no {name} examples; the files are empty or too few, fetch them again")
    return splits

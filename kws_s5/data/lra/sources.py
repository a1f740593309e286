"""Where the official files come from, how they must lie, and what is said when they do not.

Text, CIFAR-10 and MNIST have public addresses and known checksums. The archive of Long Range Arena (lra_release.gz) is
fetched by hand: its address has not always answered, and it has no published checksum.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from kws_s5.data.archive import unpack
from kws_s5.data.cache import cache_folder
from kws_s5.data.download import download
from kws_s5.errors import UserError
from kws_s5.lock import locked

ARCHIVES = {
    "aclImdb": (
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    ),
    "cifar-10": (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
}
MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}


def given(root: str) -> Path:
    """The folder a config names. Raises UserError if it is none."""
    try:
        folder = Path(root).expanduser()
        if folder.is_dir():
            return folder
    except (OSError, RuntimeError):  # a name too long, ~name of nobody
        pass
    raise UserError(f"data.root = {root!r}: no such folder")


def found(root: Path, wanted: Iterable[str], *, below: Iterable[str] = (), layout: str) -> Path:
    """``root``, or the folder of ``below`` in it, that holds all the ``wanted`` names.

    Raises:
        UserError: none does; the message has ``layout``.
    """
    wanted = list(wanted)
    places = [root, *(root / name for name in below)]
    for place in places:
        if all((place / name).exists() for name in wanted):
            return place
    likeliest = max(places, key=lambda place: sum((place / name).exists() for name in wanted))
    missing = next(name for name in wanted if not (likeliest / name).exists())
    raise UserError(f"{likeliest}: has no {missing}; data.root must hold {layout}")


def fetched_archive(name: str, *, cache: str = "") -> Path:
    """The unpacked archive ``name`` of ARCHIVES in the cache, downloaded and verified first if it is not there."""
    url, sha256 = ARCHIVES[name]
    shelf = cache_folder(cache) / "lra" / "official"
    folder = shelf / name
    with locked(shelf / f"{name}.lock"):
        if not folder.is_dir():
            archive = download(url, shelf / "download" / Path(url).name, sha256=sha256)
            unpack(archive, folder)
            shutil.rmtree(archive.parent, ignore_errors=True)
    return folder


def fetched_mnist(*, cache: str = "") -> Path:
    """The folder of the four MNIST files in the cache, downloaded and verified first if they are not there."""
    folder = cache_folder(cache) / "lra" / "official" / "mnist"
    with locked(folder / ".lock"):
        for name, sha256 in MNIST_FILES.items():
            if not (folder / name).exists():  # files get their names after their checksums were found right
                download(MNIST + name, folder / name, sha256=sha256)
    return folder

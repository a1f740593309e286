"""Google Speech Commands: its words, where it comes from, and the layout of its separate 12-class test archive.

Source: Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", arXiv:1804.03209. CC BY 4.0.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from kws_s5.audio.files import SUFFIXES
from kws_s5.data.archive import unpack
from kws_s5.data.download import download
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN
from kws_s5.errors import UserError
from kws_s5.lock import locked

WORDS_35 = (
    "bed",
    "cat",
    "down",
    "five",
    "forward",
    "go",
    "house",
    "left",
    "marvin",
    "no",
    "on",
    "right",
    "sheila",
    "tree",
    "up",
    "visual",
    "yes",
    "backward",
    "bird",
    "dog",
    "eight",
    "follow",
    "four",
    "happy",
    "learn",
    "nine",
    "off",
    "one",
    "seven",
    "six",
    "stop",
    "three",
    "two",
    "wow",
    "zero",
)
"""All words of v0.02, in the order of the classes in the official S5 code's loader."""

COMMANDS_10 = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
"""The ten commands of the 12-class task, in the order of the paper that introduced it."""

LABELS_12 = (*COMMANDS_10, UNKNOWN, SILENCE)


@dataclass(frozen=True)
class Release:
    """One archive: where it lies and how to recognise it."""

    url: str
    sha256: str


_HOST = "https://storage.googleapis.com/download.tensorflow.org/data/"
RELEASES = {
    "v0.01": Release(
        _HOST + "speech_commands_v0.01.tar.gz", "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"
    ),
    "v0.02": Release(
        _HOST + "speech_commands_v0.02.tar.gz", "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"
    ),
}
TEST_ARCHIVE = Release(
    _HOST + "speech_commands_test_set_v0.02.tar.gz", "cc2a00c1147c2254e9be3fa0f779d8c17421dc349b86366567a8edfa9acd51df"
)
"""The official 12-class test set of v0.02: 4,890 clips, one folder per label."""


def fetch(root: str | Path, version: str = "v0.02", *, progress: bool = True) -> Path:
    """Downloads, verifies and unpacks a release into the new or empty folder ``root``, and returns it.

    A folder that holds the data set already is left alone. Interrupted: call again, the download goes on where it
    stopped. Several processes may call at once: one works, the others wait.

    Raises:
        UserError: unknown version, no connection, wrong checksum, no space, or ``root`` holds something else.
    """
    if version not in RELEASES:
        raise UserError(f"Speech Commands {version!r} is not known: choose {' or '.join(RELEASES)}")
    return _fetch(Path(root), RELEASES[version], is_release, progress)


def fetch_test_archive(root: str | Path, *, progress: bool = True) -> Path:
    """The same for the official 12-class test archive of v0.02."""
    return _fetch(Path(root), TEST_ARCHIVE, is_test_archive, progress)


def _fetch(root: Path, release: Release, is_there, progress: bool) -> Path:
    work = root.absolute().parent / f".{root.name}.download"  # kept when interrupted, removed when done
    if is_there(root):
        return root
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserError(f"{root} exists and is not a Speech Commands folder: choose another folder or remove it")
    with locked(work / "lock"):
        if not is_there(root):
            archive = download(release.url, work / Path(release.url).name, sha256=release.sha256, progress=progress)
            unpack(archive, root)
        shutil.rmtree(work, ignore_errors=True)
    return root


def is_release(folder: str | Path) -> bool:
    """Whether ``folder`` is an unpacked release: the official lists and a folder for each of the ten commands."""
    folder = Path(folder)
    lists = all((folder / name).is_file() for name in ("validation_list.txt", "testing_list.txt"))
    return lists and all((folder / word).is_dir() for word in COMMANDS_10)


def is_test_archive(folder: str | Path) -> bool:
    """Whether ``folder`` is laid out as the official 12-class test archive: twelve label folders and no split lists."""
    folder = Path(folder)
    lists = any((folder / name).exists() for name in ("validation_list.txt", "testing_list.txt"))
    return not lists and all((folder / label).is_dir() for label in LABELS_12)


def read_test_archive(folder: str | Path) -> list[tuple[Path, str]]:
    """(file, label) of every clip of the official 12-class test archive, sorted; label is one of LABELS_12.

    The folder is the label; some files there end in ``.wav.wav``.
    """
    folder = Path(folder)
    if not is_test_archive(folder):
        raise UserError(f"{folder} is not the 12-class test archive: it needs the folders {', '.join(LABELS_12)}")
    clips = [
        (path, label)
        for label in LABELS_12
        for path in sorted((folder / label).iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    if not clips:
        raise UserError(f"{folder} has the folders of the 12-class test archive but no clips: unpack it again")
    return clips

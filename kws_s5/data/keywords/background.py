"""Hours in which nobody says a keyword, for training: a folder of recordings of talk and noise, held in memory.

    DIR/anything/below/*.wav ...     recordings of any rate and length, searched in all folders
    DIR/transcripts.tsv              optional: file, text; where a text holds a keyword the recording is left out,
    DIR/words.tsv                    unless this one says when: file, word, start, end (seconds)

Tables have a header line, tabs between the columns, and files as paths below DIR; other columns are passed over. A
recording without a text is taken to hold no keyword. Words that sound like one (know, no) are background where they
are said in talk, but are never cut out to stand alone.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from kws_s5.audio.files import SUFFIXES, load_audio
from kws_s5.audio.resample import resample
from kws_s5.audio.samples import shown
from kws_s5.data.keywords.segments import Talk
from kws_s5.data.synthetic.sound import pcm16
from kws_s5.errors import UserError

TRANSCRIPTS, WORDS = "transcripts.tsv", "words.tsv"
HOMOPHONES = (
    {"no", "know"},
    {"right", "write", "wright", "rite"},
    {"one", "won"},
    {"two", "to", "too"},
    {"four", "for", "fore"},
    {"eight", "ate"},
)
FRAGMENT = (0.12, 0.8)  # seconds of a word that may stand alone as no keyword


def read_background(folder: str, keywords: Sequence[str], rate: float) -> tuple[list[Talk], str]:
    """All recordings below ``folder`` at ``rate`` Hz, and one line on them.

    Raises:
        UserError: no such folder, no recording in it that can be used, or a table that cannot be read.
    """
    root = Path(folder).expanduser()
    files = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise UserError(f"data.background: {shown(folder)} holds no recordings; name a folder of talk and noises")
    taboo = {keyword.lower() for keyword in keywords}
    texts = {row[0]: row[1] for row in _table(root / TRANSCRIPTS, ("file", "text"))}
    times = defaultdict(list)
    for file, word, start, end in _table(root / WORDS, ("file", "word", "start", "end")):
        times[file].append((word.lower(), *_span(root, file, start, end)))
    talk, said, broken = [], 0, 0
    for path in files:
        name = path.relative_to(root).as_posix()
        if name not in times and taboo & set(texts.get(name, "").lower().split()):
            said += 1
            continue
        try:
            audio = load_audio(path)
        except UserError as error:
            broken += 1
            if broken == 1:
                print(f"warning: {error}", file=sys.stderr)
            continue
        talk.append(_talk(resample(audio.waveform, audio.rate, rate), times.get(name, ()), taboo))
    if not talk:
        raise UserError(
            f"data.background: no recording of {shown(folder)} can be used ({said} hold a keyword, "
            f"{broken} cannot be read)"
        )
    hours = sum(len(t.samples) for t in talk) / rate / 3600
    return talk, (
        f"background: {len(talk)} recordings, {hours:.2f} h ({said} with a keyword left out, {broken} cannot be read)"
    )


def sounding_alike(keywords: Collection[str]) -> set[str]:
    """The keywords in small letters, and words that are said the same way."""
    words = {keyword.lower() for keyword in keywords}
    return words.union(*(group for group in HOMOPHONES if group & words))


def _talk(waveform: np.ndarray, words: Sequence[tuple[str, float, float]], taboo: Collection[str]) -> Talk:
    said = tuple((start, end) for word, start, end in words if word in taboo)
    alike = sounding_alike(taboo)
    places = tuple(
        (start, end) for word, start, end in words if word not in alike and FRAGMENT[0] < end - start < FRAGMENT[1]
    )
    return Talk(pcm16(waveform), said, places)


def _table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of the named columns; none where there is no such file."""
    if not path.is_file():
        return []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            missing = [column for column in columns if column not in (rows.fieldnames or ())]
            if missing:
                raise UserError(
                    f"{path}: has no column {missing[0]!r}; its first line must name the columns "
                    f"{', '.join(columns)}, with tabs between them"
                )
            return [tuple(row[column] or "" for column in columns) for row in rows]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: is no table of text in UTF-8 ({error})") from None


def _span(root: Path, file: str, start: str, end: str) -> tuple[float, float]:
    try:
        first, last = float(start), float(end)
    except ValueError:
        raise UserError(
            f"{root / WORDS}: {shown(file)}: start and end must be numbers of seconds, not {start!r} and {end!r}"
        ) from None
    if not 0 <= first <= last < 1e6:
        raise UserError(f"{root / WORDS}: {shown(file)}: start {start} and end {end} are no stretch of time")
    return first, last

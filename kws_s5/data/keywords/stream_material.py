"""What a training's streams are made of: its own words, and the talk of data.background, which is noise for clips too.

Legend: L samples.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kws_s5.audio.resample import resample
from kws_s5.config import KeywordData
from kws_s5.data.keywords.added_voices import talk_folder
from kws_s5.data.keywords.background import read_background
from kws_s5.data.keywords.joined import AnyClips
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN
from kws_s5.data.keywords.segments import Segments, Talk, Word
from kws_s5.data.keywords.word_place import find_word

SECONDS = 5.0  # of a stream, where the training says nothing else
PIECES, PIECE = 8, 60.0  # of the background as noise under clips; seconds of each


def with_background(
    config: KeywordData, names: Sequence[str], clips: AnyClips
) -> tuple[Segments, list[tuple[Tensor, float]], str]:
    """Streams of the training ``clips``, noises (L,) with their rate, and one line on the background.

    Raises UserError as ``read_background`` does.
    """
    keywords = [name for name in names if name not in (UNKNOWN, SILENCE)]
    synthetic = config.background == "synthetic"
    folder = str(talk_folder(config, keywords)) if synthetic else config.background
    talk, line = read_background(folder, keywords, config.rate)
    silent = {k for k, name in enumerate(names) if name == SILENCE}
    words = [_word(clips[i], config.rate) for i in range(len(clips)) if int(clips.targets[i]) not in silent]
    others = [k for k, name in enumerate(names) if name == UNKNOWN]
    segments = Segments(words, talk, seconds=SECONDS, rate=config.rate, background=others)
    return segments, [] if synthetic else noises_of(talk, config.rate), line


def noises_of(talk: Sequence[Talk], rate: float) -> list[tuple[Tensor, float]]:
    """Recordings in a fixed random order, one behind the other, up to a minute each time."""
    order = np.random.default_rng(0).permutation(len(talk))
    pieces = [
        np.concatenate([talk[k].samples for k in order[i::PIECES]])[: round(PIECE * rate)]
        for i in range(min(PIECES, len(talk)))
    ]
    return [(torch.from_numpy(piece.astype(np.float32) / 32768.0), rate) for piece in pieces]


def _word(example, rate: float) -> Word:  # noqa: ANN001 - an Example
    waveform = resample(example.x[:, 0].numpy(), example.rate, rate)
    return Word(waveform, int(example.y), *find_word(waveform, rate))

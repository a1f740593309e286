"""The loss of a stream: silent at every moment of the background, sure at one moment of every word.

    background   -log(1 - sum_k p_k) over the keywords k, summed over the frames that are no word
    word w       the smallest -log p_w, averaged over HOLD seconds, between a word's middle and LATE seconds behind its
                 end (max-pooling loss: Sun et al., 2016); all other keywords count as background all along
    unsure       nothing: from a word's start to GRACE seconds behind it for its own class

The decision may wait for what follows, so that a word's beginning in running speech can be told from the word.
Legend: N streams, F frames, K classes, W words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from kws_s5.data.keywords.segments import Streams

HOLD = 0.08  # seconds
LATE = 0.35  # seconds
GRACE = 0.6  # seconds


def stream_loss(
    logits: Tensor, streams: Streams, keywords: list[int], *, frame_rate: float, background_weight: float
) -> Tensor:
    """Mean loss of a word, plus ``background_weight`` times the summed loss of the background for each word.

    Args:
        logits: (N, F, K) of the frames.
        streams: what they heard.
        keywords: classes that must be silent on background.
    """
    N, n_frames, K = logits.shape
    log_p = F.log_softmax(logits.float(), -1)
    rest = [k for k in range(K) if k not in keywords]
    silent = -torch.logsumexp(log_p[..., rest], -1)  # (N, F): -log(1 - sum of the keywords)
    counted = torch.ones(N, n_frames)
    losses = []
    hold = max(1, round(HOLD * frame_rate))
    for row, first, last in streams.unsure:
        counted[row, _frame(first - 0.1, frame_rate) : _frame(last + GRACE, frame_rate)] = 0.0
    for row, target, start, end in streams.words:
        first, last = _frame(0.5 * (start + end), frame_rate), _frame(end + LATE, frame_rate)
        counted[row, _frame(start, frame_rate) : _frame(end + GRACE, frame_rate)] = 0.0
        own = log_p[row, max(0, first) : last, target]
        if last > n_frames or len(own) < hold:
            continue  # the stream ends before the decision has to be made
        losses.append(-F.avg_pool1d(own[None, None], hold, 1).max())
        others = torch.logsumexp(
            log_p[row, _frame(start, frame_rate) : _frame(end + GRACE, frame_rate)][:, [*rest, target]], -1
        )
        losses.append(-background_weight * others.sum())
    n_words = max(1, len(streams.words))
    quiet = (silent * counted.to(silent.device)).sum() * background_weight
    return (torch.stack(losses).sum() + quiet if losses else quiet) / n_words


def _frame(seconds: float, frame_rate: float) -> int:
    return max(0, round(seconds * frame_rate))

"""Made-up streams beside the clips of a training: what they sound like, their loss, and listening for hard places.

Streams get the changes of sound that clips get (config.augment), over all of a stream at once. After ``listen`` the
recordings are drawn more often around the moments where the model, as it is, hears a keyword that nobody says.
Legend: N streams, L samples.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from kws_s5.config import RunConfig
from kws_s5.data.batch import Batch
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN
from kws_s5.data.keywords.segments import Segments, Streams
from kws_s5.training import augment_time
from kws_s5.training.augment import augment
from kws_s5.training.augment_fft import fft_size
from kws_s5.training.stream_loss import stream_loss

NOISE_SNR = (5.0, 45.0)  # dB, over a whole stream, pauses included
HARD = 0.1  # a keyword's probability from which a place is hard
APART = 0.5  # seconds between two hard places
AROUND = 0.3  # seconds about a keyword that is said, where nothing is hard


class StreamTraining:
    """Streams of one run."""

    def __init__(
        self, segments: Segments, config: RunConfig, labels: Sequence[str], noises: Sequence[tuple[Tensor, float]]
    ) -> None:
        """config: with everything the data decides filled in; labels: names of the classes."""
        self.segments, self.config, self.noises = segments, config, noises
        segments.seconds = config.training.stream_seconds
        self.keywords = [k for k, label in enumerate(labels) if label not in (UNKNOWN, SILENCE)]
        self.augment = replace(
            config.augment, splice=0.0, shift=0.0, speed=0.0, mixup=0.0, true_rate=0.0, noise_snr=NOISE_SNR
        )

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of the next streams; everything random comes from the generator."""
        training = self.config.training
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
        streams = self.segments.draw(rng, training.stream_batch)
        if self.config.augment.speed > 0:
            streams = faster(
                streams, 1.0 + rng.uniform(-1.0, 1.0, len(streams.x)) * self.config.augment.speed, self.segments.rate
            )
        N, L = streams.x.shape
        rates = torch.full((N,), self.segments.rate, dtype=torch.float64)
        batch = Batch(streams.x[..., None], torch.full((N,), L), torch.zeros(N, dtype=torch.int64), rates)
        batch = augment(batch, self.augment, generator, noises=self.noises)
        features = model.features(batch.x.to(generator.device))
        logits = model.head.frames(features.x, step_rescale=features.step_rescale)
        return stream_loss(
            logits, streams, self.keywords, frame_rate=model.front.frame_rate, background_weight=training.stream_silence
        )

    @torch.no_grad()
    def listen(self, model: nn.Module) -> None:
        """Finds the places of the background where ``model`` hears a keyword, and lets them come up more often."""
        was, hard = model.training, []
        model.eval()
        for k, talk in enumerate(self.segments.talk):
            sound = torch.from_numpy(talk.samples.astype(np.float32) / 32768.0)
            if len(sound) < self.segments.rate:
                continue
            heard = model.frame_logits(sound[None, :, None]).float().softmax(-1)[0][:, self.keywords].amax(-1)
            hard += [
                (k, at)
                for at in peaks(heard.numpy(), model.front.frame_rate)
                if not any(start - AROUND < at < end + AROUND for start, end in talk.said)
            ]
        model.train(was)
        self.segments.hard = hard


def faster(streams: Streams, factors: np.ndarray, rate: float) -> Streams:
    """Streams played ``factors`` (N,) times as fast about their middle, and the times of the words in them."""
    N, L = streams.x.shape
    lengths, middle = torch.full((N,), L), 0.5 * L / rate
    x = augment_time.speed(streams.x, lengths, factors)
    S = fft_size(L + 256)
    factors = np.array([S / fft_size(round(S / factor)) for factor in factors.tolist()])  # as they are rounded there

    def moved(row: int, t: float) -> float:
        return middle + (t - middle) / float(factors[row])

    words = [(row, k, moved(row, start), moved(row, end)) for row, k, start, end in streams.words]
    unsure = [(row, moved(row, start), moved(row, end)) for row, start, end in streams.unsure]
    return Streams(x, [word for word in words if word[2] >= 0], unsure + [(w[0], 0.0, w[3]) for w in words if w[2] < 0])


def peaks(scores: np.ndarray, frame_rate: float) -> list[float]:
    """Seconds of the highest of scores (F,), from HARD on and APART from each other."""
    scores, found = scores.copy(), []
    apart = max(1, round(APART * frame_rate))
    while len(scores) and scores.max() >= HARD:
        at = int(scores.argmax())
        found.append((at + 1) / frame_rate)
        scores[max(0, at - apart) : at + apart] = 0.0
    return sorted(found)

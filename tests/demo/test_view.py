"""The page's HTML: well formed, safe for any label, and true to the numbers."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from kws_s5.audio.files import Audio
from kws_s5.demo import drawing, view
from kws_s5.demo.degrade import DEGRADATIONS
from kws_s5.demo.live import Live
from kws_s5.demo.recording import examine
from kws_s5.listening.events import Event

HOSTILE = "<img src=x onerror=alert(1)>"
VOID = {"img", "br"}


class Strict(HTMLParser):
    """Fails where tags do not close in order; collects them."""

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(html):
    parser = Strict()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser.tags


@pytest.fixture
def heard(tone_bundle, tone_stream):
    """A study at 8 kHz and a live session, both of a model whose word is hostile."""
    tone_bundle.labels = (HOSTILE, *tone_bundle.labels[1:])
    sound = tone_stream([("low", 0.5), ("high", 1.2)], seconds=2)
    live = Live(tone_bundle)
    live.push(16000, sound)
    return tone_bundle, examine(tone_bundle, Audio(sound, 16000), DEGRADATIONS["8 kHz decimated"]), live


def test_every_part_of_the_page_is_well_formed_and_escapes_labels(heard):
    bundle, study, live = heard
    parts = [
        view.model_line(HOSTILE, bundle),
        view.study(study, top=8000),
        view.comparison(study, HOSTILE),
        view.live_panel(live, 16000),
        view.live_log(live),
        view.notice(HOSTILE),
        view.hint(HOSTILE),
    ]
    for part in parts:
        tags = parsed(part)
        assert not [tag for tag, attributes in tags if "onerror" in attributes or attributes.get("src") == "x"]
        assert "NaN" not in part and "nan" not in part.replace("scanning", "")
    assert "&lt;img" in parts[1] and "&lt;img" in parts[3]


def test_the_study_says_what_was_heard(heard):
    _, study, _ = heard
    html = view.study(study, top=8000)
    assert "the model gets 8000 Hz" in html
    assert len(re.findall('class="chip"', html)) == 2
    assert html.count('class="mark"') == 2


def test_silence_and_single_samples_can_be_drawn(tone_bundle):
    for length in (1, 5, 16000):
        study = examine(tone_bundle, Audio(np.zeros(length, np.float32), 16000), DEGRADATIONS["8 kHz telephone"])
        parsed(view.study(study, top=8000))
        assert "no word found" in view.comparison(study, "")


def test_heat_is_a_picture_of_the_numbers():
    image = np.linspace(0, 1, 40).reshape(10, 4)
    tag = drawing.heat(image, low=0, high=1)
    data = base64.b64decode(re.search('base64,([^"]+)', tag).group(1))
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("L")).astype(int)
    assert pixels.shape == (4, 10)
    assert pixels[-1, 0] == pixels.min() and pixels[0, -1] == pixels.max()  # first channel and time: lower left
    assert (np.diff(pixels[0]) >= 0).all()


def test_thinned_curves_keep_their_peaks():
    scores = np.zeros((5000, 1))
    scores[1234] = 1.0
    svg = drawing.curves(np.arange(5000) / 100, scores, start=0, seconds=50, colours=[0])
    points = [tuple(map(float, p.split(","))) for p in re.search('points="([^"]+)"', svg).group(1).split()]
    assert len(points) <= drawing.COLUMNS
    x, y = min(points, key=lambda point: point[1])
    assert y == pytest.approx(4.0) and abs(x - 1000 * 12.34 / 50) < 3


def test_flags_close_together_do_not_hide_each_other():
    events = [Event("a", 0, 1.0, 0.9, 1.0), Event("b", 0, 1.2, 0.9, 1.2), Event("c", 0, 9.9, 0.9, 9.9)]
    flags = re.findall(r"<b style=\"([^\"]+)\"", drawing.marks(events, start=0, seconds=10, colour_of={}))
    assert ["calc" in flag for flag in flags] == [False, True, False]
    assert "right" in flags[2]

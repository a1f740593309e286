"""kws-eval --stream: false alarms per hour on background, misses of words said in it, and what each threshold costs.

Words come from the test clips, background from --background DIR (speech without the keywords), noise lies over both.
Thresholds are those of the model (kws-calibrate), else 0.5. Written: stream.json (every number), stream_det.png and
stream_roc.png.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from kws_s5 import __version__
from kws_s5.atomic import write_json
from kws_s5.bundle import Bundle
from kws_s5.errors import UserError
from kws_s5.eval.held_out import remark
from kws_s5.eval.noise import noise_from
from kws_s5.eval.sources import Source
from kws_s5.eval.stream_audio import Block, Material, StreamConditions, background_stream, gather, words_stream
from kws_s5.eval.stream_scores import Track, by_word, listen, row_at, sweep
from kws_s5.listening.events import SpotterConfig
from kws_s5.listening.metrics import TOLERANCE
from kws_s5.listening.spotter import keywords_of, thresholds_of

if TYPE_CHECKING:
    from kws_s5.eval.arguments import Arguments

SNR = 30.0  # dB, where none is asked for
SHOWN = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # rows of the table on screen
HIT = (
    f"a word is hit by an event of its label decided between {TOLERANCE:g} s before its start and {TOLERANCE:g} s "
    "after its end, once; false alarms per hour count events on background alone; other events in the stream with "
    "words are confusions"
)


def run_stream(bundle: Bundle, source: Source, arguments: "Arguments", out: Path) -> None:
    """The command. Raises UserError for what the user can mend."""
    material = gather(source.dataset, bundle.labels, arguments.background, description=source.description)
    conditions = conditions_of(bundle, arguments)
    chosen_on = remark(bundle.metrics, material.background)
    with progress_bar(arguments.json) as tick:
        rows = [measure(bundle, material, c, tick) for c in conditions]
    remarks = [*material.remarks, *filter(None, [chosen_on])]
    report = {
        "model": bundle.config.name,
        "library": __version__,
        "data": material.description,
        "remarks": remarks,
        "held_out": not chosen_on,
        "train_rate": bundle.rate,
        "hit": HIT,
        "spotter": vars(SpotterConfig()),
        "rows": rows,
    }
    written = write(report, out)
    if arguments.json:
        print(json.dumps(report))
        return
    console = Console()
    print(f"{report['model']}: {report['data']}")
    for row in rows:
        print(f"\n{name_of(row)}: {row['background_seconds'] / 60:.1f} min of background, {row['own']['words']} words")
        console.print(operating_table(row))
        console.print(word_table(row["by_word"]))
    for line in report["remarks"]:
        console.print(line, markup=False)
    print(f"A hit: {HIT}.")
    console.print("written: " + ", ".join(map(str, written)), markup=False, soft_wrap=True)


def conditions_of(bundle: Bundle, arguments: "Arguments") -> list[StreamConditions]:
    """A stream for each rate and noise asked for; default: the training rate, noise 30 dB below speech."""
    how = "decimate" if arguments.resampler == "decimate" else "soxr"
    noise = noise_from(arguments.noise)
    return [
        StreamConditions(rate, how, snr, noise, arguments.seed)
        for rate in arguments.rate or (bundle.rate,)
        for snr in arguments.snr or (SNR,)
    ]


def measure(bundle: Bundle, material: Material, conditions: StreamConditions, tick: Callable[[float], None]) -> dict:
    """Everything about one rate and noise, as plain JSON values."""
    background, words = tracks(bundle, material, conditions, tick)
    config = SpotterConfig()
    own = dict(zip(words.words, thresholds_of(bundle, words.words, None, config), strict=True))
    return {
        "rate": conditions.rate,
        "how": conditions.how,
        "snr": conditions.snr,
        "noise": type(conditions.noise).__name__,
        "seed": conditions.seed,
        "background_seconds": background.seconds,
        "words_seconds": words.seconds,
        "calibrated": bool(bundle.thresholds),
        "own": row_at(background, words, own, config),
        "by_word": by_word(background, words, own, config),
        "operating_table": sweep(background, words, config),
    }


def tracks(
    bundle: Bundle, material: Material, conditions: StreamConditions, tick: Callable[[float], None]
) -> tuple[Track, Track]:
    """Scores on background alone, and on background with words."""
    stream = _ticking(words_stream(material, conditions), conditions.rate, tick)
    background = background_track(bundle, material, conditions, tick)
    return background, listen(bundle, stream, conditions.rate, background.words)


def background_track(
    bundle: Bundle, material: Material, conditions: StreamConditions, tick: Callable[[float], None]
) -> Track:
    """Scores on background alone."""
    words = keywords_of(bundle)
    if not words:
        raise UserError("this model has no keywords to listen for")
    stream = _ticking(background_stream(material, conditions), conditions.rate, tick)
    return listen(bundle, stream, conditions.rate, words)


def operating_table(row: dict) -> Table:
    """What thresholds cost; the first line is the model's own."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("threshold", "false alarms/h", "missed %", "confusions", "latency ms"):
        table.add_column(column, justify="right")
    own = "calibrated" if row["calibrated"] else "default"
    rows = [r for r in row["operating_table"] if round(r["threshold"], 3) in SHOWN]
    for label, r in [(own, row["own"]), *((f"{r['threshold']:g}", r) for r in rows)]:
        alarms = f"{r['false_alarms_per_hour']:.1f} (< {r['false_alarms_per_hour_upper']:.1f})"
        late = "-" if r["latency_ms"] is None else f"{r['latency_ms']['median']:.0f}"
        table.add_row(label, alarms, _percent(r["miss_rate"]), str(r["confusions"]), late)
    table.caption = "< : upper limit with 95 % confidence. Latency: median from a word's end to its decision."
    table.caption_justify = "left"
    return table


def word_table(rows: list[dict]) -> Table:
    """A line for each word at the model's own thresholds."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("word", "threshold", "said", "missed %", "false alarms/h", "confusions"):
        table.add_column(column, justify="left" if column == "word" else "right")
    for r in rows:
        table.add_row(
            Text(r["word"]),
            f"{r['threshold']:.3f}",
            str(r["words"]),
            _percent(r["miss_rate"]),
            f"{r['false_alarms_per_hour']:.1f}",
            str(r["confusions"]),
        )
    return table


def write(report: dict, out: Path) -> list[Path]:
    """stream.json and the curves."""
    from kws_s5 import plots  # matplotlib is loaded when something is drawn

    written = [out / "stream.json", out / "stream_det.png", out / "stream_roc.png"]
    write_json(written[0], report)
    curves = {}
    for row in report["rows"]:
        points = row["operating_table"]
        curves[name_of(row)] = ([p["false_alarms_per_hour"] for p in points], [p["miss_rate"] for p in points])
    plots.det(curves, written[1])
    plots.roc(curves, written[2])
    return written


def name_of(row: dict) -> str:
    """Rate and noise in words."""
    noise = "no noise" if row["snr"] is None else f"{row['noise'].lower()} noise {row['snr']:g} dB below speech"
    return f"{row['rate']:g} Hz, {noise}"


@contextmanager
def progress_bar(silent: bool) -> Iterator[Callable[[float], None]]:
    """Seconds of sound heard so far, on the terminal's stderr; silent elsewhere."""
    with Progress(
        "listening",
        "{task.completed:.0f} s",
        console=Console(stderr=True),
        transient=True,
        disable=silent or not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("listening", total=None)
        yield lambda seconds: bar.advance(task, seconds)


def _ticking(blocks: Iterable[Block], rate: float, tick: Callable[[float], None]) -> Iterator[Block]:
    for block in blocks:
        yield block
        tick(len(block.waveform) / rate)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"

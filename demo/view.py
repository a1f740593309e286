"""What is known -> the HTML of the page. Text from models and files is escaped; nothing here computes.

Legend: f frames, K keywords.
"""

from collections.abc import Iterable
from html import escape

import numpy as np

from kws_s5.bundle import Bundle
from kws_s5.demo import drawing
from kws_s5.demo.live import SHOWN, SILENT, Live
from kws_s5.demo.recording import Hearing, Study

MOST_CURVES = 6


def notice(text: str, *, kind: str = "error") -> str:
    """One line that a screen reader reads out."""
    return f'<p class="notice {kind}" role="alert">{escape(text)}</p>'


def hint(text: str) -> str:
    """What to do, where there is nothing to show yet."""
    return f'<p class="hint">{escape(text)}</p>'


def model_line(name: str, bundle: Bundle) -> str:
    """The model in one line."""
    n = sum(p.numel() for p in bundle.model.parameters())
    words = [label for label in bundle.labels if not label.startswith("_")]
    shown = ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")
    size = f"{n / 1000:.0f} k" if n >= 1000 else str(n)
    return (
        f'<p class="model"><b>{escape(name)}</b> knows <b>{escape(shown)}</b>. '
        f"{size} parameters, trained at {bundle.rate / 1000:g} kHz.</p>"
    )


def live_panel(live: Live, train_rate: float) -> str:
    """Level, rate, scores as bars and over time."""
    rate = live.spotter.rate
    facts = [
        ("microphone", f"{rate:g} Hz"),
        ("time step", f"Δ × {train_rate / rate:.4g}"),
        ("heard", _clock(live.spotter.seconds)),
        ("words", str(live.n_events)),
    ]
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    times, scores = live.history()
    end = max(SHOWN, times[-1] if len(times) else 0.0)
    colours = [k % drawing.N_COLOURS for k in range(len(live.keywords))]
    same = live.spotter.thresholds if len(set(live.spotter.thresholds)) == 1 else ()  # else the bars show them
    plot = drawing.curves(times, scores, start=end - SHOWN, seconds=SHOWN, colours=colours, thresholds=same)
    plot += drawing.marks(list(live.log), start=end - SHOWN, seconds=SHOWN, colour_of=_colours(live.keywords))
    chart = drawing.frame(
        plot, height=120, seconds=SHOWN, start=end - SHOWN, left="scores", label="scores of the last seconds"
    )
    remark = notice(live.spotter.remark, kind="info") if live.spotter.remark else ""
    return (
        f'<div class="kws">{_newest(live)}{_meter(live)}<dl class="facts">{rows}</dl>{_bars(live)}'
        f"<div class='plot flags'>{chart}</div>{remark}</div>"
    )


def live_log(live: Live) -> str:
    """The words heard, newest first."""
    if not live.log:
        return '<div class="kws">' + hint("Words will appear here.") + "</div>"
    colour = _colours(live.keywords)
    rows = "".join(
        f'<tr style="--c:var(--w{colour[e.label]})"><td class="time">{_clock(e.end)}</td>'
        f"<th scope='row'>{escape(e.label)}</th><td>{e.score:.2f}</td></tr>"
        for e in live.log
    )
    return (
        f'<div class="kws"><table class="log"><thead><tr><th>at</th><th>word</th><th>score</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def study(study: Study, *, top: float) -> str:
    """Summary and pictures of a recording; ``top``: highest frequency of the spectrogram in Hz."""
    audio, first = study.audio, study.hearings[0]
    channels = f", {study.channels} channels" if study.channels > 1 else ""
    given = "" if audio.rate == study.source_rate else f"; the model gets {audio.rate:g} Hz"
    facts = f"{audio.seconds:.2f} s, {study.source_rate:g} Hz{channels}{given}"
    nyquist = audio.rate / 2
    zoom = drawing.zoom_of(audio.waveform)
    axis = {"seconds": audio.seconds}
    level = f"waveform, drawn {zoom:g} times as high" if zoom > 1 else "waveform"
    image = study.spectrogram.image
    high = max(float(image.max()), -60.0)
    spectrum = drawing.heat(image, low=high - 70, high=high, fill=nyquist / top)
    parts = [
        drawing.frame(drawing.wave(audio.waveform), height=64, label=level, left=level),
        drawing.frame(spectrum, height=110, label="spectrogram", left=f"spectrogram, 0 to {top / 1000:g} kHz"),
    ]
    if study.front is not None:
        low, high = np.percentile(study.front.image, (2, 99.7))
        parts.append(
            drawing.frame(
                drawing.heat(study.front.image, low=low, high=high),
                height=96,
                left=_front(study),
                label="what the front of the model hands on",
            )
        )
    scores = '<div class="plot flags">' + _scores(first, height=130, **axis) + "</div>"
    return (
        f'<div class="kws"><p class="facts-line">{facts}</p>{said(first)}<div class="stack">'
        f"{''.join(parts)}</div>{scores}</div>"
    )


def comparison(study: Study, explanation: str) -> str:
    """The hearings side by side."""
    cards = "".join(
        f'<section class="card{" ours" if i == 0 else ""}"><h3>{escape(h.title)}</h3><p>{escape(h.explanation)}</p>'
        f"{said(h)}{_scores(h, height=84, seconds=study.audio.seconds, words=False)}</section>"
        for i, h in enumerate(study.hearings)
    )
    return f'<div class="kws"><p class="facts-line">{escape(explanation)}</p><div class="cards">{cards}</div></div>'


def said(hearing: Hearing) -> str:
    """The words that were found, as chips."""
    if hearing.error:
        return notice(hearing.error)
    if not hearing.events:
        best = _best(hearing)
        return f'<p class="said none">no word found{escape(best)}</p>'
    colour = _colours(hearing.keywords)
    chips = "".join(
        f'<span class="chip" style="--c:var(--w{colour[e.label]})"><b>{escape(e.label)}</b> '
        f"{e.end:.1f} s · {e.score:.2f}</span>"
        for e in hearing.events
    )
    return f'<p class="said">{chips}</p>'


def _scores(hearing: Hearing, *, height: int, seconds: float, words: bool = True) -> str:
    """The curves of the words that were ever likely."""
    if hearing.error or not len(hearing.times):
        return ""
    peaks = hearing.scores.max(0)
    chosen = sorted(np.argsort(-peaks)[:MOST_CURVES]) if len(peaks) else []
    colours = [int(k) % drawing.N_COLOURS for k in chosen]
    content = drawing.curves(
        hearing.times,
        hearing.scores[:, chosen],
        start=0.0,
        seconds=seconds,
        colours=colours,
        thresholds=[hearing.thresholds[k] for k in chosen],
    )
    content += drawing.marks(
        hearing.events, start=0.0, seconds=seconds, colour_of=_colours(hearing.keywords), words=words
    )
    heard = ", ".join(f"{e.label} at {e.end:.1f} s" for e in hearing.events) or "no word"
    return drawing.frame(
        content, height=height, label=f"scores over time: {heard}", seconds=seconds, left="scores" if words else ""
    )


def _newest(live: Live) -> str:
    if not live.log:
        return '<p class="newest none">listening</p>'
    colour = _colours(live.keywords)[live.log[0].label]
    return f'<p class="newest" style="--c:var(--w{colour})">{escape(live.log[0].label)}</p>'


def _bars(live: Live) -> str:
    items = "".join(
        f'<li style="--c:var(--w{k % drawing.N_COLOURS})"><span class="word">{escape(word)}</span><span class="bar">'
        f'<i style="width:{100 * score:.0f}%"></i><u style="left:{100 * threshold:.0f}%"></u></span>'
        f'<span class="value">{score:.2f}</span></li>'
        for k, (word, score, threshold) in enumerate(
            zip(live.keywords, live.scores, live.spotter.thresholds, strict=True)
        )
    )
    return f'<ul class="bars">{items}</ul>'


def _meter(live: Live) -> str:
    """Level from -60 dB to 0 dB, with a word on what is wrong."""
    share, peak = (float(np.clip(100 * (1 + x / 60), 0, 100)) for x in (live.level, live.peak))
    advice = (
        "no sound"
        if live.level < -75
        else "very quiet"
        if live.level < -55
        else "too loud"
        if live.peak > -0.5
        else "good level"
    )
    if live.level <= SILENT:
        advice = "digital silence"
    if live.over:
        advice = "stopped"
    value = "" if live.level <= SILENT else f"{live.level:.0f} dB, "
    bar = f'<span class="bar"><i style="width:{share:.0f}%"></i><u style="left:{peak:.0f}%"></u></span>'
    return (
        f'<div class="meter" role="img" aria-label="level {live.level:.0f} dB">{bar}'
        f'<span class="value">{value}{advice}</span></div>'
    )


def _front(study: Study) -> str:
    n, frequencies = study.front.image.shape[1], study.front.frequencies
    if not len(frequencies):
        return f"what the front sees: {n} channels"
    return f"what the front sees: {n} modes, {frequencies[0]:.0f} to {frequencies[-1]:.0f} Hz"


def _best(hearing: Hearing) -> str:
    if not hearing.scores.size:
        return ""
    k = int(hearing.scores.max(0).argmax())
    return f"; nearest: {hearing.keywords[k]} {hearing.scores[:, k].max():.2f}"


def _colours(words: Iterable[str]) -> dict[str, int]:
    return {word: k % drawing.N_COLOURS for k, word in enumerate(words)}


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{seconds % 60:04.1f}"

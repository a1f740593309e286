"""Arrays -> PNG files: learning curves, confusion, accuracy by rate and noise, DET, sound and what a model makes of it.

The only file that knows matplotlib. Figures are objects of their own (no pyplot, no global state), so plots can be
drawn in any thread. Lines differ in dash and marker as well as in colour, and colour maps rise steadily in lightness:
everything can be read in grey, and on a phone.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from kws_s5.atomic import replacing

WIDTH = 5.2  # inches; with 11 point text about 12 CSS pixels high on a phone
DPI = 160
COLOURS = ("#0b4f8a", "#d95f02", "#1b9e77", "#7b3294", "#444444", "#c2185b", "#8d6e00")
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P")
CHANCE = {"color": "0.5", "linewidth": 1, "linestyle": (0, (1, 3)), "zorder": 0}


def learning_curves(rows: Sequence[Mapping], path: str | Path) -> None:
    """One panel a quantity, one line a split, over the epochs.

    Args:
        rows: one mapping an epoch, with "epoch" and columns named split_quantity or split/quantity (train_loss,
            validation/accuracy). Columns that are not numbers, and empty cells, are left out.
    """
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for i, row in enumerate(rows):
        for column, value in row.items():
            split, _, quantity = column.replace("/", "_").partition("_")
            number = _number(value)
            if number is not None and quantity and split in ("train", "validation", "test"):
                panels.setdefault(quantity, {}).setdefault(split, []).append((_number(row.get("epoch", i)), number))
    figure, axes = _figure(height=2.3 * max(len(panels), 1), rows=max(len(panels), 1))
    for axis, (quantity, splits) in zip(axes, panels.items(), strict=False):
        for (split, points), style in zip(splits.items(), _styles(), strict=False):
            axis.plot(*zip(*points, strict=True), label=split, **style, markevery=max(1, len(points) // 8))
        axis.set_ylabel(quantity.replace("_", " "))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(frameon=False)
    axes[-1].set_xlabel("epoch")
    _save(figure, path)


def confusion(matrix: np.ndarray, labels: Sequence[str], path: str | Path, *, title: str = "") -> None:
    """Confusion matrix (K, K), row = true class: shade is the share of the row, the figure in a cell the count."""
    K = len(labels)
    assert matrix.shape == (K, K), f"{K} labels, but a matrix of shape {matrix.shape}"
    size = max(WIDTH, 0.3 * K + 1.6)
    figure, (axis,) = _figure(width=size, height=size)
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axis.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    for i, j in zip(*np.nonzero(matrix), strict=True):
        axis.text(
            j,
            i,
            str(matrix[i, j]),
            ha="center",
            va="center",
            fontsize=8 if K > 14 else 10,
            color="white" if share[i, j] > 0.5 else "black",
        )
    axis.set_xticks(range(K), labels, rotation=90)
    axis.set_yticks(range(K), labels)
    axis.set_xticks(np.arange(K - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(K - 1) + 0.5, minor=True)
    axis.grid(visible=False)
    axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="both", length=0)
    axis.set(xlabel="predicted", ylabel="true")
    axis.set_title(title, fontsize=11)
    _save(figure, path)


def accuracy_by_rate(rows: Sequence[Mapping], path: str | Path, *, chance: float | None = None) -> None:
    """Accuracy over the sample rate, one line a protocol.

    Args:
        rows: mappings with rate (Hz), accuracy in [0, 1], protocol (its name) and, where known, low and high.
        chance: accuracy of guessing, drawn as a dotted line.
    """
    figure, (axis,) = _figure(height=_height(rows))
    _accuracies(axis, rows, "rate", chance=chance)
    rates = sorted({row["rate"] for row in rows})
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(rates))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([f"{rate / 1000:g}" for rate in rates])
    axis.set_xlim(rates[0] / 1.15, rates[-1] * 1.15)
    axis.set_xlabel("sample rate (kHz)")
    _save(figure, path)


def accuracy_by_snr(rows: Sequence[Mapping], path: str | Path, *, chance: float | None = None) -> None:
    """Accuracy over the signal-to-noise ratio: rows with snr (dB; None: clean), accuracy, protocol, low and high."""
    figure, (axis,) = _figure(height=_height(rows))
    levels = sorted({row["snr"] for row in rows if row["snr"] is not None}, reverse=True)
    places = {None: 0, **{snr: i + 1 for i, snr in enumerate(levels)}}
    _accuracies(axis, [{**row, "place": places[row["snr"]]} for row in rows], "place", chance=chance)
    axis.set_xticks(range(len(levels) + 1), ["clean", *(f"{snr:g}" for snr in levels)])
    axis.set_xlabel("signal-to-noise ratio (dB)")
    _save(figure, path)


def det(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], path: str | Path) -> None:
    """Miss rate over false alarms per hour, one stepped line a name: name -> (false alarms per hour, miss rate)."""
    _by_alarms(curves, path, found=False)


def roc(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], path: str | Path) -> None:
    """Share of words found over false alarms per hour, for the same curves as ``det``."""
    _by_alarms(curves, path, found=True)


def _by_alarms(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], path: str | Path, *, found: bool) -> None:
    figure, (axis,) = _figure(height=4.2)
    alarms = np.concatenate([np.asarray(fa, dtype=float) for fa, _ in curves.values()])
    smallest = alarms[alarms > 0].min() if (alarms > 0).any() else 1.0
    for (name, (fa, misses)), style in zip(curves.items(), _styles(), strict=False):
        order = np.lexsort((-np.asarray(misses), fa))  # between two points only the stricter one is affordable
        percent = 100 * np.asarray(misses, dtype=float)[order]
        axis.step(
            np.asarray(fa)[order],
            100 - percent if found else percent,
            where="post",
            label=name,
            **{**style, "marker": ""},
        )
    axis.set_xscale("symlog", linthresh=smallest, linscale=0.4)  # zero false alarms stay on the axis
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlim(left=0)
    axis.set_ylim(0, 100)
    axis.set(xlabel="false alarms per hour", ylabel="words found (%)" if found else "missed words (%)")
    axis.legend(frameon=False)
    _save(figure, path)


def waveform(samples: np.ndarray, rate: float, path: str | Path) -> None:
    """Waveform (L,) in [-1, 1] at ``rate`` Hz over time; long ones as the range of each pixel's samples."""
    figure, (axis,) = _figure(height=1.9)
    _waveform(axis, np.asarray(samples), rate)
    axis.set_xlabel("time (s)")
    _save(figure, path)


def features(image: np.ndarray, path: str | Path, *, frame_rate: float, frequencies: Sequence[float] = ()) -> None:
    """What a front gives the layers: (L', H) over time, low channels at the bottom.

    Args:
        frequencies: (H,) centre frequencies in Hz, for the labels of the vertical axis.
    """
    figure, (axis,) = _figure(height=2.8)
    _features(axis, np.asarray(image), frame_rate, frequencies)
    axis.set_xlabel("time (s)")
    _save(figure, path)


def scores(
    times: np.ndarray,
    posteriors: Mapping[str, np.ndarray],
    path: str | Path,
    *,
    events: Sequence[tuple[str, float]] = (),
    threshold: float | None = None,
) -> None:
    """Probability of each word (label -> (T,)) over ``times`` (T,) in seconds; ``events``: (label, time) marks."""
    figure, (axis,) = _figure(height=2.8)
    for (label, values), style in zip(posteriors.items(), _styles(), strict=False):
        axis.plot(times, values, label=label, **style, markevery=max(1, len(times) // 10))
    if threshold is not None:
        axis.axhline(threshold, **CHANCE)
    for label, time in events:
        axis.axvline(time, color="0.3", linewidth=0.8)
        axis.annotate(label, (time, 1.02), rotation=90, ha="center", va="bottom", annotation_clip=False)
    axis.set(xlabel="time (s)", ylabel="probability", ylim=(0, 1))
    axis.legend(frameon=False)
    _save(figure, path)


def _height(rows: Sequence[Mapping]) -> float:
    """Inches for the axes and, below them, one line of legend a protocol."""
    return 4.0 + 0.23 * len({row["protocol"] for row in rows})


def contact_sheet(images: np.ndarray, path: str | Path, *, titles: Sequence[str] = ()) -> None:
    """Grey pictures (rows, columns, height, width), 0 black to 255, side by side; one title a row."""
    rows, columns = images.shape[:2]
    sheet = np.pad(images, ((0, 0), (0, 0), (0, 2), (0, 2)), constant_values=255)
    sheet = sheet.transpose(0, 2, 1, 3).reshape(rows * sheet.shape[2], columns * sheet.shape[3])
    height = WIDTH * sheet.shape[0] / sheet.shape[1]
    figure, (axis,) = _figure(width=WIDTH + (1.2 if titles else 0), height=height + 0.1)
    axis.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    step = images.shape[2] + 2
    axis.set_yticks([step * (i + 0.5) for i in range(len(titles))], titles)
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    _save(figure, path)


def error_by_density(rows: Sequence[Mapping], path: str | Path) -> None:
    """Test error over the observed frames: rows with model, n_seen, mse (x 1e-3) and std (x 1, or None)."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, (axis,) = _figure(height=3.4 + 0.25 * -(-len(models) // 2))
    for model, style in zip(models, _styles(), strict=False):
        own = sorted((row for row in rows if row["model"] == model), key=lambda row: row["n_seen"])
        spread = [1e3 * (row["std"] or 0.0) for row in own]
        axis.errorbar(
            [row["n_seen"] for row in own], [row["mse"] for row in own], spread, label=model, capsize=3, **style
        )
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")
    axis.set_xticks(sorted({row["n_seen"] for row in rows}))
    axis.set(xlabel="frames seen, of 100", ylabel="test MSE x 1e-3")
    figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=10)
    _save(figure, path)


def band(
    times: np.ndarray,
    truth: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    path: str | Path,
    *,
    names: Sequence[str],
    truth_times: np.ndarray | None = None,
) -> None:
    """Predictions over ``times`` (L,) in seconds: a panel a target, with mean and two deviations (L, K).

    The truth (L, K) is at the same times, or at ``truth_times``.
    """
    truth_times = times if truth_times is None else truth_times
    figure, axes = _figure(height=2.1 * len(names), rows=len(names))
    for k, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.fill_between(
            times, mean[:, k] - 2 * std[:, k], mean[:, k] + 2 * std[:, k], color="0.85", label="2 standard deviations"
        )
        axis.plot(truth_times, truth[:, k], color="black", linewidth=1.2, label="true")
        axis.plot(times, mean[:, k], color=COLOURS[1], linestyle="--", marker="o", markersize=3, label="predicted")
        axis.set_ylabel(name)
    axes[0].legend(frameon=False, fontsize=9, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[-1].set_xlabel("time (s)")
    _save(figure, path)


def _accuracies(axis: Axes, rows: Sequence[Mapping], x: str, *, chance: float | None) -> None:
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    for protocol, style in zip(protocols, _styles(), strict=False):
        own = sorted((row for row in rows if row["protocol"] == protocol), key=lambda row: row[x])
        percent = np.array(
            [
                [100 * row["accuracy"], 100 * row.get("low", row["accuracy"]), 100 * row.get("high", row["accuracy"])]
                for row in own
            ]
        )
        error = np.abs(percent[:, 1:] - percent[:, :1]).T
        axis.errorbar([row[x] for row in own], percent[:, 0], error, label=protocol, capsize=3, elinewidth=1, **style)
    if chance is not None:
        axis.axhline(100 * chance, **CHANCE)
        axis.annotate(
            "chance",
            (1.0, 100 * chance),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            color="0.4",
            fontsize=9,
        )
    axis.set_ylim(0, 102)
    axis.set_ylabel("accuracy (%)")
    axis.figure.legend(frameon=False, loc="outside lower center", fontsize=10)


def _waveform(axis: Axes, samples: np.ndarray, rate: float) -> None:
    n_pixels = 1200
    if len(samples) > 2 * n_pixels:
        edges = np.linspace(0, len(samples), n_pixels + 1).astype(int)[:-1]
        low, high = np.minimum.reduceat(samples, edges), np.maximum.reduceat(samples, edges)
        axis.fill_between(edges / rate, low, high, color=COLOURS[0], linewidth=0.5)
    else:
        axis.plot(np.arange(len(samples)) / rate, samples, color=COLOURS[0], linewidth=0.7)
    axis.set(xlim=(0, max(len(samples), 1) / rate), ylim=(-1, 1), ylabel="amplitude")


def _features(axis: Axes, image: np.ndarray, frame_rate: float, frequencies: Sequence[float]) -> None:
    n_frames, n_channels = image.shape
    axis.imshow(
        image.T,
        origin="lower",
        aspect="auto",
        cmap="magma",
        interpolation="nearest",
        extent=(0, n_frames / frame_rate, -0.5, n_channels - 0.5),
    )
    axis.grid(visible=False)
    if len(frequencies):
        chosen = np.linspace(0, n_channels - 1, 6).round().astype(int)
        axis.set_yticks(chosen, [f"{frequencies[i] / 1000:.2g}" for i in chosen])
        axis.set_ylabel("frequency (kHz)")
    else:
        axis.set_ylabel("channel")


def _figure(*, width: float = WIDTH, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = list(figure.subplots(rows, 1, squeeze=False)[:, 0])
    for axis in axes:
        axis.tick_params(labelsize=10)
        axis.grid(visible=True, color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _styles() -> cycle:
    return cycle(
        {"color": c, "linestyle": d, "marker": m, "markersize": 5, "linewidth": 1.6}
        for c, d, m in zip(COLOURS, DASHES, MARKERS, strict=True)
    )


def _save(figure: Figure, path: str | Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def _number(value: object) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None

"""What listening costs on one core: real-time factor and memory per stream, and how soon a word is decided.

    python benchmarks/streaming.py --model runs/kws12            its own weights
    python benchmarks/streaming.py                               kws12 with fresh weights, which cost the same

Real-time factor: processor seconds per second of sound, events included; 0.02 means that a core carries 50 streams.
Sizes are those of the saved state. Latency is measured on synthesised words (extra: synth) and needs a trained model.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # one core; read when torch is imported

import argparse
import platform
import time
from dataclasses import replace

import numpy as np
import torch

from kws_s5.bundle import Bundle, load
from kws_s5.eval.stream_scores import latencies
from kws_s5.listening.metrics import Occurrence
from kws_s5.listening.spotter import KeywordSpotter
from kws_s5.model.sequence import build_model
from kws_s5.recipes.kws import COMMANDS, kws12

CHUNKS = (10, 20, 40, 80, 1000)  # ms
STREAMS = 64
LEAST = 2.0  # processor seconds a measurement


def fresh() -> Bundle:
    """The kws12 model before training."""
    config = kws12()
    labels = (*COMMANDS, "_unknown_", "_silence_")
    model = replace(config.model, n_outputs=len(labels), rate=config.data.rate)
    return Bundle(build_model(model).eval(), replace(config, model=model), labels)


def cost(bundle: Bundle, rate: float, *, chunk_ms: int, n_streams: int = 1) -> dict:
    """Processor time of a spotter fed with noise in chunks."""
    spotter = KeywordSpotter(bundle, rate, n_streams=n_streams)
    n = round(rate * chunk_ms / 1000)
    x = 0.1 * np.random.default_rng(0).standard_normal((n_streams, n)).astype(np.float32)
    chunk = x if n_streams > 1 else x[0]
    for _ in range(5):
        spotter.push(chunk)
    spent: list[float] = []
    while sum(spent) < LEAST or len(spent) < 20:
        start = time.process_time()
        spotter.push(chunk)
        spent.append(time.process_time() - start)
    each = float(np.median(spent))
    return {
        "rate": rate,
        "streams": n_streams,
        "least_ms_per_chunk": 1000 * min(spent),
        "chunk_ms": chunk_ms,
        "ms_per_chunk": 1000 * each,
        "p95_ms_per_chunk": 1000 * float(np.percentile(spent, 95)),
        "real_time_factor_per_stream": each / (chunk_ms / 1000) / n_streams,
    }


def kilobytes(bundle: Bundle, rate: float) -> float:
    """Of everything that one stream keeps."""
    spotter = KeywordSpotter(bundle, rate)
    spotter.push(np.zeros(round(rate), np.float32))
    return sum(value.numel() * value.element_size() for value in spotter.state().values()) / 1000


def latency(bundle: Bundle, rate: int, n_words: int = 60) -> dict | None:
    """Median and 95th percentile in ms from the end of a synthesised word to its decision; None: none was found."""
    from kws_s5.data.synthetic.stream import synthesise_stream

    words = [(word, 1.0 + 2.5 * i) for i, word in enumerate((KeywordSpotter(bundle).keywords * n_words)[:n_words])]
    stream = synthesise_stream(words, seconds=2.5 * n_words + 2.0, rate=rate, seed=1)
    events = list(KeywordSpotter(bundle).find(stream.waveform, rate))
    late = latencies(events, [Occurrence(w.word, w.start, w.end) for w in stream.words])
    if not late:
        return None
    return {
        "words": len(words),
        "hit": len(late),
        "median_ms": 1000 * float(np.median(late)),
        "p95_ms": 1000 * float(np.percentile(late, 95)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="run folder, model file or shipped name")
    parser.add_argument("--rate", type=int, nargs="+", default=[16000], help="Hz of the sound")
    parser.add_argument("--out", default="", help="also write the numbers to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bundle = load(arguments.model) if arguments.model else fresh()
    report = {
        "model": bundle.config.name,
        "parameters": sum(p.numel() for p in bundle.model.parameters()),
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "cost": [],
    }
    print(f"{report['model']}: {report['parameters']:,} parameters, one core")
    for rate in arguments.rate:
        print(f"{rate} Hz, {kilobytes(bundle, rate):.1f} kB a stream")
        for n_streams in (1, STREAMS):
            for chunk_ms in CHUNKS:
                row = cost(bundle, rate, chunk_ms=chunk_ms, n_streams=n_streams)
                report["cost"].append({**row, "kilobytes_per_stream": kilobytes(bundle, rate)})
                print(
                    f"  {n_streams:>3} streams, chunks of {chunk_ms:>4} ms: {row['ms_per_chunk']:7.2f} ms a chunk, "
                    f"real-time factor {row['real_time_factor_per_stream']:.4f} per stream "
                    f"(least {row['least_ms_per_chunk'] / chunk_ms / n_streams:.4f})"
                )
    if arguments.model:
        report["latency"] = latency(bundle, arguments.rate[0])
        print(f"decision after the end of a word: {report['latency']}")
    if arguments.out:
        from kws_s5.atomic import write_json

        write_json(arguments.out, report)


if __name__ == "__main__":
    main()

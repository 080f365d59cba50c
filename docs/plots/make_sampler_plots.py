"""Draw what each sampler does to one distribution: docs/plots/<sampler>.svg.

    python docs/plots/make_sampler_plots.py [--folder docs/plots]

Grey bars are the probabilities before, likeliest first; blue bars those after the sampler.
The SVG is written directly, so the plots need only Ingot.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.sampling import Candidates, Sampler
from ingot.sampling.guidance import guide
from ingot.sampling.samplers.cuts import (
    Epsilon,
    Eta,
    MinP,
    TailFree,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from ingot.sampling.samplers.draw import AdaptiveP, Draw, Greedy
from ingot.sampling.samplers.infill import Infill
from ingot.sampling.samplers.logit_bias import LogitBias
from ingot.sampling.samplers.mirostat import Mirostat1, Mirostat2
from ingot.sampling.samplers.penalties import Dry, Penalties, SequenceBreakers
from ingot.sampling.samplers.temperature import DynamicTemperature, Temperature

# Twenty tokens: some good ones, then a tail.
P = np.array(
    [24, 17, 13, 10, 8, 6, 4.5, 3.5, 2.8, 2.2, 1.8, 1.5, 1.2, 1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2]
)
P = P / P.sum()
INFILL_TEXTS = [
    b"a",
    b"b",
    b"c",
    b"ab",
    b"e",
    b"ac",
    b"g",
    b"ad",
    *(bytes([65 + i]) for i in range(12)),
]
WRITTEN = [0, 4, 2, 4, 9, 0, 4, 2]  # the text so far, for penalties
WIDTH, HEIGHT, LEFT, BOTTOM = 340, 130, 8, 18
BEFORE, AFTER, TEXT = "#c9ced6", "#2f6fb7", "#555"


@dataclass(frozen=True, slots=True)
class Plot:
    """A sampler and the caption of its plot."""

    name: str
    caption: str
    sampler: Sampler


PLOTS = [
    Plot("greedy", "greedy", Greedy()),
    Plot("temperature", "temperature 0.5", Temperature(0.5)),
    Plot("dynamic_temperature", "temperature 0.8, range 0.6", DynamicTemperature(0.8, 0.6, 1.0)),
    Plot("top_k", "top_k 6", TopK(6)),
    Plot("top_p", "top_p 0.8", TopP(0.8)),
    Plot("min_p", "min_p 0.2", MinP(0.2)),
    Plot("typical_p", "typical_p 0.5", TypicalP(0.5)),
    Plot("tail_free", "tfs_z 0.9", TailFree(0.9)),
    Plot("xtc", "xtc_threshold 0.1, when it triggers", Xtc(1.0, 0.1)),
    Plot("epsilon", "epsilon_cutoff 0.03", Epsilon(0.03)),
    Plot("eta", "eta_cutoff 0.1", Eta(0.1)),
    Plot("top_n_sigma", "top_n_sigma 1", TopNSigma(1.0)),
    Plot("mirostat_1", "mirostat 1, tau 1.5, at the start", Mirostat1(1.5, 0.1)),
    Plot("mirostat_2", "mirostat 2, tau 1.5, at the start", Mirostat2(1.5, 0.1)),
    Plot("adaptive_p", "adaptive_target 0.1, at the start", AdaptiveP(0.1, 0.9)),
    Plot(
        "penalties",
        "repeat_penalty 1.3; bars 1, 3, 5, 10 are repeats",
        Penalties(64, 1.3, 0, 0),
    ),
    Plot(
        "dry",
        "dry_multiplier 1.5; bar 5 would continue a repetition",
        Dry(1.5, 1.75, 2, -1, SequenceBreakers([], lambda id: bytes([97 + id]))),
    ),
    Plot("logit_bias", "bar 2 banned, bar 8 raised by 1.5", LogitBias({1: -np.inf, 7: 1.5})),
    Plot(
        "infill",
        "bars 4, 6 and 8 begin like bar 1; the end is unlikely",
        Infill([99], 99, INFILL_TEXTS.__getitem__),
    ),
]


def logits() -> NDArray[np.float32]:
    """The logits of all plots."""
    return (np.log(P) + 3.0).astype(np.float32)


def after(sampler: Sampler) -> NDArray[np.float64]:
    """The probabilities after a sampler."""
    candidates = Candidates(logits(), np.array(WRITTEN, np.int32), seed=4)
    sampler.apply(candidates)
    probabilities = np.zeros(len(P))
    probabilities[candidates.candidate_ids()] = candidates.probabilities()
    return probabilities


def guided() -> NDArray[np.float64]:
    """Guidance against a prompt that likes the first tokens as much, and the fifth far less."""
    other = logits()
    other[[4, 9]] -= 1.5
    candidates = Candidates(guide(logits(), other, 1.8), np.zeros(0, np.int32))
    return candidates.probabilities()


def drawn() -> NDArray[np.float64]:
    """The shares of a thousand draws."""
    counts = np.zeros(len(P))
    for place in range(1000):
        candidates = Candidates(logits(), np.zeros(0, np.int32), seed=4, generated=place)
        Draw().apply(candidates)
        counts[candidates.token] += 1
    return counts / counts.sum()


def svg(caption: str, after: NDArray[np.float64]) -> str:
    """Two bars for each token, on one scale."""
    step = (WIDTH - 2 * LEFT) / len(P)
    top = max(P.max(), after.max())
    room = HEIGHT - BOTTOM - 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{caption}">'
    ]
    for index, (before, now) in enumerate(zip(P, after, strict=True)):
        for value, colour, shift in ((before, BEFORE, 0.08), (now, AFTER, 0.5)):
            tall = value / top * room
            if tall < 0.05:
                continue
            x, y = LEFT + (index + shift) * step, HEIGHT - BOTTOM - tall
            lines.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{0.4 * step:.1f}" '
                f'height="{tall:.1f}" fill="{colour}"/>'
            )
    base = HEIGHT - BOTTOM
    lines.append(f'<path d="M{LEFT} {base}H{WIDTH - LEFT}" stroke="{TEXT}" stroke-width="0.7"/>')
    lines.append(
        f'<text x="{LEFT}" y="{HEIGHT - 5}" font-family="sans-serif" font-size="11" '
        f'fill="{TEXT}">{caption}</text>'
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


def pictures() -> dict[str, str]:
    """The SVG of every plot, by file name."""
    made = {f"{plot.name}.svg": svg(plot.caption, after(plot.sampler)) for plot in PLOTS}
    made["draw.svg"] = svg("1000 draws", drawn())
    made["guidance.svg"] = svg("guidance 1.8; the other prompt likes bars 5, 10 less", guided())
    return made


def main() -> None:
    """Write all plots."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder
    for name, text in pictures().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()

"""Table 3 of the LEGO-IRT paper: do abilities agree with Chatbot Arena's votes?

    python experiments/lego_irt/arena.py                # the data in ../shared/data
    python experiments/lego_irt/arena.py --data FOLDER --out DIR

AlpacaEval's models that Chatbot Arena (counts of August 2024) has too. The Arena's
scores are those of a plain Bradley-Terry model of its counts, a tie being half a win.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import numpy as np
from scipy import optimize, special, stats

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.lego_irt.abilities import abilities_of, logits
from experiments.lego_irt.tables import alpaca_eval
from experiments.tabulate import write_csv
from irtjax.plots import save_figure
from irtjax.plots.style import PALETTE, label, new_figure, title

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
#: Names in AlpacaEval by names in the Arena, of models that both have.
SAME = {
    "chatglm2-6b": "chatglm2-6b",
    "claude-1": "claude",
    "claude-2.0": "claude-2",
    "claude-2.1": "claude-2.1",
    "claude-instant-1": "claude-instant-1.2",
    "gemma-2b-it": "gemma-2b-it",
    "gemma-7b-it": "gemma-7b-it",
    "gpt-3.5-turbo-1106": "gpt-3.5-turbo-1106",
    "gpt-4-1106-preview": "gpt4_1106_preview",
    "oasst-pythia-12b": "oasst-sft-pythia-12b",
    "openhermes-2.5-mistral-7b": "OpenHermes-2.5-Mistral-7B",
    "qwen-14b-chat": "Qwen-14B-Chat",
    "vicuna-13b": "vicuna-13b",
    "vicuna-7b": "vicuna-7b",
    "wizardlm-13b": "wizardlm-13b",
}
DRAWS = 2000


def bradley_terry(path: Path) -> dict[str, float]:
    """Strengths by model, of mean 0, on the natural logarithmic scale."""
    import pandas as pd

    frame = pd.read_parquet(path)
    names = sorted({*frame.model_a, *frame.model_b})
    place = {name: k for k, name in enumerate(names)}
    a, b = (frame[x].map(place).to_numpy() for x in ("model_a", "model_b"))
    half = 0.5 * (frame.ties + frame.both_bad).to_numpy(float)
    won, lost = (frame[x].to_numpy(float) + half for x in ("wins_a", "wins_b"))

    def loss(strength):
        gap = strength[a] - strength[b]
        value = -(won * special.log_expit(gap) + lost * special.log_expit(-gap)).sum()
        slope = (won + lost) * special.expit(gap) - won
        gradient = np.bincount(a, slope, len(names)) - np.bincount(b, slope, len(names))
        # A weak ridge fixes the mean; it moves strengths by less than 1e-6.
        return value + 1e-6 * strength @ strength, gradient + 2e-6 * strength

    options = {"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-6}
    start = np.zeros(len(names))
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return dict(zip(names, (found.x - found.x.mean()).tolist(), strict=True))


def compare(folder: Path) -> tuple[list[dict], dict[str, np.ndarray], list[str]]:
    """Rank correlations of each measure with the Arena, and the values behind them."""
    strength = bradley_terry(folder / "arena" / "chatbot_arena_2024_08_counts.parquet")
    table = alpaca_eval(folder)
    fit = irtjax.fit(table, "continuous", "laplace")
    names = list(SAME)
    rows = np.array([table.subjects.tolist().index(SAME[name]) for name in names])
    arena = np.array([strength[name] for name in names])
    seen = np.ones(table.values.shape) if table.observed is None else table.observed
    values = {
        "ability (LEGO-CM)": abilities_of(fit, table.subjects[rows])[:, 0],
        "mean score": ((table.values * seen).sum(1) / seen.sum(1))[rows],
        "mean logit": np.nanmean(np.where(seen, logits(table), np.nan), axis=1)[rows],
    }
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, len(names), len(names)) for _ in range(DRAWS)]
    out = []
    for measure, value in values.items():
        spearman = lambda at, x=value: float(stats.spearmanr(x[at], arena[at])[0])
        spread = np.nanstd([spearman(at) for at in draws])
        kendall = float(stats.kendalltau(value, arena)[0])
        out.append(
            {"measure": measure, "models": len(names), "kendall": kendall}
            | {"spearman": spearman(slice(None)), "spearman_se": float(spread)}
        )
    return out, {**values, "arena": arena}, names


def draw(values: dict[str, np.ndarray], names: list[str]):
    """Each measure against the Arena's scores."""
    measures = [name for name in values if name != "arena"]
    figure, panels = new_figure(4.6 * len(measures), 4.2, len(measures))
    for axes, measure in zip(panels, measures, strict=True):
        axes.scatter(values["arena"], values[measure], s=16, color=PALETTE[0])
        for x, y, name in zip(values["arena"], values[measure], names, strict=True):
            axes.annotate(label(name, 24), (x, y), fontsize=5, xytext=(3, 2),
                          textcoords="offset points")  # fmt: skip
        axes.set_xlabel("Bradley-Terry strength in the Arena")
        title(axes, measure)
    return figure


def main(argv: list[str] | None = None) -> list[dict]:
    """Prints the table; with --out also writes it and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, help="folder for arena.csv and arena.png")
    options = parser.parse_args(argv)
    if not (options.data / "arena").is_dir():
        parser.error(f"no folder arena in {options.data}: give --data")
    jax.config.update("jax_enable_x64", True)
    rows, values, names = compare(options.data)
    for row in rows:
        print(
            f"  {row['measure']:<18} {row['models']} models"
            f"  Spearman {row['spearman']:.3f} ± {row['spearman_se']:.3f}"
            f"  Kendall {row['kendall']:.3f}"
        )
    write_csv(options.out, "arena", rows)
    if options.out is not None:
        save_figure(draw(values, names), options.out / "arena.png", dpi=120)
    return rows


if __name__ == "__main__":
    main()

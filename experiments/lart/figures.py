"""Figures 3 to 6, 12 and 13 of the LaRT paper: one fit for each benchmark.

    python experiments/lart/figures.py --out DIR              # ../shared/data/lart
    python experiments/lart/figures.py --out DIR --all-rows   # all-wrong models too

Models without any right response are left out, as in the paper. AIME25 is not among
the data. The README beside this file says what each figure shows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from irtjax.plots import save_figure
from irtjax.plots.style import PALETTE, column, label, new_figure, title

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "lart"
NAMES = {"math500": "MATH500", "amc23": "AMC23", "aime24": "AIME24"}
#: Smallest discrimination in boxes of difficulties, and the largest of Figure 6.
LEAST, MOST = 0.05, 0.5


def fits(folder: Path, all_rows: bool) -> dict[str, irtjax.Calibration]:
    """A fit of each benchmark, with its correlation and what it is without zeros."""
    found = {}
    for name, shown in NAMES.items():
        table = irtjax.read(
            folder / f"accuracy_{name}.parquet",
            length=folder / f"cot_length_{name}.parquet",
        )
        if not all_rows:
            table = table.select(subjects=table.subjects[table.subject_accuracy() > 0])
        found[shown] = irtjax.fit(table, "lart", standard_errors="none")
        rho = float(found[shown].parameters.lengths.correlation)
        print(f"  {shown:<8} {table.num_subjects} models, rho {rho:.3f}", flush=True)
    return found


def speed_and_ability(found: dict[str, irtjax.Calibration]):
    """Figure 3: speed against ability, with the correlation of each benchmark."""
    figure, panels = new_figure(4.2 * len(found), 3.8, len(found))
    for colour, axes, (name, fit) in zip(PALETTE, panels, found.items(), strict=False):
        x, y = (column(fit.abilities.table, part) for part in ("ability", "speed"))
        axes.scatter(x, y, s=12, color=colour, alpha=0.7, lw=0)
        axes.set_xlabel("ability")
        axes.set_ylabel("speed")
        rho = float(fit.parameters.lengths.correlation)
        title(axes, name, f"{len(x)} models, ρ = {rho:.2f}")
    return figure


def boxes(found: dict[str, irtjax.Calibration], quantities):
    """Figures 4 and 5: boxes of items' parameters, a panel each."""
    figure, panels = new_figure(3.6 * len(quantities), 3.6, len(quantities))
    for axes, (text, make) in zip(panels, quantities.items(), strict=True):
        values = [make(fit) for fit in found.values()]
        drawn = axes.boxplot(values, widths=0.6, patch_artist=True)
        for colour, box in zip(PALETTE, drawn["boxes"], strict=False):
            box.set(facecolor=colour, alpha=0.5)
        for line in drawn["medians"]:
            line.set(color="black")
        for mark in drawn["fliers"]:
            mark.set(marker=".", markersize=3)
        axes.set_xticks(range(1, len(found) + 1), list(found))
        title(axes, text)
    return figure


def _item(fit: irtjax.Calibration, name: str) -> np.ndarray:
    """A column of the table of items."""
    return column(fit.items.table, name)


def _difficulty(fit: irtjax.Calibration) -> np.ndarray:
    """-b / a of items that discriminate."""
    slope = _item(fit, "discrimination")
    return (-_item(fit, "intercept") / slope)[slope >= LEAST]


def _pace(fit: irtjax.Calibration) -> np.ndarray:
    """omega / phi of items whose lengths depend on speed."""
    slope = _item(fit, "speed_discrimination")
    return (_item(fit, "speed_intercept") / slope)[slope >= LEAST]


FIGURE_4 = {
    "discrimination a": lambda fit: _item(fit, "discrimination"),
    f"difficulty −b / a (a ≥ {LEAST})": _difficulty,
}
FIGURE_5 = {
    "speed discrimination φ": lambda fit: _item(fit, "speed_discrimination"),
    "ω / φ": _pace,
    "residual variance λ": lambda fit: _item(fit, "residual_variance"),
}


def discriminations(found: dict[str, irtjax.Calibration]):
    """Figure 6: speed discrimination of items that hardly discriminate by accuracy."""
    figure, (axes,) = new_figure(5.5, 4.2)
    for colour, (name, fit) in zip(PALETTE, found.items(), strict=False):
        x, y = (_item(fit, k) for k in ("discrimination", "speed_discrimination"))
        few = x < MOST
        axes.scatter(
            x[few], y[few], s=14, color=colour, lw=0, alpha=0.7,
            label=f"{name} ({few.sum()} of {len(x)} items)",
        )  # fmt: skip
    axes.set_xlabel("discrimination a")
    axes.set_ylabel("speed discrimination φ")
    axes.legend(frameon=False, fontsize=7)
    title(axes, f"Items with a < {MOST}")
    return figure


def by_model(found: dict[str, irtjax.Calibration], shot: str):
    """Figures 12 and 13: ability and speed of every model, by benchmark."""
    rows = {}
    for name, fit in found.items():
        table = fit.abilities.table
        names = table.column("subject").to_pylist()
        parts = column(table, "ability"), column(table, "speed")
        rows[name] = {
            subject.removesuffix(f"_{shot}_shot"): values
            for subject, *values in zip(names, *parts, strict=True)
            if subject.endswith(f"_{shot}_shot")
        }
    models = {model for part in rows.values() for model in part}
    mean = {
        m: np.mean([part[m][0] for part in rows.values() if m in part]) for m in models
    }
    order = sorted(models, key=lambda model: mean[model])
    figure, panels = new_figure(11, 1 + 0.16 * len(order), 2)
    for k, (axes, text) in enumerate(zip(panels, ("ability", "speed"), strict=True)):
        for colour, (name, part) in zip(PALETTE, rows.items(), strict=False):
            y = [place for place, model in enumerate(order) if model in part]
            x = [part[order[place]][k] for place in y]
            axes.scatter(x, y, s=12, color=colour, label=name, lw=0)
        axes.set_yticks(
            range(len(order)), [label(x, 36) for x in order] if not k else []
        )
        axes.tick_params(axis="y", labelsize=5)
        axes.set_ylim(-1, len(order))
        axes.grid(axis="y", lw=0.3)
        title(axes, text, f"{shot}-shot models, by their mean ability")
    panels[1].legend(frameon=False, fontsize=7)
    return figure


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Draws the figures and returns the correlation of each benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the figures"
    )
    parser.add_argument("--all-rows", action="store_true", help="all-wrong models too")
    options = parser.parse_args(argv)
    if not (options.data / "accuracy_math500.parquet").is_file():
        parser.error(f"no accuracy_math500.parquet in {options.data}: give --data")
    jax.config.update("jax_enable_x64", True)
    found = fits(options.data, options.all_rows)
    options.out.mkdir(parents=True, exist_ok=True)
    figures = {
        "figure_3_speed_and_ability": speed_and_ability(found),
        "figure_4_accuracy": boxes(found, FIGURE_4),
        "figure_5_lengths": boxes(found, FIGURE_5),
        "figure_6_discriminations": discriminations(found),
        "figure_12_zero_shot": by_model(found, "zero"),
        "figure_13_one_shot": by_model(found, "one"),
    }
    for name, figure in figures.items():
        save_figure(figure, options.out / f"{name}.png", dpi=110)
    rho = {x: float(fit.parameters.lengths.correlation) for x, fit in found.items()}
    for name, fit in found.items():
        low = _item(fit, "discrimination") < MOST
        phi = _item(fit, "speed_discrimination")
        medians = [np.median(make(fit)) for make in {**FIGURE_4, **FIGURE_5}.values()]
        shown = ", ".join(f"{x:.2f}" for x in medians)
        print(
            f"  {name:<8} medians of a, −b/a, φ, ω/φ, λ: {shown};"
            f" {low.sum()} items with a < {MOST}, of them {(phi[low] > 0.2).sum()} with"
            " φ > 0.2"
        )
    return rho


if __name__ == "__main__":
    main()

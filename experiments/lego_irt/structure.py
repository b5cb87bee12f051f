"""What structure is found: abilities by metric and benchmark, counts and ratings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import irtjax
from experiments.lego_irt.abilities import chosen_models
from irtjax import plots

#: Subjects of the radar.
SHOWN = (0, 2, 4)


def structure(
    tables: dict[str, tuple[irtjax.ResponseTable, str]], out: Path | None
) -> list[dict]:
    """Abilities by group, sensitivities and correlations of multilevel fits.

    Args:
        tables: A table with its model by name.
        out: Folder of the figures and of the tables of abilities and correlations.

    Returns:
        For every subject its general ability and its sensitivity: the standard
        deviation of its residual abilities over the groups.
    """
    rows = []
    for name, (table, model) in tables.items():
        fit = irtjax.fit(table, model)
        found = fit.structure
        assert found is not None
        names = fit.abilities.table.column("subject").to_pylist()
        general = fit.abilities.table.column("ability").to_numpy()
        error = fit.abilities.table.column("ability_se").to_numpy()
        own = found.ability - general[:, None]
        rows += [
            {"data": name, "model": str(subject), "ability": float(general[k]),
             "se": float(error[k]), "value": float(own[k].std(ddof=1)),
             "highest": str(found.groups[own[k].argmax()]),
             "lowest": str(found.groups[own[k].argmin()])}
            for k, subject in enumerate(names)
        ]  # fmt: skip
        headed(name, fit)
        describe(fit)
        if out is not None:
            folder = out / "structure"
            folder.mkdir(parents=True, exist_ok=True)
            radar = [str(table.subjects[chosen_models(table)[k]]) for k in SHOWN]
            figures = {
                "abilities": plots.plot_abilities_by_group(fit),
                "profiles": plots.plot_profiles(fit, radar),
                "correlations": plots.plot_correlations(fit),
            }
            for kind, figure in figures.items():
                plots.save_figure(figure, folder / f"{name}_{kind}.png")
            matrix(folder / f"{name}_abilities.csv", names, found.groups, found.ability)
            matrix(
                folder / f"{name}_correlations.csv",
                found.groups,
                found.groups,
                found.specific_correlation,
            )
            matrix(
                folder / f"{name}_raw_correlations.csv",
                found.groups,
                found.groups,
                found.raw_correlation,
            )
    return rows


def headed(name: str, fit: irtjax.Calibration) -> None:
    """Prints how a fit ended, and what it must be read with."""
    print(f"\n{name}: {fit.status.name.lower()}, {fit.num_steps} steps")
    for warning in fit.warnings:
        print(f"  {warning}")


def describe(fit: irtjax.Calibration) -> None:
    """Prints how the correlations without and with the general ability differ."""
    found = fit.structure
    assert found is not None
    upper = np.triu_indices(len(found.groups), 1)
    raw, own = found.raw_correlation[upper], found.specific_correlation[upper]
    print(
        f"  correlations of means {raw.mean():.3f} ({raw.min():.2f} to {raw.max():.2f})"
    )
    print(
        f"  of residual abilities {own.mean():.3f} ({own.min():.2f} to {own.max():.2f})"
    )
    order = np.argsort(own)
    for k in (*order[:3], *order[-3:]):
        first, second = (found.groups[u[k]] for u in upper)
        print(f"    {first} and {second}: {own[k]:.2f}, of means {raw[k]:.2f}")
    sd = np.sqrt(np.diag(found.specific_covariance))
    widest = np.argsort(-sd)[:3]
    print(
        "  widest residual abilities: "
        + ", ".join(f"{found.groups[k]} {sd[k]:.2f}" for k in widest)
    )


def matrix(path: Path, rows, columns, values: np.ndarray) -> None:
    """Writes a labelled matrix as CSV."""
    head = "," + ",".join(map(str, columns))
    lines = [
        f"{row}," + ",".join(f"{v:.6g}" for v in line)
        for row, line in zip(rows, values, strict=True)
    ]
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


def leaderboard(
    name: str, fit: irtjax.Calibration, out: Path | None, rows: list[dict]
) -> None:
    """Adds abilities with intervals to the rows, prints them and draws them."""
    headed(name, fit)
    for row in irtjax.rank(fit).rows():
        print(
            f"  {row['rank']:3} {row['subject']:32.32} {row['ability']:7.3f}"
            f"  [{row['lower']:.3f}, {row['upper']:.3f}]"
        )
        rows.append(
            {"data": name, "model": row["subject"], "lower": row["lower"],
             "upper": row["upper"], "value": row["ability"]}
        )  # fmt: skip
    if out is not None:
        folder = out / "abilities"
        folder.mkdir(parents=True, exist_ok=True)
        figure = plots.plot_abilities(fit)
        plots.save_figure(figure, folder / f"{name.replace(' ', '_')}.png")


def counts(table: irtjax.ResponseTable, out: Path | None) -> list[dict]:
    """Abilities from numbers of samples that passed, items with learned priors."""
    rows: list[dict] = []
    fit = irtjax.fit(table, "hierarchical", method="laplace")
    leaderboard("counts", fit, out, rows)
    return rows


def ratings(tables: dict[str, irtjax.ResponseTable], out: Path | None) -> list[dict]:
    """Abilities by dimension from ordered ratings, raters as a facet.

    The graded model, a column for each dimension, rater and article: raters shift
    discriminations, intercepts and the distances of categories.
    """
    rows: list[dict] = []
    for name, table in tables.items():
        fit = irtjax.fit(table, "multibenchmark", item_model="graded", facets=["rater"])
        leaderboard(name, fit, out, rows)
        describe(fit)
        assert fit.structure is not None
        for effect, values in zip(*fit.structure.effects, strict=True):
            if effect.startswith("rater: "):
                print(f"  {effect}: easier by {values[1]:.2f}")
        if out is not None:
            figure = plots.plot_abilities_by_group(fit)
            path = out / "abilities" / f"{name.replace(' ', '_')}_dimensions.png"
            plots.save_figure(figure, path)
    return rows

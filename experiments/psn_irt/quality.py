"""Tables 5 and 8 of the PSN-IRT paper, from published parameters and from a fit.

    python experiments/psn_irt/quality.py              # Table 8 and 5 from parameters
    python experiments/psn_irt/quality.py --figures DIR   # figure 4 too, seconds
    python experiments/psn_irt/quality.py --full       # and from fits of the responses

Needs the folder `shared/data/psn_irt` beside the checkout. quality.md beside this file
defines what is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
SHARED = HERE.parents[2] / "shared" / "data" / "psn_irt"

#: Table 5 of the paper: ranks of difficulty, discrimination, guessing, feasibility,
#: LEH and Fisher information, and their sum.
TABLE_5 = {
    "Chinese SimpleQA": (2, 3, 1, 9, 3, 5, 23),
    "TheoremQA": (1, 10, 3, 11, 2, 2, 29),
    "MBPP": (5, 6, 4, 8, 4, 4, 31),
    "MATH": (4, 1, 2, 7, 7, 10, 31),
    "GPQA Diamond": (3, 11, 6, 10, 1, 1, 32),
    "BBH": (6, 5, 8, 6, 6, 7, 38),
    "MMLU": (9, 9, 9, 5, 5, 3, 40),
    "GSM8K": (8, 2, 5, 3, 11, 11, 40),
    "HumanEval": (7, 4, 7, 4, 9, 9, 40),
    "HellaSwag": (10, 7, 10, 2, 8, 6, 43),
    "ARC-C": (11, 8, 11, 1, 10, 8, 49),
}
#: Columns of the published means, in the order of `irtjax.auditing.PROPERTIES`.
PUBLISHED = (
    "Difficulty",
    "Discrimination",
    "Guessing Rate",
    "Feasibility",
    "LEH",
    "Fisher Information",
)


def published(folder: Path = SHARED) -> dict[str, Any]:
    """Table 8 and Table 5 from the published item parameters."""
    import pandas as pd

    from irtjax.auditing import PROPERTIES, benchmark_ranks, item_properties
    from irtjax.models.families.logistic import Binary, LogisticItems

    items = pd.read_parquet(folder / "items.parquet")
    strongest = float(pd.read_csv(folder / "models.csv")["ability_psn"].max())
    a, b, c, u = (
        items[x].to_numpy(np.float64) for x in ("a_psn", "b_psn", "c_psn", "d_psn")
    )
    curves = LogisticItems(a, -a * b, c, u)
    properties = item_properties(Binary(asymptotes=2), curves, strongest)
    # A flat item has a difficulty in the paper's parameters, which state it.
    properties["difficulty"] = b
    names, codes = np.unique(items["benchmark"].to_numpy(str), return_inverse=True)
    found = benchmark_ranks(properties, codes, len(names))
    means = pd.read_csv(folder / "published_benchmark_means.csv").set_index("Dataset")
    gaps = {
        name: float(np.max(np.abs(found[name] - means.loc[names, column].to_numpy())))
        for name, column in zip(PROPERTIES, PUBLISHED, strict=True)
    }
    return {"names": names.tolist(), "gaps": gaps, **_compare(names, found)}


def draw_published(folder: Path, data: Path = SHARED) -> dict[str, dict[str, float]]:
    """Figure 4 of the paper; mean discrimination of easy, middle and hard items."""
    import pandas as pd

    from experiments.psn_irt.figure_4 import extremes, panels

    items = pd.read_parquet(data / "items.parquet")
    pair = [items[name].to_numpy(np.float64) for name in ("b_psn", "a_psn")]
    benchmark = items["benchmark"].to_numpy(str)
    folder.mkdir(parents=True, exist_ok=True)
    figure = panels(*pair, benchmark, "Published item parameters")
    figure.savefig(folder / "figure_4_published.png", dpi=120)
    return {
        name: extremes(*(x[benchmark == name] for x in pair))
        for name in sorted(set(benchmark))
    }


def _compare(names: np.ndarray, found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Ranks beside the paper's."""
    from scipy.stats import spearmanr

    from irtjax.auditing import PROPERTIES

    paper = np.array([TABLE_5[name] for name in names], float)
    own = np.stack([found[f"rank_{x}"] for x in (*PROPERTIES, "total")], 1)
    agreement = {
        x: float(spearmanr(own[:, k], paper[:, k]).statistic)
        for k, x in enumerate((*PROPERTIES, "total"))
    }
    return {
        "means": {x: found[x].tolist() for x in PROPERTIES},
        "ranks": own.tolist(),
        "differences": int(np.sum(own != paper)),
        "spearman": agreement,
    }


def responses(folder: Path = SHARED, subset: int | None = None):
    """The corrected responses as a table, or every so many of the items."""
    import pandas as pd

    import irtjax

    frame = pd.read_parquet(folder / "responses_corrected_items_by_models.parquet")
    items = pd.read_parquet(folder / "items.parquet").set_index("item")
    frame = frame.iloc[:: subset or 1]
    values = frame.to_numpy(np.float64, na_value=np.nan).T
    return irtjax.ResponseTable.from_arrays(
        values,
        subjects=frame.columns,
        items=frame.index,
        benchmark=items.loc[frame.index, "benchmark"].tolist(),
    )


def fitted(
    table, model: str, figures: Path | None = None, **options: Any
) -> dict[str, Any]:
    """Fits a model, audits, compares the ranks of benchmarks, and draws the items."""
    import irtjax

    began = time.perf_counter()
    fit = irtjax.fit(table, model, standard_errors="none", positive=True, **options)
    seconds = time.perf_counter() - began
    report = irtjax.audit(fit, table)
    if figures is not None:
        draw(report, figures / model)
    rows = report.benchmarks.sort_by("benchmark")
    names = np.array(rows.column("benchmark").to_pylist())
    found = {
        name: rows.column(name).to_numpy()
        for name in rows.column_names
        if name != "benchmark"
    }
    return {
        "model": model,
        "status": fit.status.name,
        "seconds_fit": seconds,
        "seconds_audit": time.perf_counter() - began - seconds,
        "strongest": str(irtjax.rank(fit).table.column("subject")[0]),
        "names": names.tolist(),
        "counts": report.counts(),
        "discriminating": sum(
            bool(x) for x in report.items.column("discriminates").to_pylist()
        ),
        "warnings": report.warnings,
        **_compare(names, found),
    }


def draw(report: Any, folder: Path) -> None:
    """Properties of the items by benchmark, and difficulty against discrimination."""
    from experiments.psn_irt.figure_4 import panels
    from irtjax.plots import (
        plot_difficulty_discrimination,
        plot_item_properties,
        save_figure,
    )

    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in (
        ("item_properties", plot_item_properties),
        ("difficulty_discrimination", plot_difficulty_discrimination),
    ):
        save_figure(plot(report), folder / f"{name}.png")
    names = ("difficulty", "discrimination")
    pair = [report.items.column(name).to_numpy() for name in names]
    benchmark = np.array(report.items.column("benchmark").to_pylist(), str)
    figure = panels(*pair, benchmark, "Item parameters of the audited fit")
    save_figure(figure, folder / "figure_4.png")


def by_pattern(table, model: str) -> dict[str, Any]:
    """The same ranks from a fit that does equal items once: 2,532 of 41,871 remain.

    Items and abilities only: no audit, so no defects.
    """
    from experiments.psn_irt.subsets import fit
    from irtjax.auditing import benchmark_difficulty, benchmark_ranks, item_properties

    began = time.perf_counter()
    seen = np.ones(table.values.shape, bool)
    if table.observed is not None:
        seen = np.asarray(table.observed)
    values = np.where(seen, table.values, 0).astype(np.int8)
    found = fit(model, values, seen)
    properties = item_properties(
        found.model.family, found.items, float(found.ability.max())
    )
    names, codes = np.unique(table.benchmarks, return_inverse=True)
    count = np.bincount(codes, seen.sum(0), len(names))
    share = np.bincount(codes, values.sum(0), len(names)) / count
    ability = float(found.ability.mean()), float(found.ability.std())
    slope = float(np.median(found.items.discrimination))
    difficulty = benchmark_difficulty(share, count, slope, ability)
    ranks = benchmark_ranks(properties, codes, len(names), difficulty)
    return {
        "model": f"{model}, equal items once",
        "status": found.status,
        "seconds_fit": time.perf_counter() - began,
        "names": names.tolist(),
        **_compare(names, ranks),
    }


def show(title: str, result: dict[str, Any]) -> None:
    """Prints a table of means and ranks."""
    from irtjax.auditing import PROPERTIES

    print(f"\n{title}")
    print(
        f"{'benchmark':<18}" + "".join(f"{x[:10]:>17}" for x in PROPERTIES) + "  total"
    )
    order = np.argsort([row[-1] for row in result["ranks"]], kind="stable")
    for k in order:
        cells = [
            f"{result['means'][x][k]:>11.4f} ({result['ranks'][k][n]:>3g})"
            for n, x in enumerate(PROPERTIES)
        ]
        total = result["ranks"][k][-1]
        paper = TABLE_5[result["names"][k]][-1]
        print(f"{result['names'][k]:<18}{''.join(cells)}  {total:g} (paper {paper})")
    shown = ", ".join(
        f"{k} {v:.3f}" if np.isfinite(v) else f"{k} none (all alike)"
        for k, v in result["spearman"].items()
    )
    print(f"Spearman with the paper's ranks: {shown}")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Prints the tables and returns what is in them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="fit the responses too")
    parser.add_argument(
        "--model", action="append", help="models to fit [2pl, 4pl]: 2pl is audited"
    )
    parser.add_argument("--every", type=int, help="fit one item in so many")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument(
        "--audit", action="store_true", help="of other models than 2pl too; 4pl: 10 min"
    )
    parser.add_argument(
        "--figures", type=Path, help="folder for figure 4 and figures of the audit"
    )
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    if not SHARED.is_dir():
        raise SystemExit(f"needs the published data in {SHARED}, which are not there")
    results: dict[str, Any] = {"published": published()}
    first = results["published"]
    show("Table 8, and Table 5 in brackets, from the published parameters", first)
    for name, gap in first["gaps"].items():
        print(f"  {name:<16} largest difference from the published means: {gap:.2g}")
    print(f"  {first['differences']} of 77 ranks and sums differ from Table 5")
    if options.figures:
        parts = results["figure 4"] = draw_published(options.figures)
        print("\nFigure 4: mean discrimination of the easiest, middle, hardest tenth")
        for name, means in parts.items():
            print(f"  {name:<18}" + "".join(f"{x:7.2f}" for x in means.values()))
    if options.full or options.every:
        table = responses(subset=options.every)
        for model in options.model or ("2pl", "4pl"):
            if model != "2pl" and not options.audit:
                found = results[model] = by_pattern(table, model)
                show(f"From {found['model']}, fitted to the corrected responses", found)
                print(f"  fit {found['seconds_fit']:.0f} s ({found['status']})")
                continue
            found = results[model] = fitted(table, model, options.figures)
            show(f"From {model} fitted to the corrected responses", found)
            print(
                f"  fit {found['seconds_fit']:.0f} s ({found['status']}), audit"
                f" {found['seconds_audit']:.0f} s; strongest: {found['strongest']}"
            )
            print(f"  flags: {found['counts']}")
            print(f"  items that discriminate: {found['discriminating']:,}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return results


if __name__ == "__main__":
    main()

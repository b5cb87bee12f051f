"""Tables of the LEGO-IRT comparisons: the shared data, or simulated ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import irtjax

#: Bounds of the metrics of REALSumm that are not between 0 and 1.
BOUNDS = {
    "js-2": (-float(np.log(2)), 0.0),
    "bert_recall_score": (-1.0, 1.0),
    "bert_precision_score": (-1.0, 1.0),
    "bert_f_score": (-1.0, 1.0),
}
LABELS = ("system", "family", "item")
#: The same system as `ext_bart_out`, with the same values.
DOUBLE = "ext_bart_out"


def masked(
    table: irtjax.ResponseTable, seen: np.ndarray, *, benchmarks: bool = True
) -> irtjax.ResponseTable:
    """The table with only the cells that are seen; optionally without benchmarks."""
    values = np.where(seen, table.values, 0).astype(table.values.dtype)
    return irtjax.ResponseTable.from_arrays(
        values,
        subjects=table.subjects,
        items=table.items,
        observed=seen,
        trials=table.trials,
        benchmark=table.benchmarks if benchmarks else None,
    )


def observed(table: irtjax.ResponseTable) -> np.ndarray:
    """The mask of a table, `[subjects, items]`."""
    if table.observed is None:
        return np.ones(table.values.shape, bool)
    return table.observed


def thinned(table: irtjax.ResponseTable, most: int, seed: int) -> irtjax.ResponseTable:
    """The table with at most so many items of each benchmark, chosen at random."""
    rng = np.random.default_rng(seed)
    key = rng.random(table.num_items)
    kept = np.zeros(table.num_items, bool)
    for name in np.unique(table.benchmarks):
        mine = np.flatnonzero(table.benchmarks == name)
        kept[mine[np.argsort(key[mine])[:most]]] = True
    return table.select(items=kept)


def alpaca_eval(folder: Path) -> irtjax.ResponseTable:
    """Chances that an answer beats the baseline's, 58 models by 805 instructions."""
    import pandas as pd

    frame = pd.read_parquet(folder / "alpacaeval" / "preference_v2.parquet")
    return irtjax.ResponseTable.from_arrays(
        frame.to_numpy(float), subjects=frame.index, items=frame.columns
    )


def alpaca_sources(folder: Path) -> irtjax.ResponseTable:
    """The scores of AlpacaEval's two largest sources, each a benchmark."""
    import pandas as pd

    table = alpaca_eval(folder)
    items = pd.read_csv(folder / "alpacaeval" / "items.csv").set_index("item")
    source = items.dataset[table.items.tolist()].to_numpy(str)
    table = table.replace(item_facets={"benchmark": source})
    return table.select(items=np.isin(source, ["selfinstruct", "oasst"]))


def real_summ(folder: Path, metrics: Sequence[str] = ()) -> irtjax.ResponseTable:
    """Metrics of summaries, in [0, 1]: systems by article and metric (benchmark)."""
    import pandas as pd

    frame = pd.read_parquet(folder / "realsumm" / "scores_long.parquet")
    frame = frame[frame.system != DOUBLE]
    chosen = list(metrics) or [c for c in frame.columns if c not in LABELS]
    columns, names, systems = [], [], None
    for metric in chosen:
        low, high = BOUNDS.get(metric, (0.0, 1.0))
        wide = frame.pivot(index="system", columns="item", values=metric)
        systems = wide.index
        scores = (wide.to_numpy(float) - low) / (high - low)
        # Single precision: what is this near to an end is at it.
        at_end = np.abs(scores - np.rint(scores)) < 1e-6
        columns.append(np.where(at_end, np.rint(scores), scores))
        names += [f"{metric}/{item}" for item in wide.columns]
    return irtjax.ResponseTable.from_arrays(
        np.concatenate(columns, axis=1),
        subjects=systems,
        items=names,
        benchmark=[name.partition("/")[0] for name in names],
    )


def off_ends(table: irtjax.ResponseTable) -> irtjax.ResponseTable:
    """Scores of 0 and 1 half-way to the score nearest to an end, metric by metric.

    Of all metrics together, one that comes near an end would send another's zeros to
    logits far from all its scores.
    """
    values = table.values.astype(float)
    for metric in np.unique(table.benchmarks):
        mine = table.benchmarks == metric
        distance = np.minimum(values[:, mine], 1 - values[:, mine])
        half = distance[distance > 0].min() / 2
        values[:, mine] = np.clip(values[:, mine], half, 1 - half)
    return dataclasses.replace(table, values=values)


def psn_irt(folder: Path) -> irtjax.ResponseTable:
    """Right and wrong answers of 12 models to the items of 11 benchmarks, corrected."""
    import pandas as pd

    folder = folder / "psn_irt"
    frame = pd.read_parquet(folder / "responses_corrected_items_by_models.parquet").T
    items = pd.read_parquet(folder / "items.parquet").set_index("item")
    values = frame.to_numpy(float, na_value=np.nan)
    return irtjax.ResponseTable.from_arrays(
        np.nan_to_num(values).astype(np.int8),
        subjects=frame.index,
        items=frame.columns,
        observed=np.isfinite(values),
        benchmark=items.benchmark[frame.columns],
    )


def live_code_bench(folder: Path) -> irtjax.ResponseTable:
    """How many of ten samples passed: 16 models by 349 problems."""
    import pandas as pd

    path = folder / "livecodebench" / "generation_2024_02_long.parquet"
    wide = pd.read_parquet(path).pivot(index="model", columns="item", values="pass1")
    share = wide.to_numpy(float)
    seen = np.isfinite(share)
    return irtjax.ResponseTable.from_arrays(
        np.rint(np.where(seen, share, 0) / 10).astype(int),
        subjects=wide.index,
        items=wide.columns,
        trials=np.where(seen, 10, 0),
    )


def summ_eval(folder: Path, rater_type: str) -> irtjax.ResponseTable:
    """Ratings 0 to 4 of 12 systems: a column for every dimension, rater and article."""
    import pandas as pd

    frame = pd.read_parquet(folder / "summeval" / "ratings_long.parquet")
    frame = frame[frame.rater_type == rater_type]
    keys = ["dimension", "rater", "item"]
    wide = frame.pivot(index="system", columns=keys, values="score")
    return _rated(wide.to_numpy(int) - 1, wide.index, list(wide.columns))


def _rated(values, subjects, columns) -> irtjax.ResponseTable:
    """Ratings by columns of (dimension, rater, article), with raters as a facet."""
    table = irtjax.ResponseTable.from_arrays(
        values,
        subjects=subjects,
        items=["/".join(map(str, column)) for column in columns],
        benchmark=[str(dimension) for dimension, _, _ in columns],
    )
    raters = np.asarray([str(rater) for _, rater, _ in columns])
    facets = {**table.item_facets, "rater": raters}
    return dataclasses.replace(table, item_facets=facets)


def simulated_groups(
    subjects: int, items: int, groups: int, *, scores: bool, seed: int = 0
) -> irtjax.ResponseTable:
    """Data of the multilevel model: scores of every item by metric, or right answers.

    Args:
        subjects: Number of subjects.
        items: Number of items of each group.
        groups: Number of metrics or benchmarks.
        scores: Whether responses are scores between 0 and 1.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(subjects, groups)) * 0.7
    theta = rng.normal(size=(subjects, 1)) + own
    group = np.repeat(np.arange(groups), items)
    easiness = np.tile(rng.normal(size=items), groups)
    slope = np.exp(0.3 * rng.normal(size=groups * items))
    eta = slope * theta[:, group] + easiness
    if scores:
        values = 1 / (1 + np.exp(-eta - 0.7 * rng.normal(size=eta.shape)))
    else:
        values = (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(np.int8)
    names = [f"part {k}" for k in range(groups)]
    return irtjax.ResponseTable.from_arrays(
        values,
        subjects=[f"model {i}" for i in range(subjects)],
        items=[f"{name}/{j}" for name in names for j in range(items)],
        benchmark=[names[g] for g in group],
    )


def simulated_counts(
    subjects: int, items: int, trials: int, seed: int = 0
) -> irtjax.ResponseTable:
    """How many of the samples passed, items in turn of two raters (benchmarks)."""
    rng = np.random.default_rng(seed)
    eta = 1.5 * rng.normal(size=(subjects, 1)) + rng.normal(size=items)
    counts = rng.binomial(trials, 1 / (1 + np.exp(-eta)))
    return irtjax.ResponseTable.from_arrays(
        counts,
        trials=np.full(counts.shape, trials),
        benchmark=[f"rater {k % 2}" for k in range(items)],
    )


def simulated_ratings(
    subjects: int, articles: int, seed: int = 0
) -> irtjax.ResponseTable:
    """Ratings 0 to 2 in two dimensions by two raters, of whom one is severe."""
    rng = np.random.default_rng(seed)
    keys = [(d, r, k) for d in range(2) for r in range(2) for k in range(articles)]
    dimension, rater, _ = np.array(keys).T
    own = 0.5 * rng.normal(size=(subjects, 2))
    theta = rng.normal(size=(subjects, 1)) + own
    eta = 1.5 * theta[:, dimension] + rng.normal(size=len(keys)) + 1.5 * rater
    values = np.digitize(eta + rng.logistic(size=eta.shape), [-0.5, 1.5])
    columns = [(f"dimension {d}", f"rater {r}", k) for d, r, k in keys]
    return _rated(values, [f"system {k}" for k in range(subjects)], columns)

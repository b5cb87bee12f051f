"""What each package says of ten models: significant pairs, intervals, items to read.

A package is a function from data to `Said`. `NEEDS` has the modules that each imports;
packages that are not installed are named and skipped by `run.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.peers.simulate import TASKS, Data, models, write_logs

ALPHA = 0.05


class Said(NamedTuple):
    """What a package says; None where it says nothing of the kind.

    Attributes:
        scores: `[models]` estimates, in its own unit.
        pairs: `[models, models]`, whether a pair is called different.
        lower: `[models]` ends of the intervals of mean scores.
        upper: See `lower`.
        items: Items that it names as suspicious, most suspicious first.
        text: What it prints.
    """

    scores: np.ndarray
    pairs: np.ndarray | None
    lower: np.ndarray | None
    upper: np.ndarray | None
    items: list[str] | None
    text: str


def of_pairs(different: dict[tuple[int, int], bool]) -> np.ndarray:
    """A symmetric matrix."""
    found = np.zeros((len(models()), len(models())), bool)
    for (i, k), value in different.items():
        found[i, k] = found[k, i] = value
    return found


def by_irtjax(data: Data) -> Said:
    """`irtjax.fit`, `rank` and `items_to_read` with their defaults, from the logs."""
    import irtjax
    from irtjax.ranking.discoveries import benjamini_hochberg

    with tempfile.TemporaryDirectory() as folder:
        write_logs(data, Path(folder, "logs"))
        table = irtjax.read(Path(folder, "logs"))
    fit = irtjax.fit(table)
    rows = {row["subject"]: row for row in fit.abilities.table.to_pylist()}
    column = lambda name: np.array([rows[x][name] for x in models()])
    pairs = list(itertools.combinations(range(len(models())), 2))
    p = [irtjax.compare(fit, models()[i], models()[k]).p_value for i, k in pairs]
    different = benjamini_hochberg(np.array(p)) <= ALPHA
    assert different.sum() == irtjax.rank(fit).num_different
    suspects = irtjax.auditing.items_to_read(fit, table)
    return Said(
        column("expected_score"),
        of_pairs(dict(zip(pairs, different.tolist(), strict=True))),
        column("expected_score_lower"),
        column("expected_score_upper"),
        suspects.table.column("item").to_pylist(),
        str(irtjax.rank(fit)),
    )


def by_lm_eval(data: Data) -> Said:
    """The harness's own table: means and errors by task, and of the group.

    The errors are those of its documentation: the standard deviation over the square
    root of the number of items, pooled over tasks by size for a group. It tests no
    pairs. A reader of its table compares two printed errors: z of the difference with
    independent errors, at 5 %.
    """
    sizes = np.array([size for size, _ in TASKS.values()])
    mean = np.array(
        [[data.right[i, data.task == t].mean() for t in TASKS] for i in range(10)]
    )
    sample = mean * (1 - mean) * sizes / (sizes - 1)
    score = mean @ sizes / sizes.sum()
    pooled = ((sizes - 1) * sample).sum(axis=1) / (sizes.sum() - len(sizes))
    error = np.sqrt(pooled / sizes.sum())
    lines = []
    for i in range(10):
        lines += ["|Tasks|Version|Filter|n-shot|Metric| |Value| |Stderr|"]
        for t, name in enumerate(TASKS):
            se = np.sqrt(sample[i, t] / sizes[t])
            lines += [f"|{name}|1|none|0|acc|↑|{mean[i, t]:.4f}|±|{se:.4f}|"]
    return Said(
        score,
        _apart(score, error),
        score - 1.96 * error,
        score + 1.96 * error,
        None,
        "\n".join(lines),
    )


def _apart(score: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Pairs whose difference is above 1.96 independent errors."""
    both = np.sqrt(error[:, None] ** 2 + error[None, :] ** 2)
    return np.abs(score[:, None] - score[None, :]) > 1.96 * both


def by_paired_tests(data: Data) -> Said:
    """Paired t tests of accuracies with Benjamini and Hochberg's correction: a formula.

    What is left of irtjax without a model; intervals are Wilson's.
    """
    from irtjax.data.stored_cells import DenseCells
    from irtjax.ranking.accuracy import accuracies, paired_difference
    from irtjax.ranking.discoveries import benjamini_hochberg

    pairs = list(itertools.combinations(range(len(models())), 2))
    found = [paired_difference(data.right[list(pair)]) for pair in pairs]
    p = np.array([1.0 if x is None else x.p_value for x in found])
    different = benjamini_hochberg(p) <= ALPHA
    own = accuracies(DenseCells(data.right))
    return Said(
        own.accuracy,
        of_pairs(dict(zip(pairs, different.tolist(), strict=True))),
        own.lower,
        own.upper,
        None,
        "",
    )


def _long(data: Data, item: str) -> Any:
    """A data frame with a row for each response."""
    import pandas

    names = np.array(models())
    rows, columns = np.indices(data.right.shape)
    return pandas.DataFrame(
        {
            "model": names[rows.ravel()],
            item: columns.ravel().astype(str),
            "score": data.right.ravel().astype(float),
        }
    )


def by_evalstats(data: Data) -> Said:
    """`compare(factors="model")` with its defaults: bootstrap t, Romano and Wolf."""
    import evalstats

    found = evalstats.compare(evalstats.load_from(_long(data, "item")), factors="model")
    place = {name: k for k, name in enumerate(models())}
    different = {
        (place[first], place[second]): float(result.p_value) < ALPHA
        for (first, second), result in found.pairwise.results.items()
    }
    with contextlib.redirect_stdout(io.StringIO()) as text:
        found.summary()
    stats = {name: found.entity_stats[name] for name in models()}
    take = lambda *names: np.array(
        [next(getattr(s, n) for n in names if hasattr(s, n)) for s in stats.values()]
    )
    return Said(
        take("mean"),
        of_pairs(different),
        take("ci_low"),
        take("ci_high"),
        None,
        text.getvalue(),
    )


def by_evalci(data: Data) -> Said:
    """`multi_compare` (paired permutations, Holm) and `ci` (Wilson): its defaults."""
    import evalci

    found = evalci.multi_compare(_long(data, "item_id"), random_state=0)
    place = {name: k for k, name in enumerate(models())}
    different = {
        (place[row.model_a], place[row.model_b]): bool(row.significant)
        for row in found.itertuples()
    }
    own = [evalci.ci(row) for row in data.right]
    return Said(
        np.array([x.estimate for x in own]),
        of_pairs(different),
        np.array([x.lower for x in own]),
        np.array([x.upper for x in own]),
        None,
        evalci.report(found),
    )


def by_girth(data: Data) -> Said:
    """`twopl_mml`, then `ability_eap`: no errors, no tests, no text.

    It cannot fit items that all or none solve, which are left out. Items of negative
    or smallest discrimination would be suspicious; it bounds slopes at 0.25 from below.
    """
    girth = importlib.import_module("girth")
    count = data.right.sum(axis=0)
    kept = (count > 0) & (count < len(models()))
    right = data.right[:, kept].T.astype(int)
    found = girth.twopl_mml(right)
    slope, difficulty = found["Discrimination"], found["Difficulty"]
    ability = girth.ability_eap(right, difficulty, slope)
    order = np.argsort(slope, kind="stable")
    return Said(ability, None, None, None, names(np.flatnonzero(kept)[order]), "")


def by_theta(data: Data) -> Said:
    """`theta.fit(…, "2PL")`, then abilities with errors: z with independent errors."""
    theta = importlib.import_module("theta")
    model = theta.fit(data.right, "2PL")
    ability, error = (
        np.asarray(x, float) for x in model.score(data.right, method="EAP")
    )
    order = np.argsort(np.asarray(model.a, float), kind="stable")
    return Said(ability, _apart(ability, error), None, None, names(order), "")


def by_pyirt(data: Data) -> Said:
    """py-irt's variational 2PL: abilities without errors."""
    from experiments.scaling.pyirt import fit_pyirt

    with contextlib.redirect_stdout(io.StringIO()):
        found = fit_pyirt(data.right)
    order = np.argsort(found.discrimination, kind="stable")
    return Said(found.ability, None, None, None, names(order), "")


def names(places: np.ndarray) -> list[str]:
    """Names of items as irtjax reads them from the logs."""
    starts = np.cumsum([0, *(size for size, _ in TASKS.values())])
    found = []
    for j in places.tolist():
        task = int(np.searchsorted(starts, j, side="right")) - 1
        found.append(f"{list(TASKS)[task]}/{j - starts[task]}")
    return found


#: Function and modules of each package.
PACKAGES = {
    "irtjax": (by_irtjax, ("irtjax",)),
    "lm-eval table": (by_lm_eval, ()),
    "paired t tests": (by_paired_tests, ()),
    "evalstats": (by_evalstats, ("evalstats",)),
    "evalci": (by_evalci, ("evalci",)),
    "girth": (by_girth, ("girth",)),
    "theta-irt": (by_theta, ("theta",)),
    "py-irt": (by_pyirt, ("py_irt",)),
}

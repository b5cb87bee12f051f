"""Abilities: pairs told apart, newcomers on few items, and how they settle."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import irtjax
from experiments.lego_irt.accuracy import HELD_OUT, splits
from experiments.lego_irt.methods import (
    above,
    fixed_item_tests,
    longest_chain,
    share_reversed,
    structured,
    t_tests,
    told_apart,
    told_apart_by_model,
)
from experiments.lego_irt.tables import masked, observed
from irtjax.ranking import pairwise

#: Logits of scores are kept within this, so that single ends do not make a mean.
LOGIT_END = 15.0
#: Newcomers: at these places of the ranking by mean score.
PLACES = (0.05, 0.25, 0.5, 0.75, 0.95)
Z = 1.959963984540054
#: Of models, two of which at most items are calibrated without.
FOLDS = 5


def logits(table: irtjax.ResponseTable) -> np.ndarray:
    """Logits of scores, `[subjects, items]`, within `LOGIT_END`."""
    values = np.clip(table.values.astype(float), 1e-300, 1 - 1e-16)
    return np.clip(special.logit(values), -LOGIT_END, LOGIT_END)


def distinguish(
    tables: dict[str, irtjax.ResponseTable],
    shares: Sequence[float],
    trials: int,
    seed: int,
) -> list[dict]:
    """Share of pairs of models told apart at 0.05, against the share of cells seen.

    LEGO-CM's z-tests have the covariance between abilities; "errors apart" leaves it
    out, as the paper's formula does; "items fixed" scores both models with items that
    other models calibrated, so that there is none (`fixed_item_tests`). The t-tests are
    of mean logits; the paired one takes only the items that both models have and knows
    that they are the same. "reversed" is the share of the pairs told apart (adjusted)
    whose order is not that of the mean logits of all cells: wrong calls, or nearly so.
    "adjusted by model" is as the paper's Algorithm 1 counts. "distinguishability" is
    the share of models in a longest chain with every pair told apart (adjusted).
    """
    rows = []
    for name, table in tables.items():
        values, there = logits(table), observed(table)
        truth = np.where(there, values, 0).sum(1) / there.sum(1)
        for trial, share, seen, _ in splits(table, shares, trials, seed, HELD_OUT):
            tests = {
                "t-test": t_tests(values, seen, paired=False),
                "paired t-test": t_tests(values, seen, paired=True),
            }
            fit = structured(masked(table, seen))
            if fit.usable(f"{name} {trial} {share:.1f}"):
                theta, covariance = fit.abilities()
                error, gap = np.sqrt(np.diag(covariance)), theta[:, None] - theta
                whole = pairwise(theta, error, covariance=covariance)
                apart = pairwise(theta, error)
                tests["LEGO-CM"] = gap, whole.p_value
                tests["LEGO-CM, errors apart"] = gap, apart.p_value
                fixed = fixed_item_tests(fit, FOLDS, seed)
                if fixed is not None:
                    tests["LEGO-CM, items fixed"] = fixed
            for model, (difference, p_value) in tests.items():
                apart = told_apart(p_value, adjusted=True)
                chain = longest_chain(above(p_value, difference))
                found = {
                    "adjusted": apart.mean(),
                    "adjusted by model": told_apart_by_model(p_value),
                    "unadjusted": told_apart(p_value, adjusted=False).mean(),
                    "reversed": share_reversed(apart, difference, truth),
                    "distinguishability": len(chain) / len(p_value),
                }
                rows += [
                    {"trial": trial, "data": name, "share": share, "measure": measure,
                     "model": model, "value": float(value)}
                    for measure, value in found.items()
                ]  # fmt: skip
            print(f"  {name} {trial} {share:.1f}", file=sys.stderr, flush=True)
    return rows


def chosen_models(table: irtjax.ResponseTable) -> np.ndarray:
    """Rows of models from near the top to near the bottom by mean score."""
    order = np.argsort(-table.subject_accuracy(), kind="stable")
    places = np.round(np.asarray(PLACES) * (len(order) - 1)).astype(int)
    return order[places]


def subsets(table: irtjax.ResponseTable, size: int, count: int, seed: int):
    """Random sets of items, `[count, items]` masks."""
    rng = np.random.default_rng(seed)
    keys = rng.random((count, table.num_items))
    return keys.argsort(axis=1).argsort(axis=1) < size


def scored(fit: irtjax.Calibration, table, rows, masks) -> np.ndarray:
    """EAP abilities of some models on every set of items, `[models, sets]`.

    Every model with every set is a subject of its own, so that all are scored at once.
    """
    seen = (observed(table)[rows][:, None] & masks).reshape(-1, table.num_items)
    values = np.repeat(table.values[rows], len(masks), axis=0)
    answers = irtjax.ResponseTable.from_arrays(
        np.where(seen, values, 0), items=table.items, observed=seen
    )
    found = irtjax.score(fit, answers).table.column("ability").to_numpy()
    return found.reshape(len(rows), len(masks))


def calibrated(table: irtjax.ResponseTable, without) -> irtjax.Calibration:
    """Items from all models but some."""
    rest = np.setdiff1d(np.arange(table.num_subjects), without)
    part = table.select(subjects=rest)
    return irtjax.fit(part, "continuous", method="laplace")


def abilities_of(fit: irtjax.Calibration, subjects: np.ndarray) -> np.ndarray:
    """Abilities of some subjects by name, `[subjects, 1]`."""
    rows = fit.abilities.table.to_pydict()
    by_name = dict(zip(rows["subject"], rows["ability"], strict=True))
    return np.asarray([[by_name[name]] for name in subjects.tolist()])


def ranks_among(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Ranks of new models among all, 1 the best, `[new models, sets]`.

    Args:
        new: `[new models, sets]` their estimates.
        old: `[models, sets]` those of the others, or `[models, 1]` for all sets.

    >>> ranks_among(np.array([[0.5, 3.0], [2.0, 1.0]]), np.array([[1.0], [0.0]]))
    array([[3, 1],
           [1, 2]])
    """
    old = np.broadcast_to(old, (len(old), new.shape[1]))
    everyone = np.concatenate([old, new])
    return 1 + (everyone > new[:, None]).sum(axis=1)


def newcomers(
    table: irtjax.ResponseTable, size: int, count: int, seed: int
) -> list[dict]:
    """How far ranks of five new models on few items are from their ranks on all.

    Ranks are among all models. Existing models keep their estimates from all items. A
    mean of the new model's few items is set against those (MME), or against the means
    of the others on the same items (MME, same items).

    References are the method's own rank on all items ("own"; LEGO-CM's is that of one
    calibration of all models, the paper's oracle), the rank on all items that are
    calibrated without the newcomers ("scored", LEGO-CM), and the mean of the two
    methods' own ranks, as Algorithm 2 may be read ("combined").
    """
    new = chosen_models(table)
    old = np.setdiff1d(np.arange(table.num_subjects), new)
    masks = subsets(table, size, count, seed)
    everything = np.ones((1, table.num_items), bool)
    x, there = logits(table), observed(table)

    def means(rows, cells):
        seen = there[rows][:, None] & cells
        total = np.where(seen, x[rows][:, None], 0).sum(axis=2)
        return total / np.maximum(seen.sum(axis=2), 1)

    fit = calibrated(table, new)
    existing = abilities_of(fit, table.subjects[old])
    joint = abilities_of(calibrated(table, []), table.subjects)
    full = means(old, everything)
    by_fit = ranks_among(joint[new], joint[old])[:, 0]
    by_score = ranks_among(scored(fit, table, new, everything), existing)[:, 0]
    by_mean = ranks_among(means(new, everything), full)[:, 0]
    combined, few = (by_fit + by_mean) / 2, means(new, masks)
    found = {
        "LEGO-CM": ranks_among(scored(fit, table, new, masks), existing),
        "MME": ranks_among(few, full),
        "MME, same items": ranks_among(few, means(old, masks)),
    }
    rows = []
    for method, rank in found.items():
        references = {"own": by_mean, "combined": combined}
        if method == "LEGO-CM":
            references |= {"own": by_fit, "scored": by_score}
        rows += [
            {"trial": trial, "newcomer": str(table.subjects[model]),
             "rank": float(true[k]), "model": method, "reference": reference,
             "value": float(abs(r - true[k])), "signed": float(r - true[k])}
            for reference, true in references.items()
            for k, model in enumerate(new)
            for trial, r in enumerate(rank[k])
        ]  # fmt: skip
    return rows


def stability(
    table: irtjax.ResponseTable, size: int, count: int, seed: int
) -> list[dict]:
    """Estimates from random sets of items less that from all, in units of models' sd.

    LEGO-CM is fitted anew to all models on each set; the mean logit is of the set.
    """
    x, there = logits(table), observed(table)
    chosen = chosen_models(table)

    def mean(cells):
        seen = there & cells
        return np.where(seen, x, 0).sum(1) / np.maximum(seen.sum(1), 1)

    # The unit of either is its spread over models, with all items.
    everything = structured(table).abilities()[0]
    whole = mean(np.ones(table.num_items, bool))
    rows = []
    for trial, mask in enumerate(subsets(table, size, count, seed)):
        part = table.select(items=mask)
        theta = structured(part).abilities()[0]
        gaps = {
            "LEGO-CM": (theta - everything) / everything.std(),
            "MME": (mean(mask) - whole) / whole.std(),
        }
        rows += [
            {"trial": trial, "subject": str(table.subjects[k]), "model": name,
             "value": float(gap[k])}
            for name, gap in gaps.items()
            for k in chosen
        ]  # fmt: skip
    return rows


def data_efficiency(
    table: irtjax.ResponseTable, sizes: Sequence[int], count: int, seed: int
) -> list[dict]:
    """Test error and estimate of new models against the number of items scored.

    Half of the items, drawn anew each trial, are the test; new models are scored on
    the first so many of the others.
    """
    new = chosen_models(table)
    fit = calibrated(table, new)
    family = fit.model.family
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    expected = jax.jit(
        jax.vmap(
            jax.vmap(family.expected_response, in_axes=(0, None)), in_axes=(None, 0)
        )
    )
    there, y = observed(table)[new], table.values[new]
    old = np.setdiff1d(np.arange(table.num_subjects), new)
    seen = observed(table)[old]
    easy = np.where(seen, table.values[old], 0).sum(0) / np.maximum(seen.sum(0), 1)
    rng = np.random.default_rng(seed)
    keys = rng.random((count, table.num_items))
    place = keys.argsort(axis=1).argsort(axis=1)
    sizes = [n for n in sizes if n <= table.num_items // 2]
    test = place >= table.num_items - table.num_items // 2
    rows = []
    for size in sizes:
        masks = place < size
        theta = scored(fit, table, new, masks)
        chance = np.asarray(expected(items, jnp.asarray(theta.ravel())))
        chance = chance.reshape(*theta.shape, -1)
        given = there[:, None] & masks
        share = given.sum(2)[..., None]
        mean = np.where(given, y[:, None], 0).sum(2, keepdims=True) / np.maximum(
            share, 1
        )
        gap = np.where(given, (y - easy)[:, None], 0).sum(2, keepdims=True)
        found = {
            "LEGO-CM": chance,
            "MME": np.broadcast_to(mean, chance.shape),
            "additive": np.clip(easy + gap / np.maximum(share, 1), 0, 1),
        }
        judged = there[:, None] & test
        for name, means in found.items():
            error = np.where(judged, (means - y[:, None]) ** 2, 0).sum(2) / judged.sum(
                2
            )
            rows += row_of(error, table, new, "test MSE", name, size)
        rows += row_of(theta, table, new, "ability", "LEGO-CM", size)
    return rows


def row_of(values, table, new, measure: str, model: str, size: int) -> list[dict]:
    """Rows of `[models, trials]` values."""
    return [
        {"trial": trial, "measure": measure, "subject": str(table.subjects[k]),
         "items": size, "model": model, "value": float(values[i, trial])}
        for i, k in enumerate(new)
        for trial in range(values.shape[1])
    ]  # fmt: skip


def intervals(
    table: irtjax.ResponseTable, shares: Sequence[float], trials: int, seed: int
) -> list[dict]:
    """Chosen models' abilities with 95 % intervals against the share of cells seen.

    On the scale, whose origin and unit are themselves known from the models alone, and
    less the mean of all models, which takes out what their errors share.
    """
    rows = []
    chosen = chosen_models(table)
    for trial, share, seen, _ in splits(table, shares, trials, seed, HELD_OUT):
        theta, covariance = structured(masked(table, seen)).abilities()
        centring = np.eye(theta.size) - 1 / theta.size
        scales = {
            "ability": (theta, covariance),
            "less the mean": (centring @ theta, centring @ covariance @ centring),
        }
        for measure, (value, spread) in scales.items():
            half = Z * np.sqrt(np.diag(spread))
            rows += [
                {"trial": trial, "measure": measure, "share": share,
                 "model": str(table.subjects[k]), "lower": float(value[k] - half[k]),
                 "upper": float(value[k] + half[k]), "value": float(value[k])}
                for k in chosen
            ]  # fmt: skip
    return rows

r"""Items that new subjects answer otherwise than the fit expects: drift of items.

The sum S_j of the responses of new subjects to item j is a sum of Bernoulli variables
with the probabilities P_ij of the fit at their abilities, which errors of the item's
parameters shift together: logit P_ij + s_ij e, e ~ N(0, 1), with s_ij from the variance
of P_ij over these errors. The tails of S_j are those of the Poisson-binomial
distribution, averaged over e. Abilities of new subjects in a benchmark may differ from
those in others, and new subjects may be relatives: the normal scores of the tails are
centred at the median of each benchmark, and divided by their standard deviation over
all items where that is above 1 (genomic control, Devlin and Roeder 1999). An item whose
key or text was changed stands out of all others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from irtjax.calibration.item_error import item_errors
from irtjax.data.arrays import places_of
from irtjax.data.wording import counted, listing
from irtjax.models.predictive import expected_with_errors, with_errors
from irtjax.ranking.discoveries import benjamini_hochberg

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.data import ResponseTable

#: New subjects below which no item is tested, and items of a benchmark with a centre.
FEWEST, FEWEST_ITEMS = 3, 20
#: The false discovery rate: every time that subjects are added is a test.
LEVEL = 0.01
#: Nobody is certain to be right or wrong, and no tail is empty.
_SURE, _TINY = 0.01, 1e-15
#: Share of the items in the standard deviation, those nearest the centre, and the mean
#: square of as many normal variables.
_MIDDLE, _SQUARE = 0.9, 0.6229
#: Nodes of e.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


def drift_sentence(names: list[str]) -> str:
    """Which items drifted, or nothing.

    >>> drift_sentence(["q1"]), drift_sentence([])
    ('1 item drifted (q1)', '')
    """
    return f"{counted(len(names), 'item')} drifted ({listing(names, 3)})" * bool(names)


def drifted_items(fit: Calibration, table: ResponseTable) -> list[str]:
    """Items that subjects who were added since the calibration answer otherwise.

    Right and wrong responses of one ability are tested, of three new subjects or more.

    Args:
        fit: The fit with the abilities of these subjects.
        table: Their responses.

    Returns:
        Names at a false discovery rate of 1 %, the most surprising first.
    """
    errors = item_errors(fit)
    places = places_of(fit.item_names, table.items)
    items = np.flatnonzero(places >= 0)
    suits = errors is not None and table.kind == "binary" and table.sparse is None
    suits &= fit.model.family.num_categories == 2
    if not suits or table.num_subjects < FEWEST or len(items) < FEWEST_ITEMS:
        return []
    assert errors is not None
    where = places[items]
    chance, spread = _chances(fit, table, where, errors.items)
    observed = True if table.observed is None else table.observed
    seen = np.broadcast_to(observed, table.values.shape)[:, items]
    values = np.where(seen, np.asarray(table.values, float)[:, items], 0)
    below, above = _tails(chance, spread, values, seen)
    labels = None if fit.benchmarks is None else np.asarray(fit.benchmarks)[where]
    p_value = _p_values(below, above, labels)
    order = np.argsort(p_value, kind="stable")
    drifted = benjamini_hochberg(p_value) <= LEVEL
    return [str(table.items[items[j]]) for j in order if drifted[j]]


def _chances(fit: Calibration, table: ResponseTable, where: np.ndarray, errors):
    """Chances of right responses `[subjects, items]`, and s of their logits."""
    model = dataclasses.replace(fit.model, family=fit.model.family.of_items(where))
    items = jax.tree.map(lambda x: jnp.asarray(x)[where], fit.parameters.items)
    flat, uncertain = with_errors(model, items, errors[where])
    names = fit.abilities.table.column("subject").to_pylist()
    ability = fit.abilities.table["ability"].to_numpy(zero_copy_only=False)
    rows = places_of(np.asarray(names), table.subjects)
    # Few shapes are compiled.
    size = 1 << max(len(rows) - 1, 3).bit_length()
    theta = np.zeros(size)
    theta[: len(rows)] = np.asarray(ability, float)[rows]
    dtype = uncertain.coordinates.dtype
    moments = expected_with_errors(flat.family, uncertain, jnp.asarray(theta, dtype))
    mean, variance = (np.asarray(x, float)[: len(rows)] for x in moments)
    mean = np.clip(mean, _SURE, 1 - _SURE)
    return mean, np.sqrt(np.maximum(variance, 0)) / (mean * (1 - mean))


def _tails(chance, spread, values, seen) -> tuple[np.ndarray, np.ndarray]:
    """P(S <= s) and P(S >= s) of each item."""
    total = values.sum(0)
    count = np.arange(len(chance) + 1)[:, None]
    below, above = np.zeros(chance.shape[1]), np.zeros(chance.shape[1])
    for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum(), strict=True):
        right = np.where(seen, expit(logit(chance) + spread * node), 0)
        mass = np.zeros((len(chance) + 1, chance.shape[1]))
        mass[0] = 1
        for row in right:
            mass[1:] = mass[1:] * (1 - row) + mass[:-1] * row
            mass[0] *= 1 - row
        below += weight * np.where(count <= total, mass, 0).sum(0)
        above += weight * np.where(count >= total, mass, 0).sum(0)
    return below, above


def _p_values(below, above, labels: np.ndarray | None) -> np.ndarray:
    """Two-sided p-values of the tails, by genomic control."""
    bound = lambda x: np.clip(x, _TINY, 1 - _TINY)
    # Half of P(S = s) belongs to either side.
    middle = ndtri(bound(below - (below + above - 1) / 2))
    labels = np.zeros(len(middle), int) if labels is None else labels
    centre = np.full(len(middle), np.median(middle))
    for label in np.unique(labels):
        part = labels == label
        if part.sum() >= FEWEST_ITEMS:
            centre[part] = np.median(middle[part])
    squares = np.sort((middle - centre) ** 2)
    smallest = squares[: max(round(_MIDDLE * len(squares)), 1)]
    scale = max(np.sqrt(smallest.mean() / _SQUARE), 1)
    low = ndtr((ndtri(bound(below)) - centre) / scale)
    high = ndtr((-ndtri(bound(above)) - centre) / -scale)
    return np.minimum(2 * np.minimum(low, high), 1)

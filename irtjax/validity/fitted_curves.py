"""Curves of a fit at nodes of its population, in the order of a table's items."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.data.matching import match_all_items
from irtjax.data.table import ResponseTable
from irtjax.likelihood.quadrature import REACH
from irtjax.models.model import check_one_ability
from irtjax.numerics.kernels import equal_nodes
from irtjax.validity.item_fit import NodeLikelihood
from irtjax.validity.limited_information import CategoryCurves, curves_of

#: Nodes of a normal population, and standard deviations to either side. Integrals of
#: curves of slope 10 are exact to 1e-8 at this spacing, of slope 20 to 1e-4.
NODES, SPAN = 121, 6.0
#: Items up to which the equations fit into about 2 GB.
MOST_ITEMS = 400


class FittedCurves(NamedTuple):
    """Curves of the items of a table under a fit of one ability.

    Attributes:
        items: Item records.
        rows: `[items, columns]` their coordinates.
        curves: Probabilities of categories and their derivatives at the nodes.
        nodes: `[nodes]` abilities, in units of a slope of 1 if slopes are equal.
        weights: `[nodes]` of the population, summing to 1.
        parameters: `[items, columns]` number of the parameter that each coordinate is.
        with_scale: Whether the standard deviation of ability is a parameter.
    """

    items: Any
    rows: np.ndarray
    curves: CategoryCurves
    nodes: np.ndarray
    weights: np.ndarray
    parameters: np.ndarray
    with_scale: bool

    @staticmethod
    def of(fit: Calibration, table: ResponseTable) -> FittedCurves:
        """The curves; raises ValueError for models and tables without M2."""
        _check(fit, table)
        family = fit.model.family
        places = match_all_items(table, fit.item_names, "test", fit.item_contents)
        items = jax.tree.map(lambda x: jnp.asarray(x)[places], fit.parameters.items)
        standard, weights = _population(fit)
        population = fit.parameters.population
        nodes = float(population.mean) + float(population.sd) * standard
        if not family.has_slope:
            # Families of equal slopes have slopes of 1; a 1PL is reported with others.
            nodes = nodes * float(items.discrimination[0])
        parameters, with_scale = _parameters(fit, items)
        rows = fit.model.unconstrain(items)
        curves = curves_of(family, rows, items, nodes, standard)
        return FittedCurves(
            items, np.asarray(rows), curves, nodes, weights, parameters, with_scale
        )

    def likelihood(self, values: np.ndarray, seen: np.ndarray) -> NodeLikelihood:
        """Responses `[subjects, items]` with these curves."""
        curves = self.curves
        return NodeLikelihood(
            values, seen, curves.probabilities, curves.codes, self.nodes, self.weights
        )


def _check(fit: Calibration, table: ResponseTable) -> None:
    """Refuses models without M2, and tables of other items."""
    check_one_ability(fit.model, "M2")
    if table.trials is not None and np.max(table.trials) > 1:
        raise ValueError(
            "M2 needs one response in a cell, and these are counts: fit single runs,"
            " such as the first, trials='first'"
        )
    if table.kind == "continuous":
        raise ValueError(
            "M2 needs responses in categories, and these are continuous: join scores"
            " into categories, then fit again"
        )
    if fit.multilevel or fit.parameters.theta is not None:
        raise ValueError(
            "M2 needs items estimated as parameters and abilities integrated out: fit"
            ' with model="2pl", method="em"'
        )
    if fit.model.family.num_categories < 2:
        raise ValueError(f"M2 needs responses in categories, not {fit.model.name}")
    if table.num_items != len(fit.item_names):
        raise ValueError(
            f"the table has {table.num_items:,} items, the fit {len(fit.item_names):,}:"
            " test the data that were fitted"
        )
    if table.num_items > MOST_ITEMS:
        raise ValueError(
            f"M2 of {table.num_items:,} items needs too much memory: fit and test"
            f" at most {MOST_ITEMS} of them"
        )


def _population(fit: Calibration) -> tuple[np.ndarray, np.ndarray]:
    """Standardised nodes of the population and their weights."""
    log_weights = fit.parameters.population.log_weights
    if log_weights is None:
        nodes = np.linspace(-SPAN, SPAN, NODES)
        density = -(nodes**2) / 2
    else:
        density = np.asarray(log_weights, np.float64)
        nodes = np.asarray(equal_nodes(-REACH, REACH, density.size), np.float64)
    # Nodes without weight would divide by 0.
    weights = np.maximum(np.exp(density - density.max()), 1e-12)
    return nodes, weights / weights.sum()


def _parameters(fit: Calibration, items) -> tuple[np.ndarray, bool]:
    """Number of the parameter of each coordinate, and whether the scale is one."""
    family = fit.model.family
    num_items = len(fit.item_names)
    numbers = np.arange(num_items * family.num_columns).reshape(num_items, -1)
    free = np.asarray(family.free_columns(num_items))
    existing = family.existing(items)
    common = list(family.common_columns)
    numbers[:, common] = numbers[0, common]
    numbers = np.where(free, numbers, -1)
    with_scale = not family.has_slope
    count = np.unique(numbers[numbers >= 0]).size + with_scale
    lacking = existing is not None and not np.all(existing)
    if lacking or count != fit.num_parameters:
        raise ValueError(
            "M2 does not accept fits with fixed parameters, groups, response lengths or"
            " items that lack categories: fit the items alone, without anchor"
        )
    return numbers, with_scale

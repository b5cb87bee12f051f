"""The statistics of every item under a fit, and the decisions about them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.auditing.copies import CERTAIN, Duplicates, duplicates
from irtjax.auditing.properties import (
    LOGISTIC,
    SATURATED,
    asymptotes_of,
    item_properties,
    slopes_and_intercepts,
)
from irtjax.calibration.score import score
from irtjax.data import ResponseTable
from irtjax.data.matching import match_all_items, positions
from irtjax.likelihood.quadrature import REACH
from irtjax.models.model import check_one_ability
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.progress import watched
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity import asymptotes, classical, sum_scores
from irtjax.validity.residuals import (
    DEPENDENT,
    Partners,
    Residuals,
    chances,
    dependence,
    item_fit,
)

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Defects that are tested, and what each means.
TESTED = {
    "negative discrimination": "stronger subjects do worse",
    "suspected wrong key": "turned round, the item would discriminate",
    "no discrimination": f"it correlates with ability by less than {classical.MARGIN}",
    "misfit": "its curve is not that of the model",
    "suspected contamination": "weak subjects are right more than by guessing",
    "local dependence": "it depends on another item beyond ability",
    "duplicate": "another item has the same responses from everybody",
}
#: Those of items that a small benchmark had better leave out.
SPOILT = (
    "negative discrimination",
    "suspected wrong key",
    "no discrimination",
    "suspected contamination",
)
#: Defects that can be seen, without a test.
SEEN = {
    "no variation": "all right, all wrong, or never answered",
    "saturated": f"the strongest subject is right with chance {SATURATED} or more",
}
#: The claim that an item's discrimination is not 0: no defect, but tested as one.
DISCRIMINATES = "discriminates"
#: Points of the population's distribution of ability.
NODES = 241
#: Standard deviations to either side that they span.
SPAN = 5.0
#: Subjects who answered everything, below which the groups of scores are left out.
LEAST_COMPLETE = sum_scores.LEAST_GROUPS * sum_scores.LEAST_IN_GROUP


def column_of(defect: str) -> str:
    """Name of the column with the p-values of a defect.

    >>> column_of("local dependence")
    'p_local_dependence'
    """
    return "p_" + defect.replace(" ", "_")


def several_abilities(model: str) -> str:
    """Why a model of several abilities is refused."""
    return (
        f"an audit needs one ability, but {model} has one for each benchmark: fit 2pl,"
        " or audit each benchmark alone"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class OrderedFit:
    """A calibration in the order of a table."""

    fit: Calibration
    items: Any  # records, [items]
    ability: np.ndarray  # [subjects]
    error: np.ndarray  # [subjects] standard errors

    @staticmethod
    def of(fit: Calibration, table: ResponseTable) -> OrderedFit:
        """The items and subjects of a table; an unsuitable model is refused."""
        family = fit.model.family
        if family.num_categories != 2:
            raise ValueError(
                "an audit needs a model of right and wrong responses (2pl, 3pl, 4pl),"
                f" not {fit.model.name}"
            )
        if fit.num_groups > 1:
            raise ValueError(several_abilities(fit.model.name))
        check_one_ability(fit.model, "an audit")
        rows = match_all_items(table, fit.item_names, "audit", fit.item_contents)
        abilities = fit.abilities.table
        if not set(table.subjects.tolist()) <= set(fit.subject_names.tolist()):
            # Residuals are from the estimated curves, and so are abilities.
            exact = dataclasses.replace(fit, item_covariance=None)
            abilities = score(exact, table).table
        who = np.array(abilities.column("subject").to_pylist())
        order = positions(who, table.subjects)
        ability, error = (
            np.array(abilities.column(name).to_pylist(), np.float64)[order]
            for name in ("ability", "ability_se")
        )
        # A subject without a finite score stands where the population does.
        lost = ~np.isfinite(ability)
        ability = np.where(lost, float(fit.parameters.population.mean), ability)
        error = np.where(np.isfinite(error), error, 0.0)
        items = jax.tree.map(lambda x: np.asarray(x)[rows], fit.parameters.items)
        return OrderedFit(fit, items, ability, error)

    @property
    def link(self) -> str | None:
        """The form of curves, "logit" or "probit"; None of other families."""
        return getattr(self.fit.model.family, "link", None)

    @property
    def probit(self) -> bool:
        """Whether curves are normal."""
        return self.link == "probit"

    def population(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of the population's ability and their weights."""
        population = self.fit.parameters.population
        mean, sd = float(population.mean), float(population.sd)
        if population.log_weights is None:
            standard = np.linspace(-SPAN, SPAN, NODES)
            log_weights = -0.5 * standard**2
        else:
            # A population of estimated form: groups of scores follow that form.
            log_weights = np.asarray(population.log_weights, np.float64)
            standard = equal_nodes(-REACH, REACH, log_weights.size)
        weights = np.exp(log_weights - log_weights.max())
        return mean + sd * standard, weights / weights.sum()

    def curves(self, nodes: np.ndarray) -> np.ndarray:
        """Chance of a right response, `[items, nodes]`."""
        records = jax.tree.map(jnp.asarray, self.items)
        grid = jnp.asarray(nodes, records[0].dtype)
        return np.asarray(chances(self.fit.model.family, records, grid), float).T


@dataclasses.dataclass(frozen=True, eq=False)
class ItemStatistics:
    """Statistics of every item, before any decision."""

    fitted: OrderedFit
    classical: classical.Classical
    properties: dict[str, np.ndarray]
    residuals: Residuals
    partners: Partners
    duplicates: Duplicates
    groups: sum_scores.GroupTests | None
    asymptotes: asymptotes.Asymptotes
    num_complete: int

    def p_values(self) -> dict[str, np.ndarray]:
        """P-values `[items]` by tested defect; NaN where an item was not tested."""
        varied = np.isfinite(self.classical.item_rest)
        blank = np.full(varied.size, np.nan)
        misfit, contaminated = blank, blank
        # Over an ability that the items do not measure there is no curve to judge.
        if self.classical.alpha >= classical.LEAST_RELIABILITY:
            misfit = blank if self.groups is None else self.groups.p_misfit
            contaminated = self.asymptotes.p_value
        values = {
            "negative discrimination": self.classical.p_negative,
            "suspected wrong key": self.classical.p_wrong_key,
            "no discrimination": self.classical.p_weak,
            "misfit": misfit,
            "suspected contamination": contaminated,
            "local dependence": self.partners.p_value,
            "duplicate": self.duplicates.p_value,
        }
        return {name: np.where(varied, p, np.nan) for name, p in values.items()}


def examine(
    table: ResponseTable, fitted: OrderedFit, guess: np.ndarray
) -> ItemStatistics:
    """Computes all statistics of all items."""
    family = fitted.fit.model.family
    records = jax.device_put(fitted.items)
    of_fit = family, records, fitted.ability
    slope, intercept = slopes_and_intercepts(family, fitted.items)
    cells = table.stored
    # Pairs of items, for dependence and then for duplicates, and groups of subjects
    # take most of the time.
    steps = watched(range(3))
    next(steps)
    residuals = item_fit(*of_fit, cells)
    partners = dependence(*of_fit, cells)
    next(steps)
    twins = duplicates(*of_fit, cells)
    everything = np.flatnonzero(cells.count(1) == table.num_items)
    complete = cells.select(everything, None).dense[0]
    next(steps)
    groups = None
    if len(complete) >= LEAST_COMPLETE:
        nodes, weights = fitted.population()
        # An item that is twice in the score is not what its tests take for granted:
        # one of each group of duplicates is tested, and represents the others.
        representatives, place = _without_copies(twins)
        groups = sum_scores.group_tests(
            complete[:, representatives],
            fitted.curves(nodes)[representatives],
            nodes,
            weights,
            (slope[representatives], intercept[representatives]),
            guess[representatives],
            max(int(family.num_columns), 1),
        )
        if groups is not None:
            groups = groups.of_items(place)
    if fitted.link is None:
        # The test has logistic curves; of others it would find the difference.
        lower_asymptotes = asymptotes.Asymptotes(*np.full((2, slope.size), np.nan))
    elif groups is not None and 2 * len(complete) >= table.num_subjects:
        lower_asymptotes = groups.asymptotes
    else:
        # Few answered everything, or scores are too alike for groups of them: subjects
        # one by one, by the items that each has.
        logistic = LOGISTIC if fitted.probit else 1.0
        curves = logistic * slope, logistic * intercept, *asymptotes_of(fitted.items)
        lower_asymptotes = asymptotes.by_subjects(
            cells, fitted.ability, fitted.error, curves, guess
        )
    of_sums = classical.classical(cells)
    next(steps, None)
    return ItemStatistics(
        fitted,
        of_sums,
        item_properties(family, fitted.items, float(fitted.ability.max())),
        residuals,
        partners,
        twins,
        groups,
        lower_asymptotes,
        len(complete),
    )


def _without_copies(twins: Duplicates) -> tuple[np.ndarray, np.ndarray]:
    """Places of items less surplus duplicates, and where each item is among them.

    Items that agree by chance, as easy ones do, are no duplicates.
    """
    size = twins.group.size
    sure = (twins.group >= 0) & (np.nan_to_num(twins.p_value, nan=1.0) <= CERTAIN)
    code = np.where(sure, size + twins.group, np.arange(size))
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[place.reshape(-1)]


def decide(
    statistics: ItemStatistics, level: float
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Adjusted p-values and decisions, each `[items]`, by tested defect."""
    decided = {}
    for name, p_value in statistics.p_values().items():
        adjusted = benjamini_hochberg(p_value)
        flagged = np.nan_to_num(adjusted, nan=1.0) <= level
        if name == "local dependence":
            flagged &= np.nan_to_num(statistics.partners.q3) >= DEPENDENT
        decided[name] = (adjusted, flagged)
    return decided


def all_flags(statistics: ItemStatistics, decided) -> dict[str, np.ndarray]:
    """Decisions `[items]` by defect, tested and seen."""
    flags = {name: flagged for name, (_, flagged) in decided.items()}
    flags["no variation"] = ~np.isfinite(statistics.classical.item_rest)
    flags["saturated"] = statistics.properties["chance"] >= SATURATED
    return flags

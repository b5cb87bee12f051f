r"""Measures of subjects, and the columns of a table of subjects, with their errors.

A measure is the ability of a fit, or the mean response to the items of a benchmark or
metric. Posterior means of ability are drawn to the mean of the population, so the
estimates without it are taken (`validity.latent_regression`).

The mean response :math:`\bar y_i` to :math:`n_i` items, each less the item's mean, has
the error variance :math:`s^2 / n_i`, with :math:`s^2` the mean square of the
interaction of subjects and items. Without missing responses the reliability is then
Cronbach's alpha (Hoyt 1941, Psychometrika 6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irtjax.calibration.abilities import Abilities
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.factors import Factors
from irtjax.calibration.parts.groups import Structure
from irtjax.calibration.parts.populations import Populations
from irtjax.calibration.score_curve import errors_given_scale
from irtjax.calibration.tables import floats
from irtjax.data.arrays import places_of
from irtjax.data.features import numbers_or_days
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing
from irtjax.validity.latent_regression import unshrunk

#: Fewest items of a measure of mean responses: one has no interaction.
FEWEST_ITEMS = 2
#: Newton steps for precisions; they square their error, from about the whole of it.
STEPS = 20
#: Precision of an estimate, in that of its prior, below which there is none.
LEAST_PRECISION = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Measures:
    """Quantities of subjects, with their errors.

    Attributes:
        names: `[measures]` different names.
        subjects: `[subjects]` names.
        estimates: `[measures, subjects]`, NaN where there is none.
        errors: `[measures, subjects]` standard errors.
        traits: `[measures]` what each measures, if traits are named.
        methods: `[measures]` how, if methods are named.
    """

    names: list[str]
    subjects: np.ndarray
    estimates: np.ndarray
    errors: np.ndarray
    traits: list[str] | None = None
    methods: list[str] | None = None

    def joined(self, other: Measures) -> Measures:
        """The measures of both, of the subjects of either."""
        again = sorted({*self.names} & {*other.names})
        if again:
            raise ValueError(f"two measures are called {again[0]!r}: rename one")
        subjects = np.union1d(self.subjects, other.subjects)
        parts = [part.at(subjects) for part in (self, other)]
        estimates, errors = (np.concatenate(x) for x in zip(*parts, strict=True))
        return Measures(self.names + other.names, subjects, estimates, errors)

    def at(self, subjects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Estimates and errors of other subjects, NaN of unknown ones."""
        place = places_of(self.subjects, subjects)
        cut = lambda x: np.where(place >= 0, x[:, place], np.nan)
        return cut(self.estimates), cut(self.errors)


def measures_of(
    source: Any, trait: str | None = None, method: str | None = None
) -> Measures:
    """The measures of a fit, of several by name, or of responses by facets of items.

    Args:
        source: A fit, abilities or an arena; a mapping of names to these; or responses.
        trait: Facet of the items of responses that names traits, such as "benchmark".
        method: Facet that names methods, such as "metric".

    Raises:
        ValueError: A fit of abilities by benchmark has covariates, a facet is missing,
            or a measure has fewer than two items.

    >>> table = ResponseTable.from_arrays([[1, 1, 0], [0, 0, 1], [1, 1, 1]])
    >>> measures_of(table).estimates.round(2).tolist()
    [[0.67, 0.33, 1.0]]
    """
    if isinstance(source, ResponseTable):
        return _of_table(source, trait, method)
    if trait is not None or method is not None:
        raise ValueError(
            "traits and methods are facets of items: give the responses, not a fit"
        )
    fits = source if isinstance(source, Mapping) else {"ability": source}
    if not fits:
        raise ValueError("there is no fit: name at least one")
    parts = [_of_fit(str(name), fit) for name, fit in fits.items()]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.joined(part)
    return whole


def _of_fit(name: str, fit: Any) -> Measures:
    """The ability, or the abilities on factors, of a fit, not drawn to a mean."""
    abilities = getattr(fit, "abilities", fit)
    if isinstance(abilities, Abilities):
        estimates, errors = abilities.estimates, abilities.standard_error
        return Measures(
            [name], np.asarray(abilities.names), estimates[None], errors[None]
        )
    if not isinstance(fit, Calibration):
        raise ValueError(
            f"{name} is of the type {type(fit).__name__}: give a fit, abilities, an"
            " arena, or responses"
        )
    structure = fit.part(Structure)
    if structure is not None and fit.num_groups > 1:
        names = [f"{name} {group}" for group in structure.groups.tolist()]
        estimates, errors = _of_groups(name, structure)
        return Measures(names, fit.subject_names, estimates.T, errors.T)
    factors = fit.part(Factors)
    if factors is not None:
        estimates, errors = _without_prior(
            factors.mean, factors.spread, factors.correlation
        )
        names = [f"{name} {factor}" for factor in fit.factor_names]
        return Measures(names, fit.subject_names, estimates.T, errors.T)
    (ability,) = floats(fit.abilities.table, "ability")
    population, groups = fit.parameters.population, fit.part(Populations)
    mean, sd = np.asarray(population.mean, float), np.asarray(population.sd, float)
    if groups is not None:
        mean, sd = groups.mean[groups.group], groups.sd[groups.group]
    estimates, errors = unshrunk(ability, errors_given_scale(fit), mean, sd)
    return Measures([name], fit.subject_names, estimates[None], errors[None])


def _without_prior(
    mean: np.ndarray, covariance: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`[subjects, factors]` estimates and errors that posteriors of N(0, prior) have.

    NaN of subjects whose responses do not determine all factors.
    """
    precision = np.linalg.inv(covariance)
    own = precision - np.linalg.inv(prior)
    determined = np.linalg.eigvalsh(own)[:, 0] > 1e-6
    inverse = np.linalg.inv(
        np.where(determined[:, None, None], own, np.eye(len(prior)))
    )
    estimates = np.einsum("nij,njk,nk->ni", inverse, precision, mean)
    errors = np.sqrt(np.diagonal(inverse, axis1=1, axis2=2))
    keep = lambda x: np.where(determined[:, None], x, np.nan)
    return keep(estimates), keep(errors)


def _of_groups(name: str, structure: Structure) -> tuple[np.ndarray, np.ndarray]:
    """`[subjects, groups]` estimates and errors of the group abilities of a fit."""
    effects = structure.subject_effects
    if effects is not None and len(effects[0]):
        raise ValueError(
            f"{name} has abilities drawn to what covariates predict: give a fit"
            " without covariates, or the responses, with their benchmarks as traits"
        )
    prior = structure.specific_covariance + structure.general_variance
    return without_joint_prior(structure.ability, structure.error, prior)


def without_joint_prior(
    mean: np.ndarray, error: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Estimates and errors of abilities by their own responses alone.

    The posterior of a subject's abilities under N(0, P) and independent estimates t
    with precisions D has the covariance V = (P^-1 + D)^-1 and the mean V D t. Newton's
    method has the D whose V has the variances e^2, with the derivatives -V_jk^2 of V_jj
    by D_k. Then t = m + D^-1 P^-1 m.

    Args:
        mean: `[subjects, abilities]` posterior means m.
        error: `[subjects, abilities]` posterior standard errors e.
        prior: `[abilities, abilities]` covariance P.

    Returns:
        Estimates t and their standard errors, NaN of abilities without responses.

    >>> pair = without_joint_prior(np.ones((1, 1)), np.array([[0.6]]), np.eye(1))
    >>> [round(float(x[0, 0]), 3) for x in pair]  # As `unshrunk` has them.
    [1.562, 0.75]
    """
    inverse, square = np.linalg.inv(prior), error**2
    precision = np.maximum(1 / square - 1 / np.diagonal(prior), 0)
    for _ in range(STEPS):
        whole = np.linalg.inv(
            inverse + np.einsum("nj,jk->njk", precision, np.eye(len(prior)))
        )
        excess = np.diagonal(whole, axis1=1, axis2=2) - square
        move = np.linalg.solve(whole**2, excess[:, :, None])[:, :, 0]
        precision = np.maximum(precision + move, 0)
    seen = precision * np.diagonal(prior) > LEAST_PRECISION
    own = np.where(seen, precision, np.nan)
    return mean + mean @ inverse / own, own**-0.5


def _of_table(table: ResponseTable, trait: str | None, method: str | None) -> Measures:
    """Mean responses to the items of each trait by each method."""
    labels = []
    for title, facet in (("trait", trait), ("method", method)):
        if facet is not None and facet not in table.item_facets:
            there = listing(sorted(table.item_facets)) or "none"
            raise ValueError(
                f"{title} {facet!r} is no facet of items; there are: {there}"
            )
        empty = np.full(table.num_items, "", np.str_)
        labels.append(empty if facet is None else table.item_facets[facet])
    pairs, code = np.unique(np.stack(labels), axis=1, return_inverse=True)
    traits, methods = pairs.tolist()
    names = [" ".join(filter(None, pair)) or "score" for pair in pairs.T.tolist()]
    few = np.bincount(code.ravel()) < FEWEST_ITEMS
    if few.any():
        name = names[int(np.argmax(few))]
        raise ValueError(
            f"{name} has one item, whose error is unknown: leave it out, or give"
            f" {counted(FEWEST_ITEMS, 'item')}"
        )
    cells = table.stored.per_trial()
    parts = [
        _mean_responses(*cells.select(None, np.flatnonzero(code.ravel() == k)).dense)
        for k in range(len(names))
    ]
    estimates, errors = (np.stack(x) for x in zip(*parts, strict=True))
    return Measures(
        names,
        table.subjects,
        estimates,
        errors,
        None if trait is None else traits,
        None if method is None else methods,
    )


def _mean_responses(
    values: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean responses `[subjects]` and their errors, NaN of subjects without any."""
    count = seen.sum(axis=1)
    number = np.where(count > 0, count, np.nan)
    answered = np.maximum(seen.sum(axis=0), 1)
    level = np.where(seen, values, 0.0).sum(axis=0) / answered
    apart = np.where(seen, values - level, 0.0)
    mean = apart.sum(axis=1) / number
    rest = np.where(seen, apart - np.nan_to_num(mean)[:, None], 0.0)
    subjects = np.count_nonzero(count)
    degrees = np.sum(np.maximum(count - 1, 0)) * (1 - 1 / max(subjects, 2))
    square = float(np.sum(rest**2)) / max(degrees, 1.0)
    return mean + level.mean(), np.sqrt(square / number)


def columns_of(
    subjects: Any,
    columns: Sequence[str],
    name: str,
    reliability: Mapping[str, float],
) -> Measures:
    """Columns of numbers of a table of subjects, with their errors.

    The errors of `size` are those of a column `size_se`, or follow from a reliability.

    Raises:
        ValueError: A column is missing, constant or no number, a subject has two rows,
            an error is below 0, or a reliability is not in (0, 1].
    """
    values = lists_of(subjects)
    names = subjects_in(values, name)
    estimates = np.stack([_numbers(values, column) for column in columns])
    for column, row in zip(columns, estimates, strict=True):
        if np.nanmax(row) == np.nanmin(row):
            raise ValueError(f"column {column!r} is constant: leave it out")
    errors = np.zeros_like(estimates)
    for place, column in enumerate(columns):
        if f"{column}_se" in values and column not in reliability:
            errors[place] = _numbers(values, f"{column}_se")
            if np.nanmin(errors[place]) < 0:
                raise ValueError(f"column '{column}_se' has an error below 0: mend it")
    for column, share in reliability.items():
        if column not in columns:
            raise ValueError(f"reliability of {column!r}: no such column is asked for")
        if not 0 < share <= 1:
            raise ValueError(
                f"the reliability of {column!r} is above 0 and at most 1, not {share:g}"
            )
        place = list(columns).index(column)
        errors[place] = np.sqrt((1 - share) * np.nanvar(estimates[place]))
    return Measures(list(columns), names, estimates, errors)


def lists_of(subjects: Any) -> Mapping[str, list[Any]]:
    """Columns of a table of subjects as lists."""
    if isinstance(subjects, Mapping):
        return {str(k): list(v) for k, v in subjects.items()}
    from irtjax.data.reading.open import to_arrow

    return to_arrow(subjects, "the table of subjects").to_pydict()


def column_in(values: Mapping[str, list[Any]], title: str) -> list[Any]:
    """A column of subjects by its title."""
    if title not in values:
        names = listing(list(values))
        raise ValueError(f"there is no column {title!r} of subjects among {names}")
    return values[title]


def subjects_in(values: Mapping[str, list[Any]], title: str) -> np.ndarray:
    """Names of the subjects, each once."""
    names = np.array([str(x) for x in column_in(values, title)])
    if len(np.unique(names)) != len(names):
        raise ValueError(f"a subject has two rows in column {title!r}: leave one")
    return names


def _numbers(values: Mapping[str, list[Any]], title: str) -> np.ndarray:
    """A column as numbers or days, NaN where a cell is empty."""
    cells = column_in(values, title)
    rows = [k for k, x in enumerate(cells) if x not in (None, "") and x == x]
    if not rows:
        raise ValueError(f"column {title!r} has no number: leave it out")
    places = np.array([f"row {k + 1}" for k in rows])
    numbers = numbers_or_days([cells[k] for k in rows], places, f"column {title!r}")
    if numbers is None:
        raise ValueError(f"column {title!r}: {cells[rows[0]]!r} is no finite number")
    column = np.full(len(cells), np.nan)
    column[rows] = numbers
    return column

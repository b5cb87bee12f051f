"""Scores new subjects on the items of a calibration, from table to table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax import inference
from irtjax.calibration.covariates import (
    AbilityPrior,
    covariate_names,
    evidence_of,
    read_priors,
)
from irtjax.calibration.item_error import ItemErrors, errors_of_items
from irtjax.calibration.parts.lengths import ability_columns, without_zero_lengths
from irtjax.calibration.runs import ability_errors_by_runs
from irtjax.calibration.scale import BECAUSE, least_error
from irtjax.calibration.score_curve import why_not_ranked
from irtjax.calibration.standing import standing_columns, with_subjects
from irtjax.calibration.tables import ability_interval
from irtjax.data import ResponseTable, read
from irtjax.data.coding import coded_as
from irtjax.data.frames import HasTable
from irtjax.data.matching import match_items
from irtjax.data.reading.options import as_typed, of_fit
from irtjax.data.result_text import with_level
from irtjax.data.reversal import aligned
from irtjax.data.sparse_table import FEW_OBSERVED, FEW_ON_NODES
from irtjax.data.wording import are, counted, have, were
from irtjax.inference.covariance import Covariance
from irtjax.inference.scale_error import with_scale_error
from irtjax.inference.vector_scores import (
    expected_with_items,
    watched_on_items,
    watched_score_factors,
)
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.families.bounded import options_of, prepare, with_scores
from irtjax.models.model import Model, Population
from irtjax.models.predictive import own_errors
from irtjax.numerics.precision import full_precision

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration

#: Subjects up to which new ones are ranked with those of a fit.
MOST_RANKED = 2000


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ScoredSubjects(HasTable):
    """Scores of subjects, with items fixed.

    Attributes:
        table: One row per subject, in the order of the data: subject, ability,
            ability_se, lower, upper, accuracy, observed, flags; and where they stand
            among the subjects of the fit (`standing`): rank and expected score with
            their intervals, tied_with, above.
        notes: The items that were matched or left out, and warnings.
        level: Level of the intervals.
        scoring: Of these scores: "map" for several abilities, whatever was requested.
        own_error: `[subjects]` errors on the scale of the fit, without those of its
            location and scale (`inference.scale_error`), which all subjects share.
        whole: The calibration with these subjects among its own, all ranked together;
            None where they have no rank (`score_curve.why_not_ranked`, other scores
            than EAP, more than 2,000 subjects).
        moments: Of several factors the posterior means `[subjects, factors]` and
            covariances `[subjects, factors, factors]` of abilities; else None.
    """

    title = "Scores, with the items of a fit"
    columns = ("rank", "subject", "expected_score", "expected_score_lower")
    columns += ("expected_score_upper", "ability", "ability_se", "lower", "upper")
    columns += ("accuracy", "observed", "flags", "tied_with")

    table: pa.Table
    notes: tuple[str, ...]
    level: float
    scoring: str = "eap"
    own_error: np.ndarray | None = None
    whole: Calibration | None = dataclasses.field(default=None, repr=False)
    moments: tuple[np.ndarray, np.ndarray] | None = None


@full_precision
def score(
    fit: Calibration,
    data: Any,
    *,
    scoring: str = "eap",
    level: float | None = None,
    measures: str = "both",
    subject_table: Any = None,
) -> ScoredSubjects:
    """Scores subjects on calibrated items; formulas: `irtjax.inference.score`.

    Of a fit with errors of its items, standard errors count these by the delta method,
    as those of the fit do: subjects with the same responses have the same ability. Of
    one ability, standard errors also count those of location and scale
    (`inference.scale_error`). With abilities by group, items are taken as known.

    Args:
        fit: The calibration, whose items stay as they are.
        data: The responses: a `ResponseTable`, or anything that `irtjax.read` takes.
            Items are matched by name. A path is read with the options that the data of
            the fit were read with.
        scoring: "eap", "map", "ml" or "wle".
        level: Level of the intervals; None takes that of the calibration.
        measures: For a model with response lengths, what to score from: "both",
            "accuracy" or "length". With lengths, `scoring` is "eap" or "map".
        subject_table: Covariates of the subjects, of a fit with `subject_covariates`:
            the prior of each is the one that its covariates imply, not that of an
            average subject (`calibration.covariates.read_priors`: files and others).
            `scoring` is then "eap" or "map".

    Returns:
        The scores; with lengths, also speed and speed_se; of a multilevel fit, also an
        ability and its error for each group.

    Raises:
        ValueError: If no item is known, responses do not suit the model, the scoring
            is unknown, or a subject lacks covariates.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> score(irtjax.fit(table, "rasch"), table).table.num_rows
    4
    """
    import pyarrow as pa

    if scoring not in inference.METHODS:
        raise ValueError(
            f"scoring {scoring!r} is not one of {', '.join(inference.METHODS)}"
        )
    chosen = fit.level if level is None else level
    if not 0 < chosen < 1:
        raise ValueError(f"level {chosen} is not between 0 and 1")
    table = data
    if not isinstance(data, ResponseTable):
        table = read(data, **as_typed(of_fit(fit.options)))
    prior = None
    if subject_table is not None:
        if scoring not in ("eap", "map"):
            raise ValueError(
                f"scoring {scoring!r} does not use covariates, which shift the prior:"
                " use eap or map, or leave subject_table out"
            )
        names = table.subjects.tolist()
        _, every = read_priors(fit, subject_table, names)
        prior = AbilityPrior(*(x[: len(names)] for x in every))
    table, rows, notes = _match(fit, coded_as(fit.options, table))
    model = dataclasses.replace(fit.model, family=fit.model.family.of_items(rows))
    table, scores, scale_notes = _on_scale(fit, model, table, rows)
    notes += scale_notes
    uncertain = errors_of_items(fit)
    notes += _of_item_errors(fit, uncertain)
    notes += () if prior is not None else _left_out(fit)
    uses_lengths = _uses_lengths(fit, table, measures, scoring)
    items = jax.tree.map(lambda x: jnp.asarray(x)[rows], fit.parameters.items)
    responses, part = _scored(fit, model, table, rows, measures, uses_lengths)
    responses = with_scores(responses, scores, items[0].dtype)
    request = _Request(fit, model, rows, items, responses, scoring, prior)
    if fit.num_groups > 1:
        new_scores = _of_groups(request)
    elif fit.factor_names:
        new_scores = _of_factors(request, uncertain)
    else:
        new_scores = _of_one_ability(request, uncertain)
    notes, scoring = notes + new_scores.notes, new_scores.scoring
    ability, own = (
        np.asarray(x, np.float64) for x in (new_scores.ability, new_scores.error)
    )
    population = fit.parameters.population
    moments = None if scoring in ("ml", "wle") else (population.mean, population.sd)
    if prior is not None:
        moments = prior.mean, prior.sd
    error = _whole_error(uncertain, ability, own, moments)
    by_runs = ability_errors_by_runs(fit, table)
    own, error = np.hypot(own, by_runs), np.hypot(error, by_runs)
    if least := least_error(fit):
        error = np.maximum(error, least)
        few = f"{len(fit.subject_names)} subjects {BECAUSE}"
        notes += (f"errors are no less than those of the fit, whose {few}",)
    speeds = {} if part is None else ability_columns(part, ability, error)
    if fit.model.has_lengths and part is None:
        notes += ("scored from accuracy alone: no lengths were used",)
    own_mean = table.subject_accuracy(), table.num_answered(1)
    interval = ability_interval(fit, ability, error, chosen, own=own_mean)
    numbers = speeds | new_scores.columns
    scored = _table(table, ability, error, interval, own_mean, new_scores.flags)
    for name, values in numbers.items():
        scored = scored.append_column(name, pa.array(np.asarray(values, np.float64)))
    whole = None
    count = len(fit.subject_names) + table.num_subjects
    if scoring == "eap" and count <= MOST_RANKED and not why_not_ranked(fit):
        whole = with_subjects(fit, scored, own, table)
        standing = standing_columns(whole, table.subjects.tolist(), chosen)
        for name, values in standing.items():
            scored = scored.append_column(name, pa.array(values))
    scored = with_level(scored, chosen)
    moments = new_scores.moments
    return ScoredSubjects(scored, notes, chosen, scoring, own, whole, moments)


def score_new_subjects(fit: Calibration, subject_table: Any) -> ScoredSubjects:
    """Scores of the subjects of a table that are not in the fit, without responses.

    Args:
        fit: A multilevel calibration with `subject_covariates`.
        subject_table: As for `read_priors`.

    Returns:
        The scores, by covariates alone.

    Raises:
        ValueError: As `read_priors`, or if all subjects are in the fit.
    """
    names, _ = read_priors(fit, subject_table)
    new = names[~np.isin(names, fit.subject_names)]
    if not len(new):
        raise ValueError(
            f"subject_table: all {len(names):,} subjects are in the fit: add a row of"
            " a new one"
        )
    values = np.full((len(new), len(fit.item_names)), np.nan)
    table = ResponseTable.from_arrays(values, subjects=new, items=fit.item_names)
    return score(fit, table, subject_table=subject_table)


class _Request(NamedTuple):
    """What every kind of score is computed from.

    `rows` are the places of the items of `data` among those of the fit; `model` and
    `items` have these items alone. `prior` is that of subjects with covariates.
    """

    fit: Calibration
    model: Model
    rows: np.ndarray
    items: Any
    data: Any
    scoring: str
    prior: AbilityPrior | None


class _Abilities(NamedTuple):
    """Abilities, errors without those of location and scale, flags, further columns."""

    ability: Any
    error: Any
    flags: list[str]
    columns: dict[str, Any]
    notes: tuple[str, ...]
    scoring: str
    moments: tuple[np.ndarray, np.ndarray] | None = None


def _on_scale(fit: Calibration, model, table: ResponseTable, rows):
    """The responses as the model takes them, and continuous scores if it has these."""
    if model.family.num_categories:
        _check_values(fit, table)
        return _in_known_categories(model.family, fit.parameters.items, table, rows)
    labels = None if fit.benchmarks is None else fit.benchmarks[rows]
    labelled, options = options_of(fit.options, table, labels)
    scores = prepare(labelled, model, **options)
    assert scores is not None
    return scores.table, scores, scores.warnings


def _in_known_categories(family, items, table: ResponseTable, rows: np.ndarray):
    """The responses, those in categories that an item lacks moved to the nearest one.

    Of two that are as near it is the lower one.
    """
    exists, codes = family.existing(items), np.array(family.category_codes)
    if exists is None:
        return table, None, ()
    exists = exists[rows]
    exact = np.zeros(table.values.shape, bool)
    for k, code in enumerate(codes):
        exact |= (table.values == code) & exists[:, k]
    seen = True if table.observed is None else table.observed
    moved = np.argwhere(~exact & seen)
    if not len(moved):
        return table, None, ()
    values = np.array(table.values)
    for row, column in moved.tolist():
        there = codes[exists[column]]
        values[row, column] = there[np.argmin(np.abs(there - values[row, column]))]
    row, column = moved[0]
    note = (
        f"{counted(len(moved), 'response')} {were(len(moved))} taken as the nearest one"
        " that the item had in the data of the fit, such as"
        f" {table.values[row, column]:g} of {str(table.items[column])!r} as"
        f" {values[row, column]:g}"
    )
    return table.replace(values=values), None, (note,)


def _of_item_errors(fit: Calibration, errors: ItemErrors | None) -> tuple[str, ...]:
    """Note where errors of scores leave out those of the items."""
    if errors is not None:
        return ()
    # With few subjects in the fit this uncertainty dominates.
    text = "items are taken as known: errors leave out their uncertainty, from the"
    return (f"{text} {counted(len(fit.subject_names), 'subject')} of the fit",)


def _table(table: ResponseTable, ability, error, interval, own_mean, flags) -> pa.Table:
    """One row per subject."""
    import pyarrow as pa

    accuracy, observed = own_mean
    columns = {
        "subject": pa.array(table.subjects.tolist(), pa.string()),
        "ability": ability,
        "ability_se": error,
        "lower": interval[0],
        "upper": interval[1],
        "accuracy": pa.array(accuracy, mask=~np.isfinite(accuracy)),
        "observed": observed,
        "flags": pa.array(flags, pa.string()),
    }
    return pa.table(columns)


def _of_one_ability(request: _Request, errors: ItemErrors | None) -> _Abilities:
    """Scores of a model with one ability."""
    fit, model, rows, items, data, scoring, prior = request
    population = jax.tree.map(jnp.asarray, fit.parameters.population)
    options, notes = _with_errors(errors, model, rows)
    if prior is not None:
        dtype = items[0].dtype
        normal, evidence = evidence_of(prior)
        population = Population(*(jnp.asarray(x, dtype) for x in normal))
        data = dataclasses.replace(data, evidence=jnp.asarray(evidence, dtype))
    scores = inference.score(model, items, population, data, scoring=scoring, **options)
    ability, error, flag = scores.ability, scores.standard_error, scores.flag
    if prior is not None:
        # Evidence counts as responses there: without any, the prior is exact.
        empty = data.answered() == 0
        ability = np.where(empty, prior.mean, ability)
        error = np.where(empty, prior.sd, error)
        flag = np.where(empty, int(inference.ScoreFlag.NO_RESPONSES), flag)
    flags = [inference.ScoreFlag(int(f)).explain() for f in np.asarray(flag)]
    return _Abilities(ability, error, flags, {}, notes, scoring)


def _with_errors(
    errors: ItemErrors | None, model, rows
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The option of scores that counts the errors of items, and a note."""
    if errors is None:
        return {}, ()
    own, identified = own_errors(model, errors.items[rows])
    number, lost = int(np.sum(~identified)), "1 item has no finite errors"
    if number > 1:
        lost = f"{counted(number, 'item')} {have(number)} no finite errors"
    independent = Covariance.of_independent(jnp.asarray(own))
    note = f"{lost}: items without errors are taken as known"
    return {"item_covariance": independent}, (note,) if number else ()


def _whole_error(errors: ItemErrors | None, ability, own, moments):
    """Errors of abilities with those of location and scale.

    `moments` are the prior's mean and standard deviation, None where it is not used.
    """
    if errors is None or errors.scale is None:
        return own
    return np.sqrt(with_scale_error(errors.scale, ability, own**2, moments))


def _left_out(fit: Calibration) -> tuple[str, ...]:
    """Warning about scores of new subjects."""
    names = covariate_names(fit)
    if not names:
        return ()
    return (
        f"subjects are scored as average ones in {', '.join(names)}: give the"
        " covariates by subject_table",
    )


def _of_factors(request: _Request, errors: ItemErrors | None) -> _Abilities:
    """Expected scores on all items, with each ability and its error as columns."""
    fit, model, rows, items, data, scoring, _ = request
    _check_modes(scoring)
    population = jax.tree.map(jnp.asarray, fit.parameters.population)
    modes = watched_score_factors(model, items, population, data)
    # On all items of the fit, also those that were not answered.
    every = jax.tree.map(jnp.asarray, fit.parameters.items)
    if errors is None:
        ability, error = watched_on_items(fit.model, every, modes)
    else:
        placed = data.among(rows, len(fit.item_names))
        covariance = jnp.asarray(errors.items, every.discrimination.dtype)
        ability, error, _ = expected_with_items(
            fit.model, every, placed, modes, covariance
        )
    own = np.sqrt(np.diagonal(modes.covariance, axis1=1, axis2=2))
    names = list(fit.factor_names)
    flags, columns = _by_ability(names, modes.ability, own, modes.converged)
    note = "the ability is the expected score on all items of the fit"
    moments = np.asarray(modes.mean, float), np.asarray(modes.spread, float)
    return _Abilities(ability, error, flags, columns, (note,), "map", moments)


def _by_ability(names: list[str], ability, error, converged):
    """Flags of subjects, and columns of several abilities with their errors."""
    unfinished = inference.ScoreFlag.UNFINISHED.explain()
    flags = ["" if done else unfinished for done in np.asarray(converged)]
    columns: dict[str, Any] = {}
    for k, name in enumerate(names):
        columns[f"ability_{name}"] = ability[:, k]
        columns[f"ability_{name}_se"] = error[:, k]
    return flags, columns


def _check_modes(scoring: str) -> None:
    """Refuses other scores of several abilities than their modes."""
    if scoring not in ("eap", "map"):
        raise ValueError(
            f"scoring {scoring!r} is for models with one ability: use map, the mode of"
            " all abilities together"
        )


def _of_groups(request: _Request) -> _Abilities:
    """General abilities, with those by group and their errors as columns."""
    fit, model, rows, items, data, scoring, by_covariates = request
    _check_modes(scoring)
    structure = fit.structure
    assert structure is not None
    own, variance = structure.specific_covariance, structure.general_variance
    group, prior = jnp.asarray(structure.group)[rows], jnp.asarray(own, items[0].dtype)
    mean = None if by_covariates is None else by_covariates.mean
    group_scores = inference.score_groups(
        model.family, items, group, prior, data, variance=variance, mean=mean
    )
    general_error, error = group_scores.general_error, group_scores.error
    if structure.possible is not None:  # A fit of an earlier version has none.
        general_error, error = inference.errors_over_covariances(
            group_scores, own, variance, structure.possible, mean
        )
    if by_covariates is not None:
        moves = inference.moves_of_prior(group_scores, own, variance)
        spread = by_covariates.by_effects[:, None] * moves**2
        general_error = np.sqrt(general_error**2 + spread[:, 0])
        error = np.sqrt(error**2 + spread[:, 1:])
    names = structure.groups.tolist()
    flags, columns = _by_ability(
        names, group_scores.ability, error, group_scores.converged
    )
    note = "abilities are posterior modes, one per group and a general one"
    return _Abilities(
        group_scores.general, general_error, flags, columns, (note,), "map"
    )


def _uses_lengths(fit: Calibration, table, measures: str, scoring: str) -> bool:
    """Whether lengths enter the scores, or a ValueError."""
    if measures not in ("both", "accuracy", "length"):
        raise ValueError(f"measures {measures!r} is not one of both, accuracy, length")
    if not fit.model.has_lengths:
        if measures == "length":
            raise ValueError(
                f"a {fit.model.name} fit has no model of response lengths; fit 'lart'"
            )
        return False
    used = measures == "length" or (measures == "both" and table.has_lengths)
    if used and scoring not in ("eap", "map"):
        raise ValueError(
            f"scoring {scoring!r} does not use lengths, which act through the"
            " population: use eap or map, or measures='accuracy'"
        )
    return used


def _scored(fit, model, table, rows, measures: str, uses_lengths: bool) -> Any:
    """The responses to score, with the evidence of their lengths if it is used."""
    dtype = jnp.asarray(fit.parameters.items[0]).dtype
    offset = fit.options["length_offset"] if uses_lengths else None
    if _is_by_cell(fit, model, table):
        return table.sparse_responses(), None
    if uses_lengths:
        table = without_zero_lengths(table, fit.options.get("zero_lengths", "kept"))
    data = table.responses(dtype, length_offset=offset)
    if not uses_lengths:
        return data, None
    if measures == "length":
        none = jnp.zeros(data.values.shape, bool)
        values = jnp.zeros_like(data.values)
        data = dataclasses.replace(data, values=values, observed=none, trials=None)
    parameters = fit.parameters.lengths
    items = jax.tree.map(lambda x: jnp.asarray(x)[rows], parameters.items)
    rho = jnp.asarray(parameters.correlation)
    problem, part = with_lengths(
        Problem.create(model, data), parameters._replace(items=items, correlation=rho)
    )
    return problem.data, part


def _is_by_cell(fit: Calibration, model, table: ResponseTable) -> bool:
    """Whether responses are scored without their matrix."""
    one_way = model.family.by_cell and fit.num_groups == 1
    share = FEW_OBSERVED if fit.factor_names else FEW_ON_NODES
    return one_way and not model.has_lengths and table.takes_cells(share)


def _match(
    fit: Calibration, table: ResponseTable
) -> tuple[ResponseTable, np.ndarray, tuple[str, ...]]:
    """The columns of known items, and where these are among the items of the fit."""
    table = aligned(table, fit.reversed_scores, fit.item_names.tolist())
    rows = match_items(table, fit.item_names, "the fit", fit.item_contents)
    matched = rows >= 0
    notes: tuple[str, ...] = ()
    if matched.sum() < len(fit.item_names):
        notes += (
            f"{matched.sum():,} of the {counted(len(fit.item_names), 'item')} of the"
            f" fit {were(matched.sum())} answered",
        )
    if not matched.all():
        unknown = table.items[~matched].tolist()
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        notes += (
            f"{counted(len(unknown), 'item')} {are(len(unknown))} not in the fit and"
            " left"
            f" out: {shown}",
        )
        table = table.select(items=matched)
    return table, rows[matched], notes


def _check_values(fit: Calibration, table: ResponseTable) -> None:
    """Refuses a response that the model of the fit does not have."""
    codes = fit.model.family.category_codes
    low, top = codes[0], codes[-1]
    if table.kind == "counts" and top == 1:
        return
    if table.binary_cells is not None and low == 0:
        return
    wrong = (table.values < low) | (table.values > top)
    if table.observed is not None:
        wrong &= table.observed
    # Of int8 `rint` makes float16, which takes seconds at 26 million cells.
    if table.values.dtype.kind == "f":
        wrong |= table.values != np.rint(table.values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        few = len(codes) < 5
        values = " or ".join(map(str, codes)) if few else f"{low} to {top}"
        raise ValueError(
            f"subject {table.subjects[row]}, item {table.items[column]}: the response"
            f" {table.values[row, column]:g} is not {values}, as the model"
            f" {fit.model.name} needs"
        )

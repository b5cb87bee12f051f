"""Scores new subjects on the items of a calibration.

Takes tables with names and returns labelled tables; the formulas are in
`irtjax.scoring`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax import scoring
from irtjax.data import ResponseTable, read
from irtjax.data.matching import match_items
from irtjax.models.families.bounded import options_of, prepare, with_scores

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration


#: Warning about all scores: with few subjects in the fit this uncertainty dominates.
ITEMS_KNOWN = (
    "items are taken as known: errors leave out their uncertainty, from the {:,}"
    " subjects of the fit"
)


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredSubjects:
    """Scores of subjects, with items fixed.

    Attributes:
        table: One row per subject, in the order of the data: subject, ability,
            ability_se, lower, upper, accuracy, observed, flags.
        notes: What was matched and what was left out, in plain language.
        level: Level of the intervals.
        method: Of the scores: "map" for several abilities, whatever was requested.
    """

    table: pa.Table
    notes: tuple[str, ...]
    level: float
    method: str = "eap"


def score(
    fit: Calibration,
    data: Any,
    *,
    method: str = "eap",
    level: float | None = None,
    measures: str = "both",
) -> ScoredSubjects:
    """Scores subjects on calibrated items; see `irtjax.scoring.score` for the formulas.

    Args:
        fit: The calibration, whose items stay as they are.
        data: The responses: a `ResponseTable`, or anything that `irtjax.read` takes.
            Items are matched by name.
        method: "eap", "map", "ml" or "wle".
        level: Level of the intervals; None takes that of the calibration.
        measures: For a model with response lengths, what to score from: "both",
            "accuracy" or "length". With lengths, `method` is "eap" or "map".

    Returns:
        The scores; with lengths, also speed and speed_se; of a multilevel fit, also an
        ability and its error for each group.

    Raises:
        ValueError: If no item is known, responses do not suit the model, or the
            method is unknown.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> score(irtjax.fit(table, "rasch"), table).table.num_rows
    4
    """
    import jax
    import jax.numpy as jnp
    import pyarrow as pa
    from scipy.special import ndtri

    if method not in scoring.METHODS:
        raise ValueError(
            f"scores {method!r} is not one of {', '.join(scoring.METHODS)}"
        )
    chosen = fit.level if level is None else level
    if not 0 < chosen < 1:
        raise ValueError(f"level {chosen} is not between 0 and 1")
    table = data if isinstance(data, ResponseTable) else read(data)
    table, rows, notes = _match(fit, table)
    model, scores = _prepared(fit, table, rows)
    if scores is None:
        _check_values(fit, table)
    else:
        table, notes = scores.table, (*notes, *scores.warnings)
    notes = (*notes, ITEMS_KNOWN.format(len(fit.subjects)), *_left_out(fit))
    with_lengths = _uses_lengths(fit, table, measures, method)
    items = jax.tree.map(lambda x: jnp.asarray(x)[rows], fit.parameters.items)
    population = jax.tree.map(jnp.asarray, fit.parameters.population)
    problem, part = _scored_problem(fit, table, rows, items, measures, with_lengths)
    data = with_scores(problem.data, scores, items[0].dtype)
    errors = None
    by_group = _group_scores(fit, model, items, rows, data, method)
    if by_group is None:
        result = scoring.score(model, items, population, data, method=method)
        ability, error = result.ability, result.standard_error
        flags = [scoring.ScoreFlag(int(f)).explain() for f in np.asarray(result.flag)]
    else:
        ability, error, errors = _errors_by_group(fit, by_group)
        unfinished = scoring.ScoreFlag.UNFINISHED.explain()
        flags = ["" if done else unfinished for done in np.asarray(by_group.converged)]
        notes = (
            *notes,
            "abilities are posterior modes, one per group and a general one",
        )
    ability, error = (np.asarray(x, np.float64) for x in (ability, error))
    half = ndtri(0.5 + chosen / 2) * error
    accuracy = table.subject_accuracy()
    observed = np.full(table.num_subjects, table.num_items)
    if table.observed is not None:
        observed = table.observed.sum(1)
    out = pa.table(
        {
            "subject": pa.array(table.subjects.tolist(), pa.string()),
            "ability": ability,
            "ability_se": error,
            "lower": ability - half,
            "upper": ability + half,
            "accuracy": pa.array(accuracy, mask=~np.isfinite(accuracy)),
            "observed": observed,
            "flags": pa.array(flags, pa.string()),
        }
    )
    if part is not None:
        from irtjax.calibration.lengths import ability_columns

        for name, values in ability_columns(part, ability, error).items():
            values = np.asarray(values, np.float64)
            out = out.append_column(name, pa.array(values))
    elif fit.model.lengths is not None:
        notes = (*notes, "scored from accuracy alone: no lengths were used")
    if by_group is not None and fit.structure is not None:
        for k, name in enumerate(fit.structure.groups.tolist()):
            for end, values in (("", by_group.ability), ("_se", errors)):
                column = pa.array(np.asarray(values, np.float64)[:, k])
                out = out.append_column(f"ability_{name}{end}", column)
    return ScoredSubjects(out, notes, chosen, method if by_group is None else "map")


def _left_out(fit: Calibration) -> tuple[str, ...]:
    """Warning about scores of new subjects."""
    structure = fit.structure
    effects = None if structure is None else structure.subject_effects
    if effects is None or not len(effects[0]):
        return ()
    names = ", ".join(effects[0].tolist())
    return (
        f"scores take new subjects for average ones: the covariates {names} shift what"
        " is expected of the fitted subjects only",
    )


def _group_scores(fit: Calibration, model, items, rows, data, method: str):
    """Scores by group, for a multilevel fit of several; else None."""
    import jax.numpy as jnp

    structure = fit.structure
    if structure is None or len(structure.groups) < 2:
        return None
    if method not in ("eap", "map"):
        raise ValueError(
            f"scores {method!r} are for models with one ability: use map, the mode of"
            " the abilities of all groups together"
        )
    return scoring.score_groups(
        model.family,
        items,
        jnp.asarray(structure.group)[rows],
        jnp.asarray(structure.own_covariance, items[0].dtype),
        data,
        variance=structure.general_variance,
    )


def _errors_by_group(fit: Calibration, found):
    """General abilities, their errors, and those of abilities by group."""
    structure = fit.structure
    assert structure is not None
    if structure.possible is None:  # A fit of an earlier version.
        return found.general, found.general_error, found.error
    own, variance = structure.own_covariance, structure.general_variance
    errors = scoring.errors_over_spread(found, own, variance, structure.possible)
    return found.general, *errors


def _prepared(fit: Calibration, table: ResponseTable, rows: np.ndarray):
    """The model of these items and, for a model of scores, their logits."""
    model = fit.model
    if model.family.num_categories:
        return model, None
    model = dataclasses.replace(model, family=model.family.of_items(rows))
    labels = None if fit.benchmarks is None else fit.benchmarks[rows]
    table, options = options_of(fit.options, table, labels)
    return model, prepare(table, model, **options)


def _uses_lengths(
    fit: Calibration, table: ResponseTable, measures: str, method: str
) -> bool:
    """Whether lengths enter the scores; refuses what cannot be done."""
    if measures not in ("both", "accuracy", "length"):
        raise ValueError(f"measures {measures!r} is not one of both, accuracy, length")
    if fit.model.lengths is None:
        if measures == "length":
            raise ValueError(
                f"a {fit.model.name} fit has no model of response lengths; fit 'lart'"
            )
        return False
    used = measures == "length" or (measures == "both" and table.lengths is not None)
    if used and method not in ("eap", "map"):
        raise ValueError(
            f"scores {method!r} do not use lengths, which act through the population:"
            " use eap or map, or measures='accuracy'"
        )
    return used


def _scored_problem(fit, table, rows, items, measures: str, lengths_used: bool):
    """The responses to score, with the evidence of their lengths if it is used."""
    import jax
    import jax.numpy as jnp

    from irtjax.likelihood.lengths import with_lengths
    from irtjax.likelihood.problem import Problem

    offset = fit.options["length_offset"] if lengths_used else None
    data = table.responses(items[0].dtype, length_offset=offset)
    if measures == "length":
        nothing = jnp.zeros(data.values.shape, bool)
        values = jnp.zeros_like(data.values)
        data = dataclasses.replace(data, values=values, observed=nothing, trials=None)
    model = fit.model
    model = dataclasses.replace(model, family=model.family.of_items(rows))
    problem = Problem.create(model, data)
    if not lengths_used:
        return problem, None
    parameters = fit.parameters.lengths
    part = jax.tree.map(lambda x: jnp.asarray(x)[rows], parameters.items)
    rho = jnp.asarray(parameters.correlation)
    return with_lengths(problem, parameters._replace(items=part, correlation=rho))


def _match(
    fit: Calibration, table: ResponseTable
) -> tuple[ResponseTable, np.ndarray, tuple[str, ...]]:
    """The columns of known items, and where these are among the items of the fit."""
    rows = match_items(table, fit.items, "the fit")
    known = rows >= 0
    notes = [
        f"{known.sum():,} of the {len(fit.items):,} items of the fit were answered"
    ]
    if not known.all():
        unknown = table.items[~known].tolist()
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        notes.append(f"{len(unknown):,} items are not in the fit and left out: {shown}")
        table = table.select(items=known)
    return table, rows[known], tuple(notes)


def _check_values(fit: Calibration, table: ResponseTable) -> None:
    top = fit.model.family.num_categories - 1
    if table.kind == "counts" and top == 1:
        return
    wrong = (table.values < 0) | (table.values > top)
    wrong |= table.values != np.rint(table.values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        values = " or ".join(map(str, range(top + 1))) if top < 4 else f"0 to {top}"
        raise ValueError(
            f"subject {table.subjects[row]}, item {table.items[column]}: the response"
            f" {table.values[row, column]:g} is not {values}, as the model"
            f" {fit.model.name} needs"
        )

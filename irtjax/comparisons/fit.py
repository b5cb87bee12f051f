"""Abilities from comparisons of two subjects each: arenas, judges, preferences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from irtjax._types import RandomKey, Status
from irtjax.calibration.abilities import Abilities
from irtjax.comparisons import checks
from irtjax.comparisons.arena import Arena
from irtjax.comparisons.bootstrap import Cells, bootstrap_covariance
from irtjax.comparisons.errors import inverse_information, sandwich
from irtjax.comparisons.families import LINKS, TIES, PairFamily
from irtjax.comparisons.mixed_tables import Values, grouped, mixed_values
from irtjax.comparisons.newton import (
    PairCounts,
    PairFit,
    PairParameters,
    maximise_jit,
    padded,
)
from irtjax.comparisons.plackett_luce import fit_rankings, rankings_of
from irtjax.comparisons.presets import Preset, pair_weights, preset_of
from irtjax.comparisons.style import style_table
from irtjax.data.comparison_table import ComparisonTable, pairs_of
from irtjax.data.wording import counted
from irtjax.numerics.random_keys import seed_of

#: Standard deviation of the prior of abilities that comparisons do not determine.
PRIOR = 2.0
BY_PRIOR = f"a normal prior with a standard deviation of {PRIOR:g} does"
#: Effects of one standard deviation above which a covariate separates wins from losses.
FARTHEST = 10.0
#: Clusters below which errors by cluster are too small.
FEW_CLUSTERS = 20
#: Model and rule for ties of published arenas.
PLAIN = ("bradley_terry", "half")
#: The model of rankings.
RANKINGS = "plackett_luce"
#: What verdicts that both are bad may be.
BOTH_BAD = ("tie", "drop", "outcome")
#: Replicates below which the errors themselves are uncertain by 7 % and more.
FEWEST_REPLICATES = 100
#: Names that a warning lists.
MOST_NAMED = 5


class PairProblem(NamedTuple):
    """What a fit of comparisons maximises.

    Attributes:
        family: The model.
        table: The comparisons that count.
        outcomes: `[rows, 3]` their numbers of wins, losses and ties.
        features: `[rows, features]` standardised covariates, then the order.
        names: Their names.
        sizes: Standard deviation of each covariate.
        preset: Settings of a published arena, or None.
    """

    family: PairFamily
    table: ComparisonTable
    outcomes: np.ndarray
    features: np.ndarray
    names: list[str]
    sizes: dict[str, float]
    preset: Preset | None = None

    def existence(self) -> list[str]:
        """Why abilities are not finite, if they are not."""
        return _existence(self.table, self.outcomes)

    def maximum(self, outcomes: np.ndarray, precision: float = 0.0) -> PairFit:
        """Estimates from numbers of outcomes of the rows."""
        penalty = 0.0
        if self.preset is not None:
            penalty = self.preset.penalty * float(outcomes.sum())
            weight = pair_weights(self.preset, self.table, outcomes)
            outcomes = outcomes * weight[:, None]
        with jax.enable_x64(True):
            return _maximum(
                self.family, self.table, outcomes, self.features, precision, penalty
            )


def pair_problem(
    table: ComparisonTable,
    model: str = "bradley_terry",
    *,
    ties: str = "half",
    both_bad: str = "tie",
    covariates: Sequence[str] = (),
    order: bool = False,
    preset: str | None = None,
) -> PairProblem:
    """The comparisons that count, with their features; see `fit_comparisons`.

    >>> table = ComparisonTable.of("ab", [0, 0], [1, 1], [[1, 0, 0, 0], [0, 0, 1, 0]])
    >>> pair_problem(table, ties="drop").outcomes.tolist()
    [[1.0, 0.0, 0.0]]
    """
    family = _family(model, ties, both_bad)
    _check_names("covariate", covariates, table.features)
    outcomes = table.outcomes[:, :3].copy()
    if both_bad != "drop":
        outcomes[:, 2] += table.outcomes[:, 3]
    if ties == "drop":
        outcomes[:, 2] = 0.0
    rows = np.flatnonzero(outcomes.sum(axis=1) > 0)
    if not rows.size:
        raise ValueError("every comparison is a tie or bad, and these are left out")
    used, outcomes = table.select(rows), outcomes[rows]
    chosen = preset_of(preset)
    features, names, sizes = _features(
        used, outcomes, covariates, order, chosen is not None
    )
    return PairProblem(family, used, outcomes, features, names, sizes, chosen)


def fit_comparisons(
    table: ComparisonTable,
    model: str = "bradley_terry",
    *,
    ties: str = "half",
    both_bad: str = "tie",
    cluster: str | Sequence[str] = (),
    covariates: Sequence[str] = (),
    order: bool = False,
    category: str | None = None,
    judge: str | None = None,
    tie_rates: bool = False,
    bootstrap: int = 0,
    key: RandomKey | None = None,
    preset: str | None = None,
    level: float = 0.95,
) -> Arena:
    """Fits abilities to comparisons by maximum likelihood; see `comparisons.families`.

    Args:
        table: The comparisons.
        model: "bradley_terry" (log odds), "thurstone" (probits), or "plackett_luce" of
            rankings, whose pairs have the label "ranking" (`read_comparisons`).
        ties: "half" a win, "drop", "davidson" or "rao_kupper".
        both_bad: Whether verdicts that both are bad are a "tie", left out ("drop"), or
            an "outcome" of their own, which is likelier between weak models; this
            requires a model of ties.
        cluster: One or two labels of the table, such as prompt and judge, whose
            comparisons are not independent of each other; errors count them.
        covariates: Features of the table that the difference depends on as well; an
            effect is that of one standard deviation. What a model causes itself, such
            as the length of its answers, may be part of its ability: compare the two.
        order: Whether being the first has an effect.
        category: A label, such as the topic of the prompt, by which abilities differ:
            `tables["categories"]`, shrunk by their estimated standard deviation.
            Abilities are means over categories, each with the same weight.
        judge: A label of judges who differ in reliability, the slope of the difference:
            `tables["judges"]`; 1 is the geometric mean.
        tie_rates: Whether each model has a rate of ties of its own:
            `tables["tie_rates"]`; requires a model of ties.
        bootstrap: Number of replicates that errors are estimated from, with clusters
            (of one kind) or comparisons weighted at random (`comparisons.bootstrap`);
            0 for the sandwich. Not for category, judge, tie_rates and "outcome".
        key: A whole number or a JAX key, for the weights.
        preset: "arena_rank" for the weights and the penalty of published arenas, which
            are not maximum likelihood (`comparisons.presets`); ties are halves.
        level: Level of the intervals.

    Returns:
        The abilities with their errors. With category, judge or tie_rates the
        log-likelihood is marginal over these effects (`comparisons.mixed`).

    Raises:
        ValueError: If a name is unknown, no comparison counts, or options do not go
            together.

    >>> rows = [[3, 1, 0, 0], [4, 2, 0, 0], [3, 2, 0, 0]]
    >>> table = ComparisonTable.of(["a", "b", "c"], [0, 0, 1], [1, 2, 2], rows)
    >>> fit = fit_comparisons(table)
    >>> fit.abilities.estimates.round(2).tolist()
    [0.55, -0.19, -0.36]
    """
    clusters = [cluster] if isinstance(cluster, str) else list(cluster)
    _check_names("cluster", clusters, table.labels)
    for kind, name in (("category", category), ("judge", judge)):
        _check_names(kind, [] if name is None else [name], table.labels)
    effects = {"category": category, "judge": judge, "tie_rates": tie_rates}
    by_row = [clusters, covariates, order, category, judge, tie_rates, bootstrap]
    by_row.append(model == RANKINGS)
    # Comparisons of a pair are alike unless an option tells them apart.
    rows = table if any(by_row) else table.merged()
    problem = pair_problem(
        rows,
        model,
        ties=ties,
        both_bad=both_bad,
        covariates=covariates,
        order=order,
        preset=preset,
    )
    warnings, style = problem.existence(), None
    precision = 1 / PRIOR**2 if warnings else 0.0
    mixed = any(effects.values()) or both_bad == "outcome"
    _check_bootstrap(bootstrap, clusters, mixed)
    _check_preset(preset, mixed or bootstrap > 0 or (model, ties) != PLAIN)
    unit, total = "comparison", float(problem.outcomes.sum())
    with jax.enable_x64(True):
        if model == RANKINGS:
            _check_rankings(mixed or bootstrap or covariates or order or ties != "half")
            (values, total), unit = _ranked(problem, clusters, precision), "ranking"
        elif mixed:
            values = mixed_values(
                problem.family,
                problem.table,
                problem.outcomes,
                (problem.features, problem.names),
                bad=both_bad == "outcome",
                precision=precision,
                clusters=_codes(problem.table, clusters),
                **effects,
            )
        else:
            values, style = _plain(
                problem,
                clusters,
                covariates,
                precision,
                warnings,
                bootstrap,
                seed_of(key),
            )
        shares, against = _shares(problem.family, values)
    warnings += [*_few_clusters(problem.table, clusters), *checks.findings(table)]
    if not values.converged:
        warnings.append("the estimates did not converge")
    options = {"model": model, "ties": ties, "both_bad": both_bad, "cluster": clusters}
    options |= {"covariates": list(covariates), "order": order, "sizes": problem.sizes}
    effects |= {"bootstrap": bootstrap, "preset": preset}
    options |= {name: value for name, value in effects.items() if value}
    if problem.preset is not None:
        warnings.append(problem.preset.reason)
    count = table.num_subjects
    return Arena(
        Abilities(
            table.subjects,
            values.ability,
            values.covariance[:count, :count],
            shares,
            _votes(problem),
            level,
            f"{counted(count, 'model')} · {counted(round(total), unit)}",
            "model",
        ),
        values.effects,
        values.log_likelihood,
        values.num_parameters,
        total,
        Status.CONVERGED if values.converged else Status.MAX_STEPS,
        options,
        tuple(warnings),
        table.notes,
        table.data_hash(),
        _pairs(rows, against),
        style,
        values.tables,
    )


def _check_rankings(wrong: Any) -> None:
    """Refuses options of comparisons of two."""
    if wrong:
        raise ValueError(
            "model='plackett_luce' has no ties, covariates, order, category, judge and"
            " bootstrap: leave them out"
        )


def _ranked(
    problem: PairProblem, clusters: Sequence[str], precision: float
) -> tuple[Values, float]:
    """Estimates from rankings, and their number."""
    rankings = rankings_of(problem.table)
    codes = [x[rankings.row] for x in _codes(problem.table, clusters)]
    ability, covariance, value, converged = fit_rankings(rankings, precision, codes)
    none, count = np.zeros(0), len(ability)
    values = Values(ability, none, covariance, {}, value, count - 1, converged)
    return values, float(len(rankings.order))


def _plain(
    problem: PairProblem,
    clusters: Sequence[str],
    covariates: Sequence[str],
    precision: float,
    warnings: list[str],
    bootstrap: int,
    seed: int,
) -> tuple[Values, Any]:
    """Estimates without random effects, and the table of style; adds warnings."""
    family, used, outcomes, features, names, _, preset = problem
    found = problem.maximum(outcomes, precision)
    effect = found.parameters.effect
    if effect.size and not (bool(found.converged) and np.max(abs(effect)) < FARTHEST):
        # They separate wins from losses.
        warnings.append(
            f"comparisons do not determine the effects of {', '.join(names)}:"
            f" {BY_PRIOR}"
        )
        precision = 1 / PRIOR**2
        found = problem.maximum(outcomes, precision)
    if bootstrap:
        covariance = _bootstrap(problem, found, clusters, precision, bootstrap, seed)
    else:
        covariance = _covariance(problem, found, clusters)
    style = None
    if covariates and preset is None:
        plain = features[:, len(covariates) :]
        without = _maximum(family, used, outcomes, plain, precision)
        fits = (found, features), (without, plain)
        style = style_table(family, fits, used, outcomes, _codes(used, clusters))
    count, shape = used.num_subjects, found.parameters.shape
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0))[count:]
    estimates = np.concatenate([found.parameters.effect, shape])
    kinds = [*names, *["tie"] * family.num_shapes]
    # All models have the same rate of ties.
    rows = [np.arange(count), np.full(count * family.num_shapes, len(covariance) - 1)]
    every = np.concatenate(rows)
    return (
        Values(
            np.asarray(found.parameters.ability),
            np.repeat(shape, count),
            covariance[np.ix_(every, every)],
            {
                name: (float(value), float(error))
                for name, value, error in zip(kinds, estimates, errors, strict=True)
            },
            float(found.log_likelihood),
            count - 1 + len(estimates),
            bool(found.converged),
        ),
        style,
    )


def _votes(problem: PairProblem) -> np.ndarray:
    """Number of comparisons of each subject."""
    count, size = problem.table.num_subjects, problem.outcomes.sum(axis=1)
    sides = problem.table.first, problem.table.second
    return sum(np.bincount(x, size, count) for x in sides)  # pyright: ignore


def _pairs(table: ComparisonTable, against: np.ndarray) -> Any:
    """What came of each pair, the first name before the second."""
    import pyarrow as pa

    count, flip = table.num_subjects, table.first > table.second
    one, other = (
        np.minimum(table.first, table.second),
        np.maximum(table.first, table.second),
    )
    outcomes = np.where(flip[:, None], table.outcomes[:, [1, 0, 2, 3]], table.outcomes)
    keys, place = pairs_of(one, other, count)
    sums = [np.bincount(place, x, len(keys)) for x in outcomes.T]
    first, second = keys // count, keys % count
    columns = dict(zip(("wins_a", "wins_b", "ties", "both_bad"), sums, strict=True))
    return pa.table(
        {
            "model_a": table.subjects[first].tolist(),
            "model_b": table.subjects[second].tolist(),
            **columns,
            "expected_share_a": against[first, second],
        }
    )


def _family(model: str, ties: str, both_bad: str) -> PairFamily:
    """The family of checked names."""
    known = (("model", model, (*LINKS, RANKINGS)), ("ties", ties, TIES))
    for name, value, names in (*known, ("both_bad", both_bad, BOTH_BAD)):
        if value not in names:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(names)}")
    if model == "thurstone" and ties == "davidson":
        raise ValueError("ties='davidson' is of bradley_terry; use 'rao_kupper'")
    # Two of a ranking follow Bradley and Terry's model.
    return PairFamily("bradley_terry" if model == RANKINGS else model, ties)


def _check_names(kind: str, names: Sequence[str], columns: Mapping[str, Any]) -> None:
    """Refuses names that the table does not have."""
    if kind == "cluster" and len(names) > 2:
        raise ValueError("errors count two kinds of clusters at most")
    for name in names:
        if name not in columns:
            known = ", ".join(columns) or "none"
            raise ValueError(f"no {kind} {name!r} among those of the table: {known}")


def _features(table: ComparisonTable, outcomes, covariates, order, centred=False):
    """Standardised covariates `[rows, features]`, their names and their sizes."""
    weight = outcomes.sum(axis=1)
    columns, sizes = [], {}
    for name in covariates:
        values = np.asarray(table.features[name], float)
        if centred:
            values = values - np.average(values, weights=weight)
        # Around 0: a comparison with no difference has no effect.
        size = math.sqrt(float(np.average(values**2, weights=weight)))
        if not size:
            raise ValueError(f"the covariate {name!r} is 0 in all comparisons")
        columns.append(values / size)
        sizes[name] = size
    names = list(covariates)
    if order:
        names.append("order")
        columns.append(np.ones(len(weight)))
    stacked = np.column_stack(columns) if columns else np.zeros((len(weight), 0))
    return stacked, names, sizes


def _existence(table: ComparisonTable, outcomes) -> list[str]:
    """Why abilities are not finite: a set of subjects never lost to the others.

    Ford's condition (1957): in the graph of wins each subject reaches each other. A tie
    is an edge both ways, unless ties are left out.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count = table.num_subjects
    win, loss, tie = (outcomes[:, k] > 0 for k in range(3))
    forward, backward = win | tie, loss | tie
    rows = np.concatenate([table.first[forward], table.second[backward]])
    columns = np.concatenate([table.second[forward], table.first[backward]])
    graph = csr_array((np.ones(len(rows)), (rows, columns)), (count, count))
    pieces, piece = connected_components(graph, directed=True, connection="weak")
    if pieces == 1:
        number, part = connected_components(graph, directed=True, connection="strong")
        if number == 1:
            return []
    else:
        part = piece
    largest = np.bincount(part).argmax()
    apart = np.flatnonzero(part != largest)
    sides = lambda one, other: np.bincount(
        np.concatenate([one, other]), minlength=count
    )
    wins = sides(table.first[forward], table.second[backward])
    losses = sides(table.first[backward], table.second[forward])
    why = {
        "never lost": [k for k in apart if not losses[k] and wins[k]],
        "never won": [k for k in apart if not wins[k] and losses[k]],
    }
    if pieces > 1:
        why = {"were never compared with the others": list(apart)}
    said = []
    for reason, places in why.items():
        if places:
            names = [str(table.subjects[k]) for k in places[:MOST_NAMED]]
            more = len(places) - len(names)
            listed = ", ".join(names) + (f" and {more} more" if more else "")
            said.append(f"{reason}: {listed}")
    named = "; ".join(said) or "some models only won against all others"
    return [f"comparisons do not determine all abilities ({named}): {BY_PRIOR}"]


def _added(table: ComparisonTable, outcomes, features):
    """Comparisons added up by pair and features, each row's place there, and its turn.

    Without features the order of the two does not matter, so that pairs are one row.
    """
    first, second = table.first, table.second
    turned = first > second if not features.shape[1] else np.zeros(len(first), bool)
    sides = np.where(turned, second, first), np.where(turned, first, second)
    outcomes = np.where(turned[:, None], outcomes[:, [1, 0, 2]], outcomes)
    key = sides[0].astype(np.int64) * table.num_subjects + sides[1]
    at, place = grouped(key, features)
    sums = [np.bincount(place, outcomes[:, k], len(at)) for k in range(3)]
    one, other = (x[at].astype(np.int32) for x in sides)
    pairs: Any = (one, other, np.column_stack(sums), features[at])
    return PairCounts(*pairs), place, turned


def _maximum(
    family, table: ComparisonTable, outcomes, features, precision, penalty=0.0
) -> PairFit:
    """Estimates from comparisons added up by pair and features."""
    import jax.numpy as jnp

    added, count = _added(table, outcomes, features)[0], table.num_subjects
    # Empty rows add nothing.
    pairs: PairCounts = jax.tree.map(padded, added)
    start = PairParameters(
        jnp.zeros(count),
        jnp.zeros(features.shape[1]),
        jnp.full(family.num_shapes, -0.5),
    )
    prior = _prior(start, precision)
    prior[count : count + features.shape[1]] += penalty
    found = maximise_jit(family, pairs, start, jnp.asarray(prior))
    return jax.tree.map(np.asarray, found)


def _prior(parameters: PairParameters, precision: float) -> np.ndarray:
    """Precisions of the priors of all parameters; ties have none."""
    sizes = [len(x) for x in parameters]
    return np.repeat([precision, precision, 0.0], sizes)


def _covariance(problem: PairProblem, found: PairFit, clusters) -> np.ndarray:
    """Covariance of all parameters: by clusters if there are any."""
    family, table, outcomes, features = problem[:4]
    weight = None
    if problem.preset is not None:
        weight = pair_weights(problem.preset, table, outcomes)
    elif not clusters:
        return inverse_information(found)
    pairs = table.first, table.second, features
    codes = _codes(table, clusters)
    return sandwich(family, found, pairs, outcomes, codes, weight)


def _check_preset(preset: str | None, differs: bool) -> None:
    """Refuses options that a published arena does not have."""
    if preset is not None and differs:
        raise ValueError(
            f"preset={preset!r} is bradley_terry with ties='half': leave model, ties,"
            " both_bad='outcome', category, judge, tie_rates and bootstrap out"
        )


def _check_bootstrap(replicates: int, clusters: Sequence[str], mixed: bool) -> None:
    """Refuses replicates that are few, or of what is not bootstrapped."""
    if not replicates:
        return
    if replicates < FEWEST_REPLICATES:
        raise ValueError(
            f"bootstrap={replicates}: give {FEWEST_REPLICATES} replicates or more"
        )
    if mixed:
        raise ValueError(
            "bootstrap is not for category, judge, tie_rates and both_bad='outcome':"
            " leave it out, their errors are those of the mixed model"
        )
    if len(clusters) > 1:
        raise ValueError("bootstrap weights clusters of one kind: give one cluster")


def _bootstrap(problem: PairProblem, found, clusters, precision, replicates, seed):
    """Covariance of all parameters over replicates."""
    added, place, turned = _added(problem.table, problem.outcomes, problem.features)
    rows, outcome = np.nonzero(problem.outcomes)
    amount, codes = problem.outcomes[rows, outcome], _codes(problem.table, clusters)
    side = np.where(turned[rows] & (outcome < 2), 1 - outcome, outcome)
    return bootstrap_covariance(
        problem.family,
        found,
        added,
        Cells(place[rows], side, amount, codes[0][rows] if codes else None),
        precision=_prior(found.parameters, precision),
        replicates=replicates,
        seed=seed,
    )


def _codes(table: ComparisonTable, clusters: Sequence[str]) -> list[np.ndarray]:
    """Whole numbers of the clusters of all rows, for each kind of cluster."""
    return [table.labels.coded(name).sorted().code for name in clusters]


def _few_clusters(table: ComparisonTable, clusters: Sequence[str]) -> list[str]:
    """A warning of few clusters."""
    said = []
    for name in clusters:
        count = np.count_nonzero(table.labels.coded(name).used())
        if count < FEW_CLUSTERS:
            said.append(
                f"{counted(count, 'cluster')} of {name} are few: errors by cluster are"
                f" too small below about {FEW_CLUSTERS}"
            )
    return said


def _shares(family: PairFamily, values: Values):
    """Expected shares against the average of the others, their errors, and by pair."""
    import jax.numpy as jnp

    ability, count = values.ability, len(values.ability)
    gaps = jnp.asarray(ability[:, None] - ability[None, :])
    tie = values.tie.reshape(-1, count)
    shape = jnp.asarray((tie[:, :, None] + tie[:, None, :]) / 2).transpose(1, 2, 0)
    against, slope, by_shape = map(np.asarray, _shares_of(family, gaps, shape))
    outside = (1 - np.eye(count)) / (count - 1)
    slope = slope * outside
    gradient = [np.diag(slope.sum(axis=1)) - slope]
    if family.num_shapes:
        half = by_shape[..., 0] * outside / 2
        gradient.append(np.diag(half.sum(axis=1)) + half)
    along = np.concatenate(gradient, axis=1)
    variance = np.einsum("ip,pq,iq->i", along, values.covariance, along)
    mean = np.sum(against * outside, axis=1)
    return (mean, np.sqrt(np.maximum(variance, 0))), against


@partial(jax.jit, static_argnums=0)
def _shares_of(family: PairFamily, gaps, shapes):
    """Expected shares at all differences, with derivatives in these and the shapes."""
    by_shape = jax.grad(family.expected_share, 1)
    every = lambda f: jax.vmap(jax.vmap(f))(gaps, shapes)
    slope = jax.grad(family.expected_share)
    return every(family.expected_share), every(slope), every(by_shape)

"""Estimates and errors of a fit with a population for each group of subjects.

The errors given the means m and standard deviations s of the groups are those of any
fit with evidence (`marginal.group_populations`). With A = -d2 l / dx dg, B = -d2 l / dg
dg, x the items, g = (m, log s), and X = Cov(x | g) A, those of g are

    V = Z (Z' (B - A' X) Z)^-1 Z',

Z the directions that the constraints on g leave, and the items move with g by -X: they
get X V X' in addition. So does an ability, by the derivatives of its posterior in the
items and in its prior: the rows of a root of V are errors that all subjects share, and
of which a difference within a group has little.

Under equality constraints x = T z of items, Cov(x | g) = T (T' I T)^-1 T', of the
information I without them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array

from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates, ParameterErrors, cut_estimates
from irtjax.estimators.item_estimates import NodePosteriors, item_estimates
from irtjax.estimators.marginal.group_populations import (
    GroupPoint,
    evidence_of,
    least_sd,
    of_all,
    pass_of,
)
from irtjax.inference.covariance import DENSE_LIMIT, Covariance, information_matrix
from irtjax.inference.inversion import RANK, flat
from irtjax.likelihood.equality import EqualityConstraints
from irtjax.likelihood.item_steps import expected_derivatives
from irtjax.likelihood.problem import Problem, is_rescaled
from irtjax.models.model import Population
from irtjax.numerics.programs import stored_jit

#: Where groups have too few subjects for errors.
INDEFINITE = (
    "no standard errors: the responses do not determine means and standard deviations"
    " of all groups; join small groups"
)


def estimates_of_groups(
    problem: Problem, padded: Problem, solution: Any, run: Any
) -> Estimates:
    """Estimates of `MultipleGroups`; `padded` is the problem as it was solved."""
    method, point = solution.method, solution.fit.state.best
    evidence, _ = evidence_of(point, solution.fit.parameters.population)
    data = dataclasses.replace(padded.data, evidence=evidence[method.codes])
    # Populations are fixed there: `GroupPosteriors` adds their errors.
    with_evidence = dataclasses.replace(padded, data=data, anchored=False)
    estimates = item_estimates(
        with_evidence,
        solution,
        standard_errors=run.options.get("standard_errors", "none"),
        item_uncertainty=run.options.get("item_uncertainty", True),
        clock=run.clock,
        posteriors=GroupPosteriors,
    )
    everyone = of_all(point, _size(padded, solution))
    estimates = dataclasses.replace(
        estimates,
        problem=padded,
        parameters=estimates.parameters._replace(population=everyone),
        normal=False,
        num_parameters=estimates.num_parameters + _num_added(padded, method),
        warnings=(*estimates.warnings, *_warnings(padded, solution)),
    )
    estimates = cut_estimates(estimates, problem)
    populations = dict(estimates.populations or {})
    root = populations.pop("root")
    populations["group"] = populations["group"][: problem.data.num_subjects]
    if method.scale.unit_slopes:
        estimates = _without_slopes(estimates)
    estimates = dataclasses.replace(estimates, problem=problem, populations=populations)
    if is_rescaled(problem):
        estimates = _rescaled(estimates, everyone, root)
    return estimates


class GroupPosteriors(NodePosteriors):
    """Posteriors of abilities in groups, whose errors count those of the groups."""

    def errors(self, coordinates: Array, kind: str) -> ParameterErrors:
        """Errors of the items, and a root of the covariance of the populations."""
        method, point = self.solution.method, self.solution.fit.state.best
        problem, constraints = self.problem, method.constraints
        if constraints is None:
            errors = super().errors(coordinates, kind)
            covariance = errors.covariance
            assert covariance is not None
        else:
            number = problem.free.size + 2
            if number > DENSE_LIMIT:
                return ParameterErrors(warnings=(_too_many(number),))
            of = problem, coordinates, self.population, self.nodes
            information = np.asarray(information_matrix(*of))
            covariance = _constrained(information, constraints, problem.free)
            errors = ParameterErrors()
        carry, density = self.solution.fit.state.carry, self.population
        cross, own = _information(problem, method, point, density, carry)
        image = _applied(covariance, np.asarray(cross, np.float64))
        at_bound = _at_bound(density, carry, point)
        size = _size(problem, self.solution)
        root = _group_root(cross, own, image, method, point, size, at_bound)
        if root is None:
            return ParameterErrors(warnings=(*errors.warnings, INDEFINITE))
        covariance = _with_groups(covariance, -np.einsum("vr,vja->rja", root, image))
        return errors._replace(covariance=covariance, group_root=root)

    def moves(self, errors: ParameterErrors) -> Array | None:
        """How the evidence of each subject moves along the rows of the covariance."""
        root, point = errors.group_root, self.solution.fit.state.best
        if root is None or errors.covariance is None:
            return None
        mean, precision = np.asarray(point.mean), np.exp(-2 * np.asarray(point.log_sd))
        of_mean, of_sd = np.split(root, 2)
        first = precision[:, None] * (of_mean - 2 * mean[:, None] * of_sd)
        second = -2 * precision[:, None] * of_sd
        moves = np.stack([first, second], axis=1)
        rest = len(errors.covariance.shared) - root.shape[1]
        moves = np.pad(moves, ((0, 0), (0, 0), (rest, 0)))
        return jnp.asarray(moves, self.nodes.dtype)[self.solution.method.codes]

    def fields(self, errors: ParameterErrors, scores: dict[str, Any]) -> dict[str, Any]:
        """Other fields of `Estimates`, with the populations."""
        method, point = self.solution.method, self.solution.fit.state.best
        sd, root = np.exp(np.asarray(point.log_sd, np.float64)), errors.group_root
        populations = {
            "names": np.asarray(method.names),
            "size": np.asarray(_size(self.problem, self.solution), np.float64),
            "mean": np.asarray(point.mean, np.float64),
            "sd": sd,
            "group": np.asarray(method.codes),
            "root": root,
            **({} if root is None else _errors_of(root, sd)),
        }
        return {**super().fields(errors, scores), "populations": populations}


def _without_slopes(estimates: Estimates) -> Estimates:
    """Estimates without the column of the slopes, which are fixed."""
    covariance = estimates.covariance
    if covariance is not None:
        lost, scale, lost_cross = covariance.lost
        covariance = covariance._replace(
            items=covariance.items[:, 1:, 1:],
            items_scale=covariance.items_scale[:, 1:],
            shared=covariance.shared[:, :, 1:],
            lost=(lost[:, 1:, 1:], scale, lost_cross[:, 1:]),
        )
    coordinates = estimates.coordinates[:, 1:]
    return dataclasses.replace(
        estimates, coordinates=coordinates, covariance=covariance
    )


def _rescaled(
    estimates: Estimates, everyone: Population, root: np.ndarray | None
) -> Estimates:
    """Estimates in units of the standard deviation S of all subjects, a common slope.

    An ability t / S moves with log S by -t / S; log S is the covariance's second moment
    of the population.
    """
    sd = float(everyone.sd)
    items, population = estimates.parameters.items, estimates.parameters.population
    slope = jnp.full_like(items.discrimination, sd)
    parameters = estimates.parameters._replace(
        items=items._replace(discrimination=slope),
        population=Population(population.mean / sd, jnp.ones_like(population.sd)),
    )
    populations = dict(estimates.populations or {})
    mean = populations["mean"] = populations["mean"] / sd
    populations["sd"] = populations["sd"] / sd
    ability, error = estimates.ability / sd, estimates.error / sd
    shared, covariance = estimates.shared, estimates.covariance
    if covariance is not None and root is not None:
        size = populations["size"]
        share, variance = size / size.sum(), populations["sd"] ** 2
        gradient = np.stack([share * mean / sd, share * variance])
        moves = gradient.ravel() @ root
        of_mean, of_sd = np.split(root, 2)
        by_unit = of_mean / sd - mean[:, None] * moves, of_sd - moves
        populations |= _errors_of(np.concatenate(by_unit), populations["sd"])
        moves = np.pad(moves, (len(covariance.shared) - len(moves), 0))
        if shared is not None:
            before, shared = shared / sd, shared / sd - ability[:, None] * moves
            added = np.sum(shared**2 - before**2, axis=1)
            error = np.sqrt(error**2 + added)
        covariance = _with_scale(covariance, moves)
    return dataclasses.replace(
        estimates,
        parameters=parameters,
        populations=populations,
        ability=ability,
        error=error,
        shared=shared,
        covariance=covariance,
    )


def _with_scale(covariance: Covariance, moves: np.ndarray) -> Covariance:
    """The covariance with the errors of log S, of which its rows have `moves`."""
    by_row = jnp.asarray(moves, covariance.items.dtype)
    cross = jnp.einsum("rja,r->ja", covariance.shared, by_row)
    return covariance._replace(
        scale=covariance.scale.at[1, 1].set(by_row @ by_row),
        items_scale=covariance.items_scale.at[:, :, 1].set(cross),
        shared_scale=covariance.shared_scale.at[:, 1].set(by_row),
        rescaled=jnp.asarray(True),
    )


def _errors_of(root: np.ndarray, sd: np.ndarray) -> dict[str, np.ndarray]:
    """Errors of means and standard deviations from a root of their covariance."""
    of_mean, of_sd = np.split(root, 2)
    return {
        "mean_error": np.linalg.norm(of_mean, axis=1),
        "sd_error": np.linalg.norm(of_sd, axis=1) * sd,
        "mean_covariance": of_mean @ of_mean.T,
    }


def _size(problem: Problem, solution: Any) -> Array:
    """`[groups]` number of subjects."""
    dtype = solution.fit.state.best.mean.dtype
    return jnp.sum(solution.method.members(problem.data, dtype), axis=0)


def _at_bound(density: Population, carry: Any, point: GroupPoint) -> np.ndarray:
    """Which standard deviations are at their bound."""
    least = float(least_sd(density, carry.nodes))
    return np.exp(np.asarray(point.log_sd, np.float64)) <= 1.01 * least


def _num_added(problem: Problem, method: Any) -> int:
    """Estimated moments of groups, less the coordinates of items that are equal."""
    groups, scale, added = len(method.names), method.scale, 0
    if method.constraints is not None:
        sets, equal = method.constraints
        count = np.bincount(np.asarray(sets))[np.asarray(sets)]
        added -= round(float(np.sum((1 - 1 / count) @ (equal & problem.free))))
    added += 2 * groups - (groups - 1) * (scale.equal_means + scale.equal_sds)
    return added - (0 if scale.anchored else 2 - scale.unit_slopes)


def _warnings(problem: Problem, solution: Any) -> tuple[str, ...]:
    """That standard deviations are at their bound, or moments not identified."""
    method, state = solution.method, solution.fit.state
    density, scale, warnings = solution.fit.parameters.population, method.scale, []
    names = np.asarray(method.names)[_at_bound(density, state.carry, state.best)]
    if len(names):
        warnings.append(
            f"the standard deviation of {counted(len(names), 'group')} is at its lower"
            f" bound, {float(least_sd(density, state.carry.nodes)):.2g}:"
            f" {', '.join(names[:4])}"
        )
    for equal, moment, name in (
        (scale.equal_means, "mean", problem.model.family.intercept_name),
        (scale.equal_sds, "standard deviation", "discrimination"),
    ):
        if equal:
            warnings.append(
                f"all groups have one {moment} of ability, since no item has the same"
                f" {name} in all groups, so that abilities of different groups are on"
                " different scales; leave items out of free_by_group to compare them"
            )
    return tuple(warnings)


@stored_jit
def _information(problem, method, point, population, carry) -> tuple[Array, Array]:
    """A `[2 groups, items, columns]` and B, by derivatives of the gradients."""
    members = method.members(problem.data, point.mean.dtype)
    size, shape = jnp.sum(members, axis=0), (2, len(method.names))

    def gradients(flat):
        mean, log_sd = flat.reshape(shape)
        at = point._replace(mean=mean, log_sd=log_sd)
        counts, _ = pass_of(problem, method.codes, at, population, carry)
        nodes = population.mean + population.sd * carry.nodes
        items = expected_derivatives(
            problem.model, point.coordinates, nodes, counts, carry.frame
        ).gradient
        assert counts.mean is not None and counts.variance is not None
        gap = counts.mean - mean[method.codes]
        square = (counts.variance + gap**2) @ members * jnp.exp(-2 * log_sd)
        own = jnp.stack([gap @ members * jnp.exp(-2 * log_sd), square - size])
        return jnp.where(problem.free, items, 0), own.ravel()

    flat = jnp.stack([point.mean, point.log_sd]).ravel()
    along = lambda v: jax.jvp(gradients, (flat,), (v,))[1]
    cross, own = jax.lax.map(along, jnp.eye(flat.size, dtype=flat.dtype))
    return -cross, -own


def _own_blocks(covariance: Covariance) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of the errors that items do not share, and rows of those they share."""
    items, shared = np.asarray(covariance.items), np.asarray(covariance.shared)
    return items - np.einsum("rja,rjb->jab", shared, shared), shared


def _applied(covariance: Covariance, vectors: np.ndarray) -> np.ndarray:
    """The covariance of all items times vectors `[count, items, columns]`."""
    own, shared = _own_blocks(covariance)
    along = np.einsum("rja,vja->rv", shared, vectors)
    return np.einsum("jab,vjb->vja", own, vectors) + np.einsum(
        "rv,rja->vja", along, shared
    )


def _constrained(
    information: np.ndarray, constraints: EqualityConstraints, free: Array
) -> Covariance:
    """The inverse information under equality constraints, all of it in shared rows.

    Directions without information are left out, as by `inference.inversion`.
    """
    sets, equal = (np.asarray(x) for x in constraints)
    is_free = np.asarray(free)
    _, first, inverse = np.unique(sets, return_index=True, return_inverse=True)
    places = np.arange(is_free.size).reshape(is_free.shape)
    # The place of the coordinate that each one is equal to: of the first of its set.
    place = np.where(equal, places[first[inverse]], places)[is_free]
    used, column = np.unique(place, return_inverse=True)
    spread = np.zeros((is_free.size, len(used)))
    spread[places[is_free], column] = 1
    # In double precision, but with the limit of the precision of the information.
    reduced = spread.T @ information.astype(np.float64) @ spread
    size = np.sqrt(np.maximum(np.diagonal(reduced), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(reduced / size / size[:, None])
    limit = flat(information.dtype)
    bad = values <= limit
    root = vectors / np.sqrt(np.maximum(np.abs(values), limit))
    rows = (spread @ (root / size[:, None])).T.reshape(-1, *is_free.shape)
    shared, lost = jnp.asarray(rows[~bad]), jnp.asarray(rows[bad])
    blocks = lambda x: jnp.einsum("rja,rjb->jab", x, x)
    made = Covariance.of_independent(blocks(shared))
    _, *rest = made.lost
    return made._replace(
        shared=shared,
        shared_scale=jnp.zeros((len(shared), 2), shared.dtype),
        definite=jnp.asarray(not bad.any()),
        lost=(blocks(lost), *rest),
        negative=jnp.asarray(np.sum(values < -limit), jnp.int32),
    )


def _group_root(
    cross: Array,
    own: Array,
    image: np.ndarray,
    method: Any,
    point: GroupPoint,
    size: Array,
    at_bound: np.ndarray,
) -> np.ndarray | None:
    """A root of V, `[2 groups, rank]`: of the means, then log standard deviations.

    `image` is X. Standard deviations at their bound are fixed. None where V is not
    positive definite.
    """
    vectors, rest = np.asarray(cross, np.float64), np.asarray(own, np.float64)
    rest = rest - np.einsum("vja,wja->vw", vectors, image)
    rest = (rest + rest.T) / 2
    mean, sd = np.asarray(point.mean), np.exp(np.asarray(point.log_sd))
    scale, count = method.scale, np.asarray(size, np.float64)
    of_means, of_sds = np.split(np.eye(len(rest)), 2)
    fixed = [of_sds[at_bound]]
    if scale.equal_means:
        fixed.append(of_means[1:] - of_means[:1])
    if scale.equal_sds:
        fixed.append(of_sds[1:] - of_sds[:1])
    if not scale.anchored:
        fixed.append(count[None] @ of_means)
        if not scale.unit_slopes:
            gradient = (count * mean) @ of_means + (count * sd**2) @ of_sds
            fixed.append(gradient[None])
    constraints = np.concatenate(fixed)
    directions = np.eye(len(rest))
    if len(constraints):
        directions = scipy.linalg.null_space(constraints)
    values, axes = np.linalg.eigh(directions.T @ rest @ directions)
    if not np.all(values > 1e-8 * np.abs(values).max(initial=0)):
        return None
    return directions @ axes / np.sqrt(values)


def _with_groups(covariance: Covariance, rows: np.ndarray) -> Covariance:
    """The covariance of the items with the errors of the populations, as last rows."""
    dtype = covariance.items.dtype
    added = jnp.asarray(np.einsum("rja,rjb->jab", rows, rows), dtype)
    shared = covariance.shared[: RANK + 2], jnp.asarray(rows, dtype)
    of_scale = jnp.zeros((len(rows), 2), dtype)
    return covariance._replace(
        items=covariance.items + added,
        shared=jnp.concatenate(shared),
        shared_scale=jnp.concatenate([covariance.shared_scale[: RANK + 2], of_scale]),
    )


def _too_many(number: int) -> str:
    """Warning of a fit with more parameters than constraints allow errors of."""
    return (
        f"no standard errors: with free_by_group there are some up to {DENSE_LIMIT:,}"
        f" parameters of items, and here are {number:,}; use fewer items, or the"
        " bootstrap"
    )

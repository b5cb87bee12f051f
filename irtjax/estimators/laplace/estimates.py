"""Estimates of the Laplace approximation, with errors that include its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import Status
from irtjax.data.table import FEW_SUBJECTS, LEAST_INTEGRATED
from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates, GroupEstimates
from irtjax.estimators.laplace.components import log_prior, num_effective, without_end
from irtjax.estimators.laplace.direction import in_any_direction, in_directions
from irtjax.estimators.laplace.errors import Errors, errors_of
from irtjax.estimators.laplace.expected_scores import mean_responses
from irtjax.estimators.laplace.problem import LaplaceState, MultilevelProblem
from irtjax.inference import Covariance
from irtjax.likelihood.problem import Parameters, Problem
from irtjax.models.families.bounded import log_base_total
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.model import Model, Population
from irtjax.models.multilevel.covariance_mixture import Possible, general_weights
from irtjax.models.multilevel.model import MultilevelModel, general_variance
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import note_share
from irtjax.ranking import scale_loadings

#: Responses in all below which intervals cover less often than stated, as they do with
#: few subjects (docs/evidence/index.md).
LEAST_RESPONSES = 800
#: Share of accepted proposals below which draws of Sigma are unreliable.
LEAST_ACCEPTED = 0.4
FEW_ACCEPTED = (
    "the uncertainty of the covariance and scales of abilities could not be sampled:"
    " standard errors are too small; use method='nuts'"
)
#: Warning where a given prior of discriminations cannot be included exactly.
OTHER_SLOPES = (
    "the prior given for discriminations is not log-normal: method='laplace' does not"
    " identify the scale of ability under it; give LogNormal(mean, sd), or use"
    " method='nuts'"
)
#: Items in a group below which `laplace` has not been compared with the truth.
FEW_ITEMS = 20

#: Draws of Sigma that are kept with a fit, for the errors of new subjects.
NUM_POSSIBLE = 200


def summary_of_laplace(
    problem: MultilevelProblem, method: Any, state: LaplaceState, level: float = 0.95
) -> GroupEstimates:
    """Results of `laplace`, at the most probable covariance."""
    model, components = problem.model, state.components
    compiled = problem.by_distinct()
    groups, errors = model.num_groups, errors_of(problem, method, state)
    orders = {"order": method.order, "num_newton": method.num_newton}
    expected = mean_responses(problem, state, errors.given, errors.follow, **orders)
    note_share(1.0)
    own = np.zeros((1, 1))
    if groups > 1:
        own = np.asarray(_specific_covariance_jit(compiled.model, components))
    variance = float(general_variance(components.log_general_sd))
    weights, _ = general_weights(own, variance)
    ability = state.ability_on_host
    subjects = len(ability)
    of_subjects = np.asarray(components.subject_effects, float)
    mean = np.asarray(model.subject_design, float) @ of_subjects
    conditional, of_effects = _with_subject_effects(model, errors.given, own + variance)
    # The mean covariance given Sigma, plus that of the means given Sigma.
    whole = errors.covariance + conditional - errors.given
    error = np.sqrt(np.diag(whole)).reshape(groups, subjects).T
    covariance, left, moved = _errors_of_general(
        errors, conditional, own, variance, mean
    )
    general = mean + (ability - mean[:, None]) @ weights
    if not np.isfinite(covariance).all():
        raise ValueError(
            "the abilities have no finite errors: the responses do not identify"
            " discriminations; use model='rasch' ('pcm' for ordered responses)"
        )
    roots, vectors = np.linalg.eigh(covariance)
    place = np.asarray(problem.distinct.of_stem)
    of_items = np.asarray(state.covariance, float)[place]
    columns = np.arange(of_items.shape[-1])
    of_items[:, columns, columns] += errors.items[place]
    of_items = of_items[np.asarray(model.stem)]
    effects = np.asarray(components.effects, float) * np.asarray(model.regressed)
    if model.has_group_effects:
        shifts = np.asarray(components.group_effects, float)
        effects = np.concatenate([effects, shifts])
    coordinates = _coordinates_of(problem, state)
    levels, items = components.log_component_sd, components.log_residual_sd
    relative = np.asarray(components.log_relative_sd) + np.asarray(items)
    log_sds = levels, items, relative
    possible = errors.possible if groups > 1 else None
    bounds = None if possible is None else correlation_bounds(possible.own, level)
    return GroupEstimates(
        general,
        np.sqrt(np.diag(covariance) + left),
        vectors * np.sqrt(np.maximum(roots, 0)),
        ability,
        error,
        coordinates,
        of_items,
        own,
        bounds,
        effects,
        (of_subjects, of_effects),
        variance,
        thinned(_with_origins(model, possible)),
        standard_deviations(
            compiled.model, *(np.exp(np.asarray(log_sd, float)) for log_sd in log_sds)
        ),
        errors.accepted,
        scale_loadings(general, moved.T / len(moved) ** 0.5),
        (np.asarray(expected.mean, float), np.asarray(expected.standard_error, float)),
    )


def _coordinates_of(problem: MultilevelProblem, state: LaplaceState) -> np.ndarray:
    """Posterior means of the coordinates of the items, `[items, columns]`."""
    model, place = problem.model, np.asarray(problem.distinct.of_stem)
    coordinates = np.asarray(state.mean, float)[place][np.asarray(model.stem)]
    if model.has_group_effects:
        shifts = np.asarray(state.components.group_effects, float)
        coordinates = coordinates + shifts[np.asarray(model.group)]
    return model.family.with_offsets(coordinates)


def point_estimates(problem: MultilevelProblem, solution: Any) -> Parameters:
    """Items and population of a fit by `laplace`, as `laplace_estimates` has them.

    Without errors, which take as long as a fit of few subjects.
    """
    state, family = solution.fit.state, problem.model.family
    if solution.directions is not None:
        problem = in_directions(problem, solution.directions.sign)
    coordinates = _coordinates_of(problem, state)
    if solution.directions is not None:
        sign = solution.directions.of(np.asarray(problem.model.stem)).sign
        free = family.with_any_sign()
        if (sign < 0).any() and free is not None:
            zeros = np.zeros((*coordinates.shape, coordinates.shape[1]))
            coordinates, _ = in_any_direction(coordinates, zeros, sign)
            family = free
    coordinates = jnp.asarray(coordinates, problem.model.design.dtype)
    sd = float(general_variance(state.components.log_general_sd)) ** 0.5
    return Parameters(
        _constrain_jit(family, coordinates), _population(sd, coordinates.dtype)
    )


def standard_deviations(
    model: MultilevelModel, components, items, clusters
) -> np.ndarray:
    """`GroupEstimates.standard_deviations` from its parts."""
    learned = np.asarray(model.regressed)
    levels, estimated = (np.asarray(x) for x in _learned_jit(model))
    identified = np.concatenate([(levels > 0) & learned, learned[None], estimated])
    return np.where(
        identified, np.concatenate([components, items[None], clusters]), np.nan
    )


def _errors_of_general(
    errors: Errors, conditional, own, variance: float, mean: np.ndarray
):
    """Covariance of general abilities, their variance given all abilities, and moves.

    Averages over draws; the covariance includes the variation of weights, scales and
    means over these. `given` is the covariance of the abilities given Sigma, here
    `own`.
    """
    possible, subjects = errors.possible, len(mean)
    moved = np.zeros((1, subjects))
    if possible is None:
        weights, left = general_weights(own[None], np.array([variance]))
    else:
        weights, left = general_weights(possible.own, possible.variance)
        centre = possible.unit[:, None] * mean[:, None]
        moved = np.einsum("kna,ka->kn", errors.ability - centre, weights)
        moved = moved + possible.unit.mean(axis=1)[:, None] * mean
        moved = moved - moved.mean(axis=0)
    groups = weights.shape[1]
    blocks = conditional.reshape(groups, subjects, groups, subjects)
    products = weights.T @ weights / len(weights)
    covariance = np.einsum("ab,anbk->nk", products, blocks)
    return covariance + moved.T @ moved / len(moved), float(left.mean()), moved


def thinned(possible: Possible | None) -> Possible | None:
    """Some of the draws, far apart, to keep with the fit."""
    if possible is None:
        return None
    at = np.linspace(0, len(possible.own) - 1, NUM_POSSIBLE).round().astype(int)
    return Possible(*(part[np.unique(at)] for part in possible))


def _with_origins(model: MultilevelModel, possible: Possible | None) -> Possible | None:
    """The draws with locations drawn too: the error of the mean of the subjects."""
    if possible is None or not model.num_shifts:
        return possible
    rng = np.random.default_rng(0)
    covariance = possible.own + possible.variance[:, None, None]
    noise = rng.normal(size=(*possible.unit.shape, 1))
    if model.num_shifts == 1:
        # A common shift of all groups is identified by their prior alone.
        precision = np.linalg.inv(covariance).sum(axis=(1, 2))
        origin = noise[:, :1, 0] / np.sqrt(precision)[:, None]
        origin = origin * np.ones(model.num_groups)
    else:
        origin = (np.linalg.cholesky(covariance) @ noise)[:, :, 0]
    return possible._replace(origin=origin / model.subject_design.shape[0] ** 0.5)


def correlation_bounds(own: np.ndarray, level: float):
    """Bounds of the correlations in draws of Sigma, lower and upper."""
    sd = np.sqrt(np.einsum("dmm->dm", own))
    ratio = own / sd[:, :, None] / sd[:, None, :]
    tail = (1 - level) / 2
    return tuple(np.quantile(ratio, [tail, 1 - tail], axis=0))


def _with_subject_effects(
    model: MultilevelModel, whole: np.ndarray, subject_covariance: np.ndarray
):
    """Covariance of the abilities with that of effects of subjects' covariates.

    Of abilities N(Z gamma, C) whose covariance given gamma is V, gamma has the
    information Z' (P - P V P) Z, P the inverse of C (Louis' identity), and they move
    by V P Z with it. `whole` is V, `subject_covariance` that of a subject's abilities.
    Returns also the covariance of gamma.
    """
    design = np.asarray(model.subject_design, float)
    if not design.shape[1]:
        return whole, np.zeros((0, 0))
    held = np.kron(np.linalg.inv(subject_covariance).sum(axis=1)[:, None], design)
    moved = whole @ held
    square = design.T @ design * np.linalg.inv(subject_covariance).sum()
    ridge = model.hyperpriors.subject_effect**-2.0
    information = square - held.T @ moved + ridge * np.eye(design.shape[1])
    # Never less than the prior's: a covariate may have no information.
    roots, vectors = np.linalg.eigh(information)
    covariance = (vectors / np.maximum(roots, ridge)) @ vectors.T
    return whole + moved @ covariance @ moved.T, covariance


@stored_jit
def _specific_covariance_jit(model: MultilevelModel, components):
    """`MultilevelModel.specific_covariance` in one program."""
    return model.specific_covariance(components)


@stored_jit
def _numbers_jit(model: MultilevelModel, components):
    """Log prior and effective number of effects and variances."""
    return log_prior(model, components), num_effective(model, components)


@stored_jit
def _constrain_jit(family: AbstractResponseFamily, coordinates: jax.Array):
    """Item records of coordinates `[items, columns]`."""
    return jax.vmap(family.constrain)(coordinates)


@stored_jit
def _learned_jit(model: MultilevelModel):
    """Numbers of identified effects, and masks of clusters with identified SDs."""
    return model.identified_components, model.identified_clusters


def _population(sd: float, dtype: Any) -> Population:
    """Normal abilities of mean 0, made without a program."""
    return Population(*jax.device_put((np.zeros((), dtype), np.asarray(sd, dtype))))


_without_end_jit = stored_jit(without_end)


def laplace_estimates(
    problem: MultilevelProblem, solution: Any, *, level: float
) -> Estimates:
    """Estimates of the Laplace approximation, errors averaged over the covariances."""
    fit, directions = solution.fit, solution.directions
    if directions is not None:
        problem = in_directions(problem, directions.sign)
    summary = summary_of_laplace(problem, solution.method, fit.state, level)
    ends = _without_end_jit(problem.model, fit.state.components)
    gone, wide = (np.asarray(x) & (int(fit.status) == Status.STALLED) for x in ends)
    warnings = _warnings(problem, fit, gone, wide)
    if summary.accepted < LEAST_ACCEPTED:
        warnings.append(FEW_ACCEPTED)
    if problem.expected and "discrimination" in problem.model.priors:
        warnings.append(OTHER_SLOPES)
    summary = summary._replace(vanishing=gone)
    return multilevel_estimates(problem, solution, summary, tuple(warnings))


def multilevel_estimates(
    problem: MultilevelProblem,
    solution: Any,
    groups: GroupEstimates,
    warnings: tuple[str, ...],
    verdict: tuple[str, ...] = (),
) -> Estimates:
    """Estimates of a multilevel model from its summary and the fit by `Laplace`."""
    fit, family, data = solution.fit, problem.model.family, problem.data
    groups, directions = groups._replace(group=np.asarray(problem.model.group)), None
    if solution.directions is not None:
        directions = solution.directions.of(np.asarray(problem.model.stem))
        if (directions.sign < 0).any():
            coordinates, covariance = in_any_direction(
                groups.coordinates, groups.covariance, directions.sign
            )
            groups = groups._replace(coordinates=coordinates, covariance=covariance)
            free = family.with_any_sign()
            assert free is not None
            family = free
    components = fit.state.components
    # Slopes of 1 leave the scale of ability to the items, as in the Rasch model.
    scale = "standard" if family.has_slope else "unit_slope"
    model = Model("multilevel", family, dict(problem.model.priors), scale)
    coordinates = jnp.asarray(groups.coordinates, problem.model.design.dtype)
    items = _constrain_jit(family, coordinates)
    population = _population(groups.variance**0.5, coordinates.dtype)
    compiled = problem.by_distinct().model
    log_prior, count = map(float, _numbers_jit(compiled, components))
    log_likelihood = float(fit.objective) - log_prior
    log_likelihood += log_base_total(model, items, data)
    steps, draws = int(fit.num_steps), solution.draws
    if draws is not None:
        steps = int(np.prod(next(iter(draws.values.values())).shape[:2]))
    return Estimates(
        problem=Problem.create(model, data),
        parameters=Parameters(items, population),
        coordinates=coordinates,
        covariance=Covariance.of_independent(jax.device_put(groups.covariance)),
        ability=groups.general,
        error=groups.general_error,
        shared=groups.shared,
        expected=groups.expected,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        num_parameters=round(count),
        status=Status(int(fit.status)) if solution.status is None else solution.status,
        num_steps=steps,
        trace=np.asarray(fit.trace)[: int(fit.num_steps)],
        residual=float(fit.residual),
        priors=frozenset(p.name for p in family.parameters) | {"discrimination"},
        finite=True,
        scale=np.zeros(len(groups.general)) + groups.scale,
        warnings=warnings,
        groups=groups,
        normal=_assumes_normal(problem.model),
        draws=draws,
        verdict=verdict,
        directions=directions,
    )


def _warnings(problem: MultilevelProblem, fit, gone, wide) -> list[str]:
    """Warnings about a fit by `laplace`."""
    model, data, status = problem.model, problem.data, Status(int(fit.status))
    diverged = divergence_warnings(model, wide) if status == Status.STALLED else []
    unsolved = status != Status.CONVERGED and not diverged and not gone.any()
    num_observed = data.values.size
    if data.observed is not None:
        num_observed = int(np.sum(np.asarray(data.observed)))
    subjects, groups = model.subject_design.shape[0], model.num_groups
    few = num_observed < LEAST_RESPONSES or subjects < FEW_SUBJECTS
    # Where means are compared the coverage of differences is nobody's concern.
    tested = subjects >= LEAST_INTEGRATED or not model.family.has_slope
    pairs = "of differences covered 88 to 98 %, " * tested
    fewest = int(np.bincount(np.asarray(model.group), minlength=groups).min())
    said = {
        f"{status.explain()} (residual {float(fit.residual):.2g}): treat the"
        " estimates as provisional; raise max_steps, or use method='nuts'": unsolved,
        f"{subjects} subjects and {num_observed:,} responses are few: in"
        f" simulations of such sizes 95 % intervals {pairs}of expected scores covered"
        " 85 to 96 %; add subjects or items": groups == 1 and few,
        f"a group has {counted(fewest, 'item')}: method='laplace' needs"
        f" about {FEW_ITEMS} in each group to be near the posterior; use"
        " method='nuts'": fewest < FEW_ITEMS,
        "two groups identify the correlation of their abilities only: the"
        " standard deviations of group-specific abilities, and so the scale of the"
        " general ability, depend on their priors": groups == 2,
        f"correlations of {groups} groups from {subjects} subjects depend on their"
        " prior, whose mean is 0": groups > 1 and subjects < 5 * groups,
        f"with {subjects} subjects the errors of method='laplace' omit the uncertainty"
        " of the variances of items; method='nuts' includes it": (
            subjects < 30 and groups > 1
        ),
    }
    return diverged + [message for message, applies in said.items() if applies]


def _assumes_normal(model: MultilevelModel) -> bool:
    """Whether the abilities of all subjects are draws of one N(0, 1)."""
    alone = model.num_groups == 1 and model.family.has_slope
    return alone and not model.subject_design.shape[1]


def divergence_warnings(model: MultilevelModel, wide: np.ndarray) -> list[str]:
    """Which variance components of items have no finite estimate."""
    parameters = zip(model.column_parameters, wide, strict=False)
    names = dict.fromkeys(parameter.name for parameter, at in parameters if at)
    return [
        f"not converged: the standard deviation of the items' {name} diverges: many"
        " items are nearly unrelated to ability. Leave those out, or give a prior,"
        f" priors={{'{name}': LogNormal(0, 0.5)}}"
        for name in names
    ]

"""Joint maximum likelihood by block majorisation-minimisation.

The algorithm of the constrained block MM paper (cBMM): bound the log-likelihood below
by a quadratic, maximise it exactly in the items and then in the abilities. Added here:
an exact joint update of slope and intercept, missing cells and trials in every update,
priors, the best change of ability scale after each iteration, a safeguarded Anderson
acceleration, other links, and ordered categories.

Intercepts of ordered categories are raised by Newton steps before each update (`cuts`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.data.sparse_responses import by_cell
from irtjax.data.sparse_table import FEW_OBSERVED
from irtjax.estimators.ascent import AbstractAscent, AscentState, Image
from irtjax.estimators.driver import Run, RunSettings, Solution, tree_where
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.joint.base import AbstractPenalised, start_abilities
from irtjax.estimators.joint.bound import (
    BilinearParameters,
    ItemSweep,
    Quadratic,
    add_normal_prior,
    update_items,
    update_subjects,
)
from irtjax.estimators.joint.cells import AbstractCells, cells_of
from irtjax.estimators.joint.constraints import (
    EARLY_STEPS,
    feasible,
    free_mask,
    free_slopes,
)
from irtjax.estimators.joint.cuts import (
    CutPrior,
    closed,
    keep_order,
    leaders,
    raise_cuts,
    residual_of,
)
from irtjax.estimators.joint.group_lasso import GroupLasso
from irtjax.estimators.joint.objective import (
    ability_prior,
    best_fold,
    check_penalty,
    identify,
    identify_factors,
    is_movable,
    penalty_terms,
    weighted_moments,
)
from irtjax.estimators.joint.sparse import (
    cells_note,
    sweep_responses,
    sweep_subjects,
)
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    is_positive,
    report_scale,
)
from irtjax.models.catalogue import weak_priors
from irtjax.models.families.graded import Graded, SpacedGraded, is_mark
from irtjax.models.model import Model, Population
from irtjax.models.priors import LogNormal, Normal
from irtjax.numerics.kernels import weigh_rows


class MM(AbstractAscent, AbstractPenalised):
    """Joint maximum likelihood (or joint MAP) of models with a bounded curvature.

    These are the logistic and the probit 1PL and 2PL, graded and partial credit models,
    and factor models of their responses. Maximises
    sum log p + penalty (log N(theta; 0, I) + item log priors), the first prior as given
    by `Problem.prior`, with P = F((a theta + d) / s).

    The residual is the largest share of a gradient that does not cancel, |g| over the
    sum of its absolute terms (plus a hundredth of the curvature bound times 1 + |x|,
    for gradients whose terms all vanish), where a slope at 0 may be pushed against its
    bound: 0 exactly where the KKT conditions hold.
    Joint item estimates are biased when subjects have few responses; those of the
    marginal method `EM` are not.

    Attributes:
        tolerance: Converged when the criterion is at most this; None for 1e-6 (in
            single precision 3e-5, or 3e-4 of ordered categories) on the KKT residual or
            1e-4 on the relative change.
        penalty: Weight of all log priors; 0 is plain maximum likelihood, for which
            `diverging` marks the subjects and items without a finite estimate.
            `irtjax.fit` of a factor model takes "noise", too, by name: see
            `irtjax.estimators.noise_rank`.
        temperature: s. Priors apply to a and d on the scale of eta = a theta + d, and
            reported items are a / s and d / s, so that P = F(a theta + d) with the
            reported values. (With unit slopes it is theta that is divided by s.)
        stop: "kkt", or "relative_change" for the looser rule of the cBMM paper.
        memory: Depth of the acceleration; 0 turns it off.
        lasso: lambda of a penalty -sum_j lambda_j sd(a_j'theta), a number or one for
            each item; None for none. The standard deviation is that over the sample: a
            change of the scale of ability does not change the penalty. With one ability
            slopes are kept at or above 0, and with abilities of standard deviation 1 a
            slope is 0 where the score sum_i theta_i (y_ij - p_ij) is at most lambda_j.
            With several, of any sign, all slopes of an item are 0 together, where the
            length of that vector is at most lambda_j (`group_lasso`).
        curvature: The bound of the curvature of logistic cells: "uniform", 1/4 for all
            (Boehning and Lindsay 1988), or "cell", tanh(eta / 2) / (2 eta) of each
            (Jaakkola and Jordan 2000). "cell" takes fewer steps, far fewer from poor
            start values, and each takes longer. The optimum is the same.

    >>> import irtjax
    >>> data = irtjax.Responses(jnp.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]], jnp.int8))
    >>> problem = irtjax.Problem.create(irtjax.MODELS["2pl"](), data)
    >>> start = irtjax.start_values(problem.model, data)
    >>> fit = eqx.filter_jit(irtjax.run)(problem, MM(), start)  # One program.
    >>> int(fit.status)  # Status.CONVERGED
    0
    """

    several: ClassVar[bool] = True
    runs: ClassVar[RunSettings] = AbstractPenalised.runs._replace(max_steps=5000)

    tolerance: float | Array | None = None
    penalty: float = eqx.field(static=True, default=1.0)
    temperature: float | Array = 1.0
    stop: str = eqx.field(static=True, default="kkt")
    memory: int = eqx.field(static=True, default=10)
    lasso: float | Array | None = None
    curvature: str = eqx.field(static=True, default="uniform")

    def _cells(self, model: Model) -> AbstractCells:
        """What the bound needs of the responses of a model."""
        return cells_of(model, self.curvature)

    @property
    def _sparse(self) -> bool:
        """Whether discriminations have an l1 penalty."""
        return self.lasso is not None

    def share_of_cells(self, model: Model) -> float:
        """`FEW_OBSERVED` of models that have passes over cells."""
        return FEW_OBSERVED if model.family.by_cell else 0.0

    def divides(self, model: Any) -> bool:
        """Whether a model has one ability."""
        return not (model.multilevel or model.several or model.has_lengths)

    def adapted(self, model: Model) -> Model:
        """The bound is quadratic, and so must priors be: slopes are kept at or above 0.

        The log-normal prior of positive slopes becomes that of free ones.
        """
        family, prior = model.family, model.priors.get("discrimination")
        if isinstance(family, SpacedGraded):
            # The same model, in which the prior of each intercept is normal.
            family = Graded(family.categories, slopes="positive", codes=family.codes)
            model = dataclasses.replace(
                model, family=family, priors=weak_priors(family)
            )
            prior = model.priors["discrimination"]
        if not (family.has_slope and isinstance(prior, LogNormal)):
            return model
        priors = {**model.priors, "discrimination": Normal(1.0, 1.0)}
        return dataclasses.replace(model, priors=priors)

    def estimates(self, problem: Problem, solution: Solution, run: Run) -> Estimates:
        """Those of a joint method; with a lasso and one ability items have no errors.

        The information of the likelihood, in log slopes, is not that of the penalised
        objective, and a slope at 0 has no log.
        """
        notes = []
        if self._sparse and not problem.model.several:
            run = run._replace(options={**run.options, "standard_errors": "none"})
            notes.append(
                "items have no standard errors: a lasso penalises their discriminations"
            )
        if self._visits_cells(problem):
            notes.append(cells_note(problem.data))
        estimates = super().estimates(problem, solution, run)
        return dataclasses.replace(estimates, verdict=(*estimates.verdict, *notes))

    def _visits_cells(self, problem: Problem) -> bool:
        """Whether passes are over the observed cells alone, because they are few."""
        cuts = self._cells(problem.model).num_cuts
        return cuts <= 1 and problem.data.is_sparse

    def laid_out(self, problem: Problem) -> Problem:
        """The problem, with its observed cells alone where they are few."""
        if not self._visits_cells(problem):
            return problem
        return eqx.tree_at(lambda x: x.data, problem, by_cell(problem.data))

    def record(self) -> dict[str, Any]:
        """The settings that change the estimates, and the acceleration."""
        return {
            "penalty": self.penalty,
            "temperature": float(self.temperature),
            "stop": self.stop,
            "memory": self.memory,
            **({} if self.curvature == "uniform" else {"curvature": self.curvature}),
            **({"lasso": np.asarray(self.lasso).tolist()} if self._sparse else {}),
        }

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration."""
        return self.memory

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values; a ValueError for what does not suit the method.

        Its `carry` are the intercepts that move as one (`cuts.leaders`); None without
        cuts. The terms of the log prior are those of subjects, then of items.
        """
        self._check(problem)
        cells, slope = self._cells(problem.model), start.items.discrimination
        intercept, cuts = cells.split(start.items)
        together = None
        if cells.num_cuts > 1 and cuts is not None:
            together = leaders(problem, cells, intercept.dtype)
            intercept, cuts = closed(together, intercept, cuts)
        dtype, theta = intercept.dtype, start_abilities(problem, start)
        temperature = jnp.asarray(self.temperature, dtype)
        if problem.model.family.has_slope:
            slope = slope * temperature
        else:
            slope, theta = jnp.ones_like(intercept), theta * temperature
        rows = slope.reshape(intercept.size, -1), theta.reshape(theta.shape[0], -1)
        cuts = None if cuts is None else cuts * temperature
        point = BilinearParameters(rows[0], intercept * temperature, rows[1], cuts)
        terms = len(point.theta) + len(intercept)
        return self.first_state(point, len(point.theta), (terms,), carry=together)

    def check(self, problem: Problem) -> None:
        """Refuses what `irtjax.fit` cannot give to this method."""
        super().check(problem)
        self._check(problem)
        size = problem.data.num_items
        lasso: Any = 0.0 if self.lasso is None else self.lasso
        if np.shape(lasso) not in ((), (size,)):
            raise ValueError(
                f"lasso has shape {np.shape(lasso)}: give a number, or one for each of"
                f" {size} items"
            )
        if not isinstance(lasso, Tracer) and not np.all(np.asarray(lasso) >= 0):
            raise ValueError("lasso has a number below 0: give numbers of at least 0")

    def _check(self, problem: Problem) -> None:
        """Refuses models, priors and options that the bound does not cover."""
        model = problem.model
        self._cells(model)
        if self._sparse and is_positive(model) and model.several:
            raise ValueError(
                "lasso of several abilities is for slopes of any sign: leave out"
                " positive"
            )
        if self._sparse and not is_positive(model) and not model.several:
            raise ValueError(
                "lasso is for slopes kept at or above 0: use positive=True"
            )
        if self.stop not in ("kkt", "relative_change"):
            raise ValueError(f"stop {self.stop!r} is not 'kkt' or 'relative_change'")
        check_penalty(model, self.penalty, problem.anchored)
        for parameter in model.family.parameters if self.penalty else ():
            prior = model.priors.get(parameter.name)
            if not (prior is None or isinstance(prior, Normal)):
                raise ValueError(
                    f"MM needs a Normal prior for {parameter.name}, not"
                    f" {type(prior).__name__}: pass priors={{'{parameter.name}':"
                    " Normal(mean, sd)}, use Gradient, or use penalty=0"
                )

    def image(self, problem: Problem, state: AscentState) -> Image:
        """Raises items and abilities: two passes over the data."""
        point, together = state.point, state.carry
        cells = self._cells(problem.model)
        seen = sweep_responses(problem.data, point, self.temperature, cells)
        bounds = self._bounds(problem, point, seen.items, seen.subjects)
        image = self._image(problem, point, seen, bounds[0], together)
        lasso = self._lasso_at(problem, point.theta)
        residual = _kkt_residual(problem, point, seen, bounds, lasso)
        if seen.cuts is not None and together is not None:
            prior = self._cut_prior(problem)
            of_cuts = residual_of(problem, point, seen.cuts, together, prior)
            residual = jnp.maximum(residual, of_cuts)
        log_prior = self._log_prior(problem, point)
        scale = _scale_of(problem, point, seen, bounds)
        return Image(image, seen.log_lik, log_prior, residual, scale, together)

    def _log_prior(
        self, problem: Problem, point: BilinearParameters
    ) -> Float[Array, " rows"]:
        """What the objective has in addition to the likelihood, by subject and item."""
        terms = self._penalties(problem, point)
        lasso = self._lasso_at(problem, point.theta)
        if lasso is not None:
            lengths = lasso.lengths(free_slopes(problem, point))
            weighted = weigh_rows(lasso.pull * lengths, problem.data.item_weight)
            terms = terms.at[len(point.theta) :].add(-weighted)
        return terms

    def _penalties(
        self, problem: Problem, point: BilinearParameters
    ) -> Float[Array, " rows"]:
        """The log priors with their weight, of every subject, then of every item."""
        if not self.penalty:
            return jnp.zeros(len(point.theta) + len(point.intercept), point.theta.dtype)
        record = _record(problem.model, point)
        return self.penalty * penalty_terms(problem, record, point.theta)

    def _lasso_at(self, problem: Problem, theta: Array) -> GroupLasso | None:
        """The lasso at given abilities; None without one."""
        if not self._sparse:
            return None
        pull = jnp.asarray(self.lasso, theta.dtype)
        pull = jnp.broadcast_to(pull, (problem.data.num_items,))
        return GroupLasso.of(pull, theta, problem.data.subject_weight)

    def _bounds(
        self,
        problem: Problem,
        point: BilinearParameters,
        items: Quadratic,
        subjects: Quadratic,
    ) -> tuple[Quadratic, Quadratic]:
        """Adds priors to the bounds of the likelihood, a lasso to that in abilities."""
        subjects = self._with_ability_prior(problem, subjects, point)
        if self.penalty == 0:
            return items, subjects
        moments = []
        dims = point.theta.shape[1]
        for name in ("intercept", *["discrimination"] * dims):
            prior = problem.model.priors.get(name)
            normal = isinstance(prior, Normal)
            inverse = self.penalty / prior.sd**2 if normal else 0.0
            moments.append((prior.mean if normal else 0.0, inverse))
        mean, precision = jnp.array(moments, point.intercept.dtype).T
        if point.cuts is not None:  # The mean of as many intercepts has their priors.
            count = jnp.sum(~is_mark(point.cuts), axis=1).astype(precision.dtype)
            precision = jnp.broadcast_to(precision, point.stacked.shape)
            precision = precision.at[:, 0].multiply(count)
        items = add_normal_prior(items, point.stacked, mean, precision)
        return items, subjects

    def _with_ability_prior(
        self, problem: Problem, subjects: Quadratic, point: BilinearParameters
    ) -> Quadratic:
        """Adds what depends on abilities to a bound in them."""
        theta, lasso = point.theta, self._lasso_at(problem, point.theta)
        if lasso is not None:
            slopes = free_slopes(problem, point)
            precision = lasso.ability_precision(slopes, problem.data.item_weight)
            subjects = Quadratic(
                subjects.gradient + (lasso.mean - theta) @ precision,
                subjects.curvature + precision,
            )
        if self.penalty == 0:
            return subjects
        mean, sd = (jnp.asarray(x, theta.dtype) for x in ability_prior(problem))
        return add_normal_prior(subjects, theta, mean, self.penalty / sd**2)

    def _cut_prior(self, problem: Problem) -> CutPrior:
        """Mean and precision of the normal prior of cuts; 0 without."""
        prior = problem.model.priors.get("intercept") if self.penalty else None
        if not isinstance(prior, Normal):
            return CutPrior(0.0, 0.0)
        return CutPrior(prior.mean, self.penalty / prior.sd**2)

    def _image(
        self,
        problem: Problem,
        point: BilinearParameters,
        seen: ItemSweep,
        items: Quadratic,
        together: Array | None,
    ) -> BilinearParameters:
        """One MM iteration: cuts, items, abilities, then the scale of ability."""
        cells, positive = self._cells(problem.model), is_positive(problem.model)
        if together is not None:
            point, columns = raise_cuts(
                problem,
                cells,
                self.temperature,
                point,
                seen,
                together,
                self._cut_prior(problem),
            )
            there = seen.items._replace(gradient=columns)
            items, _ = self._bounds(problem, point, there, seen.subjects)
        lasso = self._lasso_at(problem, point.theta)
        stacked = update_items(
            items, point.stacked, free_mask(problem), positive, lasso
        )
        raised = point._replace(discrimination=stacked[:, 1:], intercept=stacked[:, 0])
        subjects = sweep_subjects(problem.data, raised, self.temperature, cells)
        subjects = self._with_ability_prior(problem, subjects, raised)
        raised = raised._replace(theta=update_subjects(subjects, raised.theta))
        if problem.anchored:
            return raised
        return self._rescale(problem, raised)

    def _rescale(
        self, problem: Problem, point: BilinearParameters
    ) -> BilinearParameters:
        """The change of ability scale, neutral to the likelihood, that raises priors.

        Without priors it makes abilities standard, which keeps numbers in range. A
        lasso does not depend on the scale.
        """
        has_slope = problem.model.family.has_slope
        moved = lambda shift, log_scale: point.fold(shift, log_scale * has_slope)
        if self.penalty == 0:
            shift, scale = weighted_moments(point.theta, problem.data.subject_weight)
            folded = moved(shift, jnp.log(scale))
        else:
            dims, dtype = point.theta.shape[1], point.theta.dtype
            before = self._penalties(problem, point)
            raised = lambda *scale: jnp.sum(
                self._penalties(problem, moved(*scale)) - before
            )
            folded = moved(*best_fold(raised, dims, dtype))
        return tree_where(is_movable(problem, point.discrimination), folded, point)

    def feasible(
        self, problem: Problem, state: AscentState, proposal: Any, image: Image
    ) -> Any:
        """Slopes within their bounds, and cuts in their order."""
        inside = feasible(
            problem,
            proposal,
            image.point,
            state.point,
            lasso=self._sparse,
            early=state.num_seen < EARLY_STEPS,
        )
        if inside.cuts is None:
            return inside
        cells = self._cells(problem.model)
        return inside._replace(cuts=keep_order(cells, inside.cuts, image.point.cuts))

    def measured(self, state: AscentState) -> Array:
        """The quantity that the stopping rule compares with the tolerance."""
        if self.stop == "kkt":
            return state.residual
        change = jnp.abs(state.gain) / jnp.maximum(jnp.abs(state.objective), 1e-30)
        return jnp.where(jnp.isinf(state.residual), state.residual, change)

    def goal(self, problem: Problem, dtype: Any) -> Any:
        """The tolerance, by default that of the stopping rule and the precision."""
        if self.tolerance is not None:
            return self.tolerance
        if self.stop == "relative_change":
            return 1e-4
        several = self._cells(problem.model).num_cuts > 1
        single = 3e-4 if several else 3e-5  # Few responses may lie between two cuts.
        return 1e-6 if dtype == jnp.float64 else single

    def result(self, problem: Problem, state: AscentState) -> tuple[Parameters, Array]:
        """Items with P = sigma(a theta + d), and abilities as `identify` makes them.

        The change of scale is folded into the items: the likelihood is that of `best`.
        """
        family, best = problem.model.family, state.best
        point = best._replace(intercept=best.intercept / self.temperature)
        if best.cuts is not None:
            point = point._replace(cuts=best.cuts / self.temperature)
        if family.has_slope:
            slope = best.discrimination / self.temperature
            point = point._replace(discrimination=slope)
        else:
            point = point._replace(theta=best.theta / self.temperature)
        if problem.model.several:
            return factor_parameters(problem, point), state.log_lik
        scale = identify(problem, point.theta, point.discrimination)
        point = point._replace(
            discrimination=point.discrimination * scale.scale,
            intercept=point.intercept + point.discrimination @ scale.shift,
            theta=(point.theta - scale.shift) / scale.scale,
        )
        population = Population(*(part[0] for part in scale.population[:2]))
        items = _record(problem.model, point)
        parameters = Parameters(items, population, point.theta[:, 0])
        return report_scale(problem, parameters), state.log_lik


def factor_parameters(problem: Problem, point: BilinearParameters) -> Parameters:
    """Several abilities with sample means 0 and variances 1, in a fixed order."""
    identified = identify_factors(problem, point.theta, point.discrimination)
    moved = BilinearParameters(
        identified.discrimination,
        point.intercept + point.discrimination @ identified.shift,
        identified.theta,
        point.cuts,
    )
    return Parameters(
        _record(problem.model, moved), identified.population, identified.theta
    )


def _record(model: Model, point: BilinearParameters) -> Any:
    """The items at a point."""
    slope = point.discrimination
    slope = slope.reshape(len(slope), *model.family.ability_shape)
    return cells_of(model).join(slope, point.intercept, point.cuts)


def _scale_of(
    problem: Problem,
    point: BilinearParameters,
    seen: ItemSweep,
    bounds: tuple[Quadratic, Quadratic],
) -> BilinearParameters:
    """Roots of the curvatures of the bounds, with weights."""
    data = problem.data
    items = weigh_rows(bounds[0].diagonal, data.item_weight)
    subjects = weigh_rows(bounds[1].diagonal, data.subject_weight)
    items = jnp.sqrt(jnp.broadcast_to(items, point.stacked.shape))
    subjects = jnp.sqrt(jnp.broadcast_to(subjects, point.theta.shape))
    of_cuts = None if point.cuts is None else jnp.zeros_like(point.cuts)
    if seen.cuts is not None:
        diagonal = jnp.diagonal(seen.cuts.information, axis1=1, axis2=2)
        of_cuts = jnp.sqrt(weigh_rows(diagonal, data.item_weight))
    return BilinearParameters(items[:, 1:], items[:, 0], subjects, of_cuts)


def _kkt_residual(
    problem: Problem,
    point: BilinearParameters,
    seen: ItemSweep,
    bounds: tuple[Quadratic, Quadratic],
    lasso: GroupLasso | None,
) -> Scalar:
    """Largest share of a gradient that does not cancel; see `MM`."""
    tiny = jnp.finfo(point.intercept.dtype).tiny * 1e6

    def share(bound: Quadratic, data: Quadratic, terms: Array, at: Array) -> Array:
        from_prior = jnp.abs(bound.gradient - data.gradient)
        floor = 0.01 * bound.diagonal * (1 + jnp.abs(at))
        return bound.gradient / jnp.maximum(terms + from_prior + floor, tiny)

    stacked, items = point.stacked, bounds[0]
    if lasso is not None:
        slopes, free = stacked[:, 1:], free_mask(problem)[:, 1:]
        pulled = lasso.gradient(items.gradient[:, 1:], slopes, free)
        items = items._replace(gradient=items.gradient.at[:, 1:].set(pulled))
    by_items = share(items, seen.items, seen.item_terms, stacked)
    if is_positive(problem.model):
        at_bound = (stacked <= 0) & (by_items < 0)
        by_items = by_items.at[:, 1:].set(jnp.where(at_bound, 0, by_items)[:, 1:])
    by_theta = share(bounds[1], seen.subjects, seen.subject_terms, point.theta)
    largest = jnp.max(jnp.abs(jnp.where(free_mask(problem), by_items, 0)))
    return jnp.maximum(largest, jnp.max(jnp.abs(by_theta)))

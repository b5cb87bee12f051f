"""Estimates: what every method returns, and all that a calibration is built from.

Arrays and numbers only: names, files and messages with names are in `calibration`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import Status
from irtjax.inference.covariance import Covariance
from irtjax.likelihood.lengths import LengthPart
from irtjax.likelihood.problem import Parameters, Problem
from irtjax.likelihood.products import by_product
from irtjax.likelihood.quadrature import Resolution

if TYPE_CHECKING:
    from irtjax.inference.length_errors import LengthCovariance, SpeedError
    from irtjax.inference.marginal_covariance import FactorCovariance
    from irtjax.models.multilevel.covariance_mixture import Possible


class Nodes(NamedTuple):
    """The nodes that a marginal method integrated abilities on, standardised.

    `log_weights` is None for those of a normal density; `nearest` is the index of the
    node nearest to each subject, or None.
    """

    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"] | None = None
    nearest: Array | None = None


class GroupEstimates(NamedTuple):
    """Abilities by group, and variance components, of a multilevel model.

    Attributes:
        general: `[subjects]` general abilities, with standard errors.
        shared: `[subjects, any]` loadings of what those errors share.
        ability: `[subjects, groups]`, with standard errors.
        coordinates: `[items, columns]`, with covariance `[items, columns, columns]`.
        own: `[groups, groups]` Sigma; `bounds` are those of its correlations.
        effects: `[effects, columns]`, those of the groups last.
        subject_effects: `[covariates]` gamma, and their covariance
            `[covariates, covariates]`.
        variance: tau^2, of the general ability.
        possible: Draws of Sigma, tau^2 and scales; None with one group.
        standard_deviations: `[components + 1 + clusters, columns]`, of the effects of
            each level, of items around these, and of each benchmark's items; NaN where
            one is not estimated.
        accepted: Share of proposals accepted in drawing `possible`, by `laplace`.
        scale: `[subjects]` part of the shared error that stretches all general
            abilities alike (`ranking.scale_loadings`); 0 where there is none.
        expected: `[subjects]` expected scores, means of expected responses over all
            items, and their standard errors.
        group: `[items]` group of each item.
        vanishing: `[groups]` whether the group-specific abilities shrink to nothing;
            None where that was not requested.
    """

    general: np.ndarray
    general_error: np.ndarray
    shared: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    coordinates: np.ndarray
    covariance: np.ndarray
    own: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray] | None
    effects: np.ndarray
    subject_effects: tuple[np.ndarray, np.ndarray]
    variance: float
    possible: Possible | None
    standard_deviations: np.ndarray
    accepted: float = 1.0
    scale: np.ndarray | float = 0.0
    expected: tuple[np.ndarray, np.ndarray] | None = None
    group: np.ndarray | None = None
    vanishing: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class FactorEstimates:
    """Several abilities and the loadings of items on them.

    Attributes:
        ability: `[subjects, factors]` posterior modes, with the covariances
            `[subjects, factors, factors]` by the curvature there.
        mean: `[subjects, factors]` posterior means, of which expected scores are.
        spread: `[subjects, factors, factors]` posterior covariances about them.
        loadings: `[items, factors]` standardised pattern, a / sqrt(a'Phi a + v), v the
            variance of the link's distribution.
        correlation: `[factors, factors]` Phi.
        structure: `[items, factors]` correlations of items and factors, loadings Phi.
        communality: `[items]` share of an item's latent variance due to the factors.
        loadings_error: Standard errors of the loadings, or None.
        rotation: Name of the rotation, or "none".
        share_at_best: Share of the rotation's random starts that reached its best
            value; NaN without rotation.
        axes_known: Whether errors of loadings are those of known axes: they leave out
            the error of the rotation.
        item_errors: Covariances of the items' natural slopes and other coordinates;
            None without errors.
        correlation_error: `[factors, factors]` standard errors of Phi, 0 on the
            diagonal, NaN where not identified. None where the correlations are fixed
            (orthogonal factors), those of estimated abilities (`mm`), or rotated
            without the covariance of all items.
        at_fixed_axes: `[items, columns, columns]` covariance of the slopes and other
            coordinates of each item without the error of the rotation, which abilities
            follow, so that it adds nothing to the errors of expected scores. None
            without rotation or standard errors.
        from_target: `[factors]` root mean square of the differences of loadings from
            the specified cells of a target, NaN without any; None without a target.
        certificate: q of the fit at the penalty of noise that found the number of
            factors: it is the best fit of any number if q is at most 1.01. None where
            the number was given.
    """

    ability: np.ndarray
    covariance: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    loadings: np.ndarray
    correlation: np.ndarray
    structure: np.ndarray
    communality: np.ndarray
    loadings_error: np.ndarray | None = None
    rotation: str = "none"
    share_at_best: float = math.nan
    axes_known: bool = True
    item_errors: FactorCovariance | None = None
    correlation_error: np.ndarray | None = None
    at_fixed_axes: np.ndarray | None = None
    from_target: np.ndarray | None = None
    certificate: float | None = None


class LengthEstimates(NamedTuple):
    """The part of response lengths: its data, errors, and errors of speed."""

    part: LengthPart
    covariance: LengthCovariance | None
    speed: SpeedError | None

    def select(self, rows: slice) -> LengthEstimates:
        """Those of some subjects."""
        cut = lambda tree: jax.tree.map(lambda x: x[rows], tree)
        summary, constant = cut((self.part.summary, self.part.constant))
        part = self.part._replace(summary=summary, constant=constant)
        return self._replace(part=part, speed=cut(self.speed))


@dataclasses.dataclass(frozen=True, eq=False)
class Estimates:
    """What a method found, in arrays, whatever the method and the model.

    Attributes:
        problem: The items' model, the data, and which coordinates were estimated.
        coordinates: `[items, columns]`, unconstrained, with their covariance, which is
            None where errors were not computed.
        ability: `[subjects]`, with standard errors.
        shared: `[subjects, rank]` loadings of what these errors share, or None.
        expected: Expected scores and their standard errors, each `[subjects]`.
        log_likelihood: In nats, without priors; of scores on their own scale.
        num_parameters: Estimated parameters; effective ones of a multilevel model.
        num_steps: Steps taken, or draws; `trace` has the objective after each.
        residual: Distance from a stationary point.
        priors: Names of item parameters that have priors.
        finite: Whether estimates exist whatever the responses are: the method stopped
            early (`trained`), or every parameter has a prior.
        joint: Whether abilities were parameters.
        sampled: Whether errors are those of draws of all parameters.
        normal: Whether the method assumes normal abilities of unit variance.
        limit: Name of the setting that limits the steps.
        scale: `[subjects]` part of `shared` that stretches all abilities alike; None:
            to be found from `shared`.
        resolution: How nodes compare with the posteriors, or None.
        at_end: Subjects at the first or the last node.
        unfinished: `[subjects]` whether a score is provisional, or None.
        infinite: `[subjects]` whether an ability has no finite estimate, or None.
        diverging: `[items]` whether an item has no finite estimate, or None.
        lengths: Of models with response lengths; `groups`: of multilevel models;
            `factors`: of models with several abilities.
        populations: Of groups of subjects (`groups=`): the fields of their part of a
            calibration, `Populations`.
        verdict: What a sampler's diagnostics conclude, or why items have no errors.
        directions: `[items]` signs of slopes and chances of the others, by `laplace`.
    """

    problem: Problem
    parameters: Parameters
    coordinates: Array
    covariance: Covariance | None
    ability: np.ndarray
    error: np.ndarray
    shared: np.ndarray | None
    expected: Any
    log_likelihood: float
    log_prior: float
    num_parameters: int
    status: Status
    num_steps: int
    trace: np.ndarray
    residual: float
    priors: frozenset[str]
    finite: bool = False
    trained: bool = False
    joint: bool = False
    sampled: bool = False
    normal: bool = False
    limit: str = "max_steps"
    scale: np.ndarray | None = None
    resolution: Resolution | None = None
    at_end: int = 0
    unfinished: np.ndarray | None = None
    infinite: np.ndarray | None = None
    diverging: np.ndarray | None = None
    warnings: tuple[str, ...] = ()
    lengths: LengthEstimates | None = None
    groups: GroupEstimates | None = None
    factors: FactorEstimates | None = None
    populations: Mapping[str, Any] | None = None
    draws: Any = None
    verdict: tuple[str, ...] = ()
    directions: Any = None

    @property
    def num_factors(self) -> int:
        """Number of abilities on which items have slopes of their own; 0 for one."""
        return 0 if self.factors is None else self.factors.ability.shape[1]

    @property
    def several(self) -> bool:
        """Whether items have slopes on several abilities; these are `factors`."""
        return self.num_factors > 0

    @property
    def multilevel(self) -> bool:
        """Whether items were integrated out; `groups` has the rest."""
        return self.groups is not None

    @property
    def num_groups(self) -> int:
        """Number of groups of items with an ability each; 1 for one of all items."""
        return self.by_group[0].shape[1]

    @property
    def by_group(self) -> tuple[np.ndarray, np.ndarray]:
        """`[subjects, groups]` abilities, and `[items]` group of each item."""
        if self.groups is None or self.groups.group is None:
            return self.ability[:, None], np.zeros(self.problem.data.num_items, int)
        return self.groups.ability, self.groups.group

    @property
    def by_item(self) -> tuple[Any, Any, np.ndarray]:
        """Family and records for one ability, and `[subjects, items]` that of each."""
        model, items = self.problem.model, self.parameters.items
        if (factors := self.factors) is None:
            ability, group = self.by_group
            return model.family, items, ability[:, group]
        product = factors.mean @ np.asarray(items.discrimination).T
        return *by_product(model, items), product


def cut_estimates(padded: Estimates, problem: Problem) -> Estimates:
    """Estimates of padded data, those of the problem alone (`likelihood.padding`)."""
    if padded.problem.data is problem.data:
        return padded
    rows, columns = slice(problem.data.num_subjects), slice(problem.data.num_items)
    covariance = padded.covariance
    if covariance is not None:
        lost, scale, cross = covariance.lost
        covariance = covariance._replace(
            items=covariance.items[columns],
            items_scale=covariance.items_scale[columns],
            shared=covariance.shared[:, columns],
            lost=(lost[columns], scale, cross[columns]),
        )
    items = jax.tree.map(lambda x: x[columns], padded.parameters.items)
    theta, num_parameters = padded.parameters.theta, padded.num_parameters
    if theta is not None:
        num_parameters -= len(theta) - problem.data.num_subjects
    cut = lambda array, at: None if array is None else array[at]
    return dataclasses.replace(
        padded,
        problem=problem,
        parameters=padded.parameters._replace(items=items, theta=cut(theta, rows)),
        num_parameters=num_parameters,
        coordinates=padded.coordinates[columns],
        covariance=covariance,
        ability=padded.ability[rows],
        error=padded.error[rows],
        shared=cut(padded.shared, rows),
        expected=jax.tree.map(lambda x: x[rows], padded.expected),
        unfinished=cut(padded.unfinished, rows),
        infinite=cut(padded.infinite, rows),
        diverging=cut(padded.diverging, columns),
        lengths=padded.lengths and padded.lengths.select(rows),
    )


class ParameterErrors(NamedTuple):
    """Errors of items: in the coordinates of the family, and what is wrong with them.

    Of models with response lengths `lengths` has all errors; of several abilities
    `natural` has those of slopes; of groups of subjects `group_root`
    `[2 groups, rank]` is a root of the covariance of their means and log standard
    deviations, the last rows of what `covariance` shares. All are None without errors.
    """

    covariance: Covariance | None = None
    warnings: tuple[str, ...] = ()
    lengths: LengthCovariance | None = None
    natural: FactorCovariance | None = None
    group_root: np.ndarray | None = None


def on_host(array: Array | None) -> Any:
    """The array in double precision on the host, None of None."""
    return None if array is None else np.asarray(array, np.float64)

"""The calibration of a multilevel model or of posterior draws."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import Status
from irtjax.calibration import assumptions, flags
from irtjax.calibration.build import SHARED_RANK, versions
from irtjax.calibration.calibration import Calibration, Structure
from irtjax.calibration.discrimination import negative_discrimination
from irtjax.calibration.tables import item_errors, make_ability_table, make_item_table
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Summary
from irtjax.estimators.laplace.components import log_prior, num_effective
from irtjax.estimators.laplace.laplace import without_end
from irtjax.estimators.posterior import verdict
from irtjax.estimators.posterior.nuts import Draws
from irtjax.likelihood.problem import Parameters, Problem
from irtjax.models.families import bounded
from irtjax.models.model import Model, Population
from irtjax.models.multilevel.design import Layout
from irtjax.models.multilevel.model import Hierarchical
from irtjax.ranking.pairs import leading_loadings
from irtjax.uncertainty import Covariance

#: Responses in all, and subjects, below which intervals hold less often than stated
#: (docs/evidence/index.md).
FEW_RESPONSES, FEW_SUBJECTS = 800, 8
#: Said of draws where the fast route failed.
NO_FAST_ROUTE = (
    "the start found no marginal likelihood: the log-likelihood is the mean over draws"
    " of that given all parameters; do not compare it, AIC or BIC with other fits"
)


#: Share of accepted proposals below which draws of Sigma are not to be trusted.
LEAST_ACCEPTED = 0.4


FEW_ACCEPTED = (
    "what is not known of the abilities' covariance and units could not be drawn:"
    " errors leave it out, or count too little of it; use method='nuts'"
)


#: Said where a given prior of discriminations cannot be counted right.
OTHER_SLOPES = (
    "the prior given for discriminations is not log-normal: method='laplace' misjudges"
    " the unit of abilities under it; give LogNormal(mean, sd), or use method='nuts'"
)


#: Items in a group below which the fast route has not been compared with the truth.
FEW_ITEMS = 20


_count_jit = eqx.filter_jit(num_effective)


log_prior_jit = eqx.filter_jit(log_prior)


def describe(
    table,
    responses,
    layout: Layout,
    fitted: Hierarchical,
    found,
    summary: Summary,
    status,
    draws,
    warnings,
    name,
    options,
    clock,
    key,
) -> Calibration:
    """The calibration: tables, warnings, and what is particular to structure.

    `fitted` is the model as the fast route has it (`StructuredProblem`).
    """
    model, level = layout.model, options["level"]
    family = model.family
    good = []
    if draws is not None and status == Status.CONVERGED:
        # A good verdict is nothing to be warned of; it stands first all the same.
        good = verdict(draws)[:1]
        warnings = [said for said in warnings if said not in good]
    # Slopes of 1 leave the unit of ability to the items, as in the Rasch model.
    plain = Model(name, family, {}, "standard" if family.has_slope else "unit_slope")
    problem = Problem.create(plain, responses)
    coordinates = jnp.asarray(summary.coordinates, model.design.dtype)
    items = jax.vmap(family.constrain)(coordinates)
    one = jnp.ones((), coordinates.dtype)
    estimates = Parameters(items, Population(0 * one, summary.variance**0.5 * one))
    top = max(family.num_categories - 1, 1)
    margins = [
        flags.margins(table.values, table.observed, table.trials, top, axis)
        for axis in (0, 1)
    ]
    findings, separated = _findings(table, layout, summary)
    none = np.zeros(table.num_items, bool)
    # The model's priors are learned or given: every parameter has one.
    item_flags = flags.item_flags(plain, margins[0], findings._replace(separated=none))
    subject_flags = ["; ".join(f) for f in flags.no_variation_flags(margins[1])]
    covariance = Covariance.of_independent(jnp.asarray(summary.covariance))
    errors, _ = item_errors(problem, estimates, coordinates, covariance)
    item_table = make_item_table(
        table, problem, estimates, errors, margins[0], item_flags, separated
    )
    warnings = [*warnings, *flags.flag_warnings(item_flags, has_priors=True)]
    note = None if separated is None else flags.separation_note(separated)
    if model.num_groups == 1 and "benchmark" in table.item_facets:
        tested = assumptions.one_ability_test(
            family,
            items,
            summary.ability[:, 0],
            responses.values,
            responses.exposure,
            table.benchmarks,
        )
        warnings = [*warnings, *assumptions.warnings_of(tested, None)]
    shared = leading_loadings(summary.shared, SHARED_RANK)
    scale = np.zeros(len(shared)) + summary.scale
    ability_table = make_ability_table(
        table,
        summary.general,
        summary.general_error,
        shared,
        scale,
        margins[1],
        subject_flags,
        level,
        key,
        {},
        summary.expected,
        top,
    )
    log_likelihood = float(found.objective) - float(
        log_prior_jit(fitted, found.state.components)
    )
    log_likelihood += bounded.log_base_total(plain, items, responses)
    count = round(float(_count_jit(model, found.state.components)))
    own = summary.own
    sd = np.sqrt(np.maximum(np.diag(own), 1e-300))
    bounds = (None, None) if summary.bounds is None else summary.bounds
    structure = Structure(
        layout.groups,
        np.asarray(model.group),
        summary.ability,
        summary.error,
        own,
        own / sd / sd[:, None] if model.num_groups > 1 else np.ones((1, 1)),
        *bounds,
        _raw_correlation(table, np.asarray(model.group), model.num_groups),
        (layout.effects, summary.effects),
        draws,
        summary.variance,
        (layout.covariates, *summary.subject_effects),
        layout.stems,
        summary.possible,
        layout.levels,
        (_spread_names(layout), summary.spreads),
    )
    return Calibration(
        model=plain,
        parameters=jax.tree.map(np.asarray, estimates),
        subjects=table.subjects,
        items=table.items,
        benchmarks=table.item_facets.get("benchmark"),
        status=status,
        num_steps=int(found.num_steps) if draws is None else _num_draws(draws),
        trace=np.asarray(found.trace)[: int(found.num_steps)],
        residual=float(found.residual),
        log_likelihood=log_likelihood,
        log_prior=0.0,
        num_parameters=count,
        num_observed=table.num_observed,
        aic=-2 * log_likelihood + 2 * count,
        bic=-2 * log_likelihood + count * math.log(table.num_subjects),
        item_table=item_table,
        ability_table=ability_table,
        warnings=tuple(warnings),
        notes=(*good, *table.notes, *filter(None, [note])),
        options=options,
        versions=versions(),
        data_hash=table.data_hash(),
        timings=dict(clock.timings),
        resolution=None,
        level=level,
        item_covariance=np.asarray(summary.covariance),
        ability_shared=shared,
        ability_scale=scale,
        structure=structure,
    )


def _spread_names(layout: Layout) -> np.ndarray:
    """What the rows of `Summary.spreads` are."""
    levels, clusters = layout.levels.tolist(), layout.clusters.tolist()
    return np.asarray([*levels, "items", *(f"items of {name}" for name in clusters)])


def _num_draws(draws: Draws) -> int:
    return int(np.prod(next(iter(draws.values.values())).shape[:2]))


def warnings_of(layout: Layout, found, status: Status, num_observed: int) -> list[str]:
    """What a fit by the fast route must be read with."""
    model, said = layout.model, []
    if status == Status.STALLED:
        said += _runaways(layout, found.state.components)
    if status != Status.CONVERGED and not said:
        said.append(
            f"{status.explain()} (residual {float(found.residual):.2g}): treat the"
            " estimates as provisional; raise max_steps, or use method='nuts'"
        )
    subjects, groups = model.subject_design.shape[0], model.num_groups
    few = num_observed < FEW_RESPONSES or subjects < FEW_SUBJECTS
    if groups == 1 and few:
        said.append(
            f"{subjects} subjects and {num_observed:,} responses are few: in"
            " simulations of such sizes 95 % intervals of differences held 86 to 97 %,"
            " of expected scores 80 to 89 %; add subjects or items"
        )
    fewest = int(np.bincount(np.asarray(model.group), minlength=groups).min())
    if fewest < FEW_ITEMS:
        said.append(
            f"a group has {fewest} item{'s' * (fewest != 1)}: method='laplace' needs"
            f" about {FEW_ITEMS} in each group to be near the posterior; use"
            " method='nuts'"
        )
    if groups == 2:
        said.append(
            "two groups tell the correlation of their abilities and no more: the"
            " standard deviations of their own parts, and so the unit beside the"
            " general ability's, rest on their priors"
        )
    if groups > 1 and subjects < 5 * groups:
        said.append(
            f"correlations of {groups} groups from {subjects} subjects rest on their"
            " prior, which prefers none"
        )
    if subjects < 30 and groups > 1:
        said.append(
            f"with {subjects} subjects the errors of method='laplace' leave out what is"
            " not known of the spread of items; method='nuts' counts it"
        )
    return said


def _runaways(layout: Layout, components) -> list[str]:
    """Why the fast route was stopped, where something has no end."""
    model, said = layout.model, []
    gone, wide = (np.asarray(x) for x in without_end(model, components))
    for name in np.asarray(layout.groups)[gone] if gone.any() else ():
        said.append(
            f"not converged: the own abilities of {name} shrink to nothing: its items"
            " ask what all others ask; fit one ability (model='hierarchical'), or use"
            " method='nuts'"
        )
    columns = [p.name for p in model.family.parameters for _ in range(p.columns)]
    names = dict.fromkeys(n for n, at in zip(columns, wide, strict=False) if at)
    for name in names:
        said.append(
            f"not converged: the items' {name}s spread without end, by more than a"
            " factor of 7 to either side: many items tell next to nothing of ability."
            f" Leave those out, or give a prior, priors={{'{name}': LogNormal(0, 0.5)}}"
        )
    return said


def _raw_correlation(table: ResponseTable, group: np.ndarray, groups: int):
    """Correlations over subjects of their mean responses to each group."""
    values = np.asarray(table.values, float)
    seen = np.ones(values.shape) if table.observed is None else table.observed
    if table.trials is not None:
        seen = np.asarray(table.trials, float)
    onto = np.eye(groups)[group]
    count = np.asarray(seen, float) @ onto
    means = np.where(
        count > 0, (values * (seen > 0)) @ onto / np.maximum(count, 1), np.nan
    )
    centred = means - np.nanmean(means, axis=0)
    centred = np.nan_to_num(centred)
    product = centred.T @ centred
    size = np.sqrt(np.maximum(np.diag(product), 1e-300))
    return product / size / size[:, None]


def _findings(table: ResponseTable, layout: Layout, summary: Summary):
    """`flags.Findings` of the items, and separation (None where not defined).

    The items of each group are compared with the rest of their group.
    """
    group = np.asarray(layout.model.group)
    none = np.zeros(table.num_items, bool)
    negative = negative_discrimination(
        table.values, table.observed, table.trials, group
    )
    findings = flags.Findings(negative, none, none, none)
    family = layout.model.family
    if family.num_categories != 2 or table.trials is not None or not family.has_slope:
        return findings, None
    separated = none.copy()
    for k in range(layout.model.num_groups):
        mine = group == k
        separated[mine] = flags.separated_items(
            table.values[:, mine],
            None if table.observed is None else table.observed[:, mine],
            np.asarray(summary.ability)[:, k],
        )
    return findings, separated

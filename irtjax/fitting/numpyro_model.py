"""Any specification as a NumPyro model: for a user's own priors, guides and kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax.data import ResponseTable, read
from irtjax.data.responses import Responses
from irtjax.estimators.acceptance import check_dimensions, check_integrable
from irtjax.estimators.driver import ITEM_OPTIONS, AbstractEstimator, RunSettings
from irtjax.fitting.multilevel import Multilevel
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import sort_settings
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.family import Items
from irtjax.models.lengths import LengthItems, LengthParameters
from irtjax.models.multilevel.density import cell_log_lik, log_items
from irtjax.models.multilevel.model import MultilevelModel, Position
from irtjax.numerics.bijections import Parameter, correlation_coordinates


class _Density(AbstractEstimator):
    """What a task is made for: items are parameters, and so are abilities."""

    several: ClassVar[bool] = True
    runs: ClassVar[RunSettings] = RunSettings(options=ITEM_OPTIONS)

    def check(self, problem: Any) -> None:
        """Takes parameters common to all items, and lengths of items as parameters."""
        check_dimensions(self, problem)

    def solve(self, problem: Any, start: Any, run: Any) -> Any:
        """Refused: a density has no estimates."""
        raise NotImplementedError

    def estimates(self, problem: Any, solution: Any, run: Any) -> Any:
        """Refused likewise."""
        raise NotImplementedError


class _MultilevelDensity(_Density):
    """The same of multilevel models."""

    multilevel: ClassVar[bool] = True
    runs: ClassVar[RunSettings] = RunSettings()

    def check(self, problem: Any) -> None:
        """Refuses models whose items cannot be integrated out."""
        check_integrable(self, problem)


def numpyro_model(
    model: Any,
    table: ResponseTable | Any,
    *,
    priors: Mapping[str, Any] | None = None,
    dtype: Any = None,
    **settings: Any,
) -> ItemSites | MultilevelSites:
    """The joint density of a model and a table as a model of NumPyro.

    Give it to any guide or kernel of NumPyro. Its sites are natural parameters, with
    the priors of the model: `theta`, `discrimination`, `intercept` and the others of
    the family, `ability_sd` where items fix the scale of ability; of multilevel models
    the parts of a `Position`, standard deviations in place of their logarithms. The
    site `responses` has the log-likelihood up to the term h(y) of the family.

    The log density is that of `irtjax.functional.log_density` with `jacobian=False`, or
    of `irtjax.models.multilevel.density`. Parameters without a prior have a flat one.

    Args:
        model: A name, a model or a specification, as for `irtjax.fit`.
        table: Responses, or anything that `irtjax.read` takes.
        priors: By name of a site, what replaces its prior: a NumPyro distribution of
            one parameter or of the whole site, or a function without arguments that
            returns the values and may have sites of its own.
        dtype: Floating type; JAX's default when None.
        **settings: Settings of the model, as for `irtjax.fit`.

    Returns:
        What NumPyro takes as a model. Its argument `values` are the
        responses `[subjects, items]`, by default those of the table; None draws them.

    Raises:
        ImportError: If NumPyro is not installed.
        ValueError: If the model does not suit the table, or a prior names no site.

    >>> import irtjax
    >>> from numpyro import handlers
    >>> table = irtjax.ResponseTable.from_arrays(np.eye(4, 5))
    >>> model = irtjax.numpyro_model("2pl", table)
    >>> sites = handlers.trace(handlers.seed(model, 0)).get_trace()
    >>> {name: site["value"].shape for name, site in sites.items()}
    {'discrimination': (5,), 'intercept': (5,), 'theta': (4,), 'responses': (4, 5)}
    """
    try:
        import numpyro  # noqa: F401
    except ImportError:
        raise ImportError(
            "numpyro_model needs numpyro: pip install 'irtjax[numpyro]'"
        ) from None
    table = table if isinstance(table, ResponseTable) else read(table)
    specification = specify(model)
    nested = isinstance(specification, Multilevel)
    method = _MultilevelDensity() if nested else _Density()
    parts = sort_settings(settings, specification, method)
    task = make_task(table, specification, method, parts, level=0.95, dtype=dtype)
    site_priors = dict(priors or {})
    if nested:
        layout: Any = task.layout
        made = MultilevelSites(layout.model, task.problem.data, site_priors)
    else:
        assert task.start is not None
        made = ItemSites(task.problem, task.start, site_priors)
    unknown = sorted(site_priors.keys() - set(made.names))
    if unknown:
        raise ValueError(
            f"no site {unknown[0]!r} to give a prior; there are {', '.join(made.names)}"
        )
    return made


@dataclasses.dataclass(eq=False)
class ItemSites:
    """The sites of a model whose items are parameters."""

    problem: Problem
    start: Start
    priors: Mapping[str, Any]

    def __post_init__(self):
        """Coordinates of fixed items, and which parameters are not their own record."""
        model = self.problem.model
        self.fixed = np.asarray(model.unconstrain(self.start.items))
        self.free = np.asarray(self.problem.free)
        record = jax.tree.map(np.asarray, self.start.items)
        self.columns: dict[str, slice] = {}
        self.shifted: set[str] = set()
        first = 0
        for parameter in model.family.parameters:
            columns = slice(first, first + parameter.columns)
            self.columns[parameter.name] = columns
            own = np.asarray(
                parameter.bijection.forward(jnp.asarray(self.fixed[:, columns]))
            )
            shown = getattr(record, parameter.name).reshape(own.shape)
            used = self.free[:, columns]
            if not np.allclose(own[used], shown[used], atol=1e-3):
                self.shifted.add(parameter.name)
            first = columns.stop

    @property
    def names(self) -> tuple[str, ...]:
        """Sites that have a prior."""
        model = self.problem.model
        names = [p.name for p in model.family.parameters]
        names += ["ability_mean"] * self.problem.anchored
        if not model.family.has_slope:
            standard = model.scale == "standard" and not self.problem.anchored
            names.append("discrimination" if standard else "ability_sd")
        elif self.problem.anchored:
            names.append("ability_sd")
        lengths = (*LengthItems._fields, "correlation") if model.lengths else ()
        return (*names, "theta", *lengths)

    def __call__(self, values: Any = ...) -> None:
        """The model; `values` are the responses, None to draw them."""
        import numpyro
        from numpyro.distributions import Normal

        from irtjax.fitting.numpyro_sites import (
            ResponsesGiven,
            draw_responses,
            sample_site,
        )

        model, data = self.problem.model, self.problem.data
        items, mean, sd = self.items(), 0.0, 1.0
        if "ability_mean" in self.names:
            mean = self._scalar("ability_mean", "real", None)
        slope_prior = None if model.family.has_slope else "discrimination"
        if "ability_sd" in self.names:
            sd = self._scalar("ability_sd", "positive", slope_prior)
        elif slope_prior is not None:
            slope = self._scalar("discrimination", "positive", slope_prior)
            items = items._replace(discrimination=slope * items.discrimination)
        shape = (data.num_subjects, *model.family.ability_shape)
        normal = Normal(jnp.asarray(mean, self.dtype), jnp.asarray(sd, self.dtype))
        theta = sample_site("theta", normal, self.priors.get("theta"), shape)
        if model.has_lengths:
            lengths, part = self.lengths(), model.length_model
            own = part.log_ability(lengths, data, theta)
            prior = part.log_prior(lengths)
            numpyro.factor("lengths", jnp.sum(own) + prior)

        def log_lik(values):
            seen = jnp.asarray(values).astype(self.dtype)
            return model.family.log_prob(seen, items, theta, data.exposure)

        draw = draw_responses(model.family, items, theta, data.trials)
        responses = ResponsesGiven(log_lik, draw, data.values.shape)
        numpyro.sample(
            "responses", responses, obs=data.values if values is ... else values
        )

    @property
    def dtype(self) -> Any:
        """That of the start values."""
        return self.fixed.dtype

    def _scalar(self, name: str, kind: str, prior: str | None) -> Array:
        """A site of one number."""
        from numpyro.distributions import constraints

        from irtjax.fitting.numpyro_sites import distribution_of, sample_site

        support = getattr(constraints, kind)
        model_prior = self.problem.model.priors.get(prior) if prior else None
        usual = distribution_of(model_prior, support)
        return sample_site(name, usual, self.priors.get(name), ())

    def items(self) -> Items:
        """The item records, with a site for each parameter."""
        import numpyro

        model = self.problem.model
        fields = {p.name: self._field(p) for p in model.family.parameters}
        items = model.family.complete(fields)
        for parameter in model.family.parameters:
            name = parameter.name
            if name not in self.shifted:
                continue
            # Stated as a share or a distance: the prior is that of the parameter.
            value: Any = numpyro.deterministic(name, getattr(items, name))
            prior = self.priors.get(name) or model.priors.get(name)
            columns = self.columns[name]
            rows = model.unconstrain(items)
            slopes = jax.vmap(model.family.log_slopes)(rows)[:, columns]
            # Of the parameter in its site.
            density = slopes - parameter.bijection.log_slope(rows[:, columns])
            if prior is not None:
                log_density = getattr(prior, "log_prob", None) or prior.log_density
                density = density + log_density(value).reshape(density.shape)
            used = jnp.asarray(self.free[:, columns])
            numpyro.factor(f"{name}_prior", jnp.sum(jnp.where(used, density, 0)))
        return items

    def _field(self, parameter: Parameter) -> Array:
        """The values of one parameter, those that are fixed at their start values."""
        from irtjax.fitting.numpyro_sites import (
            SUPPORTS,
            Decreasing,
            distribution_of,
            sample_site,
        )

        family, name, count = self.problem.model.family, parameter.name, len(self.free)
        columns = self.columns[name]
        free, support = self.free[:, columns], SUPPORTS[parameter.bijection.kind]
        size = (parameter.size,) * bool(parameter.size)
        prior, site_prior = self.problem.model.priors.get(name), self.priors.get(name)
        if name in self.shifted:
            prior, site_prior, name = None, None, f"{name}_free"
        usual = distribution_of(prior, support)
        if name in family.common:
            value = sample_site(name, usual, site_prior, size)
            return jnp.broadcast_to(value, (count, *size))
        if free.all():
            ordered = name in family.decreasing and parameter.size > 1
            if ordered and (site_prior is None or hasattr(site_prior, "log_prob")):
                usual = Decreasing(
                    usual if site_prior is None else site_prior, parameter.size
                )
                site_prior = None
            return sample_site(name, usual, site_prior, (count, *size))
        fixed = parameter.bijection.forward(jnp.asarray(self.fixed[:, columns]))
        if free.any():
            value = sample_site(name, usual, site_prior, (int(free.sum()),))
            fixed = fixed.at[np.nonzero(free)].set(value)
        return fixed if size else fixed[:, 0]

    def lengths(self) -> LengthParameters:
        """Parameters of the response lengths, whose priors but one are flat."""
        from numpyro.distributions import constraints

        from irtjax.fitting.numpyro_sites import distribution_of, sample_site

        def site(name, support, shape):
            usual = distribution_of(None, support)
            return sample_site(name, usual, self.priors.get(name), shape)

        count, real = (len(self.free),), constraints.real
        items = LengthItems(
            site("speed_intercept", real, count),
            site("speed_discrimination", real, count),
            site("residual_variance", constraints.positive, count),
        )
        interval = constraints.interval(-1.0, 1.0)
        return LengthParameters(items, site("correlation", interval, ()))


@dataclasses.dataclass(eq=False)
class MultilevelSites:
    """The sites of a multilevel model."""

    model: MultilevelModel
    data: Responses
    priors: Mapping[str, Any]

    def usual(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """The prior and the shape of each site but abilities and items."""
        from numpyro.distributions import HalfNormal, LKJCholesky, Normal

        model, own = self.model, self.model.hyperpriors
        zeros = model.zeros(model.design.dtype)
        unit = Normal(jnp.zeros((), model.design.dtype), 1.0)
        scales = model.residual_scales[: zeros.log_residual_sd.size]
        groups, several = model.num_groups, model.num_correlated
        every: dict[str, Any] = {
            "ability_scale": (HalfNormal(own.scale), zeros.log_scale),
            "group_effects": (Normal(0.0, own.group_effect), zeros.group_effects),
            "subject_effects": (Normal(0.0, own.subject_effect), zeros.subject_effects),
            "ability_sd": (HalfNormal(own.general), zeros.log_general_sd),
            "effects": (unit, zeros.effects),
            "component_sd": (HalfNormal(own.component), zeros.log_component_sd),
            "item_sd": (HalfNormal(scales), zeros.log_residual_sd),
            "tilt": (unit, zeros.tilt),
            "log_relative_sd": (unit, zeros.log_relative_sd),
        }
        sites = {k: (prior, x.shape) for k, (prior, x) in every.items() if x.size}
        for name, part, size in (
            ("ability_correlation", zeros.correlation, groups),
            ("item_correlation", zeros.residual_correlation, several),
        ):
            if part.size:
                prior = LKJCholesky(size, own.concentration)
                sites[name] = prior, (size, size)
        return sites

    @property
    def names(self) -> tuple[str, ...]:
        """Sites that have a prior."""
        return (*self.usual(), "items", "theta")

    def __call__(self, values: Any = ...) -> None:
        """The model; `values` are the responses, None to draw them."""
        import numpyro
        from numpyro import distributions as dist

        from irtjax.fitting.numpyro_sites import ItemRows, ResponsesGiven, sample_site

        model, data = self.model, self.data
        sampled = {
            name: sample_site(name, prior, self.priors.get(name), shape)
            for name, (prior, shape) in self.usual().items()
        }
        position = _position(model, sampled)
        means = None
        if all(model.learned):
            means = model.item_means(position)
        shape = position.items.shape
        density = lambda rows: log_items(model, position._replace(items=rows))
        root = None if means is None else _item_root(model, position)
        prior = ItemRows(density, shape, means, root)
        items = sample_site("items", prior, self.priors.get("items"), shape)
        shape = position.ability.shape
        unit = dist.Normal(jnp.zeros(shape[1:], items.dtype), 1.0).to_event(1)
        if model.centred:
            mean = model.subject_design @ position.subject_effects
            mean = jnp.broadcast_to(mean[:, None], shape)
            factor = model.covariance_factor(position)
            unit = dist.MultivariateNormal(mean, scale_tril=factor).to_event(1)
        ability = sample_site("theta", unit, self.priors.get("theta"), shape)
        position = position._replace(items=items, ability=ability)
        theta = model.abilities(position)[:, model.group]
        records = model.items(position)
        log_lik = lambda values: cell_log_lik(
            model.family,
            records,
            theta,
            dataclasses.replace(data, values=jnp.asarray(values)),
        )
        draw = partial(_draw, model, data, position)
        responses = ResponsesGiven(log_lik, draw, data.values.shape)
        numpyro.sample(
            "responses", responses, obs=data.values if values is ... else values
        )


def _position(model: MultilevelModel, sampled: Mapping[str, Array]) -> Position:
    """The position of the sites; abilities and items of 0."""
    zeros = model.zeros(model.design.dtype)
    plain = ("group_effects", "subject_effects", "effects", "tilt", "log_relative_sd")
    parts = {name: sampled[name] for name in plain if name in sampled}
    for site, part in (
        ("ability_scale", "log_scale"),
        ("ability_sd", "log_general_sd"),
        ("component_sd", "log_component_sd"),
        ("item_sd", "log_residual_sd"),
    ):
        if site in sampled:
            parts[part] = jnp.log(sampled[site])
    for site, part in (
        ("ability_correlation", "correlation"),
        ("item_correlation", "residual_correlation"),
    ):
        if site in sampled:
            parts[part] = correlation_coordinates(sampled[site])
    return zeros._replace(**parts)


def _item_root(model: MultilevelModel, position: Position) -> Array:
    """Cholesky factors of the covariance of each stem's coordinates."""
    factor = model.residual_factor(
        position.log_residual_sd,
        position.residual_correlation,
        model.tilts(position),
        model.log_relative_sds(position),
    )
    if len(factor) > 1:
        return factor[model.factor_row]
    return jnp.broadcast_to(factor[0], (model.num_stems, *factor.shape[1:]))


def _draw(
    model: MultilevelModel, data: Responses, position: Position, key: Array
) -> Array:
    """Random responses, group by group."""
    from irtjax.fitting.numpyro_sites import draw_responses

    records, abilities = model.items(position), model.abilities(position)
    drawn = None
    for group in range(model.num_groups):
        theta, own = abilities[:, group], jax.random.fold_in(key, group)
        one = draw_responses(model.family, records, theta, data.trials)(own)
        drawn = one if drawn is None else jnp.where(model.group == group, one, drawn)
    assert drawn is not None
    return drawn

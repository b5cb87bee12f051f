"""A family, a prior and a method from outside the package, through every verb.

Nothing is imported but `irtjax` and what `docs/extend.md` names.
"""

import dataclasses
import json
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import irtjax
from irtjax.estimators.driver import Progress
from irtjax.estimators.joint.objective import (
    identify,
    joint_derivatives,
    joint_information,
    log_penalty,
)
from irtjax.likelihood.problem import Parameters
from irtjax.models.priors import AbstractPrior, Normal
from irtjax.models.simulate import simulate_abilities, simulate_items
from irtjax.numerics.bijections import Parameter


class SlipItems(NamedTuple):
    discrimination: jax.Array
    intercept: jax.Array


class Slip(irtjax.AbstractResponseFamily):
    """P = (1 - slip) sigmoid(a theta + d): able subjects slip at a rate that is known.

    With a record, start values and a constant of its own.
    """

    Items: ClassVar[type] = SlipItems
    slip: float = eqx.field(static=True, default=0.05)
    names: tuple[str, ...] = eqx.field(static=True, default=("wrong", "right"))

    @property
    def parameters(self):
        return Parameter("discrimination"), Parameter("intercept")

    @property
    def num_categories(self):
        return len(self.names)

    def statistics(self, values):
        return (values,)

    def natural(self, item, theta):
        predictor = item.discrimination * theta + item.intercept
        right = jnp.log1p(-self.slip) - jax.nn.softplus(-predictor)
        wrong = jnp.log(-jnp.expm1(right))
        return wrong, right - wrong

    def start(self, means, slope):
        share = jnp.clip(means[0] / (1 - self.slip), 0.02, 0.98)
        return SlipItems(slope, jnp.log(share) - jnp.log1p(-share))


class Logistic(AbstractPrior):
    """A prior that the package does not have."""

    centre: float
    scale: float

    def log_density(self, value):
        x = (value - self.centre) / self.scale
        return -x - 2 * jax.nn.softplus(-x) - jnp.log(self.scale)


class AdamState(NamedTuple):
    point: tuple[jax.Array, jax.Array]
    memory: optax.OptState
    objective: jax.Array
    residual: jax.Array


class Adam(irtjax.AbstractMethod):
    """Joint MAP by optax' Adam with a rate that falls."""

    rate: float = 0.1
    tolerance: float = 0.02

    def _optimiser(self):
        return optax.adam(optax.exponential_decay(self.rate, 100, 0.9))

    def init(self, problem, start, key):
        point = problem.model.unconstrain(start.items), start.theta
        low = jnp.asarray(-1e300)
        return AdamState(point, self._optimiser().init(point), low, -low)

    def step(self, problem, state, key):
        model, point = problem.model, state.point

        def prior(coordinates, theta):
            return log_penalty(problem, model.constrain(coordinates), theta)

        seen = joint_derivatives(model, problem.data, *point)
        known = joint_information(model, problem.data, *point)
        by_items, by_theta = jax.grad(prior, (0, 1))(*point)
        up = (
            jnp.where(problem.free, seen.coordinates + by_items, 0),
            seen.theta + by_theta,
        )
        move, memory = self._optimiser().update(
            jax.tree.map(jnp.negative, up), state.memory
        )
        errors = (
            up[0] / jnp.sqrt(known.coordinates + 0.1),
            up[1] / jnp.sqrt(known.theta + 1),
        )
        return AdamState(
            optax.apply_updates(point, move),
            memory,
            jnp.sum(seen.log_lik) + prior(*point),
            jnp.maximum(*(jnp.abs(error).max() for error in errors)),
        )

    def progress(self, problem, state):
        done = state.residual <= self.tolerance
        return Progress(state.objective, state.residual, done, jnp.zeros((), bool))

    def result(self, problem, state):
        model, (coordinates, theta) = problem.model, state.point
        slope = model.constrain(coordinates).discrimination
        scale = identify(problem, theta, slope)
        items = model.constrain(model.fold(coordinates, scale.shift, scale.scale))
        seen = joint_derivatives(model, problem.data, coordinates, theta)
        theta = (theta - scale.shift) / scale.scale
        return Parameters(items, scale.population, theta), seen.log_lik


MODEL = irtjax.Model(
    "slip",
    Slip(),
    {"discrimination": Logistic(1.0, 0.5), "intercept": Normal(0.0, 3.0)},
)


class Case(NamedTuple):
    items: SlipItems
    theta: jax.Array
    table: irtjax.ResponseTable


@pytest.fixture(name="case", scope="module")
def case_fixture():
    keys = jax.random.split(jax.random.key(2), 3)
    items = simulate_items(MODEL, 12, keys[0], discrimination=(0.8, 2.0))
    theta = simulate_abilities(300, keys[1])
    data = irtjax.simulate(MODEL, items, theta, keys[2], missing=0.1)
    values = np.where(data.observed, data.values, np.nan)
    return Case(items, theta, irtjax.ResponseTable.from_arrays(values))


@pytest.fixture(name="fit", scope="module")
def fit_fixture(case):
    return irtjax.fit(case.table, MODEL)


@pytest.mark.slow
def test_em_reaches_the_maximum_of_the_posterior(case, fit):
    assert fit.status is irtjax.Status.CONVERGED
    # The likelihood by plain probabilities on nodes of its own.
    nodes = np.linspace(-6, 6, 61)
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()
    slope, intercept = (np.asarray(x)[:, None] for x in fit.parameters.items)
    right = 0.95 / (1 + np.exp(-slope * nodes - intercept))
    y, seen = np.asarray(case.table.values), np.asarray(case.table.observed)
    cells = np.where(y[..., None] > 0, right, 1 - right)
    likelihood = np.where(seen[..., None], cells, 1).prod(1) @ weights
    assert float(fit.log_likelihood) == pytest.approx(
        np.log(likelihood).sum(), abs=1e-4
    )
    # Errors of the items are right: 24 parameters, four standard errors.
    for name in ("discrimination", "intercept"):
        error = fit.items.table.column(f"{name}_se").to_numpy()
        gap = np.asarray(getattr(fit.parameters.items, name)) - getattr(
            case.items, name
        )
        assert np.isfinite(error).all() and (np.abs(gap) < 4 * error).all()


@pytest.mark.slow
def test_a_method_of_ones_own_reaches_the_optimum_of_another(case):
    mine = irtjax.fit(case.table, MODEL, Adam(), max_steps=3000)
    other = irtjax.fit(case.table, MODEL, irtjax.Gradient())
    assert mine.status is other.status is irtjax.Status.CONVERGED
    # A residual of a fiftieth of a standard error in each of 324 coordinates is at most
    # 324 * 0.02^2 / 2 = 0.065 nats.
    assert float(mine.log_likelihood + mine.log_prior) == pytest.approx(
        float(other.log_likelihood + other.log_prior), abs=0.1
    )
    assert np.corrcoef(mine.parameters.theta, other.parameters.theta)[0, 1] > 0.999
    assert irtjax.rank(mine).table.num_rows == 300


def test_scores_and_ranks(case, fit):
    scores = irtjax.score(fit, case.table)
    by_name = dict(
        zip(
            fit.abilities.table["subject"].to_pylist(),
            fit.abilities.table["ability"].to_pylist(),
            strict=True,
        )
    )
    own = [by_name[name] for name in scores.table["subject"].to_pylist()]
    np.testing.assert_allclose(scores.table["ability"].to_numpy(), own, atol=1e-6)
    truth = np.asarray(case.theta)
    place = {name: k for k, name in enumerate(case.table.subjects.tolist())}
    rows = [place[name] for name in scores.table["subject"].to_pylist()]
    error = scores.table["ability_se"].to_numpy()
    covered = np.abs(scores.table["ability"].to_numpy() - truth[rows]) < 1.96 * error
    # 95 % of 300 subjects, four standard errors of a share: 0.05.
    assert covered.mean() > 0.90
    assert irtjax.rank(fit).table.num_rows == 300
    order = sorted(by_name, key=lambda name: by_name[name])
    assert irtjax.compare(fit, order[-1], order[0]).probability_greater > 0.99


def test_saved_and_loaded(case, fit, tmp_path):
    place = irtjax.save(fit, tmp_path / "fit")
    loaded = irtjax.load(place)
    assert loaded.model == MODEL and type(loaded.model.family) is Slip
    assert isinstance(loaded.parameters.items, SlipItems)
    again = irtjax.score(loaded, case.table).table
    assert again.equals(irtjax.score(fit, case.table).table)


@pytest.mark.parametrize(
    ("part", "wanted"),
    [("family", "the family elsewhere.mine.Slip"), ("prior", "the prior elsewhere.P")],
)
def test_a_class_that_is_not_defined_is_named(fit, tmp_path, part, wanted):
    place = irtjax.save(fit, tmp_path / "fit")
    content = json.loads((place / "fit.json").read_text())
    name = wanted.split()[-1]
    if part == "family":
        assert content["model"]["family"]["class"] == f"{__name__}.Slip"
        content["model"]["family"]["class"] = name
    else:
        content["model"]["priors"]["discrimination"]["class"] = name
    (place / "fit.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not defined here: import its") as caught:
        irtjax.load(place)
    assert str(caught.value) == (
        f"{place}: this fit has {wanted}, which is not defined here: import its module"
        " before loading"
    )


def test_a_field_that_json_cannot_hold_is_refused(case, fit, tmp_path):
    class Table(Slip):
        rates: jax.Array = eqx.field(default_factory=lambda: jnp.ones(3))

    model = irtjax.Model("slip", Table(), MODEL.priors)
    with pytest.raises(ValueError, match=r"Table\.rates is a .*Array.*: use numbers"):
        irtjax.save(dataclasses.replace(fit, model=model), tmp_path / "fit")


def test_the_latest_of_two_classes_of_one_name_is_loaded(fit, tmp_path):
    def define():
        class Again(Slip):
            pass

        return Again

    first, second = define(), define()
    model = irtjax.Model("slip", first(), MODEL.priors)
    place = irtjax.save(dataclasses.replace(fit, model=model), tmp_path / "fit")
    assert type(irtjax.load(place).model.family) is second


def test_report_and_plots(fit, tmp_path):
    page = irtjax.write_report(fit, tmp_path / "report")
    assert page.exists()
    for draw in (
        irtjax.plots.plot_abilities,
        irtjax.plots.plot_wright_map,
        irtjax.plots.plot_item_response_functions,
        irtjax.plots.plot_test_information,
        irtjax.plots.plot_item_parameters,
    ):
        assert draw(fit).axes


def test_information_and_predictions(fit):
    theta = np.array([-1.0, 0.5])
    slope, intercept = (np.asarray(x) for x in fit.parameters.items)
    rising = 1 / (1 + np.exp(-slope * theta[:, None] - intercept))
    right = 0.95 * rising
    bend = slope * right * (1 - rising)
    got = irtjax.item_information(MODEL, fit.parameters.items, jnp.asarray(theta))
    np.testing.assert_allclose(got, bend**2 / (right * (1 - right)), rtol=1e-8)
    found = irtjax.predict(fit)
    assert (found.expected < 0.95).all() and (found.expected > 0).all()


def test_an_audit_takes_the_properties_from_the_family(case, fit):
    report = irtjax.audit(fit, case.table)
    assert any("contamination is tested against logistic" in x for x in report.warnings)
    found = report.items.to_pydict()
    assert set(found["p_suspected_contamination"]) == {None}
    assert set(found["lower_asymptote"]) == {None}
    assert None not in found["infit"] + found["p_local_dependence"]
    slope, intercept = (np.asarray(x) for x in fit.parameters.items)
    top = max(fit.abilities.table.column("ability").to_pylist())
    rising = 1 / (1 + np.exp(-slope * top - intercept))
    right, steep = 0.95 * rising, 0.95 * slope * rising * (1 - rising)
    np.testing.assert_allclose(found["chance_of_strongest"], right, rtol=1e-10)
    np.testing.assert_allclose(found["leh"], steep, rtol=1e-10)
    information = steep**2 / (right * (1 - right))
    np.testing.assert_allclose(found["information"], information, rtol=1e-10)
    assert (set(found["guessing"]), set(found["feasibility"])) == ({0.0}, {1.0})


def test_an_adaptive_test_narrows_the_ability(fit):
    session = irtjax.AdaptiveTest(fit, num_items=6)
    errors = []
    while (item := session.next_item()) is not None:
        session.record(item, 1)
        errors.append(session.standard_error)
    assert len(errors) == 6 and errors[-1] < errors[0]


@pytest.mark.slow
def test_a_subset_predicts_the_whole_score(case, fit):
    subset = irtjax.shrink(case.table, 5, model=MODEL)
    assert len(subset.items) == 5

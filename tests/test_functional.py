"""`irtjax.functional`: plain functions of arrays, against plain numpy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import irtjax
from irtjax import functional as fn
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.joint import bound, objective
from irtjax.estimators.joint.cells import cells_of
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.posterior.convergence import effective_draws
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models import catalogue
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_items
from irtjax.numerics.kernels import equal_nodes
from tests.brute_force import category_probabilities

N, J = 17, 5
BINARY = {
    "rasch": catalogue.rasch(),
    "2pl": catalogue.two_parameter(),
    "4pl": catalogue.four_parameter(positive=True),
    "probit2pl": catalogue.probit_two_parameter(),
}
ORDERED = {
    "graded": catalogue.graded(3),
    "partial_credit": catalogue.partial_credit(3),
    "rsm": catalogue.rating_scale(3),
    "nominal": catalogue.nominal(3),
}
MODELS = BINARY | ORDERED
#: The slow run has the models of whose kind there is another.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow)
    if name in ("rasch", "probit2pl", "partial_credit", "rsm")
    else name
    for name in MODELS
]


def case(name: str, seed: int = 0, dtype=float):
    """Items, abilities, responses and a mask of a model."""
    model = MODELS[name]
    rng = np.random.default_rng(seed)
    items = simulate_items(model, J, jax.random.key(seed), dtype=dtype)
    theta = jnp.asarray(rng.normal(size=N), dtype)
    values = jnp.asarray(rng.integers(0, model.family.num_categories, (N, J)), jnp.int8)
    observed = jnp.asarray(rng.random((N, J)) < 0.7)
    return model, items, theta, values, observed


def cells(name: str, items, theta, values):
    """Log-probability of each cell in plain numpy."""
    p = np.asarray(category_probabilities(name, items, theta))
    return np.log(np.take_along_axis(p, np.asarray(values, int)[..., None], 2)[..., 0])


def compiled(function, **settings):
    """A function as one program of this test alone, which is quicker to compile."""
    return jax.jit(lambda *arguments: function(*arguments, **settings))


def small_blocks(monkeypatch, size: int = 5):
    """Lets passes over the data take several blocks."""
    for module in (objective, bound):
        monkeypatch.setattr(module, "block_size_for", lambda *_: size)


@pytest.mark.parametrize("name", NAMES)
def test_log_likelihood_is_the_sum_of_log_probabilities(name, monkeypatch):
    small_blocks(monkeypatch)
    model, items, theta, values, observed = case(name)
    rng = np.random.default_rng(1)
    w, v = rng.random(N), rng.random(J)
    found = jax.jit(fn.log_likelihood)(
        model,
        items,
        theta,
        values,
        observed,
        subject_weight=jnp.asarray(w),
        item_weight=jnp.asarray(v),
    )
    table = np.where(observed, cells(name, items, theta, values), 0)
    np.testing.assert_allclose(found, w @ table @ v, rtol=1e-12)


def test_scores_have_the_normal_density_of_their_logits():
    """Up to h(y): differences between two points are those of the whole density."""
    model = catalogue.continuous()
    rng = np.random.default_rng(6)
    observed = jnp.asarray(rng.random((N, J)) < 0.7)
    key = jax.random.key(6)
    points = [
        (simulate_items(model, J, jax.random.key(k)), jnp.asarray(rng.normal(size=N)))
        for k in range(2)
    ]
    logits = fn.simulate(model, *points[0], key, observed)

    def normal(items, theta):
        mean = np.outer(theta, items.discrimination) + items.intercept
        density = stats.norm.logpdf(logits, mean, np.asarray(items.dispersion))
        return np.sum(density * observed)

    found = [fn.log_likelihood(model, *at, logits, observed) for at in points]
    wanted = [normal(*at) for at in points]
    np.testing.assert_allclose(found[1] - found[0], wanted[1] - wanted[0], rtol=1e-10)
    # Given the key, a logit is a theta + d + sd * noise.
    slopes = jax.grad(
        lambda t: fn.simulate(model, points[0][0], t, key, observed).sum()
    )
    along = slopes(points[0][1])
    np.testing.assert_allclose(along, observed @ points[0][0].discrimination)


def test_counts_of_trials_are_sums_of_single_responses():
    model, items, theta, values, observed = case("2pl")
    again = case("2pl", seed=3)[3]
    single = sum(
        fn.log_likelihood(model, items, theta, y, observed) for y in (values, again)
    )
    # Numbers and trials of missing cells are ignored.
    right = jnp.where(observed, values + again, 7)
    trials = jnp.full((N, J), 2, jnp.int8)
    both = fn.log_likelihood(model, items, theta, right, observed, trials=trials)
    np.testing.assert_allclose(both, single, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_finite_differences(name, monkeypatch):
    small_blocks(monkeypatch)
    model, items, theta, values, observed = case(name)
    at = model.unconstrain(items)

    @jax.jit
    def density(at, theta):
        return fn.log_density(model, at, theta, values, observed)

    gradient = jax.jit(jax.grad(density, (0, 1)))(at, theta)
    rng = np.random.default_rng(5)
    along = rng.normal(size=at.shape), rng.normal(size=N)
    step = 1e-5
    moved = [density(at + s * along[0], theta + s * along[1]) for s in (step, -step)]
    slope = sum(jnp.sum(g * m) for g, m in zip(gradient, along, strict=True))
    np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * step), rtol=1e-6)
    # Second derivatives exist in every mode, and the order does not matter.
    pull = jax.grad(
        lambda at: jax.jvp(lambda a: density(a, theta), (at,), (along[0],))[1]
    )
    push = lambda at: jax.jvp(
        jax.grad(lambda a: density(a, theta)), (at,), (along[0],)
    )[1]
    one, other = jax.jit(lambda at: (pull(at), push(at)))(at)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["2pl", "4pl", "graded"])
def test_log_density_has_every_term_that_its_docstring_names(name):
    model, items, theta, values, observed = case(name)
    at = model.unconstrain(items)
    population = Population(jnp.asarray(0.3), jnp.asarray(1.7))
    point = model, at, theta, values, observed
    found = compiled(fn.log_density, population=population)(*point)
    table = np.where(observed, cells(name, items, theta, values), 0)
    natural = {
        p.name: np.asarray(getattr(items, p.name)) for p in model.family.parameters
    }
    densities: Any = {
        "2pl": {"discrimination": stats.norm(1, 1)},
        "4pl": {
            "discrimination": stats.lognorm(1),
            "lower_asymptote": stats.beta(2, 8),
            "upper_asymptote": stats.beta(10, 1.5),
        },
        "graded": {"discrimination": stats.norm(1, 1)},
    }[name]
    densities = densities | {"intercept": stats.norm(0, 3)}
    if name == "graded" and model.family.parameters[0].bijection.kind == "positive":
        densities["discrimination"] = stats.lognorm(1)
    expected = table.sum() + stats.norm.logpdf(theta, 0.3, 1.7).sum()
    expected += sum(densities[k].logpdf(natural[k]).sum() for k in natural)
    without = compiled(fn.log_density, population=population, jacobian=False)(*point)
    np.testing.assert_allclose(without, expected, rtol=1e-9)

    def flat(row):
        item = model.family.constrain(row)
        parts = [jnp.ravel(getattr(item, p.name)) for p in model.family.parameters]
        return jnp.concatenate(parts)

    moves = jax.jit(jax.vmap(jax.jacobian(flat)))(at)
    volume = np.linalg.slogdet(np.asarray(moves))[1].sum()
    np.testing.assert_allclose(found, expected + volume, rtol=1e-9)
    assert (abs(volume) > 0.1) == (name == "4pl")


def test_the_density_is_zero_where_there_are_no_probabilities():
    model, items, theta, values, _ = case("graded")
    wrong = items._replace(
        intercept=items.intercept.at[1].set(items.intercept[1, ::-1])
    )

    @jax.jit
    def density(at):
        return fn.log_density(model, at, theta, values)

    value, slope = jax.jit(jax.value_and_grad(density))(model.unconstrain(wrong))
    assert value == -jnp.inf
    assert bool((slope == 0).all())
    # A point that is not a number is not hidden.
    assert jnp.isnan(density(model.unconstrain(items).at[0, 0].set(jnp.nan)))


@pytest.mark.parametrize("name", NAMES)
def test_information_is_the_expected_squared_slope(name):
    model, items, theta, _, observed = case(name)
    found = jax.jit(fn.fisher_information)(model, items, theta, observed)
    step = 1e-5
    p, up, down = (
        np.asarray(category_probabilities(name, items, theta + s))
        for s in (0, step, -step)
    )
    table = (((up - down) / (2 * step)) ** 2 / p).sum(-1) * np.asarray(observed)
    np.testing.assert_allclose(found.items, table, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.test, table.sum(1), rtol=1e-6)
    twice = fn.fisher_information(model, items, theta, item_weight=jnp.full(J, 2.0))
    once = fn.fisher_information(model, items, theta)
    np.testing.assert_allclose(twice.test, 2 * once.items.sum(1), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_expected_counts_are_sums_of_posteriors(name):
    model, items, _, values, observed = case(name)
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 41))
    w = np.random.default_rng(2).random(N)
    found = jax.jit(fn.expected_counts)(
        model, items, nodes, values, observed, subject_weight=jnp.asarray(w)
    )
    p = np.asarray(category_probabilities(name, items, nodes))
    y, m, t = np.asarray(values, int), np.asarray(observed), np.asarray(nodes)
    chance = np.stack(
        [p[:, j, y[:, j]] for j in range(J)], -1
    )  # nodes, subjects, items
    prior = stats.norm.pdf(t) / stats.norm.pdf(t).sum()
    joint = prior[:, None] * np.where(m, chance, 1).prod(-1)
    posterior = joint / joint.sum(0)
    np.testing.assert_allclose(found.log_marginal, np.log(joint.sum(0)), rtol=1e-10)
    np.testing.assert_allclose(found.nodes, posterior @ w, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.base, (posterior * w) @ m, rtol=1e-9, atol=1e-15)
    seen = [s * m for s in model.family.statistics(jnp.asarray(y))]
    for sums, statistic in zip(found.statistics, seen, strict=True):
        np.testing.assert_allclose(
            sums, (posterior * w) @ np.asarray(statistic), rtol=1e-9, atol=1e-15
        )
    mean = t @ posterior
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-12)
    variance = ((t[:, None] - mean) ** 2 * posterior).sum(0)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)


@pytest.mark.parametrize("name", ["2pl", "graded"])
def test_counts_of_drawn_abilities_have_the_expected_counts_as_their_mean(name):
    """Means of 4,000 draws are within five of their standard errors."""
    model, items, _, values, observed = case(name)
    nodes, num_draws = jnp.asarray(equal_nodes(-5.0, 5.0, 21)), 4000
    weight = jnp.asarray(np.random.default_rng(2).random(N))
    keys = jax.random.split(jax.random.key(4), num_draws)

    @jax.jit
    def sample(keys):
        draw = lambda key: fn.draw_abilities(model, items, nodes, values, key, observed)
        theta = jax.vmap(draw)(keys)
        count = lambda theta: fn.ability_counts(
            model, theta, nodes, values, observed, subject_weight=weight
        )
        return theta, jax.vmap(count)(theta)

    theta, counts = sample(keys)
    assert np.isin(theta, nodes).all()
    expected = compiled(fn.expected_counts, subject_weight=weight)(
        model, items, nodes, values, observed
    )
    error = np.sqrt(expected.variance / num_draws)
    assert (np.abs(theta.mean(axis=0) - expected.mean) < 5 * error).all()
    fields = counts._fields
    for drawn, exact in zip(
        jax.tree.leaves([getattr(counts, field) for field in fields]),
        jax.tree.leaves([getattr(expected, field) for field in fields]),
        strict=True,
    ):
        # The rule of three for what is drawn never or once: 1e-2 of a subject.
        error = drawn.std(axis=0) / num_draws**0.5
        assert (np.abs(drawn.mean(axis=0) - exact) < 5 * error + 1e-2).all()


def test_counts_of_abilities_are_plain_sums():
    model, _, _, values, observed = case("graded")
    rng = np.random.default_rng(7)
    nodes, places = np.linspace(-2, 2, 9), rng.integers(0, 9, N)
    weight, at = rng.random(N), np.eye(9)[places]
    counts = fn.ability_counts(
        model,
        jnp.asarray(nodes[places]),
        jnp.asarray(nodes),
        values,
        observed,
        subject_weight=jnp.asarray(weight),
    )
    seen = np.asarray(observed) * weight[:, None]
    np.testing.assert_allclose(counts.base, at.T @ seen, atol=1e-12)
    np.testing.assert_allclose(counts.nodes, at.T @ weight, atol=1e-12)
    for k, sums in enumerate(counts.statistics):
        statistic = np.asarray(model.family.statistics(values)[k])
        np.testing.assert_allclose(sums, at.T @ (statistic * seen), atol=1e-12)
    # Between nodes the mean and the variance of the abilities stay.
    theta = rng.uniform(-1.8, 1.8, N)
    counts = fn.ability_counts(model, jnp.asarray(theta), jnp.asarray(nodes), values)
    assert float(counts.nodes @ nodes) == pytest.approx(theta.sum(), abs=1e-12)
    assert float(counts.nodes @ nodes**2) == pytest.approx(theta @ theta, abs=1e-12)


@pytest.mark.parametrize(
    "name",
    ["2pl", *[pytest.param(n, marks=pytest.mark.slow) for n in ("4pl", "graded")]],
)
def test_repeated_item_steps_reach_the_estimates_of_em(name):
    model, *_ = case(name)
    rng, num_subjects = np.random.default_rng(11), 500
    keys = jax.random.split(jax.random.key(11), 2)
    items = simulate_items(model, 8, keys[0], dtype=float, discrimination=(1.0, 1.6))
    theta = jnp.asarray(rng.normal(size=num_subjects))
    values = fn.simulate(model, items, theta, keys[1])
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 61))
    weight = jnp.asarray(rng.integers(0, 3, num_subjects), float)
    data = Responses(values, subject_weight=weight)
    start = start_values(model, data)

    @jax.jit
    def by_steps(first):
        def step(items, _):
            counts = fn.expected_counts(
                model, items, nodes, values, subject_weight=weight
            )
            new = fn.item_step(model, items, nodes, counts)
            prior = fn.item_prior(model, items).log_density
            return new, weight @ counts.log_marginal + prior

        return jax.lax.scan(step, first, length=400)

    estimates, objective = by_steps(start.items)
    assert np.diff(objective).min() > -1e-9
    fit = eqx.filter_jit(run)(
        Problem.create(model, data), irtjax.EM(nodes, tolerance=1e-5), start
    )
    assert int(fit.status) == Status.CONVERGED
    # 1e-4 nats below a maximum are sqrt(2e-4) = .014 standard errors away from it.
    assert float(objective[-1]) == pytest.approx(float(fit.objective), abs=1e-4)
    if name == "2pl":
        for ours, theirs in zip(estimates, fit.parameters.items, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=0.01)


@jax.jit
def exact_with_slopes(model, items, theta, s, values, observed, keys):
    def exact(items, theta):
        scaled = items._replace(
            discrimination=items.discrimination / s, intercept=items.intercept / s
        )
        return fn.log_likelihood(model, scaled, theta, values, observed, **keys)

    return jax.value_and_grad(exact, (0, 1))(items, theta)


@jax.jit
def surrogate_with_slopes(model, items, theta, s, values, observed, keys, anchor):
    def lower(items, theta):
        return fn.mm_surrogate(
            model, items, theta, anchor, values, observed, temperature=s, **keys
        )

    return jax.value_and_grad(lower, (0, 1))(items, theta)


@given(
    seed=st.integers(0, 2**31),
    distance=st.floats(0, 20),
    temperature=st.floats(0.3, 4),
    slope=st.booleans(),
    counts=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_surrogate_is_nowhere_above_the_log_likelihood(
    seed, distance, temperature, slope, counts
):
    _, _, _, values, observed = case("2pl")
    model = BINARY["2pl" if slope else "rasch"]
    rng = np.random.default_rng(seed)
    trials = None
    if counts:
        trials = jnp.asarray(rng.integers(1, 4, (N, J)), jnp.int8)
        values = jnp.asarray(rng.binomial(trials, 0.5), jnp.int8)

    def point(scale):
        a = 1 + scale * rng.normal(size=J) if slope else np.ones(J)
        items = (a, scale * rng.normal(size=J), np.zeros(J), np.ones(J))
        record = model.family.Items(*map(jnp.asarray, items))
        return record, jnp.asarray(scale * rng.normal(size=N))

    anchor = point(1.0)
    other = point(distance)
    s = temperature
    w, v = jnp.asarray(rng.random(N)), jnp.asarray(rng.random(J))
    keys = dict(trials=trials, subject_weight=w, item_weight=v)

    def exact(*point):
        return exact_with_slopes(model, *point, s, values, observed, keys)

    def lower(*point):
        return surrogate_with_slopes(model, *point, s, values, observed, keys, anchor)

    found, wanted = (f(*anchor) for f in (lower, exact))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-11)
    value = float(exact(*other)[0])
    assert lower(*other)[0] <= value + 1e-9 * abs(value)
    # Equal slopes at the anchor, in items and in abilities.
    for one, two in zip(*map(jax.tree.leaves, (found[1], wanted[1])), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("curvature", ["uniform", "cell"])
def test_the_surrogate_is_the_one_that_mm_maximises(curvature, monkeypatch):
    """Its curvature in each block is that of the update; several dimensions too."""
    small_blocks(monkeypatch)
    model, _, _, values, observed = case("2pl")
    rng = np.random.default_rng(3)
    a, d = jnp.asarray(rng.normal(size=(J, 2))), jnp.asarray(rng.normal(size=J))
    theta = jnp.asarray(rng.normal(size=(N, 2)))
    items = model.family.Items(a, d, jnp.zeros(J), jnp.ones(J))
    data = Responses(jnp.where(observed, values, 0), observed)
    cells, keys = cells_of(model, curvature), dict(temperature=1.7, curvature=curvature)
    seen = compiled(bound.sweep)(
        data, bound.BilinearParameters(a, d, theta), 1.7, cells
    )

    def of_rows(rows):
        at = items._replace(intercept=rows[:, 0], discrimination=rows[:, 1:])
        return fn.mm_surrogate(
            model, at, theta, (items, theta), values, observed, **keys
        )

    rows = jnp.concatenate([d[:, None], a], 1)
    slope = jax.jit(jax.grad(of_rows))(rows)
    np.testing.assert_allclose(slope, seen.items.gradient, atol=1e-10)
    hessian = jax.jit(jax.hessian(of_rows))(rows)
    for j in range(J):
        own = -hessian[j, :, j]
        np.testing.assert_allclose(own, seen.items.curvature[j], atol=1e-10)

    def of_theta(theta_new):
        return fn.mm_surrogate(
            model, items, theta_new, (items, theta), values, observed, **keys
        )

    slope = jax.jit(jax.grad(of_theta))(theta)
    np.testing.assert_allclose(slope, seen.subjects.gradient, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["2pl", "4pl", pytest.param("graded", marks=pytest.mark.slow)]
)
def test_a_masked_item_and_a_dropped_item_are_the_same(name):
    model, items, theta, values, observed = case(name)
    keep = np.arange(J) != 2
    observed = observed.at[:, 2].set(False)
    fewer = jax.tree.map(lambda x: x[keep], items)
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 41))
    # What stands in a missing cell does not matter.
    holes = jnp.where(observed, values.astype(float), jnp.nan)
    cut = values[:, keep], observed[:, keep]
    log_likelihood, expected_counts, information, surrogate = map(
        compiled,
        (fn.log_likelihood, fn.expected_counts, fn.fisher_information, fn.mm_surrogate),
    )
    pairs = [
        (
            log_likelihood(model, items, theta, holes, observed),
            log_likelihood(model, fewer, theta, *cut),
        ),
        (
            expected_counts(model, items, nodes, holes, observed).log_marginal,
            expected_counts(model, fewer, nodes, *cut).log_marginal,
        ),
        (
            information(model, items, theta, observed).test,
            information(model, fewer, theta, observed[:, keep]).test,
        ),
    ]
    if name == "2pl":
        anchor = (items, theta + 1)
        pairs += [
            (
                surrogate(model, items, theta, anchor, holes, observed),
                surrogate(model, fewer, theta, (fewer, theta + 1), *cut),
            )
        ]
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    by_items = jax.jit(
        jax.grad(lambda items: fn.log_likelihood(model, items, theta, holes, observed))
    )(items)
    assert all(bool((x[2] == 0).all()) for x in jax.tree.leaves(by_items))


@given(seed=st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_a_weight_is_a_number_of_copies(seed):
    model, items, theta, values, observed = case("2pl")
    weight = np.random.default_rng(seed).multinomial(N, np.full(N, 1 / N))
    rows = np.repeat(np.arange(N), weight)
    at = model.unconstrain(items)
    found = fn.log_density(
        model, at, theta, values, observed, subject_weight=jnp.asarray(weight, float)
    )
    wanted = fn.log_density(model, at, theta[rows], values[rows], observed[rows])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def functions(model, items, theta, values, observed):
    """Each function of the module as one of bootstrap weights."""
    at = model.unconstrain(items)
    nodes = jnp.linspace(-6, 6, 41, dtype=theta.dtype)
    anchor = (items, theta + 1)
    return {
        "log_likelihood": lambda w: fn.log_likelihood(
            model, items, theta, values, observed, subject_weight=w
        ),
        "log_density": lambda w: fn.log_density(
            model, at, theta, values, observed, subject_weight=w
        ),
        "mm_surrogate": lambda w: fn.mm_surrogate(
            model, items, theta, anchor, values, observed, subject_weight=w
        ),
        "expected_counts": lambda w: fn.expected_counts(
            model, items, nodes, values, observed, subject_weight=w
        ),
        "fisher_information": lambda w: fn.fisher_information(
            model, items, theta * w, observed
        ),
    }


@pytest.mark.parametrize(
    "dtype", [pytest.param(jnp.float32, marks=pytest.mark.slow), jnp.float64]
)
@pytest.mark.parametrize(
    "name",
    [
        "log_likelihood",
        "log_density",
        "mm_surrogate",
        "expected_counts",
        "fisher_information",
    ],
)
def test_jit_and_vmap_give_what_a_loop_gives(name, dtype):
    function = functions(*case("2pl", dtype=dtype))[name]
    rng = np.random.default_rng(4)
    weights = jnp.asarray(rng.multinomial(N, np.full(N, 1 / N), size=6), dtype)
    loop = [function(w) for w in weights]
    loop = jax.tree.map(lambda *rows: np.stack(rows), *loop)
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-10
    for found, wanted in zip(
        jax.tree.leaves(jax.jit(jax.vmap(function))(weights)),
        jax.tree.leaves(loop),
        strict=True,
    ):
        assert found.dtype == dtype or found.dtype == jnp.int32
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_simulated_shares_are_the_probabilities(name):
    model, items, _, _, _ = case(name)
    theta, repeats = jnp.asarray([-1.0, 0.5]), 4000
    draw = jax.jit(jax.vmap(lambda k: fn.simulate(model, items, theta, k)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), repeats)))
    p = np.asarray(category_probabilities(name, items, theta))
    shares = np.stack([(drawn == k).mean(0) for k in range(p.shape[-1])], -1)
    # The largest of at most 30 normal deviates exceeds 5 in 1 of 50,000 seeds.
    assert np.max(np.abs(shares - p) / np.sqrt(p * (1 - p) / repeats)) < 5
    mask = jnp.zeros((2, J), bool)
    assert not np.any(fn.simulate(model, items, theta, jax.random.key(0), mask))


def joint_case():
    """Enough data for a proper joint optimum."""
    model = BINARY["2pl"]
    items = simulate_items(model, 12, jax.random.key(8), discrimination=(0.6, 1.8))
    theta = jax.random.normal(jax.random.key(9), (80,))
    observed = jax.random.uniform(jax.random.key(10), (80, 12)) < 0.9
    values = fn.simulate(model, items, theta, jax.random.key(11), observed)
    return model, values, observed


def climb(objective, start, num_steps: int):
    """L-BFGS of optax on minus a function."""
    method: Any = optax.lbfgs()
    loss = lambda point: -objective(point)
    value_and_grad: Any = optax.value_and_grad_from_state(loss)

    def step(carry, _):
        point, state = carry
        value, slope = value_and_grad(point, state=state)
        move, state = method.update(
            slope, state, point, value=value, grad=slope, value_fn=loss
        )
        return (optax.apply_updates(point, move), state), -value

    (point, _), trace = jax.lax.scan(
        step, (start, method.init(start)), length=num_steps
    )
    return point, trace


@pytest.mark.slow
def test_an_optax_loop_reaches_the_optimum_of_mm():
    model, values, observed = joint_case()
    data = Responses(values, observed)
    problem = Problem.create(model, data)
    first = start_values(model, data)
    theirs = eqx.filter_jit(run)(problem, MM(), first)
    assert theirs.status == Status.CONVERGED

    def density(point):
        return fn.log_density(
            model, point[0], point[1], values, observed, jacobian=False
        )

    start = model.unconstrain(first.items), jnp.zeros(80)
    point, trace = jax.jit(lambda start: climb(density, start, 150))(start)
    # MM converges to a relative KKT residual of 1e-6; both optima agree much closer
    # than the standard errors, which are at least 0.1.
    np.testing.assert_allclose(trace[-1], theirs.objective, rtol=1e-8)
    at, theta = point
    scale = objective.identify(problem, theta, model.constrain(at).discrimination)
    mine = model.constrain(model.fold(at, scale.shift, scale.scale))
    for name in ("discrimination", "intercept"):
        found = getattr(mine, name)
        np.testing.assert_allclose(
            found, getattr(theirs.parameters.items, name), atol=1e-3
        )


def nuts(density, step_size: float, scales) -> Any:
    """The kernel of blackjax, which makes arrays when it is imported."""
    import blackjax

    kernel: Any = blackjax.nuts
    return kernel(density, step_size, scales)


def test_nuts_of_blackjax_samples_the_density():
    """Abilities given items have a posterior that quadrature knows."""
    model, items, _, values, observed = case("2pl", dtype=float)
    at = model.unconstrain(items)

    def density(theta):
        return fn.log_density(model, at, theta, values, observed)

    kernel = nuts(density, 0.6, jnp.ones(N))

    @jax.jit
    def sample(key):
        def step(state, key):
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent)

        first = kernel.init(jnp.zeros(N))
        return jax.lax.scan(step, first, jax.random.split(key, 1500))[1]

    draws, divergent = sample(jax.random.key(0))
    assert not divergent.any()
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 201))
    exact = fn.expected_counts(model, items, nodes, values, observed)
    effective = np.asarray(effective_draws(np.asarray(draws)[None, 200:]))
    error = np.sqrt(np.asarray(exact.variance) / effective)
    # Of 17 means, the largest error is below 4.5 standard errors but for 1 in 8,000.
    assert np.max(np.abs(draws[200:].mean(0) - exact.mean) / error) < 4.5


@pytest.mark.slow
def test_nuts_moves_items_and_abilities_together():
    model, items, theta, values, observed = case("4pl")

    def density(position):
        return fn.log_density(model, position[0], position[1], values, observed)

    start = model.unconstrain(items), theta
    kernel = nuts(density, 0.1, jnp.ones(J * 4 + N))
    state = kernel.init(start)
    step = jax.jit(kernel.step)
    for key in jax.random.split(jax.random.key(1), 5):
        state, info = step(key, state)
        assert np.isfinite(state.logdensity)
        assert not info.is_divergent
    moved = jax.tree.map(lambda a, b: np.abs(a - b).min(), start, state.position)
    assert min(jax.tree.leaves(moved)) > 0


def test_the_item_prior_is_the_one_in_the_objective_of_em():
    model, items, _, values, observed = case("2pl")
    table = irtjax.ResponseTable.from_arrays(values, observed=np.asarray(observed))
    fit = irtjax.fit(table, "2pl", "em", standard_errors="none")
    estimated = jax.tree.map(jnp.asarray, fit.parameters.items)
    found = fn.item_prior(model, estimated)
    assert float(found.log_density) == pytest.approx(fit.log_prior, abs=1e-8)
    # A change of location and scale of ability changes nothing.
    moved = items._replace(
        discrimination=items.discrimination * 1.5,
        intercept=items.intercept + items.discrimination,
    )
    pair = [float(fn.item_prior(model, x).log_density) for x in (items, moved)]
    assert pair[0] == pytest.approx(pair[1], abs=1e-6)


def test_what_cannot_be_computed_is_refused():
    model, items, theta, values, observed = case("2pl")
    at = model.unconstrain(items)
    with pytest.raises(ValueError, match="values has shape"):
        fn.log_likelihood(model, items, theta, values.T)
    with pytest.raises(ValueError, match="subject_weight has shape"):
        fn.log_likelihood(model, items, theta, values, subject_weight=jnp.ones(J))
    with pytest.raises(ValueError, match="observed has shape"):
        fn.fisher_information(model, items, theta, observed[:, :2])
    with pytest.raises(ValueError, match="observed has shape"):
        fn.simulate(model, items, theta, jax.random.key(0), observed[:, :2])
    with pytest.raises(ValueError, match="log_weights has shape"):
        fn.expected_counts(model, items, theta, values, log_weights=jnp.zeros(2))
    with pytest.raises(ValueError, match="theta has shape"):
        fn.ability_counts(model, theta[:, None], theta, values)
    with pytest.raises(ValueError, match="subject_weight has shape"):
        fn.ability_counts(model, theta, theta, values, subject_weight=jnp.ones(J))
    with pytest.raises(ValueError, match="item_weight has shape"):
        counts = fn.ability_counts(model, theta, jnp.linspace(-2, 2, 5), values)
        fn.item_step(model, items, jnp.linspace(-2, 2, 5), counts, item_weight=theta)
    with pytest.raises(ValueError, match="histogram"):
        weights = jnp.zeros(5)
        population = Population(jnp.zeros(()), jnp.ones(()), weights)
        fn.log_density(model, at, theta, values, population=population)
    with pytest.raises(ValueError, match="response lengths"):
        fn.log_density(catalogue.MODELS["lart"](), at, theta, values)
    mixed = catalogue.mixed(np.arange(J) % 2 == 0)
    some = jnp.zeros((J, 3))
    with pytest.raises(ValueError, match="lack a parameter"):
        fn.log_density(mixed, some, theta, values)
    assert jnp.isfinite(fn.log_density(mixed, some, theta, values, jacobian=False))
    four = case("4pl")
    with pytest.raises(ValueError, match="MM fits binary models"):
        fn.mm_surrogate(*four[:3], four[1:3], values)
    with pytest.raises(ValueError, match="abilities have shape"):
        fn.mm_surrogate(model, items, theta, (items, theta[:3]), values)

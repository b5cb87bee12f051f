"""Public names under `jit`, `vmap` over weights and `grad`, for one ability and three.

Every method of the package either gives what a plain call gives, or refuses in one
line. Data are so small, and steps so few, that the time is that of compiling.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax import functional as fn
from tests.tables import ALL_METHODS

SUBJECTS, ITEMS = 14, 6
RNG = np.random.default_rng(3)
RIGHT = jnp.asarray(RNG.random((SUBJECTS, ITEMS)) < 0.6, jnp.int8)
NODES = jnp.linspace(-4, 4, 9)
WEIGHTS = jnp.asarray(
    np.stack(
        [np.ones(SUBJECTS), RNG.multinomial(SUBJECTS, np.ones(SUBJECTS) / SUBJECTS)]
    ),
    float,
)
catalogue = importlib.import_module("irtjax.models.catalogue")

#: Every method, as a user sets it up; some have few steps whatever `max_steps`.
METHODS = {
    "em": irtjax.EM(NODES),
    "saem": irtjax.SAEM(NODES),
    "gvem": irtjax.GVEM(),
    "mm": irtjax.MM(),
    "gradient": irtjax.Gradient(),
    "laplace": irtjax.Laplace(),
    "neural": irtjax.Neural(),
    "vibo": irtjax.VIBO(),
    "nuts": irtjax.NUTS(),
    "vi": irtjax.Variational(),
}
#: Models by their number of abilities.
MODELS = {
    1: catalogue.two_parameter(),
    3: catalogue.factor_model(irtjax.Factor(factors=3)),
}
DRAWS = "draws from a posterior and has no steps to run: use irtjax.fit"
#: Why a method does not take a model.
REFUSED = {
    ("em", 3): "abilities of a factor model need [nodes, 3]: pass such nodes",
    ("gvem", 1): "GVEM fits at least two abilities, and a 2pl model has one",
    ("saem", 3): "method 'saem' fits one ability, and a factor model has 3",
    ("gradient", 3): "method 'gradient' fits one ability, and a factor model has 3",
    ("laplace", 3): "have several abilities and cannot be integrated out",
    ("neural", 3): "method 'neural' fits one ability, and a factor model has 3",
    ("vibo", 3): "method 'vibo' fits one ability, and a factor model has 3",
    **dict.fromkeys([(name, k) for name in ("nuts", "vi") for k in (1, 3)], DRAWS),
}
PAIRS = [(name, k) for name in METHODS for k in MODELS]
#: The one of the default run: the method without quadrature, for any number of
#: abilities.
QUICK = ("mm", 3)


def fit_of(name: str, abilities: int, weight=None):
    """A few steps of a method under weights of subjects."""
    method, model = METHODS[name], MODELS[abilities]
    if name == "laplace" and abilities == 1:
        model = catalogue.two_parameter(positive=True)
    plain = irtjax.Responses(RIGHT)
    problem = irtjax.Problem.create(
        model, irtjax.Responses(RIGHT, subject_weight=weight)
    )
    start = irtjax.start_values(model, plain)
    return irtjax.run(problem, method, start, key=jax.random.key(0), max_steps=4)


def test_every_method_has_its_row():
    assert set(METHODS) == set(ALL_METHODS)


@pytest.mark.parametrize(("name", "abilities"), list(REFUSED))
def test_a_method_refuses_in_one_line(name, abilities):
    for call in (
        lambda: fit_of(name, abilities),
        jax.jit(lambda: fit_of(name, abilities)),
    ):
        with pytest.raises(ValueError, match="fits|need|draws|cannot") as raised:
            call()
        message = str(raised.value).splitlines()
        assert len(message) == 1 and REFUSED[name, abilities] in message[0]


@pytest.mark.parametrize(
    ("name", "abilities"),
    [
        pytest.param(*pair, marks=[] if pair == QUICK else pytest.mark.slow)
        for pair in PAIRS
        if pair not in REFUSED
    ],
)
def test_a_fit_under_jit_and_vmap_is_the_plain_one(name, abilities):
    plain = fit_of(name, abilities)
    one = jax.jit(lambda: fit_of(name, abilities))()
    many = jax.jit(jax.vmap(lambda w: fit_of(name, abilities, w)))(WEIGHTS)
    first = jax.tree.map(lambda x: x[0], many)
    for found in (one, first):
        np.testing.assert_allclose(found.objective, plain.objective, rtol=1e-7)
        np.testing.assert_allclose(found.log_lik, plain.log_lik, rtol=1e-7)
        for ours, theirs in zip(
            jax.tree.leaves(found.parameters),
            jax.tree.leaves(plain.parameters),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    # The second row of weights is a bootstrap replicate: rows that are repeated.
    assert np.isfinite(many.objective).all()
    assert abs(many.objective[1] - many.objective[0]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["subjects", "items"])
def test_weights_of_laplace_are_numbers_of_copies(unit):
    model = catalogue.two_parameter(positive=True)
    size = RIGHT.shape[unit == "items"]
    weight = RNG.multinomial(size, np.ones(size) / size)
    rows = np.repeat(np.arange(size), weight)
    repeated = RIGHT[rows] if unit == "subjects" else RIGHT[:, rows]
    name = {"subjects": "subject_weight", "items": "item_weight"}[unit]

    def fit(data):
        problem = irtjax.Problem.create(model, data)
        return irtjax.run(problem, irtjax.Laplace(), None, max_steps=4)

    weigh = lambda w: fit(irtjax.Responses(RIGHT, **{name: w}))
    found = jax.jit(weigh)(jnp.asarray(weight, float))
    wanted = jax.jit(lambda values: fit(irtjax.Responses(values)))(repeated)
    np.testing.assert_allclose(found.objective, wanted.objective, rtol=1e-9)
    np.testing.assert_allclose(found.log_lik, wanted.log_lik, rtol=1e-9)
    ours, theirs = found.parameters.theta, wanted.parameters.theta
    if unit == "subjects":
        assert (np.isnan(ours) == (weight == 0)).all()
        ours = ours[rows]
    np.testing.assert_allclose(ours, theirs, atol=1e-7)


@pytest.mark.slow
def test_replicates_of_laplace_are_fits_of_their_weights():
    """`bootstrap` draws items; the spread of abilities is about their stated error."""
    model = catalogue.two_parameter(positive=True)
    problem = irtjax.Problem.create(model, irtjax.Responses(RIGHT))
    options = {"unit": "items", "num_replicates": 8, "max_steps": 30}
    key = jax.random.key(0)
    found = irtjax.bootstrap(problem, irtjax.Laplace(), None, key=key, **options)
    theta = np.asarray(found.parameters.theta)
    assert theta.shape[:2] == (8, SUBJECTS) and np.isfinite(theta).all()
    assert (theta.std(axis=0) > 0.05).all()


def test_weights_that_are_no_copies_are_refused_or_end_without_a_number():
    model = catalogue.two_parameter(positive=True)
    half = jnp.full(SUBJECTS, 0.5)
    data = irtjax.Responses(RIGHT, subject_weight=half)
    with pytest.raises(ValueError, match=f"whole numbers of sum {SUBJECTS} or less"):
        irtjax.MultilevelProblem.create(model, data)


def factor_case():
    """Items and abilities of three factors."""
    model = MODELS[3]
    slopes = jnp.asarray(RNG.uniform(0.5, 1.5, (ITEMS, 3)))
    fields = {"discrimination": slopes, "intercept": jnp.linspace(-1, 1, ITEMS)}
    return (
        model,
        model.family.complete(fields),
        jnp.asarray(RNG.normal(size=(SUBJECTS, 3))),
    )


def one_case():
    """Items and abilities of one."""
    model = MODELS[1]
    items = model.constrain(jnp.asarray(RNG.uniform(0.5, 1.5, (ITEMS, 2))))
    return model, items, jnp.asarray(RNG.normal(size=SUBJECTS))


#: Functions whose results jump.
DRAWN = ("simulate", "draw_abilities")
CASES = {1: one_case, 3: factor_case}
GRIDS = {1: NODES, 3: jnp.stack(jnp.meshgrid(*[NODES[::2]] * 3), -1).reshape(-1, 3)}


def functions(abilities: int):
    """Scalars of an ability matrix and weights, by each pure function."""
    model, items, theta = CASES[abilities]()
    at, grid = model.unconstrain(items), GRIDS[abilities]

    def counts(theta, weight):
        moved = items._replace(intercept=items.intercept + jnp.mean(theta))
        given = model, moved, grid, RIGHT
        found = fn.expected_counts(*given, subject_weight=weight)
        return jnp.sum(found.log_marginal * weight) + jnp.sum(jnp.asarray(found.mean))

    def information(theta, weight):
        return jnp.sum(fn.fisher_information(model, items, theta).test.T * weight)

    def prior(theta, weight):
        moved = items._replace(intercept=items.intercept + jnp.mean(theta))
        found = fn.item_prior(model, moved, item_weight=weight[:ITEMS])
        return found.log_density

    def step(theta, weight):
        moved = items._replace(intercept=items.intercept + jnp.mean(theta))
        totals = fn.expected_counts(model, moved, grid, RIGHT, subject_weight=weight)
        new = fn.item_step(model, moved, grid, totals)
        return jnp.sum(new.intercept) + jnp.sum(new.discrimination**2)

    def drawn(theta, weight):
        moved = items._replace(intercept=items.intercept + jnp.mean(theta))
        draws = fn.draw_abilities(model, moved, grid, RIGHT, jax.random.key(0))
        return jnp.sum(draws.T * weight)

    def surrogate(theta, weight):
        anchor, given = (items, theta + 1), {"subject_weight": weight}
        return fn.mm_surrogate(model, items, theta, anchor, RIGHT, **given)

    def simulated(theta, weight):
        drawn = fn.simulate(model, items, theta, jax.random.key(0))
        return jnp.sum(drawn * weight[:, None])

    return theta, {
        "log_likelihood": lambda theta, weight: fn.log_likelihood(
            model, items, theta, RIGHT, subject_weight=weight
        ),
        "log_density": lambda theta, weight: fn.log_density(
            model, at, theta, RIGHT, subject_weight=weight
        ),
        "fisher_information": information,
        "expected_counts": counts,
        "item_prior": prior,
        "item_step": step,
        "draw_abilities": drawn,
        "mm_surrogate": surrogate,
        "simulate": simulated,
    }


@pytest.mark.parametrize("abilities", [1, 3])
def test_pure_functions_under_jit_vmap_and_grad(abilities):
    theta, named = functions(abilities)

    def every(theta, weight):
        return jnp.stack([call(theta, weight) * 1.0 for call in named.values()])

    plain = np.stack([every(theta, weight) for weight in WEIGHTS])
    found = jax.jit(jax.vmap(every, in_axes=(None, 0)))(theta, WEIGHTS)
    np.testing.assert_allclose(found, plain, rtol=1e-10)
    way = jnp.asarray(RNG.normal(size=theta.shape))
    slope = jax.jit(jax.jacrev(every))(theta, WEIGHTS[1]).reshape(len(named), -1)
    step, both = 1e-5, jax.jit(every)
    up, down = (both(theta + s * way, WEIGHTS[1]) for s in (step, -step))
    by_hand = (up - down) / (2 * step)
    smooth = [k for k, name in enumerate(named) if name not in DRAWN]
    along = slope @ way.ravel()
    np.testing.assert_allclose(
        along[np.array(smooth)], by_hand[np.array(smooth)], rtol=1e-5, atol=1e-5
    )


def test_information_of_three_abilities_is_that_of_the_gradient():
    """E[g g'] over the two responses, with g by autodiff."""
    model, items, theta = factor_case()
    found = fn.fisher_information(model, items, theta[:2])

    def log_lik(ability, item, right):
        one = jax.tree.map(lambda x: x[item][None], items)
        return fn.log_likelihood(model, one, ability[None], jnp.full((1, 1), right))

    differentiated = jax.jit(jax.value_and_grad(log_lik))
    for node in range(2):
        for item in (0, 3):
            total = 0.0
            for right in (0, 1):
                value, slope = differentiated(theta[node], item, right)
                total = total + jnp.exp(value) * jnp.outer(slope, slope)
            np.testing.assert_allclose(found.items[node, item], total, atol=1e-10)
    np.testing.assert_allclose(found.test, found.items.sum(axis=1), atol=1e-12)


def test_expected_counts_of_three_abilities_are_plain_sums():
    model, items, _ = factor_case()
    grid = GRIDS[3]
    found = jax.jit(fn.expected_counts)(model, items, grid, RIGHT)
    eta = np.asarray(grid @ items.discrimination.T + items.intercept)
    right = np.asarray(RIGHT)
    logs = right @ -np.logaddexp(0, -eta).T + (1 - right) @ -np.logaddexp(0, eta).T
    prior = np.exp(-0.5 * np.sum(np.square(grid), axis=1))
    joint = np.exp(logs) * prior / prior.sum()
    posterior = joint / joint.sum(axis=1, keepdims=True)
    mean = posterior @ np.asarray(grid)
    second = np.einsum("iq,qk,ql->ikl", posterior, grid, grid)
    np.testing.assert_allclose(
        found.log_marginal, np.log(joint.sum(axis=1)), rtol=1e-10
    )
    np.testing.assert_allclose(found.statistics[0], posterior.T @ right, atol=1e-10)
    np.testing.assert_allclose(found.mean, mean, atol=1e-10)
    square = mean[:, :, None] * mean[:, None]
    np.testing.assert_allclose(found.variance, second - square, atol=1e-10)


def test_abilities_of_three_dimensions_are_drawn_from_their_posteriors():
    """Means of 2,000 draws are within five of their standard errors."""
    model, items, _ = factor_case()
    grid, num_draws = GRIDS[3], 2000
    draw = lambda key: fn.draw_abilities(model, items, grid, RIGHT, key)
    keys = jax.random.split(jax.random.key(5), num_draws)
    draws = jax.jit(jax.vmap(draw))(keys)
    exact = fn.expected_counts(model, items, grid, RIGHT)
    variance = np.diagonal(np.asarray(exact.variance), axis1=1, axis2=2)
    error = np.sqrt(variance / num_draws)
    assert (np.abs(draws.mean(axis=0) - exact.mean) < 5 * error).all()
    with pytest.raises(ValueError, match="ability_counts needs one ability"):
        fn.ability_counts(model, draws[0], grid, RIGHT)


@pytest.mark.slow
def test_repeated_item_steps_of_two_abilities_reach_a_stationary_point():
    model = catalogue.factor_model(irtjax.Factor(factors=2))
    slopes = jnp.kron(jnp.eye(2), jnp.full((4, 1), 1.4))
    items = model.constrain(jnp.pad(slopes, ((0, 0), (0, 1))))
    keys = jax.random.split(jax.random.key(8), 2)
    theta = jax.random.normal(keys[0], (400, 2))
    values = fn.simulate(model, items, theta, keys[1])
    line = jnp.linspace(-4, 4, 13)
    grid = jnp.stack(jnp.meshgrid(line, line), -1).reshape(-1, 2)

    def counts_and_objective(items):
        counts = fn.expected_counts(model, items, grid, values)
        return counts, jnp.sum(counts.log_marginal) + fn.item_prior(model, items)[0]

    def step(items, _):
        counts, objective = counts_and_objective(items)
        return fn.item_step(model, items, grid, counts), objective

    @jax.jit
    def climb(items):
        last, objective = jax.lax.scan(step, items, length=300)
        slope = jax.grad(lambda at: counts_and_objective(model.constrain(at))[1])
        return objective, slope(model.unconstrain(last))

    objective, slope = climb(items)
    assert np.diff(objective).min() > -1e-9
    # Standard errors s are about .2, and a gradient g leaves a move of s^2 g: .002 s.
    assert float(jnp.abs(slope).max()) < 1e-2


def test_abilities_of_another_number_are_refused():
    model, items, theta = factor_case()
    for call in (fn.log_likelihood, fn.log_density):
        first = items if call is fn.log_likelihood else model.unconstrain(items)
        with pytest.raises(ValueError, match=r"has 3 abilities: give \[theta, 3\]"):
            call(model, first, theta[:, 0], RIGHT)
    with pytest.raises(ValueError, match=r"has 3 abilities: give \[nodes, 3\]"):
        fn.expected_counts(model, items, NODES, RIGHT)
    with pytest.raises(ValueError, match="has one ability"):
        fn.fisher_information(*one_case()[:2], theta)


def test_response_lengths_are_given_or_refused():
    lart = catalogue.latency_response()
    items = lart.constrain(jnp.asarray(RNG.uniform(0.5, 1.5, (ITEMS, 2))))
    theta = jnp.asarray(RNG.normal(size=SUBJECTS))
    with pytest.raises(ValueError, match="has response lengths: give lengths and log"):
        jax.jit(fn.log_likelihood)(lart, items, theta, RIGHT)
    with pytest.raises(ValueError, match="has response lengths: give lengths and log"):
        fn.expected_counts(lart, items, NODES, RIGHT)
    two, items_of_two, _ = one_case()
    logs = jnp.asarray(RNG.normal(5, 1, (SUBJECTS, ITEMS)))
    with pytest.raises(ValueError, match="'2pl' has no response lengths: leave"):
        fn.log_likelihood(two, items_of_two, theta, RIGHT, log_length=logs)
    lengths = importlib.import_module("irtjax.models.lengths")
    phi, variance = jnp.linspace(0.2, 0.8, ITEMS), jnp.linspace(0.1, 0.5, ITEMS)
    own = lengths.LengthItems(jnp.full(ITEMS, 5.0), phi, variance)
    given = lengths.LengthParameters(own, jnp.array(-0.6))
    more = {"lengths": given, "log_length": logs}
    found = jax.jit(fn.log_likelihood)(lart, items, theta, RIGHT, **more)
    # Given ability, logarithms are normal: of mean omega - phi rho theta.
    probit = catalogue.probit_two_parameter()
    plain = jax.jit(fn.log_likelihood)(probit, items, theta, RIGHT)
    covariance = np.diag(variance) + (1 - 0.36) * np.outer(phi, phi)
    gap = np.asarray(logs - (5.0 + 0.6 * theta[:, None] * phi))
    square = np.sum(gap * np.linalg.solve(covariance, gap.T).T, axis=1)
    constant = ITEMS * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1]
    np.testing.assert_allclose(
        found - plain, np.sum(-0.5 * (square + constant)), rtol=1e-9
    )
    # Two copies of an item are two columns.
    twice = jnp.ones(ITEMS).at[2].set(2.0)
    counts = jax.jit(fn.expected_counts)
    weighted = counts(lart, items, NODES, RIGHT, item_weight=twice, **more)
    columns = np.array([*range(ITEMS), 2])
    again = jax.tree.map(lambda x: x[columns], (items, own))
    more = {"lengths": given._replace(items=again[1]), "log_length": logs[:, columns]}
    wanted = counts(lart, again[0], NODES, RIGHT[:, columns], **more)
    np.testing.assert_allclose(weighted.log_marginal, wanted.log_marginal, rtol=1e-9)


def test_start_values_of_three_abilities():
    start = jax.jit(irtjax.start_values)(MODELS[3], irtjax.Responses(RIGHT))
    assert start.items.discrimination.shape == (ITEMS, 3)
    assert start.theta.shape == (SUBJECTS, 3)
    with pytest.raises(ValueError, match="'low_rank' is for one ability"):
        irtjax.start_values(MODELS[3], irtjax.Responses(RIGHT), how="low_rank")
    mask = np.ones((ITEMS, 2), bool)
    with pytest.raises(ValueError, match=r"give a mask of items x abilities, \(6, 3\)"):
        irtjax.start_values(MODELS[3], irtjax.Responses(RIGHT), loadings=mask)
    wanted = np.ones((ITEMS, 3), bool)
    wanted[:3, 2] = False
    found = irtjax.start_values(MODELS[3], irtjax.Responses(RIGHT), loadings=wanted)
    assert ((found.items.discrimination == 0) == ~wanted).all()

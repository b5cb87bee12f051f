"""Scores against R's mirt, plain numpy on fine grids, and simulation."""

import itertools
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from irtjax.data.responses import Responses
from irtjax.inference import METHODS, Covariance, ScoreFlag, score, score_on_nodes
from irtjax.models.catalogue import (
    four_parameter,
    rasch,
    three_parameter,
    two_parameter,
)
from irtjax.models.model import Population
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from irtjax.numerics import kernels
from tests.scoring_cases import ALL, BOUNDS, NODES, UNIT, logistic_items, make_data


@partial(jax.jit, static_argnums=0)
def _log_lik(family, items, values, exposure, weight, theta):
    def one(values, exposure):
        rows = jnp.broadcast_to(values.astype(float), (theta.size, values.size))
        cells = family.log_prob(rows, items, theta, exposure)
        return (cells * weight).sum(axis=1)

    return jax.vmap(one)(values, exposure)


def log_lik(model, items, data, theta):
    """Log-likelihood of every subject at every ability, straight from `log_prob`."""
    exposure = data.exposure
    if exposure is None:
        exposure = jnp.ones(data.values.shape, bool)
    weight = jnp.ones(data.num_items) if data.item_weight is None else data.item_weight
    theta = jnp.atleast_1d(jnp.asarray(theta, float))
    return np.asarray(
        _log_lik(model.family, items, data.values, exposure, weight, theta)
    )


@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("Rasch", rasch(), marks=pytest.mark.slow),
        ("2PL", two_parameter()),
        ("3PL", three_parameter()),
    ],
)
@pytest.mark.parametrize("method", ["eap", "map", "ml"])
def test_lsat7_scores_match_mirt(shared_data, name, model, method):
    text = (shared_data / "classic" / "mirt_lsat7_reference.json").read_text()
    everything = json.loads(text)
    reference = everything[name]
    rows = [reference["coef"][f"Item.{j}"]["values"][0] for j in range(1, 6)]
    slope, intercept, logit_low, _ = np.array(rows, float).T
    low = 1 / (1 + np.exp(np.minimum(-logit_low, 700)))
    sd = jnp.sqrt(jnp.array(float(reference["GroupPars"]["cov"])))
    data = Responses(jnp.array(everything["patterns"], jnp.int8))
    got = score(
        model,
        logistic_items(slope, intercept, low),
        Population(jnp.array(0.0), sd),
        data,
        scoring=method,
        nodes=np.linspace(-6, 6, 61),
    )
    expected = np.array(
        [
            [float(str(x).replace("NA", "nan")) for x in row]
            for row in reference[method.upper()]
        ]
    )
    finite = np.isfinite(expected[:, 0])
    np.testing.assert_allclose(got.ability[finite], expected[finite, 0], atol=5e-6)
    # mirt takes the curvature at modes by finite differences, good to about 5e-5.
    tolerance = 1e-5 if method == "eap" else 1e-4
    np.testing.assert_allclose(
        got.standard_error[finite], expected[finite, 1], atol=tolerance
    )
    np.testing.assert_array_equal(got.flag == ScoreFlag.AT_BOUND, ~finite)
    np.testing.assert_array_equal(
        got.ability[~finite], np.sign(expected[~finite, 0]) * 6
    )
    assert jnp.isfinite(got.standard_error).all()
    if method == "eap":
        total = np.dot(everything["freq"], got.log_marginal)
        assert total == pytest.approx(reference["logLik"], abs=1e-3)


#: Every family once, and the 2PL and 3PL with every kind of data.
CASES = [
    *(("2pl", kind) for kind in ("complete", "missing", "weighted", "trials")),
    *(("3pl", kind) for kind in ("complete", "missing", "trials")),
    ("rasch", "missing"),
    ("1pl", "weighted"),
    ("4pl", "missing"),
    ("probit1pl", "complete"),
    ("probit2pl", "trials"),
    ("graded", "missing"),
    ("partial credit", "weighted"),
]
#: The cases of the slow run only: others have their family or their kind of data.
SLOW_CASES = (
    ("3pl", "complete"),
    ("3pl", "trials"),
    ("rasch", "missing"),
    ("1pl", "weighted"),
    ("4pl", "missing"),
    ("probit1pl", "complete"),
    ("partial credit", "weighted"),
)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


WIDE = Population(jnp.array(0.3), jnp.array(1.2))


@pytest.mark.parametrize(
    ("name", "kind"), [slow(*c) if c in SLOW_CASES else c for c in CASES]
)
def test_eap_is_the_mean_on_a_fine_grid(name, kind):
    model = ALL[name]
    items, data = make_data(model, kind)
    fine = np.linspace(0.3 - 7.2, 0.3 + 7.2, 4001)
    log_prior = -0.5 * ((fine - 0.3) / 1.2) ** 2
    joint = log_lik(model, items, data, fine) + log_prior - logsumexp(log_prior)
    total = logsumexp(joint, axis=1)
    weight = np.exp(joint - total[:, None])
    mean = weight @ fine
    sd = np.sqrt((weight * (fine - mean[:, None]) ** 2).sum(axis=1))
    got = score(model, items, WIDE, data, nodes=NODES)
    np.testing.assert_allclose(got.ability, mean, atol=1e-6)
    np.testing.assert_allclose(got.standard_error, sd, atol=1e-6)
    np.testing.assert_allclose(got.log_marginal, total, atol=1e-6)


#: The first method by default for every other case, the second for the rest; neither
#: for the cases of the slow run only.
MODES = [
    pytest.param(
        *case,
        method,
        marks=[pytest.mark.slow] * ((k + place) % 2 or case in SLOW_CASES),
    )
    for k, case in enumerate(CASES)
    for place, method in enumerate(("map", "ml"))
]


@pytest.mark.parametrize(("name", "kind", "method"), MODES)
def test_modes_are_global_maxima(name, kind, method):
    model = ALL[name]
    items, data = make_data(model, kind)
    low, high = (-6.9, 7.5) if method == "map" else (-6.0, 6.0)
    precision = 1 / 1.2**2 if method == "map" else 0.0

    def objective(theta):
        prior = 0.5 * precision * (np.asarray(theta) - 0.3) ** 2
        return log_lik(model, items, data, theta) - prior

    def own(theta):
        return np.diagonal(objective(theta))

    got = score(model, items, WIDE, data, scoring=method, nodes=NODES)
    theta = np.asarray(got.ability)
    top = objective(np.linspace(low, high, 2001)).max(axis=1)
    # No point of a fine grid is higher: the maximum is the global one.
    assert (own(theta) >= top - 1e-9).all()
    inner = np.asarray(got.flag) == 0
    assert set(theta[~inner]) <= {low, high}
    step = 1e-3
    up, middle, down = own(theta + step), own(theta), own(theta - step)
    slope, curvature = (up - down) / (2 * step), (2 * middle - up - down) / step**2
    # Central differences err by step^2 times a third derivative of order 1.
    assert (np.abs(slope[inner]) < 1e-5).all()
    curved = inner & (curvature > 0.01)
    np.testing.assert_allclose(
        got.standard_error[curved], curvature[curved] ** -0.5, rtol=1e-4
    )


@partial(jax.jit, static_argnums=0)
def _category_probs(family, items, theta):
    over_items = jax.vmap(family.category_log_probs, in_axes=(0, None))
    return jnp.exp(jax.vmap(over_items, in_axes=(None, 0))(items, theta))


def information_and_skew(model, items, data, theta):
    """Warm's I and J of every subject, by differences of category probabilities."""
    step = 1e-4
    low, mid, high = (
        np.asarray(_category_probs(model.family, items, jnp.asarray(theta + k * step)))
        for k in (-1, 0, 1)
    )
    first, second = (high - low) / (2 * step), (high - 2 * mid + low) / step**2
    exposure = 1.0 if data.exposure is None else np.asarray(data.exposure, float)
    weight = 1.0 if data.item_weight is None else np.asarray(data.item_weight)
    share = np.ones(data.values.shape) * exposure * weight
    return share @ (first**2 / mid).sum(2).T, share @ (first * second / mid).sum(2).T


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("2pl", "complete"),
        ("3pl", "missing"),
        slow("4pl", "weighted"),
        slow("probit2pl", "trials"),
        ("graded", "missing"),
        slow("partial credit", "complete"),
    ],
)
def test_wle_solves_warms_equation(name, kind):
    model = ALL[name]
    items, data = make_data(model, kind)
    got = score(model, items, UNIT, data, scoring="wle", nodes=NODES)
    theta = np.asarray(got.ability)
    inner = np.asarray(got.flag) == 0
    assert inner.sum() >= 9
    step = 1e-4
    up, down = (
        np.diagonal(log_lik(model, items, data, theta + k * step)) for k in (1, -1)
    )
    information, skew = (
        np.diagonal(each) for each in information_and_skew(model, items, data, theta)
    )
    equation = (up - down) / (2 * step) + skew / (2 * information)
    # Differences of probabilities at a step of 1e-4 err by about 1e-16 / 1e-8.
    assert (np.abs(equation[inner]) < 1e-5).all()
    np.testing.assert_allclose(
        got.standard_error[inner], information[inner] ** -0.5, rtol=1e-5
    )
    # Of several roots it is the one where the integrated equation is highest.
    grid = np.linspace(-6, 6, 2401)
    information, skew = information_and_skew(model, items, data, grid)
    ratio = skew / (2 * information)
    steps = (ratio[:, 1:] + ratio[:, :-1]) / 2 * (grid[1] - grid[0])
    integral = np.pad(np.cumsum(steps, axis=1), ((0, 0), (1, 0)))
    best = grid[(log_lik(model, items, data, grid) + integral).argmax(axis=1)]
    np.testing.assert_allclose(theta, best, atol=0.006)


def all_patterns(num_items):
    return jnp.array(list(itertools.product([0, 1], repeat=num_items)), jnp.int8)


def test_wle_is_the_mode_of_likelihood_times_root_information_for_the_2pl():
    items = logistic_items([0.7, 1.0, 1.6, 2.0], [0.5, -1.0, 0.0, 1.0])
    data = Responses(all_patterns(4))
    got = score(two_parameter(), items, UNIT, data, scoring="wle", nodes=NODES)
    assert (got.flag == 0).all() and (jnp.abs(got.ability) < 5).all()
    for row, theta in enumerate(np.asarray(got.ability)):

        def objective(t, row=row):
            right = jax.nn.sigmoid(items.discrimination * t + items.intercept)
            info = jnp.sum(items.discrimination**2 * right * (1 - right))
            y = data.values[row]
            return (
                jnp.sum(jnp.log(jnp.where(y == 1, right, 1 - right)))
                + jnp.log(info) / 2
            )

        assert abs(jax.grad(objective)(float(theta))) < 1e-8


def test_wle_removes_most_of_the_bias_of_ml():
    # The exact expectation over all 2^9 patterns: nothing is random here.
    intercepts = np.linspace(-2, 2, 9)
    items = logistic_items(1.3, intercepts)
    patterns = all_patterns(9)
    theta = 1.0
    right = 1 / (1 + np.exp(-(1.3 * theta + intercepts)))
    chance = np.where(np.asarray(patterns) == 1, right, 1 - right).prod(axis=1)
    bias = {}
    for method in ("ml", "wle", "map"):
        got = score(two_parameter(), items, UNIT, Responses(patterns), scoring=method)
        bias[method] = float(chance @ np.asarray(got.ability)) - theta
    assert abs(bias["wle"]) < 0.25 * abs(bias["ml"])
    assert abs(bias["wle"]) < 0.25 * abs(bias["map"])


def test_all_right_and_all_wrong():
    items = logistic_items(1.0, np.zeros(6))
    data = Responses(jnp.array([[0] * 6, [1] * 6], jnp.int8))
    for method in METHODS:
        got = score(two_parameter(), items, UNIT, data, scoring=method)
        assert jnp.isfinite(got.ability).all() and (got.standard_error > 0).all()
        np.testing.assert_allclose(got.ability[0], -got.ability[1], atol=1e-9)
        at_bound = method == "ml"
        np.testing.assert_array_equal(got.flag == ScoreFlag.AT_BOUND, [at_bound] * 2)
    ml = score(two_parameter(), items, UNIT, data, scoring="ml", bounds=(-4.0, 3.0))
    assert ml.ability.tolist() == [-4.0, 3.0]
    assert (ml.standard_error <= 7.0).all()


def test_a_flat_likelihood_ends_at_the_bound():
    # With both asymptotes the likelihood of an all-right subject is flat, up to
    # rounding, from far below the bound on: no point of that plateau is an estimate.
    items = logistic_items(6.0, np.zeros(12), 0.2, 0.9)
    data = Responses(jnp.ones((1, 12), jnp.int8))
    for dtype in (jnp.float32, jnp.float64):
        small = jax.tree.map(lambda x, d=dtype: x.astype(d), (items, UNIT))
        got = score(four_parameter(), *small, data, scoring="ml", bounds=(-9, 9))
        assert got.ability.dtype == dtype
        assert float(got.ability[0]) == 9.0
        assert int(got.flag[0]) == ScoreFlag.AT_BOUND
        assert float(got.standard_error[0]) <= 18.0


def test_the_higher_of_two_modes_is_found():
    # Weak items failed and steep, hard, guessable ones solved: a guesser or a master.
    model = three_parameter()
    slope = [0.5] * 4 + [3.0] * 4 + [1.2] * 2
    items = logistic_items(slope, [0.5] * 4 + [-4.5] * 4 + [4.8] * 2, low=0.25)
    rows = ["0011111111", "0000111111", "0001111111", "0000111011"]
    data = Responses(jnp.array([[int(y) for y in row] for row in rows], jnp.int8))
    grid = np.linspace(-6, 6, 4801)
    values = log_lik(model, items, data, grid)
    rising = np.diff(values, axis=1) > 0
    assert ((rising[:, :-1] & ~rising[:, 1:]).sum(axis=1) == 2).all()
    for nodes in (NODES, None):
        got = score(model, items, UNIT, data, scoring="ml", nodes=nodes)
        np.testing.assert_allclose(
            got.ability, grid[values.argmax(axis=1)], atol=0.0026
        )
        assert (got.ability > 0).tolist() == [True, False, True, False]


def test_subjects_without_responses():
    items = logistic_items(1.0, np.zeros(4))
    observed = jnp.array([[0, 0, 0, 0], [1, 1, 0, 1]], bool)
    data = Responses(jnp.array([[0, 0, 0, 0], [1, 0, 0, 1]], jnp.int8), observed)
    population = Population(jnp.array(0.4), jnp.array(1.5))
    for method in METHODS:
        got = score(two_parameter(), items, population, data, scoring=method)
        assert float(got.ability[0]) == pytest.approx(0.4, abs=1e-9)
        assert float(got.standard_error[0]) == pytest.approx(1.5, abs=1e-9)
        assert got.flag.tolist() == [ScoreFlag.NO_RESPONSES, 0]
        assert float(got.log_marginal[0]) == pytest.approx(0, abs=1e-12)


def test_histogram_population():
    items = logistic_items(1.0, np.array([0.0, 1.0]))
    data = Responses(all_patterns(2))
    at = np.full(13, -np.inf)
    at[[5, 8]] = np.log([0.25, 0.75])
    population = UNIT._replace(log_weights=jnp.asarray(at))
    got = score(two_parameter(), items, population, data)
    lik = np.exp(log_lik(two_parameter(), items, data, [-1.0, 2.0]))
    joint = lik * [0.25, 0.75]
    mean = joint @ [-1.0, 2.0] / joint.sum(axis=1)
    np.testing.assert_allclose(got.ability, mean, rtol=1e-9)
    np.testing.assert_allclose(got.log_marginal, np.log(joint.sum(axis=1)), rtol=1e-9)
    with pytest.raises(ValueError, match="is not defined for a histogram"):
        score(two_parameter(), items, population, data, scoring="map")
    with pytest.raises(ValueError, match="13 nodes, but 121 nodes were given"):
        score(two_parameter(), items, population, data, nodes=NODES)
    for method in ("ml", "wle"):
        plain = score(two_parameter(), items, UNIT, data, scoring=method, nodes=NODES)
        other = score(two_parameter(), items, population, data, scoring=method)
        np.testing.assert_allclose(other.ability, plain.ability, atol=1e-9)


def test_bad_arguments_are_refused():
    items = logistic_items(1.0, np.zeros(2))
    data = Responses(all_patterns(2))
    with pytest.raises(ValueError, match="'mle' is not one of eap, map, ml, wle"):
        score(two_parameter(), items, UNIT, data, scoring="mle")
    with pytest.raises(ValueError, match="not in increasing order"):
        score(two_parameter(), items, UNIT, data, scoring="ml", bounds=(3, -3))


#: A mean, and a mode with a term of its own; of MAP and ML there is nothing else.
UNLIKE = [method if method in ("eap", "wle") else slow(method) for method in METHODS]


@pytest.mark.parametrize("method", UNLIKE)
def test_blocks_of_subjects_change_nothing(method, monkeypatch):
    model = two_parameter()
    items, data = make_data(model, "missing", num_subjects=600)
    shared = jnp.asarray(np.random.default_rng(0).normal(size=(3, 9, 2)) * 0.1)
    covariance = Covariance.of_independent(
        jnp.einsum("rja,rjb->jab", shared, shared)
    )._replace(shared=shared, shared_scale=jnp.zeros((3, 2)))

    def scored(*arguments):
        # A function of its own each time, so that it is traced again.
        own = jax.jit(lambda *given: score_on_nodes(model, *given, scoring=method))
        return own(*arguments)

    arguments = (items, UNIT, data, NODES, BOUNDS, covariance)
    whole = scored(*arguments)
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    assert kernels.block_size_for(600, 9, 8) == 200
    parts = scored(*arguments)
    assert whole.shared is not None and whole.shared.shape == (600, 3)
    for there, here in zip(whole, parts, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-9)


def test_pure_under_jit_and_vmap():
    model = two_parameter()
    items, data = make_data(model, "complete", num_subjects=6)
    weights = jnp.stack([jnp.ones(9), jnp.arange(9.0)])

    def scored(weight):
        weighted = Responses(data.values, item_weight=weight)
        return score_on_nodes(
            model, items, UNIT, weighted, NODES, BOUNDS, scoring="wle"
        )

    together = jax.jit(jax.vmap(scored))(weights)
    for index in range(2):
        alone = jax.jit(scored)(weights[index])
        assert alone.shared is None and together.shared is None
        for there, here in zip(alone[:4], together[:4], strict=True):
            np.testing.assert_allclose(here[index], there, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("method", [m if m == "wle" else slow(m) for m in METHODS])
def test_float32_is_close_to_float64(method):
    model = three_parameter()
    items, data = make_data(model, "missing", num_subjects=40, num_items=60)
    small = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (items, UNIT))
    got = score(model, *small, data, scoring=method)
    expected = score(model, items, UNIT, data, scoring=method)
    assert got.ability.dtype == jnp.float32 and got.standard_error.dtype == jnp.float32
    # A sum of 60 float32 logarithms near 40 is good to 4e-6 x a few; modes of a flat
    # log-likelihood lie within the root of that.
    np.testing.assert_allclose(got.ability, expected.ability, atol=1e-3)
    np.testing.assert_allclose(got.standard_error, expected.standard_error, rtol=1e-3)
    np.testing.assert_array_equal(got.flag, expected.flag)


@pytest.mark.slow
def test_posterior_errors_are_calibrated():
    # Abilities from the population: E[(theta - EAP)^2 / sd^2] is exactly 1; for WLE it
    # is close to 1 with 60 items. The mean of 3,000 squares has error about
    # sqrt(2 / 3000) = 0.026; four of them.
    model = two_parameter()
    keys = jax.random.split(jax.random.key(8), 3)
    items = simulate_items(model, 60, keys[0], discrimination=(0.8, 2.0))
    theta = simulate_abilities(3000, keys[1])
    data = simulate(model, items, theta, keys[2])
    for method in ("eap", "wle"):
        got = score(model, items, UNIT, data, scoring=method)
        z = (theta - got.ability) / got.standard_error
        assert float(jnp.mean(z**2)) == pytest.approx(1, abs=0.105)
    eap = score(model, items, UNIT, data)
    inside = jnp.abs(theta - eap.ability) < 1.959964 * eap.standard_error
    assert float(inside.mean()) == pytest.approx(
        0.95, abs=4 * np.sqrt(0.05 * 0.95 / 3000)
    )

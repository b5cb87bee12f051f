"""Standard errors: the inverse Hessian of the marginal likelihood, by brute force."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import irtjax
from irtjax.data.responses import Responses
from irtjax.inference import (
    LOST,
    covariance,
    gradients,
    inversion,
    item_covariance,
)
from irtjax.likelihood.problem import Problem
from irtjax.models import catalogue
from irtjax.models.model import Population
from irtjax.models.priors import Beta, Normal
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.progress import watching
from tests import brute_force
from tests.tables import (
    NUM_ITEMS,
    NUM_SUBJECTS,
    case,
    draw,
    estimated_vector,
    fit_with,
    frame_columns,
    free_columns,
    grid_fit,
    marginal_method,
    standard_population,
    true_items,
)

#: Wide enough that the derivative of the tail's mass with respect to the population's
#: standard deviation, of order reach * density(reach), is below 1e-15.
WIDE = equal_nodes(-9.0, 9.0, 91)
#: The agreement asked for: relative to the standard errors' own products.
AGREEMENT = 1e-6


def _covariance(problem, vector, **options):
    coordinates, mean, log_sd, _ = brute_force.unpack(
        problem.model, vector, problem.data.num_items
    )
    population = Population(mean, jnp.exp(log_sd))
    return item_covariance(
        problem, coordinates, population, jnp.asarray(WIDE), **options
    )


def _hessian_inverse(problem, vector, free):
    """Inverse of minus the Hessian over the estimated positions, 0 elsewhere.

    The frame of the priors is estimated along with the rest.
    """
    objective = brute_force.marginal_objective(problem.model, problem.data, WIDE)
    hessian = np.asarray(jax.jit(jax.hessian(objective))(vector))
    if not problem.anchored:
        free = np.r_[free, frame_columns(problem.model)]
    return _embed(np.linalg.inv(-hessian[np.ix_(free, free)]), free, vector.size)


def _embed(block, free, size):
    whole = np.zeros((size, size))
    whole[np.ix_(free, free)] = block
    return whole[:-2, :-2]


def _in_best_frame(model, vector):
    """The vector with the frame that suits the priors best, by scipy."""
    coordinates, mean, log_sd, _ = brute_force.unpack(model, vector, NUM_ITEMS)
    items = model.constrain(coordinates)
    movable = np.array([1.0, float(model.family.has_slope)])
    loss = jax.jit(
        lambda frame: -brute_force.log_prior(model, items, log_sd, frame * movable)
    )
    found = optimize.minimize(
        jax.value_and_grad(loss), np.zeros(2), jac=True, options={"gtol": 1e-9}
    )
    return brute_force.pack(coordinates, mean, log_sd, found.x * movable)


def _assert_blocks_agree(covariance, whole, columns, tolerance=AGREEMENT):
    """Every block that is reported against the same block of the whole matrix."""
    assert bool(covariance.definite)
    error = np.sqrt(np.diag(whole))
    unit = np.where(error > 0, error, 1)
    scaled = whole / np.outer(unit, unit)
    scale_unit = unit[-2:]
    for item in range(len(covariance.items)):
        own = np.arange(item * columns, (item + 1) * columns)
        block = np.asarray(covariance.items[item]) / np.outer(unit[own], unit[own])
        np.testing.assert_allclose(block, scaled[np.ix_(own, own)], atol=tolerance)
        cross = np.asarray(covariance.items_scale[item]) / np.outer(
            unit[own], scale_unit
        )
        np.testing.assert_allclose(cross, scaled[own, -2:], atol=tolerance)
    corner = np.asarray(covariance.scale) / np.outer(scale_unit, scale_unit)
    np.testing.assert_allclose(corner, scaled[-2:, -2:], atol=tolerance)
    # So few parameters that the factor of what items share has full rank.
    factor = np.concatenate(
        [
            np.asarray(covariance.shared).reshape(-1, len(whole) - 2),
            np.asarray(covariance.shared_scale),
        ],
        axis=1,
    )
    between = factor.T @ factor / np.outer(unit, unit)
    item_of = np.r_[np.repeat(np.arange(len(covariance.items)), columns), -1, -1]
    other = (item_of[:, None] != item_of) | (item_of < 0)
    np.testing.assert_allclose(between[other], scaled[other], atol=tolerance)


def _weighted(data):
    weight = np.random.default_rng(4).gamma(3.0, 1 / 3, NUM_SUBJECTS)
    return dataclasses.replace(data, subject_weight=jnp.asarray(weight))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param("rasch", "dense", marks=pytest.mark.slow),
        ("1pl", "leading"),
        ("2pl", "dense"),
        pytest.param("2pl positive", "leading", marks=pytest.mark.slow),
        pytest.param("3pl", "dense", marks=pytest.mark.slow),
        pytest.param("graded", "dense", marks=pytest.mark.slow),
    ],
)
def test_observed_information_is_the_hessian(name, how):
    # With missing cells, subject weights and priors, at the truth: the identity holds
    # at any point, not only at a maximum.
    simulated = case(name)
    model, data = simulated.model, _weighted(simulated.data)
    vector = simulated.vector
    if name == "3pl":
        # Away from a maximum its information need not be positive definite.
        vector, data = estimated_vector(grid_fit(name, "em")), simulated.data
    vector = _in_best_frame(model, vector)
    problem = Problem.create(model, data)
    # Guessing bends a gradient more than the default number of polynomials follows: its
    # error is 4e-5 there.
    terms = 40 if name == "3pl" else None
    covariance = _covariance(problem, vector, how=how, num_terms=terms)
    whole = _hessian_inverse(problem, vector, free_columns(model))
    # The recurrence for many polynomials loses some digits.
    tolerance = AGREEMENT if terms is None else 10 * AGREEMENT
    _assert_blocks_agree(covariance, whole, model.family.num_columns, tolerance)


def test_trials():
    model = catalogue.two_parameter()
    rng = np.random.default_rng(3)
    trials = rng.integers(0, 5, (NUM_SUBJECTS, NUM_ITEMS))
    probability = brute_force.category_probabilities(
        "2pl", true_items(model), rng.standard_normal(NUM_SUBJECTS)
    )
    values = rng.binomial(trials, np.asarray(probability[..., 1])).astype(np.int8)
    data = Responses(
        jnp.asarray(values), jnp.asarray(trials > 0), jnp.asarray(trials, jnp.int32)
    )
    problem = Problem.create(model, data)
    vector = _in_best_frame(model, case("2pl").vector)
    whole = _hessian_inverse(problem, vector, free_columns(model))
    _assert_blocks_agree(_covariance(problem, vector), whole, 2)


def _anchored(model, data):
    """Half of the items known, and the intercept alone of one more."""
    free = np.array(model.family.free_columns(NUM_ITEMS))
    free[:3] = False
    free[3, 1] = False
    return Problem(model, data, jnp.asarray(free), anchored=True)


def test_anchors():
    simulated = case("2pl")
    model = simulated.model
    problem = _anchored(model, simulated.data)
    # A population that is shifted and stretched.
    vector = simulated.vector.at[-4:-2].set(jnp.asarray([0.4, np.log(1.3)]))
    positions = free_columns(model, anchored=True)
    fixed = np.flatnonzero(~np.asarray(problem.free).ravel())
    free = np.setdiff1d(positions, fixed)
    covariance = _covariance(problem, vector)
    _assert_blocks_agree(covariance, _hessian_inverse(problem, vector, free), 2)
    assert (np.asarray(covariance.items[:3]) == 0).all()
    assert (np.asarray(covariance.scale) != 0).all()


@pytest.mark.slow
def test_oakes_identity_is_a_second_route():
    # Oakes (1999): -(d2 Q / d new2 + d2 Q / d new d old) at new = old.
    simulated = case("2pl")
    problem = Problem.create(catalogue.two_parameter(None), simulated.data)
    vector = simulated.vector
    expected = brute_force.expected_objective(problem.model, problem.data, WIDE)
    own = jax.jit(jax.hessian(expected))(vector, vector)
    cross = jax.jit(jax.jacfwd(jax.grad(expected), argnums=1))(vector, vector)
    free = free_columns(problem.model)
    information = -np.asarray(own + cross)[np.ix_(free, free)]
    whole = _embed(np.linalg.inv(information), free, vector.size)
    _assert_blocks_agree(_covariance(problem, vector), whole, 2)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param("observed", "woodbury", marks=pytest.mark.slow),
        pytest.param("observed", "leading", marks=pytest.mark.slow),
        ("sandwich", "leading"),
    ],
)
def test_the_ways_to_invert_agree(kind, how):
    simulated = case("2pl")
    problem, vector = Problem.create(simulated.model, simulated.data), simulated.vector
    dense, other = (
        _covariance(problem, vector, kind=kind, how=way, num_terms=3)
        for way in ("dense", how)
    )
    assert bool(other.definite)
    np.testing.assert_allclose(other.items, dense.items, rtol=1e-7, atol=1e-10)


def test_rows_in_memory_and_rows_of_every_pass_are_the_same(monkeypatch):
    simulated = case("2pl")
    problem = Problem.create(simulated.model, simulated.data)
    coordinates, mean, log_sd, _ = brute_force.unpack(
        problem.model, simulated.vector, NUM_ITEMS
    )
    given = problem, coordinates, Population(mean, jnp.exp(log_sd)), jnp.asarray(WIDE)
    found, shares = [], []
    programs = {x: getattr(covariance, x).function for x in ("_begin", "_pass")}
    for size in (inversion.STORED_BYTES, 0):
        monkeypatch.setattr(inversion, "STORED_BYTES", size)
        for name, function in programs.items():
            # A function of its own is traced anew.
            anew = lambda *x, function=function: function(*x)
            monkeypatch.setattr(covariance, name, eqx.filter_jit(anew))
        with watching(lambda share, part: shares.append((share, part))):
            how = {"num_terms": 2, "how": "leading"}
            found.append(item_covariance(*given, **how))
    # Whoever watches sees each pass over the subjects.
    assert shares[:2] == [(0.0, "pass 1 of 4"), (0.25, "pass 2 of 4")]
    np.testing.assert_allclose(found[1].items, found[0].items, rtol=1e-9)
    np.testing.assert_allclose(found[1].scale, found[0].scale, rtol=1e-9, atol=1e-12)


def _gradients(problem, vector):
    """Each subject's gradient by brute force, `[subjects, positions]`."""
    model, weights = problem.model, brute_force.normal_weights(WIDE)

    def terms(vector):
        coordinates, mean, log_sd, _ = brute_force.unpack(model, vector, NUM_ITEMS)
        items, theta = model.constrain(coordinates), mean + jnp.exp(log_sd) * WIDE
        return jnp.log(
            brute_force.subject_likelihoods(
                model.name, items, problem.data, theta, weights
            )
        )

    return np.asarray(jax.jit(jax.jacfwd(terms))(vector))


@pytest.mark.parametrize("name", ["2pl", pytest.param("rasch", marks=pytest.mark.slow)])
def test_cross_products_and_the_sandwich(name):
    simulated = case(name)
    model = catalogue.BINARY_MODELS[name](None)
    problem = Problem.create(model, _weighted(simulated.data))
    vector, free = simulated.vector, free_columns(model)
    gradients = _gradients(problem, vector)[:, free]
    outer = (gradients.T * np.asarray(problem.data.subject_weight)) @ gradients
    columns = model.family.num_columns
    covariance = _covariance(problem, vector, kind="cross_product")
    whole = _embed(np.linalg.inv(outer), free, vector.size)
    _assert_blocks_agree(covariance, whole, columns)
    bread = _hessian_inverse(problem, vector, free)[np.ix_(free, free)]
    covariance = _covariance(problem, vector, kind="sandwich")
    whole = _embed(bread @ outer @ bread, free, vector.size)
    _assert_blocks_agree(covariance, whole, columns)


def test_blocks_of_subjects_change_nothing_but_rounding(monkeypatch):
    simulated = case("2pl")
    problem, vector = Problem.create(simulated.model, simulated.data), simulated.vector
    whole = _covariance(problem, vector, num_terms=3)
    monkeypatch.setattr(gradients, "BLOCK_BYTES", 4 * 14 * 8 * 100)
    # Blocks of 80 of the 240 subjects. By another name, since the compiled program of
    # the whole serves every problem of the same.
    model = dataclasses.replace(simulated.model, name="2pl in blocks")
    again = dataclasses.replace(problem, model=model)
    blocks = _covariance(again, vector, num_terms=3)
    np.testing.assert_allclose(blocks.items, whole.items, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    "how",
    [
        "dense",
        pytest.param("woodbury", marks=pytest.mark.slow),
        pytest.param("leading", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_identified_is_said(how):
    # Nobody met the last item, and there is no prior on it.
    simulated = case("2pl")
    observed = simulated.data.observed
    assert observed is not None
    seen = observed.at[:, -1].set(False)
    data = Responses(simulated.data.values * seen, seen)
    problem = Problem.create(catalogue.two_parameter(None), data)
    covariance = _covariance(problem, simulated.vector, how=how)
    assert not bool(covariance.definite) and int(covariance.negative) == 0
    identified = np.asarray(covariance.identified)
    assert identified[:-1].all() and not identified[-1].any()
    # The errors of the others are those of the Hessian without that item.
    free = free_columns(problem.model)
    whole = _hessian_inverse(problem, simulated.vector, free[:-2])
    error = np.sqrt(np.diag(whole))[: 2 * NUM_ITEMS].reshape(NUM_ITEMS, 2)[:-1]
    found = np.sqrt(np.diagonal(covariance.items, axis1=1, axis2=2))[:-1]
    np.testing.assert_allclose(found, error, rtol=AGREEMENT)
    priors = {"discrimination": Normal(1.0, 2.0), "intercept": Normal(0.0, 3.0)}
    weak = Problem.create(catalogue.two_parameter(priors), data)
    covariance = _covariance(weak, simulated.vector, how=how)
    # Its errors are its priors' standard deviations and what comes from their frame.
    assert bool(covariance.definite) and bool(covariance.identified.all())
    assert (np.diag(covariance.items[-1]) > 0.9 * np.array([4.0, 9.0])).all()


def _four_parameter_vector():
    """Items of which some are steep: their gradients are no polynomials of ability."""
    model = catalogue.four_parameter(None)
    row = lambda *x: jnp.asarray(x)
    items = model.family.Items(
        discrimination=row(1.2, 8.0, 1.8, 1.0, 20.0, 0.4),
        intercept=row(0.0, 1.0, -1.0, 0.5, -4.0, 0.2),
        lower_asymptote=row(0.1, 0.2, 0.15, 0.25, 0.2, 0.1),
        upper_asymptote=row(0.95, 0.9, 0.97, 0.99, 0.8, 0.95),
    )
    return model, items, brute_force.pack(model.unconstrain(items))


def _without_frame(model, data, vector):
    """Minus the Hessian of the objective over the items' coordinates."""
    objective = brute_force.marginal_objective(model, data, WIDE)
    hessian = np.asarray(jax.jit(jax.hessian(objective))(vector))
    free = free_columns(model)
    return -hessian[np.ix_(free, free)]


@pytest.mark.slow
def test_steep_items_have_the_errors_of_the_hessian_or_none():
    # Not at a maximum: the information has negative eigenvalues.
    model, items, vector = _four_parameter_vector()
    random = np.random.default_rng(5)
    values = draw("4pl", items, random.standard_normal(240), random)
    data = Responses(jnp.asarray(values), None)
    information = _without_frame(model, data, vector)
    eigenvalues = np.linalg.eigvalsh(information)
    problem = Problem.create(model, data)
    covariance = _covariance(problem, vector)
    assert int(covariance.negative) == np.sum(eigenvalues < 0) > 0
    assert not bool(covariance.definite)
    variance = np.diag(np.linalg.inv(information))
    identified = np.asarray(covariance.identified).ravel()
    assert 0 < identified.sum() < identified.size
    found = np.diagonal(covariance.items, axis1=1, axis2=2).ravel()[identified]
    # What is left out adds or takes at most LOST of a variance.
    ratio = found / variance[identified]
    assert (variance[identified] > 0).all()
    np.testing.assert_allclose(ratio, 1, atol=1.1 * LOST)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_a_fit_that_is_no_maximum_gives_errors_of_the_hessian_or_none(steps):
    # Stopped early: of 20 converged fits of 600 x 32 with priors none was a saddle.
    model, items, _ = _four_parameter_vector()
    random = np.random.default_rng(5)
    values = draw("4pl", items, random.standard_normal(240), random)
    table = irtjax.ResponseTable.from_arrays(np.asarray(values, float))
    fit = irtjax.fit(table, "4pl", "em", priors=None, max_steps=steps)
    assert any("the estimate is not a maximum" in text for text in fit.warnings)
    found = model.family.Items(*map(jnp.asarray, fit.parameters.items))
    vector = brute_force.pack(model.unconstrain(found))
    data = Responses(jnp.asarray(values), None)
    information = _without_frame(model, data, vector)
    assert np.linalg.eigvalsh(information)[0] < 0
    variance = np.diag(np.linalg.inv(information))
    own = np.diagonal(fit.item_covariance, axis1=1, axis2=2).ravel()
    known = np.isfinite(own)
    assert 0 < known.sum() < known.size
    np.testing.assert_allclose(own[known] / variance[known], 1, atol=1.1 * LOST)
    # Items with a parameter that has no error are flagged.
    lost = ~known.reshape(fit.item_covariance.shape[:2]).all(axis=1)
    flags = fit.items.table.column("flags").to_pylist()
    assert ["not identified" in flag for flag in flags] == lost.tolist()


@pytest.mark.slow
def test_steep_items_have_all_errors_of_the_hessian_at_a_maximum():
    # Nothing is left out. A few polynomials make some errors too small.
    _, items, _ = _four_parameter_vector()
    random = np.random.default_rng(5)
    values = draw("4pl", items, random.standard_normal(240), random)
    data = Responses(jnp.asarray(values), None)
    prior = {
        "discrimination": Normal(1.0, 3.0),
        "intercept": Normal(0.0, 5.0),
        "lower_asymptote": Beta(1.5, 4.0),
        "upper_asymptote": Beta(4.0, 1.5),
    }
    model = catalogue.four_parameter(prior)
    vector = estimated_vector(fit_with(marginal_method(), model, data))
    vector = _in_best_frame(model, vector)
    problem = Problem.create(model, data)
    covariance = _covariance(problem, vector)
    assert bool(covariance.definite)
    whole = _hessian_inverse(problem, vector, free_columns(model))
    _assert_blocks_agree(covariance, whole, 4)
    few = _covariance(problem, vector, num_terms=8, how="dense")
    ratio = np.diagonal(few.items, axis1=1, axis2=2).ravel() / np.diag(whole)[:-2]
    assert ratio.min() < 0.95 and ratio.max() < 1 + AGREEMENT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "priors"),
    [
        ("3pl", {"lower_asymptote": Beta(5.0, 17.0)}),
        ("2pl", {"discrimination": Normal(1.0, 1.0)}),
        ("2pl", {"intercept": Normal(0.0, 2.0)}),
    ],
)
def test_priors_on_some_parameters_only(name, priors):
    # The frame of such priors is itself not determined, which must not matter.
    simulated = case(name)
    model = catalogue.BINARY_MODELS[name](priors)
    fit = fit_with(marginal_method(), model, simulated.data)
    problem = Problem.create(model, simulated.data)
    covariance = _covariance(problem, estimated_vector(fit))
    assert bool(covariance.definite)
    assert bool(jnp.isfinite(covariance.items).all())


def test_bad_requests_name_the_cure():
    simulated = case("2pl")
    model, data = simulated.model, simulated.data
    problem = Problem.create(model, data)
    with pytest.raises(ValueError, match="'bayesian' are none of observed"):
        _covariance(problem, simulated.vector, kind="bayesian")
    many = Problem.create(model, Responses(jnp.zeros((3, 1600), jnp.int8)))
    with pytest.raises(ValueError, match=r"all 3200 parameters .*'observed'"):
        item_covariance(
            many,
            jnp.zeros((1600, 2)),
            standard_population(),
            jnp.asarray(WIDE),
            kind="cross_product",
        )
    assert data.observed is not None
    few = Responses(data.values[:9], data.observed[:9])
    # Priors would make the matrix invertible, but 9 subjects have too few gradients.
    for priors in (None, "weak"):
        short = Problem.create(catalogue.two_parameter(priors), few)
        with pytest.raises(ValueError, match=r"more subjects \(9\) than parameters"):
            _covariance(short, simulated.vector, kind="cross_product")


def test_single_precision_is_kept():
    simulated = case("2pl")
    model = simulated.model
    coordinates = model.unconstrain(simulated.items)
    problem = Problem.create(model, simulated.data)
    double = item_covariance(
        problem, coordinates, standard_population(), jnp.asarray(WIDE)
    )
    single = item_covariance(
        problem,
        coordinates.astype(jnp.float32),
        standard_population(jnp.float32),
        jnp.asarray(WIDE, jnp.float32),
    )
    assert single.items.dtype == jnp.float32
    np.testing.assert_allclose(single.items, double.items, rtol=1e-3, atol=1e-5)

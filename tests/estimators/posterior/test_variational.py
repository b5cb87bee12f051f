"""Variational inference: Gaussians it must recover, and what it says elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from irtjax._types import Status
from irtjax.estimators.posterior import pareto_k
from irtjax.estimators.posterior.methods import Variational
from irtjax.estimators.posterior.variational import fit_variational

DIMS = 4
RNG = np.random.default_rng(5)
ROOT = RNG.normal(size=(DIMS, DIMS))
COVARIANCE = ROOT @ ROOT.T + 0.3 * np.eye(DIMS)
MEAN = 3 * RNG.normal(size=DIMS)
#: A position in two parts.
START = {"first": jnp.zeros(1), "rest": jnp.zeros(DIMS - 1)}
TARGET = (jnp.asarray(MEAN), jnp.asarray(np.linalg.inv(COVARIANCE)))
LOG_EVIDENCE = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]


def log_normal(position, target):
    """A normal log density without its constant."""
    mean, precision = target
    gap = jnp.concatenate([position["first"], position["rest"]]) - mean
    return -0.5 * gap @ precision @ gap


fit_jit = jax.jit(fit_variational, static_argnames="log_density")


def fit(key=0, **settings):
    return fit_jit(
        log_normal,
        START,
        TARGET,
        key=jax.random.key(key),
        method=Variational(**settings),
    )


def flat(position):
    return np.concatenate([position["first"], position["rest"]], axis=-1)


def covariance(found):
    factor = flat(found.factor)
    return np.diag(flat(found.own_sd) ** 2) + factor.T @ factor


def test_a_gaussian_is_recovered_with_as_many_columns_as_coordinates():
    found = fit(rank=DIMS)
    assert Status(int(found.status)) is Status.CONVERGED
    # The noise of the gradient vanishes there: what is left is the last learning rate,
    # 5e-4, of which averages over 500 steps retain less.
    sd = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_array_less(np.abs(flat(found.mean) - MEAN) / sd, 1e-3)
    gap = (covariance(found) - COVARIANCE) / np.outer(sd, sd)
    np.testing.assert_array_less(np.abs(gap), 1e-3)
    np.testing.assert_allclose(flat(found.sd), np.sqrt(np.diag(covariance(found))))
    # Divergence from the posterior is of second order in these errors.
    assert abs(float(found.elbo) - LOG_EVIDENCE) < 1e-4
    assert float(found.elbo_error) < 1e-4
    # All ratios are alike but for those errors: their tail is bounded.
    assert pareto_k(found.log_ratio) < 0.5


def test_draws_and_density_are_those_of_the_approximation():
    found = fit(rank=2, num_steps=300)
    num = 20_000
    draws = flat(found.sample(num, key=jax.random.key(4)))
    wanted, centre = covariance(found), flat(found.mean)
    variance = np.diag(wanted)
    error = np.sqrt((np.outer(variance, variance) + wanted**2) / num)
    assert (np.abs(np.cov(draws.T) - wanted) < 5 * error).all()
    assert (np.abs(draws.mean(0) - centre) < 5 * np.sqrt(variance / num)).all()
    position = {"first": jnp.asarray(MEAN[:1]), "rest": jnp.asarray(MEAN[1:])}
    np.testing.assert_allclose(
        found.log_density(position),
        stats.multivariate_normal.logpdf(MEAN, centre, wanted),
        rtol=1e-9,
    )
    # A leading axis of draws, part by part.
    assert found.sample(7, key=jax.random.key(0))["rest"].shape == (7, DIMS - 1)


@pytest.mark.slow
def test_mean_field_matches_precisions():
    """KL(q || p) of a product of normals from N(m, S) is least at 1 / diag(S^-1)."""
    fits = jax.jit(
        lambda keys: jax.vmap(
            lambda key: fit_variational(
                log_normal, START, TARGET, key=key, method=Variational()
            )
        )(keys)
    )(jax.random.split(jax.random.key(1), 8))
    wanted = -0.5 * np.log(np.diag(np.linalg.inv(COVARIANCE)))
    log_sd = np.log(flat(jax.vmap(lambda found: found.sd)(fits)))
    # Eight independent fits: their spread is the Monte Carlo error of one. A deviation
    # of log sd biases its mean by its square, so by less than 1e-3 at 0.03.
    error = log_sd.std(0, ddof=1) / np.sqrt(8)
    assert (log_sd.std(0) < 0.03).all()
    assert (np.abs(log_sd.mean(0) - wanted) < 5 * error + 1e-3).all()
    # The bound falls short of the evidence by the divergence, in closed form.
    precision = np.linalg.inv(COVARIANCE)
    short = 0.5 * (np.log(np.diag(precision)).sum() + np.linalg.slogdet(COVARIANCE)[1])
    error = np.sqrt((np.asarray(fits.elbo_error) ** 2).sum()) / 8
    assert abs(np.mean(fits.elbo) - LOG_EVIDENCE + short) < 5 * error + 1e-3
    assert (np.asarray(fits.status) == Status.CONVERGED).all()


def regression(position, data):
    """Normal coefficients, normal noise: all constants included."""
    design, outcome = data
    prior = jnp.sum(jax.scipy.stats.norm.logpdf(position))
    residual = outcome - design @ position
    return prior + jnp.sum(jax.scipy.stats.norm.logpdf(residual, scale=0.5))


@pytest.mark.slow
def test_the_bound_is_the_log_evidence_of_a_regression():
    design = RNG.normal(size=(30, 3))
    outcome = design @ RNG.normal(size=3) + 0.5 * RNG.normal(size=30)
    found = fit_jit(
        regression,
        jnp.zeros(3),
        (jnp.asarray(design), jnp.asarray(outcome)),
        key=jax.random.key(0),
        method=Variational(rank=3),
    )
    marginal = design @ design.T + 0.25 * np.eye(30)
    wanted = stats.multivariate_normal.logpdf(outcome, np.zeros(30), marginal)
    # As above: the divergence is of second order in errors of 1e-3.
    assert float(found.elbo) == pytest.approx(
        wanted, abs=5 * float(found.elbo_error) + 1e-4
    )


@pytest.mark.slow
def test_the_tail_of_the_ratios_shows_a_bad_approximation():
    """Mean field of two coordinates with correlation 0.98 is five times too narrow."""
    precision = np.linalg.inv([[1.0, 0.98], [0.98, 1.0]])
    target = (jnp.zeros(2), jnp.asarray(precision))
    start = {"first": jnp.zeros(1), "rest": jnp.zeros(1)}
    found = fit_jit(
        log_normal,
        start,
        target,
        key=jax.random.key(0),
        method=Variational(num_ratios=4000),
    )
    assert Status(int(found.status)) is Status.CONVERGED
    assert pareto_k(found.log_ratio) > 0.7


def test_the_same_key_gives_the_same_result_and_single_precision_stays():
    settings = {"rank": 1, "num_steps": 100}
    one, again, other = fit(3, **settings), fit(3, **settings), fit(4, **settings)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (flat(one.mean) != flat(other.mean)).all()
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (START, TARGET))
    found = fit_jit(
        log_normal, *single, key=jax.random.key(0), method=Variational(**settings)
    )
    kinds = {leaf.dtype for leaf in jax.tree.leaves(found)}
    assert kinds == {jnp.dtype("float32"), jnp.dtype("int32")}


def test_it_says_when_it_has_not_arrived_and_when_nothing_is_finite():
    far = jax.tree.map(lambda x: x + 1e4, START)
    settings = Variational(num_steps=1000)
    found = fit_jit(log_normal, far, TARGET, key=jax.random.key(0), method=settings)
    assert Status(int(found.status)) is Status.MAX_STEPS
    nothing = (TARGET[0], jnp.nan * TARGET[1])
    found = fit_jit(log_normal, START, nothing, key=jax.random.key(0), method=settings)
    assert Status(int(found.status)) is Status.NONFINITE
    np.testing.assert_array_equal(flat(found.mean), 0)
    assert np.isnan(found.elbo_trace).all()


def test_bad_settings_and_starts_are_refused():
    with pytest.raises(ValueError, match="num_draws=1; it needs at least 2"):
        Variational(num_draws=1)
    with pytest.raises(ValueError, match="floating arrays of one dtype"):
        fit_variational(log_normal, jnp.zeros(2, int), key=jax.random.key(0))
    with pytest.raises(ValueError, match="100 or more"):
        pareto_k(np.zeros(50))
    with pytest.raises(ValueError, match="not finite in draw 3"):
        pareto_k(np.where(np.arange(200) == 3, np.inf, 0.0))


def test_the_tail_of_pareto_ratios_has_their_shape():
    for shape in (0.3, 0.9):
        ratio = stats.genpareto.rvs(shape, size=20_000, random_state=1)
        # 425 ratios in the tail: an asymptotic error of (1 + k) / sqrt(425), and the
        # prior of ten observations at 0.5.
        error = (1 + shape) / np.sqrt(425)
        found = pareto_k(np.log(ratio))
        assert found == pytest.approx(shape, abs=4 * error + 0.5 * 10 / 435)
    assert pareto_k(np.zeros(100)) == 0

"""Joint methods where the unit of ability is not free to choose."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.estimators.joint.objective import log_normal_ability
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import rasch
from irtjax.models.model import Population
from irtjax.models.priors import LogNormal

SLOPE = 2.5


@functools.cache
def steep() -> tuple[irtjax.ResponseTable, np.ndarray]:
    """Responses to items of one slope far from 1."""
    rng = np.random.default_rng(0)
    theta, easiness = rng.normal(size=(300, 1)), rng.normal(size=20)
    right = rng.random((300, 20)) < 1 / (1 + np.exp(-(SLOPE * theta + easiness)))
    return irtjax.ResponseTable.from_arrays(right), theta[:, 0]


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param("1pl", "mm", marks=pytest.mark.slow),
        pytest.param("rasch", "gradient", marks=pytest.mark.slow),
        pytest.param("1pl", "gradient", marks=pytest.mark.slow),
        pytest.param("rasch", "mm", marks=pytest.mark.slow),
    ],
)
def test_a_common_slope_is_estimated(name, method):
    table, theta = steep()
    fit = irtjax.fit(table, name, method)
    population = fit.parameters.population
    unit = float(fit.parameters.items.discrimination[0]) * float(population.sd)
    # Posterior modes of 20 such items have a reliability of 0.9 or so: their spread is
    # below the population's by the root of that, or by the sampling of 300 subjects.
    assert 0.85 * SLOPE < unit < 1.1 * SLOPE
    assert float(population.sd) == pytest.approx(1 if name == "1pl" else unit, rel=1e-6)
    rows = fit.abilities.table.to_pydict()
    place = [table.subjects.tolist().index(s) for s in rows["subject"]]
    truth = theta[place] * (SLOPE if name == "rasch" else 1)
    inside = (np.array(rows["lower"]) <= truth) & (truth <= np.array(rows["upper"]))
    # 300 intervals: four standard errors of a share of 0.95 are 0.05.
    assert inside.mean() > 0.9


def test_the_prior_of_abilities_is_the_problems():
    data = irtjax.ResponseTable.from_arrays([[1, 0], [0, 1]]).responses()
    prior = Population(jnp.array(0.5), jnp.array(2.0))
    problem = Problem(rasch(), data, jnp.ones((2, 1), bool), prior=prior)
    assert problem.prior is prior
    density = log_normal_ability(jnp.array([1.5]), prior.mean, prior.sd)
    assert float(density[0]) == pytest.approx(-0.125 - np.log(2 * np.sqrt(2 * np.pi)))


@pytest.mark.parametrize("method", ["mm", "gradient"])
def test_anchors_and_shrunken_abilities_are_refused(method):
    table, _ = steep()
    anchor = {table.items[0]: {"discrimination": 1.0, "intercept": 0.0}}
    with pytest.raises(ValueError, match="use method='em'"):
        irtjax.fit(table, "2pl", method, anchor=anchor)


@pytest.mark.slow
def test_mm_keeps_slopes_positive_with_its_default_priors():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(200, 1))
    slope = np.r_[np.full(9, 1.2), -1.0]
    right = rng.random((200, 10)) < 1 / (1 + np.exp(-theta * slope))
    table = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(table, "2pl", "mm", positive=True)
    assert fit.status.name == "CONVERGED"
    found = np.asarray(fit.parameters.items.discrimination)
    assert found[-1] == 0 and (found[:-1] > 0.3).all()


def test_a_log_normal_prior_on_free_slopes_is_refused():
    table, _ = steep()
    with pytest.raises(ValueError, match="keep them positive"):
        irtjax.fit(table, "2pl", priors={"discrimination": LogNormal(0.0, 1.0)})


@pytest.mark.slow
def test_a_histogram_population_converges():
    table, _ = steep()
    assert irtjax.fit(table, "2pl", population="histogram").status.name == "CONVERGED"

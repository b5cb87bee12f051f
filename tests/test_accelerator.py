"""Fits on an accelerator have the numbers of the processor: `pytest -m gpu`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.numerics.precision import full_precision

pytestmark = pytest.mark.gpu

#: Model, method, settings, subjects and items.
CASES = [
    pytest.param("2pl", "em", {}, 200, 30, id="em"),
    pytest.param("2pl", "laplace", {}, 10, 60, id="laplace"),
    pytest.param("factor", "mm", {"factors": 3, "rotation": "none"}, 150, 60, id="mm"),
    pytest.param("factor", "gvem", {"factors": 2}, 150, 20, id="gvem"),
    pytest.param("graded", "em", {}, 200, 15, id="graded"),
    pytest.param("3pl", "gradient", {}, 200, 30, id="gradient"),
    pytest.param("2pl", "saem", {"num_steps": 40}, 100, 20, id="saem"),
]


@pytest.fixture(scope="module")
def accelerator():
    if jax.default_backend() == "cpu":
        pytest.skip("needs an accelerator")
    return jax.devices()[0]


def table_of(subjects: int, items: int, top: int = 1) -> irtjax.ResponseTable:
    """Responses 0 to `top` from three abilities."""
    rng = np.random.default_rng(0)
    slopes = rng.normal(1, 0.5, (items, 3)) * (rng.random((items, 3)) < 0.6)
    chance = 1 / (1 + np.exp(-rng.normal(size=(subjects, 3)) @ slopes.T))
    return irtjax.ResponseTable.from_arrays(rng.binomial(top, chance))


def numbers(table, model, method, dtype, device, settings):
    with jax.default_device(device):
        fit = irtjax.fit(table, model, method=method, dtype=dtype, **settings)
    rows = fit.abilities.table.sort_by("subject")
    ability, error = (rows[k].to_numpy() for k in ("ability", "ability_se"))
    return fit.log_likelihood, ability, error


@pytest.mark.parametrize(("model", "method", "settings", "subjects", "items"), CASES)
def test_numbers_are_those_of_the_processor(
    accelerator, model, method, settings, subjects, items
):
    table = table_of(subjects, items, 2 if model == "graded" else 1)
    given = table, model, method
    processor = jax.devices("cpu")[0]
    wanted = numbers(*given, jnp.float64, processor, settings)
    found = numbers(*given, jnp.float64, accelerator, settings)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
    # Single precision stops earlier: up to a tenth of a nat below, where one parameter
    # is worth one in AIC.
    found = numbers(*given, jnp.float32, accelerator, settings)
    assert found[0] == pytest.approx(wanted[0], rel=2e-5, abs=0.1)
    # Draws in single precision are other draws.
    errors = 0.1 if method == "saem" else 0.05
    np.testing.assert_allclose(found[1], wanted[1], atol=errors * np.median(wanted[2]))
    np.testing.assert_allclose(found[2], wanted[2], rtol=0.02)


def test_products_have_the_precision_of_their_numbers(accelerator):
    """TensorFloat-32 has an error of 2^-11 of each factor, float32 one of 2^-24."""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(512, 512)).astype(np.float32) for _ in range(2))
    exact = left.astype(np.float64) @ right
    found = full_precision(jax.jit(jnp.matmul))(left, right)
    assert np.abs(np.asarray(found) - exact).max() < 1e-5 * np.abs(exact).max()

"""What MM knows of a response, against the families' own densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.estimators.joint.bound import BilinearParameters, sweep
from irtjax.estimators.joint.cells import LOGIT, GradedCells, ProbitCells, cells_of
from irtjax.estimators.joint.cuts import leaders
from irtjax.likelihood.problem import Problem
from irtjax.models import catalogue
from tests.estimators.joint.joint_cases import SHAPE, responses, simulated

MODELS = {
    "2pl": catalogue.two_parameter(),
    "probit2pl": catalogue.probit_two_parameter(),
    "graded": catalogue.graded(4),
    "graded of two": catalogue.graded(2),
    "partial_credit": catalogue.partial_credit(4),
}


def density(family, values, eta, cuts):
    """Log p of a family at predictors, as a function of each and of the cuts."""

    def one(y, t, c):
        zero = jnp.zeros(())
        item = family.Items(
            zero + 1, c, *[zero, zero + 1][: len(family.Items._fields) - 2]
        )
        base, *rest = family.natural(item, t)
        return base + sum(
            s * g for s, g in zip(family.statistics(y), rest, strict=True)
        )

    return one, jax.vmap(one)


@pytest.mark.parametrize("name", list(MODELS))
def test_log_density_slope_and_curvature(name):
    model, cells = MODELS[name], cells_of(MODELS[name])
    family, rng = model.family, np.random.default_rng(0)
    count = 400
    eta = jnp.asarray(rng.normal(scale=3, size=count).clip(-9, 9))
    values = jnp.asarray(rng.integers(0, family.num_categories, count), float)
    cuts = rng.normal(size=(count, max(cells.num_cuts, 1)))
    cuts = -np.sort(-cuts, axis=1) if cells.num_cuts else 0 * cuts
    cuts = jnp.asarray(cuts) if cells.num_cuts else jnp.zeros(count)
    one, every = density(family, values, eta, cuts)
    # A row of cells, of as many items.
    given = values[None], jnp.ones((1, count)), eta[None]
    found = cells.cell(*given, cuts, True)
    np.testing.assert_allclose(found.log_prob[0], every(values, eta, cuts), atol=1e-12)
    slope = jax.vmap(jax.grad(one, 1))(values, eta, cuts)
    np.testing.assert_allclose(found.slope[0], slope, atol=1e-11)
    bend = jax.vmap(jax.grad(jax.grad(one, 1), 1))(values, eta, cuts)
    assert -bend.min() <= cells.curvature * (1 + 1e-12)
    # The bound is nearly reached: no smaller one holds.
    near = 0.05 * eta - (6 if name == "probit2pl" else 0)
    tight = 0.01 * cuts if cells.num_cuts else cuts
    if name == "partial_credit":  # The middle categories are never chosen.
        tight = jnp.broadcast_to(jnp.array([-9.0, 0.0, 9.0]), cuts.shape)
    ends = jnp.where(values > 0, family.num_categories - 1, 0)
    for y in (values, ends):
        at = jax.vmap(jax.grad(jax.grad(one, 1), 1))(y, near, tight)
        bend = jnp.minimum(bend, at)
    share = -bend.min() / cells.curvature
    assert share > 0.95
    if cells.num_cuts < 2:
        return
    terms = cells.cut_terms(*given, cuts)
    scores = jax.vmap(jax.grad(one, 2))(values, eta, cuts)
    np.testing.assert_allclose(jnp.stack(terms.scores, -1)[0], scores, atol=1e-9)
    expected = 0
    for y in range(family.num_categories):
        y = jnp.full(count, float(y))
        score = jax.vmap(jax.grad(one, 2))(y, eta, cuts)
        chance = jnp.exp(every(y, eta, cuts))
        expected = expected + jnp.einsum("n,nh,nk->nhk", chance, score, score)
    for h in range(cells.num_cuts):
        for k in range(h, cells.num_cuts):
            at = terms.information.get((h, k), jnp.zeros((1, count)))[0]
            np.testing.assert_allclose(at, expected[:, h, k], atol=1e-9)


@pytest.mark.parametrize("cells", [ProbitCells(), GradedCells(3), GradedCells(2)])
def test_surrogates_touch_and_stay_below(cells):
    rng = np.random.default_rng(1)
    values, observed = simulated(pattern="mcar")
    theta, slope = rng.normal(size=(SHAPE[0], 2)), rng.normal(size=(SHAPE[1], 2))
    cuts = None
    if cells.num_cuts:
        values = (rng.integers(0, cells.categories, SHAPE) * observed).astype(np.int8)
        cuts = jnp.tile(jnp.linspace(0.7, -0.7, cells.num_cuts), (SHAPE[1], 1))
        cuts = cuts if cells.num_cuts > 1 else 0 * cuts
    data = responses(values, observed)
    point = BilinearParameters(
        jnp.asarray(slope), jnp.zeros(SHAPE[1]), jnp.asarray(theta), cuts
    )
    pass_over = jax.jit(lambda at: sweep(data, at, 0.7, cells))
    seen = pass_over(point)
    for size in (1e-5, 0.3, 3.0):
        move = size * rng.normal(size=theta.shape)
        gain = pass_over(point._replace(theta=theta + move)).log_lik - seen.log_lik
        square = np.einsum("ij,ijk,ik->i", move, seen.subjects.curvature, move)
        lower = np.einsum("ij,ij->i", move, seen.subjects.gradient) - square / 2
        assert np.all(lower <= gain + 1e-9)
        if size == 1e-5:
            np.testing.assert_allclose(lower, gain, atol=1e-7)


def test_two_ordered_categories_are_right_and_wrong():
    values, observed = simulated(pattern="mcar")
    data, rng = responses(values, observed), np.random.default_rng(2)
    point = BilinearParameters(
        jnp.asarray(rng.normal(size=(SHAPE[1], 1))),
        jnp.asarray(rng.normal(size=SHAPE[1])),
        jnp.asarray(rng.normal(size=(SHAPE[0], 1))),
    )
    one = sweep(data, point, 1.3, LOGIT)
    other = sweep(
        data, point._replace(cuts=jnp.zeros((SHAPE[1], 1))), 1.3, GradedCells(2)
    )
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_a_category_of_weight_zero_is_one_that_nobody_chose():
    values = jnp.asarray([[0], [1], [2], [3]], jnp.int8)
    model = catalogue.graded(4)
    cells = cells_of(model)
    both = [
        leaders(
            Problem.create(model, irtjax.Responses(values, subject_weight=weight)),
            cells,
            jnp.float64,
        )
        for weight in (None, jnp.asarray([1.0, 1.0, 0.0, 1.0]))
    ]
    np.testing.assert_array_equal(both[0][0], np.eye(3))
    # The third intercept moves with the second, around the category without weight.
    np.testing.assert_array_equal(both[1][0], [[1, 0, 0], [0, 1, 0], [0, 1, 0]])

"""Several groups of subjects: against the marginal likelihood written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import irtjax
from irtjax.calibration.parts.populations import Populations

SIZES = {"a": 60, "b": 40, "c": 20}
MEANS, SDS = {"a": -0.4, "b": 0.4, "c": 1.0}, {"a": 0.8, "b": 1.1, "c": 1.4}
LABELS = np.repeat(list(SIZES), list(SIZES.values()))
ITEMS = 6


def responses(seed=1):
    rng = np.random.default_rng(seed)
    theta = np.array([rng.normal(MEANS[x], SDS[x]) for x in LABELS])
    slope, intercept = rng.uniform(0.8, 1.8, ITEMS), rng.normal(size=ITEMS)
    chance = 1 / (1 + np.exp(-(theta[:, None] * slope + intercept)))
    right = (rng.random(chance.shape) < chance).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(right)
    return table.replace(subject_facets={"kind": LABELS})


@pytest.fixture(scope="module")
def table():
    return responses()


@pytest.fixture(scope="module")
def fit(table):
    method = irtjax.EM(tolerance=1e-5)
    return irtjax.fit(table, "2pl", method, groups="kind", priors=None)


def log_likelihood(values, vector):
    """The marginal likelihood by 401 nodes of each group's own population."""
    slope, intercept = jnp.exp(vector[:ITEMS]), vector[ITEMS : 2 * ITEMS]
    mean, log_sd = vector[2 * ITEMS :].reshape(2, -1)
    standard = jnp.linspace(-8, 8, 401)
    weight = jax.nn.log_softmax(-(standard**2) / 2)
    codes = np.unique(LABELS, return_inverse=True)[1]
    theta = mean[:, None] + jnp.exp(log_sd)[:, None] * standard
    logit = theta[:, :, None] * slope + intercept
    right, wrong = jax.nn.log_sigmoid(logit)[codes], jax.nn.log_sigmoid(-logit)[codes]
    seen = values[:, None, :]
    at_nodes = jnp.sum(seen * right + (1 - seen) * wrong, axis=2) + weight
    return jnp.sum(jax.nn.logsumexp(at_nodes, axis=1))


def vector_of(fit):
    items, part = fit.parameters.items, fit.part(Populations)
    parts = np.log(items.discrimination), items.intercept, part.mean, np.log(part.sd)
    return jnp.asarray(np.concatenate(parts))


def test_the_maximum_of_the_likelihood_written_out(table, fit):
    at = lambda x: log_likelihood(jnp.asarray(table.values, float), x)
    vector = vector_of(fit)
    assert float(at(vector)) == pytest.approx(fit.log_likelihood, abs=1e-6)
    assert fit.status.name == "CONVERGED"
    # The gradient in units of standard errors, about 1 / sqrt(curvature).
    curvature = -jnp.diag(jax.hessian(at)(vector))
    assert float(jnp.max(jnp.abs(jax.grad(at)(vector)) / jnp.sqrt(curvature))) < 1e-4
    part = fit.part(Populations)
    share = part.size / part.size.sum()
    assert share @ part.mean == pytest.approx(0, abs=1e-9)
    assert share @ (part.sd**2 + part.mean**2) == pytest.approx(1, abs=1e-9)
    assert fit.num_parameters == 2 * ITEMS + 2 * len(SIZES) - 2


def test_errors_are_those_of_the_whole_information(table, fit):
    vector, part = vector_of(fit), fit.part(Populations)
    at = lambda x: log_likelihood(jnp.asarray(table.values, float), x)
    information = -np.asarray(jax.hessian(at)(vector))
    constraint = np.zeros((2, len(vector)))
    constraint[0, -6:-3] = part.size
    constraint[1, -6:] = np.concatenate([part.size * part.mean, part.size * part.sd**2])
    free = scipy.linalg.null_space(constraint)
    whole = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    expected = np.sqrt(np.diagonal(whole))
    items = fit.items.table
    of_items = items.column("intercept_se").to_numpy()
    np.testing.assert_allclose(of_items, expected[ITEMS : 2 * ITEMS], rtol=1e-3)
    np.testing.assert_allclose(part.mean_error, expected[-6:-3], rtol=1e-3)
    np.testing.assert_allclose(part.sd_error / part.sd, expected[-3:], rtol=1e-3)
    value, error = part.difference("c", "a")
    contrast = np.zeros(len(vector))
    contrast[[-4, -6]] = 1, -1
    assert value == pytest.approx(part.mean[2] - part.mean[0])
    assert error == pytest.approx(np.sqrt(contrast @ whole @ contrast), rel=1e-3)


def test_two_groups_of_the_same_responses_are_one(table):
    twice = irtjax.ResponseTable.from_arrays(np.tile(table.values, (2, 1)))
    labels = np.repeat(["x", "y"], table.num_subjects).tolist()
    method = irtjax.EM(tolerance=1e-6)
    divided = irtjax.fit(
        twice, "2pl", method, groups=labels, priors=None, standard_errors="none"
    )
    one = irtjax.fit(table, "2pl", method, priors=None, standard_errors="none")
    part = divided.part(Populations)
    np.testing.assert_allclose(part.mean, 0, atol=1e-5)
    np.testing.assert_allclose(part.sd, 1, atol=1e-5)
    for name in ("discrimination", "intercept"):
        ours, theirs = (getattr(x.parameters.items, name) for x in (divided, one))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert divided.log_likelihood == pytest.approx(2 * one.log_likelihood, abs=1e-5)


def test_anchored_items_fix_the_scale_of_all_groups(table, fit):
    anchored = irtjax.fit(
        table, "2pl", groups="kind", priors=None, anchor=fit.items.table
    )
    ours, theirs = anchored.part(Populations), fit.part(Populations)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=2e-3)
    np.testing.assert_allclose(ours.sd, theirs.sd, atol=2e-3)


def test_an_item_divided_by_group_raises_the_likelihood(table, fit):
    name = table.items[0]
    divided = irtjax.split_items(table, [name], by="kind", equal=[["a", "b"]])
    free = irtjax.fit(divided, "2pl", groups="kind", priors=None)
    assert free.item_names.tolist()[-2:] == [f"{name} [a, b]", f"{name} [c]"]
    gain = 2 * (free.log_likelihood - fit.log_likelihood)
    assert 0 < gain < 13.8  # chi2 of 2 degrees of freedom, p = .001


def test_populations_are_saved_and_named(fit, tmp_path):
    irtjax.save(fit, tmp_path / "fit")
    loaded = irtjax.load(tmp_path / "fit").part(Populations)
    part = fit.part(Populations)
    for name, value in vars(part).items():
        np.testing.assert_array_equal(getattr(loaded, name), value)
    assert fit.abilities.table.column("population").to_pylist() == LABELS.tolist()
    assert any(note.startswith("group c: 20 subjects, mean") for note in fit.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "mm"}, "groups need method='em', not 'mm'"),
        ({"model": "rsm"}, "groups need a model of one ability without response"),
        ({"groups": ["a"] * 119 + ["b"]}, "group 'b' of 'groups' has one subject"),
    ],
)
def test_what_groups_cannot_have_is_refused(table, settings, message):
    settings = {"model": "2pl", "groups": "kind", **settings}
    with pytest.raises(ValueError, match=message):
        irtjax.fit(table, **settings)

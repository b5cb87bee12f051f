"""Items partly equal in groups of subjects: against the likelihood written out."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import irtjax
from irtjax.calibration.parts.populations import Populations
from irtjax.models.priors import LogNormal

SIZES = {"a": 240, "b": 160}
LABELS = np.repeat(list(SIZES), list(SIZES.values()))
CODES = np.unique(LABELS, return_inverse=True)[1]
SHARE = np.array([0.6, 0.4])
ITEMS = 5
BOTH = ("discrimination", "intercept")
#: Settings of `free_by_group`, from the fewest free parameters to all, by name.
FREE = {
    "scalar": {},
    "intercept": {"1": "intercept"},
    "item": {"1": BOTH},
    "metric": {str(k): "intercept" for k in range(ITEMS)},
    "configural": {str(k): BOTH for k in range(ITEMS)},
    "slope": {"1": "discrimination"},
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=len(LABELS)) * np.array([1, 1.3])[CODES] + 0.5 * CODES
    slope, intercept = rng.uniform(0.8, 1.8, ITEMS), rng.normal(size=ITEMS)
    logit = theta[:, None] * slope + intercept
    logit[:, 1] += 0.8 * CODES
    right = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    names = [str(k) for k in range(ITEMS)]
    made = irtjax.ResponseTable.from_arrays(right.astype(np.int8), items=names)
    return made.replace(subject_facets={"kind": LABELS})


def at_nodes(values, vector):
    """Log joint densities, and abilities, at 81 nodes of each subject's group.

    The vector has slopes, intercepts, and (mean, log sd), each of two groups.
    """
    slope, intercept, moments = jnp.split(vector, [2 * ITEMS, 4 * ITEMS])
    slope, intercept = slope.reshape(2, ITEMS), intercept.reshape(2, ITEMS)
    mean, log_sd = moments.reshape(2, 2)
    standard = jnp.linspace(-8, 8, 81)
    weight = jax.nn.log_softmax(-(standard**2) / 2)
    theta = mean[:, None] + jnp.exp(log_sd)[:, None] * standard
    logit = theta[:, :, None] * slope[:, None] + intercept[:, None]
    right, wrong = jax.nn.log_sigmoid(logit)[CODES], jax.nn.log_sigmoid(-logit)[CODES]
    seen = values[:, None, :]
    joint = jnp.sum(seen * right + (1 - seen) * wrong, axis=2) + weight
    return joint, theta[CODES]


def log_likelihood(values, vector):
    """The marginal likelihood."""
    return jnp.sum(jax.nn.logsumexp(at_nodes(values, vector)[0], axis=1))


def posterior(values, vector):
    """Means of the abilities, and their variances."""
    joint, theta = at_nodes(values, vector)
    weight = jax.nn.softmax(joint, axis=1)
    mean = jnp.sum(weight * theta, axis=1)
    return mean, jnp.sum(weight * (theta - mean[:, None]) ** 2, axis=1)


class Likelihood(NamedTuple):
    """Functions of a vector, each one program."""

    value_and_gradient: Any
    hessian: Any
    posterior: Any
    moves: Any


@pytest.fixture(scope="module")
def likelihood(table):
    values = jnp.asarray(table.values, float)
    height = lambda x: log_likelihood(values, x)
    moments = lambda x: posterior(values, x)
    moves = jax.jacfwd(lambda x: moments(x)[0])
    functions = jax.value_and_grad(height), jax.hessian(height), moments, moves
    return Likelihood(*map(jax.jit, functions))


def constraints(free):
    """Rows of what is equal: parameters of items, then moments that are not free."""
    rows, size = [], 4 * ITEMS + 4
    common = {name: False for name in BOTH}
    for k in range(ITEMS):
        for place, name in enumerate(BOTH):
            if name in free.get(str(k), ()):
                continue
            common[name] = True
            row = np.zeros(size)
            row[[2 * ITEMS * place + k, 2 * ITEMS * place + ITEMS + k]] = 1, -1
            rows.append(row)
    for place, name in ((0, "intercept"), (2, "discrimination")):
        if not common[name]:
            row = np.zeros(size)
            row[[4 * ITEMS + place, 4 * ITEMS + place + 1]] = 1, -1
            rows.append(row)
    return np.array(rows)


def vector_of(fit):
    """The parameters of a fit, by group."""
    part, table = fit.part(Populations), fit.items.table.to_pydict()
    values = []
    for name in BOTH:
        by_item = dict(zip(table["item"], table[name], strict=True))
        for group in SIZES:
            for k in range(ITEMS):
                own = by_item.get(f"{k} [{group}]")
                values.append(by_item.get(str(k)) if own is None else own)
    return np.array([*values, *part.mean, *np.log(part.sd)])


def fitted(table, name, model="2pl", **settings):
    method = irtjax.EM(tolerance=1e-5)
    return irtjax.fit(
        table,
        model,
        method,
        groups="kind",
        priors=None,
        free_by_group=FREE[name],
        **settings,
    )


def direct(likelihood, free, start):
    """The maximum by BFGS over the directions that the constraints leave."""
    # Total mean 0; the scale is that of the first group.
    location, scale = np.zeros((2, len(start)))
    location[-4:-2], scale[-2] = SHARE, 1
    basis = scipy.linalg.null_space(np.stack([*constraints(free), location, scale]))
    start = basis @ (basis.T @ start)

    def objective(x):
        value, gradient = likelihood.value_and_gradient(start + basis @ x)
        return -float(value), -np.asarray(gradient) @ basis

    zeros = np.zeros(basis.shape[1])
    end = scipy.optimize.minimize(
        objective, zeros, jac=True, method="BFGS", options={"gtol": 1e-6}
    )
    return -end.fun, len(zeros)


def information_inverse(likelihood, fit, free, model):
    """The covariance of the vector from the whole information under constraints."""
    vector, part = vector_of(fit), fit.part(Populations)
    information = -np.asarray(likelihood.hessian(vector))
    location, scale = np.zeros((2, len(vector)))
    location[-4:-2] = SHARE
    scale[-4:] = np.concatenate([SHARE * part.mean, SHARE * part.sd**2])
    slopes = np.eye(2 * ITEMS, len(vector))
    added = {"rasch": slopes, "1pl": [*(slopes[1:] - slopes[0]), scale], "2pl": [scale]}
    rows = np.stack([*constraints(free), location, *added[model]])
    basis = scipy.linalg.null_space(rows)
    return basis @ np.linalg.inv(basis.T @ information @ basis) @ basis.T


def check_errors(likelihood, fit, name, model):
    """Errors of items, populations and abilities are those of the information."""
    covariance = information_inverse(likelihood, fit, FREE[name], model)
    expected = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    columns, part = fit.items.table.to_pydict(), fit.part(Populations)
    for place, parameter in enumerate(BOTH):
        errors = dict(zip(columns["item"], columns[f"{parameter}_se"], strict=True))
        for k in range(ITEMS):
            own = errors.get(f"{k} [b]", errors.get(str(k)))
            at = 2 * ITEMS * place + ITEMS + k
            assert own == pytest.approx(expected[at], rel=1e-4, abs=1e-9)
    np.testing.assert_allclose(part.mean_error, expected[-4:-2], rtol=1e-4, atol=1e-9)
    of_sd = part.sd_error / part.sd
    np.testing.assert_allclose(of_sd, expected[-2:], rtol=1e-4, atol=1e-9)
    vector = vector_of(fit)
    mean, variance = likelihood.posterior(vector)
    moves = np.asarray(likelihood.moves(vector))
    added = np.einsum("na,ab,nb->n", moves, covariance, moves)
    abilities = fit.abilities.table.to_pydict()
    np.testing.assert_allclose(abilities["ability"], mean, atol=1e-5)
    np.testing.assert_allclose(
        abilities["ability_se"], np.sqrt(variance + added), rtol=1e-4
    )


def test_an_intercept_free_by_group_is_at_the_maximum_with_its_errors(
    table, likelihood
):
    fit = fitted(table, "intercept")
    best, number = direct(likelihood, FREE["intercept"], 0.9 * vector_of(fit))
    # The function is flat to the square of BFGS's gradient tolerance.
    assert fit.log_likelihood == pytest.approx(best, abs=2e-6)
    assert fit.num_parameters == number == 2 * ITEMS + 3
    items = fit.items.table.to_pydict()
    slopes = dict(zip(items["item"], items["discrimination"], strict=True))
    assert slopes["1 [a]"] == slopes["1 [b]"]
    check_errors(likelihood, fit, "intercept", "2pl")
    # All that abilities share: differences within a group lose the group's error.
    covariance = information_inverse(likelihood, fit, FREE["intercept"], "2pl")
    moves = np.asarray(likelihood.moves(vector_of(fit)))
    shared = fit.ability_shared @ fit.ability_shared.T
    expected = moves @ covariance @ moves.T
    np.testing.assert_allclose(shared, expected, atol=1e-5 * expected.max())


def test_a_1pl_has_one_slope_in_all_groups(table, likelihood):
    fit = fitted(table, "scalar", "1pl")
    value, _ = likelihood.value_and_gradient(vector_of(fit))
    assert fit.log_likelihood == pytest.approx(float(value), abs=2e-6)
    assert fit.num_parameters == ITEMS + 3
    part = fit.part(Populations)
    assert SHARE @ (part.sd**2 + part.mean**2) == pytest.approx(1, abs=1e-9)
    check_errors(likelihood, fit, "scalar", "1pl")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rasch", "1pl"])
def test_slopes_of_1_with_a_free_intercept(table, likelihood, model):
    fit = fitted(table, "intercept", model)
    assert fit.num_parameters == ITEMS + 4
    value, _ = likelihood.value_and_gradient(vector_of(fit))
    assert fit.log_likelihood == pytest.approx(float(value), abs=2e-6)
    check_errors(likelihood, fit, "intercept", model)


@pytest.mark.slow
def test_constraints_from_scalar_to_configural(table, likelihood):
    fits = {name: fitted(table, name) for name in FREE}
    for name, fit in fits.items():
        best, number = direct(likelihood, FREE[name], 0.9 * vector_of(fit))
        assert fit.log_likelihood == pytest.approx(best, abs=2e-6)
        assert fit.num_parameters == number
        check_errors(likelihood, fit, name, "2pl")
    heights = [
        [fits[x].log_likelihood for x in names]
        for names in (
            ("scalar", "intercept", "item", "configural"),
            ("scalar", "intercept", "metric", "configural"),
            ("scalar", "slope", "item"),
        )
    ]
    assert all((np.diff(x) > 0).all() for x in heights)
    compared = irtjax.compare_fits(fits["scalar"], fits["intercept"], table)
    gain = fits["intercept"].log_likelihood - fits["scalar"].log_likelihood
    assert (compared.degrees, compared.statistic) == (1, pytest.approx(2 * gain))
    larger = fits["intercept"].num_parameters
    assert f"2pl of {larger} parameters against 2pl of {larger - 1}" in str(compared)
    assert any("one mean of ability" in x for x in fits["metric"].warnings)
    assert any("one standard deviation" in x for x in fits["configural"].warnings)


@pytest.mark.slow
def test_a_prior_of_an_equal_parameter_counts_once(table):
    """An item divided with nothing free is the item undivided, with its prior."""
    priors = {"discrimination": LogNormal(0.0, 0.2)}
    method = irtjax.EM(tolerance=1e-6)
    one, divided = (
        irtjax.fit(
            table,
            "2pl",
            method,
            groups="kind",
            priors=priors,
            positive=True,
            free_by_group=free,
            standard_errors="none",
        )
        for free in (None, {"1": ()})
    )
    ours, theirs = (
        dict(zip(x.item_names, x.parameters.items.discrimination, strict=True))
        for x in (divided, one)
    )
    for name in ("0", "2", "3", "4"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
    assert ours["1 [a]"] == ours["1 [b]"] == pytest.approx(theirs["1"], rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": None}, "free_by_group requires groups"),
        ({"free_by_group": "slopes"}, "no parameter 'slopes' of items: give one of"),
        ({"free_by_group": {"9": "intercept"}}, "no item '9'"),
        ({"anchor": {"1": {"intercept": 0.0}}}, "divides item '1', which has anchored"),
        ({"standard_errors": "sandwich"}, "free_by_group has no sandwich standard"),
    ],
)
def test_what_cannot_be_free_by_group_is_refused(table, settings, message):
    settings = {"groups": "kind", "free_by_group": "intercept", **settings}
    with pytest.raises(ValueError, match=message):
        irtjax.fit(table, "2pl", **settings)


@pytest.mark.slow
def test_intervals_of_abilities_and_of_groups_cover():
    """60 samples of 150 and 100 subjects: what is true on the scale of all subjects.

    15,000 abilities and 12,000 differences of each kind: their coverage has standard
    errors of .3 points. Of 60 differences of means fewer than 52 are covered once in
    250 such tests.
    """
    sizes, mean, sd = np.array([150, 100]), np.array([-0.4, 0.5]), np.array([0.9, 1.2])
    codes, items, covered = np.repeat([0, 1], sizes), 12, []
    share = sizes / sizes.sum()
    centre = share @ mean
    unit = np.sqrt(share @ (sd**2 + mean**2) - centre**2)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        theta = rng.normal(mean[codes], sd[codes])
        slope, intercept = rng.lognormal(0, 0.25, items), rng.normal(size=items)
        chance = 1 / (1 + np.exp(-(slope * theta[:, None] + intercept)))
        right = (rng.random(chance.shape) < chance).astype(np.int8)
        made = irtjax.ResponseTable.from_arrays(right)
        fit = irtjax.fit(made, "2pl", groups=codes.astype(str).tolist())
        columns = fit.abilities.table
        gap = columns.column("ability").to_numpy() - (theta - centre) / unit
        error, shared = columns.column("ability_se").to_numpy(), fit.ability_shared
        alone = error**2 - np.sum(shared**2, axis=1)
        first = rng.integers(0, 150, 200)
        shares = [np.mean(np.abs(gap) < 1.96 * error)]
        for second in ((first + 1) % 150, rng.integers(150, 250, 200)):
            apart = np.sum((shared[first] - shared[second]) ** 2, axis=1)
            of_pair = np.sqrt(alone[first] + alone[second] + apart)
            difference = np.abs(gap[first] - gap[second])
            shares.append(np.mean(difference < 1.96 * of_pair))
        value, its_error = fit.part(Populations).difference("1", "0")
        shares.append(abs(value - (mean[1] - mean[0]) / unit) < 1.96 * its_error)
        covered.append(shares)
    abilities, within, between, means = np.mean(covered, axis=0)
    for coverage in (abilities, within, between):
        assert 0.93 < coverage < 0.97
    assert means >= 52 / 60

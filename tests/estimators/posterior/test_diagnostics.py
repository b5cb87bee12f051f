"""Diagnostics of draws: the numbers of ArviZ, and sentences that follow from them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from irtjax import storage
from irtjax._types import Status
from irtjax.estimators.posterior import (
    bfmi,
    checkpoint,
    convergence,
    diagnose,
    psis_loo,
    summary,
    trajectories,
    verdict,
)
from irtjax.estimators.posterior.nuts import Draws
from irtjax.estimators.posterior.psis import fit_pareto


def example():
    """Chains that mix, that differ, that crawl, that alternate with ties, that vary."""
    noise = np.random.RandomState(7).normal(size=(4, 203, 5))
    slope = np.array([0, 0.5, 0.95, -0.6, 0.2])
    x = np.zeros_like(noise)
    for t in range(203):
        x[:, t] = noise[:, t] + slope * (x[:, t - 1] if t else 0)
    x[0, :, 1] += 0.7
    x[1, :, 4] *= 3
    x[..., 3] = np.round(np.exp(x[..., 3]))
    return x


#: What ArviZ 0.23.4 gives for `example()`: ess, ess, mcse(method="mean"), rhat, bfmi.
ARVIZ = {
    "ess_bulk": [
        *(683.2675109076107, 81.0570853134468, 7.560652626980096),
        *(2349.188379505865, 484.4726103894684),
    ],
    "ess_tail": [
        *(730.3522542711501, 503.5573657640397, 52.15117670356876),
        *(817.729185375738, 38.52334334573594),
    ],
    "mcse": [
        *(0.03808410282538532, 0.13421374219798085, 1.4402669707320273),
        *(0.10582168788420193, 0.08131362600537327),
    ],
    "rhat": [
        *(1.0016382657706033, 1.0631577785840531, 1.494114941097895),
        *(1.0060674011969593, 1.1607466613084694),
    ],
}
ARVIZ_BFMI = [
    *(0.12654902457555448, 0.3660868235127021, 0.05663594473186576),
    0.18680149290856554,
]


@pytest.mark.parametrize("name", ARVIZ)
def test_numbers_are_those_of_arviz(name):
    # The same formulas in another order of summation: equal to rounding.
    found = getattr(diagnose(example()), name)
    np.testing.assert_allclose(found, ARVIZ[name], rtol=1e-9)


def test_the_energy_fraction_is_that_of_arviz():
    np.testing.assert_allclose(bfmi(example()[..., 2]), ARVIZ_BFMI, rtol=1e-12)


def test_arviz_itself_where_it_is_installed():
    arviz = pytest.importorskip("arviz")
    x = example().cumsum(axis=1)[:3, :90]
    found = diagnose(x)
    for j in range(x.shape[2]):
        one = x[..., j]
        np.testing.assert_allclose(found.rhat[j], arviz.rhat(one), rtol=1e-9)
        # ArviZ 1 has no default for the quantiles of arrays.
        for method, more in (("bulk", {}), ("tail", {"prob": (0.05, 0.95)})):
            theirs = arviz.ess(one, method=method, **more)
            mine = getattr(found, f"ess_{method}")[j]
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_blocks_and_shapes_change_nothing(monkeypatch):
    x = example()
    whole = diagnose(x)
    monkeypatch.setattr(
        "irtjax.estimators.posterior.convergence.BLOCK", 2 * x[..., 0].size
    )
    for one, two in zip(whole, diagnose(x.reshape(4, 203, 5, 1)), strict=True):
        np.testing.assert_allclose(one, two[:, 0], rtol=1e-12)


def test_arrays_without_parameters_have_no_numbers():
    found = diagnose(np.zeros((4, 100, 2, 0)))
    assert all(part.shape == (2, 0) for part in found)


def test_effective_draws_are_those_of_an_autoregression():
    # AR(1): n (1 - r) / (1 + r); the standard deviation of such an estimate over
    # replications is some 6 % at this length, so 20 % is more than three of them.
    slope = 0.6
    noise = np.random.RandomState(1).normal(size=(4, 5000))
    x = np.zeros_like(noise)
    for t in range(1, noise.shape[1]):
        x[:, t] = slope * x[:, t - 1] + noise[:, t]
    expected = x.size * (1 - slope) / (1 + slope)
    assert diagnose(x).ess_bulk == pytest.approx(expected, rel=0.2)
    assert diagnose(x).mcse == pytest.approx(x.std() / np.sqrt(expected), rel=0.1)


def test_a_table_of_chains():
    """What is in memory of each chain's trajectories is kept with the fit too."""
    depth = np.full((4, 500), 3)
    depth[1, :25] = 10
    draws = draws_with({"x": GOOD[..., 0, 0]}, divergent=DIVERGENT, tree_depth=depth)
    rows = trajectories(draws).to_pylist()
    assert [row["divergent"] for row in rows] == [0, 0, 5, 0]
    assert [row["deepest"] for row in rows] == [0, 25, 0, 0]
    assert rows[1]["tree_depth"] == pytest.approx(3.35)
    assert [row["bfmi"] for row in rows] == pytest.approx(bfmi(draws.energy).tolist())
    assert rows[0]["acceptance"] == pytest.approx(0.8)
    assert rows[0]["transitions"] == 500 and rows[0]["num_leapfrog"] == 7


def test_what_never_moves_and_what_is_not_finite():
    x = np.zeros((2, 50, 3))
    x[1, :, 1] = 1
    x[0, 3, 2] = np.nan
    found = diagnose(x)
    assert found.rhat[0] == 1 and found.ess_bulk[0] == 100 and found.mcse[0] == 0
    assert found.rhat[1] == np.inf
    assert np.isnan(found.rhat[2]) and np.isnan(found.mean[2])
    with pytest.raises(ValueError, match="4 or more draws"):
        diagnose(x[:, :3])


def draws_with(values, **changes):
    chains, num = next(iter(values.values())).shape[:2]
    noise = np.random.RandomState(2).normal(size=(3, chains, num))
    options = {
        "divergent": np.zeros((chains, num), bool),
        "tree_depth": np.full((chains, num), 3),
        "num_leapfrog": np.full((chains, num), 7),
        "acceptance": np.full((chains, num), 0.8),
        "energy": noise[0],
        "log_density": noise[1],
        "step_size": np.ones(chains),
        "inverse_mass": np.ones((chains, 2)),
        "status": jnp.asarray(Status.MAX_STEPS),
    }
    return Draws(values, **options | changes)


GOOD = np.random.RandomState(3).normal(size=(4, 500, 2, 2))


def test_a_table_of_parameters():
    draws = draws_with({"slope": GOOD, "scale": GOOD[..., 0, 0]})
    table = summary(draws)
    assert table.column("parameter").to_pylist() == [
        *("slope[0,0]", "slope[0,1]", "slope[1,0]", "slope[1,1]", "scale")
    ]
    row = table.to_pylist()[2]
    x = GOOD[..., 1, 0]
    expected = [x.mean(), x.std(ddof=1), *np.quantile(x, [0.05, 0.5, 0.95])]
    names = ("mean", "sd", "q5", "q50", "q95")
    assert [row[name] for name in names] == pytest.approx(expected)
    assert row["rhat"] == float(diagnose(x).rhat)
    assert summary(draws, ["scale"]).num_rows == 1
    with pytest.raises(ValueError, match="'shape' was not kept"):
        summary(draws, ["shape"])


DIVERGENT = np.zeros((4, 500), bool)
DIVERGENT[2, :5] = True
DEEP = np.full((4, 500), 3)
DEEP[:, ::10] = 10
APART = GOOD + np.array([0.5, 0, 0, 0])[:, None, None, None] * [1, 0]
SLOW = np.random.RandomState(4).normal(size=(4, 500)).cumsum(axis=1)
ONE_SLOW = np.concatenate([np.random.RandomState(5).normal(size=(3, 500)), SLOW[:1]])


@pytest.mark.parametrize(
    ("values", "changes", "words"),
    [
        (GOOD, {"divergent": DIVERGENT}, "5 of 2,000 transitions diverged (0.25 %)"),
        (GOOD, {"tree_depth": DEEP}, "10 % of the transitions reached the limit"),
        (APART, {}, "The chains do not agree on x[0,0]"),
        (GOOD[:, :60], {}, "Too few effective draws"),
        (GOOD, {"energy": SLOW}, "4 of 4 chains have a low fraction"),
        (GOOD, {"energy": ONE_SLOW}, "1 of 4 chains has a low fraction"),
        (GOOD[:2], {}, "2 of the 4 chains"),
        (GOOD, {"status": jnp.asarray(Status.RUNNING)}, "not finished"),
        (GOOD, {"status": jnp.asarray(Status.NONFINITE)}, "not finite"),
        (np.full_like(GOOD, np.nan), {}, "do not agree"),
        (GOOD[:, :2], {}, "fewer than 4 draws"),
    ],
)
def test_what_is_amiss_is_said(values, changes, words):
    said = verdict(draws_with({"x": values}, **changes))
    assert sum(words in line for line in said) == 1
    hurts = words[:2] not in ("10", "4 ", "2 ", "1 ")
    assert said[0].startswith("Not converged" if hurts else "Converged")


def test_a_chain_that_has_not_moved_is_named():
    """Constant draws have R-hat 1, so that R-hat does not show it."""
    num = 100
    still, all_of_it = np.zeros((4, num, 1)), np.ones((4, num), bool)
    for divergent, words in (
        (all_of_it, "4 of 4 chains have not moved: 50 % or more"),
        (all_of_it * (np.arange(4) == 1)[:, None], "1 of 4 chains has not moved"),
    ):
        values = np.where(divergent[..., None], still, GOOD[:, :num, 0])
        said = verdict(draws_with({"x": values}, divergent=divergent))
        assert said[0].startswith("Not converged")
        assert sum(words in line for line in said) == 1
    said = verdict(draws_with({"x": GOOD}, divergent=DIVERGENT))
    assert not any("not moved" in line for line in said)


def test_nothing_amiss(monkeypatch):
    diagnosed = []
    note = lambda values: diagnosed.append(values) or diagnose(values)
    monkeypatch.setattr(convergence, "diagnose", note)
    said = verdict(draws_with({"x": GOOD}))
    assert len(diagnosed) == 1
    assert len(said) == 1 and said[0].startswith("Converged: 4 chains of 500 steps")


def log_likelihoods():
    draws = np.random.RandomState(8).normal(0.1, 0.4, (4, 250, 1))
    y = np.r_[np.linspace(-2, 2, 8), 6.0]
    return -0.5 * (y - draws) ** 2 * 1.5


#: Of ArviZ 0.23.4's loo(..., reff=0.8): elpd, se, p_loo, and k by observation.
ARVIZ_LOO = (-48.29504304290913, 30.087427363898275, 17.746172884190358)
ARVIZ_K = [
    *(0.7209893674467932, 0.5797017679391385, 0.450060962628425),
    *(0.37309514195357507, 0.3585663509389448, 0.511101929887141),
    *(0.621365606655625, 0.744787138516075, 1.713566579305488),
]


def test_leave_one_out_is_that_of_arviz():
    found = psis_loo(log_likelihoods(), relative_ess=0.8)
    np.testing.assert_allclose(found[:3], ARVIZ_LOO, rtol=1e-9)
    np.testing.assert_allclose(found.pareto_k, ARVIZ_K, rtol=1e-7)


def test_leave_one_out_of_a_normal_mean():
    # y_i ~ N(mu, 1) with a flat prior: mu given the others is normal around their mean
    # with variance 1 / (n - 1). Independent draws, so the error of a term is that of
    # the mean of 1 / p(y_i | mu), by its own spread.
    y = np.random.RandomState(0).normal(size=30)
    mu = np.random.RandomState(1).normal(y.mean(), 1 / np.sqrt(30), (4, 2000, 1))
    log_lik = stats.norm.logpdf(y, mu)
    found = psis_loo(log_lik)
    rest = (y.sum() - y) / 29
    exact = stats.norm.logpdf(y, rest, np.sqrt(1 + 1 / 29))
    ratio = np.exp(-log_lik).reshape(-1, 30)
    error = ratio.std(axis=0) / ratio.mean(axis=0) / np.sqrt(len(ratio))
    assert (np.abs(found.pointwise - exact) < 5 * error).all()
    assert abs(found.elpd - exact.sum()) < 5 * np.sqrt(30) * error.max()
    assert found.pareto_k.max() < 0.5
    # One parameter, and each term of p_loo is its variance times (y - mean)^2 or so.
    assert 0.5 < found.p_loo < 1.5


def test_pareto_tails_are_recovered():
    # Shape's standard error is (1 + k) / sqrt(n): four of them.
    for shape in (0.1, 0.5, 0.9):
        sample = stats.genpareto.rvs(shape, scale=2, size=(4000, 3), random_state=1)
        k, scale = fit_pareto(np.sort(sample, axis=0))
        np.testing.assert_allclose(k, shape, atol=4 * (1 + shape) / np.sqrt(4000))
        np.testing.assert_allclose(scale, 2, rtol=0.15)


def test_equal_ratios_need_no_smoothing():
    constant = np.full((2, 100, 1), -1.3)
    found = psis_loo(constant)
    assert found.elpd == pytest.approx(-1.3) and found.p_loo == pytest.approx(0)
    assert found.pareto_k[0] == 0
    # Ratios that overflow a double: a finite sum, and a k that says what it is worth.
    wild = psis_loo(1e4 * np.random.RandomState(0).normal(size=(2, 100, 2)))
    assert np.isfinite(wild.elpd) and (wild.pareto_k == np.inf).all()


@pytest.mark.parametrize(
    ("log_lik", "words"),
    [
        (np.zeros((4, 100)), "takes \\[chains, draws, observations\\]"),
        (np.full((1, 30, 2), np.inf), "not finite in chain 0, draw 0, observation 0"),
        (np.zeros((1, 20, 2)), "too few"),
    ],
)
def test_log_likelihoods_that_cannot_be_are_refused(log_lik, words):
    with pytest.raises(ValueError, match=words):
        psis_loo(log_lik)


def test_draws_in_a_file_for_other_programs(tmp_path):
    arviz = pytest.importorskip("arviz")
    thin = draws_with({"x": GOOD}, thinning=2, divergent=np.zeros((4, 1000), bool))
    for name in ("tree_depth", "num_leapfrog", "acceptance", "energy", "log_density"):
        thin = dataclasses.replace(thin, **{name: np.arange(4000.0).reshape(4, 1000)})
    path = storage.write_draws(
        tmp_path / "draws.nc", thin, log_likelihood={"y": GOOD[..., 0]}
    )
    back = arviz.from_netcdf(path)
    np.testing.assert_array_equal(back.posterior["x"], GOOD)
    np.testing.assert_array_equal(back.sample_stats["energy"][0, :3], [1, 3, 5])
    assert back.log_likelihood["y"].shape == (4, 500, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["draws.nc"]
    labels = {"part": ["left", "right"]}
    named = storage.to_arviz(thin, dims={"x": ["place", "part"]}, coords=labels)
    np.testing.assert_array_equal(named.posterior["x"].sel(part="right"), GOOD[..., 1])
    for dims, words in (
        ({"z": ["part"]}, "dims name 'z', which was not kept: there are x"),
        ({"x": ["part"]}, "dims name 1 axes of 'x' after chains and draws; it has 2"),
    ):
        with pytest.raises(ValueError, match=words):
            storage.to_arviz(thin, dims=dims, coords=labels)
    with pytest.raises(ValueError, match="coords have 1 labels of 'part'; 'x' has 2"):
        storage.to_arviz(thin, dims={"x": ["place", "part"]}, coords={"part": [0]})


def test_without_arviz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "arviz", None)
    with pytest.raises(ValueError, match=r"pip install 'irtjax\[arviz\]'"):
        storage.to_arviz(draws_with({"x": GOOD}))


@pytest.mark.parametrize("missing", ["arviz", "h5netcdf", "h5py"])
def test_what_a_file_needs_is_looked_for_before_a_long_run(monkeypatch, missing):
    there = lambda name: None if name == missing else object()
    monkeypatch.setattr("importlib.util.find_spec", there)
    with pytest.raises(ValueError, match=rf"{missing} is not.*'irtjax\[arviz\]'"):
        checkpoint.check_arviz()

"""The experiments on the cBMM paper: the printed algorithm, the designs, small runs."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from experiments.cbmm import designs, methods, real, run, simulations
from experiments.cbmm.printed import printed


def test_a_step_of_the_printed_algorithm_is_lines_5_to_9():
    drawn = designs.simulated(12, 7, 0, pattern="mcar", rate=0.3)
    assert drawn.observed is not None
    y = np.where(drawn.observed, 2.0 * drawn.values - 1, 0)
    key = jax.random.key(2)
    keys = jax.random.split(key, 3)
    normal = [np.asarray(jax.random.normal(k, (n,), float))
              for k, n in zip(keys, (12, 7, 7), strict=True)]  # fmt: skip
    theta, a, b = normal[0], np.exp(normal[1]), normal[2]
    x = np.outer(theta, a) + b
    target = x + 4 * y * expit(-y * x)
    for j in range(7):
        seen = y[:, j] != 0
        least = np.linalg.lstsq(theta[seen, None], (target - b)[seen, j], rcond=None)
        a[j] = max(least[0][0], 0)
    b = (target - np.outer(theta, a)).mean(axis=0)
    theta = (target - b) @ a / (a @ a)
    found = printed(jnp.asarray(y), key, -1.0, max_steps=1)
    for part, expected in zip(found[:3], (theta, a, b), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12)


@pytest.mark.slow
def test_plain_joint_likelihood_has_one_optimum_by_two_methods():
    drawn = designs.simulated(60, 40, 0)
    found = {
        name: methods.METHODS[name](drawn.values, None, 0)
        for name in ("mm, penalty 0", "scipy")
    }
    for one in found.values():
        # Gradients in standard errors; both tolerances are far below this.
        assert methods.left_gradient(one, drawn.values, None) < 1e-2
    first, second = found.values()
    np.testing.assert_allclose(first.theta, second.theta, atol=1e-2)


def test_missing_patterns():
    rng = np.random.default_rng(0)
    values = (rng.random((300, 200)) < 0.5).astype(np.int8)
    chance = designs.by_place(300, 200, 0.4)
    assert chance.mean() == pytest.approx(0.4, abs=1e-9)
    assert (np.diff(chance, axis=0) > 0).all() and (np.diff(chance, axis=1) > 0).all()
    seen = designs.mask(rng, values, "mnar", 0.3)
    assert seen is not None
    gated = ~seen.all(axis=0)
    # What is missing was wrong, and all that was wrong in these items is missing.
    np.testing.assert_array_equal(seen[:, gated], values[:, gated] == 1)
    assert abs(gated.mean() - 0.3) < 5 * (0.3 * 0.7 / 200) ** 0.5


def test_sizes_in_names():
    assert real.billions("01_ai_yi_1.5_34b_chat_zero_shot") == 34
    assert real.billions("meta_llama_3_8b") == 8
    assert real.billions("openai_gpt_oss_mini") is None


def test_means_are_over_replicates():
    rows = [
        {"rows": 5, "replicate": k, "method": "em", "value": float(k), "plain": None}
        for k in range(3)
    ]
    assert run.means(rows) == [
        {"rows": 5, "method": "em", "value": 1.0, "replicates": 3}
    ]


@pytest.mark.slow
@pytest.mark.parametrize("study", list(run.STUDIES))
def test_studies_small(study, tmp_path, capsys, monkeypatch):
    # On simulated stand-ins, whether or not the shared data are there.
    monkeypatch.setattr(designs, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(real, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(run, "prepare", lambda: None)
    real.fitted.cache_clear()
    rows = run.main(["--small", "--only", study, "--out", str(tmp_path)])[study]
    assert study in capsys.readouterr().out
    with (tmp_path / f"{study}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    if study == "degenerate":
        assert all(row["finite"] for row in rows)
    if study == "missing":
        rises = {r["rate"]: r["runs_that_rise"] for r in rows if "runs_that_rise" in r}
        assert rises[0.0] == rises[0.5] == 0


def test_the_sizes_of_a_full_run_are_those_of_the_paper():
    full = simulations.SCALES["full"]
    assert full.replicates == 50 and full.fixed == 1000
    assert tuple(full.sizes) == (200, 500, 1000, 2000, 5000)
    assert tuple(full.speed) == (541, 756, 1192, 1324, 5761, 12032)

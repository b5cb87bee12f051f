"""Judges: against an independent EM and optimiser, and in simulation."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from experiments.comparisons.judges import biases, drawn, simulate
from irtjax.validity import judges
from irtjax.validity.judges import fit_judges


def dawid_skene(verdict, gold, steps=400):
    """EM with closed forms (Dawid and Skene 1979); `[cells, judges]`, `[cells]`."""
    known = np.isfinite(gold)
    q = np.where(known, gold, verdict.mean(axis=1))
    for _ in range(steps):
        share = q.mean()
        sensitivity, fallout = q @ verdict / q.sum(), (1 - q) @ verdict / (1 - q).sum()
        like = [
            np.prod(np.where(verdict == 1, p, 1 - p), axis=1)
            for p in (sensitivity, fallout)
        ]
        q = share * like[0] / (share * like[0] + (1 - share) * like[1])
        q = np.where(known, gold, q)
    return sensitivity, 1 - fallout, q


def test_without_abilities_and_style_it_is_dawid_and_skene():
    rows, truth, _ = drawn(np.random.default_rng(0), style=False)
    # Judges err often enough for the prior N(0, 10^2) not to matter.
    found = fit_judges(rows, abilities=False)
    verdict = rows["verdict"].reshape(-1, 4)
    gold = rows["gold"].reshape(-1, 4)[:, 0]
    sensitivity, specificity, q = dawid_skene(verdict, gold)
    table = found.judges
    np.testing.assert_allclose(table["sensitivity"], sensitivity, atol=5e-4)
    np.testing.assert_allclose(table["specificity"], specificity, atol=5e-4)
    order = np.lexsort(
        [found.cells[x].to_numpy().astype(int) for x in ("item", "subject")]
    )
    np.testing.assert_allclose(
        found.cells["probability_right"].to_numpy()[order], q, atol=2e-3
    )


@pytest.mark.parametrize("abilities", [True, False])
def test_em_ends_at_a_maximum_and_the_information_is_its_curvature(abilities):
    rows, _, _ = drawn(np.random.default_rng(1), 4, 15, 0.95)
    reports, _ = judges._reports(rows, "gold", ["length"])
    parameters, truth, converged = judges.maximum(reports, abilities)
    assert converged
    shapes = [(4, 3), (), (4,), (15,)] if abilities else [(4, 3), ()]
    sizes = np.cumsum([int(np.prod(x)) for x in shapes])[:-1]

    def negative(values):
        parts = [
            x.reshape(s) for x, s in zip(np.split(values, sizes), shapes, strict=True)
        ]
        return -judges.posterior(
            reports,
            judges.JudgeParameters(
                parts[0],
                float(parts[1]),
                *(parts[2:] or parameters[2:4]),
                parameters.variances,
            ),
        ).objective

    fields = parameters[: len(shapes)]
    at = np.concatenate([np.ravel(x) for x in fields])
    assert abs(approx_fprime(at, negative, 1e-6)).max() < 5e-3
    best = minimize(negative, at + 0.1, method="BFGS", options={"gtol": 1e-4})
    assert best.fun == pytest.approx(negative(at), abs=1e-4)
    slope = lambda values: approx_fprime(values, negative, 1e-4)
    curvature = approx_fprime(at, slope, 1e-4)
    covariance, _ = judges.errors(reports, parameters, truth)
    np.testing.assert_allclose(
        np.sqrt(np.diagonal(covariance)),
        np.sqrt(np.diagonal(np.linalg.inv(curvature))),
        rtol=0.01,
    )


def test_accuracies_are_corrected_and_their_errors_hold():
    inside, squares = [], []
    for seed in range(4):
        rows, truth, length = drawn(np.random.default_rng(seed))
        found = fit_judges(rows, style=["length"])
        table = found.accuracies.to_pandas().set_index("subject")
        right = truth.mean(axis=1)[table.index.astype(int)]
        gap = {x: table[x] - right for x in ("judged", "corrected")}
        squares.append([np.mean(x**2) for x in gap.values()])
        inside.append(abs(gap["corrected"]) < 1.96 * table["corrected_se"])
        table = found.judges.to_pandas()
        z = (table["length_bias"] - biases(truth, length)) / table["length_bias_se"]
        assert abs(z).max() < 3.5
    # 80 accuracies: the standard error of a coverage of 0.95 is 0.024.
    assert np.mean(inside) > 0.95 - 3 * 0.024
    judged, corrected = np.sqrt(np.mean(squares, axis=0))
    assert corrected < 0.5 * judged
    best = found.abilities.rank().rows()[0]
    assert best["expected_score"] == max(found.accuracies["corrected"].to_pylist())


@pytest.mark.slow
def test_coverage_of_judges():
    found = simulate(40, seed=100)
    # 160 intervals: the standard error of a coverage of 0.95 is 0.017.
    for name in ("sensitivity", "specificity", "length_bias"):
        assert found[name] > 0.95 - 3 * 0.017


def test_a_rectified_accuracy_of_gold_alone_is_that_of_gold():
    rows, truth, _ = drawn(np.random.default_rng(3), share=1.0)
    table = fit_judges(rows).accuracies.to_pandas().set_index("subject")
    right = truth.mean(axis=1)[table.index.astype(int)]
    np.testing.assert_allclose(table["corrected"], right)
    np.testing.assert_allclose(table["rectified"], right)
    np.testing.assert_allclose(table[["corrected_se", "rectified_se"]], 0, atol=1e-9)


def test_refusals_are_one_line():
    rows, _, _ = drawn(np.random.default_rng(0))
    part = lambda keep: {name: x[keep] for name, x in rows.items()}
    with pytest.raises(ValueError, match="2 judges: .* 3 or more"):
        fit_judges(part(rows["judge"] < 2))
    few = rows["gold"].copy()
    few[rows["subject"] > 4] = np.nan
    with pytest.raises(ValueError, match="gold responses: label 50 or more"):
        fit_judges(rows | {"gold": few})
    with pytest.raises(ValueError, match=r"row 0 has verdict \d: give 1 or 0"):
        fit_judges(rows | {"verdict": rows["verdict"] + 2})
    with pytest.raises(ValueError, match="needs a column 'truth'"):
        fit_judges(rows, "truth")
    with pytest.raises(ValueError, match="gold responses are alike"):
        fit_judges(part((rows["gold"] == 1) | np.isnan(rows["gold"])))
    both = rows["gold"].copy()
    both[0] = 1 - both[1] if np.isfinite(both[1]) else 0
    both[1] = 1 - both[0]
    with pytest.raises(ValueError, match="gold labels 0 and 1"):
        fit_judges(rows | {"gold": both})
    with pytest.raises(ValueError, match="style 'length'"):
        fit_judges(rows | {"length": 0 * rows["length"]}, style=["length"])

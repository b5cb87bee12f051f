"""The experiments run at small sizes, and what they compute is what they say."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.special import expit

import irtjax
from experiments.coverage import (
    adaptive,
    adaptive_several,
    benchmarks,
    designs,
    few,
    few_items,
    replicate,
)
from experiments.coverage import run as coverage
from experiments.coverage.replicate import differences
from experiments.coverage.tables import markdown, write
from experiments.lart import compare
from experiments.lart import run as lart
from experiments.lego_irt import families
from experiments.scaling import (
    bayes,
    front_door,
    likelihoods,
    measure,
    peers,
    reading,
    repeated,
    sparse,
    validity,
)
from experiments.scaling import run as scaling
from irtjax.calibration.result_tables import AbilityTable
from irtjax.estimators.marginal.em import EM
from irtjax.inference import Scores


def value_of(result, quantity, unit=None):
    found = [
        row["value"]
        for row in result["rows"]
        if row["quantity"] == quantity and unit in (None, row["unit"])
    ]
    assert len(found) == 1, quantity
    return found[0]


@pytest.mark.slow
def test_coverage_small(tmp_path, capsys):
    rows, recoveries = coverage.main(["--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert all(r["converged"] == 1 and r["definite"] == 1 for r in recoveries)
    # Simulated with a ~ U(0.5, 1): 12 or 30 items have reliability near 0.6 and 0.8,
    # so correlations near 0.75 and 0.9.
    assert all(0.65 < r["spearman_ability"] < 0.97 for r in recoveries)
    quantities = {(r["quantity"], r["interval"]) for r in rows}
    assert {
        ("ability", "true items"),
        ("ability", "item uncertainty"),
        ("discrimination", "observed"),
        ("difficulty", "bootstrap"),
        ("log sd", "observed"),
    } <= quantities
    for row in rows:
        assert f"{row['coverage']:.3f}" in printed
        assert row["undefined"] == 0
        assert row["coverage"] + row["below"] + row["above"] == pytest.approx(1)
        if row["quantity"] == "ability":
            # Five Monte-Carlo errors, and 1 % for items estimated from few subjects.
            distance = abs(row["coverage"] - coverage.LEVEL)
            assert distance < 5 * row["mc_error"] + 0.01
    for name in ("coverage.csv", "recovery.csv", "coverage.md", "coverage.png"):
        assert (tmp_path / name).stat().st_size > 100
    lines = (tmp_path / "coverage.csv").read_text().splitlines()
    assert len(lines) == len(rows) + 1


@pytest.mark.slow
def test_lart_small(tmp_path, capsys):
    rows = lart.main(["--out", str(tmp_path)])
    ours, plain = rows
    assert (ours["model"], plain["model"]) == ("lart", "probit2pl")
    assert ours["converged"] == plain["converged"] == 8
    # Lengths carry information about ability: a fifth of the squared error here.
    assert ours["rmse_theta"] < plain["rmse_theta"]
    # 800 intervals that share 8 sets of items: a standard error near 0.02.
    assert 0.85 < ours["coverage_theta"] <= 1
    assert ours["coverage_theta_given_speed"] < ours["coverage_theta"]
    assert ours["rmse_rho"] < 0.2
    with open(tmp_path / "simulation.csv", encoding="utf-8") as file:
        assert len(file.readlines()) == 3
    assert "lart" in capsys.readouterr().out


@pytest.mark.slow
def test_coverage_errors_are_those_of_a_fit():
    """The replications test what a user is given, and not something beside it."""
    case = replicate.Case("2PL", "2pl", None, 150, 8, 2)
    model = case.make_model()
    nodes = replicate.fit_nodes(case, model, jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), 2)
    found = replicate.replicate_all(case, model, nodes, keys)
    data = replicate.draw(case, model, keys[0])[1]
    table = irtjax.ResponseTable.from_arrays(np.asarray(data.values))
    fit = irtjax.fit(table, model, EM(nodes), item_uncertainty=True)
    for name in ("discrimination", "intercept", "difficulty"):
        error = np.asarray(found.errors["observed"][name][0])
        expected = fit.items.table[f"{name}_se"].to_numpy()
        # Both stop within 1e-4 standard errors of the optimum.
        np.testing.assert_allclose(error, expected, rtol=1e-3)
    order = np.argsort(fit.abilities.table["subject"].to_numpy().astype(str))
    subjects = np.argsort(fit.subject_names.astype(str))
    for column, value in zip(
        ("ability", "ability_se"), found.ability["item uncertainty"], strict=True
    ):
        expected = fit.abilities.table[column].to_numpy()[order]
        np.testing.assert_allclose(
            np.asarray(value[0])[subjects], expected, rtol=1e-3, atol=1e-4
        )


def test_coverage_of_differences_leaves_out_what_is_shared():
    # An error that all share (the first loading) is in no difference; the second is
    # of opposite signs, and counts twice.
    scores = Scores(
        jnp.array([1.0, 0.0]),
        jnp.sqrt(jnp.array([0.25 + 4.0 + 1.0, 0.25 + 4.0 + 1.0])),
        *(jnp.zeros(2),) * 2,
        jnp.array([[2.0, 1.0], [2.0, -1.0]]),
    )
    gap, together, apart = differences(scores)
    np.testing.assert_allclose(gap, [1.0, -1.0])
    np.testing.assert_allclose(together**2, [0.5 + 4.0] * 2)
    np.testing.assert_allclose(apart**2, [10.5] * 2)


def test_coverage_counts():
    case = coverage.SMALL[0]
    truth = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    low = np.array([[-1.0, 0.5, -1.0, -1.0], [0.0, 0.0, 0.0, 0.0]])
    high = low + np.array([[2.0, 2.0, 0.5, 2.0], [2.0, 2.0, 2.0, 2.0]])
    row = coverage.coverage_row(
        case, "ability", "item uncertainty", truth, low, high, truth + 0.5
    )
    assert row["coverage"] == 6 / 8
    assert (row["below"], row["above"]) == (1 / 8, 1 / 8)
    assert row["rmse"] == row["bias"] == 0.5
    # Shares 0.5 and 1.0 in two replications: standard deviation 0.354 over root 2.
    assert row["mc_error"] == pytest.approx(0.25)
    assert row["met"] is False and row["undefined"] == 0
    high[0, 0] = np.nan
    row = coverage.coverage_row(
        case, "difficulty", "bootstrap", truth, low, high, truth + 0.5
    )
    assert (row["coverage"], row["undefined"]) == (5 / 8, 1 / 8)
    assert row["rmse"] == 0.5 and row["met"] is None


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_scaling_em_and_errors(missing):
    spec = {"subjects": 120, "items": 40, "missing": missing, "repeats": 1}
    result = measure.measure(spec | {"kind": "em"})
    assert value_of(result, "converged") == 1
    seconds = value_of(result, "EM iteration, mean over the fit", "s")
    product = value_of(result, "one matrix product")
    ratio = value_of(result, "EM iteration, mean over the fit", "products")
    assert seconds > 0 and ratio == pytest.approx(seconds / product)
    # No process that has imported JAX is smaller than this.
    assert 0.05 < value_of(result, "peak memory") < 64
    assert value_of(result, "first call") > value_of(result, "  of which compiling")
    errors = measure.measure(spec | {"kind": "errors"})
    without = value_of(result, "  standard_errors")
    assert value_of(errors, "  standard_errors") > 10 * without > 0


@pytest.mark.slow
def test_scaling_mm():
    result = measure.measure({"kind": "mm", "subjects": 80, "items": 30, "repeats": 1})
    assert value_of(result, "converged") == 1
    seconds = value_of(result, "MM iteration", "s")
    one = value_of(result, "one elementwise sigmoid, written out")
    assert value_of(result, "MM iteration", "sigmoid passes") == seconds / one


@pytest.mark.slow
def test_scaling_lengths():
    result = measure.measure({"kind": "lengths", "subjects": 40, "items": 6})
    names = [r["quantity"] for r in result["rows"]]
    assert "EM: whole fit" in names and "SAEM: whole fit" in names
    exact, random = (
        r["value"] for r in result["rows"] if r["quantity"] == "  log-likelihood"
    )
    assert random == pytest.approx(exact, rel=5e-3)


@pytest.mark.slow
def test_scaling_reading(tmp_path):
    sizes = {"subjects": 20, "items": 30, "logs": [2, 3], "folder": str(tmp_path)}
    rows = reading.measure(sizes)["rows"]
    assert {row["quantity"].split(",")[0] for row in rows} >= set(reading.FILES)
    assert all(row["value"] > 0 for row in rows if "memory" not in row["quantity"])


@pytest.mark.slow
def test_scaling_sparse():
    rows = sparse.measure(scaling.SMALL["sparse"])["rows"]
    assert sum(row["quantity"] == "  converged" for row in rows) == 2
    assert all(
        row["value"] > 0 for row in rows if "more response" not in row["quantity"]
    )


@pytest.mark.slow
def test_scaling_validity():
    sizes = {"subjects": 40, "items": 8, "fit": [60, 6], "conditional": [[40, 6]]}
    targets = {"dif": 1e9, "m2": 1e-9}
    rows = validity.measure(sizes | {"targets": targets})
    assert all(row["value"] > 0 for row in rows)
    verdicts = {row["quantity"]: scaling.verdict(row) for row in rows}
    assert verdicts["DIF by mh: processor"] == "met"
    assert verdicts["M2 of 60 x 6: processor"] == "MISSED"
    assert verdicts["M2 of 60 x 6: clock"] == ""


@pytest.mark.slow
def test_large_sparse_tables_take_what_their_responses_take(tmp_path):
    """Some minutes. A dense table of these has 2 GB, 8,000 bytes a response."""
    sizes = {"subjects": 50_000, "items": 20_000, "responses": [250_000, 1_000_000]}
    rows = sparse.by_responses(sizes, tmp_path)
    found = {row["quantity"]: row["value"] for row in rows}
    assert found["memory of one more response"] < 300
    # Subjects and items add what does not grow with the responses.
    assert found["time of a step, 4 times the responses"] < 6
    assert found["  peak memory"] < 2


@pytest.mark.slow
def test_scaling_adaptive():
    spec = {"kind": "adaptive", "subjects": 60, "items": 80, "length": 8}
    result = measure.measure(spec)
    assert value_of(result, "random item: all tests") > 0
    errors = [
        row["value"] for row in result["rows"] if row["quantity"].endswith("error")
    ]
    # A bank of 80 alike items, of which the best eight tell more than random ones.
    assert len(errors) == 4 and max(errors[:3]) < errors[3] < 1


@pytest.mark.slow
def test_scaling_adaptive_of_several_abilities():
    result = measure.measure(scaling.SMALL["adaptive"] | {"subjects": 60})
    errors = [
        row["value"]
        for row in result["rows"]
        if row["quantity"] == "  RMSE of the expected score"
    ]
    # Expected scores have a standard deviation of about 0.2 here.
    assert len(errors) == 4 and min(errors[0], errors[2]) < errors[3] < 0.2


@pytest.mark.slow
def test_scaling_likelihoods(capsys):
    earlier = likelihoods.compare(["arrays rasch mm"], None)
    assert set(earlier) == {"arrays rasch mm"}
    likelihoods.compare(["arrays rasch mm"], earlier)
    assert "as before" in capsys.readouterr().out
    earlier["arrays rasch mm"]["log_lik"] *= 1 + 1e-9
    likelihoods.compare(["arrays rasch mm"], earlier)
    assert "CHANGED" in capsys.readouterr().out


@pytest.mark.slow
def test_scaling_bayes(monkeypatch):
    spec = scaling.SMALL["bayes"]
    result = bayes.measure(spec)
    assert value_of(result, "  correlation of abilities with the truth") > 0.7
    least = [
        row["value"]
        for row in result["rows"]
        if row["quantity"] == "  effective draws, abilities, least"
    ]
    ratio = value_of(result, "ratio of abilities, least")
    # Chains side by side, chains in turn, and numpyro's.
    assert len(least) == 3 and ratio == pytest.approx(least[0] / least[2])
    monkeypatch.setattr(bayes.importlib.util, "find_spec", lambda name: None)
    rows, notes = bayes.measure_samplers(spec | {"warmup": 20, "draws": 20})
    assert notes == ["numpyro: not installed, skipped"] and len(rows) == 2 * 9


@pytest.mark.slow
def test_scaling_in_a_process_of_its_own(tmp_path, capsys):
    path = tmp_path / "results.json"
    results = scaling.main(["--case", "convergence", "--json", str(path)])
    result = results["convergence"]
    assert value_of(result, "converged") == 1
    needed = value_of(result, "iterations to a change of 1e-3")
    assert (
        2
        <= needed
        <= value_of(result, "iterations to convergence (1e-4 standard errors)")
    )
    assert json.loads(path.read_text()) == results
    assert "load average" in capsys.readouterr().out


def test_scaling_simulates_the_design(tmp_path):
    spec = {"kind": "simulate", "subjects": 50, "items": 400, "missing": 0.8}
    measure.measure(spec | {"data": str(tmp_path)})
    table = measure.load({"data": str(tmp_path)})
    assert table.values.dtype == np.int8
    assert measure.raw_bytes(table) == 2 * 50 * 400
    # 20,000 cells: five binomial standard errors around a fifth.
    assert table.num_observed / 20_000 == pytest.approx(0.2, abs=5 * 0.0029)


@pytest.mark.slow
def test_scaling_peers(monkeypatch):
    # An installed package may take minutes: here only those that always are.
    kept = {"scipy L-BFGS-B (joint)": peers.PEERS["scipy L-BFGS-B (joint)"]}
    kept["absent"] = ("a_package_nobody_has", peers.fit_girth, "em")
    monkeypatch.setattr(peers, "PEERS", kept)
    result = peers.measure({"subjects": 100, "items": 12})
    assert result["notes"] == ["absent: not installed, skipped"]
    own = value_of(result, "irtjax mm, correlation of a")
    # The same joint likelihood with the same penalties, up to the frame of the priors.
    theirs = value_of(result, "scipy L-BFGS-B (joint), correlation of a")
    assert own == pytest.approx(theirs, abs=0.05)


@pytest.mark.slow
def test_scaling_front_door(monkeypatch):
    monkeypatch.setattr(front_door, "GSM8K", Path("absent"))
    spec = {"subjects": 10, "items": 24, "log_items": 410, "repeats": 1}
    result = front_door.measure(spec | {"targets": True, "added": [6, 40]})
    # On a quiet machine the imports take 0.8 s; on a busy one everything is slower.
    busy = max(1, value_of(result, "imports of JAX and irtjax alone") / 0.8)
    for row in result["rows"]:
        if row["target"] is not None and "cold" not in row["quantity"]:
            assert row["value"] <= row["target"] * busy * 1.25, row
    for name in ("LSAT7, tables", "10 x 24", "run of logs, 10 x 410"):
        # Compiling takes seconds; a stored program takes a fraction of one.
        cold, warm = (value_of(result, f"{name}, {kind}") for kind in ("cold", "warm"))
        assert 0.5 < warm < cold


@pytest.mark.slow
def test_scaling_repeated():
    result = repeated.measure(scaling.SMALL["repeated"])
    seconds = {row["quantity"]: row["value"] for row in result["rows"]}
    first, other, again = (
        seconds[f"60 x 30, {name}: programs compiled"]
        for name in ("first", "slowest of 1 others", "first of a second process")
    )
    # What is compiled again is single operations.
    assert first > 20 and other <= 3 and again < first - 8


def test_scaling_ranks():
    result = measure.measure(scaling.SMALL["ranks"] | {"sizes": [10, 2100]})
    groups = [r["value"] for r in result["rows"] if r["quantity"] == "  groups"]
    # Errors of a third of a standard deviation: some groups, few beside the subjects.
    assert len(groups) == 4 and all(1 <= n <= 10 for n in groups[:2])
    assert all(10 < n < 1000 for n in groups[2:])
    for loadings in ("no", "16"):
        name = f"2,100 subjects, {loadings} loadings: processor time"
        assert 0 < value_of(result, name) < 60


def test_scaling_verdicts():
    row = {"quantity": "iteration", "value": 3.5, "unit": "products", "at": "<="}
    assert scaling.verdict(row | {"target": None}) == ""
    assert scaling.verdict(row | {"target": 4}) == "met"
    assert scaling.verdict(row | {"target": 3}) == "MISSED"
    assert scaling.verdict(row | {"target": 3, "at": ">="}) == "met"
    text = scaling.table(
        "em", {"subjects": 2211, "items": 12032, "missing": 0.8},
        {"rows": [row | {"target": 3}], "load": [1.0, 2.0], "notes": ["skipped"]},
    )  # fmt: skip
    assert "2,211 x 12,032, 80% missing" in text and "MISSED" in text
    assert text.endswith("skipped")


@pytest.mark.slow
def test_lart_comparisons_small(tmp_path):
    found = compare.main(["--small", "--out", str(tmp_path)])
    assert set(found) == {
        *("prediction", "item_efficiency", "validity", "model_efficiency", "gains")
    }
    for name, rows in found.items():
        assert all(np.isfinite(row["value"]) for row in rows)
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
        assert (tmp_path / f"{name}.csv").stat().st_size > 100
    # The distance to all items' ability falls to nothing as they are given.
    path = [r["value"] for r in found["item_efficiency"] if r["model"] == "LaRT"]
    assert path[-1] < 0.25 * path[0]


@pytest.mark.slow
def test_lart_comparisons_in_miniature():
    data = compare.simulated(24, 10)
    rows = compare.validity(data, 1, 0)
    assert {row["model"] for row in rows} == {"LaRT", "IRT"}
    gap, error = compare.difference(rows)
    values = {row["model"]: row["value"] for row in rows}
    assert gap == pytest.approx(values["IRT"] - values["LaRT"]) and error == 0
    # What is not seen is a 0 that counts nowhere.
    seen = np.arange(240).reshape(24, 10) % 3 > 0
    part = data.responses(seen)
    assert not np.any(np.asarray(part.values)[~seen])
    assert part.observed is part.length_observed


def test_means_over_splits():
    rows = [
        {"split": k, "model": m, "value": float(v)}
        for k, pair in enumerate([(1, 3), (2, 6), (3, 6)])
        for m, v in zip(("LaRT", "IRT"), pair, strict=True)
    ]
    table = compare.summary(rows)
    assert [row["mean"] for row in table] == [2.0, 5.0]
    assert table[0]["se"] == pytest.approx(1 / np.sqrt(3)) and table[0]["n"] == 3
    gap, error = compare.difference(rows)
    assert gap == 3.0
    assert error == pytest.approx(np.std([2, 4, 3], ddof=1) / np.sqrt(3))


@pytest.mark.slow
def test_families_of_scores_small(tmp_path):
    rows = families.main(["--small", "--out", str(tmp_path)])
    assert all(row["status"] == "CONVERGED" for row in rows)
    # The truth is ordered beta, with a tenth of the scores at the ends: no other family
    # predicts hidden cells better, by three standard errors.
    coarse = {row["family"]: row for row in rows if row["score"] == "coarse"}
    best = coarse["inflated_beta"]
    assert best["difference"] > 3 * best["se"] > 0
    assert best["mean"] == max(row["mean"] for row in coarse.values())
    assert (tmp_path / "families.csv").read_text().count("\n") == len(rows) + 1


@pytest.mark.parametrize("name", ["continuous", "beta", "inflated_beta"])
@pytest.mark.parametrize(("ends", "mine"), [(0.0, 0.0), (0.01, 0.0), (0.01, 0.01)])
def test_predictive_densities_have_mass_one(name, ends, mine):
    record = {"continuous": 0.9, "beta": 4.0, "inflated_beta": 4.0}
    parts = [1.2, 0.3, record[name], -1.5, 2.0][: 5 if name == "inflated_beta" else 3]
    fit = SimpleNamespace(
        parameters=SimpleNamespace(items=[np.array([x]) for x in parts])
    )

    def mass(y):
        columns = np.zeros(len(y), int)
        cells = families.log_predictive(
            fit, name, np.array([0.4]), y, columns, ends, mine
        )
        return np.exp(cells[:, 0])

    y = np.linspace(ends, 1 - ends, 40_001)[1:-1]
    total = np.sum(mass(y)) * (y[1] - y[0])
    if ends > 0:
        total += mass(np.array([0.0, 1.0])).sum()
    elif name == "inflated_beta":
        total += np.sum(1 / (1 + np.exp([0.78 + 1.5, 2.0 - 0.78])))
    # What a fit calls an end it has no density for: it gives up the beta mass there.
    expected = 1.0
    if mine > 0 and name == "inflated_beta":
        mean, between = expit(0.78), expit(0.78 + 1.5) - expit(0.78 - 2.0)
        beta = stats.beta(4 * mean, 4 * (1 - mean))
        expected -= between * (beta.cdf(ends) + beta.sf(1 - ends))
    assert total == pytest.approx(expected, abs=2e-3)


@pytest.mark.slow
def test_designs_small(tmp_path, capsys):
    rows = designs.main(["--out", str(tmp_path)])
    few, many = rows
    assert few["fitted"] == "2pl laplace" and many["fitted"] == "2pl em"
    for row in rows:
        assert row["converged"] == 1
        # A handful of data sets: gross errors only.
        assert row["difference"] > 0.8 and row["score"] > 0.8
        assert row["false"] < 0.05
        assert 0 < row["found"] < 1 and 0 < row["p_best"] <= 1
    printed = capsys.readouterr().out
    assert "2pl laplace" in printed and "±" in printed
    assert (tmp_path / "designs.csv").is_file() and (tmp_path / "designs.md").is_file()


@pytest.mark.slow
def test_few_subjects_are_fitted_without_the_rule():
    # Two of three subjects are equal; the fit finds them, and one other, different.
    design = few.Design("em", "2pl", 3, 30, "one")
    theta, score, table = few.draw(design, np.random.default_rng(0))
    assert theta.tolist() == [few.APART, 0, 0] and score[1] == score[2] < score[0]
    fit = irtjax.fit(table, "rasch")
    columns = {"ability": [3.0, 0.0, 2.0], "ability_se": [0.1] * 3}
    kept = fit.abilities.table
    for name, values in columns.items():
        place = kept.column_names.index(name)
        kept = kept.set_column(place, name, pa.array(values))
    fit = dataclasses.replace(
        fit, abilities=AbilityTable(kept), ability_shared=None, ability_scale=None
    )
    found = few.evaluate(theta, score, table, fit, tested=False)
    assert (found["any"], found["any_tested"], found["tested"]) == (1, 0, 0)
    assert (found["of_equal"], found["of_unequal"]) == (1, 1)
    assert found["wrong"] == pytest.approx(1 / 3) and found["difference"] == 0


@pytest.mark.slow
def test_few_small(tmp_path, capsys):
    rows = few.main(["--out", str(tmp_path)])
    # The rule decides after the fit, whose errors are as estimated.
    equal, three = rows
    assert equal["tested"] == 0 == equal["any_tested"]
    assert three["tested"] == 0 < three["of_unequal"] + three["difference"]
    assert (tmp_path / "few.csv").is_file() and (tmp_path / "few.md").is_file()
    with pytest.raises(SystemExit):
        few.main(["--method", "nuts"])
    assert "no design has the method 'nuts'" in capsys.readouterr().err


def test_designs_by_name(capsys):
    for kind in ("skewed", "exponential", "bimodal"):
        drawn = designs.draw_abilities(kind, 40_000, np.random.default_rng(0))
        # Standard errors are below .015, with kurtosis at most 9.
        assert abs(drawn.mean()) < 0.03 and abs(drawn.std() - 1) < 0.05
    with pytest.raises(SystemExit):
        designs.main(["--only", "10x60 skewed, 2pl, binary"])
    assert "no design has the sizes" in capsys.readouterr().err


def test_designs_compare_with_a_paired_t_test():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (3, 30)).astype(float)
    seen = rng.random((3, 30)) < 0.8
    table = irtjax.ResponseTable.from_arrays(values, observed=seen)
    first, second = np.array([0, 0]), np.array([1, 2])
    gap, p_value = designs.paired_accuracies(table, first, second)
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        both = seen[a] & seen[b]
        expected = stats.ttest_rel(values[a, both], values[b, both])
        assert gap[k] == pytest.approx((values[a, both] - values[b, both]).mean())
        assert p_value[k] == pytest.approx(expected.pvalue)


@pytest.mark.slow
def test_benchmarks_drop_copies_and_compare_with_all_items():
    rng = np.random.default_rng(0)
    chance = 1 / (1 + np.exp(-rng.normal(size=(9, 1)) - rng.normal(size=300)))
    values = (rng.random(chance.shape) < chance).astype(float)
    values[0, ::7] = np.nan
    values = np.vstack([values, values[4:5]])
    distinct = benchmarks.without_copies(values)
    assert np.array_equal(distinct, values[:9], equal_nan=True)
    row = benchmarks.study(distinct, 60, None, "rasch", 2)
    assert (row["subjects"], row["items"]) == (9, 60)
    # With complete responses Rasch's model keeps the order of accuracies.
    whole = benchmarks.study(values[1:9], 60, None, "rasch", 2)
    assert abs(whole["tau_gain"]) < 0.1
    line = markdown([{"benchmark": "x", "model": "y", **row}], benchmarks.COLUMNS)
    assert line.splitlines()[2].startswith("| x | 9 | 60 | y | 0.")


def test_tables_of_coverage_show_errors_of_the_fields_asked_for(tmp_path):
    columns = {"name": "case", "a": "A", "b": "B", "met": "met", "none": "none"}
    row = {"name": "x", "a": 0.25, "a_error": 0.5, "b": 1.0, "b_error": 0.125}
    row |= {"met": False, "none": None}
    head = "| case | A | B | met | none |\n| --- | --- | --- | --- | --- |\n"
    text = markdown([row], columns)
    assert text == head + "| x | 0.250 ± 0.500 | 1.000 ± 0.125 | **no** |  |"
    some = markdown([row | {"a": np.nan}], columns, ("a",))
    assert some == head + "| x | – | 1.000 | **no** |  |"
    write(tmp_path / "new", "both", [row], text)
    assert (tmp_path / "new/both.md").read_text("utf-8") == text + "\n"
    lines = (tmp_path / "new/both.csv").read_text("utf-8").splitlines()
    assert lines == [",".join(row), "x,0.25,0.5,1.0,0.125,False,"]


def test_cells_of_adaptive_tests():
    cell = dict(subjects=10, select="random", items=5, errors="known")
    squares = [(0.04, 0.02, 0.8), (0.12, 0.02, 1.0)]
    names = "score_square", "score_stated", "score_coverage"
    gaps = np.array([1.0, -3.0, 4.5, -5.0])
    rows = [cell | dict(zip(names, x, strict=True)) for x in squares]
    rows.append(
        rows[0] | {"items": 3} | adaptive.compare("ability", gaps, 0 * gaps + 2)
    )
    both, one = adaptive.summarise(rows, adaptive.CELL[1:])
    assert (both["items"], both["sets"], one["sets"]) == (5, 2, 1)
    assert both["score_rmse"] == pytest.approx(0.08**0.5)
    assert both["score_ratio"] == pytest.approx(2)
    assert both["score_coverage_se"] == pytest.approx(0.1)
    assert np.isnan(both["ability_rmse"]) and np.isnan(one["score_coverage_se"])
    # Two of four errors are within 1.96 * 2.
    assert (one["ability_coverage"], one["ability_stated"]) == (0.5, 2)
    assert adaptive.rows_of([7, 9], lambda n: n // 4, lambda n, k: [(n, k)]) == [
        (7, 0),
        (9, 0),
        (9, 1),
    ]


@pytest.mark.slow
def test_few_items(tmp_path):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(60, 2)) @ rng.uniform(0.5, 2, (2, 12)) + rng.normal(
        size=12
    )
    right = (rng.random((60, 12)) < expit(logits)) * 1
    irtjax.ResponseTable.from_arrays(right).save(tmp_path / "responses.parquet")
    given = [str(tmp_path / "responses.parquet"), "--factors", "2", "--tested", "500"]
    rows = few_items.main([*given, "--out", str(tmp_path)])
    assert len(rows) == 8 and (tmp_path / "few_items.csv").exists()
    for row in rows:
        # Four Monte-Carlo errors, and 4 % of the normal approximation.
        assert abs(row["difference"]) < 4 * row["noise"] + 4
        assert row["coverage"] > 0.95 - 4 * (0.95 * 0.05 / 500) ** 0.5 - 0.02


@pytest.mark.slow
def test_adaptive_several(tmp_path):
    sizes = ["--sizes", "60", "--sets", "2", "--items", "60", "--tested", "50"]
    lines = adaptive_several.main([*sizes, "--out", str(tmp_path)])
    assert len(lines) == 12 and (tmp_path / "adaptive_several.csv").exists()
    cover = {(x["select"], x["items"], x["errors"]): x["score_coverage"] for x in lines}
    for select in ("information", "random"):
        known, counted = (cover[select, 20, x] for x in ("known", "counted"))
        # 100 tests on two calibrations: four binomial standard errors.
        assert counted > max(known, 0.95 - 4 * (0.05 * 0.95 / 100) ** 0.5)

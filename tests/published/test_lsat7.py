"""LSAT7 against R's mirt: estimates, standard errors, log-likelihoods, scores."""

import dataclasses
import json

import numpy as np
import pytest

import irtjax
from irtjax.data.table import ResponseTable
from irtjax.estimators.marginal.em import EM
from irtjax.numerics.kernels import equal_nodes


@pytest.fixture(scope="module")
def reference(shared_data):
    return json.loads(
        (shared_data / "classic" / "mirt_lsat7_reference.json").read_text()
    )


@pytest.fixture(scope="module")
def table(reference):
    return ResponseTable.from_arrays(
        np.repeat(reference["patterns"], reference["freq"], 0)
    )


@pytest.fixture(
    scope="module", params=[pytest.param("rasch", marks=pytest.mark.slow), "2pl"]
)
def fitted(request, reference, table):
    # mirt's nodes, and its Oakes errors.
    method = EM(equal_nodes(-6, 6, 61), 1e-6)
    name = {"rasch": "Rasch", "2pl": "2PL"}[request.param]
    return reference[name], irtjax.fit(table, request.param, method, priors=None)


def _expected(reference, column):
    """Estimates and standard errors of one column, `[items]` each."""
    cells = [reference["coef"][f"Item.{k}"] for k in range(1, 6)]
    place = cells[0]["cols"].index(column)
    rows = np.array([[row[place] for row in cell["values"]] for cell in cells])
    return rows[:, 0].astype(float), rows[:, 1]


def test_estimates_and_errors(fitted):
    reference, calibration = fitted
    assert calibration.log_likelihood == pytest.approx(reference["logLik"], abs=2e-3)
    assert calibration.aic == pytest.approx(reference["AIC"], abs=4e-3)
    assert calibration.bic == pytest.approx(reference["BIC"], abs=4e-3)
    found = calibration.items.table.to_pydict()
    for name, column in (("intercept", "d"), ("discrimination", "a1")):
        estimate, error = _expected(reference, column)
        np.testing.assert_allclose(found[name], estimate, atol=3e-3)
        if "NA" not in error:
            # mirt differentiates the gradient of EM numerically.
            np.testing.assert_allclose(
                found[f"{name}_se"], error.astype(float), rtol=5e-3
            )
    if calibration.model.name == "rasch":
        variance = float(calibration.parameters.population.sd) ** 2
        assert variance == pytest.approx(reference["GroupPars"]["cov"], abs=3e-3)


def test_scores(fitted, reference):
    own, calibration = fitted
    patterns = ResponseTable.from_arrays(reference["patterns"])
    as_known = dataclasses.replace(
        calibration, options={**calibration.options, "item_uncertainty": False}
    )
    # Items are matched by name: both tables number them from 1.
    for method in ("eap", "map"):
        scores = irtjax.score(calibration, patterns, scoring=method).table.to_pydict()
        expected = np.array(own[method.upper()], float)
        np.testing.assert_allclose(scores["ability"], expected[:, 0], atol=2e-3)
        # Published errors take the items as known.
        assert np.all(np.array(scores["ability_se"]) > expected[:, 1])
        known = irtjax.score(as_known, patterns, scoring=method).table.to_pydict()
        np.testing.assert_allclose(known["ability"], scores["ability"], atol=1e-9)
        np.testing.assert_allclose(known["ability_se"], expected[:, 1], atol=2e-3)


@pytest.mark.slow
def test_the_three_parameter_likelihood(reference, table):
    # Guessing of four items runs to 0: only the log-likelihood is comparable, and
    # maximum likelihood must not be below what mirt reached in 50,000 cycles.
    calibration = irtjax.fit(table, "3pl", priors=None, standard_errors="none")
    assert calibration.log_likelihood >= reference["3PL"]["logLik"] - 2e-3
    assert calibration.log_likelihood <= reference["3PL"]["logLik"] + 0.05

"""`laplace` finds what several groups were simulated with: LEGO-MM and LEGO-MB."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.lego_irt.posteriors import (
    GIVEN_PRIOR,
    draw_data,
    fast_fit,
    structured_model,
    true_hyperparameters,
)
from irtjax._types import Status
from irtjax.models.multilevel.model import Hyperpriors, general_ability
from irtjax.models.priors import LogNormal

SUBJECTS, ITEMS, DATA_SETS = 40, 240, 4
#: Own parts of abilities, and offsets of intercepts: `posteriors.true_hyperparameters`.
SCALES, CORRELATION = np.array([0.6, 0.4, 0.5]), 0.3
OFFSETS, SPREAD_OF_ITEMS = np.array([-0.5, 0.0, 0.5]), 0.8
#: Error of a correlation of all subjects in Fisher's z, and of a mean of data sets.
Z_ERROR = (SUBJECTS - 3) ** -0.5
MEAN = DATA_SETS**-0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LEGO-MM", "LEGO-MB"])
def test_abilities_correlations_and_offsets_are_recovered(kind):
    model = structured_model(
        kind, SUBJECTS, ITEMS, hyperpriors=Hyperpriors(), centred=True
    )
    own = np.outer(SCALES, SCALES) * (CORRELATION + (1 - CORRELATION) * np.eye(3))
    truths, fits = [], []
    for key in jax.random.split(jax.random.key(11), DATA_SETS):
        truth, values = jax.device_get(draw_data(model, key))
        fit = fast_fit(model, values)
        assert fit.status is Status.CONVERGED
        truths.append(truth)
        fits.append(jax.tree.map(np.asarray, fit.estimates))

    # Known abilities would leave this much of psi open, and no more is lost to items.
    most = np.sqrt(1 - general_ability(own).variance)
    pairs = [
        (truth["general ability"], fit["general ability"])
        for truth, fit in zip(truths, fits, strict=True)
    ]
    alike = np.array([np.corrcoef(*pair)[0, 1] for pair in pairs])
    found = np.arctanh(alike).mean()
    assert abs(found - np.arctanh(most)) < 4 * Z_ERROR * MEAN
    # An estimate is what is expected of psi, which is no wider than the truth: of the
    # regression the subjects know the slope, and their own spread, which is the unit.
    slopes = [np.cov(*pair)[0, 1] / np.var(pair[1], ddof=1) for pair in pairs]
    error = np.sqrt((most**-2 - 1) / SUBJECTS + 1 / (2 * SUBJECTS))
    assert abs(np.mean(slopes) - 1) < 4 * error * MEAN

    # What data tell of Sigma: the correlations of abilities. The subjects drawn have
    # others; 80 items tell each ability almost fully.
    whole = 1 + own
    sd = np.sqrt(np.diag(whole))
    expected = (whole / np.outer(sd, sd))[np.tril_indices(3, -1)]
    np.testing.assert_allclose(truths[0]["correlations by group"], expected, rtol=1e-5)
    found = np.mean([np.arctanh(fit["correlations by group"]) for fit in fits], axis=0)
    assert np.abs(found - np.arctanh(expected)).max() < 4 * Z_ERROR * MEAN

    # Offsets from that of the first group: the origin that groups share cancels. What
    # is left are the mean own parts of the subjects, whose mean is taken to be 0, and
    # in LEGO-MB other items, each with an answer of 0.2 of information by a subject.
    gap = np.array([fit["mean intercepts by group"] for fit in fits]).mean(axis=0)
    own_gap = own[0, 0] + np.diag(own)[1:] - 2 * own[0, 1:]
    variance = own_gap / SUBJECTS
    if kind == "LEGO-MB":
        variance += 2 * (SPREAD_OF_ITEMS**2 + 5 / SUBJECTS) / (ITEMS // 3)
    error = np.sqrt(variance) * MEAN
    assert np.all(np.abs(gap[1:] - gap[0] - (OFFSETS[1:] - OFFSETS[0])) < 4 * error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LEGO-MM", "LEGO-MB"])
def test_sigma_is_recovered_where_the_prior_of_discriminations_is_given(kind):
    # The paper gives that prior, and metrics no slopes of their own: items then know
    # the units of abilities, and nothing of Sigma is left to its own prior.
    subjects, items, sets = 300, 120, 3
    drawn = structured_model(
        kind,
        subjects,
        items,
        hyperpriors=Hyperpriors(),
        centred=True,
        metric_effects=False,
    )
    given = {"discrimination": LogNormal(0.0, GIVEN_PRIOR.spreads[0])}
    model = dataclasses.replace(drawn, priors=given)
    own = np.asarray(
        drawn.specific_covariance(true_hyperparameters(drawn, GIVEN_PRIOR))
    )
    found = []
    for key in jax.random.split(jax.random.key(12), sets):
        truth, values = jax.device_get(draw_data(drawn, key, GIVEN_PRIOR))
        fit = fast_fit(model, values, order=2)
        assert fit.status is Status.CONVERGED
        scales = np.exp(fit.estimates["log scales"])
        alike = np.eye(3)
        correlations = fit.estimates["correlations of residual abilities"]
        alike[np.tril_indices(3, -1)] = correlations
        alike = alike + np.tril(alike, -1).T
        found.append(alike * np.outer(scales, scales))
        parts = [x["residual abilities"].ravel() for x in (fit.estimates, truth)]
        assert np.corrcoef(*parts)[0, 1] > 0.8

    # Errors of a covariance of so many subjects, and of the units: each the mean of the
    # logarithms of its items, of all of them where metrics share theirs.
    whole = 1 + own
    error = np.outer(np.diag(whole), np.diag(whole)) + whole**2
    error = error / subjects
    unit = GIVEN_PRIOR.spreads[0] ** 2 / (items // 3)
    both = 4.0 if kind == "LEGO-MM" else 2 + 2 * np.eye(3)
    error = np.sqrt((error + both * unit * whole**2) / sets)
    assert np.all(np.abs(np.mean(found, axis=0) - own) < 4 * error)

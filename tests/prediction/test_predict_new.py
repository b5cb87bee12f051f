"""Predictions of new subjects, who were scored with a fit."""

import numpy as np
import pytest

import irtjax
from irtjax.prediction.responses import predict
from tests.small_fits import small_fit


def test_new_subjects_are_predicted_as_those_with_their_responses():
    fit = small_fit()
    values = np.ones((2, len(fit.item_names)))
    values[1] = 0
    table = irtjax.ResponseTable.from_arrays(values, items=fit.item_names)
    scored = irtjax.score(fit, table)
    whole = predict(fit, scored=scored)
    assert whole.subjects.tolist() == table.subjects.tolist()
    assert whole.expected[0].mean() > whole.expected[1].mean()
    names = scored.table["subject"].to_pylist()[1:]
    some = predict(fit, scored=scored, subject_names=names, item_names=["b1/q3"])
    place = fit.item_names.tolist().index("b1/q3")
    np.testing.assert_allclose(some.expected[0, 0], whole.expected[1, place])
    with pytest.raises(ValueError, match="subject"):
        predict(fit, scored=scored, subject_names=fit.subject_names[:1])

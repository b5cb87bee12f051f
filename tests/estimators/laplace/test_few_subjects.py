"""What fits by `laplace` to few subjects warn of."""

from types import SimpleNamespace

import numpy as np
import pytest

from irtjax._types import Status
from irtjax.estimators.laplace.estimates import _warnings


@pytest.mark.parametrize(
    ("subjects", "slopes", "pairs"),
    [(3, True, False), (4, True, True), (3, False, True), (7, True, True)],
)
def test_intervals_of_differences_are_named_where_pairs_are_tested(
    subjects, slopes, pairs
):
    model = SimpleNamespace(
        subject_design=np.zeros((subjects, 0)),
        num_groups=1,
        group=np.zeros(100, int),
        family=SimpleNamespace(has_slope=slopes),
    )
    data = SimpleNamespace(values=np.zeros((subjects, 100)), observed=None)
    fit = SimpleNamespace(status=Status.CONVERGED, residual=0.0)
    nothing = np.zeros(0, bool)
    problem = SimpleNamespace(model=model, data=data)
    (text,) = _warnings(problem, fit, nothing, nothing)
    assert text.startswith(
        f"{subjects} subjects and {subjects * 100} responses are few"
    )
    assert ("of differences covered" in text) == pairs
    assert "of expected scores covered" in text

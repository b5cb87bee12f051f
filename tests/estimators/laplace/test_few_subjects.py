"""What fits by `laplace` to few subjects warn of."""

from types import SimpleNamespace

import numpy as np
import pytest

import irtjax
from irtjax._types import Status
from irtjax.estimators.laplace import errors
from irtjax.estimators.laplace.estimates import _warnings
from irtjax.numerics.progress import watching


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


@pytest.mark.slow
def test_a_watcher_sees_shares_of_errors_and_changes_none(monkeypatch):
    monkeypatch.setattr(errors, "MANY_ABILITIES", 1)
    rng = np.random.default_rng(2)
    right = (rng.random((12, 40)) < rng.uniform(0.3, 0.8, 40)).astype(float)
    names = ["a"] * 20 + ["b"] * 20
    table = irtjax.ResponseTable.from_arrays(right, benchmark=names)
    found, shares = [], []
    for watcher in (None, lambda share, _: shares.append(share)):
        with watching(watcher):
            found.append(irtjax.fit(table, "multibenchmark", max_steps=5))
    steps = [*errors.SHARES, None]
    assert shares[-len(steps) :] == steps
    one, other = found
    assert one.abilities.table.equals(other.abilities.table)
    assert one.items.table.equals(other.items.table)

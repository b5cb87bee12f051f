"""The warning of an audit where most items misfit begins with the effect on ranks."""

from types import SimpleNamespace

import numpy as np
from scipy.special import expit

from irtjax.auditing.cautions import _of_many_misfits
from irtjax.data import ResponseTable

NODES = np.linspace(-4, 4, 41)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def test_many_misfits_begin_with_their_effect():
    rng = np.random.default_rng(0)
    d = rng.normal(size=10)
    right = rng.random((200, 10)) < expit(rng.normal(size=(200, 1)) + d)
    table = ResponseTable.from_arrays(right.astype(int))
    gaps = rng.random((10, 4))
    model = SimpleNamespace(name="2pl")
    statistics = SimpleNamespace(
        fitted=SimpleNamespace(
            population=lambda: (NODES, WEIGHTS),
            curves=lambda nodes: expit(nodes + d[:, None]),
            fit=SimpleNamespace(model=model),
        ),
        groups=SimpleNamespace(right=gaps, expected=0 * gaps, sizes=np.full(4, 50.0)),
        p_values=lambda: {"misfit": np.full(10, 0.01)},
        num_complete=200,
    )
    most = {"misfit": np.arange(10) < 8}
    (text,) = _of_many_misfits(table, statistics, most)
    assert text.startswith(
        "without the 5 items that misfit most (8 of 10 items misfit) a subject moves "
    )
    assert "with 200 subjects small departures show, and the 2pl model" in text
    assert not [*_of_many_misfits(table, statistics, {"misfit": np.arange(10) < 2})]

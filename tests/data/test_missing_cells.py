"""Numbers in missing cells change nothing; trials that cannot be are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.data.responses import Responses


@pytest.fixture(scope="module")
def answers():
    """Responses of 30 subjects to 12 items, and the mask of the observed ones."""
    random = np.random.default_rng(3)
    gap = random.normal(size=(30, 1)) - random.normal(size=12)
    right = (random.random(gap.shape) < 1 / (1 + np.exp(-gap))).astype(float)
    return right, random.random(gap.shape) < 0.8


@pytest.mark.parametrize("junk", [-1, 9, -99999, 1e300, np.nan, np.inf])
def test_a_table_ignores_what_is_in_missing_cells(answers, junk):
    right, observed = answers
    names = {"subjects": [f"s{k}" for k in range(30)], "items": list("abcdefghijkl")}
    clean = irtjax.ResponseTable.from_arrays(right, observed=observed, **names)
    labels = {name: np.array(x) for name, x in names.items()}
    dirty = irtjax.ResponseTable(
        values=np.where(observed, right, junk), observed=observed, **labels
    )
    np.testing.assert_array_equal(dirty.values, np.where(observed, right, 0))
    assert dirty.kind == "binary"
    np.testing.assert_array_equal(dirty.item_accuracy(), clean.item_accuracy())
    assert dirty.replace(metric="x").num_observed == int(observed.sum())


@pytest.mark.parametrize(
    "method", ["em", "mm", pytest.param("laplace", marks=pytest.mark.slow)]
)
def test_fits_of_such_tables_agree(answers, method):
    right, observed = answers
    fits = [
        irtjax.fit(
            irtjax.ResponseTable(
                subjects=np.array([f"s{k}" for k in range(30)]),
                items=np.array(list("abcdefghijkl")),
                values=np.where(observed, right, junk),
                observed=observed,
            ),
            "2pl",
            method,
        )
        for junk in (0, -7)
    ]
    first, second = (fit.log_likelihood for fit in fits)
    assert first == second < 0
    assert fits[0].num_observed == fits[1].num_observed


def test_arrays_of_researchers_ignore_them_too(answers):
    right, observed = answers
    clean, dirty = (
        Responses(jnp.asarray(np.where(observed, right, junk)), jnp.asarray(observed))
        for junk in (0.0, -1e9)
    )
    np.testing.assert_array_equal(clean.values, dirty.values)
    make = lambda values: Responses(values, jnp.asarray(observed)).values
    traced = jax.jit(make)(np.where(observed, right, 5.0))
    np.testing.assert_array_equal(traced, clean.values)
    counts = Responses(clean.values, clean.observed, jnp.full((30, 12), 4))
    assert int(jnp.sum(counts.exposure)) == 4 * int(observed.sum())
    # The class also holds the axes of a vmap.
    assert Responses(0, None, None).values == 0


@pytest.mark.parametrize(
    ("count", "trials", "message"),
    [
        (1, -3, "1 of -3 trials: trials must be whole numbers from 0 to 16,777,216"),
        (1, np.nan, "1 of nan trials: trials must be whole numbers"),
        (1, 1.5, "1 of 1.5 trials: trials must be whole numbers"),
        (1, 2**31, r"1 of 2\.14748e\+09 trials: trials must be whole numbers"),
        (1, np.inf, "1 of inf trials: trials must be whole numbers"),
        (5, 3, "5 of 3 trials: a count must not exceed its trials"),
        (-1, 3, "-1 of 3 trials: counts must not be negative"),
        (0.5, 3, r"0\.5 of 3 trials: counts must be whole numbers"),
    ],
)
def test_trials_that_cannot_be_are_refused_with_their_place(count, trials, message):
    values, behind = np.ones((2, 3)), np.full((2, 3), 3.0)
    values[1, 2], behind[1, 2] = count, trials
    with pytest.raises(ValueError, match="row 2, column 3 has " + message):
        irtjax.ResponseTable.from_arrays(values, trials=behind)
    # As the message says, a cell without trials is missing.
    behind[1, 2] = 0
    table = irtjax.ResponseTable.from_arrays(values, trials=behind)
    assert table.num_observed == 5 and table.trials.dtype == np.int32


def test_trials_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"trials has shape \(2,\), but values has"):
        irtjax.ResponseTable.from_arrays([[1, 0]], trials=[1, 2])

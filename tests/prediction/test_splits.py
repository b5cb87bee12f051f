"""Masks of training and predicted responses: the rules of each scheme."""

import numpy as np
import pytest

from irtjax import ResponseTable
from irtjax.prediction import splits

SUBJECTS, ITEMS = 60, 80


@pytest.fixture(scope="module")
def table():
    """Responses with a tenth missing, benchmarks, families, sizes and dates."""
    rng = np.random.default_rng(0)
    values = (rng.random((SUBJECTS, ITEMS)) < 0.6).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    months = [f"2024-{1 + k % 12:02d}-15" for k in range(max(SUBJECTS, ITEMS))]
    return ResponseTable.from_arrays(values).replace(
        subject_facets={
            "family": np.array([f"family {k // 3}" for k in range(SUBJECTS)]),
            "size": np.arange(SUBJECTS).astype(str),
            "date": np.array(months[:SUBJECTS]),
        },
        item_facets={
            "benchmark": np.repeat(["a", "b"], ITEMS // 2),
            "released": np.array(months[:ITEMS]),
        },
    )


def schemes(table):
    """A split of each kind."""
    return {
        "entry": splits.entry(table),
        "rows": splits.rows(table),
        "families": splits.rows(table, group="family"),
        "rows_shifted": splits.rows_shifted(table, "size"),
        "columns": splits.columns(table),
        "columns_shifted": splits.columns_shifted(table, ["b"]),
        "block": splits.block(table),
        "temporal": splits.temporal(table, "2024-10-01", item_date="released"),
    }


def test_masks_are_disjoint_and_within_the_responses(table):
    for name, split in schemes(table).items():
        assert not (split.train & split.test).any(), name
        assert not ((split.train | split.test) & ~table.observed).any(), name
        assert split.train.any() and split.test.any(), name
        # All responses of old subjects to old items train.
        old = ~split.new_subjects[:, None] & ~split.new_items & table.observed
        if name != "entry":
            assert split.train[old].all(), name
        whole = split.train | split.test
        if name != "block":
            assert (whole == table.observed).all(), name
        # A response is predicted only where its subject and item have others.
        assert split.train.any(1)[split.test.any(1)].all(), name
        assert split.train.any(0)[split.test.any(0)].all(), name


def test_shares_are_within_binomial_error(table):
    of = schemes(table)
    for name, part, share in (
        ("entry", np.ones((SUBJECTS, ITEMS), bool), 0.8),
        ("rows", np.broadcast_to(of["rows"].new_subjects[:, None], (60, 80)), 0.3),
        ("columns", np.broadcast_to(of["columns"].new_items, (60, 80)), 0.3),
    ):
        cells = part & table.observed
        share_of = of[name].train[cells].mean()
        assert abs(share_of - share) < 4 * (share * (1 - share) / cells.sum()) ** 0.5
    assert of["rows"].new_subjects.sum() == 12
    assert of["columns"].new_items.sum() == 16


def test_a_block_is_of_new_subjects_and_new_items(table):
    split = splits.block(table)
    corner = split.new_subjects[:, None] & split.new_items
    assert (split.test == (corner & table.observed)).all()
    assert split.train[split.new_subjects][:, ~split.new_items].any(1).all()
    assert split.train[~split.new_subjects][:, split.new_items].any(0).all()


def test_exposure_of_rows_that_are_all_new_is_the_entry_mask(table):
    """The identity of both schemes: no subject is old."""
    entry, rows = splits.entry(table, 0.7), splits.rows(table, 0.0, 0.7)
    assert (entry.train == rows.train).all() and (entry.test == rows.test).all()


def test_masks_commute_with_a_permutation(table):
    rng = np.random.default_rng(1)
    order = rng.permutation(SUBJECTS), rng.permutation(ITEMS)
    moved = schemes(table.select(subjects=order[0], items=order[1]))
    for name, split in schemes(table).items():
        assert (moved[name].train == split.train[np.ix_(*order)]).all(), name
        assert (moved[name].test == split.test[np.ix_(*order)]).all(), name


def test_relatives_stay_together(table):
    new = splits.rows(table, group="family").new_subjects
    assert (new.reshape(-1, 3) == new[::3, None]).all()


def test_directions_of_a_shift(table):
    up = splits.rows_shifted(table, "size")
    down = splits.rows_shifted(table, "size", reverse=True)
    assert up.new_subjects.nonzero()[0].min() == 48
    assert down.new_subjects.nonzero()[0].max() == 11


def test_a_subject_without_an_exposed_response_is_counted():
    values = np.ones((6, 10))
    values[0, :9] = np.nan  # Its one response is to an item that may be new.
    facets = {"benchmark": np.array(["old"] * 9 + ["new"])}
    dates = {"date": np.array(["2025-01-01"] * 2 + ["2024-01-01"] * 4)}
    released = np.array(["2024-01-01"] * 9 + ["2025-01-01"])
    table = ResponseTable.from_arrays(values).replace(
        subject_facets=dates, item_facets={**facets, "released": released}
    )
    split = splits.temporal(table, "2024-06-01", item_date="released")
    assert split.dropped == 1 and not split.test[0].any()


def test_each_group_and_each_fold_of_items_is_new_once(table):
    for parts in (splits.groups(table), splits.new_items(table, folds=4)):
        assert sum(x.new_items.astype(int) for x in parts).tolist() == [1] * ITEMS
    families = splits.groups(table, "family")
    assert len(families) == 5 and not families[0].new_items.any()
    # The last fifth of the subjects, by default.
    assert splits.temporal(table).new_subjects.mean() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: splits.entry(t, 1.0), "share 1 is not between 0 and 1"),
        (lambda t: splits.rows(t, 0.8, 1.0), "exposure 1 is not between 0 and 1"),
        (lambda t: splits.rows(t, group="x"), "subjects have no column 'x'; there is"),
        (lambda t: splits.rows_shifted(t, "family"), "'family 0' is no number"),
        (lambda t: splits.columns_shifted(t, ["c"]), "no benchmark is named 'c'"),
        (lambda t: splits.columns_shifted(t, ["a", "b"]), "are held out: leave some"),
        (lambda t: splits.temporal(t, "soon"), "cutoff 'soon' is no date"),
        (lambda t: splits.temporal(t, "2030-01-01"), "nothing is from 2030-01-01"),
        (
            lambda t: splits.temporal(t, "2020-01-01"),
            "all dates are 2020-01-01 or later",
        ),
        (lambda t: splits.temporal(t, "2024-03-01", "size"), "size '0' is no date"),
        (lambda t: splits.groups(t, "x"), "subjects have no column 'x'"),
        (lambda t: splits.new_items(t, folds=100), "folds 100: give 2 to 80"),
    ],
)
def test_bad_input_is_refused_in_one_line(table, make, message):
    with pytest.raises(ValueError) as refused:
        make(table)
    assert message in str(refused.value) and "\n" not in str(refused.value)

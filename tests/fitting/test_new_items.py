"""New items on the scale of a fit: those of a joint fit, within errors."""

import numpy as np
import pytest

import irtjax
from irtjax.fitting.new_items import calibrate_items

SUBJECTS, OLD, NEW = 600, 25, 15


@pytest.fixture(scope="module")
def table():
    """Responses of a 2PL; the first items are those of the fit."""
    rng = np.random.default_rng(0)
    slope, difficulty = np.exp(0.3 * rng.normal(size=40)), rng.normal(size=40)
    logit = slope * (rng.normal(size=(SUBJECTS, 1)) - difficulty)
    values = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    return irtjax.ResponseTable.from_arrays(
        values,
        items=[f"q{k}" for k in range(40)],
        subjects=[f"m{k}" for k in range(SUBJECTS)],
    )


@pytest.fixture(scope="module")
def fit(table):
    """A fit of the old items."""
    old = table.select(items=np.arange(OLD))
    return irtjax.fit(old, "2pl", method="em", standard_errors="none")


def test_new_items_are_near_those_of_a_joint_fit(fit, table):
    joint = irtjax.fit(table, "2pl", method="em", standard_errors="none")
    wanted = joint.items.table.to_pandas().iloc[OLD:]
    new = table.select(items=np.arange(OLD, 40))
    found = calibrate_items(fit, new).table.to_pandas()
    assert found["item"].tolist() == wanted["item"].tolist()
    for name in ("discrimination", "intercept"):
        gap = (found[name].to_numpy() - wanted[name].to_numpy()) / found[f"{name}_se"]
        # Abilities are known a little less well without the new items, and the means
        # of both fits differ by the error of one subject mean.
        assert np.abs(gap).max() < 1.5 and abs(gap.mean()) < 0.5
    assert (found["discrimination_se"] > 0.05).all()


def test_unknown_subjects_are_scored_by_their_old_items(fit, table):
    rng = np.random.default_rng(1)
    chosen = rng.permutation(SUBJECTS)[:200]
    part = table.select(subjects=np.sort(chosen))
    renamed = part.replace(subjects=np.array([f"x{k}" for k in range(200)]))
    by_name = calibrate_items(fit, part.select(items=np.arange(OLD, 40)))
    by_items = calibrate_items(fit, renamed)
    one, other = (x.table["discrimination"].to_numpy() for x in (by_name, by_items))
    np.testing.assert_allclose(one, other, atol=0.02)


def test_what_cannot_be_calibrated_is_refused_or_left_out(fit, table):
    with pytest.raises(ValueError, match="all items are of the fit"):
        calibrate_items(fit, table.select(items=np.arange(OLD)))
    new = table.select(items=np.arange(OLD, 40))
    strangers = new.replace(subjects=np.array([f"x{k}" for k in range(SUBJECTS)]))
    with pytest.raises(ValueError, match="no subject is of the fit"):
        calibrate_items(fit, strangers)
    values = new.values.copy()
    for same in (0, 1):
        values[:, 0] = same
        result = calibrate_items(fit, new.replace(values=values))
        assert result.table.num_rows == NEW - 1 and "'q25'" in result.warnings[0]


def test_a_common_slope_is_refused():
    """New items had slopes of 1 on the scale of abilities of standard deviation 1."""
    rng = np.random.default_rng(0)
    right = rng.random((60, 12)) < 1 / (1 + np.exp(-rng.normal(size=(60, 1))))
    data = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(data.select(items=np.arange(10)), "1pl", method="em")
    with pytest.raises(ValueError, match="share a slope, which new ones lack"):
        calibrate_items(fit, data)

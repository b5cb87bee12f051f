"""What a fit with response lengths states of constants, noise and empty responses."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.calibration.parts.lengths import without_zero_lengths
from irtjax.fitting.length_checks import is_noise, refuse_constant


def drawn(subjects=60, items=15, seed=0, rho=-0.6):
    """Right responses, and lengths in tokens with a factor of speed."""
    rng = np.random.default_rng(seed)
    ability, noise = rng.normal(size=(2, subjects, 1))
    speed = rho * ability + np.sqrt(1 - rho**2) * noise
    logit = ability + rng.normal(size=items)
    right = (logit + rng.normal(size=(subjects, items)) > 0).astype(int)
    right[:, 0], right[:, 1] = 1, 0  # Nobody is all right or all wrong.
    lengths = np.exp(5 - 0.6 * speed + 0.4 * rng.normal(size=(subjects, items)))
    return right, lengths.round() + 1


def with_failures(subjects=60, failures=12):
    """The first subjects are all wrong and empty in half of their responses."""
    right, lengths = drawn(subjects)
    right[:failures] = 0
    lengths[:failures, ::2] = 0
    return irtjax.ResponseTable.from_arrays(right, lengths=lengths)


def rho_of(fit) -> float:
    return float(fit.parameters.lengths.correlation)


@pytest.mark.parametrize("missing", [False, True])
def test_constant_lengths_are_refused_with_the_model_to_use(missing):
    right, lengths = drawn()
    lengths[:] = 500
    if missing:
        lengths[3:9, 2] = np.nan
    table = irtjax.ResponseTable.from_arrays(right, lengths=lengths)
    with pytest.raises(ValueError, match="all response lengths are 500.*'probit2pl'"):
        irtjax.fit(table, "lart")
    by_item = np.broadcast_to(np.arange(15.0) + 100, right.shape).copy()
    table = table.replace(lengths=by_item)
    with pytest.raises(ValueError, match="no item has response lengths that differ"):
        irtjax.fit(table, "lart")
    by_item[0, 0] = 7  # One that differs is enough to be fitted.
    refuse_constant(table.replace(lengths=by_item))


@pytest.mark.parametrize("shape", [(10, 200), (60, 30), (200, 12)])
def test_noise_is_found_and_a_factor_is_not_taken_for_noise(shape):
    # 20 draws of noise: each is missed with probability 2 / 200 at most.
    rng = np.random.default_rng(5)
    noise = [rng.lognormal(6, 1, shape) for _ in range(20)]
    assert sum(map(is_noise, noise)) >= 18
    speed, slope = rng.normal(size=(shape[0], 1)), rng.normal(size=shape[1])
    # Slopes of both signs: means of subjects hardly differ.
    for pattern in (np.ones(shape[1]), slope - slope.mean()):
        assert not is_noise(np.exp(6 + speed * pattern + rng.normal(size=shape)))
    holes = noise[0].copy()
    holes[rng.random(shape) < 0.2] = np.nan
    assert is_noise(holes)
    assert not is_noise(holes * np.exp(speed))


def test_a_fit_to_noise_is_warned_of():
    right, lengths = drawn()
    rng = np.random.default_rng(2)
    noise = rng.permuted(rng.lognormal(6, 1, lengths.shape).round(), axis=0)
    table = irtjax.ResponseTable.from_arrays(right, lengths=noise)
    fit = irtjax.fit(table, "lart", standard_errors="none")
    (text,) = [x for x in fit.warnings if "response lengths beyond chance" in x]
    assert "probit2pl" in text and not any(x.startswith("rho") for x in fit.warnings)


@pytest.mark.slow
def test_both_correlations_are_those_of_fits_without_subjects_and_zeros():
    table = with_failures()
    fit = irtjax.fit(table, "lart", standard_errors="none")
    (text,) = [x for x in fit.warnings if "rho is" in x]
    first, second = text.split("; it is ")
    rest = table.select(subjects=table.subjects[12:])
    alone = irtjax.fit(rest, "lart", standard_errors="none")
    # Fits converge within a hundredth of a standard error of 0.1.
    assert f"rho is {rho_of(fit):.2f}, but {rho_of(alone):.2f} without" in first
    assert "12 subjects that are all wrong" in first
    asked = irtjax.fit(table, "lart", standard_errors="none", zero_lengths="missing")
    assert second.startswith(f"{rho_of(asked):.2f} without 96 lengths of 0, and")
    assert abs(rho_of(fit) - rho_of(asked)) > 0.02
    assert asked.options["zero_lengths"] == "missing"
    assert not any("lengths of 0" in x for x in asked.warnings)
    # New scores take zeros as the fit did.
    again = irtjax.score(asked, table).table.column("ability").to_numpy()
    given = without_zero_lengths(table, "missing")
    other = irtjax.score(asked, given).table.column("ability").to_numpy()
    np.testing.assert_allclose(again, other)
    kept = irtjax.score(fit, table).table.column("ability").to_numpy()
    assert np.abs(kept - again).max() > 1e-3


def test_without_extreme_subjects_and_zeros_nothing_is_said():
    right, lengths = drawn(80, 20, seed=4)
    keep = (right.mean(axis=1) > 0) & (right.mean(axis=1) < 1)
    table = irtjax.ResponseTable.from_arrays(right[keep], lengths=lengths[keep])
    fit = irtjax.fit(table, "lart", standard_errors="none")
    assert not any("rho is" in x or "chance" in x for x in fit.warnings)


@pytest.mark.parametrize(
    ("model", "value", "said"),
    [("2pl", "missing", "for the model lart"), ("lart", "dropped", "neither 'kept'")],
)
def test_settings_that_cannot_be_are_refused(model, value, said):
    with pytest.raises(ValueError, match=said):
        irtjax.fit(with_failures(), model, zero_lengths=value)


def test_zero_lengths_become_missing_and_others_stay():
    table = with_failures()
    found = without_zero_lengths(table, "missing")
    assert found.lengths is not None
    np.testing.assert_array_equal(np.isnan(found.lengths), table.lengths == 0)
    assert without_zero_lengths(table, "kept") is table
    bare = dataclasses.replace(table, lengths=None)
    assert without_zero_lengths(bare, "missing") is bare
    logs = found.responses(length_offset=1.0).log_length
    assert logs is not None and jnp.isfinite(logs).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "all_rows", "without"),
    [("math500", -0.70, -0.50), ("amc23", -0.84, -0.51), ("aime24", -0.89, -0.70)],
)
def test_the_papers_data(shared_data, name, all_rows, without):
    folder = shared_data / "lart"
    table = irtjax.read(
        folder / f"accuracy_{name}.parquet",
        length=folder / f"cot_length_{name}.parquet",
    )
    fit = irtjax.fit(table, "lart", standard_errors="none")
    assert f"{rho_of(fit):.2f}" == f"{all_rows:.2f}"
    assert any(
        x.startswith(f"rho is {all_rows:.2f}, but {without:.2f} without")
        for x in fit.warnings
    )

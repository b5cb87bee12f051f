"""Links by common subjects: copies, coverage, changed subjects, two fits."""

import dataclasses

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

import irtjax
from irtjax.validity.subject_links import SharedSubjects, solve_subjects

A, B = 1.3, -0.4


def shared(seed, size=100, error=1.0):
    """Abilities of both scales, with errors of known variances."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=size)
    v = rng.uniform(0.05, 0.2, (2, size)) / np.array([[1.0], [A**2]])
    x = np.stack([ability, (ability - B) / A])
    x = x + error * np.sqrt(v) * rng.normal(size=x.shape)
    none = np.zeros((size, 0)), np.zeros((2, 0))
    return SharedSubjects(x, v, (none[0], none[0]), (none[1], none[1]))


def swapped(subjects):
    return subjects._replace(x=subjects.x[::-1], v=subjects.v[::-1])


@pytest.mark.parametrize("robust", [False, True])
def test_a_copy_is_linked_exactly_and_the_inverse_is_the_other_direction(robust):
    exact = solve_subjects(shared(0, error=0), True, robust, (4, 2))
    np.testing.assert_allclose(exact.constants[1], [A, B], atol=1e-10)
    subjects = shared(1)
    link = solve_subjects(subjects, True, robust, (4, 2))
    back = solve_subjects(swapped(subjects), True, robust, (4, 2))
    a, b = link.constants[1]
    np.testing.assert_allclose(back.constants[1], [1 / a, -b / a], atol=1e-7)
    errors = np.sqrt(np.diag(link.covariance)), np.sqrt(np.diag(back.covariance))
    np.testing.assert_allclose(errors[1][2], errors[0][2] / a**2, rtol=1e-5)


def test_squares_are_maximum_likelihood_with_true_abilities_profiled_out():
    subjects = shared(2)
    (x, y), (v, w) = subjects.x, subjects.v

    def loss(constants):
        a, b = constants
        # The ability on the second scale that is nearest to both.
        best = (a * (x - b) / v + y / w) / (a**2 / v + 1 / w)
        return np.sum((x - a * best - b) ** 2 / v + (y - best) ** 2 / w)

    options = {"xatol": 1e-9, "fatol": 1e-12}
    best = optimize.minimize(loss, [A, B], method="Nelder-Mead", options=options).x
    link = solve_subjects(subjects, True, False, (4, 2))
    np.testing.assert_allclose(link.constants[1], best, atol=1e-6)


def test_errors_cover():
    z = []
    for seed in range(400):
        link = solve_subjects(shared(seed), True, False, (4, 2))
        error = np.sqrt(np.diag(link.covariance)[2:])
        z.append((link.constants[1] - [A, B]) / error)
    # 95 % of 400 has a standard error of 1.1 %.
    coverage = np.mean(np.abs(z) < 1.96, axis=0)
    assert (coverage > 0.917).all() and (coverage < 0.983).all()


def test_subjects_that_changed_do_not_move_the_robust_link():
    subjects = shared(3)
    x = subjects.x.copy()
    x[1, ::10] += 2  # Better models under old names.
    changed = subjects._replace(x=x)
    clean, robust, every = (
        solve_subjects(one, True, method, (4, 2)).constants[1]
        for one, method in ((subjects, True), (changed, True), (changed, False))
    )
    error = np.sqrt(solve_subjects(changed, True, True, (4, 2)).covariance[3, 3])
    assert abs(robust[1] - clean[1]) < error < abs(every[1] - clean[1])


@pytest.fixture(scope="module")
def two():
    """Fits of other items, the second of the better models alone."""
    rng = np.random.default_rng(1)
    ability = np.sort(rng.normal(size=300))
    names = np.array([f"model {k}" for k in range(300)])
    fits = []
    for first, rows in ((0, slice(None)), (100, slice(100, None))):
        slope, intercept = rng.uniform(0.8, 1.6, 40), rng.normal(size=40)
        chance = expit(ability[rows, None] * slope + intercept)
        table = irtjax.ResponseTable.from_arrays(
            (rng.random(chance.shape) < chance).astype(np.int8),
            subjects=names[rows],
            items=[f"q{first + k}" for k in range(40)],
        )
        fits.append(irtjax.fit(table, "2pl", method="em"))
    return fits, ability[100:]


def test_fits_without_common_items_are_linked_by_subjects(two):
    fits, ability = two
    link = irtjax.link(*fits)
    truth = ability.std(), ability.mean()
    assert abs(link.A - truth[0]) < 3 * link.A_se < 0.4
    assert abs(link.B - truth[1]) < 3 * link.B_se < 0.4
    assert link.notes[0] == "2 is linked to 1 by 200 common subjects: no tests of drift"
    assert link.table.num_rows == 0 and link.constants["common"].to_pylist() == [0, 200]
    copy = fits[1].rescaled(link)
    mean = copy.abilities.table["ability"].to_numpy().mean()
    assert mean == pytest.approx(link.B, abs=0.05)
    equated = irtjax.equate(*fits).table
    assert (equated["equated_se"].to_numpy()[5:-5] > 0.1).all()
    # The same by name, and through a third version in a chain.
    named = irtjax.link(fits[1], fits[0], method="subjects")
    np.testing.assert_allclose(named.A, 1 / irtjax.link(*fits, method="weighted").A)
    third = irtjax.link(fits[0], fits[1], fits[1])
    np.testing.assert_allclose(third.estimate.constants[2], [link.A, link.B], rtol=1e-6)


def test_too_few_common_subjects_are_refused_in_a_line(two):
    (old, new), _ = two
    names = np.array([f"other {k}" for k in range(len(new.subject_names))])
    names[:3] = new.subject_names[:3]
    other = dataclasses.replace(new, subject_names=names)
    with pytest.raises(ValueError, match="0 common items .* and 3 common subjects"):
        irtjax.link(old, other)


def test_rows_without_names_are_common_only_if_asked(two):
    (old, new), _ = two
    rows = np.array([f"subject {k + 1}" for k in range(len(old.subject_names))])
    first = dataclasses.replace(old, subject_names=rows)
    second = dataclasses.replace(new, subject_names=rows[100:])
    with pytest.raises(ValueError, match="and 0 common subjects"):
        irtjax.link(first, second)
    asked, named = (
        irtjax.link(*fits, method="subjects") for fits in ((first, second), (old, new))
    )
    assert asked.A == named.A

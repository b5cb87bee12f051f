"""Linking: affine copies, derivatives, independent minima, planted drift, versions."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.rescaled import moved_item
from irtjax.cli.app import app
from irtjax.validity.link_estimation import (
    NODES,
    WEIGHTS,
    Form,
    ItemLines,
    family_of,
    pairs_of,
    solve,
)
from irtjax.validity.linking import METHODS

ITEMS, SUBJECTS = 40, 300
BY_ITEMS = [method for method in METHODS if method != "subjects"]
A, B = 1.3, -0.4
#: Covariance of (a, d) of an item: about that of 500 responses.
COVARIANCE = np.array([[0.02, -0.004], [-0.004, 0.018]])


@pytest.fixture(scope="module")
def base():
    rng = np.random.default_rng(0)
    slope, intercept = rng.uniform(0.8, 1.6, ITEMS), rng.normal(size=ITEMS)
    logit = rng.normal(size=(SUBJECTS, 1)) * slope + intercept
    right = (rng.random(logit.shape) < expit(logit)).astype(np.int8)
    names = [f"q{k}" for k in range(ITEMS)]
    table = irtjax.ResponseTable.from_arrays(right, items=names)
    return irtjax.fit(table, "2pl", method="em")


def version(base, a, d, tag="", items=None):
    """The base with other parameters of its items, their errors, other subjects."""
    record = base.parameters.items
    record = record._replace(discrimination=np.array(a), intercept=np.array(d))
    names = np.array([f"{name}{tag}" for name in base.subject_names.tolist()])
    return dataclasses.replace(
        base,
        parameters=base.parameters._replace(items=record),
        item_covariance=np.tile(COVARIANCE, (ITEMS, 1, 1)),
        ability_shared=None,
        subject_names=names,
        item_names=base.item_names if items is None else np.array(items),
    )


def truth(base):
    items = base.parameters.items
    return (
        np.asarray(items.discrimination, float),
        np.asarray(items.intercept, float),
    )


def moved(a, d, scale=A, shift=B):
    """Items on the scale from which theta = scale * theta' + shift."""
    return a * scale, d + a * shift


def drawn(a, d, seed):
    noise = np.random.default_rng(seed).multivariate_normal([0, 0], COVARIANCE, ITEMS)
    return a + noise[:, 0], d + noise[:, 1]


@pytest.mark.parametrize("method", BY_ITEMS)
def test_an_affine_copy_is_linked_exactly_in_both_directions(base, method):
    a, d = truth(base)
    old, new = version(base, a, d), version(base, *moved(a, d), tag="'")
    result = irtjax.link(old, new, method=method)
    np.testing.assert_allclose([result.A, result.B], [A, B], atol=1e-10)
    assert not result.drifted and result.A_se > 0
    back = irtjax.link(new, old, method=method)
    np.testing.assert_allclose([back.A, back.B], [1 / A, -B / A], atol=1e-10)
    # The error of the inverse by the delta method.
    np.testing.assert_allclose(back.A_se, result.A_se / A**2, rtol=1e-6)


@pytest.mark.parametrize("method", BY_ITEMS)
def test_the_inverse_link_is_that_of_the_other_direction(base, method):
    a, d = truth(base)
    old = version(base, *drawn(a, d, 1))
    new = version(base, *drawn(*moved(a, d), 2), tag="'")
    result = irtjax.link(old, new, method=method)
    back = irtjax.link(new, old, method=method)
    np.testing.assert_allclose(
        [back.A, back.B], [1 / result.A, -result.B / result.A], atol=1e-7
    )
    assert abs(result.A - A) < 4 * result.A_se and abs(result.B - B) < 4 * result.B_se


def noisy_forms(base):
    a, d = truth(base)
    fits = [version(base, *drawn(a, d, 1)), version(base, *drawn(*moved(a, d), 2))]
    with jax.enable_x64(True):
        return fits, [Form.of(fit) for fit in fits], family_of(fits[0])


@pytest.mark.parametrize("method", ["robust", "weighted", "haebara", "stocking_lord"])
def test_derivatives_are_those_of_the_constants_of_changed_items(base, method):
    _, forms, family = noisy_forms(base)
    pairs = pairs_of(forms, [np.ones(ITEMS, bool)] * 2, [(0, 1)])
    start = np.array([[1, 0], [A, B]])
    with jax.enable_x64(True):
        run = lambda x: solve(family, method, x, ItemLines.of(family, x), pairs, start)
        estimate = run(forms)
        for form, item, column in ((0, 3, 0), (1, 7, 1)):
            step, ends = 1e-4, []
            for sign in (1, -1):
                x = forms[form].x.copy()
                x[item, column] += sign * step
                changed = [*forms]
                changed[form] = forms[form]._replace(x=x)
                ends.append(run(changed).constants[1])
            place = form * ITEMS + item
            np.testing.assert_allclose(
                (ends[0] - ends[1]) / (2 * step),
                estimate.derivative[1, :, place, column],
                # Central differences: step^2 times third derivatives.
                atol=1e-6,
            )


def test_weighted_is_maximum_likelihood_with_the_true_items_profiled_out(base):
    fits, forms, _ = noisy_forms(base)
    x, precision = (
        [form.x for form in forms],
        [np.linalg.inv(form.own) for form in forms],
    )

    def loss(constants):
        scale, shift = constants
        matrix = np.array([[scale, 0.0], [shift, 1.0]])  # To the scale of the second.
        weight = precision[0] + matrix.T @ precision[1] @ matrix
        right = np.einsum("jab,jb->ja", precision[0], x[0])
        right += np.einsum("jab,jb->ja", matrix.T @ precision[1], x[1])
        item = np.linalg.solve(weight, right[:, :, None])[:, :, 0]
        gaps = x[0] - item, x[1] - item @ matrix.T
        return sum(
            np.einsum("ja,jab,jb->", gap, own, gap)
            for gap, own in zip(gaps, precision, strict=True)
        )

    options = {"xatol": 1e-9, "fatol": 1e-12}
    best = optimize.minimize(loss, [A, B], method="Nelder-Mead", options=options).x
    result = irtjax.link(*fits, method="weighted")
    np.testing.assert_allclose([result.A, result.B], best, atol=1e-6)


@pytest.mark.parametrize("summed", [False, True])
def test_curves_are_nearest_by_an_independent_minimiser(base, summed):
    fits, forms, _ = noisy_forms(base)

    def loss(constants):
        scale, shift = constants
        total = 0.0
        curve = lambda x, theta: expit(theta[:, None] * x[:, 0] + x[:, 1])
        for first in (NODES, scale * NODES + shift):  # Populations of both.
            gap = curve(forms[0].x, first) - curve(forms[1].x, (first - shift) / scale)
            square = gap.sum(axis=1) ** 2 if summed else (gap**2).sum(axis=1)
            total += WEIGHTS @ square
        return total

    options = {"xatol": 1e-9, "fatol": 1e-14}
    best = optimize.minimize(loss, [A, B], method="Nelder-Mead", options=options).x
    method = "stocking_lord" if summed else "haebara"
    result = irtjax.link(*fits, method=method)
    np.testing.assert_allclose([result.A, result.B], best, atol=1e-6)


def test_drifted_items_are_found_and_do_not_move_the_robust_link(base):
    a, d = truth(base)
    old = version(base, *drawn(a, d, 3))
    new_a, new_d = drawn(*moved(a, d), 4)
    planted = np.arange(0, ITEMS, 5)  # A fifth, easier by eight standard errors.
    new_d[planted] += 1.6
    new = version(base, new_a, new_d, tag="'")
    result = irtjax.link(old, new)
    names = {f"q{k}" for k in planted}
    assert names <= set(result.drifted) and len(result.drifted) <= len(names) + 1
    rows = {row["item"]: row for row in result.table.to_pylist()}
    assert all(rows[name]["effect"] > 5 for name in names)
    # As without these items, apart from the dispersion that is estimated from all.
    others = [f"q{k}" if k not in planted else f"x{k}" for k in range(ITEMS)]
    clean = irtjax.link(old, version(base, new_a, new_d, items=others))
    assert abs(result.A - clean.A) < 0.3 * result.A_se
    assert abs(result.B - clean.B) < 0.3 * result.B_se
    everyone = irtjax.link(old, new, method="weighted")
    assert abs(everyone.B - clean.B) > 2 * result.B_se
    assert set(everyone.drifted) == set(result.drifted)


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("method", ["robust", "stocking_lord", "mean_sigma"])
def test_several_versions_are_linked_through_those_between(base, method, chain):
    a, d = truth(base)
    scales = (1.0, 0.0), (1.3, -0.4), (0.8, 0.5), (1.1, 1.0)
    # Of each version the second half of the items are in the next.
    fits = [
        version(
            base,
            *moved(np.roll(a, -20 * k), np.roll(d, -20 * k), *scale),
            tag=f"v{k}",
            items=[f"q{20 * k + j}" for j in range(ITEMS)],
        )
        for k, scale in enumerate(scales)
    ]
    result = irtjax.link(*fits, method=method, chain=chain)
    rows = result.constants.to_pylist()
    np.testing.assert_allclose(
        [(row["A"], row["B"]) for row in rows], scales, atol=1e-9
    )
    assert [row["common"] for row in rows] == [0, 20, 20, 20]
    assert rows[1]["B_se"] < rows[2]["B_se"] < rows[3]["B_se"]
    # One model in all versions: its ability is one, its errors are those of the link.
    abilities = result.abilities
    assert len(abilities.names) == 4 * SUBJECTS
    error = abilities.standard_error.reshape(4, SUBJECTS)
    assert (error[3] > scales[3][0] * error[0] * 0.9).all()


@pytest.mark.parametrize("method", ["mean_sigma", "stocking_lord", "weighted"])
def test_an_item_all_right_in_a_version_counts_by_its_error_or_not(base, method):
    """Its parameters are those of the prior: a mean of difficulties would follow it."""
    a, d = truth(base)
    new_a, new_d = moved(a, d)
    new_a[3], new_d[3] = 0.5, 4.5
    new = version(base, new_a, new_d, tag="'")
    table = new.items.table
    flags = ["all right" if k == 3 else "" for k in range(ITEMS)]
    place = table.column_names.index("flags")
    items = dataclasses.replace(
        new.items, table=table.set_column(place, "flags", [flags])
    )
    covariance = new.item_covariance.copy()
    covariance[3] = np.diag([1.3, 1.8])
    new = dataclasses.replace(new, items=items, item_covariance=covariance)
    result = irtjax.link(version(base, a, d), new, method=method)
    out = "1 item all right or all wrong in calibration 2: left out (q3)"
    if method == "weighted":
        assert out not in result.notes and result.table.num_rows == ITEMS
        assert abs(result.A - A) < result.A_se and abs(result.B - B) < result.B_se
    else:
        assert out in result.notes
        np.testing.assert_allclose([result.A, result.B], [A, B], atol=1e-9)


def test_what_has_no_link_is_refused_in_a_line(base):
    a, d = truth(base)
    old = version(base, a, d)
    other = version(base, a, d, tag="'", items=[f"x{k}" for k in range(ITEMS)])
    with pytest.raises(ValueError, match="0 common items by name"):
        irtjax.link(old, other)
    with pytest.raises(ValueError, match="two calibrations or more"):
        irtjax.link(old)
    with pytest.raises(ValueError, match="no method 'median'"):
        irtjax.link(old, old, method="median")
    bare = dataclasses.replace(old, item_covariance=None)
    with pytest.raises(ValueError, match="no standard errors of items"):
        irtjax.link(old, bare)
    result = irtjax.link(old, bare, method="stocking_lord")
    assert np.isnan(result.A_se) and result.drifted == []


def test_the_command_prints_the_constants(base, tmp_path):
    a, d = truth(base)
    folders = []
    for name, fit in (("old", base), ("new", version(base, *moved(a, d)))):
        irtjax.save(fit, tmp_path / name)
        folders.append(str(tmp_path / name))
    words = ["link", *folders, "--method", "weighted", "--equate", "true"]
    place = tmp_path / "rescaled"
    result = CliRunner().invoke(app, [*words, "--json", "--rescaled", str(place)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert {"A", "B", "A_se", "B_se", "drifted"} <= set(document)
    assert len(document["equated"]) == ITEMS + 1
    assert abs(document["A"] - A) < 1e-5 and abs(document["B"] - B) < 1e-5
    copy = irtjax.load(place)
    before = base.abilities.table["ability"].to_numpy()
    np.testing.assert_allclose(
        copy.abilities.table["ability"], A * before + B, atol=1e-4
    )
    assert copy.notes[-1].startswith(f"on the scale of {folders[0]}: A 1.300")
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "linked")])
    assert result.exit_code == 0 and "0 of 40 common items drift" in result.stdout
    text = (tmp_path / "linked" / "constants.csv").read_text()
    assert text.replace('"', "").startswith("version,A,A_se,B,B_se")
    result = CliRunner().invoke(app, ["link", folders[0]])
    assert result.exit_code == 2 and "two fits or more" in result.stderr


@pytest.mark.parametrize("kind", ["true", "observed"])
def test_equated_scores_of_a_copy_are_the_scores(base, kind):
    a, d = truth(base)
    old, new = version(base, a, d), version(base, *moved(a, d), tag="'")
    table = irtjax.equate(old, new, kind=kind).table
    # Distributions have tails of 1e-12, in which ranks are rounded.
    np.testing.assert_allclose(table["equated"], np.arange(ITEMS + 1), atol=1e-3)
    inner = table["equated"].to_numpy()[5:-5]
    np.testing.assert_allclose(inner, np.arange(5, ITEMS - 4), atol=1e-8)


def test_observed_scores_have_equal_ranks_by_recursion(base):
    a, d = truth(base)
    old = version(base, a, d)
    new = version(base, *moved(a, d - 0.5), tag="'")
    # Anchors alone tell the scale: half of the items are as before.
    new_a, new_d = moved(a, d)
    new_d[::2] -= 0.8
    names = [f"q{k}" if k % 2 else f"x{k}" for k in range(ITEMS)]
    new = version(base, new_a, new_d, tag="'", items=names)
    table = irtjax.equate(old, new, kind="observed").table

    def distribution(a, d, theta):
        chances = expit(theta[:, None] * a + d)
        total = np.ones((len(theta), 1))
        for chance in chances.T:
            one = np.pad(total, ((0, 0), (1, 0))) * chance[:, None]
            total = one + np.pad(total, ((0, 0), (0, 1))) * (1 - chance)[:, None]
        return WEIGHTS @ total

    old_f = distribution(a, d, NODES)
    new_f = distribution(new_a, new_d, (NODES - B) / A)
    ends = np.concatenate([[0], np.cumsum(old_f)])
    rank = np.cumsum(new_f) - new_f / 2
    expected = np.interp(rank, ends, np.arange(ITEMS + 2) - 0.5)
    np.testing.assert_allclose(table["equated"][3:-3], expected[3:-3], atol=1e-6)
    # The new version is harder, so a score on it is worth more.
    assert (table["equated"].to_numpy()[3:-3] > np.arange(3, ITEMS - 2)).all()


@pytest.mark.parametrize(
    "kind", ["true", pytest.param("observed", marks=pytest.mark.slow)]
)
def test_errors_of_equated_scores_are_standard_deviations(base, kind):
    a, d = truth(base)
    values, errors = [], []
    for seed in range(40):
        old = version(base, *drawn(a, d, 2 * seed))
        new = version(base, *drawn(*moved(a, d), 2 * seed + 1), tag="'")
        table = irtjax.equate(old, new, kind=kind, method="weighted").table
        values.append(table["equated"].to_numpy()[5:-5])
        errors.append(table["equated_se"].to_numpy()[5:-5])
    ratio = np.std(values, axis=0, ddof=1) / np.mean(errors, axis=0)
    # A standard deviation of 40 draws has an error of 11 %.
    assert abs(ratio.mean() - 1) < 0.25 and (abs(ratio - 1) < 0.45).all()


def halves(base, seed=None):
    """Two versions with half of their items in common, drawn if there is a seed."""
    a, d = truth(base)
    names = [f"q{k}" if k % 2 else f"x{k}" for k in range(ITEMS)]
    pairs = (a, d), moved(a, d)
    if seed is not None:
        pairs = drawn(a, d, 2 * seed), drawn(*moved(a, d), 2 * seed + 1)
    return version(base, *pairs[0]), version(base, *pairs[1], tag="'", items=names)


@pytest.fixture(scope="module")
def linked(base):
    """A link with errors, and its later version with shared errors of abilities."""
    old, new = halves(base, seed=5)
    new = dataclasses.replace(new, ability_shared=base.ability_shared)
    return irtjax.link(old, new), new


@pytest.mark.parametrize(
    "model", ["rasch", "2pl", "3pl", "graded", "partial_credit", "nominal"]
)
def test_moved_items_respond_as_before(model):
    settings = () if "pl" in model or model == "rasch" else (4,)
    family = irtjax.MODELS[model](*settings).family
    size = sum(x.columns for x in family.parameters)
    item = family.constrain(np.random.default_rng(0).normal(size=size) / 3)
    scale = A if family.has_slope else 1.0
    item_moved = moved_item(family, item, scale, B)
    for theta in (-1.0, 0.5):
        before = family.natural(item, jnp.asarray(theta))
        after = family.natural(item_moved, jnp.asarray(scale * theta + B))
        np.testing.assert_allclose(after, before, atol=2e-6)
    # All parts of the record follow from the coordinates.
    again = family.constrain(family.unconstrain(item_moved))
    for one, other in zip(item_moved, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_rescaled_copy_has_the_items_of_the_first(base):
    old, new = halves(base)
    copy = new.rescaled(irtjax.link(old, new))
    for ours, theirs in zip(copy.parameters.items, old.parameters.items, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_rescaled_fit_counts_the_link_between_versions_not_within(linked):
    link, new = linked
    copy = new.rescaled(link)
    before, after = new.abilities.table, copy.abilities.table
    np.testing.assert_allclose(
        after["ability"], link.A * before["ability"].to_numpy() + link.B, atol=1e-6
    )
    for name in ("rank", "rank_lower", "rank_upper", "expected_score"):
        assert after[name].equals(before[name])
    # No difference of two subjects of the version has it, up to what shared errors are
    # not linear in ability.
    ratio = copy.rank().num_different / new.rank().num_different
    assert ratio == pytest.approx(1, abs=1e-3)
    pair = new.subject_names[[0, 9]].tolist()
    z = [irtjax.compare(fit, *pair).z for fit in (copy, new)]
    np.testing.assert_allclose(z[0], z[1], rtol=1e-4)
    # Every interval has it, as differences from the other version do.
    names, errors = link.abilities.names.tolist(), link.abilities.standard_error
    by_name = dict(zip(names, errors, strict=True))
    expected = [by_name[name] for name in new.subject_names.tolist()]
    np.testing.assert_allclose(after["ability_se"], expected, rtol=1e-6)


def test_new_subjects_of_a_rescaled_fit_are_on_the_first_scale(linked):
    link, new = linked
    copy, rng = new.rescaled(link), np.random.default_rng(1)
    data = irtjax.ResponseTable.from_arrays(
        rng.integers(0, 2, (6, ITEMS)), items=new.item_names.tolist()
    )
    alone, there = irtjax.score(new, data), irtjax.score(copy, data)
    ability, error = (
        there.table[name].to_numpy() for name in ("ability", "ability_se")
    )
    expected = link.A * alone.table["ability"].to_numpy() + link.B
    np.testing.assert_allclose(ability, expected, atol=1e-4)
    # Their errors have those that the subjects of the fit share, and no more.
    shared = there.table["ability_se"].to_numpy() ** 2 - there.own_error**2
    assert (shared > 0).all()
    assert shared.max() < np.sum(copy.ability_shared**2, axis=1).max()


def test_errors_of_rescaled_items_are_standard_deviations(base):
    values, errors = [], []
    for seed in range(40):
        old, new = halves(base, seed)
        copy = new.rescaled(irtjax.link(old, new, method="weighted"))
        values.append(truth(copy))
        names = "discrimination_se", "intercept_se"
        errors.append([copy.items.table[name].to_numpy() for name in names])
    ratio = np.std(values, axis=0, ddof=1) / np.mean(errors, axis=0)
    # A standard deviation of 40 draws has an error of 11 %; their mean over 20 items
    # that link, and over 20 others, one of about 4 %.
    for part in (slice(0, None, 2), slice(1, None, 2)):
        assert (abs(ratio[:, part].mean(axis=1) - 1) < 0.15).all()
    assert (abs(ratio - 1) < 0.45).all()


def test_what_cannot_be_rescaled_is_refused_in_a_line(linked, base):
    link, _ = linked
    with pytest.raises(ValueError, match="does not include this fit: rescale one"):
        base.rescaled(link)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["robust", "weighted", "stocking_lord"])
def test_intervals_of_constants_hold_their_level(base, method):
    """Of 200 pairs of versions: three binomial errors of .95 are .046."""
    a, d = truth(base)
    covered = []
    for seed in range(200):
        old = version(base, *drawn(a, d, 2 * seed))
        new = version(base, *drawn(*moved(a, d), 2 * seed + 1), tag="'")
        result = irtjax.link(old, new, method=method)
        gaps = np.array([result.A - A, result.B - B])
        covered.append(np.abs(gaps) < 1.96 * np.array([result.A_se, result.B_se]))
    share = np.mean(covered, axis=0)
    # A dispersion that is estimated from the items widens the robust intervals.
    assert (share > 0.904).all() and (
        share < (1 if method == "robust" else 0.996)
    ).all()

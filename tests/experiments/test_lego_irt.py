"""The LEGO-IRT comparisons: their baselines against scipy, and small runs."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logit

import irtjax
from experiments.lego_irt import abilities, accuracy, drawing, methods, run, tables
from irtjax._types import Status
from irtjax.ranking import pairwise

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)


def test_means_predict_what_they_say():
    values = np.array([[0.2, 0.4, 0.9], [0.6, 0.8, 0.5]])
    seen = np.array([[True, True, False], [True, True, False]])
    found = methods.mean_predictions(values, seen)
    assert np.all(found["GME"] == 0.5)
    np.testing.assert_allclose(found["MME"], [[0.3] * 3, [0.7] * 3])
    # Of the last item nothing is known: the mean of all.
    np.testing.assert_allclose(found["IME"], [[0.4, 0.6, 0.5]] * 2)
    np.testing.assert_allclose(found["additive"], [[0.2, 0.4, 0.3], [0.6, 0.8, 0.7]])
    # Additive without any noise: nothing is shrunken.
    np.testing.assert_allclose(found["additive, shrunken"], found["additive"])


def test_shrinking_helps_where_there_is_noise():
    effects = 0.1 * RNG.normal(size=(30, 1)) + 0.1 * RNG.normal(size=60)
    truth = 0.5 + effects
    values = truth + 0.15 * RNG.normal(size=truth.shape)
    found = methods.mean_predictions(values, RNG.random(truth.shape) < 0.15)
    error = {k: np.mean((v - truth) ** 2) for k, v in found.items()}
    assert error["additive, shrunken"] < error["additive"] < error["GME"]


def test_additive_logits_have_half_a_response_more():
    values = np.array([[1, 0, 1], [0, 0, 1]])
    seen = np.array([[True, True, True], [True, True, False]])
    chance = methods.mean_chances(values, seen)["additive"]
    expected = logit(2.5 / 4) + logit(1.5 / 3) - logit(2.5 / 6)
    assert logit(chance[0, 0]) == pytest.approx(expected)
    assert logit(chance[1, 2]) == pytest.approx(
        logit(0.5 / 3) + logit(1.5 / 2) - logit(2.5 / 6)
    )


def test_area_is_mann_whitney():
    right = RNG.random(200) < 0.4
    chance = np.round(RNG.random(200) + 0.2 * right, 1)  # With ties.
    test = stats.mannwhitneyu(chance[right], chance[~right])
    area = methods.area_under_curve(right.astype(int), chance)
    assert area == pytest.approx(test.statistic / (right.sum() * (~right).sum()))
    assert methods.log_loss(np.array([1, 0]), np.array([0.8, 0.5])) == pytest.approx(
        -np.log([0.8, 0.5]).mean()
    )


@pytest.mark.parametrize("paired", [False, True])
def test_t_tests_are_scipys(paired):
    values = RNG.normal(size=(4, 30)) + RNG.normal(size=30) + np.arange(4)[:, None] / 4
    seen = RNG.random(values.shape) < 0.8
    mean, found = methods.t_tests(values, seen, paired=paired)
    for i, j in ((0, 1), (0, 3), (2, 1)):
        if paired:
            both = seen[i] & seen[j]
            own = values[i, both], values[j, both]
            expected = stats.ttest_rel(*own).pvalue
        else:
            own = values[i, seen[i]], values[j, seen[j]]
            expected = stats.ttest_ind(*own, equal_var=False).pvalue
        assert mean[i, j] == pytest.approx(own[0].mean() - own[1].mean())
        assert found[i, j] == pytest.approx(expected, rel=1e-9)
        assert found[j, i] == pytest.approx(expected, rel=1e-9)
    # One common item, or one item at all, tells nothing.
    few = np.eye(4, 30, dtype=bool) | (np.arange(30) == 9)
    few[0] = np.arange(30) == 9
    assert methods.t_tests(values, few, paired=paired)[1][0, 1] == 1


def test_pairs_are_counted_model_by_model_as_in_algorithm_1():
    p_value = np.ones((3, 3))
    for (i, j), p in {(0, 1): 0.01, (0, 2): 0.04, (1, 2): 0.5}.items():
        p_value[i, j] = p_value[j, i] = p
    # Of two p-values each: both of the first model, one of the second (0.01 * 2) and
    # none of the third (0.04 * 2).
    assert methods.told_apart_by_model(p_value) == 3 / 6


def test_chances_of_means_are_shares_with_half_a_response_of_each_kind():
    values, seen = np.array([[1, 0], [1, 1], [0, 1]]), np.ones((3, 2), bool)
    seen[2, 1] = False
    found = methods.mean_chances(values, seen)
    assert found["GME"][0, 0] == pytest.approx(3.5 / 6)
    np.testing.assert_allclose(found["MME"][:, 0], [1.5 / 3, 2.5 / 3, 0.5 / 2])
    np.testing.assert_allclose(found["IME"][0], [2.5 / 4, 1.5 / 3])


def test_pairs_are_counted_after_adjustment():
    p_value = np.ones((3, 3))
    p_value[0, 1], p_value[0, 2], p_value[1, 2] = 0.01, 0.04, 0.5
    assert methods.told_apart(p_value, adjusted=False).tolist() == [True, True, False]
    # 0.04 * 3 / 2 is more than 0.05.
    apart = methods.told_apart(p_value, adjusted=True)
    assert apart.tolist() == [True, False, False]
    gap = np.subtract.outer(*[np.array([1.0, 0.0, 2.0])] * 2)
    assert methods.share_reversed(apart, gap, np.array([0.0, 1.0, 2.0])) == 1
    everyone = np.ones(3, bool)
    assert methods.share_reversed(everyone, gap, np.array([0, 1, 2])) == 1 / 3


def brute_chain(above):
    """Size of the largest set in which every pair is told and none goes round."""
    count = len(above)
    for size in range(count, 0, -1):
        for part in itertools.combinations(range(count), size):
            # In a ranking 0, 1, 2 and so on are above; in a circle they are not.
            higher = above[np.ix_(part, part)].sum(axis=1)
            if sorted(higher) == list(range(size)):
                return size
    return 0


@pytest.mark.parametrize("turned", [0.0, 0.15, 0.5])
def test_longest_chains_are_those_of_brute_force(turned):
    rng = np.random.default_rng(int(10 * turned))
    for _ in range(20):
        pairs = np.triu(rng.random((7, 7)) < rng.uniform(0.2, 1), 1)
        turn = rng.random((7, 7)) < turned
        order = rng.permutation(7)
        above = ((pairs & ~turn) | (pairs & turn).T)[np.ix_(order, order)]
        chain = methods.longest_chain(above)
        assert len(chain) == brute_chain(above)
        assert all(above[pair] for pair in itertools.combinations(chain, 2))


def test_a_chain_needs_every_pair():
    # A circle of three, and steps whose ends are not told apart.
    circle, steps = np.eye(3, k=1, dtype=bool), np.eye(4, k=1, dtype=bool)
    circle[2, 0] = True
    assert len(methods.longest_chain(circle)) == len(methods.longest_chain(steps)) == 2
    assert methods.longest_chain(np.zeros((2, 2), bool)) in ([0], [1])


def test_with_one_covariance_each_next_is_as_good_as_every_pair():
    root, theta = RNG.normal(size=(40, 40)), 20 * RNG.normal(size=40)
    found = pairwise(theta, np.ones(40), covariance=root @ root.T)
    above = methods.above(found.p_value, found.difference)
    steps = above.astype(int)
    assert not np.any((steps @ steps > 0) & ~above)
    # Lowest first, the longest path by dynamic programming.
    length = np.ones(40, int)
    for k in np.argsort(theta):
        length[k] += max(length[above[:, k]], default=0)
    assert 3 < len(methods.longest_chain(above)) == length.max() < 40


def test_items_are_fixed_without_either_model():
    theta, error = np.linspace(-2, 3, 11), np.linspace(0.3, 0.5, 11)
    data, status = object(), Status.CONVERGED

    def without(out):
        # Only models that items were not calibrated from have scores to speak of; each
        # calibration has a unit of its own.
        unit = 1 + out.mean()

        def scored(given):
            assert given is data and 0 < out.sum() < len(out)
            return SimpleNamespace(
                general=np.where(out, unit * theta, np.nan), general_error=unit * error
            )

        usable = lambda what: True
        return SimpleNamespace(status=status, usable=usable, scored=scored)

    whole = SimpleNamespace(
        state=SimpleNamespace(ability=theta[:, None]),
        problem=SimpleNamespace(data=data),
        without=without,
    )
    difference, p_value = methods.fixed_item_tests(whole, 4, 0)
    gap = theta[:, None] - theta
    expected = pairwise(theta, error).p_value
    np.testing.assert_allclose(p_value, expected, rtol=1e-9)
    assert np.array_equal(np.sign(difference), np.sign(gap))
    status = Status.STALLED
    assert methods.fixed_item_tests(whole, 4, 0) is None


def test_newcomers_are_ranked_among_all():
    new, old = np.array([[0.5, 3.0], [2.0, 1.0]]), np.array([[1.0], [0.0]])
    assert abilities.ranks_among(new, old).tolist() == [[3, 1], [1, 2]]


def test_training_cells_grow_and_never_meet_the_held_out():
    table = tables.simulated_groups(20, 50, 2, scores=False)
    cells = list(accuracy.splits(table, (0.3, 1.0), 2, 0, 0.1))
    assert [(trial, share) for trial, share, _, _ in cells] == [
        (0, 0.3), (0, 1.0), (1, 0.3), (1, 1.0)
    ]  # fmt: skip
    (_, _, few, held), (_, _, most, again) = cells[:2]
    assert np.array_equal(held, again) and not np.any(held & most)
    assert np.all(most[few]) and np.all(held | most)
    # 2,000 cells: five binomial standard errors.
    assert held.mean() == pytest.approx(0.1, abs=5 * 0.0067)
    assert few.sum() / most.sum() == pytest.approx(0.3, abs=5 * 0.011)


def test_sets_of_items_have_their_size():
    table = tables.simulated_groups(4, 10, 2, scores=True)
    masks = abilities.subsets(table, 7, 5, 0)
    assert masks.shape == (5, 20) and np.all(masks.sum(axis=1) == 7)
    assert len(abilities.chosen_models(table)) == 5


def test_ends_are_left_metric_by_metric():
    values = np.array([[0.0, 0.4, 1e-3], [0.2, 1.0, 0.0]])
    table = irtjax.ResponseTable.from_arrays(values, benchmark=["x", "x", "y"])
    moved = tables.off_ends(table).values
    np.testing.assert_allclose(moved, [[0.1, 0.4, 1e-3], [0.2, 0.9, 5e-4]])


def test_summaries_and_figures(tmp_path):
    rows = [
        {"trial": t, "share": share, "model": model, "value": share + t}
        for t in range(3)
        for share in (0.5, 1.0)
        for model in ("a", "$b")
    ]
    table = run.summary(rows)
    assert [row["mean"] for row in table] == [1.5, 1.5, 2.0, 2.0]
    assert table[0]["sd"] == 1 and table[0]["se"] == pytest.approx(3**-0.5)
    drawing.draw("prediction", table, rows, tmp_path / "a.png")
    stable = [row | {"subject": "s"} for row in rows]
    drawing.draw("stability", run.summary(stable), stable, tmp_path / "b.png")
    assert all((tmp_path / f"{k}.png").stat().st_size > 5000 for k in "ab")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(run.small_plan(0, None)))
def test_small_comparisons(tmp_path, name):
    found = run.main(["--small", "--only", name, "--out", str(tmp_path)])[name]
    assert all(np.isfinite(row["value"]) for row in found)
    assert (tmp_path / f"{name}.csv").read_text().count("\n") > 1
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    value = {row.get("model"): row["value"] for row in found}
    if name == "prediction":
        # The truth is the model's: it has less than half the best mean's error.
        assert value["LEGO-CM"] < 0.5 * value["IME"] < value["GME"]
    if name == "distinguish":
        chains = {
            row["model"]: row["value"]
            for row in found
            if row["measure"] == "distinguishability"
        }
        # A model alone is a chain; of 12 that differ some are told apart.
        assert all(1 / 12 <= chain <= 1 for chain in chains.values())
        assert chains["LEGO-CM"] >= 2 / 12 and "paired t-test" in chains
    if name == "newcomers":
        # Both methods and, on the same items, the means; each with its references.
        pairs = {(row["model"], row["reference"]) for row in found}
        assert len(pairs) == 7 and ("LEGO-CM", "scored") in pairs
    if name == "structure":
        assert len(list((tmp_path / "structure").glob("*.png"))) == 6

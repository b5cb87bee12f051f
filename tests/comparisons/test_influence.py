"""Comparisons whose removal changes the first place, against every set of them."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

import irtjax


def battles(seed: int, votes: int = 24, subjects: int = 4) -> irtjax.ComparisonTable:
    """Single votes with ties on some prompts."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(0.5, -0.5, subjects)
    first = rng.integers(subjects, size=votes)
    second = (first + rng.integers(1, subjects, size=votes)) % subjects
    gap = ability[first] - ability[second] + rng.logistic(size=votes)
    kind = np.where(gap > 0.2, 0, np.where(gap < -0.2, 1, 2))
    labels = {"prompt": (np.arange(votes) // 3).astype(str)}
    labels |= {"topic": (np.arange(votes) % 3).astype(str)}
    labels |= {"judge": (np.arange(votes) % 4).astype(str)}
    names = [f"m{k}" for k in range(subjects)]
    return irtjax.ComparisonTable.of(
        names, first, second, np.eye(4)[kind], labels=labels
    )


def leader(table: irtjax.ComparisonTable, rows: np.ndarray) -> int:
    """First place of some rows."""
    return int(irtjax.fit_comparisons(table.select(rows)).abilities.estimates.argmax())


def fewest(table, groups: list[np.ndarray], most: int) -> int:
    """Smallest number of groups whose removal changes the first place."""
    every = np.arange(len(table.first))
    first = leader(table, every)
    for size in range(1, most + 1):
        for some in itertools.combinations(groups, size):
            if leader(table, np.setdiff1d(every, np.concatenate(some))) != first:
                return size
    return most + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cluster", [None, "prompt"])
def test_no_smaller_set_of_any_kind_changes_the_first_place(seed, cluster):
    table = battles(seed)
    groups = list(np.arange(24)[:, None])
    if cluster:
        groups = [np.flatnonzero(table.labels["prompt"] == str(k)) for k in range(8)]
    found = irtjax.influence(table, cluster=cluster)
    assert 1 <= found.count <= 4
    assert fewest(table, groups, found.count - 1) == found.count


@pytest.mark.parametrize("cluster", [None, "prompt"])
def test_the_first_place_changes_without_what_is_named(cluster):
    table = battles(1, votes=90)
    found = irtjax.influence(table, cluster=cluster, ties="davidson")
    assert found.removed.num_rows == found.count > 0
    left = table.select(np.flatnonzero(~gone(table, found, cluster)))
    whole, left = (
        irtjax.fit_comparisons(x, ties="davidson").abilities for x in (table, left)
    )
    assert found.first == whole.names[whole.estimates.argmax()]
    assert left.names[left.estimates.argmax()] == found.rival != found.first
    assert f"{found.rival} is first instead of {found.first}" in str(found)


def gone(table, found, cluster):
    """Which rows are left out."""
    if cluster:
        return np.isin(table.labels[cluster], found.removed[cluster].to_pylist())
    rows = found.removed["comparison"].to_pylist()
    return np.isin(np.arange(len(table.first)), rows)


def test_categories_are_those_of_another_optimiser():
    """Abilities, means over topics whose effects are N(0, tau^2), swap by one vote."""
    table = battles(3, votes=200)
    fit = irtjax.fit_comparisons(table, category="topic")
    tau = max(fit.effects["category_sd"][0], 1e-3)
    found = irtjax.influence(table, category="topic")
    topic = table.labels["topic"].astype(int)
    points = table.outcomes[:, 0] + table.outcomes[:, 2] / 2

    def leader(rows):
        i, j, c, y = (x[rows] for x in (table.first, table.second, topic, points))

        def negative(z):
            theta, delta = z[:4], z[4:].reshape(4, 3)
            d = theta[i] - theta[j] + delta[i, c] - delta[j, c]
            value = np.sum(y * np.logaddexp(0, -d) + (1 - y) * np.logaddexp(0, d))
            return value + np.sum(delta**2) / (2 * tau**2) + np.mean(theta) ** 2

        z = minimize(negative, np.zeros(16), method="BFGS", options={"gtol": 1e-6}).x
        return str(table.subjects[np.argmax(z[:4] + z[4:].reshape(4, 3).mean(axis=1))])

    keep = ~gone(table, found, None)
    assert leader(keep | True) == found.first and leader(keep) == found.rival
    # One vote more, and the first is the first again.
    last = found.removed["comparison"].to_pylist()[-1]
    assert leader(keep | (np.arange(200) == last)) == found.first


@pytest.mark.parametrize(
    "options", [{"judge": "judge"}, {"ties": "davidson", "tie_rates": True}]
)
def test_judges_and_rates_of_ties_have_influence(options):
    found = irtjax.influence(battles(1, votes=90), **options)
    assert 0 < found.count < 20 and found.rival != found.first


def test_counts_by_pair_are_single_votes():
    # 11 to 9: without 2 of the 11 there is a tie, without 3 the other is first.
    table = irtjax.ComparisonTable.of("ab", [0], [1], [[11, 9, 0, 0]])
    found = irtjax.influence(table)
    assert (found.count, found.total, found.rival) == (3, 20, "b")
    assert found.removed["outcome"].to_pylist() == 3 * ["first"]
    with pytest.raises(ValueError, match="no cluster 'judge'"):
        irtjax.influence(table, cluster="judge")


def test_few_votes_in_many_decide():
    """Of 20,000 no single vote changes the first place, three do at most."""
    rows = [[3001, 3000, 0, 0], [5000, 2000, 0, 0], [5000, 2000, 0, 0]]
    rows[0][0] += 1
    table = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows)
    found = irtjax.influence(table)
    # Each of the six kinds of vote alone.
    for kind in np.eye(6).reshape(6, 3, 2):
        less = table.outcomes - np.pad(kind, ((0, 0), (0, 2)))
        one = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], less)
        assert irtjax.fit_comparisons(one).abilities.estimates.argmax() == 0
    assert found.count <= 3
    assert (found.first, found.rival, found.total) == ("a", "b", 20_002)

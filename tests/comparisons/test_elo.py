"""Elo's ratings against another program's and against Bradley and Terry's model."""

import numpy as np
import pytest

import irtjax

#: MT-bench's votes in the order of the file by an independent program, k = 4.
MT_BENCH = [873.81, 1102.55, 1077.03, 1204.37, 752.17, 990.08]


def test_ratings_of_mt_bench(shared_data):
    table = irtjax.read_comparisons(shared_data / "pairwise" / "mt_bench_human.csv")
    found = irtjax.elo(table, num_orders=0)
    np.testing.assert_allclose(found.rating, MT_BENCH, atol=0.006)
    # 200 orders: the error of a standard deviation of 40 is 2 points.
    found = irtjax.elo(table, k=32, num_orders=200)
    assert np.all((found.sd > 34) & (found.sd < 46))
    lines = str(found).splitlines()
    assert lines[2].split()[0] == "gpt-4" and len(lines) == 8


def test_a_small_k_with_many_passes_is_bradley_terry():
    rng = np.random.default_rng(0)
    first = rng.integers(4, size=80)
    second = (first + rng.integers(1, 4, size=80)) % 4
    outcomes = np.eye(4)[rng.integers(3, size=80)]
    table = irtjax.ComparisonTable.of("abcd", first, second, outcomes)
    found = irtjax.elo(table, k=0.05, passes=20_000, num_orders=0)
    abilities = irtjax.fit_comparisons(table).abilities.estimates
    np.testing.assert_allclose(
        (found.rating - 1000) * np.log(10) / 400, abilities, atol=2e-3
    )


def test_orders_have_the_mean_of_the_single_ones():
    table = irtjax.ComparisonTable.of(
        "ab", [0, 0], [1, 1], [[1, 0, 0, 0], [0, 1, 0, 0]]
    )
    found = irtjax.elo(table, k=40, num_orders=400)
    back = irtjax.elo(table.select(np.array([1, 0])), k=40, num_orders=0).rating
    middle = (found.rating + back) / 2
    half = abs(found.rating - back) / 2
    # Two orders, each with chance 1/2: the mean of 400 has an error of half / 20.
    assert np.all(abs(found.mean - middle) < 4 * half / 20)
    np.testing.assert_allclose(found.sd, half, rtol=0.05)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([[2, 0, 0, 0]], {}, "row 0 has 2 comparisons"),
        ([[1, 0, 0, 0]], {"k": 0}, "give k and scale"),
    ],
)
def test_what_has_no_order_is_refused(rows, options, said):
    table = irtjax.ComparisonTable.of("ab", [0], [1], rows)
    with pytest.raises(ValueError, match=said):
        irtjax.elo(table, **options)

r"""Elo's ratings (1978) of a stream of comparisons, and their dependence on its order.

After a comparison with the score y (1, 1/2 or 0) of the first,

    p = 1 / (1 + b^((r_j - r_i) / s)),
    r_i <- r_i + k (y - p),    r_j <- r_j - k (y - p).

The ratings depend on the order of the comparisons: over random orders of MT-bench's
votes each has a standard deviation of about 40 points at k = 32. As k falls to 0 with
many passes they tend to `scale / log(base)` times the abilities of Bradley and Terry's
model. Elo is for streams, `irtjax.fit_comparisons` for tables.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from irtjax._types import RandomKey
from irtjax.data.comparison_table import ComparisonTable
from irtjax.data.frames import HasTable
from irtjax.numerics.seeds import seed_of


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EloRatings(HasTable):
    """Ratings of subjects.

    Attributes:
        names: `[subjects]`.
        rating: `[subjects]` in the order of the table's rows.
        mean: `[subjects]` over random orders; NaN without any.
        sd: `[subjects]` their standard deviation over random orders.
    """

    title = "Elo's ratings"

    names: np.ndarray
    rating: np.ndarray
    mean: np.ndarray
    sd: np.ndarray

    @property
    def table(self) -> Any:
        """The ratings, the highest first: model, rating, mean, sd."""
        import pyarrow as pa

        columns: dict[str, Any] = {"model": list(map(str, self.names))}
        for name in ("rating", "mean", "sd"):
            columns[name] = pa.array(getattr(self, name), from_pandas=True)
        return pa.table(columns).take(np.argsort(-self.rating, kind="stable"))


@partial(jax.jit, static_argnames="passes")
def elo_stream(
    first: Int[Array, " rows"],
    second: Int[Array, " rows"],
    score: Float[Array, " rows"],
    start: Float[Array, " subjects"],
    k: Float[Array, ""] | float,
    scale: Float[Array, ""] | float,
    passes: int = 1,
) -> Float[Array, " subjects"]:
    """Ratings after the stream, with `scale` that of the natural base.

    >>> side = jnp.array([0]), jnp.array([1])
    >>> elo_stream(*side, jnp.ones(1), jnp.zeros(2), 4.0, 174.0).tolist()
    [2.0, -2.0]
    """

    def step(rating, row):
        i, j, y = row
        move = k * (y - jax.nn.sigmoid((rating[i] - rating[j]) / scale))
        return rating.at[i].add(move).at[j].add(-move), None

    def once(_, rating):
        return lax.scan(step, rating, (first, second, score))[0]

    return lax.fori_loop(0, passes, once, start)


def elo(
    table: ComparisonTable,
    *,
    k: float = 4.0,
    start: float = 1000.0,
    base: float = 10.0,
    scale: float = 400.0,
    num_orders: int = 100,
    passes: int = 1,
    key: RandomKey | None = None,
) -> EloRatings:
    """Elo's ratings in the order of the rows, and over random orders.

    Args:
        table: Single comparisons, in the order of their time. Ties and verdicts that
            both are bad score 1/2.
        k: Points that a surprising win brings at most.
        start: Rating of a new subject.
        base: Odds of who has `scale` more points than the other.
        scale: Points.
        num_orders: Number of random orders of all rows.
        passes: Times that the stream is repeated.
        key: A whole number or a JAX key, for the orders.

    Raises:
        ValueError: If a row is not one comparison, or `k` or `scale` is not above 0.

    >>> win, tie = [1, 0, 0, 0], [0, 0, 1, 0]
    >>> table = ComparisonTable.of("abc", [0, 1, 0], [1, 2, 2], [win, tie, win])
    >>> elo(table, k=32).rating.round(1).tolist()
    [1031.3, 984.7, 984.0]
    """
    if not (k > 0 and scale > 0 and base > 1):
        raise ValueError(
            f"k={k:g}, scale={scale:g}, base={base:g}: give k and scale above 0 and a"
            " base above 1"
        )
    total = table.outcomes.sum(axis=1)
    wrong = np.flatnonzero(abs(total - 1) > 1e-6)
    if wrong.size:
        raise ValueError(
            f"row {wrong[0]} has {total[wrong[0]]:g} comparisons: Elo's ratings depend"
            " on their order, so give a row for each, or use fit_comparisons"
        )
    score = table.outcomes[:, 0] + table.outcomes[:, 2:].sum(axis=1) / 2
    orders = np.random.default_rng(seed_of(key)).permuted(
        np.tile(np.arange(len(score), dtype=np.int32), (num_orders, 1)), axis=1
    )
    with jax.enable_x64(True):
        rows = [jnp.asarray(x) for x in (table.first, table.second, score)]
        begin = jnp.full(table.num_subjects, float(start))

        def after(order):
            parts = (x[order] for x in rows)
            return elo_stream(*parts, begin, k, scale / np.log(base), passes)

        rating = np.asarray(after(np.arange(len(score))))
        every = np.full((1, len(rating)), np.nan)
        if num_orders:
            every = np.asarray(jax.jit(jax.vmap(after))(orders))
    sd = np.full(len(rating), np.nan)
    if num_orders > 1:
        sd = every.std(axis=0, ddof=1)
    return EloRatings(table.subjects, rating, every.mean(axis=0), sd)

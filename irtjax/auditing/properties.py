"""What items and benchmarks are like: the properties of PSN-IRT, and their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from irtjax.numerics.order import average_ranks
from irtjax.numerics.programs import stored_jit

#: The properties in the order of the paper's Table 5, and whether more is better.
PROPERTIES = {
    "difficulty": True,
    "discrimination": True,
    "guessing": False,
    "feasibility": True,
    "leh": True,
    "information": True,
}
#: Chance of a right response of the strongest subject from which an item is saturated.
SATURATED = 0.95
#: Standard deviation of the normal curve that is nearest to the logistic one.
LOGISTIC = 1.702
#: Slope of an item that correlates by 0.2 with ability, below which one counts as flat.
FLAT = 0.35


def slopes_and_intercepts(family: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two of each item; an intercept that is a vector counts with its mean."""
    names = "discrimination", family.intercept_name
    slope, intercept = (np.asarray(getattr(items, x), float) for x in names)
    return slope, intercept.reshape(slope.size, -1).mean(1)


def asymptotes_of(items: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper asymptotes of each item: 0 and 1 where a record has none."""
    none = np.zeros(len(items[0]))
    lower = getattr(items, "lower_asymptote", none)
    upper = getattr(items, "upper_asymptote", none + 1)
    return np.asarray(lower, float), np.asarray(upper, float)


def item_properties(family: Any, items: Any, strongest: float) -> dict[str, np.ndarray]:
    """The six properties of each item (PSN-IRT, section 5.1), and its chance there.

    With P the chance of a right response at the highest ability: the local efficiency
    headroom (LEH) is dP / dtheta, which is a (P - c) (u - P) / (u - c) of a 4PL, and
    the information is (dP / dtheta)^2 / (P (1 - P)). The difficulty is -d / a, NaN
    where a is within 1e-3 of 0; guessing is c, feasibility u, "chance" P.

    >>> from irtjax.models.families.logistic import Binary, LogisticItems
    >>> item = LogisticItems(*(jnp.array([x]) for x in (2.0, 0.0, 0.0, 1.0)))
    >>> one = item_properties(Binary(), item, 0.0)
    >>> float(one["leh"][0]), float(one["information"][0])
    (0.5, 1.0)
    """
    a, d = slopes_and_intercepts(family, items)
    c, u = asymptotes_of(items)
    defined = np.abs(a) >= 1e-3
    records = jax.tree.map(jnp.asarray, items)
    at = jnp.asarray(strongest, records.discrimination.dtype)
    properties = (np.asarray(x, float) for x in _at_ability(family, records, at))
    return {
        "difficulty": np.where(defined, -d / np.where(defined, a, 1), np.nan),
        "discrimination": a,
        "guessing": c,
        "feasibility": u,
        **dict(zip(("chance", "leh", "information"), properties, strict=True)),
    }


@stored_jit
def _at_ability(family: Any, items: Any, theta: jax.Array):
    """P, dP / dtheta and information of each item at one ability."""

    def of_item(item):
        log_probs = lambda theta: family.category_log_probs(item, theta)
        derivatives = jax.jvp(log_probs, (theta,), (jnp.ones_like(theta),))
        (wrong, right), slopes = jnp.exp(derivatives[0]), derivatives[1]
        # dP = P Q d log(P / Q): no difference of chances that are nearly 1.
        odds = slopes[1] - slopes[0]
        leh = right * wrong * odds
        return right, leh, leh * odds

    return jax.vmap(of_item)(items)


def benchmark_difficulty(
    share: np.ndarray,
    answers: np.ndarray,
    slope: float,
    ability: tuple[float, float],
    probit: bool = False,
) -> np.ndarray:
    """Difficulty of the one item that would be right as often as a benchmark's items.

    A mean of -d / a over items has no finite variance where slopes may be 0: a few flat
    or negative items dominate it. The share right is bounded, and an item without
    discrimination only adds its own share to it. With abilities of mean m and standard
    deviation s, an item of slope a and difficulty b is right with probability
    Phi((m - b) / sqrt((k / a)^2 + s^2)), k = 1.702 for logistic curves (Lord and Novick
    1968, 16.9; the logistic one within 0.01), so

        b = m - sqrt((k / a)^2 + s^2) Phi^-1(share).

    The slope is the same for all benchmarks, and b falls as the share rises: the order
    by difficulty is that by share right. The slope is at least `FLAT`; a share of so
    many responses (`answers`) is at least half a response from 0 and from 1. `ability`
    is (m, s); `probit` is true of normal curves.

    >>> marks = benchmark_difficulty(np.array([0.5, 0.8, 1.0]), 100, 2.0, (0.0, 1.0))
    >>> marks.round(2).tolist()
    [0.0, -1.1, -3.38]
    """
    half = 0.5 / np.maximum(answers, 1)
    width = (1.0 if probit else LOGISTIC) / max(float(slope), FLAT)
    mean, sd = ability
    return mean - np.hypot(width, sd) * ndtri(np.clip(share, half, 1 - half))


def group_means(values: np.ndarray, codes: np.ndarray, num_groups: int) -> np.ndarray:
    """Means `[groups]` over the items with a number; NaN for a group without one."""
    finite = np.isfinite(values)
    count = np.bincount(codes[finite], minlength=num_groups)
    total = np.bincount(codes[finite], values[finite], num_groups)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def benchmark_ranks(
    properties: Mapping[str, np.ndarray],
    codes: np.ndarray,
    num_groups: int,
    difficulty: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Means of the properties by benchmark, `[benchmarks]` by name, and their ranks.

    Ranks are under "rank_" and the name of the property, their sum under "rank_total".
    Rank 1 is the hardest, the sharpest, the one with the least guessing, the greatest
    feasibility, headroom and information (PSN-IRT, Table 5); ties share the mean of
    their ranks. A given `difficulty` replaces the mean of the items', which the paper
    takes and flat items spoil where slopes are estimated without a tight prior (see
    `benchmark_difficulty`).

    >>> two = {name: np.array([0.0, 1.0]) for name in PROPERTIES}
    >>> benchmark_ranks(two, np.array([0, 1]), 2)["rank_total"].tolist()
    [11.0, 7.0]
    """
    ranks: dict[str, np.ndarray] = {}
    total = np.zeros(num_groups)
    for name, descending in PROPERTIES.items():
        mean = group_means(properties[name], codes, num_groups)
        if name == "difficulty" and difficulty is not None:
            mean = difficulty
        worst = -np.inf if descending else np.inf
        ordered = np.where(np.isfinite(mean), mean, worst)
        rank = average_ranks(-ordered if descending else ordered)
        ranks[name], ranks[f"rank_{name}"] = mean, rank
        total += rank
    return {**ranks, "rank_total": total}

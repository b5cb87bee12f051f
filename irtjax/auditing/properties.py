"""What items and benchmarks are like: the properties of PSN-IRT, and their ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

#: The properties in the order of the paper's Table 5, and whether more is better.
PROPERTIES = {
    "difficulty": True,
    "discrimination": True,
    "guessing": False,
    "feasibility": True,
    "leh": True,
    "information": True,
}
#: Chance of a right answer of the strongest subject from which an item is saturated.
SATURATED = 0.95


def item_properties(
    discrimination: np.ndarray,
    intercept: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    strongest: float,
) -> dict[str, np.ndarray]:
    """The six properties of each item (PSN-IRT, section 5.1), and its chance there.

    With P = c + (u - c) sigmoid(a theta + d) at the highest ability: the local
    efficiency headroom (LEH) is dP / dtheta = a (P - c) (u - P) / (u - c), and the
    information is (dP / dtheta)^2 / (P (1 - P)).

    Args:
        discrimination: `[items]` a.
        intercept: `[items]` d; the difficulty is -d / a.
        lower: `[items]` c, guessing.
        upper: `[items]` u, feasibility.
        strongest: Highest ability.

    Returns:
        `[items]` by the names of `PROPERTIES`, and "chance", P; a difficulty is NaN
        where the discrimination is within 1e-3 of 0.

    >>> one = item_properties(*(np.array([x]) for x in (2.0, 0.0, 0.0, 1.0)), 0.0)
    >>> float(one["leh"][0]), float(one["information"][0])
    (0.5, 1.0)
    """
    from scipy.special import expit

    a, d = np.asarray(discrimination, float), np.asarray(intercept, float)
    c, u = np.asarray(lower, float), np.asarray(upper, float)
    curve = expit(a * strongest + d)
    chance = c + (u - c) * curve
    slope = a * (u - c) * curve * expit(-a * strongest - d)
    defined = np.abs(a) >= 1e-3
    spread = np.maximum(chance * (1 - chance), 1e-300)
    return {
        "difficulty": np.where(defined, -d / np.where(defined, a, 1), np.nan),
        "discrimination": a,
        "guessing": c,
        "feasibility": u,
        "leh": slope,
        "information": slope**2 / spread,
        "chance": chance,
    }


def benchmark_ranks(
    properties: Mapping[str, np.ndarray], codes: np.ndarray, num_groups: int
) -> dict[str, np.ndarray]:
    """Means of the properties by benchmark, their ranks, and the sums of these.

    Rank 1 is the hardest, the sharpest, the one with the least guessing, the greatest
    feasibility, headroom and information (PSN-IRT, Table 5); ties share the mean of
    their ranks.

    Args:
        properties: `[items]` by name, NaN where an item has none.
        codes: `[items]` number of each item's benchmark.
        num_groups: How many there are.

    Returns:
        `[benchmarks]` by name: the means under the names of the properties, the ranks
        under "rank_" and these, their sum under "rank_total".

    >>> two = {name: np.array([0.0, 1.0]) for name in PROPERTIES}
    >>> benchmark_ranks(two, np.array([0, 1]), 2)["rank_total"].tolist()
    [11.0, 7.0]
    """
    from scipy.stats import rankdata

    found: dict[str, np.ndarray] = {}
    total = np.zeros(num_groups)
    for name, more in PROPERTIES.items():
        values = properties[name]
        known = np.isfinite(values)
        count = np.bincount(codes[known], minlength=num_groups)
        sums = np.bincount(codes[known], values[known], num_groups)
        mean = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
        worst = -np.inf if more else np.inf
        ordered = np.where(np.isfinite(mean), mean, worst)
        rank = rankdata(-ordered if more else ordered)
        found[name], found[f"rank_{name}"] = mean, rank
        total += rank
    return {**found, "rank_total": total}

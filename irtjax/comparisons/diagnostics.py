r"""Checks of a fit of comparisons: pairs, cycles, halves of the clusters, and drift.

Of pair p with n comparisons, Y points (a tie is half) and the expected points E,

    z = (Y - E) / sqrt(v - g'H^+ g),

with v the variance of Y under the fit, g = dE/dparameters and H the information. Where
ties are halves, Y varies less than n wins: v = f n E/n (1 - E/n), with f = 1 - t and t
the number of ties over the sum of 4 n E/n (1 - E/n). By cluster, the variance of Y - E
is the sum of the squares of e_c - g'H^+ s_c, with e_c its part and s_c the scores of
cluster c.

With categories, judges or rates of ties H has the precisions D of the effects' priors,
of which the variance of a residual v - g'H^+ g takes account as well, as in a linear
mixed model: with y = Zu + e, var(y - Zu^) = R - Z H^-1 Z'. By cluster the effects add
g'H^+ D H^+ g.

The deviance compares the fit with one chance for each pair (Agresti 2013, section 11.6:
pairs - models + 1 degrees of freedom). Pairs count whose expected wins and losses are
both 5 or more (Cochran 1954). Shrunk effects have no number of degrees of freedom, so
that fits with them have no deviance. A triple of models is cyclic where each has most
points against another one (Kendall and Babington Smith 1940).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.special import chdtrc, ndtr

from irtjax.comparisons.checks import seconds
from irtjax.comparisons.errors import number_of
from irtjax.comparisons.families import expectations
from irtjax.comparisons.fit import FEW_CLUSTERS, fit_comparisons
from irtjax.comparisons.mixed import (
    MixedFit,
    cluster_scores,
    counts_of,
    effect_precision,
    outcome_slopes,
)
from irtjax.comparisons.mixed_tables import MixedRows
from irtjax.comparisons.problem import PairProblem, pair_problem
from irtjax.comparisons.settings import PairSettings
from irtjax.data.comparison_table import ComparisonTable
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted
from irtjax.ranking.discoveries import benjamini_hochberg

#: False discovery rate of pairs and models.
RATE = 0.05
#: Expected wins and losses from which a pair is tested.
FEWEST = 5.0
#: Simulations of the number of cyclic triples.
SIMULATIONS = 200
#: Points of a win, a loss, a tie, and "both bad".
POINTS = np.array([1.0, 0.0, 0.5, 0.5])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PairDiagnostics:
    """How well a fit describes the comparisons.

    Attributes:
        table: A row for each pair, least likely first: `model_a`, `model_b`,
            `comparisons`, `share` and `expected_share` of points of the first, `z`
            and `q_value` (NaN where wins or losses are too few for a test).
        deviance, degrees: Of the pairs that are tested, with degrees of freedom; NaN
            and 0 with random effects.
        p_value: Of the deviance; NaN with clusters, whose comparisons are alike.
        cyclic, cyclic_expected, triples: Numbers of cyclic triples, observed and
            expected under the fit, and of all triples that were compared.
        cyclic_p_value: Chance of as many cycles under the fit.
        halves: Abilities on two random halves of the clusters, or None: `subject`,
            `ability_1`, `ability_2`, `p_value`, `q_value` (that both are the same).
            None also with categories or judges, whose means define the abilities, as
            those of two parts may differ.
        correlation: Of the abilities on both halves; NaN without halves.
        drift: The same of windows of time with about the same number of comparisons.
    """

    table: Any
    deviance: float
    degrees: int
    p_value: float
    cyclic: float
    cyclic_expected: float
    triples: int
    cyclic_p_value: float
    halves: Any = None
    correlation: float = float("nan")
    drift: Any = None

    to_frame, to_json = HasTable.to_frame, HasTable.to_json

    def significant(self) -> list[str]:
        """What is unlikely under the fit, in a few words each; may be empty."""
        texts = []
        q = np.asarray(self.table["q_value"])
        number = int(np.sum(q <= RATE))
        if number:
            row = self.table.slice(0, 1).to_pylist()[0]
            texts.append(
                f"{number:,} of {counted(int(np.isfinite(q).sum()), 'pair')} do not fit"
                f" ({row['model_a']} against {row['model_b']}: {row['share']:.2f} of"
                f" {row['comparisons']:,.0f}, expected {row['expected_share']:.2f})"
            )
        if self.cyclic_p_value <= RATE:
            texts.append(
                f"{self.cyclic:,.0f} of {self.triples:,} triples are cyclic, expected"
                f" {self.cyclic_expected:,.0f}"
            )
        for table, reason in ((self.halves, "between halves"), (self.drift, "in time")):
            rows = [] if table is None else table.to_pylist()
            names = [row["subject"] for row in rows if row["q_value"] <= RATE]
            if names:
                changed = counted(len(names), "ability", "abilities")
                texts.append(f"{changed} differ {reason} ({names[0]} most)")
        return texts

    def lines(self) -> list[str]:
        """Returns all results, one sentence each."""
        chance = "" if np.isnan(self.p_value) else f", p = {self.p_value:.2g}"
        pairs = counted(int(np.isfinite(self.table["q_value"]).sum()), "pair")
        texts = [f"{pairs} have comparisons enough for a test."]
        if np.isfinite(self.deviance):
            texts = [
                f"Deviance {self.deviance:,.1f} of {pairs} with"
                f" {counted(self.degrees, 'degree')} of freedom{chance}."
            ]
        if self.triples:
            texts.append(
                f"{self.cyclic:,.0f} of {self.triples:,} triples are cyclic, expected"
                f" {self.cyclic_expected:,.1f}, p = {self.cyclic_p_value:.2g}."
            )
        if self.halves is not None:
            texts.append(f"Abilities on halves correlate by {self.correlation:.3f}.")
        return texts + [f"{text}." for text in self.significant()]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__


def diagnose(
    table: ComparisonTable,
    *,
    cluster: str | None = None,
    time: str | None = None,
    windows: int = 4,
    **options: Any,
) -> PairDiagnostics:
    """Checks the fit of comparisons by pairs, cycles, clusters and time.

    Args:
        table: The comparisons.
        cluster: A label whose comparisons are alike, such as the prompt: variances
            count it, and abilities on halves of the clusters are compared.
        time: A label with seconds since 1970 or dates, whose windows are compared.
        windows: Number of windows.
        options: Model, ties, both_bad, covariates, order, category, judge and tie_rates
            of `fit_comparisons`.

    Raises:
        ValueError: If a name is unknown, the model is of rankings, or has a preset.

    >>> wins = [[60, 40, 0, 0], [85, 15, 0, 0], [30, 70, 0, 0]]
    >>> table = ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], wins)
    >>> print(diagnose(table))
    Deviance 31.0 of 3 pairs with 1 degree of freedom, p = 2.6e-08.
    0 of 1 triples are cyclic, expected 0.0, p = 1.
    3 of 3 pairs do not fit (a against c: 0.85 of 100, expected 0.70).
    """
    for name in filter(None, (cluster, time)):
        if name not in table.labels:
            names = ", ".join(table.labels) or "none"
            raise ValueError(f"no label {name!r} among those of the table: {names}")
    settings = PairSettings.of(options)
    settings.check_pairs()
    plain = pair_problem(table, settings)
    mixed = MixedRows.of(_oriented(plain), settings)
    codes = None if cluster is None else _codes(plain.table, cluster)
    pairs = _residuals(mixed, codes)
    cyclic = _cycles(pairs, table.num_subjects)
    halves, drift, correlation = None, None, float("nan")
    comparable = not (settings.category or settings.judge)
    if cluster is not None and comparable:
        codes = _codes(table, cluster)
        side = np.random.default_rng(0).permutation(int(codes.max()) + 1)[codes] % 2
        halves = _stability(table, side, cluster, options)
        if halves is not None:
            abilities = [np.asarray(halves[f"ability_{k}"]) for k in (1, 2)]
            correlation = float(np.corrcoef(abilities)[0, 1])
    if time is not None and comparable:
        drift = _stability(table, _windows(table, time, windows), cluster, options)
    deviance, degrees = _deviance(mixed, pairs)
    p_value = np.nan
    if degrees and cluster is None:
        p_value = float(chdtrc(degrees, deviance))
    return PairDiagnostics(
        _table(table, pairs),
        deviance,
        degrees,
        p_value,
        *cyclic,
        halves,
        correlation,
        drift,
    )


class _Pairs(NamedTuple):
    """Residuals of all pairs, `[pairs]` each."""

    first: np.ndarray
    second: np.ndarray
    size: np.ndarray
    points: np.ndarray
    expected: np.ndarray
    variance: np.ndarray
    deviance: np.ndarray
    z: np.ndarray
    q_value: np.ndarray


def _codes(table: ComparisonTable, name: str) -> np.ndarray:
    """Whole numbers of the clusters of all rows."""
    return table.labels.coded(name).sorted().code


def _oriented(problem: PairProblem) -> PairProblem:
    """The same comparisons, the smaller place of each pair first."""
    table, flip = problem.table, problem.table.first > problem.table.second
    swapped = dataclasses.replace(
        table,
        first=np.where(flip, table.second, table.first),
        second=np.where(flip, table.first, table.second),
    )
    outcomes = np.where(flip[:, None], problem.outcomes[:, [1, 0, 2]], problem.outcomes)
    features = np.where(flip[:, None], -1, 1) * problem.features
    return dataclasses.replace(
        problem, table=swapped, outcomes=outcomes, features=features
    )


def _deviance(rows: MixedRows, pairs: _Pairs) -> tuple[float, int]:
    """Deviance and degrees of freedom; NaN and 0 with random effects."""
    problem = rows.problem
    if problem.blocks:
        return float("nan"), 0
    tested = np.isfinite(pairs.q_value)
    free = 1 + problem.family.num_shapes + problem.bad
    parameters = problem.num_subjects - 1 + len(problem.names)
    degrees = max(free * int(tested.sum()) - parameters, 0)
    return float(pairs.deviance[tested].sum()), degrees


def _residuals(rows: MixedRows, codes: np.ndarray | None) -> _Pairs:
    """Observed and expected points by pair, with tests of their difference."""
    table, problem, fit = rows.plain.table, rows.problem, rows.fit()
    with jax.enable_x64(True):
        places = problem.coordinates(fit.vector)
        chance, share, slope = map(np.array, expectations(problem.kind, places))
        counts = counts_of(problem)
    games, count = counts.sum(axis=1), table.num_subjects
    key = table.first[rows.at].astype(np.int64) * count + table.second[rows.at]
    keys, pair = np.unique(key, return_inverse=True)
    pair, number = pair.reshape(-1), len(keys)
    total = lambda values: np.column_stack(
        [np.bincount(pair, x, number) for x in values.T]
    )
    seen, mean = total(counts), total(chance * games[:, None])
    size, points, expected = seen.sum(axis=1), seen @ POINTS, mean @ POINTS
    # Derivatives of the expected points of pairs in all parameters.
    onto = sum(
        csr_array(coo_array((games * slope[:, k], (pair, np.arange(len(pair))))))
        @ design
        for k, design in enumerate(problem.designs.values())
    ).toarray()  # pyright: ignore
    scale = 1.0
    if problem.family.ties == "half":
        ties = problem.outcomes[:, 2].sum()
        scale -= ties / (4 * np.sum(games * share * (1 - share)))
    even = chance[:, 2:].sum(axis=1) / 4
    own = scale * np.bincount(pair, games * (chance[:, 0] + even - share**2), number)
    along = onto @ fit.covariance
    if codes is None:
        variance = own - scale * np.sum(along * onto, axis=1)
        tested = variance > 1e-9 * size
    else:
        variance, clusters = _by_cluster(rows, fit, share, pair, codes, along)
        own, tested = np.maximum(own, variance), clusters >= FEW_CLUSTERS
    tested &= np.minimum(expected, size - expected) >= FEWEST
    z = (points - expected) / np.sqrt(np.where(tested, variance, np.nan))
    logs = np.log(np.where(seen > 0, seen, 1) / np.where(seen > 0, mean, 1))
    deviance = 2 * np.sum(seen * logs, axis=1) / scale
    q_value = benjamini_hochberg(2 * ndtr(-np.abs(z)))
    first, second = keys // count, keys % count
    return _Pairs(first, second, size, points, expected, own, deviance, z, q_value)


def _by_cluster(
    rows: MixedRows, fit: MixedFit, share, pair, codes, along
) -> tuple[np.ndarray, np.ndarray]:
    """Variances of residuals by clusters, and numbers of clusters, of all pairs.

    The sum over clusters of (e - g'H^+ s)^2, without the matrix clusters x pairs.
    """
    problem, place, number = rows.problem, rows.place, int(codes.max()) + 1
    with jax.enable_x64(True):
        slope = outcome_slopes(problem, fit.vector)
        counts = counts_of(problem._replace(outcomes=rows.outcomes))
    scores = cluster_scores(problem, slope, codes, place, rows.outcomes)
    rest = counts @ POINTS - counts.sum(axis=1) * share[place]
    own = csr_array(coo_array((rest, (codes, pair[place])), (number, len(along))))
    mixed = (own.T @ scores).toarray()
    variance = np.asarray(own.power(2).sum(axis=0)).reshape(-1)
    variance = variance - 2 * np.sum(mixed * along, axis=1)
    variance += np.sum((along @ (scores.T @ scores).toarray()) * along, axis=1)
    clusters = np.bincount(own.tocoo().coords[1], minlength=len(along))
    number = number_of(codes)
    variance = variance * number / max(number - 1, 1)
    return variance + along**2 @ effect_precision(problem, fit.prior), clusters


def _table(table: ComparisonTable, pairs: _Pairs) -> Any:
    """The residuals with names, largest first."""
    import pyarrow as pa

    order = np.argsort(-np.nan_to_num(np.abs(pairs.z), nan=-1.0), kind="stable")
    columns = {
        "model_a": table.subjects[pairs.first],
        "model_b": table.subjects[pairs.second],
        "comparisons": pairs.size,
        "share": pairs.points / pairs.size,
        "expected_share": pairs.expected / pairs.size,
        "z": pairs.z,
        "q_value": pairs.q_value,
    }
    return pa.table(columns).take(order)


def _cycles(pairs: _Pairs, count: int) -> tuple[float, float, int, float]:
    """Cyclic triples, their expectation, the number of triples, and the p-value."""
    met, ahead, above = (np.zeros((count, count)) for _ in range(3))
    i, j = pairs.first, pairs.second
    met[i, j] = met[j, i] = 1
    # Chance of most points, by a normal distribution of the points.
    gap = (pairs.expected - pairs.size / 2) / np.sqrt(np.maximum(pairs.variance, 1e-12))
    above[i, j] = ndtr(gap)
    half = np.sign(pairs.points - pairs.size / 2) / 2 + 0.5
    ahead[i, j], ahead[j, i] = half, 1 - half
    # Of a matrix of who is ahead, tr(A^3) / 3 directed circles of three.
    cyclic = lambda a: float(np.sum((a @ a) * a.T)) / 3
    rng, draws = np.random.default_rng(0), []
    for _ in range(SIMULATIONS):
        won = np.triu(rng.random(met.shape) < above, 1) * met
        draws.append(cyclic(won + (met - won.T) * np.tril(met, -1)))
    seen = cyclic(ahead)
    p_value = (1 + np.sum(np.array(draws) >= seen)) / (1 + SIMULATIONS)
    triples = round(float(np.sum((met @ met) * met)) / 6)
    return seen, float(np.mean(draws)), triples, float(p_value)


def _windows(table: ComparisonTable, time: str, windows: int) -> np.ndarray:
    """Windows of about the same number of comparisons; -1 where the time is unknown."""
    label = table.labels.coded(time)
    at = np.array([seconds(str(text)) for text in label.words])[label.code]
    weight = np.where(np.isfinite(at), table.outcomes.sum(axis=1), 0.0)
    order = np.argsort(at, kind="stable")
    window = np.full(len(at), -1)
    before = np.cumsum(weight[order]) / max(weight.sum(), 1e-300)
    window[order] = np.minimum((before * windows).astype(int), windows - 1)
    return np.where(np.isfinite(at), window, -1)


def _stability(table: ComparisonTable, part: np.ndarray, cluster, options) -> Any:
    """Abilities by part, and tests that they are the same; None where not estimable."""
    import pyarrow as pa

    sides, size = np.stack([table.first, table.second]), table.num_subjects
    present, count = np.ones(size, bool), int(part.max()) + 1
    for k in range(count):
        present &= np.bincount(sides[:, part == k].reshape(-1), minlength=size) > 0
    names = table.subjects[present]
    if count < 2 or len(names) < 2:
        return None
    values, errors = [], []
    for k in range(count):
        some = table.select(np.flatnonzero(part == k)).among(present)
        bad = some.outcomes[:, 2:].sum(axis=0).all()
        if not len(some.first) or (options.get("both_bad") == "outcome" and not bad):
            return None
        if pair_problem(some, **options).existence():
            return None
        fit = fit_comparisons(some, cluster=cluster or (), **options).abilities
        values.append(fit.estimates)
        errors.append(np.asarray(fit.standard_error))
    value, weight = np.array(values), np.array(errors) ** -2.0
    mean = np.sum(weight * value, axis=0) / weight.sum(axis=0)
    # Of independent parts, a chi-square of parts - 1 degrees of freedom.
    p_value = chdtrc(count - 1, np.sum(weight * (value - mean) ** 2, axis=0))
    order = np.argsort(p_value, kind="stable")
    columns = {f"ability_{k + 1}": value[k] for k in range(count)}
    columns |= {"p_value": p_value, "q_value": benjamini_hochberg(p_value)}
    return pa.table({"subject": names.tolist(), **columns}).take(order)

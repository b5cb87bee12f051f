r"""Reliability of mean scores: how much of a difference of two subjects is noise.

With the covariances :math:`s_{jk}` of J items over subjects and the variance
:math:`V = \sum_{jk} s_{jk}` of their sum:

- Cronbach's alpha (1951, Psychometrika 16), :math:`J/(J-1) (1 - \sum_j s_{jj} / V)`,
  which is the generalisability coefficient of subjects by items (KR-20 of right and
  wrong responses);
- Guttman's (1945, Psychometrika 10) lambda-2, and lambda-4, the largest coefficient of
  any two halves that a search finds;
- McDonald's omega, :math:`(\sum \lambda_j)^2 / ((\sum \lambda_j)^2 + \sum \psi_j)` of
  one common factor;
- the mean over random halves, by Spearman and Brown.

Where responses are missing, covariances are those of the pairs that are there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import fdtri, ndtri

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing
from irtjax.numerics.seeds import seed_of
from irtjax.validity.alpha import Deviations, scores_of
from irtjax.validity.generalisability import Generalisability, generalisability
from irtjax.validity.model_reliability import ModelReliability, model_reliability

if TYPE_CHECKING:
    import pyarrow as pa

#: Random halves, fewer of many items or subjects: numbers of an array at the most.
HALVES, MOST_NUMBERS = 1_000, 10_000_000
#: Halves from which the search for lambda-4 starts.
STARTS = 50
#: Items up to which halves are searched for lambda-4.
MOST_SEARCHED = 2_000
#: Steps of the factor of omega, and the change of a unique variance that ends them.
FACTOR_STEPS, FACTOR_TOLERANCE = 500, 1e-9
#: Name of the row of all benchmarks together.
TOGETHER = "all"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Reliability(HasTable):
    """Reliability of mean scores.

    Attributes:
        table: A row for each benchmark, and one for all together if there are several:
            `benchmark`, `items`, `subjects`, `mean`, `sd` of the subjects' scores,
            `alpha` with `alpha_lower` and `alpha_upper`, `lambda2`, `lambda4`, `omega`,
            `split_half` with the central `level` of the random halves, `sem` (standard
            error of a mean score as one of these items or others like them, in
            comparisons) and `difference`, that two subjects must differ by.
        subjects: A row for each subject: `subject`, `score`, `kelley` (the score drawn
            to the mean by the reliability), `kelley_se` and `sem`, the error of this
            subject's score by the binomial distribution (scores in [0, 1] alone).
        components: Variance components of subjects and items, in benchmarks if there
            are several.
        runs: Of repeated responses `flips`, the share of two runs' responses that
            differ, `run_sd`, the typical standard deviation of a score from run to run,
            and `retest`, the correlation of the scores of two runs; else None.
        level: Level of the intervals and of the difference.
        sentence: The result in words.
        warnings: Reasons to doubt it.
        model: Reliability by a fitted model, where one was given.
    """

    title = "Reliability"

    table: pa.Table
    subjects: pa.Table
    components: Generalisability
    runs: dict[str, float] | None
    level: float
    sentence: str
    warnings: tuple[str, ...] = ()
    model: ModelReliability | None = None

    @property
    def alpha(self) -> float:
        """Alpha of all items."""
        return self._whole("alpha")

    @property
    def omega(self) -> float:
        """Omega of all items."""
        return self._whole("omega")

    @property
    def sem(self) -> float:
        """Standard error of a mean score over all items, in comparisons."""
        return self._whole("sem")

    @property
    def difference(self) -> float:
        """Least difference of two mean scores that is not noise."""
        return self._whole("difference")

    def _whole(self, name: str) -> float:
        """A number of the last row, that of all items."""
        return self.table[name][-1].as_py()


def reliability(
    data: ResponseTable | Any,
    *,
    level: float = 0.95,
    key: RandomKey | None = None,
    fit: Calibration | None = None,
) -> Reliability:
    r"""Measures how reliable mean scores are, and which differences of two are noise.

    The difference that two subjects must have is :math:`z \sqrt{2}` standard errors of
    measurement: among subjects of equal ability, as many pairs as `level` says differ
    by less. The interval of alpha is Feldt's (1965, Psychometrika 30): in simulations
    of 10 to 100 subjects it covered 93.5 to 97 %, bootstrap percentiles 84 to 93.

    Args:
        data: A `ResponseTable`, a matrix `[subjects, items]` with NaN where missing, or
            what `irtjax.read` takes.
        level: Level of intervals and of the difference.
        key: Seed of the random halves; 0 by default.
        fit: A calibration: adds conditional standard errors of scores, marginal and
            empirical reliability, what the plain sum loses, and hierarchical omega.

    Returns:
        Coefficients by benchmark, scores of the subjects, and variance components.

    Raises:
        ValueError: There are fewer than 3 subjects or 2 items with different responses,
            or the level is not between 0 and 1.

    >>> rng = np.random.default_rng(0)
    >>> easy, noise = rng.normal(size=40), rng.normal(size=(60, 40))
    >>> right = rng.normal(size=(60, 1)) + easy + noise > 0
    >>> result = reliability(right.astype(float))
    >>> abs(result.alpha - result.components.design().coefficient) < 1e-9
    True
    """
    if not 0 < level < 1:
        raise ValueError(f"level is between 0 and 1, such as 0.95, not {level}")
    by_model = None if fit is None else model_reliability(fit)
    table = _table(data)
    values, seen = scores_of(table)
    if len(values) < 3:
        raise ValueError(
            f"reliability needs 3 subjects or more, and there"
            f" {'is' if len(values) == 1 else 'are'} {len(values)}"
        )
    rng = np.random.default_rng(seed_of(0 if key is None else key))
    benchmarks = table.benchmarks
    names = [*dict.fromkeys(benchmarks.tolist())]
    parts = [(name or TOGETHER, benchmarks == name) for name in names]
    if len(names) > 1:
        parts.append((TOGETHER, np.ones(len(benchmarks), bool)))
    rows, warnings = [], []
    for name, chosen in parts:
        part = None if seen is None else seen[:, chosen]
        row = _row(values[:, chosen], part, level, rng)
        if row is None:
            warnings.append(
                f"{name}: fewer than 2 items have different responses: it is left out"
            )
        else:
            rows.append({"benchmark": name, **row})
    if not rows or (len(names) > 1 and rows[-1]["benchmark"] != TOGETHER):
        raise ValueError(
            "reliability needs 2 items with different responses, and there are none"
        )
    components = _components(values, seen, benchmarks)
    runs = _runs(table)
    return Reliability(
        _arrow(rows),
        _subjects(table, values, seen, rows[-1]),
        components,
        runs,
        level,
        _sentence(table, rows[-1], runs, level),
        (*warnings, *_doubts(table, rows[-1])),
        by_model,
    )


def _table(data: Any) -> ResponseTable:
    """The responses as a table."""
    if isinstance(data, ResponseTable):
        return data
    if isinstance(data, (np.ndarray, list)) and np.ndim(data) == 2:
        return ResponseTable.from_arrays(data)
    from irtjax.data import read

    return read(data)


def _row(
    values: np.ndarray, seen: np.ndarray | None, level: float, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Coefficients of some items; None where fewer than two vary."""
    parts = Deviations.of(values, seen)
    subjects, items = values.shape
    if np.count_nonzero(parts.variance > 0) < 2:
        return None
    alpha = parts.alpha()
    answered = np.full(subjects, items) if seen is None else seen.sum(axis=1)
    score = values.sum(axis=1) / np.maximum(answered, 1)
    score = score[answered > 0]
    covariance = float(np.sum(parts.products(np.ones(items))))
    total = covariance + parts.variance.sum()
    lower, upper = _feldt(alpha, len(score), items, level)
    halves = _halves(parts, rng)
    tail = (1 - level) / 2
    split = np.nanquantile(halves, [tail, 1 - tail]) if len(halves) else [np.nan] * 2
    sem = _sem(parts, answered)
    return {
        "items": items,
        "subjects": len(score),
        "mean": float(score.mean()),
        "sd": float(score.std(ddof=1)),
        "alpha": alpha,
        "alpha_lower": lower,
        "alpha_upper": upper,
        "lambda2": _ratio(
            covariance + math.sqrt(items / (items - 1) * max(parts.squares(), 0)), total
        ),
        "lambda4": _lambda4(parts, total, rng),
        "omega": _omega(parts),
        "split_half": float(np.nanmean(halves)) if len(halves) else np.nan,
        "split_half_lower": float(split[0]),
        "split_half_upper": float(split[1]),
        "sem": sem,
        "difference": float(ndtri((1 + level) / 2) * math.sqrt(2) * sem),
    }


def _ratio(top: float, bottom: float) -> float:
    """A quotient; NaN where the denominator is not above 0."""
    return float(top / bottom) if bottom > 0 else math.nan


def _feldt(
    alpha: float, subjects: int, items: int, level: float
) -> tuple[float, float]:
    """Feldt's interval of alpha: (1 - alpha) over its estimate is a ratio of F."""
    degrees = subjects - 1, (subjects - 1) * (items - 1)
    tail = (1 - level) / 2
    quantiles = fdtri(*degrees, np.array([1 - tail, tail]))
    lower, upper = 1 - (1 - alpha) * quantiles
    return float(lower), float(upper)


def _sem(parts: Deviations, answered: np.ndarray) -> float:
    """Standard error of a mean score in comparisons, sqrt(s^2_pi / n).

    The interaction is the mean variance of an item less the mean covariance of two, by
    degrees of freedom; n the harmonic mean of the numbers answered.
    """
    subjects, items = parts.own.shape
    total, square = parts.own.sum(axis=1), (parts.own**2).sum(axis=1)
    count = answered * (answered - 1.0)
    covariance = np.sum(total**2 - square) / max(count.sum(), 1)
    variance = square.sum() / max(answered.sum(), 1)
    interaction = max(variance - covariance, 0) * subjects / (subjects - 1)
    inverse = np.mean(1 / answered[answered > 0])
    return float(math.sqrt(interaction * inverse))


def _halves(parts: Deviations, rng: np.random.Generator) -> np.ndarray:
    """Spearman and Brown's coefficient of random halves."""
    items = parts.own.shape[1]
    number = max(20, min(HALVES, MOST_NUMBERS // max(parts.own.shape)))
    places = np.argpartition(rng.random((number, items)), items // 2, axis=1)
    first = np.zeros((items, number))
    np.put_along_axis(first, places[:, : items // 2].T, 1.0, axis=0)
    one, other = parts.own @ first, parts.own @ (1 - first)
    if parts.seen is not None:
        seen = parts.seen.astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            one, other = one / (seen @ first), other / (seen @ (1 - first))
    whole = np.isfinite(one) & np.isfinite(other)
    count = np.maximum(whole.sum(axis=0), 1)
    centred = []
    for half in (one, other):
        half = np.where(whole, half, 0)
        centred.append(np.where(whole, half - half.sum(axis=0) / count, 0))
    cross = np.sum(centred[0] * centred[1], axis=0)
    scale = np.sqrt(np.prod([np.sum(x**2, axis=0) for x in centred], axis=0))
    r = np.divide(cross, scale, out=np.full(number, np.nan), where=scale > 0)
    return 2 * r / (1 + r)


def _lambda4(parts: Deviations, total: float, rng: np.random.Generator) -> float:
    """The largest coefficient of two halves, 1 - w'S w / V of signs w, by a search.

    From random signs single items change sides while it rises. NaN of more than
    `MOST_SEARCHED` items.
    """
    items = parts.own.shape[1]
    if items > MOST_SEARCHED or not total > 0:
        return math.nan
    matrix = parts.spread.T @ parts.spread / len(parts.own)
    np.fill_diagonal(matrix, 0)
    sign = rng.choice([-1.0, 1.0], (STARTS, items))
    gain, start = sign * (sign @ matrix), np.arange(STARTS)
    for _ in range(20 * items):
        place = np.argmax(gain, axis=1)
        rises = gain[start, place] > 1e-12 * total
        if not rises.any():
            break
        flip = np.where(rises, -2 * sign[start, place], 0)[:, None]
        sign[start, place] += flip[:, 0]
        change = flip * matrix[place] * sign
        gain = gain + change
        gain[start, place] *= np.where(rises, -1, 1)
    worst = np.min(np.einsum("sj,sj->s", sign @ matrix, sign))
    return float(1 - (worst + parts.variance.sum()) / total)


def _omega(parts: Deviations) -> float:
    """McDonald's omega of one common factor, by principal axes.

    The loadings are those of the largest root of the covariances with communalities in
    the diagonal, which are the squared loadings of the last step.
    """
    common = 0.5 * parts.variance
    vector = np.sqrt(common + 1e-300)
    loading = vector
    for _ in range(FACTOR_STEPS):
        for _ in range(3):
            vector = parts.products(vector) + common * vector
            size = np.linalg.norm(vector)
            if not size > 0:
                return math.nan
            vector = vector / size
        root = float(vector @ (parts.products(vector) + common * vector))
        if root <= 0:
            return math.nan
        loading = vector * math.sqrt(root)
        new = np.minimum(loading**2, parts.variance)
        change = np.abs(new - common).max()
        common = new
        if change <= FACTOR_TOLERANCE * parts.variance.max():
            break
    explained = float(loading.sum()) ** 2
    return _ratio(explained, explained + float(np.sum(parts.variance - common)))


def _components(
    values: np.ndarray, seen: np.ndarray | None, benchmarks: np.ndarray
) -> Generalisability:
    """Components of subjects and items, in benchmarks if there are several."""
    matrix = values if seen is None else np.where(seen, values, np.nan)
    names = np.unique(benchmarks)
    if len(names) < 2:
        return generalisability(matrix)
    place = np.nonzero(np.isfinite(matrix))
    columns = {
        "subject": place[0],
        "item": place[1],
        "benchmark": np.searchsorted(names, benchmarks)[place[1]],
        "score": matrix[place],
    }
    return generalisability(
        columns, ("benchmark", "item"), nested={"item": "benchmark"}
    )


def _runs(table: ResponseTable) -> dict[str, float] | None:
    """How responses and scores change from run to run, by counts of trials."""
    trials = table.trials
    if trials is None or not (trials > 1).any():
        return None
    right, count = np.asarray(table.values, float), np.asarray(trials, float)
    twice = count > 1
    differ = np.where(
        twice, 2 * right * (count - right) / np.maximum(count * (count - 1), 1), 0
    )
    flips = float(differ.sum() / twice.sum())
    # Two runs of a cell differ with twice the variance of one.
    answered = np.maximum(twice.sum(axis=1), 1)
    error = 0.5 * differ.sum(axis=1) / answered**2
    score = np.divide(right, count, out=np.zeros_like(right), where=count > 0)
    score = score.sum(axis=1) / np.maximum((count > 0).sum(axis=1), 1)
    inverse = np.divide(1, count, out=np.zeros_like(count), where=count > 0)
    of_mean = np.sum(0.5 * differ * inverse, axis=1) / answered**2
    between = max(float(np.var(score, ddof=1) - of_mean.mean()), 0.0)
    run = float(error.mean())
    return {
        "flips": flips,
        "run_sd": math.sqrt(run),
        "retest": _ratio(between, between + run),
    }


def _subjects(
    table: ResponseTable,
    values: np.ndarray,
    seen: np.ndarray | None,
    row: dict[str, Any],
) -> pa.Table:
    """Scores with Kelley's and their errors."""
    import pyarrow as pa

    items = values.shape[1]
    answered = np.full(len(values), items) if seen is None else seen.sum(axis=1)
    score = values.sum(axis=1) / np.maximum(answered, 1)
    rho = min(max(row["alpha"], 0.0), 1.0) if math.isfinite(row["alpha"]) else math.nan
    inside = (values.min(initial=0) >= 0) and (values.max(initial=0) <= 1)
    binomial = score * (1 - score) / np.maximum(answered - 1, 1) if inside else score
    sem = np.sqrt(np.maximum(binomial, 0)) if inside else np.full(len(score), np.nan)
    return pa.table(
        {
            "subject": table.subjects.tolist(),
            "score": score,
            "kelley": rho * score + (1 - rho) * row["mean"],
            "kelley_se": np.full(len(score), row["sem"] * math.sqrt(max(rho, 0))),
            "sem": sem,
        }
    )


def _sentence(
    table: ResponseTable,
    row: dict[str, Any],
    runs: dict[str, float] | None,
    level: float,
) -> str:
    """How large a difference must be, in a sentence."""
    noun = table.nouns[0]
    bounded = table.kind in ("binary", "counts")
    size = (
        f"{100 * row['difference']:.1f} points"
        if bounded
        else (f"{row['difference']:.3g}")
    )
    text = (
        f"Two {noun}s must differ by {size} on {counted(row['items'], 'item')} to be"
        f" significantly different ({level:.0%}); reliability (alpha)"
        f" {row['alpha']:.2f} [{row['alpha_lower']:.2f}, {row['alpha_upper']:.2f}]"
    )
    if runs is not None:
        text += (
            f"; one run of a {noun} differs from the next by"
            f" {100 * math.sqrt(2) * runs['run_sd']:.1f} points"
        )
    return f"{text}."


def _doubts(table: ResponseTable, row: dict[str, Any]) -> list[str]:
    """Warnings about the whole test."""
    doubts = []
    if not row["alpha"] > 0:
        doubts.append(
            f"alpha is {row['alpha']:.2f}: {table.nouns[0]}s differ no more than chance"
            " lets equal ones differ"
        )
    if "family" in table.subject_facets:
        doubts.append(
            f"{listing(['fine-tunes'])} of one model are alike: intervals take"
            f" {table.nouns[0]}s as independent"
        )
    return doubts


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table."""
    import pyarrow as pa

    return pa.Table.from_pylist(rows)

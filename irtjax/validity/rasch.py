r"""Does the Rasch model hold, so that the number of right responses says everything?

If it does, the difficulties are the same whoever answers and whichever other items are
asked (specific objectivity: Rasch 1960, 1977). With conditional log-likelihoods l_c
(`estimators.conditional`):

- Andersen (1973): groups g of subjects, by their score or by a facet, have the same
  difficulties; 2 (sum_g l_g - l_c) is chi-square, (G - 1)(J - 1) degrees of freedom.
- Wald: of each item, the difference of two groups' difficulties over its error.
- Martin-Loef (1973): two sets of items measure one ability;
  2 (l_1 + l_2 + sum n_rs log(n_rs / N) - l_c - sum n_t log(n_t / N)) over the subjects
  with sums r and s on the two sets, t = r + s. Its chi-square with J_1 J_2 - 1 degrees
  needs all sums to be frequent, so the p-value is that of responses drawn given the
  sums, unless they are.

With thousands of subjects every model is refuted. What matters is by how much the
difficulties differ, beyond their errors: `rms_difference`, in logits.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import chi2, norm

from irtjax._types import RandomKey
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.estimators.conditional.rasch import RaschItems, fit_rasch, informative
from irtjax.numerics.random_keys import seed_of
from irtjax.numerics.symmetric_functions import log_symmetric
from irtjax.ranking.discoveries import benjamini_hochberg

if TYPE_CHECKING:
    import pyarrow as pa

#: Subjects for each pair of sums from which the chi-square of Martin-Loef is used.
FULL_CELLS = 20
#: Draws of responses, fewer of many items: numbers of a table times draws.
DRAWS, MOST_DRAWN = 199, 400_000_000


class LikelihoodRatio(NamedTuple):
    """A test: chi-square, degrees of freedom, p-value.

    Attributes:
        left_out: Items without variation in a group, which are left out in all.
        drawn: Whether the p-value is that of drawn responses.
    """

    statistic: float
    df: int
    p_value: float
    left_out: int = 0
    drawn: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Rasch(HasTable):
    """Conditional estimates of the items, and tests of the model.

    Attributes:
        table: `item`, `difficulty`, `difficulty_se`; with two groups also
            `difference`, `difference_se`, `z`, `p_value`, `q_value`.
        log_likelihood: Conditional; of all pairs of items where `pairwise`.
        andersen: Test of the groups; None with pairs of items.
        martin_loef: Test of the easier and the harder half; None with missing
            responses.
        groups: Number of subjects by group.
        rms_difference: Root mean square of the differences of difficulties between
            groups less their errors, in logits: how much misfit matters.
        num_subjects: Subjects with some but not all responses right.
    """

    table: pa.Table
    log_likelihood: float
    andersen: LikelihoodRatio | None
    martin_loef: LikelihoodRatio | None
    groups: dict[str, int]
    rms_difference: float
    num_subjects: int
    pairwise: bool = False

    @property
    def verdict(self) -> str:
        """Whether the model holds, and by how much it fails, in one sentence."""
        names = " and ".join([", ".join(list(self.groups)[:-1]), list(self.groups)[-1]])
        size = f"{self.rms_difference:.2f} logits between {names}"
        test = self.andersen
        if test is None:
            return f"difficulties differ by {size} (root mean square beyond error)"
        chance = f"Andersen's p {_p(test.p_value)}"
        if test.p_value >= 0.05:
            return f"no sign that the Rasch model fails: {chance}, {size}"
        return f"the Rasch model fails: {chance}; difficulties differ by {size}"

    def __str__(self) -> str:
        return self.verdict


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"= {value:.3f}".replace("0.", ".")


def rasch(
    data: ResponseTable,
    by: str | Any = "score",
    *,
    groups: int | None = 2,
    draws: int = DRAWS,
    key: RandomKey | None = None,
) -> Rasch:
    """Difficulties by conditional maximum likelihood, and tests of the Rasch model.

    Args:
        data: Right and wrong responses.
        by: "score", a facet of subjects, or a label for each: the groups that are
            compared.
        groups: By "score": 2 for those up to the median and above it, None for one
            group of each score.
        draws: Drawn tables of responses for the Martin-Loef test; 0 for its chi-square.
        key: A whole number or a JAX key, for these.

    Returns:
        Estimates and tests; see `Rasch`.

    Raises:
        ValueError: For responses other than right and wrong, or groups in which fewer
            than two items vary.

    >>> rng = np.random.default_rng(0)
    >>> logit = rng.normal(size=(300, 1)) - np.linspace(-1, 1, 6)
    >>> right = (rng.random((300, 6)) < 1 / (1 + np.exp(-logit))).astype(int)
    >>> tests = rasch(ResponseTable.from_arrays(right), draws=0)
    >>> tests.andersen.df, tests.verdict[:44]
    (5, 'no sign that the Rasch model fails: Andersen')
    """
    if data.kind != "binary":
        raise ValueError(
            "the Rasch model is of right and wrong responses, and these are"
            f" {data.kind}"
        )
    right = np.asarray(data.values, np.float64)
    seen = None if data.observed is None else np.asarray(data.observed, bool)
    if seen is not None:
        right = np.where(seen, right, 0)
    whole = fit_rasch(right, seen)
    rows = informative(
        right[:, whole.used], None if seen is None else seen[:, whole.used]
    )
    labels = _labels(data, by, right, seen, rows, groups)
    names, codes = np.unique(labels[rows], return_inverse=True)
    part = lambda mask: None if seen is None else seen[mask]
    own = [np.flatnonzero(rows)[codes == k] for k in range(len(names))]
    if len(names) < 2:
        raise ValueError(f"{by!r} gives one group: the test compares two or more")
    stays = whole.used & _varies(right, seen, own)
    if stays.sum() < 2:
        raise ValueError(
            "fewer than two items vary in every group: join groups, or compare others"
        )
    fits = [_fit(right[x], part(x), stays) for x in own]
    everyone = _fit(right[rows], part(rows), stays)
    andersen = None
    if not (everyone.pairwise or any(x.pairwise for x in fits)):
        statistic = 2 * (sum(x.log_likelihood for x in fits) - everyone.log_likelihood)
        df = (len(names) - 1) * (int(stays.sum()) - 1)
        left = int((~stays).sum())
        andersen = LikelihoodRatio(statistic, df, float(chi2.sf(statistic, df)), left)
    martin_loef = None
    if seen is None and whole.used.sum() >= 4:
        martin_loef = _martin_loef(right[:, whole.used], draws, seed_of(key))
    sizes = {str(x): len(own[k]) for k, x in enumerate(names.tolist())}
    return Rasch(
        _table(data, whole, fits, stays),
        whole.log_likelihood,
        andersen,
        martin_loef,
        sizes,
        _rms_difference(fits, stays),
        int(rows.sum()),
        whole.pairwise,
    )


def _labels(data, by, right, seen, rows, groups) -> np.ndarray:
    """`[subjects]` groups of the test."""
    if isinstance(by, str) and by == "score":
        total = right.sum(axis=1)
        if seen is not None:
            total = total / np.maximum(seen.sum(axis=1), 1)
        if groups is None:
            return np.array([f"score {x:g}" for x in total])
        if groups != 2:
            raise ValueError(f"groups {groups!r}: give 2, or None for every score")
        return np.where(total > np.median(total[rows]), "high scores", "low scores")
    if isinstance(by, str):
        if by not in data.subject_facets:
            listed = ", ".join(data.subject_facets) or "none"
            raise ValueError(
                f"no facet {by!r} of subjects (there are: {listed}): give one, a label"
                " for each subject, or 'score'"
            )
        return data.subject_facets[by]
    labels = np.asarray(by).astype(str)
    if len(labels) != data.num_subjects:
        raise ValueError(
            f"by has {len(labels):,} labels, but there are {data.num_subjects:,}"
            " subjects: give one for each"
        )
    return labels


def _varies(right, seen, own) -> np.ndarray:
    """`[items]` whether an item has right and wrong responses in every group."""
    varies = np.ones(right.shape[1], bool)
    for members in own:
        there = np.ones_like(right[members]) if seen is None else seen[members]
        hits = (right[members] * there).sum(axis=0)
        varies &= (hits > 0) & (hits < there.sum(axis=0))
    return varies


def _fit(right, seen, stays: np.ndarray) -> RaschItems:
    """Estimates of the items that stay, in their places."""
    fit = fit_rasch(right[:, stays], None if seen is None else seen[:, stays])
    count = len(stays)
    difficulty, used = np.full(count, np.nan), np.zeros(count, bool)
    difficulty[stays], used[stays] = fit.difficulty, fit.used
    covariance = np.zeros((count, count))
    covariance[np.ix_(stays, stays)] = fit.covariance
    return fit._replace(difficulty=difficulty, covariance=covariance, used=used)


def _rms_difference(fits: list[RaschItems], stays: np.ndarray) -> float:
    """Root mean square difference of two groups' difficulties, less their errors."""
    squares = []
    for k, first in enumerate(fits):
        for second in fits[k + 1 :]:
            compared = stays & first.used & second.used
            gap = first.difficulty[compared] - second.difficulty[compared]
            noise = np.diagonal(first.covariance + second.covariance)[compared]
            squares.append(np.mean((gap - gap.mean()) ** 2 - noise))
    return math.sqrt(max(float(np.mean(squares)), 0.0))


def _table(data, whole: RaschItems, fits: list[RaschItems], stays) -> pa.Table:
    """The items, with the Wald tests of two groups."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "item": data.items.tolist(),
        "difficulty": whole.difficulty,
        "difficulty_se": whole.error,
    }
    if len(fits) == 2:
        gap = fits[1].difficulty - fits[0].difficulty
        variance = np.diagonal(fits[0].covariance + fits[1].covariance)
        error = np.where(stays, np.sqrt(np.maximum(variance, 0)), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            z = gap / error
        p_value = 2 * norm.sf(np.abs(z))
        columns |= {
            "difference": gap,
            "difference_se": error,
            "z": z,
            "p_value": p_value,
            "q_value": benjamini_hochberg(p_value),
        }
    masked = {
        name: x if isinstance(x, list) else pa.array(x, mask=~np.isfinite(x))
        for name, x in columns.items()
    }
    return pa.table(masked)


def _halves(right: np.ndarray) -> np.ndarray:
    """`[items]` whether an item is in the harder half, by its number right."""
    hits = right.sum(axis=0)
    return hits <= np.median(hits)


def _statistic(right: np.ndarray, harder: np.ndarray) -> float:
    """The statistic of Martin-Loef."""
    sums = [right[:, x].sum(axis=1).astype(int) for x in (harder, ~harder)]
    number = len(right)
    cells = np.unique(np.stack(sums, axis=1), axis=0, return_counts=True)[1]
    totals = np.unique(sums[0] + sums[1], return_counts=True)[1]
    joint = float(cells @ np.log(cells / number))
    plain = float(totals @ np.log(totals / number))
    parts = [fit_rasch(right[:, x]).log_likelihood for x in (harder, ~harder)]
    return 2 * (sum(parts) + joint - fit_rasch(right).log_likelihood - plain)


def _martin_loef(right: np.ndarray, draws: int, seed: int) -> LikelihoodRatio | None:
    """The test of the easier and the harder half of the items."""
    harder = _halves(right)
    first, second = int(harder.sum()), int((~harder).sum())
    if min(first, second) < 2:
        return None
    statistic, df = _statistic(right, harder), first * second - 1
    p_value = float(chi2.sf(statistic, df))
    draws = min(draws, MOST_DRAWN // (right.size * right.shape[1]))
    if draws < 19 or len(right) >= FULL_CELLS * first * second:
        return LikelihoodRatio(statistic, df, p_value)
    rng = np.random.default_rng(seed)
    difficulty = fit_rasch(right).difficulty
    tables = _suffixes(difficulty)
    total = right.sum(axis=1).astype(int)
    drawn = []
    for _ in range(draws):
        try:
            other = drawn_given_sums(difficulty, tables, total, rng)
            drawn.append(_statistic(other, harder))
        except ValueError:  # An item of the draw does not vary.
            continue
    above = sum(x >= statistic for x in drawn)
    return LikelihoodRatio(statistic, df, (1 + above) / (1 + len(drawn)), drawn=True)


def _suffixes(difficulty: np.ndarray) -> np.ndarray:
    """`[items + 1, items + 1]` log gamma of the items from each on."""
    count = len(difficulty)
    out = np.full((count + 1, count + 1), -np.inf)
    for k in range(count + 1):
        part = log_symmetric(difficulty[k:])
        out[k, : len(part)] = part
    return out


def drawn_given_sums(
    difficulty: np.ndarray,
    tables: np.ndarray,
    total: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """`[subjects, items]` responses of the Rasch model with these sums, item by item.

    The chance that item j is right, with r right still to come of the items from j on,
    is eps_j gamma_{r-1}(j + 1, ...) / gamma_r(j, ...).
    """
    left = total.copy()
    out = np.zeros((len(total), len(difficulty)))
    for j, value in enumerate(difficulty):
        below = tables[j + 1, np.maximum(left - 1, 0)]
        log_chance = np.where(left > 0, below - value - tables[j, left], -np.inf)
        out[:, j] = np.log(rng.random(len(left))) < log_chance
        left = left - out[:, j].astype(int)
    return out

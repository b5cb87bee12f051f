r"""Does the Rasch model hold, so that the sum of responses says everything?

If it does, the difficulties are the same whoever answers and whichever other items are
asked (specific objectivity: Rasch 1960, 1977). With conditional log-likelihoods l_c
(`estimators.conditional`):

- Andersen (1973): groups g of subjects, by their score or by a facet, have the same
  difficulties; 2 (sum_g l_g - l_c) is chi-square, (G - 1)(J - 1) degrees of freedom.
- Wald: of each item, the difference of two groups' difficulties over its error.
- Martin-Loef (1973): two sets of items measure one ability;
  2 (l_1 + l_2 + sum n_rs log(n_rs / N) - l_c - sum n_t log(n_t / N)) over the subjects
  with sums r and s on the two sets, t = r + s. Its chi-square with M_1 M_2 + P_1 + P_2
  - P degrees, M the highest sums and P the numbers of parameters, needs all sums to be
  frequent. Unless they are, r and s are drawn given t at the estimated difficulties,
  which takes the difficulties as known: of 300 tables of 100 subjects and 6 items that
  follow the model 4 % had p <= .05, of 300 subjects and 24 items 3 %.

With thousands of subjects every model is refuted. What matters is by how much the
difficulties differ, beyond their errors: `rms_difference`, in logits.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import softmax, xlogy
from scipy.stats import chi2, norm

from irtjax._types import RandomKey
from irtjax.data.coding import coded
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import p_text
from irtjax.estimators.conditional.items import (
    MODELS,
    ConditionalItems,
    fit_items,
    informative,
)
from irtjax.numerics.category_sums import log_gamma_of
from irtjax.numerics.seeds import seed_of
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.subject_groups import check_labels, labels_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Subjects for each pair of sums from which the chi-square of Martin-Loef is used.
FULL_CELLS = 20
#: Draws of responses.
DRAWS = 999


#: What the models are called.
NAMES = {"rasch": "Rasch", "pcm": "partial credit", "rsm": "rating scale"}
#: Most categories of a response.
MOST_CATEGORIES = 20


class ChiSquaredTest(NamedTuple):
    """A test by a likelihood ratio, or of Wald.

    Attributes:
        statistic: Chi-square.
        df: Its degrees of freedom.
        p_value: Of chi-square, or of drawn sums.
        left_out: Items that a group does not compare, which are left out in all.
        drawn: Whether the p-value is that of drawn sums.
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
        table: `item`, `difficulty`, `difficulty_se`; of ordered categories
            `threshold_1` and so on, at which a category and the one before are as
            likely; with two groups also `difference`, `difference_se`, `z`, `p_value`,
            `q_value`, of difficulties.
        log_likelihood: Conditional; of all pairs of items where `pairwise`.
        andersen: Test of the groups; None with pairs of items.
        wald: The same by the errors of the difficulties; with pairs of items alone.
        martin_loef: Test of the easier and the harder half; None with missing
            responses.
        groups: Number of subjects by group.
        rms_difference: Root mean square of the differences of difficulties between
            groups less their errors, in logits: how much misfit matters.
        num_subjects: Subjects whose sum is neither the least nor the most possible.
        model: "rasch", "pcm" or "rsm".
    """

    table: pa.Table
    log_likelihood: float
    andersen: ChiSquaredTest | None
    martin_loef: ChiSquaredTest | None
    groups: dict[str, int]
    rms_difference: float
    num_subjects: int
    model: str = "rasch"
    pairwise: bool = False
    wald: ChiSquaredTest | None = None

    @property
    def verdict(self) -> str:
        """Whether the model holds, and by how much it fails, in one sentence."""
        names = " and ".join([", ".join(list(self.groups)[:-1]), list(self.groups)[-1]])
        size = f"difficulties differ by {self.rms_difference:.2f} logits"
        if self.model == "rasch":
            # Of a chance of a half, which difficulties move most.
            points = 100 * math.tanh(self.rms_difference / 4)
            size += f" (at most {points:.0f} points of a chance)"
        size += f" between {names}"
        name, test = "Andersen", self.andersen
        if test is None:
            name, test = "Wald", self.wald
        assert test is not None
        outcome = f"the {NAMES[self.model]} model fails"
        if test.p_value >= 0.05:
            outcome = f"no sign that {outcome}"
        return f"{outcome}: {name}'s p {p_text(test.p_value)}; {size}"

    def __str__(self) -> str:
        return self.verdict


def rasch(
    data: ResponseTable,
    by: str | Any = "score",
    *,
    model: str | None = None,
    groups: int | None = 2,
    draws: int = DRAWS,
    key: RandomKey | None = None,
) -> Rasch:
    """Difficulties by conditional maximum likelihood, and tests of the Rasch model.

    Args:
        data: Right and wrong responses, or ordered categories.
        by: "score", a facet of subjects, or a label for each: the groups that are
            compared.
        model: "rasch" for right and wrong; "pcm" (partial credit) or "rsm" (rating
            scale: the distances of thresholds are common to the items) for ordered
            categories. None for "rasch" or "pcm", by the responses.
        groups: By "score": 2 for those up to the median and above it, None for one
            group of each score.
        draws: Drawn tables of sums for the Martin-Loef test; 0 for its chi-square.
        key: A whole number or a JAX key, for these.

    Returns:
        Estimates and tests; see `Rasch`.

    Raises:
        ValueError: For responses without order, or groups that compare fewer than two
            items.

    >>> rng = np.random.default_rng(0)
    >>> logit = rng.normal(size=(300, 1)) - np.linspace(-1, 1, 6)
    >>> right = (rng.random((300, 6)) < 1 / (1 + np.exp(-logit))).astype(int)
    >>> tests = rasch(ResponseTable.from_arrays(right), draws=0)
    >>> tests.andersen.df, tests.verdict[:44]
    (5, 'no sign that the Rasch model fails: Andersen')
    """
    codes, seen, model = _codes(coded(data), model)
    whole = fit_items(codes, seen, model)
    rows = _informative(codes, seen, whole.used)
    labels = _labels(data, by, codes, seen, rows, groups)
    name, noun = by if isinstance(by, str) else "by", "subject whose responses differ"
    check_labels(labels[rows], data.subjects[rows], name, noun)
    names, places = np.unique(labels[rows], return_inverse=True)
    own = [np.flatnonzero(rows)[places == k] for k in range(len(names))]
    stays, fits, everyone = _fits_by_group(codes, seen, model, whole, own)
    andersen = wald = None
    if everyone.pairwise or any(x.pairwise for x in fits):
        wald = _wald(fits, stays)
    else:
        statistic = 2 * (sum(x.log_likelihood for x in fits) - everyone.log_likelihood)
        # A category without responses in a group is at the limit of the likelihood. Its
        # parameter counts: without it 14 of 100 tests of a true model had p < .05.
        df = (len(fits) - 1) * everyone.num_parameters
        left = int((~stays).sum())
        andersen = ChiSquaredTest(statistic, df, float(chi2.sf(statistic, df)), left)
    martin_loef = None
    if seen is None and whole.used.sum() >= 4:
        martin_loef = _martin_loef(codes[:, whole.used], model, draws, seed_of(key))
    sizes = {str(x): len(own[k]) for k, x in enumerate(names.tolist())}
    return Rasch(
        _table(data, whole, fits, stays),
        whole.log_likelihood,
        andersen,
        martin_loef,
        sizes,
        _rms_difference(fits, stays),
        int(rows.sum()),
        model,
        whole.pairwise,
        wald,
    )


def _codes(
    data: ResponseTable, model: str | None
) -> tuple[np.ndarray, np.ndarray | None, str]:
    """`[subjects, items]` categories from 0 on, what was observed, and the model."""
    if data.kind not in ("binary", "ordinal"):
        raise ValueError(
            "the Rasch model is of right and wrong responses or ordered categories, and"
            f" these are {data.kind}: "
            + (
                "read one of each with trials='first'"
                if data.kind == "counts"
                else "join scores into categories 0, 1, ..."
            )
        )
    usual = "rasch" if data.kind == "binary" else "pcm"
    model = usual if model is None else model
    if model not in MODELS:
        raise ValueError(f"model {model!r}: give one of {', '.join(MODELS)}")
    seen = None if data.observed is None else np.asarray(data.observed, bool)
    values = np.asarray(data.values, np.int64)
    there = True if seen is None else seen
    codes = np.where(there, values - values[there].min(), 0)
    if model == "rasch" and codes.max() > 1:
        raise ValueError(
            "model 'rasch' is of right and wrong responses, and these have"
            f" {codes.max() + 1} categories: give 'pcm' or 'rsm'"
        )
    if codes.max() >= MOST_CATEGORIES:
        raise ValueError(
            f"responses from {values[there].min()} to {values[there].max()}: the model"
            f" takes at most {MOST_CATEGORIES} categories; join some"
        )
    return codes, seen, model


def _informative(codes, seen, items: np.ndarray) -> np.ndarray:
    """`[subjects]` whether responses to these items are informative."""
    return informative(codes[:, items], None if seen is None else seen[:, items])


def _fits_by_group(
    codes, seen, model: str, whole: ConditionalItems, own: list[np.ndarray]
) -> tuple[np.ndarray, list[ConditionalItems], ConditionalItems]:
    """Items that every group compares, and their estimates: by group, and of all."""
    stays = whole.used
    while True:
        if stays.sum() < 2:
            raise ValueError(
                "fewer than two items vary in every group: join groups, or compare"
                " others"
            )
        fits = [_fit(codes, seen, model, x, stays) for x in own]
        used = np.all([x.used for x in fits], axis=0)
        if np.array_equal(used, stays):
            break
        stays = used
    return stays, fits, _fit(codes, seen, model, np.concatenate(own), stays)


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
    return np.asarray(labels_of(data, by, "by")).astype(str)


def _fit(codes, seen, model: str, rows, stays: np.ndarray) -> ConditionalItems:
    """Estimates of some subjects for the items that stay, in their places."""
    part = None if seen is None else seen[rows][:, stays]
    fit = fit_items(codes[rows][:, stays], part, model)
    count = len(stays)
    difficulty, used = np.full(count, np.nan), np.zeros(count, bool)
    difficulty[stays], used[stays] = fit.difficulty, fit.used
    covariance = np.zeros((count, count))
    covariance[np.ix_(stays, stays)] = fit.covariance
    return fit._replace(difficulty=difficulty, covariance=covariance, used=used)


def _rms_difference(fits: list[ConditionalItems], stays: np.ndarray) -> float:
    """Root mean square difference of two groups' difficulties, less their errors."""
    squares = []
    for k, first in enumerate(fits):
        for second in fits[k + 1 :]:
            compared = stays & first.used & second.used
            gap = first.difficulty[compared] - second.difficulty[compared]
            noise = np.diagonal(first.covariance + second.covariance)[compared]
            squares.append(np.mean((gap - gap.mean()) ** 2 - noise))
    return math.sqrt(max(float(np.mean(squares)), 0.0))


def _wald(fits: list[ConditionalItems], stays: np.ndarray) -> ChiSquaredTest:
    """Whether groups have the same difficulties, by the errors of these.

    With precisions P_g, which have no information on the sum of the difficulties, the
    sum of (d_g - d)' P_g (d_g - d) has the chi-square of (groups - 1) (items - 1), d
    the mean weighted by precisions.
    """
    estimates = np.stack([x.difficulty[stays] for x in fits])
    covariances = np.stack([x.covariance[np.ix_(stays, stays)] for x in fits])
    precisions = np.linalg.pinv(covariances, hermitian=True)
    weighted = np.einsum("gjk,gk->j", precisions, estimates)
    gap = estimates - np.linalg.pinv(precisions.sum(axis=0), hermitian=True) @ weighted
    statistic = float(np.einsum("gj,gjk,gk->", gap, precisions, gap))
    df = (len(fits) - 1) * (int(stays.sum()) - 1)
    left = int((~stays).sum())
    return ChiSquaredTest(statistic, df, float(chi2.sf(statistic, df)), left)


def _table(
    data, whole: ConditionalItems, fits: list[ConditionalItems], stays
) -> pa.Table:
    """The items, with the Wald tests of two groups."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "item": data.items.tolist(),
        "difficulty": whole.difficulty,
        "difficulty_se": whole.error,
    }
    if whole.thresholds.shape[1] > 1:
        for k, threshold in enumerate(whole.thresholds.T):
            columns[f"threshold_{k + 1}"] = threshold
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


def _halves(codes: np.ndarray) -> np.ndarray:
    """`[items]` whether an item is in the harder half, by its mean response."""
    total = codes.sum(axis=0)
    return total <= np.median(total)


def _statistic(codes: np.ndarray, harder: np.ndarray, model: str) -> tuple[float, int]:
    """The statistic of Martin-Loef, and its degrees of freedom."""
    parts = codes[:, harder], codes[:, ~harder]
    sums = [x.sum(axis=1) for x in parts]
    number = len(codes)
    cells = np.unique(np.stack(sums, axis=1), axis=0, return_counts=True)[1]
    totals = np.unique(sums[0] + sums[1], return_counts=True)[1]
    joint = float(cells @ np.log(cells / number))
    plain = float(totals @ np.log(totals / number))
    fits = [fit_items(x, None, model) for x in parts]
    whole = fit_items(codes, None, model)
    gain = sum(x.log_likelihood for x in fits) - whole.log_likelihood
    most = [int(x.max(axis=0).sum()) for x in parts]
    df = most[0] * most[1] - whole.num_parameters
    return 2 * (gain + joint - plain), df + sum(x.num_parameters for x in fits)


def _martin_loef(
    codes: np.ndarray, model: str, draws: int, seed: int
) -> ChiSquaredTest | None:
    """The test of the easier and the harder half of the items."""
    harder = _halves(codes)
    if min(harder.sum(), (~harder).sum()) < 2:
        return None
    statistic, df = _statistic(codes, harder, model)
    if draws == 0 or len(codes) >= FULL_CELLS * df:
        return ChiSquaredTest(statistic, df, float(chi2.sf(statistic, df)))
    log_weight = fit_items(codes, None, model).log_weight
    if model != "rsm":
        codes = codes - codes.min(axis=0)
    if not np.isfinite(log_weight[np.arange(codes.shape[1]), codes]).all():
        return None  # A category of which no finite threshold is estimated.
    sums = codes[:, harder].sum(axis=1), codes[:, ~harder].sum(axis=1)
    weights = _log_weights(log_weight[harder]), _log_weights(log_weight[~harder])
    p_value = _p_value_given_totals(sums, weights, draws, np.random.default_rng(seed))
    return ChiSquaredTest(statistic, df, p_value, drawn=True)


def _log_weights(log_weight: np.ndarray) -> np.ndarray:
    """`[sums]` logarithms of the weights of all sums of items, from 0 on."""
    category = np.arange(log_weight.shape[1])
    top = np.where(np.isfinite(log_weight), category, 0).max(axis=1)
    between = log_gamma_of(log_weight, np.arange(1, top.sum()))
    last = log_weight[np.arange(len(top)), top].sum()
    return np.concatenate([[0.0], between, [last]])


def _p_value_given_totals(
    sums: tuple[np.ndarray, np.ndarray],
    weights: tuple[np.ndarray, np.ndarray],
    draws: int,
    rng: np.random.Generator,
) -> float:
    """Share of drawn tables of two sums as far from the model as the observed one.

    Given the total t of a subject, the sum r of the first half has chance
    gamma_r gamma'_{t-r} / gamma''_t. Numbers of subjects with r are multinomial, and
    2 sum n_rt log(n_rt / E n_rt) compares them with the model.

    Args:
        sums: `[subjects]` of the two halves of the items.
        weights: `[sums]` logarithms of gamma and gamma'.
        draws: Tables to draw; the observed one counts as one more.
        rng: A generator.
    """
    total = sums[0] + sums[1]
    statistic = np.zeros(1 + draws)
    for value in np.unique(total):
        subjects = sums[0][total == value]
        first = max(0, value - len(weights[1]) + 1)
        own = np.arange(first, min(value, len(weights[0]) - 1) + 1)
        chance = softmax(weights[0][own] + weights[1][value - own])
        observed = np.bincount(subjects - first, minlength=len(own))
        drawn = rng.multinomial(len(subjects), chance, draws)
        numbers = np.concatenate([observed[None], drawn])[:, chance > 0]
        expected = len(subjects) * chance[chance > 0]
        statistic += 2 * xlogy(numbers, numbers / expected).sum(axis=1)
    return float(np.mean(statistic >= statistic[0]))

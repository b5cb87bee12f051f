r"""Judges of right and wrong: how often each errs, and accuracies without their errors.

Cell c, the response of subject i to item j, is right (t = 1) or wrong (t = 0), known on
gold cells only. Judge k reports r with

.. math::

    \mathrm{logit} P(r = 1 \mid t) = \alpha_k + \beta_k t + \gamma_k's_c, \qquad
    \mathrm{logit} P(t = 1) = \mu + \theta_i - b_j,

s_c covariates of style, such as length, in standard deviations from their mean. At the
mean style a judge's sensitivity is sigma(alpha + beta), its specificity
sigma(-alpha). Without theta, b and gamma this is the model of Dawid and Skene (1979,
Applied Statistics 28).

EM alternates the posterior q_c of t and the maxima of weighted logistic regressions.
The observed information is that of the complete data less
:math:`\sum_c q_c (1 - q_c) d_c d_c'`, d_c the difference of the scores with t = 1 and
t = 0 (Louis 1982, JRSS B 44), and q_c has the derivative q_c (1 - q_c) d_c.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.sparse import coo_array, csr_array, hstack
from scipy.special import expit, ndtri

from irtjax.calibration.abilities import Abilities
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted
from irtjax.validity.rater_agreement import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Below these a judge's errors are hardly identified.
FEWEST_GOLD, FEWEST_JUDGES = 50, 3
#: Standard deviation of the normal prior of alpha, beta and gamma, so that they are
#: finite for a judge without an error.
WIDE = 10.0
#: Steps of EM at most, and the gain in nats of the last one.
STEPS, GAIN = 2000, 1e-8


class Reports(NamedTuple):
    """Reports as arrays.

    Attributes:
        verdict: `[reports]` 0 or 1.
        judge: `[reports]`.
        cell: `[reports]`.
        design: `[2, reports, 2 + covariates]` 1, t and s, with t = 0 and t = 1.
        subject: `[cells]`.
        item: `[cells]`.
        gold: `[cells]` 0 or 1, NaN where it is not known.
    """

    verdict: np.ndarray
    judge: np.ndarray
    cell: np.ndarray
    design: np.ndarray
    subject: np.ndarray
    item: np.ndarray
    gold: np.ndarray

    def predictors(self, judge: np.ndarray) -> np.ndarray:
        """`[2, reports]` log odds of the verdict "right", with t = 0 and t = 1."""
        return np.einsum("trw,rw->tr", self.design, judge[self.judge])

    def weights(self, q: np.ndarray) -> np.ndarray:
        """`[2, reports]` posterior chances of t = 0 and t = 1."""
        return np.stack([1 - q, q])[:, self.cell]

    def by_judge(self, values: np.ndarray) -> np.ndarray:
        """Sums over the reports of each judge, `[judges, ...]`."""
        columns = values.reshape(len(values), -1).T
        sums = np.column_stack([np.bincount(self.judge, x) for x in columns])
        return sums.reshape(-1, *values.shape[1:])


class JudgeParameters(NamedTuple):
    """Parameters of judges and of truth.

    Attributes:
        judge: `[judges, 2 + covariates]` alpha, beta, gamma.
        mean: mu.
        ability: `[subjects]` theta, and `difficulty`: `[items]` b; 0 without abilities.
        variances: Of theta and of b; 0 without abilities.
    """

    judge: np.ndarray
    mean: float
    ability: np.ndarray
    difficulty: np.ndarray
    variances: tuple[float, float]


class Truth(NamedTuple):
    """What reports imply of each cell.

    Attributes:
        posterior: `[cells]` q; of gold cells the truth.
        without_gold: `[cells]` q as if gold were not known.
        log_likelihood: Of reports and gold.
        objective: With the log priors.
    """

    posterior: np.ndarray
    without_gold: np.ndarray
    log_likelihood: float
    objective: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Judges(HasTable):
    """How judges err, and accuracies corrected for it.

    Attributes:
        judges: A row for each judge: reports; sensitivity and specificity at the mean
            style, each covariate's bias (the rise of the chance of "right", in
            percentage points for a standard deviation), all with errors and intervals;
            gold_kappa, Cohen's kappa with the gold labels.
        accuracies: A row for each subject: judged (the share of "right"), corrected
            with its error, num_gold, and rectified: the mean posterior without gold
            labels plus the mean error of it on gold cells, with its error; it is
            unbiased where gold cells are a random sample, whatever the model.
        abilities: Corrected accuracies with the covariance of their errors.
        cells: Posterior chance that each response is right.
        pairs: A row for each two judges: responses that both judged, the share of the
            same verdict ("agreement"), and Cohen's kappa.
        alpha: Krippendorff's alpha of the verdicts.
        fleiss: Fleiss' kappa of the verdicts.
        log_likelihood: Of reports and gold labels.
        converged: Whether EM converged.
    """

    title = "Judges"
    columns = ("judge", "reports", "sensitivity", "specificity", "gold_kappa")

    judges: pa.Table
    accuracies: pa.Table
    abilities: Abilities
    cells: pa.Table
    pairs: pa.Table
    alpha: float
    fleiss: float
    log_likelihood: float
    converged: bool

    @property
    def table(self) -> pa.Table:
        """The judges."""
        return self.judges

    @property
    def sentences(self) -> list[str]:
        """How far the judges agree, and whether the estimates converged."""
        kappa = np.asarray(self.pairs["kappa"])
        ends = [np.nanmin(kappa), np.nanmax(kappa)] if np.isfinite(kappa).any() else []
        pairs = " to ".join(f"{x:.2f}" for x in ends) or "not defined"
        texts = [
            f"Agreement of judges: Krippendorff's alpha {self.alpha:.2f}, Fleiss' kappa"
            f" {self.fleiss:.2f}, Cohen's kappa of pairs {pairs}."
        ]
        return texts if self.converged else [*texts, "The estimates did not converge."]


def fit_judges(
    table: Any,
    gold: str = "gold",
    *,
    style: Sequence[str] = (),
    abilities: bool = True,
    level: float = 0.95,
) -> Judges:
    """Estimates sensitivity, specificity and style bias of judges, and true accuracies.

    Args:
        table: A row for each report: a data frame, Arrow table or mapping of columns
            "subject", "item", "judge", "verdict" (1 right, 0 wrong).
        gold: Column with the truth, 1 or 0, and no value where it is not known.
        style: Columns of numbers that may sway a judge, such as length.
        abilities: Whether chances of truth depend on subject and item; without, and
            without style, the model is that of Dawid and Skene.
        level: Level of intervals.

    Returns:
        The judges and corrected accuracies.

    Raises:
        ValueError: If a column is missing, a verdict or gold label is not 0 or 1, a
            style is not a finite number, there are fewer than 50 gold cells or 3
            judges, or all gold cells have one truth.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((8, 50)) < 0.6
    >>> i, j, k = (x.ravel() for x in np.indices((8, 50, 3)))
    >>> right = rng.random(i.size) < 0.9  # A judge is right on nine responses of ten.
    >>> rows = {"subject": i, "item": j, "judge": k}
    >>> rows["verdict"] = np.where(right, truth[i, j], ~truth[i, j])
    >>> rows["gold"] = np.where(j < 25, truth[i, j], np.nan)
    >>> judges = fit_judges(rows)
    >>> bool(abs(np.mean(judges.judges["sensitivity"]) - 0.9) < 0.03)
    True
    """
    reports, labels = _reports(table, gold, style)
    parameters, truth, converged = maximum(reports, abilities)
    covariance, differences = errors(reports, parameters, truth)
    half = float(ndtri(0.5 + level / 2))
    accuracies, corrected = _accuracies(reports, truth, covariance, differences, labels)
    import pyarrow as pa

    cells = {
        "subject": labels["subject"][reports.subject].tolist(),
        "item": labels["item"][reports.item].tolist(),
        "probability_right": truth.posterior,
    }
    pairs, gold_kappa = _pair_table(reports, labels["judge"])
    return Judges(
        _judge_table(
            reports, parameters, truth, covariance, labels, style, half, gold_kappa
        ),
        accuracies,
        dataclasses.replace(corrected, level=level),
        pa.table(cells),
        pairs,
        krippendorff_alpha(reports.verdict, reports.cell),
        fleiss_kappa(reports.verdict, reports.cell),
        truth.log_likelihood,
        converged,
    )


def maximum(
    reports: Reports, abilities: bool = True
) -> tuple[JudgeParameters, Truth, bool]:
    """Parameters of the greatest posterior density, by EM."""
    start = np.zeros((reports.judge.max() + 1, reports.design.shape[2]))
    start[:, :2] = -1.0, 2.0
    truths = reports.gold[np.isfinite(reports.gold)]
    share = np.clip(truths.mean() if truths.size else 0.5, 0.01, 0.99)
    variance = 1.0 if abilities else 0.0
    parameters = JudgeParameters(
        start,
        float(np.log(share / (1 - share))),
        np.zeros(reports.subject.max() + 1),
        np.zeros(reports.item.max() + 1),
        (variance, variance),
    )
    truth, before = posterior(reports, parameters), -np.inf
    for _ in range(STEPS):
        parameters = _maximised(reports, parameters, truth.posterior)
        before, truth = truth.objective, posterior(reports, parameters)
        # Variances change too, so the objective may fall.
        if abs(truth.objective - before) < GAIN:
            return parameters, truth, True
    return parameters, truth, False


def posterior(reports: Reports, parameters: JudgeParameters) -> Truth:
    """The chance that each cell is right, and the likelihood."""
    count = len(reports.subject)
    prior = _prior(reports, parameters)
    sign = 1 - 2 * reports.verdict
    logs = -np.logaddexp(0, sign * reports.predictors(parameters.judge))
    wrong, right = (np.bincount(reports.cell, x, count) for x in logs)
    wrong, right = wrong - np.logaddexp(0, prior), right - np.logaddexp(0, -prior)
    free = expit(right - wrong)
    unknown = np.isnan(reports.gold)
    value = np.where(
        unknown, np.logaddexp(right, wrong), np.where(reports.gold == 1, right, wrong)
    ).sum()
    penalty = np.sum(parameters.judge**2) / WIDE**2
    for effect, variance in zip(parameters[2:4], parameters.variances, strict=True):
        if variance:
            penalty += np.sum(effect**2) / variance + len(effect) * np.log(variance)
    return Truth(
        np.where(unknown, free, reports.gold),
        free,
        float(value),
        float(value - penalty / 2),
    )


def _prior(reports: Reports, parameters: JudgeParameters) -> np.ndarray:
    """`[cells]` prior log odds of truth."""
    effects = parameters.ability[reports.subject] - parameters.difficulty[reports.item]
    return parameters.mean + effects


def _maximised(
    reports: Reports, parameters: JudgeParameters, q: np.ndarray
) -> JudgeParameters:
    """A Newton step of each block: the judges, and mu, theta and b in turn."""
    judge = parameters.judge
    residual = reports.verdict - expit(reports.predictors(judge))
    slope = np.einsum("tr,trw->rw", reports.weights(q) * residual, reports.design)
    gradient = reports.by_judge(slope) - judge / WIDE**2
    information = _judge_information(reports, judge, q)
    step = np.linalg.solve(information, gradient[..., None])[..., 0]
    # A step of a nearly perfect judge may be far too long.
    step *= np.minimum(1, 2 / np.abs(step).max(axis=1, keepdims=True, initial=1e-9))
    parameters = parameters._replace(judge=judge + step)
    chance = expit(_prior(reports, parameters))
    shift = (q - chance).sum() / (chance * (1 - chance)).sum()
    parameters = parameters._replace(mean=parameters.mean + float(shift))
    if not parameters.variances[0]:
        return parameters
    variances = []
    for name, place, sign, variance in (
        ("ability", reports.subject, 1, parameters.variances[0]),
        ("difficulty", reports.item, -1, parameters.variances[1]),
    ):
        effect = getattr(parameters, name)
        chance = expit(_prior(reports, parameters))
        precision = (
            np.bincount(place, chance * (1 - chance), len(effect)) + 1 / variance
        )
        slope = sign * np.bincount(place, q - chance, len(effect)) - effect / variance
        effect = effect + slope / precision
        parameters = parameters._replace(**{name: effect})
        variances.append(float(np.mean(effect**2 + 1 / precision)))
    return parameters._replace(variances=(variances[0], variances[1]))


def _judge_information(
    reports: Reports, judge: np.ndarray, q: np.ndarray
) -> np.ndarray:
    """`[judges, width, width]` information of the complete data."""
    chance, x = expit(reports.predictors(judge)), reports.design
    curvature = reports.weights(q) * chance * (1 - chance)
    total = np.einsum("tr,trv,trw->rvw", curvature, x, x, optimize=True)
    return reports.by_judge(total) + np.eye(judge.shape[1]) / WIDE**2


def errors(
    reports: Reports, parameters: JudgeParameters, truth: Truth
) -> tuple[np.ndarray, csr_array]:
    """Covariance of judges' parameters, mu, theta and b, and d `[cells, parameters]`.

    Without abilities theta and b are left out.
    """
    judge, q = parameters.judge, truth.posterior
    (count, width), cells = judge.shape, len(q)
    residual = reports.verdict - expit(reports.predictors(judge))
    wrong, right = residual[..., None] * reports.design
    columns = reports.judge[:, None] * width + np.arange(width)
    places = np.repeat(reports.cell, width), columns.ravel()
    of_judges = coo_array(((right - wrong).ravel(), places), (cells, count * width))
    one_of = lambda place, sign: coo_array((sign + 0 * q, (np.arange(cells), place)))
    of_truth, prior = [one_of(0 * reports.subject, 1.0)], [np.zeros(1)]
    if parameters.variances[0]:
        of_truth += [one_of(reports.subject, 1.0), one_of(reports.item, -1.0)]
        effects = zip(parameters[2:4], parameters.variances, strict=True)
        prior += [np.full(len(effect), 1 / v) for effect, v in effects]
    truths = csr_array(hstack(of_truth))
    difference = csr_array(hstack([of_judges, truths]))
    share = expit(_prior(reports, parameters))
    curved = truths.multiply((share * (1 - share))[:, None])
    information = block_diag(
        *_judge_information(reports, judge, q),
        csr_array(truths.T @ curved).toarray() + np.diag(np.concatenate(prior)),
    )
    unknown = difference.multiply((q * (1 - q))[:, None])
    information -= csr_array(difference.T @ unknown).toarray()
    return np.linalg.inv(information), difference


def _judge_table(
    reports: Reports,
    parameters: JudgeParameters,
    truth: Truth,
    covariance: np.ndarray,
    labels: Mapping[str, np.ndarray],
    style: Sequence[str],
    half: float,
    gold_kappa: np.ndarray,
) -> pa.Table:
    """Rows of the judges."""
    import pyarrow as pa

    count, width = parameters.judge.shape
    blocks = covariance[: count * width, : count * width].reshape(
        count, width, count, -1
    )
    own = blocks[np.arange(count), :, np.arange(count)]
    columns: dict[str, Any] = {
        "judge": labels["judge"].tolist(),
        "reports": np.bincount(reports.judge, minlength=count),
    }
    totals = np.zeros(width)
    totals[:2] = 1.0
    alone = np.eye(width)[0]
    for name, direction in (("sensitivity", totals), ("specificity", -alone)):
        # Intervals of log odds, so that they stay between 0 and 1.
        value = parameters.judge @ direction
        error = np.sqrt(np.einsum("i,kij,j->k", direction, own, direction))
        columns[name] = expit(value)
        columns[f"{name}_se"] = expit(value) * expit(-value) * error
        columns[f"{name}_lower"] = expit(value - half * error)
        columns[f"{name}_upper"] = expit(value + half * error)
    for place, name in enumerate(style, 2):
        columns |= _style_bias(reports, parameters, truth, own, place, name, half)
    columns["gold_kappa"] = gold_kappa
    return pa.table(columns)


def _pair_table(reports: Reports, names: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Agreement of each two judges, and Cohen's kappa of each with the gold labels."""
    import pyarrow as pa

    gold = np.flatnonzero(np.isfinite(reports.gold))
    count = len(names)
    # The gold labels are one more rater.
    kappa = cohen_kappa(
        np.concatenate([reports.verdict, reports.gold[gold]]),
        np.concatenate([reports.judge, np.full(len(gold), count)]),
        np.concatenate([reports.cell, gold]),
    )
    first, second = np.triu_indices(count, 1)
    columns = {
        "judge_a": names[first].tolist(),
        "judge_b": names[second].tolist(),
        "responses": kappa.number[first, second].astype(int),
        "agreement": kappa.share[first, second],
        "kappa": kappa.kappa[first, second],
    }
    return pa.table(columns), kappa.kappa[:count, count]


def _style_bias(
    reports: Reports,
    parameters: JudgeParameters,
    truth: Truth,
    own: np.ndarray,
    place: int,
    name: str,
    half: float,
) -> dict[str, np.ndarray]:
    """Mean over a judge's reports of p (1 - p) gamma, in percentage points."""
    judge = parameters.judge
    chance, size = expit(reports.predictors(judge)), np.bincount(reports.judge)
    curvature = reports.weights(truth.posterior) * chance * (1 - chance)
    slope = reports.by_judge(curvature.sum(axis=0)) / size
    bend = curvature * (1 - 2 * chance) * judge[reports.judge, place]
    gradient = reports.by_judge(np.einsum("tr,trw->rw", bend, reports.design))
    gradient /= size[:, None]
    gradient[:, place] += slope
    value = 100 * judge[:, place] * slope
    error = 100 * np.sqrt(np.einsum("ki,kij,kj->k", gradient, own, gradient))
    return {
        f"{name}_bias": value,
        f"{name}_bias_se": error,
        f"{name}_bias_lower": value - half * error,
        f"{name}_bias_upper": value + half * error,
    }


def _accuracies(
    reports: Reports,
    truth: Truth,
    covariance: np.ndarray,
    difference: csr_array,
    labels: Mapping[str, np.ndarray],
) -> tuple[pa.Table, Abilities]:
    """Judged, corrected and rectified accuracies of subjects on their cells."""
    import pyarrow as pa

    count, place = len(labels["subject"]), reports.subject
    size = np.bincount(place, minlength=count)
    mean = lambda values: np.bincount(place, values, count) / size
    q, free = truth.posterior, truth.without_gold
    spread = q * (1 - q)
    average = coo_array(
        (spread / size[place], (place, np.arange(len(q)))), (count, len(q))
    )
    gradient = csr_array(average.tocsr() @ difference).toarray()
    errors = gradient @ covariance @ gradient.T + np.diag(mean(spread) / size)
    # Prediction-powered (Angelopoulos et al. 2023, Science 382): the cells are finite
    # and have all been judged, so the error is that of the gold sample alone.
    has_gold = np.isfinite(reports.gold)
    excess = np.where(has_gold, reports.gold - free, 0.0)
    num_gold = np.bincount(place, has_gold, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.bincount(place, excess, count) / num_gold
        inside = (excess - shift[place])[has_gold]
        freedom = max(has_gold.sum() - (num_gold > 0).sum(), 1)
        variance = np.sum(inside**2) / freedom * (1 - num_gold / size) / num_gold
    unsure = num_gold < 2
    verdicts = np.bincount(reports.cell, minlength=len(q))
    judged = mean(np.bincount(reports.cell, reports.verdict) / verdicts)
    corrected = mean(q)
    table = pa.table(
        {
            "subject": labels["subject"].tolist(),
            "judged": judged,
            "corrected": corrected,
            "corrected_se": np.sqrt(np.diagonal(errors)),
            "num_gold": num_gold.astype(int),
            "rectified": np.where(unsure, np.nan, mean(free) + shift),
            "rectified_se": np.where(unsure, np.nan, np.sqrt(variance)),
        }
    )
    names = labels["subject"].astype(str)
    pair = corrected, np.sqrt(np.diagonal(errors))
    heading = f"{counted(count, 'subject')}, accuracies corrected for judges"
    return table, Abilities(names, corrected, errors, pair, size, heading=heading)


def _reports(
    table: Any, gold: str, style: Sequence[str]
) -> tuple[Reports, dict[str, np.ndarray]]:
    """Checked arrays, and the names of judges, subjects and items."""
    columns = {}
    for name in ("subject", "item", "judge", "verdict", gold, *style):
        try:
            columns[name] = np.asarray(table[name])
        except KeyError:
            raise ValueError(f"fit_judges needs a column {name!r}") from None
    verdict = _zero_or_one(columns["verdict"], "verdict")
    if np.isnan(verdict).any():
        row = int(np.flatnonzero(np.isnan(verdict))[0])
        raise ValueError(f"row {row} has no verdict: leave such rows out")
    codes, labels = {}, {}
    for name in ("subject", "item", "judge"):
        labels[name], codes[name] = np.unique(
            np.asarray(columns[name], str), return_inverse=True
        )
    if len(labels["judge"]) < FEWEST_JUDGES:
        raise ValueError(
            f"{counted(len(labels['judge']), 'judge')}: their errors are identified by"
            f" {FEWEST_JUDGES} or more"
        )
    key = codes["subject"].reshape(-1) * len(labels["item"]) + codes["item"].reshape(-1)
    cells, cell = np.unique(key, return_inverse=True)
    truth = _gold(_zero_or_one(columns[gold], gold), cell, len(cells))
    design = np.zeros((2, len(verdict), 2 + len(style)))
    design[:, :, 0], design[1, :, 1] = 1.0, 1.0
    for k, name in enumerate(style, 2):
        numbers = np.asarray(columns[name], float)
        if not np.isfinite(numbers).all() or not numbers.std() > 0:
            raise ValueError(f"style {name!r} is not finite, or the same in all rows")
        design[:, :, k] = (numbers - numbers.mean()) / numbers.std()
    subject, item = np.divmod(cells, len(labels["item"]))
    judge = codes["judge"].reshape(-1)
    return Reports(
        verdict, judge, cell.reshape(-1), design, subject, item, truth
    ), labels


def _zero_or_one(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers 0, 1 or NaN."""
    try:
        numbers = np.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {name!r} has texts: give 1 for right, 0 for wrong"
        ) from None
    wrong = np.flatnonzero(~(np.isnan(numbers) | np.isin(numbers, (0, 1))))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"row {row} has {name} {numbers[row]:g}: give 1 or 0")
    return numbers


def _gold(values: np.ndarray, cell: np.ndarray, count: int) -> np.ndarray:
    """`[cells]` truth, checked to be one for a cell, enough, and of both kinds."""
    is_finite = np.isfinite(values)
    places = cell.reshape(-1)[is_finite]
    total, ones = (
        np.bincount(places, x, count) for x in (np.ones(len(places)), values[is_finite])
    )
    if ((ones > 0) & (ones < total)).any():
        raise ValueError("a response has the gold labels 0 and 1: give it one")
    truth = np.full(count, np.nan)
    truth[total > 0] = ones[total > 0] / total[total > 0]
    labels = truth[total > 0]
    if len(labels) < FEWEST_GOLD:
        raise ValueError(
            f"{counted(len(labels), 'gold response')}: label {FEWEST_GOLD} or more, or"
            " what judges miss is not identified"
        )
    if labels.min() == labels.max():
        raise ValueError("all gold responses are alike: label right and wrong ones")
    return truth

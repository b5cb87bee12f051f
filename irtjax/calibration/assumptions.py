"""Tests of what a fit assumes: one ability, normal abilities, independent trials.

They need the fit of the simple model only, and are fast enough for every fit.

One ability. Let u_ib be the slope of the log-likelihood of subject i's responses to
benchmark b in ability, and I_ib its Fisher information, at the estimates. Under one
ability the u_ib have variance I_ib, less what estimating the ability and the items
takes away. With z_ib = u_ib / sqrt(I_ib) less its projections on both,

    X = sum_ib z_ib^2  ~  chi^2 with (subjects - 1)(benchmarks - 1) degrees of freedom.

A group-specific ability of variance s^2 adds s^2 I_ib to the variance of u_ib
(Liang 1987, A locally most powerful test for homogeneity with many strata).

Normal abilities. With theta ~ N(0, 1) and a posterior N(m, v) given the responses, m is
N(0, 1 - v). So x = m / sqrt(1 - v) are standard normal, and their skewness and kurtosis
are tested by D'Agostino's and Anscombe and Glynn's transformations (D'Agostino,
Belanger and D'Agostino 1990). Skewness of x is (1 - v)^(3/2) times that of ability,
excess kurtosis (1 - v)^2 times.

Independent trials. Counts of n trials vary 1 + (n - 1) rho times as much where two
trials of a cell correlate by rho, which is estimated (`numerics.dispersion`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.blocks import Block
from irtjax.data.responses import AbstractResponses
from irtjax.numerics.dispersion import intraclass
from irtjax.numerics.programs import stored_jit

#: Level at which an assumption counts as violated.
LEVEL = 0.01
#: Subjects below which a test of the form of a distribution is not attempted.
FEWEST_SUBJECTS = 50
#: Mean reliability below which it is not either.
LEAST_RELIABILITY = 0.8
#: Skewness and excess kurtosis below which abilities count as normal: many subjects
#: make every departure significant.
SMALLEST_SKEWNESS, SMALLEST_KURTOSIS = 0.4, 0.8
#: The same of a standard deviation by benchmark, in median standard errors of ability:
#: a third adds at most a ninth to a variance, and so less than 6 % to an error.
SMALLEST_SD = 1 / 3
#: Factor of standard errors below which the dependence of trials does not matter.
SMALLEST_FACTOR = 1.1
#: Cells, and subjects at least, from which the dependence of trials is estimated.
MOST_CELLS, SOME_SUBJECTS = 200_000, 20
#: Numbers that the test of one ability makes of a cell, in addition to benchmarks.
CELL_NUMBERS = 12


class BenchmarkTest(NamedTuple):
    """X with its degrees of freedom and p-value: are abilities benchmark-specific?

    `sd` is the standard deviation of the group-specific abilities, estimated by
    moments; 0 where X is below its mean.
    """

    statistic: float
    degrees: int
    p_value: float
    sd: float

    def matters(self, error: np.ndarray) -> bool:
        """Whether abilities differ, by enough for standard errors of abilities."""
        least = SMALLEST_SD * np.nanmedian(error)
        return self.p_value < LEVEL and not self.sd < least


class NormalityTest(NamedTuple):
    """Estimated skewness and excess kurtosis of ability: is it normal?

    Skewness is above 0 where the upper tail is longer, kurtosis below 0 for flat or
    bimodal abilities. `p_value` is the smaller of two, Bonferroni-corrected.
    """

    skewness: float
    kurtosis: float
    p_value: float


class DependenceTest(NamedTuple):
    """Correlation of two trials of a cell, its error, and mean trials of a cell."""

    icc: float
    standard_error: float
    trials: float

    @property
    def worth(self) -> float:
        """Independent trials that those of a cell are worth."""
        return self.trials / (1 + (self.trials - 1) * self.icc)


@stored_jit
def chances(family: Any, items: Any, theta):
    """Expected shares of right responses, `theta` by subject and item."""
    over_items = jax.vmap(family.expected_response)
    return jax.vmap(over_items, in_axes=(None, 0))(items, theta)


def dependence_test(
    family: Any, items: Any, theta: np.ndarray, right: np.ndarray, trials: np.ndarray
) -> DependenceTest | None:
    """How much trials of a subject on an item agree beyond its ability.

    None where no cell has two trials. `theta` is `[subjects, items]`: each subject's
    ability for each item. Of large tables some subjects serve, drawn at random.

    >>> from irtjax.models.families.logistic import Binary, LogisticItems
    >>> one, zero = jnp.ones(30), jnp.zeros(30)
    >>> items = LogisticItems(one, zero, zero, one)
    >>> same = 4 * np.random.default_rng(0).integers(0, 2, (20, 30))
    >>> none, four = np.zeros((20, 30)), np.full((20, 30), 4)
    >>> found = dependence_test(Binary(), items, none, same, four)
    >>> found.icc > 0.99, found.worth < 1.01
    (True, True)
    """
    count, most = len(theta), max(MOST_CELLS // max(theta.shape[1], 1), SOME_SUBJECTS)
    if count > most:
        rows = np.random.default_rng(0).choice(count, most, replace=False)
        theta, right, trials = (x[rows] for x in (theta, right, trials))
    if not (trials > 1).any():
        return None
    chance = np.asarray(chances(family, items, jnp.asarray(theta)))
    icc = intraclass(chance, right, trials)
    if icc is None:
        return None
    mean = float(trials[trials > 0].mean())
    return DependenceTest(icc.icc, icc.standard_error, mean)


@stored_jit
def cell_slopes(family: Any, items: Any, theta, values, exposure):
    """Slopes of the log-likelihood in ability, and information, by cell."""
    log_prob = lambda at: family.log_prob(values, items, at, exposure)
    _, slope = jax.jvp(log_prob, (theta,), (jnp.ones_like(theta),))
    over_items = jax.vmap(family.information, in_axes=(0, None))
    information = jax.vmap(over_items, in_axes=(None, 0))(items, theta)
    if exposure is not None:
        information = information * exposure
    return slope, information


@stored_jit
def _sums_by_benchmark(
    family: Any, items: Any, theta: jax.Array, data: AbstractResponses, onto: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sums of slopes and of information of the cells, `[subjects, benchmarks]`.

    `onto` `[items, benchmarks]` has a 1 for the benchmark of each item.
    """

    def rows(block: Block) -> tuple[jax.Array, jax.Array]:
        records, theirs = block.columns((items, onto))
        values, exposure = block.values.astype(theta.dtype), block.exposure
        exposure = 1 if exposure is None else exposure.astype(theta.dtype)
        at = jnp.broadcast_to(block.rows(theta)[:, None], values.shape)
        natural = lambda at: tuple(block.at_cells(family.natural, records, at))
        _, (base, *rest) = jax.jvp(natural, (at,), (jnp.ones_like(at),))
        slope = base * exposure
        for statistic, each in zip(family.statistics(values), rest, strict=True):
            slope = slope + statistic * each
        information = block.at_cells(family.information, records, at) * exposure
        return block.sums(slope, theirs), block.sums(information, theirs)

    zeros = jnp.zeros((theta.shape[0], onto.shape[1]), theta.dtype)
    numbers = CELL_NUMBERS + onto.shape[1]
    return data.map_subjects(rows, (zeros, zeros), theta.dtype, numbers=numbers)


def one_ability_test(
    family: Any,
    items: Any,
    ability: np.ndarray,
    data: AbstractResponses,
    benchmarks: np.ndarray,
) -> BenchmarkTest | None:
    """Tests whether one ability explains the responses to all benchmarks.

    None with fewer than two benchmarks or three subjects. `benchmarks` are names
    `[items]`.

    >>> from irtjax.data.responses import Responses
    >>> from irtjax.models.families.logistic import Binary, LogisticItems
    >>> one, zero = jnp.ones(40), jnp.zeros(40)
    >>> items = LogisticItems(one, zero, zero, one)
    >>> data = Responses(jnp.kron(jnp.array([[1, 0], [0, 1], [1, 0]]), jnp.ones(20)))
    >>> names = np.repeat(["a", "b"], 20)
    >>> found = one_ability_test(Binary(), items, np.zeros(3), data, names)
    >>> found.degrees, found.p_value < 1e-6
    (2, True)
    """
    names, code = np.unique(benchmarks, return_inverse=True)
    if len(names) < 2 or len(ability) < 3:
        return None
    dtype = jnp.asarray(items[0]).dtype
    onto = jnp.asarray(np.eye(len(names))[code], dtype)
    theta = jnp.asarray(ability, dtype)
    sums = _sums_by_benchmark(family, items, theta, data, onto)
    slope, information = (np.asarray(x, float) for x in sums)
    return _benchmark_test(slope, information)


def _benchmark_test(slope: np.ndarray, information: np.ndarray) -> BenchmarkTest | None:
    """`one_ability_test` from slopes and information, `[subjects, benchmarks]`."""
    from scipy.special import chdtrc  # All of scipy.stats takes 0.5 s to import.

    # Benchmarks or subjects without information are left out.
    floor = 1e-3 * information.mean()
    weight = np.where(information > floor, information, 0.0)
    root = np.sqrt(weight)
    z = np.where(weight > 0, slope / np.where(weight > 0, root, 1.0), 0.0)
    # Out with what a subject's ability and a benchmark's mean difficulty explain: both
    # were estimated. Alternating projections; five are more than enough.
    for _ in range(5):
        for axis in (1, 0):
            along = np.sum(root**2, axis=axis, keepdims=True)
            share = np.sum(z * root, axis=axis, keepdims=True)
            z = z - root * share / np.where(along > 0, along, 1.0)
    used = weight > 0
    degrees = int(used.sum() - used.any(axis=1).sum() - used.any(axis=0).sum() + 1)
    if degrees < 1:
        return None
    statistic = float(np.sum(z**2))
    excess = max(statistic - degrees, 0.0)
    share = degrees / max(used.sum(), 1)
    sd = float(np.sqrt(excess / max(share * weight.sum(), 1e-12)))
    return BenchmarkTest(statistic, degrees, float(chdtrc(degrees, statistic)), sd)


def normality_test(ability: np.ndarray, variance: np.ndarray) -> NormalityTest | None:
    """Tests whether abilities are standard normal, from their posteriors.

    `ability` are posterior means under a standard normal population, `variance`
    posterior variances with fixed items. None with fewer than `FEWEST_SUBJECTS`
    subjects, or a reliability below `LEAST_RELIABILITY`: posteriors of short tests are
    not normal themselves.

    >>> from scipy.special import ndtri
    >>> normal = ndtri((np.arange(400) + 0.5) / 400)
    >>> variance = np.full(400, 1e-6)
    >>> normality_test(normal, variance).p_value > 0.5
    True
    >>> skewed = -np.log1p(-(np.arange(400) + 0.5) / 400) - 1
    >>> normality_test(skewed, variance).p_value < 1e-3
    True
    """
    finite = np.isfinite(ability) & np.isfinite(variance) & (variance < 1)
    mean, reliability = np.asarray(ability, float)[finite], 1 - variance[finite]
    if len(mean) < FEWEST_SUBJECTS or reliability.mean() < LEAST_RELIABILITY:
        return None
    standard = mean / np.sqrt(reliability)
    if np.ptp(standard) == 0:
        return None
    size, count = float(reliability.mean()), len(standard)
    centred = standard - standard.mean()
    powers = centred**2, centred**2 * centred, centred**2 * centred**2
    second, third, fourth = (float(np.mean(power)) for power in powers)
    skewness, kurtosis = third / second**1.5, fourth / second**2
    z = z_of_skewness(skewness, count), z_of_kurtosis(kurtosis, count)
    # Two-sided, by Bonferroni's correction for two tests.
    p_value = min(1.0, 2 * math.erfc(max(map(abs, z)) / 2**0.5))
    return NormalityTest(skewness / size**1.5, (kurtosis - 3) / size**2, p_value)


def z_of_skewness(skewness: float, n: int) -> float:
    """Standard normal score of the skewness of n normal draws (D'Agostino 1970).

    As `scipy.stats.skewtest`; all of scipy.stats takes 0.5 s to import.
    """
    y = skewness * math.sqrt((n + 1) * (n + 3) / (6 * (n - 2)))
    beta = 3 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3)
    beta /= (n - 2) * (n + 5) * (n + 7) * (n + 9)
    square = math.sqrt(2 * (beta - 1)) - 1
    return math.asinh(y * math.sqrt((square - 1) / 2)) / math.sqrt(math.log(square) / 2)


def z_of_kurtosis(kurtosis: float, n: int) -> float:
    """The same of the kurtosis, 3 where normal (Anscombe and Glynn 1983)."""
    variance = 24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    x = (kurtosis - 3 * (n - 1) / (n + 1)) / math.sqrt(variance)
    root = 6 * (n**2 - 5 * n + 2) / ((n + 7) * (n + 9))
    root *= math.sqrt(6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    a = 6 + 8 / root * (2 / root + math.sqrt(1 + 4 / root**2))
    ratio = (1 - 2 / a) / (1 + x * math.sqrt(2 / (a - 4)))
    return (1 - 2 / (9 * a) - math.cbrt(ratio)) / math.sqrt(2 / (9 * a))


def of_dependence(test: DependenceTest | None) -> list[str]:
    """What dependent trials mean for the numbers, and what to do.

    >>> of_dependence(DependenceTest(0.5, 0.01, 10.0))[0][:46]
    'repeated responses to an item agree beyond abi'
    >>> of_dependence(DependenceTest(0.01, 0.002, 3.0))
    []
    """
    if test is None or test.icc < 2 * test.standard_error:
        return []
    factor = math.sqrt(test.trials / test.worth)
    if factor < SMALLEST_FACTOR:
        return []
    return [
        "repeated responses to an item agree beyond ability (correlation"
        f" {test.icc:.2f}): {test.trials:.3g} trials are worth {test.worth:.2g}"
        f" independent ones, as which they count; standard errors are up to"
        f" {factor:.1f} times too small, and too many pairs differ: read with"
        " trials='mean' and fit the model share, which counts them as what they are"
        " worth"
    ]


def note_of_benchmarks(test: BenchmarkTest | None, error: np.ndarray) -> list[str]:
    """That errors count the choice of benchmarks, if they do.

    `error` are the standard errors of abilities without it.

    >>> found = BenchmarkTest(90.0, 20, 1e-9, 0.4)
    >>> note_of_benchmarks(found, np.array([0.3, 0.5]))[0][:41]
    'abilities differ by benchmark (p < 0.001,'
    >>> note_of_benchmarks(found, np.array([1.3, 1.5]))
    []
    """
    if test is None or not test.matters(error):
        return []
    return [
        f"abilities differ by benchmark ({_p(test.p_value)}, standard deviation"
        f" {test.sd:.2f} around one ability): subjects are ranked by mean responses,"
        " whose errors count these benchmarks as a sample of others; expected scores"
        " are on these; the model 'multibenchmark' has an ability for each"
    ]


def warnings_of(normality: NormalityTest | None) -> list[str]:
    """What violated assumptions mean for the numbers, and what to do."""
    said = []
    if normality is not None and normality.p_value < LEVEL and _matters(normality):
        said.append(
            "abilities are not normal, as assumed (skewness"
            f" {normality.skewness:.1f}, excess kurtosis {normality.kurtosis:.1f},"
            f" {_p(normality.p_value)}): intervals of the highest and lowest abilities"
            " cover less often than stated; order and expected scores are little"
            " affected; method='em' with population='histogram' estimates the form"
        )
    return said


def untested(num_subjects: int, normal: bool) -> list[str]:
    """A note where abilities of enough subjects are measured too badly for a test.

    >>> untested(40, True), len(untested(90, True))
    ([], 1)
    """
    if not normal or num_subjects < FEWEST_SUBJECTS:
        return []
    return [  # Short tests: the highest are shrunk most.
        "assumed and not tested: normal abilities (reliability is below"
        f" {LEAST_RELIABILITY:g}); intervals of the highest and lowest abilities cover"
        " less often than stated; ranks and tests of pairs change little"
    ]


def _matters(test: NormalityTest) -> bool:
    """Whether a departure is large enough to matter for intervals at the ends."""
    return (
        abs(test.skewness) > SMALLEST_SKEWNESS or abs(test.kurtosis) > SMALLEST_KURTOSIS
    )


def _p(value: float) -> str:
    """A p-value in words."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"

"""The embedded example: a simulated leaderboard with a known truth.

Sixty models of known ability answer three benchmarks of differing quality.
"reasoning" separates models sharply where they are; "trivia" is noisy, and five of its
answer keys are wrong; "arithmetic" is saturated, so easy that most models solve most
of it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax._types import RandomKey
from irtjax.data import ResponseTable
from irtjax.data.frames import HasTable
from irtjax.numerics.seeds import seed_of

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

_MAKERS = (
    *("aurora", "basalt", "cobalt", "delta", "ember", "fjord"),
    *("garnet", "harbor", "indigo", "juniper", "krill", "lumen"),
)
_SIZES = (("1b", -1.1), ("3b", -0.55), ("8b", 0.0), ("30b", 0.55), ("70b", 1.1))
#: Name, items, median discrimination and SD of its log, mean and sd of difficulty.
_BENCHMARKS = (
    ("reasoning", 60, 1.6, 0.25, 0.1, 0.9),
    ("trivia", 50, 0.65, 0.3, 0.0, 1.2),
    ("arithmetic", 40, 1.2, 0.25, -2.0, 0.7),
)
_NUM_BAD = 5
_MISSING = 0.03


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Demo(HasTable):
    """Simulated responses and their truth.

    Attributes:
        table: The responses, with benchmarks.
        ability: `[subjects]` true abilities, mean 0 and standard deviation 1.
        discrimination: `[items]`; negative where the key is wrong.
        intercept: `[items]`.
        bad: `[items]` whether the answer key is wrong.
    """

    table: ResponseTable
    ability: np.ndarray
    discrimination: np.ndarray
    intercept: np.ndarray
    bad: np.ndarray

    @property
    def sentence(self) -> str:
        """Where the truth is."""
        return "The truth: .ability, .discrimination, .intercept and .bad."

    def _shown(self) -> Any:
        return self.table._shown()

    def _heading(self) -> str:
        return self.table._heading()


class BenchmarkCloseness(NamedTuple):
    """How one benchmark was recovered, over its sound items."""

    benchmark: str
    num_items: int
    true_discrimination: float
    estimated_discrimination: float
    difficulty_rmse: float
    information_share: float


class Closeness(NamedTuple):
    """How close a fit of the example is to its truth.

    Attributes:
        ability_spearman: Rank correlation of estimated with true abilities.
        accuracy_spearman: Rank correlation of plain accuracies with true abilities.
        ability_rmse: Root mean squared error of ability.
        difference_coverage: Share of the intervals of differences between two
            abilities that cover the truth, over all pairs. (The true abilities are
            standardised here: the errors of location and scale, which ability
            intervals count too, do not arise.)
        difficulty_rmse: Root mean squared error of difficulty over the sound items
            whose standard error of difficulty is below 1. The fit itself flags the
            others (saturated or flat).
        difficulty_coverage: Share of the intervals of sound items' intercepts that
            cover the truth.
        num_located, num_sound: Items in `difficulty_rmse`, in `difficulty_coverage`.
        caught: Planted bad items that were flagged for negative discrimination.
        missed: Planted bad items that were not.
        false_alarms: Sound items that were.
    """

    level: float
    ability_spearman: float | None
    accuracy_spearman: float | None
    ability_rmse: float
    difference_coverage: float
    difficulty_rmse: float
    difficulty_coverage: float
    num_located: int
    num_sound: int
    caught: tuple[str, ...]
    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]
    benchmarks: tuple[BenchmarkCloseness, ...]


def make_demo(key: RandomKey | None = None) -> Demo:
    """Simulates the example: P(right) = sigmoid(a ability + d), 3 % missing.

    Args:
        key: A whole number or a JAX key, for all draws.

    Returns:
        Responses and truth.

    >>> demo = make_demo()
    >>> demo.table.num_subjects, demo.table.num_items, int(demo.bad.sum())
    (60, 150, 5)
    """
    seed = seed_of(key)
    random = np.random.default_rng(seed)
    names = [f"{maker}-{size}" for maker in _MAKERS for size, _ in _SIZES]
    skill = np.repeat(random.normal(0, 0.6, len(_MAKERS)), len(_SIZES))
    skill = skill + np.tile([lift for _, lift in _SIZES], len(_MAKERS))
    skill = skill + random.normal(0, 0.25, len(names))
    ability = (skill - skill.mean()) / skill.std()
    slopes, intercepts, items, benchmark = [], [], [], []
    for name, count, slope, log_sd, middle, sd in _BENCHMARKS:
        part = slope * np.exp(random.normal(0, log_sd, count))
        slopes.append(part)
        intercepts.append(-part * random.normal(middle, sd, count))
        items += [f"{name}/{k + 1:02d}" for k in range(count)]
        benchmark += [name] * count
    discrimination, intercept = np.concatenate(slopes), np.concatenate(intercepts)
    noisy = np.flatnonzero(np.array(benchmark) == "trivia")
    bad = np.zeros(len(items), bool)
    bad[random.choice(noisy, _NUM_BAD, replace=False)] = True
    # A wrong key turns right responses into wrong ones: both signs turn.
    discrimination = np.where(bad, -2 * discrimination, discrimination)
    intercept = np.where(bad, -intercept, intercept)
    chance = 1 / (1 + np.exp(-(ability[:, None] * discrimination + intercept)))
    right = random.random(chance.shape) < chance
    table = ResponseTable.from_arrays(
        right,
        subjects=names,
        items=items,
        observed=random.random(chance.shape) >= _MISSING,
        benchmark=benchmark,
        metric="accuracy",
        sources=(f"simulated example, seed {seed}",),
    )
    return Demo(table, ability, discrimination, intercept, bad)


def judge(fit: Calibration, demo: Demo) -> Closeness:
    """Compares a fit of the example with its truth."""
    from scipy.special import ndtri

    from irtjax.ranking import pairwise
    from irtjax.subsets.errors import spearman

    items, abilities = fit.items.table.to_pydict(), fit.abilities.table.to_pydict()
    place = {name: k for k, name in enumerate(demo.table.subjects.tolist())}
    true = demo.ability[[place[name] for name in abilities["subject"]]]
    ability = np.array(abilities["ability"], float)
    half = float(ndtri(0.5 + fit.level / 2))
    error = np.array(abilities["ability_se"], float)
    gap = pairwise(ability - true, error, shared=fit.ability_shared)
    inside = np.abs(gap.z)[np.triu_indices(len(true), 1)] <= half
    intercept = np.array(items["intercept"], float)
    error = np.array(items["intercept_se"], float)
    sound = ~demo.bad
    covered = np.abs(intercept - demo.intercept) <= half * error
    located = sound & (np.array(items["difficulty_se"], float) < 1)
    negative = np.array(["negative discrimination" in f for f in items["flags"]])
    names = demo.table.items

    def chosen(mask: np.ndarray) -> tuple[str, ...]:
        return tuple(names[mask].tolist())

    return Closeness(
        level=fit.level,
        ability_spearman=spearman(ability, true),
        accuracy_spearman=spearman(abilities["accuracy"], true),
        ability_rmse=float(np.sqrt(np.mean((ability - true) ** 2))),
        difference_coverage=float(inside.mean()),
        difficulty_rmse=_difficulty_rmse(demo, items, located),
        difficulty_coverage=float(covered[sound].mean()),
        num_located=int(located.sum()),
        num_sound=int(sound.sum()),
        caught=chosen(demo.bad & negative),
        missed=chosen(demo.bad & ~negative),
        false_alarms=chosen(sound & negative),
        benchmarks=_by_benchmark(fit, demo, items, located),
    )


def _difficulty_rmse(demo: Demo, items: dict[str, list], rows: np.ndarray) -> float:
    """Root mean square error of the difficulties of items of a mask."""
    estimate = np.array(items["difficulty"], float)
    error = (estimate + demo.intercept / demo.discrimination)[rows]
    return float(np.sqrt(np.mean(error**2))) if rows.any() else float("nan")


def _by_benchmark(
    fit: Calibration, demo: Demo, items: dict[str, list], located: np.ndarray
) -> tuple[BenchmarkCloseness, ...]:
    """How close the items of each benchmark are to the truth."""
    import jax
    import jax.numpy as jnp

    from irtjax.inference.information import item_information

    records = jax.tree.map(jnp.asarray, fit.parameters.items)
    # At the abilities of the subjects, where information counts.
    theta = jnp.asarray(demo.ability, records[0].dtype)
    information = np.asarray(item_information(fit.model, records, theta)).mean(0)
    slope = np.array(items["discrimination"], float)
    rows = []
    for name, *_ in _BENCHMARKS:
        mine = demo.table.benchmarks == name
        sound = mine & ~demo.bad
        values = (
            demo.discrimination[sound].mean(),
            slope[sound].mean(),
            _difficulty_rmse(demo, items, mine & located),
            information[mine].sum() / information.sum(),
        )
        rows.append(BenchmarkCloseness(name, int(mine.sum()), *map(float, values)))
    return tuple(rows)

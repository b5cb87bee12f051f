"""Studies of simulated responses: sizes, temperature, missing cells, redundancy."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import kendalltau

import irtjax
from experiments.cbmm.designs import Simulated, by_place, simulated
from experiments.cbmm.methods import (
    EARLY,
    METHODS,
    Found,
    data_of,
    fits,
    left_gradient,
    left_kkt,
    share_diverging,
)
from experiments.cbmm.printed import printed
from experiments.scaling import mirt, pyirt
from irtjax.functional import log_likelihood
from irtjax.validity.discrimination_path import discrimination_path
from irtjax.validity.missing_matrix import missing_by_ability
from irtjax.validity.recovery import (
    aligned_rmse,
    hellinger,
    relative_error,
    selection,
    spearman,
)

Row = dict[str, Any]
#: Methods without a plain joint likelihood to be a stationary point of.
OTHER = ("mm", "em", "gradient", "additive", mirt.NAME, pyirt.NAME)
#: Cells up to which `speed` runs SciPy, which takes minutes above;
#: `experiments/scaling --case factors` has it at 2,211 x 12,032.
SCIPY_CELLS = 2_000_000
#: Selections of items that `redundancy` has besides those of the methods.
SELECTIONS = ("audit", "l1 path")
#: Share of false discoveries that selections are to keep.
FALSE = 0.05


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large a run of the studies is.

    `fixed` and `sizes` are of the study of sizes, `cells` of temperature and missing
    cells, `rates` and `gates` the shares missing, `zeros` those of redundant items,
    `starts` those of each variance on matrices of at most `side` rows and columns,
    `most` the largest side of other suites, and `speed` numbers of items for
    `speed_rows` subjects. Replicates are numbered from `first`, and `methods` are those
    that were chosen (none: all).
    """

    replicates: int
    fixed: int
    sizes: Sequence[int]
    cells: tuple[int, int]
    rates: Sequence[float]
    gates: Sequence[float]
    zeros: Sequence[float]
    logs: Sequence[float]
    starts: int
    side: int
    most: int
    speed: Sequence[int]
    speed_rows: int
    first: int = 0
    methods: Sequence[str] = ()

    @property
    def seeds(self) -> range:
        """Numbers of the replicates."""
        return range(self.first, self.first + self.replicates)

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that were chosen."""
        return [name for name in names if name in self.methods or not self.methods]


QUARTERS = tuple(np.arange(-3, 4) / 4)
SCALES = {
    # One size, so that most studies have the same compiled programs.
    "small": Scale(
        1, 60, (60,), (60, 60), (0.5,), (0.3,), (0.3,), (0.0,), 2, 60, 60, (60,), 60
    ),
    "medium": Scale(
        3, 400, (100, 400, 800), (300, 300), (0.2, 0.4, 0.6, 0.8), (0.1, 0.3, 0.5),
        (0.05, 0.1, 0.3, 0.5), QUARTERS, 8, 200, 300, (541, 1192, 5761), 500,
    ),
    "full": Scale(
        50, 1000, (200, 500, 1000, 2000, 5000), (1000, 1000),
        tuple(np.arange(1, 9) / 10), tuple(np.arange(1, 6) / 10),
        (0.05, 0.1, 0.2, 0.3, 0.4, 0.5), QUARTERS, 50, 100_000, 100_000,
        (541, 756, 1192, 1324, 5761, 12032), 2211,
    ),
}  # fmt: skip


def rows_of(
    name: str,
    drawn: Sequence[Simulated],
    seeds: Sequence[int],
    also: Callable[..., Row] | None = None,
) -> list[Row]:
    """All measures of the fits of replicates, and those of `also(drawn, found)`.

    The replicates have one size, pattern and temperature.
    """
    masks = [x.observed for x in drawn if x.observed is not None]
    given = [x.values for x in drawn], masks or None, seeds, drawn[0].temperature
    rows: list[Row] = []
    for one, fit in zip(drawn, fits(name, *given), strict=True):
        row: Row = {"method": name}
        if isinstance(fit, RuntimeError):  # A peer that fails on these data.
            rows.append(row | {"status": str(fit)})
            continue
        row |= measures(name, one, fit) | {"seconds": fit.seconds.clock}
        rows.append(row | (also(one, fit) if also else {}))
    return rows


def measures(name: str, drawn: Simulated, found: Found) -> Row:
    """How far a fit is from the truth, and how it ended."""
    point, (items, theta) = (found.items, found.theta), drawn.truth
    errors = aligned_rmse(drawn.truth, point)
    plain, residual = None, found.residual
    if name not in OTHER:
        plain = left_gradient(found, drawn.values, drawn.observed)
        if residual is None:
            residual = left_kkt(found, drawn.values, drawn.observed)
    subjects, columns = share_diverging(found, drawn.values, drawn.observed)
    shift_theta, shift_d = shifts(drawn, found)
    values = {
        "spearman_theta": spearman(theta, found.theta),
        "spearman_a": spearman(items.discrimination, found.items.discrimination),
        "rmse_theta": errors.ability,
        "rmse_a": errors.discrimination,
        "rmse_d": errors.intercept,
        "shift_theta": shift_theta,
        "shift_d": shift_d,
        "slope_ratio": jnp.median(found.items.discrimination)
        / jnp.median(items.discrimination * jnp.std(theta)),
        "relative_error": relative_error(drawn.truth, point),
        "hellinger": hellinger(drawn.truth, point),
    }
    return {k: float(v) for k, v in values.items()} | {
        "steps": found.steps,
        "status": found.status,
        "residual": residual,
        "gradient": plain,
        "diverging_subjects": subjects,
        "diverging_items": columns,
    }


def shifts(drawn: Simulated, found: Found) -> tuple[float, float]:
    """Mean errors of abilities, and of intercepts of items with finite estimates.

    On the scale of `aligned_rmse`. Items whose observed responses are all right, or all
    wrong, have no finite estimate.
    """
    items, theta = drawn.truth
    mean, sd = jnp.mean(theta), jnp.std(theta)
    seen = True if drawn.observed is None else drawn.observed
    share = np.mean(drawn.values, axis=0, where=seen)
    differ = (share > 0) & (share < 1)
    error = np.asarray(found.items.intercept - items.intercept)
    error = error - np.asarray(items.discrimination * mean)
    shift = np.mean(error, where=differ)
    return float(jnp.mean(found.theta - (theta - mean) / sd)), float(shift)


def over(
    settings: Sequence[Row],
    make: Callable[..., Simulated],
    scale: Scale,
    also: Callable[..., Row] | None = None,
) -> list[Row]:
    """Rows of every chosen method on every setting and replicate."""
    rows = []
    for setting in settings:
        drawn = [make(seed=seed, **setting) for seed in scale.seeds]
        for name in scale.chosen(tuple(METHODS)):
            found = rows_of(name, drawn, scale.seeds, also)
            rows += [
                setting | {"replicate": seed} | row
                for seed, row in zip(scale.seeds, found, strict=True)
            ]
    return rows


def sizes(scale: Scale) -> list[Row]:
    """More items and more subjects: which errors fall, and how fast."""
    pairs = [(scale.fixed, x) for x in scale.sizes]
    pairs += [(x, scale.fixed) for x in scale.sizes if x != scale.fixed]
    settings = [{"rows": n, "columns": j} for n, j in pairs]
    return over(settings, simulated, scale)


def temperature(scale: Scale) -> list[Row]:
    """The logits over s: weak signal for large s, separation for small s."""
    settings = [{"log10_s": float(x)} for x in scale.logs]
    make = lambda seed, log10_s: simulated(*scale.cells, seed, temperature=10**log10_s)
    return over(settings, make, scale)


def missing(scale: Scale) -> list[Row]:
    """Cells missing at random, by place, and wrong responses of gated items."""
    rates = {"mcar": (0.0, *scale.rates), "mar": scale.rates}
    rates["mnar"] = scale.gates
    settings = [
        {"pattern": pattern, "rate": float(rate)}
        for pattern, each in rates.items()
        for rate in each
    ]
    make = lambda seed, **setting: simulated(*scale.cells, seed, **setting)
    rows = over(settings, make, scale)
    for setting in settings:
        if setting["pattern"] != "mnar" or not scale.chosen(("em",)):
            continue
        drawn = [make(seed=seed, **setting) for seed in scale.seeds]
        # Here what is missing was wrong: reading it as wrong restores the data.
        wrong = [
            one._replace(values=np.where(one.observed, one.values, 0), observed=None)
            for one in drawn
        ]
        rows += [
            setting | {"replicate": seed} | row | {"method": "em, as wrong"}
            for seed, row in zip(
                scale.seeds, rows_of("em", wrong, scale.seeds), strict=True
            )
        ]
    name = {"pattern": "mcar", "method": "printed, 30 x 20"}
    # Forty tables whatever the number of replicates.
    seeds = range(40 if len(scale.rates) > 1 else 4)
    rises = [
        name | {"rate": rate, "replicate": seed, "runs_that_rise": _rises(seed, rate)}
        for rate in (0.0, 0.5, 0.8, 0.9)
        for seed in seeds
        if scale.chosen(("printed",)) and not scale.first
    ]
    achieved = by_place(*scale.cells, 0.4).mean()
    assert abs(achieved - 0.4) < 1e-6
    return rows + rises


def missingness(scale: Scale) -> list[Row]:
    """The test of `irtjax.missingness`: size at random and by place, power of gates.

    Of gates a tenth of the other cells is missing at random, so that items without a
    gate are tested too. `size` is the share of items without a gate with p <= 0.05,
    `power` that of gated items that are flagged, `false_share` the share of flagged
    items that have no gate.
    """
    rates = [float(rate) for rate in scale.rates]
    settings = [(p, rate) for p in ("mcar", "mar") for rate in rates]
    settings += [("mnar", float(rate)) for rate in scale.gates]
    rows = []
    for pattern, rate in settings:
        for seed in scale.seeds:
            drawn = simulated(*scale.cells, seed, pattern=pattern, rate=rate)
            seen, gated = drawn.observed, np.zeros(scale.cells[1], bool)
            assert seen is not None
            if pattern == "mnar":
                gated = ~seen.all(axis=0)
                rng = np.random.default_rng([seed, 1])
                seen = seen & (gated | (rng.random(seen.shape) >= 0.1))
            found = missing_by_ability(np.where(seen, drawn.values, 0), seen)
            flagged = np.array([x is not None for x in found.more_for(0.05)])
            rows.append(
                {
                    "pattern": pattern,
                    "rate": rate,
                    "replicate": seed,
                    "size": float(np.mean(found.p_value[~gated] <= 0.05)),
                    "power": float(flagged[gated].mean()) if gated.any() else None,
                    "any_flag": float(flagged.any()),
                    "false_share": float((flagged & ~gated).sum())
                    / max(int(flagged.sum()), 1),
                }
            )
    return rows


def _rises(seed: int, rate: float) -> int:
    """Whether the printed algorithm raises its loss in some of 200 steps."""
    drawn = simulated(30, 20, seed, pattern="mcar", rate=rate)
    assert drawn.observed is not None
    sign = np.where(drawn.observed, 2.0 * drawn.values - 1, 0)
    found = printed(jnp.asarray(sign), jax.random.key(seed), -1.0, max_steps=200)
    return int(found[-1] > 0)


def redundancy(scale: Scale) -> list[Row]:
    """Items with a discrimination of 0: found by each method, the audit, the l1 path.

    A method selects the items whose estimate is not 0. The l1 path has a row for each
    level, the chance that an item which does not discriminate is kept, and one at its
    first point where at most 5 % of the kept items are expected to be false.
    """
    side = scale.cells[0]
    make = lambda seed, zeros: simulated(side, side, seed, zeros=zeros)
    settings = [{"zeros": float(x)} for x in scale.zeros]
    rows = over(settings, make, scale, lambda drawn, found: _selected(
        drawn, found.items.discrimination != 0))  # fmt: skip
    for setting in settings:
        for seed in scale.seeds:
            drawn = make(seed=seed, **setting)
            table = irtjax.ResponseTable.from_arrays(drawn.values)
            label = setting | {"replicate": seed}
            if scale.chosen(("audit",)):
                report = irtjax.audit(irtjax.fit(table, "2pl"), table)
                kept = [bool(x) for x in report.items["discriminates"].to_pylist()]
                rows.append(label | {"method": "audit"} | _selected(drawn, kept))
            if scale.chosen(("l1 path",)):
                rows += [label | row for row in _on_path(drawn, table)]
    return rows


def _selected(drawn: Simulated, kept) -> Row:
    """Recall and precision of a selection, and the precision of a constraint alone."""
    has = drawn.truth[0].discrimination > 0
    zeros = 1 - float(jnp.mean(has))
    recall, precision = map(float, selection(has, jnp.asarray(kept)))
    scores = {"recall": recall, "precision": precision}
    return scores | {"limit": (1 - zeros) / (1 - zeros / 2)}


def _on_path(drawn: Simulated, table: irtjax.ResponseTable) -> list[Row]:
    """Items kept by the path of lasso penalties, by level and by false discoveries."""
    path = discrimination_path(table)
    kept, points = path.discrimination > 0, path.table
    rows: list[Row] = [
        {"method": "l1 path", "level": round(level, 4)} | _selected(drawn, those)
        for level, those in zip(points["level"].to_pylist(), kept, strict=True)
    ]
    bounded = np.flatnonzero(points["false_discovery_rate"].to_numpy() <= FALSE)
    those = kept[bounded[0] if bounded.size else -1]
    return [*rows, {"method": "l1 path, 5 % false"} | _selected(drawn, those)]


def resampling(scale: Scale) -> list[Row]:
    """Kendall's tau of two new tests, and of two resamples of the items of one test.

    By sums of responses, whose order is that of 1PL abilities: `irtjax.stability` gives
    the same ranks (tests/validity/test_stability.py), and this takes no fits.
    """
    rows = []
    tau = lambda x, y: float(np.asarray(kendalltau(x, y))[0])
    for subjects, items in ((10, 240), (40, 100)):
        for seed in range(50 * scale.first, 50 * scale.seeds.stop):
            rng = np.random.default_rng([seed, subjects])
            theta, tests = rng.normal(size=(subjects, 1)), []
            for _ in range(6):
                slope, easy = (
                    np.exp(0.4 * rng.normal(size=items)),
                    rng.normal(size=items),
                )
                chance = 1 / (1 + np.exp(-slope * theta - 1.5 * easy))
                tests.append((rng.random(chance.shape) < chance).astype(float))
            sums = [test.sum(axis=1) for test in tests]
            weight = rng.multinomial(items, np.full(items, 1 / items), size=60)
            resampled = weight @ tests[0].T
            ranks = 1 + (resampled[:, None] > resampled[:, :, None]).sum(axis=2)
            low, high = np.quantile(ranks, [0.025, 0.975], axis=0, method="nearest")
            true = 1 + (theta.ravel() > theta).sum(axis=1)
            pairs = zip(resampled, np.roll(resampled, -1, axis=0), strict=True)
            new = zip(sums, sums[1:], strict=False)
            rows.append(
                {
                    "subjects": subjects,
                    "items": items,
                    "replicate": seed,
                    "tau of new tests": np.mean([tau(x, y) for x, y in new]),
                    "tau of resamples": np.mean([tau(x, y) for x, y in pairs]),
                    "true ranks inside": np.mean((low <= true) & (true <= high)),
                }
            )
    return rows


def degenerate(scale: Scale) -> list[Row]:
    """Data on which the paper's peers fail: finite numbers and flags here."""
    size = min(80, scale.cells[1])
    base = simulated(size, 20, 0).values.astype(float)
    cases = {name: base.copy() for name in ("near-constant", "identical", "duplicated")}
    cases["near-constant"][1:, :5] = 1
    cases["identical"][:, 1:5] = base[:, :1]
    cases["duplicated"][1 : size // 2] = base[0]
    ordered = np.argsort(base[:, 1:].sum(axis=1))
    cases["separable"] = base.copy()
    cases["separable"][ordered, 0] = np.arange(size) >= size // 2
    single = np.full(base.shape, np.nan)
    single[np.arange(size), np.arange(size) % 20] = base[
        np.arange(size), np.arange(size) % 20
    ]
    cases["one response a row"] = single
    rows = []
    for name, values in cases.items():
        table = irtjax.ResponseTable.from_arrays(values)
        for method in ("em", "mm"):
            fit = irtjax.fit(table, "2pl", method, standard_errors="none")
            numbers = [
                *fit.parameters.items[:2],
                fit.abilities.table["ability"].to_numpy(),
            ]
            flags = [x for x in fit.items.table.column("flags").to_pylist() if x]
            finite = all(np.isfinite(np.asarray(x)).all() for x in numbers)
            rows.append(
                {
                    "case": name,
                    "method": method,
                    "finite": finite,
                    "status": fit.status.name,
                    "flagged_items": len(flags),
                    "separated": int(
                        np.sum(fit.items.table["separated"].to_numpy(False))
                    ),
                    "warnings": len(fit.warnings),
                }
            )
    return rows


def speed(scale: Scale) -> list[Row]:
    """Seconds by number of items, at the paper's stop and at a small KKT residual.

    `gb` is the memory of the compiled program, in 10^9 bytes: responses, results and
    temporaries (of SciPy, of one evaluation of its loss).
    """
    rows, subjects = [], scale.speed_rows
    for columns, seed in itertools.product(scale.speed, scale.seeds):
        drawn = simulated(subjects, columns, seed)
        names = ["mm", "mm, penalty 0", "printed", *EARLY]
        if subjects * columns <= SCIPY_CELLS:
            names += ["scipy", *(x for x in (mirt.NAME, pyirt.NAME) if x in METHODS)]
        for name in names:
            load = os.getloadavg()[0]
            (found,) = fits(name, [drawn.values], None, [seed])
            row: Row = {"subjects": subjects, "items": columns, "method": name}
            row["replicate"] = seed
            if isinstance(found, RuntimeError):  # A peer that fails on these data.
                rows.append(row | {"status": str(found)})
                continue
            residual = found.residual
            if residual is None:
                residual = left_kkt(found, drawn.values, None)
            rows.append(
                row
                | {
                    "seconds": found.seconds.clock,
                    "processor_seconds": found.seconds.processor,
                    "gb": None if found.memory is None else found.memory / 1e9,
                    "load": load,
                    "steps": found.steps,
                    "status": found.status,
                    "residual": residual,
                    "gradient": left_gradient(found, drawn.values, None),
                    "log_likelihood": float(_height(found, drawn)),
                }
            )
            print("  ", rows[-1], flush=True)
    return rows


def _height(found, drawn: Simulated) -> jax.Array:
    model, data = irtjax.MODELS["2pl"](None), data_of(drawn.values, None)
    return log_likelihood(model, found.items, found.theta, data.values)

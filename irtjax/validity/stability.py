r"""How much a ranking depends on the items, the subjects, or where a fit starts.

- **Items.** Each replicate draws as many items as each benchmark has, with replacement,
  and fits again: the ranking of another test of items of the same kinds.
- **Halves.** Each replicate splits the items of every benchmark at random into halves.
- **Benchmarks.** Each benchmark is left out in turn.
- **Subjects.** Subjects are drawn with replacement, items are estimated from them, and
  all subjects are scored: what calibration on other subjects would do to the ranking.
  Families of subjects, such as fine-tunes of one model, are drawn whole.
- **Families.** Each family is left out in turn of the subjects that items are estimated
  from; all subjects are scored.
- **Starts.** `irtjax.validity.starts`.

Replicates are weights of the same arrays, so one compiled program serves all. They
begin at the estimates from all responses. A subject of whose responses none is left in
a replicate, or that has none, has no rank there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, RandomKey, Status
from irtjax.calibration.calibration import Calibration
from irtjax.data import read
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import are, counted, have
from irtjax.estimators.joint.cells import LogitCells, cells_of
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.marginal.em import EM
from irtjax.fitting.bootstrap import Bootstrap, refit
from irtjax.fitting.defaults import AUTO, choose
from irtjax.fitting.fit import fit as fit_table
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import sort_settings
from irtjax.fitting.specification import Task
from irtjax.likelihood.problem import Start
from irtjax.likelihood.quadrature import nodes_for, resolution
from irtjax.models.catalogue import model_class
from irtjax.models.factors import Factor
from irtjax.models.model import Model, check_one_ability
from irtjax.models.multilevel.specification import AbstractMultilevel
from irtjax.numerics.memory import require_memory
from irtjax.numerics.random_keys import as_key
from irtjax.validity.families import families_of
from irtjax.validity.rank_agreement import (
    agreement_of,
    interval,
    nullable,
    partners,
    ranks_of,
    ranks_of_fit,
    reliability,
    subject_table,
)
from irtjax.validity.starts import compare_starts, spearman_matrix

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = ("items", "halves", "benchmarks", "subjects", "families", "starts")
#: Kinds of which each replicate leaves one group out, and those that weigh subjects.
LEFT_OUT, OF_SUBJECTS = ("benchmarks", "families"), ("subjects", "families")
#: Replicates, splits or draws, and starts of each variance, where no number is given.
REPLICATES, STARTS = 200, 50
#: Level of intervals where none is given.
LEVEL = 0.95
#: Fewest items, or subjects, of which resamples are like other samples.
FEW = 20
#: Models with equal discriminations in place of those chosen for few responses.
EQUAL_SLOPES = {"2pl": "1pl", "graded": "pcm"}
#: Spacing of nodes relative to that of a fit, which is half of the narrowest posterior:
#: the trapezoid rule still errs by less than 1e-8 where repeated items narrow it.
WIDER = 1.8
#: Standard errors within which a replicate converges: far less moves a rank.
TOLERANCE, SINGLE_TOLERANCE = 1e-3, 1e-2
MOST_STEPS = 500


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Stability(HasTable):
    """How stable a ranking, or an optimum, is.

    Attributes:
        kind: What was varied.
        model: Name of the model.
        table: Of resampling, a row for each subject, best first: `subject`, `ability`,
            `rank` from all responses, `rank_lower`, `rank_upper` (the central `level`
            of the ranks in replicates, and the rank itself), `share_first` and
            `share_in_top`, of the replicates in which it has a rank. Tied subjects
            share the best rank, so the shares of all can sum to more than 1. Of starts,
            a row for each pair of variances and each `quantity`: mean, sd and minimum
            of Spearman's correlations.
        agreement: A row for each measure: `kendall` and `top_overlap` of replicates
            with all responses, the same `between` two replicates, `reliability` (of
            halves, Spearman and Brown), `spearman_discrimination` and
            `spearman_intercept` (of subjects, where items have one of these), each with
            mean and central `level`. Of starts: correlations of runs of one
            variance and of different ones.
        runs: A row for each replicate or run.
        top: How many subjects are the top; 0 for starts.
        level: Level of the intervals; 0 for starts.
        sentence: The result in words.
        warnings: Reasons to doubt it.
        notes: What was fitted, and what was left out.
    """

    title = "Stability of ranks"

    kind: str
    model: str
    table: pa.Table
    agreement: pa.Table
    runs: pa.Table
    top: int
    level: float
    sentence: str
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def stability(
    data: ResponseTable | Any,
    kind: str = "items",
    *,
    num: int | None = None,
    model: Model | str = AUTO,
    top: int | None = None,
    level: float | None = None,
    family: str | None = None,
    variances: Sequence[float] = (1, 2, 3, 4, 5),
    key: RandomKey | None = None,
    progress: Callable[[str], None] | None = None,
) -> Stability:
    """Measures how much the ranking varies with items, subjects or starts.

    Args:
        data: A `ResponseTable`, or anything `irtjax.read` takes.
        kind: "items", "halves", "benchmarks", "subjects", "families" or "starts"; see
            the module.
        num: Number of replicates (200) or of starts of each variance (50). Of
            benchmarks and families there is one for each: leave it out.
        model: A model of one ability, fitted by `em`, or a name. "auto" chooses as
            `irtjax.fit` does, but equal discriminations (`1pl`, `pcm`) where that
            integrates items out: estimated from few responses they overfit the ranking
            of all items. Starts are of the `2pl` with discriminations of at least 0,
            by `mm` with weak priors (MAP).
        top: How many subjects are the top; None for a quarter of them, 3 to 10. Starts
            have no top.
        level: Level of the intervals; None for 0.95. Starts have no intervals.
        family: Facet of subjects that names their families, for "subjects" and
            "families"; None for "family" where the subjects have it.
        variances: Variances of log discriminations and intercepts; of starts alone.
        key: A whole number or a JAX key; a fixed one when None.
        progress: Called with what is being done.

    Returns:
        Tables, a sentence and warnings; `plots.plot_rank_ribbons` draws them.

    Raises:
        ValueError: If there is nothing to resample or compare, if settings are not
            valid, or if fewer than half of the replicates converge.

    >>> rng = np.random.default_rng(0)
    >>> ability, easy = np.arange(6.0)[:, None], rng.normal(size=60)
    >>> right = rng.random((6, 60)) < 1 / (1 + np.exp(2 - ability - easy))
    >>> result = stability(ResponseTable.from_arrays(right), num=8)
    >>> result.table.column("subject")[0].as_py(), result.model
    ('subject 6', 'rasch')
    """
    table = data if isinstance(data, ResponseTable) else read(data)
    report = progress or (lambda text: None)
    key = as_key(key)
    _check(table, kind, num, top, level, variances)
    families = _families(table, kind, family)
    _check_model(model)
    if kind == "starts":
        task = _task(table, "2pl" if model == AUTO else model, "mm", positive=True)
        if not task.problem.model.family.has_slope:
            raise ValueError(
                f"a {task.problem.model.name} model has equal discriminations, and its"
                " objective one optimum: starts are compared for 2pl"
            )
        assert isinstance(task.method, MM)
        method = task.method
        if isinstance(cells_of(task.problem.model), LogitCells):
            # From starts far from the optimum "uniform" takes up to 80 times the steps.
            method = dataclasses.replace(method, curvature="cell")
        options = {"num": num or STARTS, "variances": variances, "key": key}
        starts = compare_starts(task.problem, method, **options, report=report)
        return Stability(
            kind,
            task.problem.model.name,
            starts.table,
            starts.agreement,
            starts.runs,
            0,
            0.0,
            starts.sentence,
            starts.warnings,
            starts.notes,
        )
    level = LEVEL if level is None else level
    chosen, note = _model(table, model)
    report("all responses")
    fit = fit_table(table, chosen, "em", standard_errors="none", level=level)
    units = max(table.num_subjects, table.num_items)
    what = f"num {num or REPLICATES:,}: replicates of {units:,}"
    require_memory(24.0 * (num or REPLICATES) * units, what, "lower num")
    weight = _weights(table, kind, num or REPLICATES, key, families)
    report(f"{counted(len(weight), 'replicate')}")
    replicates = _replicates(table, fit, chosen, weight, kind)
    top = top or min(max(3, min(10, table.num_subjects // 4)), table.num_subjects - 1)
    return _described(table, fit, replicates, families, kind, top, level, note)


def _check(table: ResponseTable, kind, num, top, level, variances) -> None:
    """Refuses options that the kind of study does not have."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    if num is not None and num < 2:
        raise ValueError(f"num {num}: a comparison needs at least 2")
    if level is not None and not 0 < level < 1:
        raise ValueError(f"level {level:g} is not between 0 and 1")
    if kind in LEFT_OUT and num is not None:
        one = "benchmark" if kind == "benchmarks" else "family"
        raise ValueError(f"each {one} is left out once: leave num out")
    if kind == "starts" and top is not None:
        raise ValueError("starts have no top subjects: leave top out")
    if kind == "starts" and level is not None:
        raise ValueError("starts have no intervals: leave level out")
    if table.num_subjects < 2 or table.num_items < 2:
        raise ValueError(
            f"{table.num_subjects} subjects and {table.num_items} items: a ranking"
            " and its stability need two of each"
        )
    if top is not None and not 1 <= top < table.num_subjects:
        raise ValueError(f"top {top}: give 1 to {table.num_subjects - 1} subjects")
    if kind == "benchmarks" and len(np.unique(table.benchmarks)) < 2:
        raise ValueError("one benchmark: none can be left out; use kind 'items'")
    if kind == "starts" and (not len(variances) or min(variances) <= 0):
        raise ValueError(f"variances {tuple(variances)}: give numbers above 0")


def _families(table: ResponseTable, kind: str, family: str | None):
    """`families_of` for kinds that have families; None for none."""
    if kind not in OF_SUBJECTS:
        if family is not None:
            raise ValueError(
                f"family is for the kinds {' and '.join(OF_SUBJECTS)}, not {kind}:"
                " leave family out"
            )
        return None
    families = families_of(table, family)
    if families is None and kind == "families":
        raise ValueError(
            "subjects have no families: give family=, the name of a facet of subjects"
        )
    return families


def _check_model(model: Model | str) -> None:
    """Refuses models with several abilities."""
    if issubclass(model_class(model), AbstractMultilevel | Factor):
        raise ValueError(
            "stability needs one ability, which multilevel and factor models do not"
            " have: use a model such as 2pl"
        )
    if not isinstance(model, str):
        check_one_ability(model, "stability")


def _model(table: ResponseTable, model: Model | str) -> tuple[Model | str, str]:
    """The model to fit by EM, and a note where the data decided."""
    if not (isinstance(model, str) and model == AUTO):
        return model, ""
    chosen = choose(table, categories=True)
    # Reasons why `laplace` is not affordable are not reasons for free slopes.
    count = table.num_observed / table.num_items
    named = isinstance(chosen.model, str)
    few = named and chosen.method == "laplace" and chosen.model in EQUAL_SLOPES
    model = EQUAL_SLOPES[chosen.model] if few else chosen.model
    name = model if isinstance(model, str) else model.name
    why = f"an item has {count:,.0f} responses on average"
    equal = ", equal discriminations" if few else ""
    return model, f"replicates are fits of {name} by em{equal}: {why}"


def _task(table: ResponseTable, model: Model | str, method: str, **settings) -> Task:
    """The arrays of a fit; of a model object the settings are its own."""
    kind = EM if method == "em" else MM
    specification = specify(model, kind)
    own = settings if isinstance(model, str) else {}
    parts = sort_settings(own, specification, kind)
    return make_task(table, specification, method, parts, level=0.95, dtype=None)


def _weights(
    table: ResponseTable, kind: str, num: int, key: KeyArray, families=None
) -> np.ndarray:
    """Numbers of copies of items or subjects, a row for each replicate."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    names, code = np.unique(table.benchmarks, return_inverse=True)
    if kind == "benchmarks":
        return (code != np.arange(len(names))[:, None]).astype(float)
    if families is not None:
        labels, own = families
        count = len(labels)
        if kind == "families":
            return (own != np.arange(count)[:, None]).astype(float)
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=num)
        return drawn[:, own].astype(float)
    if kind == "subjects":
        code = np.zeros(table.num_subjects, int)
    order, sizes = np.argsort(code, kind="stable"), np.bincount(code)
    if kind == "halves":
        # Items in random order within their benchmarks, dealt to the two in turn.
        noise = rng.random((num, code.size))
        dealt = np.argsort(code + noise, axis=1)
        first = np.zeros((num, code.size))
        turn = (np.arange(code.size) + rng.integers(0, 2, (num, 1))) % 2
        np.put_along_axis(first, dealt, turn.astype(float), axis=1)
        return np.stack([first, 1 - first], axis=1).reshape(2 * num, -1)
    begin, size = (np.cumsum(sizes) - sizes)[code[order]], sizes[code[order]]
    drawn = order[begin + rng.integers(0, size, (num, code.size))]
    place = drawn + code.size * np.arange(num)[:, None]
    counts = np.bincount(place.ravel(), minlength=num * code.size)
    return counts.reshape(num, -1).astype(float)


class _Replicates(NamedTuple):
    """Abilities `[replicates, subjects]`, NaN without responses; whether each is good.

    Item parameters are those with one number per item, by name.
    """

    ability: np.ndarray
    good: np.ndarray
    items: dict[str, np.ndarray]


def _replicates(table, fit: Calibration, model, weight, kind: str) -> _Replicates:
    """Abilities of all replicates, refitted from the fit of all responses."""
    task = _task(table, model, "em")
    parameters = jax.tree.map(jnp.asarray, fit.parameters)
    items, population = parameters.items, parameters.population
    data, dtype = task.problem.data, jnp.asarray(items[0]).dtype
    nodes = _nodes(fit.model, items, population, data)
    tolerance = _tolerance(dtype)
    method = EM(jnp.asarray(nodes, dtype), tolerance=tolerance)
    unit = "subjects" if kind in OF_SUBJECTS else "items"
    order = slice(None) if task.places is None else np.argsort(task.places)
    rows = weight[:, order] if unit == "subjects" else weight
    replicates: Bootstrap = refit(
        task.problem,
        method,
        Start(items, population=population),
        jnp.asarray(rows, dtype),
        unit=unit,
        max_steps=MOST_STEPS,
    )
    # In their precision: abilities that differ by its rounding are equal.
    ability = np.array(replicates.ability)
    ability = ability if task.places is None else ability[:, task.places]
    ability[_without_responses(table, weight, unit)] = np.nan
    status = np.asarray(replicates.status)
    good = (status == Status.CONVERGED) | (status == Status.STALLED)
    if good.sum() < max(len(good) / 2, 2):
        raise ValueError(
            f"{good.sum():,} of {len(good):,} replicates converge: use a model with"
            " fewer parameters, such as 1pl"
        )
    own = {
        name: np.asarray(getattr(replicates.parameters.items, name))
        for name in ("discrimination", "intercept")
        if hasattr(items, name) and np.ndim(getattr(items, name)) == 1
    }
    return _Replicates(ability, good, own)


def _tolerance(dtype) -> float:
    """Standard errors within which a replicate converges."""
    return SINGLE_TOLERANCE if dtype == jnp.float32 else TOLERANCE


def _without_responses(table: ResponseTable, weight, unit: str) -> np.ndarray:
    """`[replicates, subjects]` whether none of a subject's responses is left.

    Weights of subjects choose who estimates the items, and leave all responses.
    """
    size = len(weight), table.num_subjects
    cells = table.sparse
    if cells is not None:
        if unit == "subjects":
            return np.broadcast_to(cells.count(1) == 0, size)
        each = (cells.sum(1, row[cells.column]) for row in weight)
        return np.stack(list(each)) == 0
    if table.observed is None:
        return np.zeros(size, bool)
    if unit == "subjects":
        return np.broadcast_to(~table.observed.any(axis=1), size)
    return weight @ table.observed.T == 0


def _nodes(model, items, population, data) -> np.ndarray:
    """Nodes for the narrowest posterior: somewhat fewer than a fit has."""
    probe = resolution(model, items, population, np.array([-1.0, 1.0]), data)
    return nodes_for(WIDER * probe.smallest_posterior_sd / float(population.sd))


def _described(
    table, fit, replicates: _Replicates, families, kind, top, level, note
) -> Stability:
    """The tables and the sentence."""
    ranks, good = ranks_of(replicates.ability), replicates.good
    full = ranks_of_fit(fit)
    with_all = np.array([agreement_of(full, row, top) for row in ranks])
    partner = partners(kind, good)
    between = np.array(
        [
            agreement_of(row, ranks[other], top) if other >= 0 else (np.nan, np.nan)
            for row, other in zip(ranks, partner, strict=True)
        ]
    )
    measures = {
        "kendall": with_all[good, 0],
        "top_overlap": with_all[good, 1],
        "kendall_between": between[good, 0],
        "top_overlap_between": between[good, 1],
    }
    if kind == "halves":
        measures["reliability"] = reliability(replicates.ability, partner)
    if kind in OF_SUBJECTS:
        for name, values in replicates.items.items():
            own = np.asarray(getattr(fit.parameters.items, name))
            estimates = np.concatenate([own[None], values[good]])
            # Items with equal responses are equal up to where replicates end.
            tied = 2 * _tolerance(values.dtype)
            measures[f"spearman_{name}"] = spearman_matrix(estimates, tied)[0, 1:]
    rows = [interval(name, values, level) for name, values in measures.items()]
    import pyarrow as pa

    agreement = pa.Table.from_pylist([row for row in rows if row["mean"] is not None])
    subjects = subject_table(fit, full, ranks[good], top, level)
    runs = {"run": np.arange(len(good)), "converged": good}
    runs |= {"kendall": with_all[:, 0], "top_overlap": with_all[:, 1]}
    if kind in LEFT_OUT:
        of_items = kind == "benchmarks"
        runs["left_out"] = np.unique(table.benchmarks) if of_items else families[0]
    return Stability(
        kind,
        fit.model.name,
        subjects,
        agreement,
        pa.Table.from_pydict({k: nullable(v) for k, v in runs.items()}),
        top,
        level,
        _sentence(table, kind, agreement.to_pylist(), subjects.to_pylist(), top, level),
        _warnings(table, fit, replicates, kind, families),
        (note,) if note else (),
    )


_COMPARED = {
    "items": "Rankings by two tests of {items:,} items of these kinds have",
    "halves": "Rankings by two random halves of the {items:,} items have",
    "subjects": "Rankings by items calibrated on two samples of {subjects:,} subjects"
    " have",
    "benchmarks": "Rankings without one of the benchmarks and by all of them have",
    "families": "Rankings by items calibrated without one of the families and on all"
    " subjects have",
}


def _sentence(table, kind, agreement, subjects, top: int, level: float) -> str:
    """The stability of the ranking in words."""
    by_name = {row["measure"]: row for row in agreement}
    ending = "" if kind in LEFT_OUT else "_between"
    text = _COMPARED[kind].format(items=table.num_items, subjects=table.num_subjects)
    tau, overlap = by_name.get("kendall" + ending), by_name.get("top_overlap" + ending)
    if tau is None or overlap is None:
        if len({row["rank"] for row in subjects} - {None}) < 2:
            return (
                "All subjects are tied: there is no ranking whose stability to measure."
            )
        return (
            "No two of these rankings can be compared: all subjects are tied in one of"
            " them, or fewer than two have a rank in both."
        )
    text += (
        f" Kendall's tau {tau['mean']:.2f} (central {100 * level:.3g} %:"
        f" {tau['lower']:.2f} to {tau['upper']:.2f}) and share"
        f" {top * overlap['mean']:.1f} of the first {top}."
    )
    ranked = [row for row in subjects if row["rank"] is not None]
    widths = [row["rank_upper"] - row["rank_lower"] + 1 for row in ranked]
    widest = ranked[int(np.argmax(widths))]
    return text + (
        f" The rank interval of a subject spans {np.median(widths):.0f} of"
        f" {len(ranked):,} ranks at the median, and at most {max(widths)}:"
        f" {widest['subject']}, {widest['rank_lower']} to {widest['rank_upper']}."
    )


def _warnings(
    table, fit, replicates: _Replicates, kind: str, families
) -> tuple[str, ...]:
    """Lines on replicates that failed and designs that are too small."""
    texts = []
    if fit.status != Status.CONVERGED:
        texts.append(f"the fit of all responses {fit.status.explain()}")
    bad = int((~replicates.good).sum())
    if bad:
        texts.append(
            f"{bad:,} of {counted(replicates.good.size, 'replicate')} did not converge"
            f" and {are(bad)} left out"
        )
    unit = "subjects" if kind == "subjects" else "items"
    count = table.num_subjects if kind == "subjects" else table.num_items
    if families is not None:
        unit, count = "families", len(families[0])
    if kind != "families" and count < FEW:
        texts.append(
            f"only {count} {unit}: a resample repeats some and lacks others, and is"
            " not like another sample"
        )
    lost = np.isnan(replicates.ability).any(axis=0)
    if table.num_observed < table.size:
        never = table.cells.count(1) == 0
        lost &= ~never
        if never.any():
            texts.append(
                f"{counted(int(never.sum()), 'subject')} {have(never.sum())} no"
                " responses and no"
                " rank"
            )
    if lost.any():
        texts.append(
            f"{counted(int(lost.sum()), 'subject')} {have(lost.sum())} no responses"
            " left in some"
            " replicates"
            " and no rank there"
        )
    return tuple(texts)

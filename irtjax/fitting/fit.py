"""`irtjax.fit`: from a table of responses to calibrated items and scores."""

from __future__ import annotations

import dataclasses
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from irtjax._types import RandomKey
from irtjax.calibration.build import build
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.run_errors import check_run_sd
from irtjax.calibration.runs import with_runs
from irtjax.data import read
from irtjax.data.coding import CODING, coding_note, coding_of, recoded
from irtjax.data.reversal import bounds_of_values
from irtjax.data.table import ResponseTable
from irtjax.data.wording import NOUNS
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import AbstractEstimator, Run
from irtjax.estimators.timing import Clock, ProgressCallback
from irtjax.fitting.categories import codes_note
from irtjax.fitting.defaults import AUTO, choose
from irtjax.fitting.devices import check_devices, divide, joined, whole
from irtjax.fitting.groups import GROUPS, with_groups, with_populations
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import Settings, check_start, check_values, sort_settings
from irtjax.fitting.specification import AbstractSpecification
from irtjax.models.factors import Factor
from irtjax.models.model import Model
from irtjax.models.multilevel.specification import AbstractMultilevel
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import unstored_over_devices
from irtjax.numerics.random_keys import as_key

#: Settings of a fit that no specification and no method has.
OF_GROUPS = (*GROUPS, "free_by_group", "run_sd")


@unstored_over_devices
@full_precision
def fit(
    data: ResponseTable | Any,
    model: Model | Factor | AbstractMultilevel | AbstractSpecification | str = AUTO,
    method: AbstractEstimator | str = AUTO,
    *,
    level: float = 0.95,
    key: RandomKey | None = None,
    dtype: Any = None,
    max_steps: int | None = None,
    progress: ProgressCallback | None = None,
    mesh: Mesh | None = None,
    **settings: Unpack[Settings],
) -> Calibration:
    """Fits a model to responses and scores the subjects.

    Args:
        data: A `ResponseTable`, or anything `irtjax.read` takes: a path, a data frame.
        model: "auto" chooses from the kind of the data: 2pl, graded, continuous,
            share or mixed (`defaults.choose`). Or a model, or the name of one: "rasch",
            "1pl", "2pl", "3pl", "4pl", "probit1pl", "probit2pl", "cloglog2pl"; for
            categories "graded", "partial_credit", "pcm", "rsm", "nominal"; "lart" (with
            response lengths: `irtjax.read(..., length=...)`); for scores in [0, 1]
            "continuous", "beta", "inflated_beta", "share" or, with items that are right
            or wrong, "mixed".
            Multilevel models: "multibenchmark" and "multimetric" (an ability for each
            benchmark or metric in addition to the general one), "hierarchical" (one
            ability; items by benchmark and further facets), by name or as objects such
            as `irtjax.MultiBenchmark(...)`. Several abilities: "factor", or an
            `irtjax.Factor`.
        method: "auto" integrates items out by "laplace" where they have few responses
            each, and uses "em" elsewhere; the summary states which and why. Or
            "em" (marginal maximum likelihood, or MAP with priors), "saem" (the same
            by random draws), "gvem" (the same for several abilities), "mm" or
            "gradient" (joint), "neural" (twin networks) or "vibo" (amortised
            variational inference), both for binary models,
            "laplace" (empirical Bayes, items integrated out), "nuts" (the full
            posterior) or "vi" (the Gaussian nearest to it), the three for multilevel
            models; or a method object with its own settings.
        level: Level of the intervals.
        key: A whole number or a JAX key, for starts, folds, mini-batches, draws and
            rank intervals; a fixed one when None, so results repeat.
        dtype: Floating type; JAX's default when None (float64 where x64 is on).
        max_steps: Step limit; "nuts" has ``num_warmup`` and ``num_draws`` instead.
        progress: Called a few times a second while the fit runs.
        mesh: Devices that subjects are divided over, such as
            ``jax.make_mesh((4,), ("subjects",))``; None for one. The result is the
            same to the last bit for 1, 2, 4 and 8 of them, of scores to rounding.
        **settings: See `fitting.settings.Settings`. For a method given by name also the
            fields of its class: ``num_draws=2000`` for "nuts".

    Returns:
        The calibration: tables, parameters, warnings and status.

    Raises:
        ValueError: For data or settings that do not suit each other, and settings that
            nothing in the fit would use, in one line with the place and the cure.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> ability, easiness = rng.normal(size=(80, 1)), rng.normal(size=(1, 12))
    >>> right = rng.random((80, 12)) < 1 / (1 + np.exp(-ability - easiness))
    >>> calibration = fit(ResponseTable.from_arrays(right), "1pl")
    >>> calibration.status.name, calibration.items.table.num_rows
    ('CONVERGED', 12)
    """
    check_values(method, settings, level, key, dtype, max_steps)
    random = None if key is None else as_key(key)
    clock = Clock(progress)
    with clock.phase("read"):
        table = data if isinstance(data, ResponseTable) else read(data)
    if (limits := settings.get("bounds")) is not None:
        settings = {**settings, "bounds": bounds_of_values(table, limits)}
    check_start(settings.get("start"), table.num_items)
    coding = None if settings.get("bounds") else coding_of(table)
    if coding is not None:
        note = coding_note(table, coding)
        table = recoded(table, coding)
        table = table.replace(notes=(*table.notes, note))
    table, related = with_groups(table, settings)
    run_sd = check_run_sd(settings.get("run_sd"))
    others: Any = {name: x for name, x in settings.items() if name not in OF_GROUPS}
    undivided = table
    table, method = with_populations(table, method, related.get("groups"), settings)
    settings = others
    model, method, reason, bounds = choose(table, model, method, settings)
    if bounds is not None:
        settings = {**settings, "bounds": bounds}
    named = method_class(method) if isinstance(method, str) else method
    specification = specify(model, named)
    if mesh is not None:
        check_devices(mesh, named)
    parts = sort_settings(settings, specification, named, max_steps)
    parts = parts._replace(key=random, mesh=mesh)
    with clock.phase("start"):
        task = make_task(table, specification, method, parts, level=level, dtype=dtype)
    run = Run(clock, random, max_steps, level, parts.options)
    problem, start = task.problem, task.start
    if mesh is not None:
        problem, start = divide(task, mesh)
    with clock.phase("run"), task.method.saving(parts.options):
        solution = task.method.solve(problem, start, run)
        jax.block_until_ready(solution.fit)
    if mesh is not None:
        problem, solution = whole(problem, task, solution)
    estimates = task.method.estimates(problem, solution, run)
    if mesh is not None:
        estimates = joined(estimates, task.problem)
    estimates = specification.finish(estimates, task)
    options = {
        **task.options,
        **related,
        "method": task.method.name,
        **({"choice": reason} if reason else {}),
        **({} if table.nouns == NOUNS else {"nouns": list(table.nouns)}),
        **_directions(table),
        **({} if coding is None else {CODING: list(coding)}),
        **solution.method.record(),
        **solution.record,
        "level": level,
        "dtype": str(jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)),
        "max_steps": solution.max_steps,
    }
    table_of, note = task.table, codes_note(estimates.problem.model.family)
    if note:
        table_of = table_of.replace(notes=(*table_of.notes, note))
    result = build(
        table_of,
        estimates,
        layout=task.layout,
        warnings=task.warnings,
        options=options,
        clock=clock,
        key=as_key(random),
        original=table,
        places=task.places,
    )
    if undivided is not table:
        # Fits of the same responses with other constraints are comparable.
        result = dataclasses.replace(result, data_hash=undivided.data_hash())
    return with_runs(result, table, run_sd)


def _directions(table: ResponseTable) -> dict[str, Any]:
    """The formulas of reversed scores, as an option that the fit keeps."""
    formulas = list(dict.fromkeys((table.reversed_scores or {}).values()))
    return {"reversed_scores": formulas} if formulas else {}

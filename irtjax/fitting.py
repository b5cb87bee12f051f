"""The friendly door: from a table of responses to calibrated items and scores."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, Status
from irtjax.anchors import Anchor, apply_anchor, read_anchor
from irtjax.calibration import Calibration, build
from irtjax.data.read import read
from irtjax.data.table import ResponseTable
from irtjax.estimators.base import (
    AbstractMethod,
    Fit,
    Problem,
    Start,
    begin,
    estimation_scale,
    loop_of,
    run,
)
from irtjax.estimators.em import EM
from irtjax.estimators.laplace import Laplace
from irtjax.estimators.mcmc import NUTS
from irtjax.estimators.neural import Neural
from irtjax.estimators.nodes import (
    COARSE,
    KEPT,
    REACH,
    Resolution,
    choose_nodes,
    lattice_near,
    resolution,
)
from irtjax.estimators.saem import SAEM
from irtjax.estimators.start import start_values
from irtjax.estimators.variational import Variational
from irtjax.estimators.vibo import VIBO
from irtjax.models.base import Model
from irtjax.models.catalogue import (
    LENGTH_MODELS,
    MODELS,
    ORDERED_MODELS,
    SCORE_MODELS,
    Priors,
)
from irtjax.models.continuous import AbstractScoreFamily
from irtjax.models.logistic import Binary
from irtjax.numerics import equal_nodes
from irtjax.score_tables import binary_items, check_ends, prepare, with_scores
from irtjax.scoring import score
from irtjax.structure_layout import NESTED, lay_out
from irtjax.structured import (
    STRUCTURED_METHODS,
    STRUCTURED_MODELS,
    fit_structured,
)
from irtjax.timing import Clock, ProgressCallback
from irtjax.uncertainty import KINDS, check_kind

#: Cells from which EM sorts the subjects and works on windows of nodes.
LARGE = 2_000_000
#: Nodes each subject may take of a lattice before common nodes are cheaper.
LATTICE_NODES = 20
METHODS = ("em", "saem", "mm", "gradient", "neural", "vibo")
MAX_STEPS = {"em": 1000, "saem": 200, "mm": 5000, "gradient": 2000}
#: What items of these methods are to be read with.
NO_ITEM_ERRORS = {
    "neural": "items come from networks that stopped early, without priors: they have"
    " no standard errors, and those of abilities take the items as known",
    "vibo": "items are means of a variational approximation: they have no standard"
    " errors here, and those of abilities take the items as known",
}

_begin_jit = eqx.filter_jit(begin)
_run_jit = eqx.filter_jit(run)
_start_jit = eqx.filter_jit(start_values)


def fit(
    data: ResponseTable | Any,
    model: Model | str = "2pl",
    method: AbstractMethod | NUTS | Variational | str = "em",
    *,
    priors: Priors = "weak",
    positive: bool = False,
    anchor: Anchor | None = None,
    start: Start | str = "proportions",
    population: str = "normal",
    standard_errors: str = "observed",
    item_uncertainty: bool = True,
    length_offset: float = 1.0,
    squeeze: float | None = None,
    ends: float | None = None,
    bounds: tuple[float, float] | None = None,
    level: float = 0.95,
    key: KeyArray | None = None,
    family: str | None = None,
    levels: Sequence[str] | Mapping[str, np.ndarray] = (),
    shared_items: str | Sequence[str] | np.ndarray | None = None,
    metric_effects: bool = True,
    item_covariates: Mapping[str, np.ndarray] | None = None,
    subject_covariates: Mapping[str, np.ndarray] | np.ndarray | None = None,
    checkpoint: str | None = None,
    resume: bool = False,
    dtype: Any = None,
    max_steps: int | None = None,
    progress: ProgressCallback | None = None,
) -> Calibration:
    """Fits a model to responses and scores the subjects.

    Args:
        data: A `ResponseTable`, or anything `irtjax.read` takes: a path, a data frame.
        model: A model, or the name of one: "rasch", "1pl", "2pl", "3pl", "4pl",
            "probit1pl", "probit2pl", "graded", "partial_credit", "lart" (with answer
            lengths: `irtjax.read(..., length=...)`); for scores in [0, 1] "continuous",
            "beta", "inflated_beta" or, with items that are right or wrong, "mixed".
            Structured models: "multibenchmark" and "multimetric" (an ability for each
            benchmark or metric beside the general one), "hierarchical" (one ability;
            items by benchmark and further levels).
        method: "em" (marginal maximum likelihood, or MAP with priors), "saem" (the same
            by random draws), "mm" or "gradient" (joint), "neural" (twin networks) or
            "vibo" (amortised variational inference), both for binary models,
            "laplace" (empirical Bayes, items integrated out), "nuts" (the full
            posterior) or "vi" (the Gaussian nearest to it), which are the ones for
            structured models; or a method object with its own settings.
        priors: For a model given by name: "weak", None for plain maximum likelihood,
            or a mapping of parameter names to priors. Unless there are anchors, priors
            are read in a frame that is fitted too: shifting or stretching them all
            changes nothing (see `Model.prior_frame`).
        positive: For a model given by name: keep every discrimination above 0.
        anchor: Items with fixed parameters; the ability distribution is then
            estimated on their scale. See `anchors.read_anchor`.
        start: "proportions", "spectral", "low_rank", or start values.
        population: For EM: "normal", or "histogram" to estimate its form.
        standard_errors: "observed", "cross_product", "sandwich" or "none".
        item_uncertainty: Whether ability errors include the items' uncertainty; when
            False (or without standard errors) items are taken as known.
        length_offset: For "lart": the logarithm of offset + length is modelled, so
            that lengths of 0 have one.
        squeeze: For "continuous", "beta" and "mixed": scores nearer to 0 or 1 than
            1 / (2 squeeze) are put there, and counted in a warning. None moves only
            0 and 1 themselves, half-way to the score nearest to any end.
        ends: For "inflated_beta": scores at most this far from 0 or 1 are at it.
        bounds: For models of scores: lowest and highest possible score, if these are
            not 0 and 1.
        level: Level of the intervals.
        key: Random key: for mini-batches, draws, and rank intervals (a fixed key is
            used for the latter two when None, so results repeat).
        family: For structured models: the model of single responses, such as "2pl" or
            "continuous". None: by the kind of the data. Of "rasch" the slopes are 1 and
            the standard deviation of (general) ability is learned.
        levels: For structured models, "laplace" and "nuts": facets of items (beside the
            benchmark) whose values shift items, such as "domain" or "stem"; or a label
            for each item, `[items]`, by name of the facet. "benchmark/domain" is the
            domain within each benchmark.
        shared_items: For "multimetric": the facet that names the thing measured, such
            as "stem", or such a name for each item. The metrics of a thing then share
            its parameters, as LEGO-MM has it; else each has its own.
        metric_effects: With `shared_items`: whether each metric shifts the parameters
            of all things (its intercept, slope and dispersion).
        item_covariates: Likewise: numbers `[items]` by name that shift items (LLTM).
        subject_covariates: Likewise: numbers `[subjects]` by name, or `[subjects,
            covariates]`, that shift abilities (latent regression).
        checkpoint: For "nuts": file that saves the run on its way.
        resume: For "nuts": go on from that file.
        dtype: Floating type; JAX's default when None (float64 where x64 is on).
        max_steps: Step limit.
        progress: Called a few times a second while the fit runs.

    Returns:
        The calibration: tables, parameters, warnings and status.

    Raises:
        ValueError: For data or options that cannot give what was asked, in one line
            naming the place and the cure.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> ability, easiness = rng.normal(size=(80, 1)), rng.normal(size=(1, 12))
    >>> right = rng.random((80, 12)) < 1 / (1 + np.exp(-ability - easiness))
    >>> calibration = fit(ResponseTable.from_arrays(right), "1pl")
    >>> calibration.status.name, calibration.item_table.num_rows
    ('CONVERGED', 12)
    """
    clock = Clock(progress)
    with clock.phase("read"):
        table = data if isinstance(data, ResponseTable) else read(data)
    if uses_structure(model, method):
        return _fit_by_structure(
            table,
            model,
            method,
            priors=priors,
            ends=ends,
            squeeze=squeeze,
            bounds=bounds,
            level=level,
            key=jax.random.key(0) if key is None else key,
            family=family,
            plan={
                "levels": levels,
                "shared_items": shared_items,
                "metric_effects": metric_effects,
                "item_covariates": item_covariates,
                "subject_covariates": subject_covariates,
            },
            saving={"checkpoint": checkpoint, "resume": resume},
            dtype=dtype,
            max_steps=max_steps,
            clock=clock,
        )
    for name, given in (
        ("levels", levels),
        ("shared_items", shared_items),
        ("item_covariates", item_covariates),
        ("subject_covariates", subject_covariates),
    ):
        if given is not None and len(given):
            raise ValueError(
                f"{name} goes with structured models: use the model multibenchmark,"
                " multimetric or hierarchical, or the method laplace, nuts or vi"
            )
    assert not isinstance(method, NUTS | Variational)
    chosen = make_model(model, table, priors, positive=positive, ends=ends)
    if method == "mm" and isinstance(model, str) and positive and priors == "weak":
        # MM's bound is quadratic, and so must priors be; it keeps slopes at or above 0.
        normal = make_model(model, table, priors).priors
        chosen = dataclasses.replace(chosen, priors=normal)
    estimator = make_method(
        method, population, penalised=bool(chosen.priors), max_steps=max_steps
    )
    check_data(table, chosen, level)
    if chosen.lengths is not None and not estimator.marginal:
        raise ValueError(
            f"a {chosen.name} model is estimated by method='em' or 'saem', not"
            f" {method!r}"
        )
    if isinstance(chosen.family, AbstractScoreFamily) and not estimator.marginal:
        raise ValueError(
            f"a {chosen.name} model is estimated by method='em' or 'saem': jointly,"
            " abilities follow one item's scores until its dispersion is nothing"
        )
    if anchor is not None and getattr(estimator, "penalty", 0) > 0:
        raise ValueError(
            f"method {options_name(method)!r} shrinks abilities, which anchors do not"
            " let it undo (free slopes came out a third too large with 30 items): use"
            " method='em', or priors=None where each subject met hundreds of items"
        )
    if standard_errors not in (*KINDS, "none"):
        raise ValueError(
            f"standard_errors {standard_errors!r} is none of {', '.join(KINDS)}, none"
        )
    said: tuple[str, ...] = ()
    if isinstance(estimator, Neural | VIBO):
        if anchor is not None:
            raise ValueError(
                f"method {options_name(method)!r} has no fixed items: use method='em'"
            )
        standard_errors = "none"
        said = (NO_ITEM_ERRORS[options_name(estimator)],)
    # The method's state has the dtype of the start values.
    floating = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    with clock.phase("start"):
        ordered = table
        if isinstance(estimator, EM) and table.values.size >= LARGE:
            # Neighbours in ability share a window of nodes: see `expected_counts`.
            order = np.argsort(table.subject_accuracy(), kind="stable")
            ordered = table.select(subjects=order)
        offset = None if chosen.lengths is None else length_offset
        scores = prepare(ordered, chosen, squeeze=squeeze, bounds=bounds)
        if scores is not None:
            check_ends(scores, chosen)
            ordered = scores.table
        responses = ordered.responses(floating, length_offset=offset)
        responses = with_scores(responses, scores, floating)
        if isinstance(start, str):
            first = _start_jit(chosen, responses, how=start, dtype=floating)
        else:
            first = start._replace(theta=None) if ordered is not table else start
        problem, first = _problem(chosen, responses, first, ordered, anchor, floating)
        if standard_errors != "none":
            check_kind(problem, standard_errors)
    steps = max_steps or MAX_STEPS.get(str(method), 1000)
    if isinstance(estimator, SAEM):
        steps = estimator.num_steps
        key = jax.random.key(0) if key is None else key
    if isinstance(estimator, Neural | VIBO):
        estimator.check(problem)
        estimator = _with_epochs(estimator, table, max_steps)
        steps = estimator.epochs
        key = jax.random.key(0) if key is None else key
    with clock.phase("run"):
        if isinstance(estimator, EM | SAEM):
            result, estimator, resolved = _fit_on_nodes(
                problem, estimator, first, key, steps, clock
            )
        else:
            problem = _with_ability_prior(problem, estimator, first)
            result = _drive(problem, estimator, first, key, steps, clock)
            resolved = None
        jax.block_until_ready(result)
    options = {
        "model": chosen.name,
        "method": options_name(method),
        "priors": _describe_priors(chosen),
        "positive": positive,
        "anchored_items": 0 if anchor is None else _num_anchored(anchor, table),
        "start": start if isinstance(start, str) else "given",
        "population": population,
        "standard_errors": standard_errors,
        "item_uncertainty": item_uncertainty,
        **({} if chosen.lengths is None else {"length_offset": length_offset}),
        **({} if scores is None else scores.options),
        **_training(estimator),
        "level": level,
        "dtype": str(floating),
        "max_steps": steps,
    }
    return build(
        ordered,
        problem,
        result,
        estimator=estimator,
        resolved=resolved,
        options=options,
        clock=clock,
        key=jax.random.key(0) if key is None else key,
        subjects=table.subjects,
        data_hash=table.data_hash(),
        warnings=(*(() if scores is None else scores.warnings), *said),
    )


def _with_epochs(
    method: Neural | VIBO, table: ResponseTable, epochs: int | None
) -> Neural | VIBO:
    """The method with its limit of epochs and the number of cells that make one."""
    if epochs is not None:
        method = dataclasses.replace(method, epochs=epochs)
    if isinstance(method, VIBO) or method.epoch_cells is not None:
        return method
    held = method.validation
    if isinstance(held, float | int):
        count = round(table.num_observed * (1 - held))
    else:
        held = np.asarray(held, bool)
        there = True if table.observed is None else table.observed
        count = table.num_observed - int(np.sum(held & there))
    if count < 1:
        raise ValueError("every response is held out: choose a smaller validation")
    return dataclasses.replace(method, epoch_cells=count)


def _training(method: AbstractMethod) -> dict[str, Any]:
    """What the record says of a method that is trained: its plain settings."""
    if not isinstance(method, Neural | VIBO):
        return {}
    plain = (bool, int, float, str, tuple)
    values = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if isinstance(value, plain)
    }


def uses_structure(model: Model | str, method: Any) -> bool:
    """Whether a fit goes through `structured`."""
    if isinstance(method, str):
        return method in STRUCTURED_METHODS or model in STRUCTURED_MODELS
    by_method = isinstance(method, Laplace | NUTS | Variational)
    return by_method or model in STRUCTURED_MODELS


def _fit_by_structure(
    table: ResponseTable,
    model: Model | str,
    method: Any,
    *,
    priors: Priors,
    ends: float | None,
    squeeze: float | None,
    bounds: tuple[float, float] | None,
    level: float,
    key: KeyArray,
    family: str | None,
    plan: dict[str, Any],
    saving: dict[str, Any],
    dtype: Any,
    max_steps: int | None,
    clock: Clock,
) -> Calibration:
    """A structured fit: what is particular to it of `fit`."""
    if method == "em":
        method = "laplace"  # The default method of plain models.
    if isinstance(method, str) and method not in STRUCTURED_METHODS:
        raise ValueError(
            f"a {model} model is estimated by method='laplace', 'nuts' or 'vi', not"
            f" {method!r}"
        )
    if priors is None or priors == "none":
        raise ValueError(
            "structured models learn their priors: leave priors out, or give the ones"
            " that are to be kept by name"
        )
    named = isinstance(model, str) and model in STRUCTURED_MODELS
    kind = model
    if named:
        scores = table.kind == "continuous"
        kind = family or ("continuous" if scores else "2pl")
    elif family is not None:
        raise ValueError("family= goes with multibenchmark, multimetric, hierarchical")
    chosen = make_model(kind, table, "weak", positive=True, ends=ends)
    if not chosen.family.has_slope and chosen.scale == "standard":
        raise ValueError(
            f"structured models have equal slopes as 'rasch', with slopes of 1 and a"
            f" learned standard deviation of ability, not as {kind!r}: use 'rasch'"
        )
    check_data(table, chosen, level)
    floating = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    scores = prepare(table, chosen, squeeze=squeeze, bounds=bounds)
    if scores is not None:
        check_ends(scores, chosen)
        table = scores.table
    responses = with_scores(table.responses(floating), scores, floating)
    grouped = model in ("multibenchmark", "multimetric")
    if grouped and len(set(np.asarray(table.benchmarks).tolist())) < 2:
        raise ValueError(
            f"a {model} model needs items of two or more benchmarks or metrics: name"
            " their column with benchmark=... (--benchmark) when reading"
        )
    if isinstance(plan["levels"], Mapping):
        # The labels of "benchmark/domain" are those of the domain.
        facets = {
            name.rsplit(NESTED)[-1]: np.asarray(labels).astype(str)
            for name, labels in plan["levels"].items()
        }
        table = dataclasses.replace(table, item_facets={**table.item_facets, **facets})
    shared = plan["shared_items"]
    if shared is not None and model != "multimetric":
        raise ValueError(
            f"shared_items goes with the model multimetric, not {model}: it names what"
            " several metrics measure"
        )
    levels = tuple(plan["levels"])
    if model == "multimetric" and shared is None and "stem" not in levels:
        levels = ("stem", *levels)
    plan = {**plan, "levels": levels}
    fixed = {} if isinstance(priors, str) else dict(priors)
    layout = lay_out(
        table, chosen.family, grouped=grouped, priors=fixed, dtype=floating, **plan
    )
    if not isinstance(method, Laplace | NUTS | Variational):
        subjects = table.num_subjects
        order = 5 if subjects < 40 else 3 if subjects < 200 else 1
        by_name = {"nuts": NUTS(), "vi": Variational(), "laplace": Laplace(order=order)}
        method = by_name[method]
    name = model if isinstance(model, str) else model.name
    options = {
        "model": name,
        "method": options_name(method),
        "family": chosen.name,
        "priors": {k: repr(v) for k, v in fixed.items()},
        "levels": list(plan["levels"]),
        "item_covariates": sorted(plan["item_covariates"] or {}),
        "subject_covariates": layout.covariates.tolist(),
        **_sharing(shared, plan["metric_effects"]),
        **({} if scores is None else scores.options),
        "level": level,
        "dtype": str(floating),
    }
    return fit_structured(
        table,
        scores,
        responses,
        layout,
        name=name,
        method=method,
        options=options,
        clock=clock,
        key=key,
        max_steps=max_steps,
        **saving,
    )


def _sharing(shared: Any, metric_effects: bool) -> dict[str, Any]:
    """What the record says of shared items: nothing where there are none."""
    if shared is None:
        return {}
    name = shared if isinstance(shared, str) else "given"
    return {"shared_items": name, "metric_effects": metric_effects}


def make_model(
    model: Model | str,
    table: ResponseTable,
    priors: Priors,
    *,
    positive: bool = False,
    ends: float | None = None,
) -> Model:
    """A model by name, with the categories or kinds of items that the data have."""
    if ends is not None and model != "inflated_beta":
        raise ValueError("ends is for the model 'inflated_beta'")
    if isinstance(model, Model):
        return model
    if model in SCORE_MODELS:
        return _score_model(model, table, priors, positive, ends)
    if model in ORDERED_MODELS:
        categories = int(table.values.max()) + 1 if table.values.size else 0
        if table.kind not in ("binary", "ordinal"):
            raise ValueError(
                f"a {model} model needs integer responses, not {table.kind}"
            )
        return ORDERED_MODELS[model](max(categories, 2), priors, positive=positive)
    if model in LENGTH_MODELS:
        return LENGTH_MODELS[model](priors, positive=positive)
    if model not in MODELS:
        names = ", ".join([*MODELS, *ORDERED_MODELS, *LENGTH_MODELS, *SCORE_MODELS])
        raise ValueError(f"no model {model!r}; there are {names}")
    if positive and MODELS[model](priors).family.has_slope:
        return MODELS[model](priors, positive=True)
    return MODELS[model](priors)


def _score_model(
    model: str, table: ResponseTable, priors: Priors, positive: bool, ends: float | None
) -> Model:
    if model == "inflated_beta":
        return SCORE_MODELS[model](priors, positive=positive, ends=ends or 0.0)
    if model != "mixed":
        return SCORE_MODELS[model](priors, positive=positive)
    binary = binary_items(table)
    if binary.all() or not binary.any():
        kind, cure = ("right or wrong", "2pl") if binary.any() else ("scores", "beta")
        raise ValueError(
            f"every item has {kind} only; a mixed model has both kinds: use --model"
            f" {cure}"
        )
    return SCORE_MODELS[model](binary, priors, positive=positive)


def make_method(
    method: AbstractMethod | str,
    population: str,
    *,
    penalised: bool = True,
    max_steps: int | None = None,
) -> AbstractMethod:
    """A method by name, with its defaults.

    Joint methods penalise abilities as well as items, or neither (`penalised=False`,
    for models without priors): plain joint maximum likelihood.
    """
    if not isinstance(method, str):
        return method
    if method == "em":
        return EM(population=population)
    if method not in METHODS:
        raise ValueError(f"no method {method!r}; there are {', '.join(METHODS)}")
    if population != "normal":
        raise ValueError(f"method {method!r} has no population to estimate; use 'em'")
    if method == "saem":
        return SAEM(num_steps=max_steps or MAX_STEPS["saem"])
    if method in ("neural", "vibo"):
        return Neural() if method == "neural" else VIBO()
    penalty = 1.0 if penalised else 0.0
    if method == "mm":
        from irtjax.estimators.mm import MM

        return MM(penalty=penalty)
    from irtjax.estimators.gradient import Gradient

    return Gradient(penalty=penalty)


def check_data(table: ResponseTable, model: Model, level: float) -> None:
    """Refuses data that no model, or not this one, can be fitted to.

    Raises:
        ValueError: One line naming the place and the cure.
    """
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    where = f"{table.sources[0]}: " if table.sources else ""
    for count, what in ((table.num_subjects, "subject"), (table.num_items, "item")):
        if count < 2:
            raise ValueError(
                f"{where}{count} {what}{'s' * (count != 1)}: a fit compares at least"
                f" two; add files, or score new subjects with a saved fit"
            )
    if table.num_observed == 0:
        raise ValueError(f"{where}every response is missing: nothing can be fitted")
    if isinstance(model.family, AbstractScoreFamily):
        return
    top = model.family.num_categories - 1
    values = table.values
    if table.trials is not None and top != 1:
        raise ValueError(f"{where}counts of trials need a binary model")
    limit = top if table.trials is None else table.trials
    # A look at the extremes first: masks of large tables cost memory.
    whole = values.dtype == np.int8 or bool(np.all(values == np.rint(values)))
    inside = table.trials is None and values.min() >= 0 and values.max() <= top
    if not (whole and inside):
        bad = (values < 0) | (values > limit)
        if not whole:
            bad |= values != np.rint(values)
        if not bad.any():
            return
        row, column = np.argwhere(bad)[0]
        wanted = "0 or 1" if top == 1 else f"an integer from 0 to {top}"
        cure = (
            "choose a 0/1 metric, or --model graded for ordered categories"
            if top == 1
            else "recode it to start at 0"
        )
        if 0 < values[row, column] < top and top == 1:
            cure = "choose a 0/1 metric, or --model continuous for scores in [0, 1]"
        raise ValueError(
            f"{where}subject {str(table.subjects[row])!r}, item"
            f" {str(table.items[column])!r}:"
            f" value {values[row, column]:g} is not {wanted}, as a {model.name} model"
            f" needs; {cure}"
        )


def _problem(model, responses, first: Start, table, anchor, floating):
    """The problem and start, with anchors in place."""
    first = jax.tree.map(lambda a: jnp.asarray(a, floating), first)
    if anchor is None:
        return Problem.create(model, responses), first
    values = read_anchor(anchor)
    family = model.family
    common = None
    if isinstance(family, Binary) and not family.has_slope:
        # Fixed slopes for every item, and the population on the anchors' scale.
        slopes = {v["discrimination"] for v in values.values() if "discrimination" in v}
        if len(slopes) > 1 or (slopes not in (set(), {1.0}) and model.name == "rasch"):
            raise ValueError(
                f"anchors with {len(slopes)} discriminations do not suit a"
                f" {model.name} model; use 2pl"
            )
        common = slopes.pop() if slopes else 1.0
        values = {k: {**v, "discrimination": common} for k, v in values.items()}
        family = dataclasses.replace(family, slopes="free")
        priors = {k: p for k, p in model.priors.items() if k != "discrimination"}
        model = Model(model.name, family, priors, model.scale)
        slope = jnp.full_like(first.items.discrimination, common)
        first = first._replace(items=first.items._replace(discrimination=slope))
    first, free = apply_anchor(model, first, table.items, values)
    first = jax.tree.map(lambda a: jnp.asarray(a, floating), first)
    if common is not None:
        free = free.at[:, 0].set(False)
    return Problem(model, responses, free, anchored=True), first


def options_name(method: AbstractMethod | NUTS | Variational | str) -> str:
    """The name of a method, as options know it."""
    return method if isinstance(method, str) else type(method).__name__.lower()


def _num_anchored(anchor: Anchor, table: ResponseTable) -> int:
    known = set(table.items.tolist())
    return sum(name in known for name in read_anchor(anchor))


def _with_ability_prior(problem: Problem, method, first: Start) -> Problem:
    """The problem of a joint method with the population that suits a fixed scale.

    Unit slopes fix the unit of ability, and a penalty of N(0, 1) would then squeeze
    abilities of any other spread. A rough marginal fit says what it is.
    """
    if problem.model.family.has_slope or getattr(method, "penalty", 0) == 0:
        return problem
    population = estimation_scale(problem, first)
    chosen = choose_nodes(problem.model, first.items, population, problem.data)
    nodes = jnp.asarray(chosen, first.items[0].dtype)
    rough = _run_jit(
        problem, EM(nodes, 0.05), first._replace(theta=None), max_steps=100
    )
    found = rough.parameters
    prior = estimation_scale(problem, Start(found.items, None, found.population))
    return dataclasses.replace(problem, prior=prior._replace(log_weights=None))


def _fit_on_nodes(
    problem, method: EM | SAEM, first: Start, key, max_steps, clock
) -> tuple[Fit, EM | SAEM, Resolution]:
    """A fit on nodes fit for the data, refined where the first prove too wide."""
    model, data = problem.model, problem.data
    if isinstance(method, EM):
        # It draws nothing: with a key or without, it is one program.
        key = None
    dtype = first.items[0].dtype
    if isinstance(method, EM) and method.population == "histogram":
        # Hundreds of weights move slowly and matter little: no acceleration, and a
        # thousandth of a standard error.
        method = eqx.tree_at(lambda m: m.tolerance, method, max(method.tolerance, 1e-3))
    if dtype == jnp.float32 and isinstance(method, EM):
        # Rounding of a long sum leaves gradients of some thousandths of an error.
        method = eqx.tree_at(lambda m: m.tolerance, method, max(method.tolerance, 1e-2))
    given = method.nodes is not None
    population = estimation_scale(problem, first)
    for attempt in range(4):
        if not given:
            nodes = choose_nodes(model, first.items, population, data)
            if isinstance(method, EM):
                plain = method.population == "normal" and model.lengths is None
                if plain and len(nodes) > COARSE:
                    if LATTICE_NODES * data.num_subjects < len(nodes):
                        return _fit_lattice(
                            problem, method, first, key, max_steps, clock
                        )
                window = 20 * (len(nodes) // 50) if data.values.size >= LARGE else 0
                method = dataclasses.replace(method, window=window)
            method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype))
        result = _drive(problem, method, first, key, max_steps, clock)
        estimates = result.parameters
        grid = np.asarray(result.state.nodes)
        resolved = resolution(model, estimates.items, estimates.population, grid, data)
        if given or attempt == 3 or resolved.warning() is None:
            return result, method, resolved
        population = estimates.population._replace(log_weights=None)
        first = Start(estimates.items, None, population, estimates.lengths)
    raise AssertionError("the last attempt returns")


def _fit_lattice(problem, method: EM, first: Start, key, max_steps, clock):
    """EM with few subjects: coarse nodes first, then only nodes near the subjects."""
    model, data = problem.model, problem.data
    dtype = first.items[0].dtype
    # Standardised abilities of N subjects lie within sqrt(N - 1).
    reach = min(REACH, data.num_subjects**0.5 + 1)
    nodes = equal_nodes(-reach, reach, COARSE)
    method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype), window=0)
    # Good enough to find the subjects; the posteriors fall between these nodes.
    rough = dataclasses.replace(method, tolerance=max(method.tolerance, 0.03))
    result = _drive(problem, rough, first, key, max_steps, clock)
    for attempt in range(5):
        items, population = result.parameters[:2]
        plain = population._replace(log_weights=None)
        sd = float(plain.sd)
        grid = equal_nodes(-reach, reach, COARSE // 2)
        scores = score(model, items, plain, data, method="map", nodes=grid)
        centres = (np.asarray(scores.ability, float) - float(plain.mean)) / sd
        widths = np.asarray(scores.standard_error, float) / sd
        lattice = lattice_near(centres, widths)
        method = dataclasses.replace(method, nodes=jnp.asarray(lattice.nodes, dtype))
        weighted = plain._replace(log_weights=jnp.asarray(lattice.log_weights, dtype))
        first = Start(items, jnp.asarray(scores.ability), weighted)
        result = _drive(problem, method, first, key, max_steps, clock)
        # Settled once the subjects stay well inside the nodes kept for them.
        at = np.asarray(lattice.nodes)[np.asarray(result.state.centre)]
        settled = np.max(np.abs(at - centres) / widths) < KEPT / 4
        if settled or attempt == 4:
            smallest = float(np.min(widths)) * sd
            found = Resolution(lattice.nodes.size, lattice.spacing * sd, smallest)
            return result, method, found
    raise AssertionError("the last attempt returns")


def _drive(problem, method, first: Start, key, max_steps: int, clock) -> Fit:
    """Runs a method to its end, in one call or, to report progress, in chunks."""
    loop = _begin_jit(problem, method, first, key=key, max_steps=max_steps)
    # Unwatched, all steps are one chunk: of the same program, compiled once.
    chunk, done = max_steps if clock.progress is None else 1, 0
    while True:
        began = time.perf_counter()
        done += chunk
        result = _run_jit(
            problem,
            method,
            first,
            key=key,
            max_steps=max_steps,
            resume=loop,
            stop_after=jnp.asarray(done, jnp.int32),
        )
        status = int(result.status)
        clock.report(
            "fit",
            int(result.num_steps),
            float(result.objective),
            float(result.residual),
        )
        if status != Status.RUNNING:
            return result
        loop = loop_of(result)
        done = int(result.num_steps)
        # About a third of a second between reports.
        rate = chunk / max(time.perf_counter() - began, 1e-3)
        chunk = int(min(max(1, rate / 3), 4 * chunk))


def _describe_priors(model: Model) -> dict[str, str]:
    return {name: repr(prior) for name, prior in model.priors.items()}

"""The friendly door: from a table of responses to calibrated items and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._programs import stored_jit
from irtjax._types import KeyArray
from irtjax.anchors import Anchor, read_anchor
from irtjax.calibrating import build
from irtjax.calibration import Calibration
from irtjax.data.read import read
from irtjax.data.scores import Bounds
from irtjax.data.table import ResponseTable
from irtjax.estimators.base import (
    AbstractMethod,
    Start,
)
from irtjax.estimators.em import EM
from irtjax.estimators.laplace import Laplace, suitable_order
from irtjax.estimators.mcmc import NUTS
from irtjax.estimators.neural import Neural
from irtjax.estimators.saem import SAEM
from irtjax.estimators.start import start_values
from irtjax.estimators.variational import Variational
from irtjax.estimators.vibo import VIBO
from irtjax.fit_choices import (
    STEPS_BY_METHOD,
    STRUCTURED_METHODS,
    STRUCTURED_MODELS,
    check_data,
    make_method,
    make_model,
    options_name,
)
from irtjax.fit_defaults import AUTO, choose
from irtjax.fit_runs import (
    LARGE,
    anchored_problem,
    drive,
    fit_on_nodes,
    with_ability_prior,
)
from irtjax.models.base import Model
from irtjax.models.catalogue import (
    Priors,
)
from irtjax.models.continuous import AbstractScoreFamily
from irtjax.models.hierarchical import Hyperpriors
from irtjax.score_tables import check_ends, prepare, with_scores
from irtjax.structure_layout import NESTED, lay_out
from irtjax.structured import fit_structured
from irtjax.timing import Clock, ProgressCallback
from irtjax.uncertainty import KINDS, check_kind

#: What items of these methods are to be read with.
NO_ITEM_ERRORS = {
    "neural": "items come from networks that stopped early, without priors: they have"
    " no standard errors, and those of abilities take the items as known",
    "vibo": "items are means of a variational approximation: they have no standard"
    " errors here, and those of abilities take the items as known",
}

_start_jit = stored_jit(start_values)


def fit(
    data: ResponseTable | Any,
    model: Model | str = AUTO,
    method: AbstractMethod | NUTS | Variational | str = AUTO,
    *,
    priors: Priors = "weak",
    positive: bool = False,
    anchor: Anchor | None = None,
    start: Start | str = "proportions",
    population: str = "normal",
    standard_errors: str = "observed",
    item_uncertainty: bool = True,
    length_offset: float = 1.0,
    squeeze: float | Mapping[str, float] | None = None,
    ends: float | None = None,
    bounds: Bounds | None = None,
    level: float = 0.95,
    key: KeyArray | None = None,
    family: str | None = None,
    levels: Sequence[str] | Mapping[str, np.ndarray] = (),
    shared_items: str | Sequence[str] | np.ndarray | None = None,
    metric_effects: bool = True,
    spread_by_benchmark: bool = False,
    item_covariates: Mapping[str, np.ndarray] | None = None,
    subject_covariates: Mapping[str, np.ndarray] | np.ndarray | None = None,
    hyperpriors: Hyperpriors | None = None,
    checkpoint: str | None = None,
    resume: bool = False,
    dtype: Any = None,
    max_steps: int | None = None,
    progress: ProgressCallback | None = None,
) -> Calibration:
    """Fits a model to responses and scores the subjects.

    Args:
        data: A `ResponseTable`, or anything `irtjax.read` takes: a path, a data frame.
        model: "auto" chooses from the kind of the data: 2pl, graded, continuous or
            mixed (`fit_defaults.choose`). Or a model, or the name of one: "rasch",
            "1pl", "2pl", "3pl", "4pl",
            "probit1pl", "probit2pl", "graded", "partial_credit", "lart" (with answer
            lengths: `irtjax.read(..., length=...)`); for scores in [0, 1] "continuous",
            "beta", "inflated_beta" or, with items that are right or wrong, "mixed".
            Structured models: "multibenchmark" and "multimetric" (an ability for each
            benchmark or metric beside the general one), "hierarchical" (one ability;
            items by benchmark and further levels).
        method: "auto" integrates items out by "laplace" where they have few responses
            each, and uses "em" elsewhere; the summary states which and why. Or
            "em" (marginal maximum likelihood, or MAP with priors), "saem" (the same
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
            0 and 1 themselves, half-way to the score nearest to any end. May differ by
            benchmark (or metric), and None does.
        ends: For "inflated_beta": scores at most this far from 0 or 1 are at it.
        bounds: For models of scores: lowest and highest possible score, if these are
            not 0 and 1; or these by benchmark: ``{"judge": (1, 10)}``.
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
        spread_by_benchmark: For structured models: whether the items of each benchmark
            have standard deviations of their own around its mean; else one serves all.
        item_covariates: Likewise: numbers `[items]` by name that shift items (LLTM).
        subject_covariates: Likewise: numbers `[subjects]` by name, or `[subjects,
            covariates]`, that shift abilities (latent regression).
        hyperpriors: Likewise: scales of the priors of what is learned, in place of the
            usual ones; see `irtjax.Hyperpriors`.
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
    chosen_by_data = choose(
        table,
        model,
        method,
        bounds=bounds,
        for_em={
            "anchor": anchor is not None,
            "start": not (isinstance(start, str) and start == "proportions"),
            "population": population != "normal",
            "standard_errors": standard_errors != "observed",
            "item_uncertainty": not item_uncertainty,
            "priors": not (isinstance(priors, str) and priors == "weak"),
        },
        for_laplace={
            "levels": len(levels) > 0,
            "shared_items": shared_items is not None,
            "item_covariates": bool(item_covariates),
            "subject_covariates": subject_covariates is not None,
            "spread_by_benchmark": spread_by_benchmark,
            "hyperpriors": hyperpriors is not None,
        },
    )
    model, method, reason = chosen_by_data
    if uses_structure(model, method):
        _refuse_options_of_plain_fits(
            anchor=anchor is None,
            start=start == "proportions" if isinstance(start, str) else False,
            population=population == "normal",
            standard_errors=standard_errors == "observed",
            item_uncertainty=item_uncertainty,
        )
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
            reason=reason,
            plan={
                "levels": levels,
                "shared_items": shared_items,
                "metric_effects": metric_effects,
                "spread_by_benchmark": spread_by_benchmark,
                "item_covariates": item_covariates,
                "subject_covariates": subject_covariates,
                "hyperpriors": hyperpriors,
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
        ("spread_by_benchmark", "given" * spread_by_benchmark),
        ("hyperpriors", None if hyperpriors is None else (hyperpriors,)),
        ("family", family),
        ("metric_effects", "given" * (not metric_effects)),
    ):
        if given is not None and len(given):
            raise ValueError(
                f"{name} goes with structured models: use the model multibenchmark,"
                " multimetric or hierarchical, or the method laplace, nuts or vi"
            )
    assert not isinstance(method, NUTS | Variational)
    chosen = make_model(
        model, table, priors, positive=positive, ends=ends, bounds=bounds
    )
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
        problem, first = anchored_problem(
            chosen, responses, first, ordered, anchor, floating
        )
        if standard_errors != "none":
            check_kind(problem, standard_errors)
    steps = max_steps or STEPS_BY_METHOD.get(str(method), 1000)
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
            result, estimator, resolved = fit_on_nodes(
                problem, estimator, first, key, steps, clock
            )
        else:
            problem = with_ability_prior(problem, estimator, first)
            result = drive(problem, estimator, first, key, steps, clock)
            resolved = None
        jax.block_until_ready(result)
    options = {
        "model": chosen.name,
        "method": options_name(method),
        **({"choice": reason} if reason else {}),
        "priors": _describe_priors(chosen),
        "positive": positive,
        "anchored_items": 0 if anchor is None else _num_anchored(anchor, table),
        "start": start if isinstance(start, str) else "given",
        "population": getattr(estimator, "population", population),
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


def _refuse_options_of_plain_fits(**is_default: bool) -> None:
    """Raises ValueError where a structured fit is given what it has no use for."""
    given = [name for name, unused in is_default.items() if not unused]
    if given:
        raise ValueError(
            f"{given[0]} goes with plain models by em, saem, mm or gradient: structured"
            " models, and the methods laplace, nuts and vi, have no use for it; leave"
            " it out"
        )


def _fit_by_structure(
    table: ResponseTable,
    model: Model | str,
    method: Any,
    *,
    priors: Priors,
    ends: float | None,
    squeeze: float | Mapping[str, float] | None,
    bounds: Bounds | None,
    level: float,
    key: KeyArray,
    family: str | None,
    reason: str,
    plan: dict[str, Any],
    saving: dict[str, Any],
    dtype: Any,
    max_steps: int | None,
    clock: Clock,
) -> Calibration:
    """A structured fit: what is particular to it of `fit`."""
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
    if isinstance(plan["levels"], Mapping):
        # The labels of "benchmark/domain" are those of the domain.
        facets = {
            name.rsplit(NESTED)[-1]: np.asarray(labels).astype(str)
            for name, labels in plan["levels"].items()
        }
        table = dataclasses.replace(table, item_facets={**table.item_facets, **facets})
    named = isinstance(model, str) and model in STRUCTURED_MODELS
    kind = model
    if named:
        scores = table.kind == "continuous"
        kind = family or ("continuous" if scores else "2pl")
    elif family is not None:
        raise ValueError(
            "family goes with structured models: use the model multibenchmark,"
            " multimetric or hierarchical"
        )
    chosen = make_model(kind, table, "weak", positive=True, ends=ends, bounds=bounds)
    if not chosen.family.has_slope and chosen.scale == "standard":
        raise ValueError(
            f"structured models have equal slopes as 'rasch', with slopes of 1 and a"
            f" learned standard deviation of ability, not as {kind!r}: use 'rasch'"
        )
    if chosen.lengths is not None:
        raise ValueError(
            f"a {chosen.name} model is estimated by method='em' or 'saem', not"
            f" {options_name(method)!r}, which has no use for lengths"
        )
    check_data(table, chosen, level)
    floating = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    scores = prepare(table, chosen, squeeze=squeeze, bounds=bounds)
    if scores is not None:
        check_ends(scores, chosen)
        table = scores.table
    responses = with_scores(table.responses(floating), scores, floating)
    grouped = model in ("multibenchmark", "multimetric")
    names = np.unique(np.asarray(table.benchmarks)).tolist()
    if grouped and len(names) < 2:
        raise ValueError(
            f"a {model} model needs items of two or more benchmarks or metrics, not of"
            f" {names[0]!r} alone: name their column with benchmark= when reading, or"
            " use the model 'hierarchical'"
        )
    shared = plan["shared_items"]
    if shared is None and not plan["metric_effects"]:
        raise ValueError(
            "metric_effects=False goes with shared_items: metrics that share nothing"
            " have all parameters of their own"
        )
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
        order = suitable_order(chosen.family, table.num_subjects)
        by_name = {"nuts": NUTS(), "vi": Variational(), "laplace": Laplace(order=order)}
        method = by_name[method]
    name = model if isinstance(model, str) else model.name
    options = {
        "model": name,
        "method": options_name(method),
        **({"choice": reason} if reason else {}),
        "family": chosen.name,
        "priors": {k: repr(v) for k, v in fixed.items()},
        "levels": list(plan["levels"]),
        "item_covariates": sorted(plan["item_covariates"] or {}),
        "subject_covariates": layout.covariates.tolist(),
        **_sharing(shared, plan["metric_effects"]),
        **({"spread_by_benchmark": True} if plan["spread_by_benchmark"] else {}),
        **_scales(plan["hyperpriors"]),
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


def _scales(hyperpriors: Hyperpriors | None) -> dict[str, Any]:
    """What the record says of priors of what is learned: nothing of the usual ones."""
    if hyperpriors is None:
        return {}
    return {"hyperpriors": {k: float(v) for k, v in vars(hyperpriors).items()}}


def _num_anchored(anchor: Anchor, table: ResponseTable) -> int:
    known = set(table.items.tolist())
    return sum(name in known for name in read_anchor(anchor))


def _describe_priors(model: Model) -> dict[str, str]:
    return {name: repr(prior) for name, prior in model.priors.items()}

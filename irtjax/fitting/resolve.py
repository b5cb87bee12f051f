"""What a fit is asked for, by name: its model, its method, and data that suit them."""

from __future__ import annotations

import numpy as np

from irtjax.data.scores import Bounds
from irtjax.data.table import ResponseTable
from irtjax.estimators.driver import AbstractMethod
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.saem import SAEM
from irtjax.estimators.neural.twin import Neural
from irtjax.estimators.neural.vibo import VIBO
from irtjax.estimators.posterior.nuts import NUTS
from irtjax.estimators.posterior.variational import Variational
from irtjax.models.catalogue import (
    LENGTH_MODELS,
    MODELS,
    ORDERED_MODELS,
    SCORE_MODELS,
    Priors,
)
from irtjax.models.families.bounded import binary_items
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.models.model import Model

METHODS = ("em", "saem", "mm", "gradient", "neural", "vibo")
#: Methods of structured models, and these: see `irtjax.fitting.multilevel`.
STRUCTURED_METHODS = ("laplace", "nuts", "vi")
STRUCTURED_MODELS = ("multibenchmark", "multimetric", "hierarchical")
#: Step limits of plain fits, by method.
STEPS_BY_METHOD = {"em": 1000, "saem": 200, "mm": 5000, "gradient": 2000}


def make_model(
    model: Model | str,
    table: ResponseTable,
    priors: Priors,
    *,
    positive: bool = False,
    ends: float | None = None,
    bounds: Bounds | None = None,
) -> Model:
    """A model by name, with the categories or kinds of items that the data have."""
    if ends is not None and model != "inflated_beta":
        raise ValueError("ends is for the model 'inflated_beta'")
    if isinstance(model, Model):
        return model
    if model in SCORE_MODELS:
        return _score_model(model, table, priors, positive, ends, bounds)
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
        plain = (*MODELS, *ORDERED_MODELS, *LENGTH_MODELS, *SCORE_MODELS)
        names = ", ".join([*plain, *STRUCTURED_MODELS])
        raise ValueError(f"no model {model!r}; there are {names}")
    if positive and MODELS[model](priors).family.has_slope:
        return MODELS[model](priors, positive=True)
    return MODELS[model](priors)


def _score_model(
    model: str,
    table: ResponseTable,
    priors: Priors,
    positive: bool,
    ends: float | None,
    bounds: Bounds | None,
) -> Model:
    if model == "inflated_beta":
        return SCORE_MODELS[model](priors, positive=positive, ends=ends or 0.0)
    if model != "mixed":
        return SCORE_MODELS[model](priors, positive=positive)
    binary = binary_items(table, bounds)
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
        own = getattr(method, "population", "normal")
        if population not in ("normal", own):
            raise ValueError(
                f"population={population!r} does not reach a method that is given: use"
                f" method=EM(population={population!r}), or method='em'"
            )
        return method
    if method == "em":
        return EM(population=population)
    if method not in METHODS:
        names = ", ".join([*METHODS, *STRUCTURED_METHODS])
        raise ValueError(f"no method {method!r}; there are {names}")
    if population != "normal":
        raise ValueError(f"method {method!r} has no population to estimate; use 'em'")
    if method == "saem":
        return SAEM(num_steps=max_steps or STEPS_BY_METHOD["saem"])
    if method in ("neural", "vibo"):
        return Neural() if method == "neural" else VIBO()
    penalty = 1.0 if penalised else 0.0
    if method == "mm":
        from irtjax.estimators.joint.mm import MM

        return MM(penalty=penalty)
    from irtjax.estimators.joint.gradient import Gradient

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


def options_name(method: AbstractMethod | NUTS | Variational | str) -> str:
    """The name of a method, as options know it."""
    return method if isinstance(method, str) else type(method).__name__.lower()

"""From a labelled table and a model to the problem of arrays that a method solves."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from irtjax._lazy import load_name
from irtjax.data.table import ResponseTable
from irtjax.estimators.acceptance import listed
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.estimators.driver import AbstractEstimator
from irtjax.fitting.specification import AbstractSpecification, Parts, Task
from irtjax.models.catalogue import MODELS, model_class
from irtjax.models.factors import Factor
from irtjax.models.model import Model
from irtjax.models.multilevel.specification import AbstractMultilevel

#: Where the specification of each kind of model is, which loads on first use; of
#: `Model`, by methods that estimate items.
SPECIFICATIONS: dict[type, str] = {
    Model: "irtjax.fitting.one_ability:OneAbility",
    AbstractMultilevel: "irtjax.fitting.multilevel:Multilevel",
    Factor: "irtjax.fitting.several_abilities:FactorAnalysis",
}


def specify(
    model: Any, method: AbstractEstimator | type[AbstractEstimator] | None = None
) -> AbstractSpecification:
    """The specification of a model or a name, where `method` or its class fits it.

    A specification is returned as it is.

    Raises:
        ValueError: If the model is no model.

    >>> specify("2pl").name, specify("multibenchmark").default[0]
    ('2pl', 'laplace')
    """
    if isinstance(model, AbstractSpecification):
        return model
    kind, integrates = model_class(model), method is not None and method.multilevel
    for base in SPECIFICATIONS:
        if issubclass(kind, base):
            base = AbstractMultilevel if base is Model and integrates else base
            return load_name(SPECIFICATIONS[base])(model)
    raise ValueError(f"no model {model!r}; there are {', '.join(MODELS)}")


def make_task(
    table: ResponseTable,
    specification: AbstractSpecification,
    method: AbstractEstimator | str,
    parts: Parts,
    *,
    level: float,
    dtype: Any,
) -> Task:
    """The task of a fit; a ValueError in one line for what does not suit."""
    kind = method_class(method) if isinstance(method, str) else method
    if not specification.serves(kind):
        served = [m for m in METHODS if specification.serves(method_class(m))]
        raise ValueError(
            f"a {specification.name} model is estimated by {listed(served)},"
            f" not {(method if isinstance(method, str) else method.name)!r}"
        )
    # The method's state has the dtype of the start values.
    floating = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    return specification.task(table, method, parts, level, floating)

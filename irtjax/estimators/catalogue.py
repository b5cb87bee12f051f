"""The named methods: classes, loaded when a name is first used."""

from __future__ import annotations

from typing import Any

from irtjax._lazy import load_name

#: Where the class of each method is.
METHODS: dict[str, str] = {
    "em": "irtjax.estimators.marginal.em:EM",
    "saem": "irtjax.estimators.marginal.saem:SAEM",
    "gvem": "irtjax.estimators.marginal.gaussian:GVEM",
    "mm": "irtjax.estimators.joint.mm:MM",
    "gradient": "irtjax.estimators.joint.gradient:Gradient",
    "neural": "irtjax.estimators.neural.twin:Neural",
    "vibo": "irtjax.estimators.neural.vibo:VIBO",
    "laplace": "irtjax.estimators.laplace.laplace:Laplace",
    "nuts": "irtjax.estimators.posterior.methods:NUTS",
    "vi": "irtjax.estimators.posterior.methods:Variational",
}


def method_class(name: str) -> type[Any]:
    """The class of a method, or a ValueError that lists the methods.

    >>> method_class("em").__name__
    'EM'
    """
    if name not in METHODS:
        raise ValueError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return load_name(METHODS[name])

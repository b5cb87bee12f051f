"""irtjax: item response theory in JAX for AI evaluation logs.

Every public name is loaded when it is first used, so that importing the package (and
the command line's help) takes no time and leaves JAX untouched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from irtjax._backend import guard_jax_import

if TYPE_CHECKING:
    from irtjax._types import Status as Status
    from irtjax.adaptive.session import AdaptiveTest as AdaptiveTest
    from irtjax.adaptive.study import simulate_tests as simulate_tests
    from irtjax.analysis.errors import SubsetErrors as SubsetErrors
    from irtjax.analysis.shrinking import shrink as shrink
    from irtjax.analysis.shrinking import subset_errors as subset_errors
    from irtjax.analysis.shrunken import Shrunken as Shrunken
    from irtjax.analysis.shrunken import load_subset as load_subset
    from irtjax.auditing import Audit as Audit
    from irtjax.auditing import audit as audit
    from irtjax.calibration import Calibration as Calibration
    from irtjax.data import ResponseTable as ResponseTable
    from irtjax.data import read as read
    from irtjax.data.responses import Responses as Responses
    from irtjax.demo import make_demo as make_demo
    from irtjax.estimators.base import AbstractMethod as AbstractMethod
    from irtjax.estimators.base import Fit as Fit
    from irtjax.estimators.base import Parameters as Parameters
    from irtjax.estimators.base import Problem as Problem
    from irtjax.estimators.base import Start as Start
    from irtjax.estimators.base import run as run
    from irtjax.estimators.em import EM as EM
    from irtjax.estimators.gradient import Gradient as Gradient
    from irtjax.estimators.laplace import Laplace as Laplace
    from irtjax.estimators.mcmc import NUTS as NUTS
    from irtjax.estimators.mm import MM as MM
    from irtjax.estimators.multistart import multistart as multistart
    from irtjax.estimators.neural import Neural as Neural
    from irtjax.estimators.saem import SAEM as SAEM
    from irtjax.estimators.start import start_values as start_values
    from irtjax.estimators.variational import Variational as Variational
    from irtjax.estimators.vibo import VIBO as VIBO
    from irtjax.fitting import fit as fit
    from irtjax.information import item_information as item_information
    from irtjax.information import test_information as test_information
    from irtjax.models.base import AbstractResponseFamily as AbstractResponseFamily
    from irtjax.models.base import Model as Model
    from irtjax.models.base import Population as Population
    from irtjax.models.catalogue import MODELS as MODELS
    from irtjax.models.hierarchical import Hyperpriors as Hyperpriors
    from irtjax.models.simulate import simulate as simulate
    from irtjax.posterior import leave_one_out as leave_one_out
    from irtjax.posterior import predictive_checks as predictive_checks
    from irtjax.prediction import Predictions as Predictions
    from irtjax.prediction import predict as predict
    from irtjax.report import write_report as write_report
    from irtjax.resampling import bootstrap as bootstrap
    from irtjax.resampling import percentile_interval as percentile_interval
    from irtjax.storage import load as load
    from irtjax.storage import save as save
    from irtjax.uncertainty import item_covariance as item_covariance
    from irtjax.verbs import compare as compare
    from irtjax.verbs import rank as rank
    from irtjax.verbs import score as score

#: Where each public name comes from.
_HOMES = {
    "AbstractMethod": "irtjax.estimators.base",
    "AbstractResponseFamily": "irtjax.models.base",
    "AdaptiveTest": "irtjax.adaptive.session",
    "Audit": "irtjax.auditing",
    "Calibration": "irtjax.calibration",
    "EM": "irtjax.estimators.em",
    "Fit": "irtjax.estimators.base",
    "Gradient": "irtjax.estimators.gradient",
    "Hyperpriors": "irtjax.models.hierarchical",
    "Laplace": "irtjax.estimators.laplace",
    "MM": "irtjax.estimators.mm",
    "NUTS": "irtjax.estimators.mcmc",
    "Neural": "irtjax.estimators.neural",
    "SAEM": "irtjax.estimators.saem",
    "Shrunken": "irtjax.analysis.shrunken",
    "SubsetErrors": "irtjax.analysis.errors",
    "MODELS": "irtjax.models.catalogue",
    "Model": "irtjax.models.base",
    "Parameters": "irtjax.estimators.base",
    "Population": "irtjax.models.base",
    "Predictions": "irtjax.prediction",
    "Problem": "irtjax.estimators.base",
    "ResponseTable": "irtjax.data",
    "Responses": "irtjax.data.responses",
    "Start": "irtjax.estimators.base",
    "Status": "irtjax._types",
    "VIBO": "irtjax.estimators.vibo",
    "Variational": "irtjax.estimators.variational",
    "audit": "irtjax.auditing",
    "bootstrap": "irtjax.resampling",
    "compare": "irtjax.verbs",
    "fit": "irtjax.fitting",
    "item_covariance": "irtjax.uncertainty",
    "item_information": "irtjax.information",
    "leave_one_out": "irtjax.posterior",
    "load": "irtjax.storage",
    "load_subset": "irtjax.analysis.shrunken",
    "make_demo": "irtjax.demo",
    "multistart": "irtjax.estimators.multistart",
    "percentile_interval": "irtjax.resampling",
    "predict": "irtjax.prediction",
    "predictive_checks": "irtjax.posterior",
    "rank": "irtjax.verbs",
    "read": "irtjax.data",
    "run": "irtjax.estimators.base",
    "save": "irtjax.storage",
    "score": "irtjax.verbs",
    "shrink": "irtjax.analysis.shrinking",
    "simulate": "irtjax.models.simulate",
    "simulate_tests": "irtjax.adaptive.study",
    "start_values": "irtjax.estimators.start",
    "subset_errors": "irtjax.analysis.shrinking",
    "test_information": "irtjax.information",
    "write_report": "irtjax.report",
}
#: Modules reached as attributes of the package, such as `irtjax.plots`.
_MODULES = (
    "adaptive",
    "auditing",
    "checks",
    "data",
    "estimators",
    "fitting",
    "information",
    "models",
    "plots",
    "ranking",
    "report",
    "scoring",
    "storage",
    "uncertainty",
)

guard_jax_import()

__all__ = [*sorted(_HOMES), *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"irtjax.{name}")
    elif name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value = version("irtjax")
        except PackageNotFoundError:
            value = "0+unknown"  # Run from a source tree that was never installed.
    else:
        raise AttributeError(f"module 'irtjax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})

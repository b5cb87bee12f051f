"""irtjax: item response theory in JAX for AI evaluation logs.

Every public name is loaded when it is first used, so that importing the package (and
the command line's help) takes no time and leaves JAX untouched.
"""

from __future__ import annotations

import importlib

from irtjax._backend import guard_jax_import

# As in `typing`, whose import takes most of the time before the command line listens to
# Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from irtjax._types import Status as Status
    from irtjax.adaptive.session import AdaptiveTest as AdaptiveTest
    from irtjax.adaptive.study import simulate_tests as simulate_tests
    from irtjax.auditing import Audit as Audit
    from irtjax.auditing import audit as audit
    from irtjax.calibration.calibration import Calibration as Calibration
    from irtjax.calibration.rank import compare as compare
    from irtjax.calibration.rank import rank as rank
    from irtjax.calibration.score import score as score
    from irtjax.data import ResponseTable as ResponseTable
    from irtjax.data import read as read
    from irtjax.data.frames import to_frame as to_frame
    from irtjax.data.responses import Responses as Responses
    from irtjax.estimators.driver import AbstractMethod as AbstractMethod
    from irtjax.estimators.driver import Fit as Fit
    from irtjax.estimators.driver import run as run
    from irtjax.estimators.joint.gradient import Gradient as Gradient
    from irtjax.estimators.joint.mm import MM as MM
    from irtjax.estimators.laplace.laplace import Laplace as Laplace
    from irtjax.estimators.marginal.em import EM as EM
    from irtjax.estimators.marginal.gaussian import GVEM as GVEM
    from irtjax.estimators.marginal.saem import SAEM as SAEM
    from irtjax.estimators.multistart import multistart as multistart
    from irtjax.estimators.neural.twin import Neural as Neural
    from irtjax.estimators.neural.vibo import VIBO as VIBO
    from irtjax.estimators.posterior.methods import NUTS as NUTS
    from irtjax.estimators.posterior.methods import Variational as Variational
    from irtjax.estimators.start import start_values as start_values
    from irtjax.fitting.bootstrap import bootstrap as bootstrap
    from irtjax.fitting.bootstrap import percentile_interval as percentile_interval
    from irtjax.fitting.fit import fit as fit
    from irtjax.harness.frames import from_inspect as from_inspect
    from irtjax.likelihood.problem import Parameters as Parameters
    from irtjax.likelihood.problem import Problem as Problem
    from irtjax.likelihood.problem import Start as Start
    from irtjax.models.catalogue import MODELS as MODELS
    from irtjax.models.factors import Factor as Factor
    from irtjax.models.family import AbstractResponseFamily as AbstractResponseFamily
    from irtjax.models.model import Model as Model
    from irtjax.models.model import Population as Population
    from irtjax.models.multilevel.model import Hyperpriors as Hyperpriors
    from irtjax.models.multilevel.specification import Hierarchical as Hierarchical
    from irtjax.models.multilevel.specification import MultiBenchmark as MultiBenchmark
    from irtjax.models.multilevel.specification import MultiMetric as MultiMetric
    from irtjax.models.simulate import simulate as simulate
    from irtjax.prediction.predictive_checks import leave_one_out as leave_one_out
    from irtjax.prediction.predictive_checks import (
        predictive_checks as predictive_checks,
    )
    from irtjax.prediction.responses import Predictions as Predictions
    from irtjax.prediction.responses import predict as predict
    from irtjax.report import write_report as write_report
    from irtjax.report.demo import make_demo as make_demo
    from irtjax.scoring.information import item_information as item_information
    from irtjax.scoring.information import test_information as test_information
    from irtjax.storage import load as load
    from irtjax.storage import save as save
    from irtjax.subsets.errors import SubsetErrors as SubsetErrors
    from irtjax.subsets.shrink import shrink as shrink
    from irtjax.subsets.shrink import subset_errors as subset_errors
    from irtjax.subsets.subset import Shrunken as Shrunken
    from irtjax.subsets.subset import load_subset as load_subset
    from irtjax.uncertainty import item_covariance as item_covariance
    from irtjax.validity.agreement import response_icc as response_icc
    from irtjax.validity.dimensionality import dimensions as dimensions
    from irtjax.validity.discrimination_path import (
        discrimination_path as discrimination_path,
    )
    from irtjax.validity.heterogeneity import heterogeneity as heterogeneity
    from irtjax.validity.missingness import missingness as missingness
    from irtjax.validity.stability import stability as stability

#: The public names of each module that has some.
_NAMES = {
    "_types": "Status",
    "adaptive.session": "AdaptiveTest",
    "adaptive.study": "simulate_tests",
    "auditing": "Audit audit",
    "calibration.calibration": "Calibration",
    "calibration.rank": "compare rank",
    "calibration.score": "score",
    "data": "ResponseTable read",
    "data.frames": "to_frame",
    "data.responses": "Responses",
    "estimators.driver": "AbstractMethod Fit run",
    "estimators.joint.gradient": "Gradient",
    "estimators.joint.mm": "MM",
    "estimators.laplace.laplace": "Laplace",
    "estimators.marginal.em": "EM",
    "estimators.marginal.gaussian": "GVEM",
    "estimators.marginal.saem": "SAEM",
    "estimators.multistart": "multistart",
    "estimators.neural.twin": "Neural",
    "estimators.neural.vibo": "VIBO",
    "estimators.posterior.methods": "NUTS Variational",
    "estimators.start": "start_values",
    "fitting.bootstrap": "bootstrap percentile_interval",
    "fitting.fit": "fit",
    "harness.frames": "from_inspect",
    "likelihood.problem": "Parameters Problem Start",
    "models.catalogue": "MODELS",
    "models.factors": "Factor",
    "models.family": "AbstractResponseFamily",
    "models.model": "Model Population",
    "models.multilevel.model": "Hyperpriors",
    "models.multilevel.specification": "Hierarchical MultiBenchmark MultiMetric",
    "models.simulate": "simulate",
    "prediction.predictive_checks": "leave_one_out predictive_checks",
    "prediction.responses": "Predictions predict",
    "report": "write_report",
    "report.demo": "make_demo",
    "scoring.information": "item_information test_information",
    "storage": "load save",
    "subsets.errors": "SubsetErrors",
    "subsets.shrink": "shrink subset_errors",
    "subsets.subset": "Shrunken load_subset",
    "uncertainty": "item_covariance",
    "validity.agreement": "response_icc",
    "validity.dimensionality": "dimensions",
    "validity.discrimination_path": "discrimination_path",
    "validity.heterogeneity": "heterogeneity",
    "validity.missingness": "missingness",
    "validity.stability": "stability",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
#: Modules reached as attributes of the package, such as `irtjax.plots`.
_MODULES = (
    "adaptive auditing calibration data estimators fitting functional harness models"
    " numerics plots prediction ranking report scoring storage subsets uncertainty"
    " validity"
).split()

guard_jax_import()

__all__ = [*sorted(_HOMES), *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"irtjax.{_HOMES[name]}"), name)
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
    return [*__all__, "__version__"]

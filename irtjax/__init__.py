"""irtjax: item response theory in JAX for AI evaluation logs.

Every public name is loaded when it is first used, so that importing the package (and
the command line's help) takes no time and leaves JAX untouched.
"""

import sys

# As in `typing`. Nothing is imported here that Python has not loaded: a Ctrl-C that
# comes before the command line listens to it would show this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from irtjax._types import Status as Status
    from irtjax.adaptive.session import AdaptiveTest as AdaptiveTest
    from irtjax.adaptive.study import simulate_tests as simulate_tests
    from irtjax.auditing import Audit as Audit
    from irtjax.auditing import audit as audit
    from irtjax.calibration.abilities import Abilities as Abilities
    from irtjax.calibration.calibration import Calibration as Calibration
    from irtjax.calibration.score import score as score
    from irtjax.comparisons.elo import elo as elo
    from irtjax.comparisons.fit import Arena as Arena
    from irtjax.comparisons.fit import fit_comparisons as fit_comparisons
    from irtjax.comparisons.influence import influence as influence
    from irtjax.comparisons.joint import fit_jointly as fit_jointly
    from irtjax.comparisons.plan import battles_to_decide as battles_to_decide
    from irtjax.comparisons.plan import plan_battles as plan_battles
    from irtjax.data import ResponseTable as ResponseTable
    from irtjax.data import read as read
    from irtjax.data.cleaning import clean as clean
    from irtjax.data.comparison_table import ComparisonTable as ComparisonTable
    from irtjax.data.frames import to_frame as to_frame
    from irtjax.data.reading.comparisons import read_comparisons as read_comparisons
    from irtjax.data.responses import Responses as Responses
    from irtjax.data.split_items import split_items as split_items
    from irtjax.estimators.driver import AbstractMethod as AbstractMethod
    from irtjax.estimators.driver import Fit as Fit
    from irtjax.estimators.driver import run as run
    from irtjax.estimators.joint.gradient import Gradient as Gradient
    from irtjax.estimators.joint.mm import MM as MM
    from irtjax.estimators.laplace.laplace import Laplace as Laplace
    from irtjax.estimators.laplace.problem import MultilevelProblem as MultilevelProblem
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
    from irtjax.fitting.new_items import calibrate_items as calibrate_items
    from irtjax.fitting.numpyro_model import numpyro_model as numpyro_model
    from irtjax.fitting.verbs import compare as compare
    from irtjax.fitting.verbs import rank as rank
    from irtjax.harness.frames import from_inspect as from_inspect
    from irtjax.inference import item_covariance as item_covariance
    from irtjax.inference.information import item_information as item_information
    from irtjax.inference.information import test_information as test_information
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
    from irtjax.prediction.agreement import response_icc as response_icc
    from irtjax.prediction.cold_start import cold_start as cold_start
    from irtjax.prediction.cross_validation import cross_validate as cross_validate
    from irtjax.prediction.generalise import generalise as generalise
    from irtjax.prediction.predictive_checks import leave_one_out as leave_one_out
    from irtjax.prediction.predictive_checks import (
        predictive_checks as predictive_checks,
    )
    from irtjax.prediction.rectified import estimate_score as estimate_score
    from irtjax.prediction.responses import Predictions as Predictions
    from irtjax.prediction.responses import predict as predict
    from irtjax.report import write_report as write_report
    from irtjax.report.demo import make_demo as make_demo
    from irtjax.storage import add as add
    from irtjax.storage import load as load
    from irtjax.storage import save as save
    from irtjax.storage.history import history as history
    from irtjax.subsets.errors import SubsetErrors as SubsetErrors
    from irtjax.subsets.shrink import shrink as shrink
    from irtjax.subsets.shrink import subset_errors as subset_errors
    from irtjax.subsets.subset import Shrunken as Shrunken
    from irtjax.subsets.subset import load_subset as load_subset
    from irtjax.validity.claims import claim as claim
    from irtjax.validity.correlates import correlates as correlates
    from irtjax.validity.dif import dif as dif
    from irtjax.validity.dimensionality import dimensions as dimensions
    from irtjax.validity.discrimination_path import (
        discrimination_path as discrimination_path,
    )
    from irtjax.validity.equating import equate as equate
    from irtjax.validity.filtering import filter_items as filter_items
    from irtjax.validity.fit_statistics import fit_statistics as fit_statistics
    from irtjax.validity.forecast import forecast as forecast
    from irtjax.validity.generalisability import generalisability as generalisability
    from irtjax.validity.heterogeneity import heterogeneity as heterogeneity
    from irtjax.validity.horizons import horizons as horizons
    from irtjax.validity.judges import fit_judges as fit_judges
    from irtjax.validity.linking import link as link
    from irtjax.validity.missingness import missingness as missingness
    from irtjax.validity.nested_fits import compare_fits as compare_fits
    from irtjax.validity.network import network as network
    from irtjax.validity.plausible_values import plausible_values as plausible_values
    from irtjax.validity.power import Power as Power
    from irtjax.validity.power import power as power
    from irtjax.validity.rasch import rasch as rasch
    from irtjax.validity.reliability import reliability as reliability
    from irtjax.validity.semantic import semantic_space as semantic_space
    from irtjax.validity.stability import stability as stability

#: The module of each public name, in the order of the names. A literal, like all here:
#: in a loop or a call Ctrl-C could end the import.
_HOMES = {
    "Abilities": "calibration.abilities",
    "AbstractMethod": "estimators.driver",
    "AbstractResponseFamily": "models.family",
    "AdaptiveTest": "adaptive.session",
    "Arena": "comparisons.fit",
    "Audit": "auditing",
    "Calibration": "calibration.calibration",
    "ComparisonTable": "data.comparison_table",
    "EM": "estimators.marginal.em",
    "Factor": "models.factors",
    "Fit": "estimators.driver",
    "GVEM": "estimators.marginal.gaussian",
    "Gradient": "estimators.joint.gradient",
    "Hierarchical": "models.multilevel.specification",
    "Hyperpriors": "models.multilevel.model",
    "Laplace": "estimators.laplace.laplace",
    "MM": "estimators.joint.mm",
    "MODELS": "models.catalogue",
    "Model": "models.model",
    "MultiBenchmark": "models.multilevel.specification",
    "MultiMetric": "models.multilevel.specification",
    "MultilevelProblem": "estimators.laplace.problem",
    "NUTS": "estimators.posterior.methods",
    "Neural": "estimators.neural.twin",
    "Parameters": "likelihood.problem",
    "Population": "models.model",
    "Power": "validity.power",
    "Predictions": "prediction.responses",
    "Problem": "likelihood.problem",
    "ResponseTable": "data",
    "Responses": "data.responses",
    "SAEM": "estimators.marginal.saem",
    "Shrunken": "subsets.subset",
    "Start": "likelihood.problem",
    "Status": "_types",
    "SubsetErrors": "subsets.errors",
    "VIBO": "estimators.neural.vibo",
    "Variational": "estimators.posterior.methods",
    "add": "storage",
    "audit": "auditing",
    "battles_to_decide": "comparisons.plan",
    "bootstrap": "fitting.bootstrap",
    "calibrate_items": "fitting.new_items",
    "claim": "validity.claims",
    "clean": "data.cleaning",
    "cold_start": "prediction.cold_start",
    "compare": "fitting.verbs",
    "compare_fits": "validity.nested_fits",
    "correlates": "validity.correlates",
    "cross_validate": "prediction.cross_validation",
    "dif": "validity.dif",
    "dimensions": "validity.dimensionality",
    "discrimination_path": "validity.discrimination_path",
    "elo": "comparisons.elo",
    "equate": "validity.equating",
    "estimate_score": "prediction.rectified",
    "filter_items": "validity.filtering",
    "fit": "fitting.fit",
    "fit_comparisons": "comparisons.fit",
    "fit_jointly": "comparisons.joint",
    "fit_judges": "validity.judges",
    "fit_statistics": "validity.fit_statistics",
    "forecast": "validity.forecast",
    "from_inspect": "harness.frames",
    "generalisability": "validity.generalisability",
    "generalise": "prediction.generalise",
    "heterogeneity": "validity.heterogeneity",
    "history": "storage.history",
    "horizons": "validity.horizons",
    "influence": "comparisons.influence",
    "item_covariance": "inference",
    "item_information": "inference.information",
    "leave_one_out": "prediction.predictive_checks",
    "link": "validity.linking",
    "load": "storage",
    "load_subset": "subsets.subset",
    "make_demo": "report.demo",
    "missingness": "validity.missingness",
    "multistart": "estimators.multistart",
    "network": "validity.network",
    "numpyro_model": "fitting.numpyro_model",
    "percentile_interval": "fitting.bootstrap",
    "plan_battles": "comparisons.plan",
    "plausible_values": "validity.plausible_values",
    "power": "validity.power",
    "predict": "prediction.responses",
    "predictive_checks": "prediction.predictive_checks",
    "rank": "fitting.verbs",
    "rasch": "validity.rasch",
    "read": "data",
    "read_comparisons": "data.reading.comparisons",
    "reliability": "validity.reliability",
    "response_icc": "prediction.agreement",
    "run": "estimators.driver",
    "save": "storage",
    "score": "calibration.score",
    "semantic_space": "validity.semantic",
    "shrink": "subsets.shrink",
    "simulate": "models.simulate",
    "simulate_tests": "adaptive.study",
    "split_items": "data.split_items",
    "stability": "validity.stability",
    "start_values": "estimators.start",
    "subset_errors": "subsets.shrink",
    "test_information": "inference.information",
    "to_frame": "data.frames",
    "write_report": "report",
}
#: Modules reached as attributes of the package, such as `irtjax.plots`.
_MODULES = (
    "adaptive",
    "auditing",
    "calibration",
    "comparisons",
    "data",
    "estimators",
    "fitting",
    "functional",
    "harness",
    "inference",
    "models",
    "numerics",
    "plots",
    "prediction",
    "ranking",
    "report",
    "storage",
    "subsets",
    "validity",
)


class _BeforeJax:
    """An import hook that finds nothing: it acts when JAX is first imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None) -> None:
        """Finds nothing, and sets XLA's option when JAX is about to be imported."""
        if name == "jax" and cls in sys.meta_path:
            sys.meta_path.remove(cls)
            from irtjax._backend import turn_off_faulty_fusion

            turn_off_faulty_fusion()


if "jax" in sys.modules:
    from irtjax._backend import turn_off_faulty_fusion

    turn_off_faulty_fusion()
else:
    sys.meta_path.insert(0, _BeforeJax)

__all__ = [*_HOMES, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(f"irtjax.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"irtjax.{name}")
    elif name == "__version__":
        from irtjax._version import package_version

        value = package_version()
    else:
        raise AttributeError(f"module 'irtjax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

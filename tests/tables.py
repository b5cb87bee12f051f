"""The tables of models and methods: an entry added here is tested for free.

`tests/test_grid.py` compares fits of the arrays with brute force, for every method that
ends at an optimum of these likelihoods. `tests/test_every_fit.py` gives every name of
the package's catalogues to `irtjax.fit`. All cases of a file share one shape of data,
so that what is compiled for one test serves the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.data.responses import Responses
from irtjax.data.scores import END
from irtjax.estimators.catalogue import METHODS as ALL_METHODS
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import AbstractEstimator, AbstractMethod, Fit, run
from irtjax.estimators.joint.gradient import Gradient
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.gaussian import GVEM
from irtjax.estimators.neural.trained import AbstractTrained
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.models import catalogue
from irtjax.models.families.continuous import AbstractScoreFamily, LogitNormalScores
from irtjax.models.families.graded import Graded, PartialCredit
from irtjax.models.families.inflated import InflatedItems
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.families.mixed import MixedScores
from irtjax.models.families.nominal import Nominal
from irtjax.models.families.rating import RatingScale
from irtjax.models.families.shares import ShareItems
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import equal_nodes
from tests import brute_force

NUM_SUBJECTS, NUM_ITEMS = 240, 6
NODES = equal_nodes(-6.0, 6.0, 61)

#: Every model of the package, by a name of its own.
MODELS: dict[str, Callable[[], Model]] = {
    "rasch": catalogue.rasch,
    "1pl": catalogue.one_parameter,
    "2pl": catalogue.two_parameter,
    "2pl positive": lambda: catalogue.two_parameter(positive=True),
    "3pl": catalogue.three_parameter,
    "4pl": catalogue.four_parameter,
    "probit1pl": catalogue.probit_one_parameter,
    "probit2pl": catalogue.probit_two_parameter,
    "cloglog2pl": catalogue.cloglog_two_parameter,
    "graded": lambda: catalogue.graded(3),
    "partial_credit": lambda: catalogue.partial_credit(3),
    "pcm": lambda: catalogue.partial_credit_unit(3),
    "rsm": lambda: catalogue.rating_scale(3),
    "nominal": lambda: catalogue.nominal(3),
    "continuous": catalogue.continuous,
    "beta": catalogue.beta,
    "inflated_beta": catalogue.inflated_beta,
    "share": catalogue.share,
    "mixed": lambda: catalogue.mixed(np.arange(NUM_ITEMS) % 2 == 0),
}
#: What is tested in the slow run only: "mixed" contains the first, and programs of
#: gamma functions take a quarter of a minute to compile.
TWINS = ("continuous", "beta", "inflated_beta", "share")
#: Likewise: another model of the same kind, or one that contains it, stands for each.
RELATIVES = (
    "1pl",
    "2pl positive",
    "3pl",
    "probit1pl",
    "probit2pl",
    "cloglog2pl",
    "partial_credit",
    "pcm",
    "rsm",
)
#: The names of the models, as parameters of tests.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in TWINS + RELATIVES else name
    for name in MODELS
]


class Entry(NamedTuple):
    """A method, and which models it fits."""

    create: Callable[[], AbstractMethod]
    fits: Callable[[Model], bool]
    joint: bool


def _is_mm_model(model: Model) -> bool:
    family = model.family
    if isinstance(family, Binary):
        # The weak prior of positive slopes is not quadratic.
        plain = family.asymptotes == 0 and model.lengths is None
        return plain and family.slopes != "positive"
    return isinstance(family, Graded | PartialCredit)


def marginal_method(tolerance: float = 1e-4, **options) -> EM:
    """EM on the common nodes; the tolerance is an array, so it never recompiles."""
    return EM(jnp.asarray(NODES), jnp.asarray(tolerance), **options)


def _is_quick(model: Model) -> bool:
    """A model of each kind: the others add compilation and nothing of their own."""
    return model.name in ("2pl", "4pl", "graded")


#: Pairs of the slow run only: their fits have references of their own in the default
#: one, in the tests of the model or of the method.
LIKE_OTHERS = (
    ("4pl", "em"),
    ("mixed", "em"),
    ("graded", "em"),
    ("nominal", "em"),
    ("rasch", "mm"),
    ("probit2pl", "mm"),
    ("graded", "mm"),
    ("2pl", "gradient"),
    ("4pl", "gradient"),
    ("graded", "gradient"),
)


#: Every method of the package, as a user would set it up.
METHODS: dict[str, Entry] = {
    "em": Entry(marginal_method, lambda model: True, False),
    "mm": Entry(MM, _is_mm_model, True),
    "gradient": Entry(Gradient, _is_quick, True),
}

PAIRS = [
    pytest.param(
        (model, method),
        marks=[pytest.mark.slow]
        * (model in TWINS + RELATIVES or (model, method) in LIKE_OTHERS),
    )
    for method, entry in METHODS.items()
    for model in MODELS
    if entry.fits(MODELS[model]())
]


class Case(NamedTuple):
    """Simulated data with its truth.

    Attributes:
        model: The model.
        data: Responses with a fifth of the cells missing.
        items: True items.
        theta: True abilities.
        vector: The truth as one vector; see `brute_force.pack`.
    """

    model: Model
    data: Responses
    items: object
    theta: np.ndarray
    vector: jnp.ndarray


def true_items(model: Model, num_items: int = NUM_ITEMS):
    """Items of unlike slopes and easiness, with asymptotes where the model has them."""
    position = np.arange(num_items)
    slope = 0.8 + 0.8 * ((position * 5) % num_items) / num_items
    intercept = np.linspace(-1.4, 1.4, num_items)
    family = model.family
    if isinstance(family, AbstractScoreFamily):
        return _true_scores(family, slope, intercept)
    if not family.has_slope:
        slope = np.full(num_items, 1.0 if model.scale == "unit_slope" else 1.3)
    if isinstance(family, Nominal):
        inner = np.stack([0.4 + 0.2 * position, 0.3 * np.cos(position)], -1)
        fields = slope, intercept, inner[:, :1], inner[:, 1:]
        names = [p.name for p in family.parameters]
        return family.complete(dict(zip(names, map(jnp.asarray, fields), strict=True)))
    if isinstance(family, RatingScale):
        steps = jnp.broadcast_to(jnp.array([0.8]), (num_items, 1))
        return family.complete({"intercept": jnp.asarray(intercept), "step": steps})
    if family.num_categories > 2:
        thresholds = np.linspace(0.8, -0.8, family.num_categories - 1)
        return family.Items(
            jnp.asarray(slope), jnp.asarray(intercept[:, None] + thresholds)
        )
    asymptotes = getattr(family, "asymptotes", 0)
    lower = np.full(num_items, 0.15 if asymptotes >= 1 else 0.0)
    upper = np.full(num_items, 0.93 if asymptotes >= 2 else 1.0)
    return LogisticItems(*map(jnp.asarray, (slope, intercept, lower, upper)))


def _true_scores(family, slope, intercept):
    """Items of scores: dispersions that differ, and cuts at some distance."""
    sd = np.linspace(0.6, 1.2, len(slope))
    fields = [slope, intercept]
    if family.Items is ShareItems:
        return ShareItems(*map(jnp.asarray, fields))
    if isinstance(family, MixedScores):
        fields.append(np.where(family.binary, 0.0, sd))
    elif isinstance(family, LogitNormalScores):
        fields.append(sd)
    else:
        fields.append(np.linspace(3.0, 8.0, len(slope)))
    if family.Items is InflatedItems:
        fields += [intercept - 1.6, intercept + 1.9]
    return family.Items(*map(jnp.asarray, fields))


def _draw_scores(name: str, items, theta, rng: np.random.Generator) -> np.ndarray:
    """Random logits, answers and codes of ends by numpy."""
    eta = np.asarray(items.discrimination) * theta[:, None] + items.intercept
    mean = 1 / (1 + np.exp(-eta))
    if name == "share":
        return rng.binomial(3, mean) / 3
    dispersion = np.asarray(items.dispersion)
    if name in ("continuous", "mixed"):
        normal = eta + dispersion * rng.standard_normal(eta.shape)
        return np.where(dispersion > 0, normal, rng.random(eta.shape) < mean)
    y = rng.beta(mean * dispersion, (1 - mean) * dispersion)
    values = np.log(y) - np.log1p(-y)
    if name == "beta":
        return values
    uniform = rng.random(eta.shape)
    zero = uniform < 1 / (1 + np.exp(eta - items.lower_cut))
    one = 1 - uniform < 1 / (1 + np.exp(items.upper_cut - eta))
    return np.where(zero, -END, np.where(one, END, values))


def draw(name: str, items, theta, rng: np.random.Generator) -> np.ndarray:
    """Random responses by inversion of the brute-force probabilities."""
    if name in brute_force.SCORES:
        return _draw_scores(name, items, theta, rng)
    probabilities = brute_force.category_probabilities(name, items, theta)
    cumulative = np.cumsum(np.asarray(probabilities), -1)[..., :-1]
    uniform = rng.random(cumulative.shape[:2])[..., None]
    return (uniform > cumulative).sum(-1).astype(np.int8)


@functools.cache
def case(name: str, missing: bool = True) -> Case:
    """The simulated data of a model in the table."""
    model = MODELS[name]()
    rng = np.random.default_rng(20)
    items = true_items(model)
    theta = rng.standard_normal(NUM_SUBJECTS)
    values = draw(model.name, items, theta, rng)
    observed = None
    if missing:
        observed = rng.random(values.shape) < 0.8
        values = values * observed
        observed = jnp.asarray(observed)
    data = Responses(jnp.asarray(values), observed)
    return Case(model, data, items, theta, true_vector(model, items))


def true_vector(model: Model, items):
    """Items in a standard population as the vector that estimators move."""
    problem = Problem(model, Responses(jnp.zeros((1, 1))), jnp.ones((1, 1), bool))
    population = estimation_scale(problem, Start(items))
    return brute_force.pack(
        model.unconstrain(items), population.mean, jnp.log(population.sd)
    )


def estimated_vector(fit: Fit):
    """The best point of an EM fit as one vector."""
    best, frame = fit.state.best, fit.state.carry.frame
    return brute_force.pack(best.coordinates, best.mean, best.log_sd, frame)


def free_columns(model: Model, num_items: int = NUM_ITEMS, anchored: bool = False):
    """Positions of what is estimated in a vector."""
    size = num_items * model.family.num_columns
    extra = [size] if anchored else []
    if anchored or not model.family.has_slope:
        extra.append(size + 1)
    free = np.flatnonzero(np.ravel(model.family.free_columns(num_items)))
    return np.array([*free, *extra])


def with_totals(model: Model, gradient: np.ndarray) -> np.ndarray:
    """A gradient in which columns common to all items have their total, once."""
    result, columns = gradient.copy(), model.family.num_columns
    for column in model.family.common_columns:
        of_items = result[column : NUM_ITEMS * columns : columns]
        of_items[:] = np.r_[of_items.sum(), np.zeros(NUM_ITEMS - 1)]
    return result


def frame_columns(model: Model, num_items: int = NUM_ITEMS):
    """Positions of the frame of the priors that may move in a vector."""
    size = num_items * model.family.num_columns
    if not model.priors:
        return np.array([], int)
    return np.arange(size + 2, size + 3 + model.family.has_slope)


#: One compiled driver for all tests of a worker.
run_jit = eqx.filter_jit(run)


@functools.cache
def grid_fit(model: str, method: str) -> Fit:
    """The fit of a case, made once per worker."""
    simulated = case(model)
    return fit_with(METHODS[method].create(), simulated.model, simulated.data)


def fit_with(method: AbstractMethod, model: Model, data: Responses, **options) -> Fit:
    """A fit from the default start values."""
    problem = Problem.create(model, data)
    return run_jit(problem, method, start_values(model, data), **options)


def standard_population(dtype=jnp.float64) -> Population:
    """Mean 0 and standard deviation 1."""
    return Population(jnp.zeros((), dtype), jnp.ones((), dtype))


# The tables of `tests/test_every_fit.py`: what `irtjax.fit` accepts by name.

#: Names of models that `tests/test_grid.py` leaves out, and where they are tested.
NOT_IN_GRID = {
    "lart": "tests/estimators/marginal/test_lart.py",
    **dict.fromkeys(catalogue.MULTILEVEL_MODELS, "tests/fitting/test_multilevel.py"),
    **dict.fromkeys(catalogue.FACTOR_MODELS, "tests/fitting/test_factors.py"),
}
#: Names of methods that it leaves out, since they end elsewhere than at an optimum that
#: brute force finds, and where they are tested.
METHODS_NOT_IN_GRID = {
    "saem": "tests/estimators/marginal/test_saem.py",
    "gvem": "tests/estimators/marginal/test_factor_em.py",
    "neural": "tests/estimators/neural/test_neural.py",
    "vibo": "tests/estimators/neural/test_neural.py",
    "laplace": "tests/estimators/laplace/test_laplace.py",
    "nuts": "tests/estimators/posterior/test_mcmc.py",
    "vi": "tests/estimators/posterior/test_variational.py",
}


class Named(NamedTuple):
    """A model by name, and the kind of data that it is fitted to."""

    model: str
    kind: str


def _kinds() -> dict[str, Named]:
    groups = (
        (catalogue.BINARY_MODELS, "binary"),
        (catalogue.ORDERED_MODELS, "categories"),
        (catalogue.LENGTH_MODELS, "lengths"),
        (catalogue.SCORE_MODELS, "scores"),
        (catalogue.MULTILEVEL_MODELS, "binary"),
        (catalogue.FACTOR_MODELS, "binary"),
    )
    found = {name: Named(name, kind) for names, kind in groups for name in names}
    found["mixed"] = Named("mixed", "mixed")
    return found | {"2pl of counts": Named("2pl", "counts")}


#: Every name that `irtjax.fit` accepts as model, and counts of right responses.
BY_NAME: dict[str, Named] = _kinds()

#: Settings that make a fit by a method quick: so many steps, epochs or draws that the
#: rest of the time is compilation. Empty for methods that converge in a second.
SETTINGS: dict[str, dict[str, int]] = {
    "em": {},
    "saem": {"num_steps": 40},
    "gvem": {},
    "mm": {},
    "gradient": {},
    "neural": {"epochs": 3},
    "vibo": {"epochs": 20},
    "laplace": {"max_steps": 100},
    "nuts": {"num_warmup": 5, "num_draws": 20, "num_chains": 1},
    "vi": {"num_steps": 50},
}


class Refusal(NamedTuple):
    """Why pairs are refused, by what the model and the class of the method declare."""

    applies: Callable[[Model, type[AbstractEstimator]], bool]
    message: str


#: Multilevel models have no items as parameters.
NOT_MULTILEVEL = "is estimated by method='laplace', 'nuts' or 'vi'"
#: Few methods estimate several abilities.
NOT_SEVERAL = "is estimated by method='em', 'gvem' or 'mm'"
#: Every other reason; of several that apply, the first is stated.
REFUSALS: tuple[Refusal, ...] = (
    # Integrated items have discriminations, or the scale of Rasch's model.
    Refusal(
        lambda model, method: (
            method.multilevel
            and not model.family.has_slope
            and model.scale == "standard"
        ),
        "equal slopes as 'rasch'",
    ),
    # Networks and their bounds are written for one family.
    Refusal(
        lambda model, method: (
            issubclass(method, AbstractTrained)
            and (not isinstance(model.family, Binary) or model.lengths is not None)
        ),
        "is for logistic and normal-ogive binary models",
    ),
    # Few methods estimate a parameter that all items have in common.
    Refusal(
        lambda model, method: bool(model.family.common) and method is not EM,
        "common to all items: use method='em'",
    ),
    # Lengths need abilities that are integrated out, and items that are not.
    Refusal(
        lambda model, method: (
            model.lengths is not None and (method.multilevel or not method.marginal)
        ),
        "is estimated by method='em' or 'saem'",
    ),
    # A density of scores has no joint maximum: the dispersion of one item goes to 0.
    Refusal(
        lambda model, method: model.family.num_categories == 0 and not method.marginal,
        "is estimated by method='em', 'saem', 'laplace', 'nuts' or 'vi', not",
    ),
    # MM needs a bound of the curvature.
    Refusal(
        lambda model, method: method is MM and not _is_mm_model(model),
        "MM fits binary models without asymptotes",
    ),
    # Normal posteriors of one ability are no gain over quadrature.
    Refusal(
        lambda model, method: method is GVEM and not model.family.dims,
        "GVEM fits at least two abilities",
    ),
)


def refusal(name: str, method: str) -> str | None:
    """What the message that refuses a pair by name contains; None if it is fitted."""
    kind, called = method_class(method), BY_NAME[name].model
    if called in catalogue.MULTILEVEL_MODELS:
        return None if kind.multilevel else NOT_MULTILEVEL
    if called in catalogue.FACTOR_MODELS:
        return None if kind.several else NOT_SEVERAL
    # A name without a row is missed by a test of its own.
    model = (MODELS | catalogue.LENGTH_MODELS).get(called, catalogue.two_parameter)()
    return next((r.message for r in REFUSALS if r.applies(model, kind)), None)


#: Every pair by name, and those that are refused.
ALL_PAIRS = [(name, method) for method in ALL_METHODS for name in BY_NAME]
REFUSED = [pair for pair in ALL_PAIRS if refusal(*pair)]
#: Those of the default run: the model that all methods fit, and one of categories.
QUICK_PAIRS = [("2pl", method) for method in ALL_METHODS] + [("nominal", "em")]
FITTED = [
    pytest.param(*pair, marks=[pytest.mark.slow] * (pair not in QUICK_PAIRS))
    for pair in ALL_PAIRS
    if pair not in REFUSED
]

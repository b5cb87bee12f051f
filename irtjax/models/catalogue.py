"""Models by name: a response family, item priors and a scale together.

Arguments that the functions share:

- `priors`: "weak" (see `weak_priors`), None for plain maximum likelihood, or a mapping
  from names of parameters to priors;
- `positive`: whether to keep every discrimination above 0;
- `num_categories`: of responses 0 ... num_categories - 1; ValueError below 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from irtjax.models.factors import Factor
from irtjax.models.families.cloglog import ComplementaryLogLog
from irtjax.models.families.continuous import (
    AbstractScoreFamily,
    BetaScores,
    LogitNormalScores,
)
from irtjax.models.families.graded import Graded, PartialCredit, SpacedGraded
from irtjax.models.families.inflated import InflatedBetaScores
from irtjax.models.families.logistic import Binary
from irtjax.models.families.mixed import MixedScores
from irtjax.models.families.nominal import Nominal
from irtjax.models.families.rating import RatingScale
from irtjax.models.families.shares import ShareScores
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.lengths import Lengths
from irtjax.models.model import Model
from irtjax.models.multilevel.specification import (
    AbstractMultilevel,
    Hierarchical,
    MultiBenchmark,
    MultiMetric,
)
from irtjax.models.priors import (
    AbstractPrior,
    Beta,
    Exponential,
    Gamma,
    InverseChi,
    LogNormal,
    Normal,
)

Priors = Mapping[str, AbstractPrior] | str | None
#: Priors of factor models whose scale held-out responses choose (`irtjax.fit`).
HELD_OUT = "held_out"


def weak_priors(family: AbstractResponseFamily) -> dict[str, AbstractPrior]:
    """Weak priors by parameter name, wide enough to leave informative data alone.

    They keep an item that everyone solves finite. Logits of scores are of the order of
    10 where responses of right or wrong are of 1, so logit-normal scores have wider
    priors; a beta score's mean is the chance of a 2PL, and has its priors. A standard
    deviation has a prior worth one residual of 0.5. The mean of a precision is 500, or
    50 where scores at the ends may leave a handful between, which a steep item would
    else fit exactly. Both keep an item finite on which all subjects score the same, as
    no log-normal prior would.
    """
    logit = isinstance(family, LogitNormalScores | MixedScores)
    positive = not family.has_slope or family.parameters[0].bijection.kind == "positive"
    signed = Normal(1.0, 2.0 if logit else 1.0)
    if family.ability_shape:
        # The density of a rotated vector of discriminations is the same.
        positive, signed = False, Normal(0.0, 2.0 if logit else 1.0)
    chosen: dict[str, AbstractPrior] = {
        "discrimination": LogNormal(0.0, 1.0) if positive else signed,
        "lower_asymptote": Beta(2.0, 8.0),
        "upper_asymptote": Beta(10.0, 1.5),
        family.intercept_name: Normal(0.0, 10.0 if logit else 3.0),
        "spacing": LogNormal(0.0, 1.0),
        "scoring": Normal((family.num_categories - 1) / 2, family.num_categories - 1.0),
        "offset": Normal(0.0, 3.0),
    }
    if isinstance(family, AbstractScoreFamily):
        precision = Exponential(500.0 if isinstance(family, BetaScores) else 50.0)
        chosen["dispersion"] = InverseChi(1.0, 0.5) if logit else precision
        chosen["lower_cut"], chosen["upper_cut"] = Normal(-2.0, 3.0), Normal(2.0, 3.0)
    named = {p.name for p in family.parameters} | {"discrimination"}
    return {name: prior for name, prior in chosen.items() if name in named}


def check_priors(priors: Any) -> None:
    """Refuses what is no prior; names of parameters are those of a family."""
    named = "weak", "none", HELD_OUT
    if priors is None or (isinstance(priors, str) and priors in named):
        return
    if not isinstance(priors, Mapping):
        raise ValueError(
            f"priors {priors!r} is neither 'weak', 'none', 'held_out' nor a mapping"
        )
    for name, prior in priors.items():
        if not isinstance(prior, AbstractPrior):
            raise ValueError(
                f"prior of {name} {prior!r}: give an object of irtjax.models.priors,"
                " such as Normal(0, 2)"
            )


def resolve_priors(
    family: AbstractResponseFamily, priors: Priors
) -> dict[str, AbstractPrior]:
    """Priors as a dict; ValueError if a name is not a parameter of the family."""
    check_priors(priors)
    if priors is None or priors == "none":
        return {}
    if priors == HELD_OUT:
        raise ValueError(
            f"priors {HELD_OUT!r} requires the model factor and method='mm': use 'weak'"
        )
    if isinstance(priors, str):
        return weak_priors(family)
    names = {p.name for p in family.parameters} | {"discrimination"}
    unknown = sorted(set(priors) - names)
    if unknown:
        raise ValueError(
            f"no parameter named {unknown[0]!r} in this model; it has {sorted(names)}"
        )
    slope = family.parameters[0]
    free = family.has_slope and slope.bijection.kind == "identity"
    prior = priors.get("discrimination")
    if free and isinstance(prior, LogNormal | Gamma):
        raise ValueError(
            f"a {type(prior).__name__} prior has no density at negative"
            " discriminations, which this model allows: keep them positive"
            " (positive=True), or give a Normal prior"
        )
    return dict(priors)


def _model(name, family, priors: Priors, scale="standard", lengths=None) -> Model:
    """A model with the priors that were named."""
    return Model(name, family, resolve_priors(family, priors), scale, lengths)


def rasch(priors: Priors = "weak") -> Model:
    """Rasch: P = sigmoid(theta + d), the standard deviation of ability estimated."""
    return _model("rasch", Binary(slopes="unit"), priors, "unit_slope")


def one_parameter(priors: Priors = "weak") -> Model:
    """1PL: P = sigmoid(a theta + d) with one a for all items and theta ~ N(0, 1)."""
    return _model("1pl", Binary(slopes="unit"), priors)


def two_parameter(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """2PL: P = sigmoid(a theta + d)."""
    return _model("2pl", Binary(slopes=_slopes(positive)), priors)


def three_parameter(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """3PL: P = c + (1 - c) sigmoid(a theta + d), c the guessing parameter."""
    return _model("3pl", Binary(slopes=_slopes(positive), asymptotes=1), priors)


def four_parameter(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """4PL: P = c + (u - c) sigmoid(a theta + d), with 0 < c < u < 1."""
    return _model("4pl", Binary(slopes=_slopes(positive), asymptotes=2), priors)


def probit_one_parameter(priors: Priors = "weak") -> Model:
    """Normal-ogive 1PL: P = Phi(a theta + d) with one a for all items."""
    return _model("probit1pl", Binary("probit", slopes="unit"), priors)


def probit_two_parameter(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """Normal-ogive 2PL: P = Phi(a theta + d)."""
    return _model("probit2pl", Binary("probit", slopes=_slopes(positive)), priors)


def cloglog_two_parameter(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """Complementary log-log 2PL: P = 1 - exp(-exp(a theta + d))."""
    return _model("cloglog2pl", ComplementaryLogLog(_slopes(positive)), priors)


def latency_response(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """LaRT: probit 2PL accuracy and log-normal response lengths, ability tied to speed.

    `priors` are those of the accuracy part; None also leaves the residual variances of
    the lengths without one.

    >>> latency_response().lengths.prior_weight
    0.5
    """
    lengths = Lengths(prior_weight=0.0 if priors is None else 0.5)
    family = Binary("probit", slopes=_slopes(positive))
    return _model("lart", family, priors, lengths=lengths)


def graded(
    num_categories: int, priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """Graded response model for ordered responses.

    With `positive` items have a mean intercept and distances (`SpacedGraded`), of two
    categories none.
    """
    count = _checked(num_categories)
    if not positive:
        return _model("graded", Graded(count), priors)
    family = SpacedGraded(count) if count > 2 else Binary(slopes="positive")
    return _model("graded", family, priors)


def partial_credit(
    num_categories: int, priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """Generalised partial credit model."""
    family = PartialCredit(_checked(num_categories), _slopes(positive))
    return _model("partial_credit", family, priors)


def partial_credit_unit(
    num_categories: int, priors: Priors = "weak", *, positive: bool = True
) -> Model:
    """Masters' partial credit: slopes of 1, the standard deviation of ability free.

    Of two categories it is Rasch's model. `positive` changes nothing.
    """
    family = PartialCredit(_checked(num_categories), "unit")
    return _model("pcm", family, priors, "unit_slope")


def rating_scale(
    num_categories: int, priors: Priors = "weak", *, positive: bool = True
) -> Model:
    """Andrich's rating scale: `partial_credit_unit` with steps common to all items.

    >>> rating_scale(4).family.common_columns
    (1, 2)
    """
    count = _checked(num_categories)
    family = RatingScale(count) if count > 2 else PartialCredit(count, "unit")
    return _model("rsm", family, priors, "unit_slope")


def nominal(
    num_categories: int, priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """Bock's nominal response model; of two categories it is the 2PL.

    The discrimination is the slope of the last category against the first.
    """
    count, slopes = _checked(num_categories), _slopes(positive)
    family = Nominal(count, slopes) if count > 2 else Binary(slopes=slopes)
    return _model("nominal", family, priors)


def continuous(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """Logit-normal scores in (0, 1): logit(y) ~ N(a theta + d, sigma^2)."""
    return _model("continuous", LogitNormalScores(_slopes(positive)), priors)


def beta(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """Beta scores in (0, 1) of mean sigmoid(a theta + d) and precision phi."""
    return _model("beta", BetaScores(_slopes(positive)), priors)


def inflated_beta(
    priors: Priors = "weak", *, positive: bool = False, ends: float = 0.0
) -> Model:
    """Ordered beta scores in [0, 1]: the ends have probabilities of their own.

    Scores within `ends` of 0 or 1 count as at it; ValueError unless in [0, 1/2).
    """
    if not 0 <= ends < 0.5:
        raise ValueError(f"ends {ends:g} is not a distance from 0 to below 1/2")
    family = InflatedBetaScores(float(ends), _slopes(positive))
    return _model("inflated_beta", family, priors)


def share(
    priors: Priors = "weak", *, positive: bool = False, slopes: str | None = None
) -> Model:
    """Shares of right responses: scores in [0, 1] whose means are those of a 2PL.

    With `slopes` "unit" the means are those of a Rasch model.
    """
    chosen = _slopes(positive) if slopes is None else slopes
    scale = "unit_slope" if chosen == "unit" else "standard"
    return _model("share", ShareScores(chosen), priors, scale)


def mixed(
    binary: Iterable[bool], priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """2PL for items that are right or wrong (`binary`), logit-normal for scores."""
    family = MixedScores(tuple(map(bool, binary)), _slopes(positive))
    return _model("mixed", family, priors)


def factor_model(factor: Factor, num_categories: int = 2) -> Model:
    """The model of arrays of a factor model; of one factor it has one ability.

    >>> factor_model(Factor(factors=3)).family.ability_shape
    (3,)
    """
    return _model(factor.name, factor.family(num_categories), factor.priors)


def _checked(num_categories: int) -> int:
    """A number of categories; refuses fewer than two."""
    if num_categories < 2:
        raise ValueError(f"{num_categories} categories: a response needs at least 2")
    return num_categories


def _slopes(positive: bool) -> str:
    """The option `slopes` of a family."""
    return "positive" if positive else "free"


#: Models of responses that are right or wrong by name.
BINARY_MODELS: dict[str, Callable[..., Model]] = {
    "rasch": rasch,
    "1pl": one_parameter,
    "2pl": two_parameter,
    "3pl": three_parameter,
    "4pl": four_parameter,
    "probit1pl": probit_one_parameter,
    "probit2pl": probit_two_parameter,
    "cloglog2pl": cloglog_two_parameter,
}

#: Models of responses and response lengths by name.
LENGTH_MODELS: dict[str, Callable[..., Model]] = {"lart": latency_response}

#: Models of responses in categories by name; they are called with their number.
ORDERED_MODELS: dict[str, Callable[..., Model]] = {
    "graded": graded,
    "partial_credit": partial_credit,
    "pcm": partial_credit_unit,
    "rsm": rating_scale,
    "nominal": nominal,
}

#: Models of scores in [0, 1] by name; "mixed" is called with the items' kinds.
SCORE_MODELS: dict[str, Callable[..., Model]] = {
    "continuous": continuous,
    "beta": beta,
    "inflated_beta": inflated_beta,
    "share": share,
    "mixed": mixed,
}

#: Models of items nested in benchmarks by name: classes, with their settings as fields.
MULTILEVEL_MODELS: dict[str, type[AbstractMultilevel]] = {
    kind.name: kind for kind in (MultiBenchmark, MultiMetric, Hierarchical)
}

#: Models of several abilities by name: classes, with their settings as fields.
FACTOR_MODELS: dict[str, type[Factor]] = {Factor.name: Factor}

#: Every model by the name that `irtjax.fit` and the command line accept: a function
#: that makes a `Model`, or the class of a multilevel or a factor model.
MODELS: dict[str, Callable[..., Any]] = {
    **BINARY_MODELS,
    **ORDERED_MODELS,
    **LENGTH_MODELS,
    **SCORE_MODELS,
    **MULTILEVEL_MODELS,
    **FACTOR_MODELS,
}


def model_class(model: Any) -> type:
    """The class of a model, or of what a name in `MODELS` makes; else NoneType.

    >>> model_class("hierarchical").__name__, model_class("2pl").__name__
    ('Hierarchical', 'Model')
    """
    if not isinstance(model, str):
        return type(model)
    make = MODELS.get(model)
    if make is None:
        return type(None)
    return make if isinstance(make, type) else Model

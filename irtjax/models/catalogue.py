"""The named models: functions that put a family, priors and a scale together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

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
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.lengths import Lengths
from irtjax.models.model import Model
from irtjax.models.priors import (
    AbstractPrior,
    Beta,
    Exponential,
    InverseChi,
    LogNormal,
    Normal,
)

Priors = Mapping[str, AbstractPrior] | str | None


def weak_priors(family: AbstractResponseFamily) -> dict[str, AbstractPrior]:
    """Weak priors by parameter name, wide enough to leave informative data alone.

    Intercepts are Normal(0, 3) and signed slopes Normal(1, 1), positive and common
    slopes and distances log-normal(0, 1), guessing Beta(2, 8) (mean 0.2), feasibility
    Beta(10, 1.5) (mean 0.87). Scoring coefficients of C nominal categories are
    Normal((C - 1) / 2, C - 1), their offsets Normal(0, 3). They keep an item that
    everyone solves finite.

    Logits of scores are of the order of 10 where responses of right or wrong are of 1,
    so intercepts of logit-normal scores are Normal(0, 10) and slopes Normal(1, 2); a
    beta score's mean is the chance of a 2PL, and has its priors. Cuts are Normal(-2, 3)
    and Normal(2, 3). A standard deviation has a prior worth one residual of 0.5; a
    precision has an exponential one of mean 500, or 50 where scores at the ends may
    leave a handful between, which a steep item would else fit exactly. Both keep an
    item finite on which all subjects score the same, as no log-normal prior would.
    """
    if isinstance(family, AbstractScoreFamily):
        return _weak_score_priors(family)
    positive = not family.has_slope or family.parameters[0].bijection.kind == "positive"
    chosen: dict[str, AbstractPrior] = {
        "discrimination": LogNormal(0.0, 1.0) if positive else Normal(1.0, 1.0),
        "lower_asymptote": Beta(2.0, 8.0),
        "upper_asymptote": Beta(10.0, 1.5),
        family.intercept_name: Normal(0.0, 3.0),
        "spacing": LogNormal(0.0, 1.0),
        "scoring": Normal((family.num_categories - 1) / 2, family.num_categories - 1.0),
        "offset": Normal(0.0, 3.0),
    }
    named = {p.name for p in family.parameters} | {"discrimination"}
    return {name: prior for name, prior in chosen.items() if name in named}


def _weak_score_priors(family: AbstractScoreFamily) -> dict[str, AbstractPrior]:
    logit = isinstance(family, LogitNormalScores | MixedScores)
    positive = family.parameters[0].bijection.kind == "positive"
    precision = Exponential(500.0 if isinstance(family, BetaScores) else 50.0)
    chosen: dict[str, AbstractPrior] = {
        "discrimination": LogNormal(0.0, 1.0)
        if positive
        else Normal(1.0, 2.0 if logit else 1.0),
        "intercept": Normal(0.0, 10.0 if logit else 3.0),
        "dispersion": InverseChi(1.0, 0.5) if logit else precision,
        "lower_cut": Normal(-2.0, 3.0),
        "upper_cut": Normal(2.0, 3.0),
    }
    named = {p.name for p in family.parameters}
    return {name: prior for name, prior in chosen.items() if name in named}


def resolve_priors(
    family: AbstractResponseFamily, priors: Priors
) -> dict[str, AbstractPrior]:
    """Priors as a dict: "weak", None for plain maximum likelihood, or a mapping.

    Raises:
        ValueError: If a name is not a parameter of the family.
    """
    if priors is None:
        return {}
    if isinstance(priors, str):
        if priors == "weak":
            return weak_priors(family)
        if priors == "none":
            return {}
        raise ValueError(f"priors {priors!r} is neither 'weak', 'none' nor a mapping")
    known = {p.name for p in family.parameters} | {"discrimination"}
    unknown = sorted(set(priors) - known)
    if unknown:
        raise ValueError(
            f"no parameter named {unknown[0]!r} in this model; it has {sorted(known)}"
        )
    slope = family.parameters[0]
    free = family.has_slope and slope.bijection.kind == "identity"
    if free and isinstance(priors.get("discrimination"), LogNormal):
        raise ValueError(
            "a LogNormal prior has no density at negative discriminations, which this"
            " model allows: keep them positive (positive=True), or give a Normal prior"
        )
    return dict(priors)


def _model(name: str, family: AbstractResponseFamily, priors: Priors, scale="standard"):
    return Model(name, family, resolve_priors(family, priors), scale)


def rasch(priors: Priors = "weak") -> Model:
    """Rasch: P = sigmoid(theta + d), the standard deviation of ability estimated.

    >>> rasch().name
    'rasch'
    """
    return _model("rasch", Binary(slopes="unit"), priors, "unit_slope")


def one_parameter(priors: Priors = "weak") -> Model:
    """1PL: P = sigmoid(a theta + d) with one a for all items and theta ~ N(0, 1)."""
    return _model("1pl", Binary(slopes="unit"), priors)


def two_parameter(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """2PL: P = sigmoid(a theta + d).

    Args:
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0.
    """
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

    Args:
        priors: "weak", None for plain maximum likelihood, or a mapping of priors of
            the accuracy part; None also leaves the residual variances without prior.
        positive: Whether to keep every discrimination above 0.

    >>> latency_response().lengths.prior_weight
    0.5
    """
    model = _model("lart", Binary("probit", slopes=_slopes(positive)), priors)
    lengths = Lengths(prior_weight=0.0 if priors is None else 0.5)
    return dataclasses.replace(model, lengths=lengths)


def graded(
    num_categories: int, priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """Graded response model for ordered responses 0 ... num_categories - 1.

    Args:
        num_categories: Number of categories, at least 2.
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0; items then have a mean
            intercept and distances (`SpacedGraded`), of two categories none.

    Raises:
        ValueError: If there are fewer than 2 categories.
    """
    count = _checked(num_categories)
    if not positive:
        return _model("graded", Graded(count), priors)
    family = SpacedGraded(count) if count > 2 else Binary(slopes="positive")
    return _model("graded", family, priors)


def partial_credit(
    num_categories: int, priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """Generalised partial credit model for responses 0 ... num_categories - 1.

    Args:
        num_categories: Number of categories, at least 2.
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0.

    Raises:
        ValueError: If there are fewer than 2 categories.
    """
    family = PartialCredit(_checked(num_categories), _slopes(positive))
    return _model("partial_credit", family, priors)


def partial_credit_unit(
    num_categories: int, priors: Priors = "weak", *, positive: bool = True
) -> Model:
    """Masters' partial credit: slopes of 1, the standard deviation of ability free.

    Args:
        num_categories: Number of categories, at least 2; of two it is Rasch's model.
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Every discrimination is 1, so this changes nothing.

    Raises:
        ValueError: If there are fewer than 2 categories.

    >>> partial_credit_unit(3).scale
    'unit_slope'
    """
    family = PartialCredit(_checked(num_categories), "unit")
    return _model("pcm", family, priors, "unit_slope")


def rating_scale(
    num_categories: int, priors: Priors = "weak", *, positive: bool = True
) -> Model:
    """Andrich's rating scale: partial credit with unit slopes and common steps.

    Args:
        num_categories: Number of categories, at least 2; of two it is Rasch's model.
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Every discrimination is 1, so this changes nothing.

    Raises:
        ValueError: If there are fewer than 2 categories.

    >>> rating_scale(4).family.common_columns
    (1, 2)
    """
    count = _checked(num_categories)
    family = RatingScale(count) if count > 2 else PartialCredit(count, "unit")
    return _model("rsm", family, priors, "unit_slope")


def nominal(
    num_categories: int, priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """Bock's nominal response model for responses 0 ... num_categories - 1.

    Args:
        num_categories: Number of categories, at least 2; of two it is the 2PL.
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination, the slope of the last category
            against the first, above 0.

    Raises:
        ValueError: If there are fewer than 2 categories.
    """
    count, slopes = _checked(num_categories), _slopes(positive)
    family = Nominal(count, slopes) if count > 2 else Binary(slopes=slopes)
    return _model("nominal", family, priors)


def continuous(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """Logit-normal scores in (0, 1): logit(y) ~ N(a theta + d, sigma^2).

    Args:
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0.

    >>> [p.name for p in continuous().family.parameters]
    ['discrimination', 'intercept', 'dispersion']
    """
    return _model("continuous", LogitNormalScores(_slopes(positive)), priors)


def beta(priors: Priors = "weak", *, positive: bool = False) -> Model:
    """Beta scores in (0, 1) of mean sigmoid(a theta + d) and precision phi.

    Args:
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0.
    """
    return _model("beta", BetaScores(_slopes(positive)), priors)


def inflated_beta(
    priors: Priors = "weak", *, positive: bool = False, ends: float = 0.0
) -> Model:
    """Ordered beta scores in [0, 1]: the ends have probabilities of their own.

    Args:
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0.
        ends: Scores at most this far from 0 or 1 count as at it.

    Raises:
        ValueError: If `ends` is not in [0, 1/2).
    """
    if not 0 <= ends < 0.5:
        raise ValueError(f"ends {ends:g} is not a distance from 0 to below 1/2")
    family = InflatedBetaScores(float(ends), _slopes(positive))
    return _model("inflated_beta", family, priors)


def mixed(
    binary: Iterable[bool], priors: Priors = "weak", *, positive: bool = False
) -> Model:
    """2PL for items that are right or wrong, logit-normal scores for the others.

    Args:
        binary: For each item, whether it is right or wrong.
        priors: "weak", None for plain maximum likelihood, or a mapping of priors.
        positive: Whether to keep every discrimination above 0.
    """
    family = MixedScores(tuple(map(bool, binary)), _slopes(positive))
    return _model("mixed", family, priors)


def _checked(num_categories: int) -> int:
    if num_categories < 2:
        raise ValueError(f"{num_categories} categories: a response needs at least 2")
    return num_categories


def _slopes(positive: bool) -> str:
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
    "mixed": mixed,
}

#: Every model of one ability by the name that `irtjax.fit` and the command line accept.
MODELS: dict[str, Callable[..., Model]] = {
    **BINARY_MODELS,
    **ORDERED_MODELS,
    **LENGTH_MODELS,
    **SCORE_MODELS,
}

#: Models of items nested in benchmarks; see `irtjax.models.multilevel`.
MULTILEVEL_MODELS = ("multibenchmark", "multimetric", "hierarchical")

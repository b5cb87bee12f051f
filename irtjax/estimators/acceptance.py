"""What methods accept: checks that they share, and the methods that fit instead."""

from __future__ import annotations

from typing import Any

from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.likelihood.cubature import MOST_DIMS
from irtjax.models.families.graded import AbstractCuts
from irtjax.models.families.logistic import Binary
from irtjax.models.model import Model
from irtjax.models.priors import Normal


class UnsuitedProblem(ValueError):
    """A problem that a method does not solve, in a sentence that names those that do.

    The names stand between the two parts. `check_suits` finds them: a check of one
    method that asked all others would ask itself.
    """

    def __init__(self, before: str, after: str = ""):
        super().__init__(f"{before}another method{after}")
        self.before, self.after = before, after


def check_suits(method: Any, problem: Any) -> None:
    """Calls `check` of a method; a ValueError that names the methods that suit.

    >>> import numpy as np, irtjax
    >>> model, data = irtjax.MODELS["rsm"](3), irtjax.Responses(np.eye(3, dtype=int))
    >>> check_suits(irtjax.MM(), irtjax.Problem.create(model, data))
    Traceback (most recent call last):
    ValueError: the model rsm has a step common to all items: use method='em', not 'mm'
    """
    try:
        method.check(problem)
    except UnsuitedProblem as reason:
        names = [name for name in METHODS if _accepts(method_class(name)(), problem)]
        suited = listed(names) if names else "another method"
        message = f"{reason.before}{suited}{reason.after}"
        raise ValueError(message) from None


def _accepts(method: Any, problem: Any) -> bool:
    """Whether a method, with the settings that suit the model, solves a problem."""
    try:
        method.suited(problem.model, problem.data.num_subjects).check(problem)
    except ValueError:
        return False
    return True


def listed(names: list[str]) -> str:
    """Methods by name, as an argument of `irtjax.fit`.

    >>> listed(["em", "saem", "mm"])
    "method='em', 'saem' or 'mm'"
    """
    return f"method={' or '.join(', '.join(map(repr, names)).rsplit(', ', 1))}"


def check_dimensions(method: Any, problem: Any) -> None:
    """Refuses integrated items and several abilities, by what a method declares."""
    model = problem.model
    if model.multilevel and not method.multilevel:
        raise UnsuitedProblem(
            f"method {method.name!r} estimates items as parameters, and this problem"
            " integrates them out: use "
        )
    shape = model.family.ability_shape
    if shape and not method.several:
        raise UnsuitedProblem(
            f"method {method.name!r} fits one ability, and a {model.name} model has"
            f" {shape[0]}: use "
        )


def check_common(method: Any, problem: Any) -> None:
    """Refuses parameters common to all items, for methods that vary them by item."""
    model = problem.model
    if model.family.common:
        raise UnsuitedProblem(
            f"the model {model.name} has a {model.family.common[0]} common to all"
            " items: use ",
            f", not {method.name!r}",
        )


def check_joint(method: Any, problem: Any) -> None:
    """Refuses what joint estimates cannot do: densities of scores, and lengths."""
    model, named = problem.model, f"the model {problem.model.name} is estimated by "
    if model.family.num_categories == 0:
        dispersed = "dispersion" in [part.name for part in model.family.parameters]
        why = ": in a joint likelihood the dispersion of one item goes to 0"
        raise UnsuitedProblem(named, f", not {method.name!r}{why * dispersed}")
    if model.has_lengths:
        raise UnsuitedProblem(named, f", not {method.name!r}")


def check_integrable(method: Any, problem: Any) -> None:
    """Refuses models whose items cannot be integrated out."""
    check_dimensions(method, problem)
    check_common(method, problem)
    if problem.model.has_lengths:
        raise UnsuitedProblem(
            f"a {problem.model.name} model is estimated by ",
            f", not {method.name!r}, which ignores lengths",
        )


def is_logistic(family: Any) -> bool:
    """Whether responses are right or wrong, by the logistic link."""
    return (
        isinstance(family, Binary) and family.link == "logit" and not family.asymptotes
    )


def check_factors(model: Model, what: str, logistic: bool = True) -> None:
    """Refuses models without several abilities in categories and normal priors.

    Args:
        model: The model.
        what: The name of the method.
        logistic: Whether only right or wrong by the logistic link will do.
    """
    family = model.family
    if not model.several:
        raise ValueError(
            f"{what} fits at least two abilities, and a {model.name} model has one: use"
            " method='em'"
        )
    if logistic and not is_logistic(family):
        (dims,) = family.ability_shape
        cure = "'em'" if dims <= MOST_DIMS or not family.num_categories else ""
        cure = " or ".join(filter(None, [cure, "'mm'" * bool(family.num_categories)]))
        raise ValueError(
            f"{what} fits several abilities with logits of right or wrong responses"
            f" alone: use method={cure}"
        )
    binary = isinstance(family, Binary) and not family.asymptotes
    if not (binary or isinstance(family, AbstractCuts)):
        raise ValueError(
            f"{what} fits several abilities with right or wrong responses, graded ones"
            f" and partial credit, not with those of this model {model.name!r}"
        )
    for parameter in model.family.parameters:
        prior = model.priors.get(parameter.name)
        if not (prior is None or isinstance(prior, Normal)):
            raise ValueError(
                f"{what} needs a Normal prior for {parameter.name}, not"
                f" {type(prior).__name__}: pass priors={{'{parameter.name}':"
                " Normal(0, sd)}"
            )
    mean = getattr(model.priors.get("discrimination"), "mean", 0.0)
    if isinstance(mean, float | int) and mean != 0:
        raise ValueError(
            f"{what} needs a prior of discriminations with mean 0, not {mean:g}: pass"
            " priors={'discrimination': Normal(0, sd)}, or use method='mm'"
        )

"""How a test is given: its rules, and the reasons for which it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

#: Rules of selection, and scores.
SELECTIONS = (
    *("information", "mutual_information", "kl", "d_optimal", "a_optimal"),
    *("score", "random", "fixed"),
)
ORDERS = ("random", "fixed")
SCORES = ("eap", "map")
#: Rules that tests of random items keep, with which others are compared: what is scored
#: and which content and budget a test has. What else ends a test is left out.
COMPARED = (
    "scoring quota composite cost budget pass_mark rival losses repeats icc".split()
)
#: Rules that are above 0, if given.
ABOVE_0 = "standard_error determinant budget price risk indifference".split()
#: Rules that are a number, or None.
LIMITS = (
    *("standard_error", "reliability", "gain", "determinant"),
    *("budget", "price", "pass_mark", "risk", "indifference", "icc"),
)


class StopFlag(IntFlag):
    """Why a test ended; stored as integers, combined with `|`.

    >>> StopFlag(3).explain()
    'number of items; standard error'
    """

    GOES_ON = 0
    NUM_ITEMS = 1
    STANDARD_ERROR = 2
    RELIABILITY = 4
    GAIN = 8
    NO_ITEMS = 16
    DETERMINANT = 32
    BUDGET = 64
    UTILITY = 128
    DECIDED = 256
    TIME = 512
    SCORE_ERROR = 1024

    def explain(self) -> str:
        """Explains the flags in words."""
        words = {
            StopFlag.NUM_ITEMS: "number of items",
            StopFlag.STANDARD_ERROR: "standard error",
            StopFlag.RELIABILITY: "reliability",
            StopFlag.GAIN: "no item adds enough information",
            StopFlag.NO_ITEMS: "no items left",
            StopFlag.DETERMINANT: "determinant",
            StopFlag.BUDGET: "budget",
            StopFlag.UTILITY: "no item is worth its price",
            StopFlag.DECIDED: "decided",
            StopFlag.TIME: "time",
            StopFlag.SCORE_ERROR: "error of the score",
        }
        return "; ".join(text for flag, text in words.items() if self & flag)


class Rules(TypedDict, total=False):
    """Rules of a test by name, for `Design.create`, `AdaptiveTest`, `simulate_tests`.

    Attributes:
        select: How the next item is chosen. "information" (the default): the most
            information about the reported ability at the current estimate.
            "mutual_information": the largest expected decrease of the posterior's
            entropy. "kl": the KL information around the estimate. "random", or "fixed":
            a given order. "score": drawn with chances from which the score on all
            items is estimated without bias (`adaptive.score_draws`), for right and
            wrong responses. Of several abilities also "d_optimal" and "a_optimal": the
            smallest determinant, or trace, of their covariance. See `adaptive.merits`.
        scoring: "eap" (the default) or "map".
        min_items: Items before which only the number of items, the items left and the
            budget end a test.
        standard_error: Also end below this standard error.
        reliability: Also end above this reliability, 1 - se^2 / sd^2.
        gain: Of one ability: also end when the best item left has less than this share
            of the information gathered so far.
        determinant: Of several abilities: also end when the determinant of their
            covariance is below this.
        randomesque: Draw the item from this many best ones, so that subjects of one
            ability do not all get the same items (Kingsbury and Zara 1989); 1 takes
            the best.
        quota: Weight of each content group in a test, by name, or "equal"; None
            ignores groups. Items of groups without weight are not used.
        composite: Of several abilities: report (and measure) this weighted sum of
            them, `[dims]`, in place of the expected score on all items.
        cost: Cost of each item (tokens, dollars, seconds), `[items]` or by name. Rules
            that compare items then take the most per cost.
        budget: Also end when no item left is affordable; needs `cost`.
        price: Loss that a unit of cost is worth: also end when the best item that can
            be given next decreases the expected loss by less than price times its cost
            (1 without `cost`). The loss is the variance of the ability, or the risk of
            the decision.
        pass_mark: The decision to make: is the ability above this?
        rival: In place of a mark, another model: is the ability above its ability?
            The name of a subject of the calibration, or its ability and standard
            error.
        losses: Of passing a subject below the mark, and of failing one above it.
        risk: Also end when the expected loss of the better decision is below this. It
            must be below l10 l01 / (l10 + l01), which no expected loss exceeds.
        indifference: Decide by the likelihoods at the mark plus and minus this alone:
            Wald's sequential probability ratio test, with the error rates risk over
            each loss.
        repeats: Times that an item may be given, to models that respond differently
            each time; numbers of items are then numbers of responses.
        icc: With repeats, the correlation of two responses of a subject to an item,
            given ability (`adaptive.repeats`); `irtjax.response_icc` estimates it.
    """

    select: str
    scoring: str
    min_items: int
    standard_error: float | None
    reliability: float | None
    gain: float | None
    determinant: float | None
    randomesque: int
    quota: Mapping[str, Any] | str | None
    composite: Sequence[float] | None
    cost: Mapping[str, float] | Sequence[float] | np.ndarray | None
    budget: float | None
    price: float | None
    pass_mark: float | None
    rival: str | Sequence[float] | None
    losses: Sequence[float]
    risk: float | None
    indifference: float | None
    repeats: int
    icc: float | None


#: The rules as they are where they are not given.
DEFAULTS: dict[str, Any] = dict.fromkeys(Rules.__annotations__) | {
    "select": "information",
    "scoring": "eap",
    "min_items": 1,
    "randomesque": 1,
    "losses": (1.0, 1.0),
    "repeats": 1,
}


class Design(eqx.Module):
    """The rules of a test; build it with `Design.create`, which describes them."""

    num_items: int = eqx.field(static=True)
    select: str = eqx.field(static=True, default="information")
    scoring: str = eqx.field(static=True, default="eap")
    randomesque: int = eqx.field(static=True, default=1)
    repeats: int = eqx.field(static=True, default=1)
    min_items: Int[Array, ""] | None = None
    standard_error: Float[Array, ""] | None = None
    reliability: Float[Array, ""] | None = None
    gain: Float[Array, ""] | None = None
    determinant: Float[Array, ""] | None = None
    groups: Int[Array, " items"] | None = None  # codes, -1 for no group
    targets: Float[Array, " groups"] | None = None  # share of a test
    cost: Float[Array, " items"] | None = None
    budget: Float[Array, ""] | None = None
    price: Float[Array, ""] | None = None
    pass_mark: Float[Array, ""] | None = None
    mark_error: Float[Array, ""] | None = None  # of a rival's ability
    losses: Float[Array, "2"] | None = None
    risk: Float[Array, ""] | None = None
    indifference: Float[Array, ""] | None = None
    icc: Float[Array, ""] | None = None

    @classmethod
    def create(
        cls,
        num_items: int,
        *,
        groups: Sequence[str] | np.ndarray | None = None,
        **rules: Unpack[Rules],
    ) -> Design:
        """Checks rules; another threshold or quota does not compile anything again.

        Args:
            num_items: Items after which a test ends, at the latest.
            groups: `[items]` names of content groups, such as benchmarks.
            **rules: Those of `Rules`, where each is explained.

        Raises:
            ValueError: If a rule is unknown, a number out of range, or a quota names
                no group.

        >>> design = Design.create(20, groups=["a", "b", "a"], quota={"a": 3, "b": 1})
        >>> design.groups.tolist(), design.targets.tolist()
        ([0, 1, 0], [0.75, 0.25])
        """
        unknown = rules.keys() - DEFAULTS.keys()
        if unknown:
            raise TypeError(f"there is no rule {min(unknown)!r}")
        chosen: dict[str, Any] = {**DEFAULTS, **rules}
        select, scoring = chosen["select"], chosen["scoring"]
        randomesque = chosen["randomesque"]
        if select not in SELECTIONS:
            raise ValueError(f"select {select!r} is not one of {', '.join(SELECTIONS)}")
        if scoring not in SCORES:
            choices = ", ".join(SCORES)
            raise ValueError(f"scoring {scoring!r} is not one of {choices}")
        repeats = chosen["repeats"]
        least = chosen["min_items"]
        counts = dict(num_items=num_items, randomesque=randomesque, repeats=repeats)
        for name, number in (counts | {"min_items": least}).items():
            if number < 1:
                raise ValueError(f"{name} {number} is not at least 1")
        if least > num_items:
            raise ValueError(f"min_items {least} is above num_items {num_items}")
        if randomesque > 1 and select in ORDERS:
            raise ValueError(
                f"randomesque {randomesque} needs a rule that compares items, such as"
                f" select 'information', not {select!r}"
            )
        if select == "score":
            _check_draws(chosen)
        for name in ABOVE_0:
            if chosen[name] is not None and not chosen[name] > 0:
                raise ValueError(f"{name} {chosen[name]:g} is not above 0")
        for name in ("reliability", "gain"):
            if chosen[name] is not None and not 0 < chosen[name] < 1:
                raise ValueError(f"{name} {chosen[name]:g} is not between 0 and 1")
        _check_repeats(chosen)
        mark_error = _take_rival(chosen)
        _check_decision(chosen)
        codes, targets = _quota(groups, chosen["quota"])
        optional = lambda x, dtype=float: None if x is None else jnp.asarray(x, dtype)
        losses = None if chosen["pass_mark"] is None else chosen["losses"]
        return cls(
            num_items=int(num_items),
            select=select,
            scoring=scoring,
            randomesque=int(randomesque),
            repeats=int(repeats),
            # At 1 all rules end a test as they would without it, before the first item
            # too.
            min_items=optional(least if least > 1 else None, jnp.int32),
            groups=optional(codes, jnp.int32),
            targets=optional(targets),
            cost=optional(_costs(chosen)),
            losses=optional(losses),
            mark_error=optional(mark_error),
            **{name: optional(chosen[name]) for name in LIMITS},
        )

    def with_weight(self, items: Bool[Array, " items"]) -> Bool[Array, " items"]:
        """Those of the items whose content group has weight; all without groups."""
        return items if self.groups is None else items & (self.groups >= 0)

    def mark(self, dtype: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The pass mark and its error: 0, or that of a rival's ability."""
        assert self.pass_mark is not None
        error = 0.0 if self.mark_error is None else self.mark_error
        return self.pass_mark.astype(dtype), jnp.asarray(error, dtype)


def _check_draws(rules: Mapping[str, Any]) -> None:
    """Refuses rules by which chances of drawn items are no longer known."""
    for name in ("randomesque", "quota", "cost", "repeats"):
        if rules[name] != DEFAULTS[name]:
            raise ValueError(
                f"{name} changes the chances of items that select 'score' draws: leave"
                " it out"
            )


def _check_repeats(rules: Mapping[str, Any]) -> None:
    """Refuses repeats without a correlation, and the other way round."""
    repeats, icc = rules["repeats"], rules["icc"]
    if icc is not None and not 0 <= icc < 1:
        raise ValueError(f"icc {icc:g} is not at least 0 and below 1")
    if repeats > 1 and icc is None:
        raise ValueError(
            f"repeats {repeats} needs an icc, the correlation of responses to an item:"
            " irtjax.response_icc estimates it from counts"
        )
    if icc is not None and repeats == 1:
        raise ValueError(f"icc {icc:g} needs repeats above 1")
    if repeats > 1 and rules["gain"] is not None:
        raise ValueError("gain is for items given once: use standard_error")


def _take_rival(rules: dict[str, Any]) -> float | None:
    """Makes a rival the mark, and returns its error."""
    rival = rules["rival"]
    if rival is None:
        return None
    if isinstance(rival, str):
        raise ValueError(
            f"rival {rival!r}: give its ability and standard error, or build the test"
            " from a calibration that has this subject"
        )
    if rules["pass_mark"] is not None:
        raise ValueError("rival is in place of a pass_mark: leave one of them out")
    if rules["indifference"] is not None:
        raise ValueError("indifference is for a pass_mark: leave it out for a rival")
    numbers = np.asarray(rival, float)
    if numbers.shape != (2,) or not np.isfinite(numbers).all() or numbers[1] < 0:
        raise ValueError("rival: give its ability and its standard error, two numbers")
    rules["pass_mark"] = float(numbers[0])
    return float(numbers[1])


def _check_decision(rules: Mapping[str, Any]) -> None:
    """Refuses rules of a decision without one, and losses that are none."""
    mark = rules["pass_mark"]
    for name in ("risk", "indifference"):
        if rules[name] is not None and mark is None:
            raise ValueError(f"{name} {rules[name]:g} needs a pass_mark or a rival")
    if rules["indifference"] is not None and rules["risk"] is None:
        raise ValueError("indifference needs a risk, at which to decide")
    if mark is not None and not np.isfinite(mark):
        raise ValueError(f"pass_mark {mark:g} is not a finite number")
    losses = np.asarray(rules["losses"], float)
    if losses.shape != (2,) or not (np.isfinite(losses) & (losses > 0)).all():
        raise ValueError("losses: give two numbers above 0, of a wrong pass and fail")
    if mark is None and (losses != DEFAULTS["losses"]).any():
        raise ValueError("losses: they need a pass_mark or a rival, on which to decide")
    largest = losses.prod() / losses.sum()
    if rules["risk"] is not None and rules["risk"] >= largest:
        raise ValueError(
            f"risk {rules['risk']:g} is not below {largest:g}, the largest expected"
            " loss of the better decision: every test would end before its first item"
        )


def _costs(rules: Mapping[str, Any]) -> np.ndarray | None:
    """Costs of the items, each above 0."""
    if rules["cost"] is None:
        if rules["budget"] is not None:
            raise ValueError(f"budget {rules['budget']:g} needs a cost of each item")
        return None
    cost = np.asarray(rules["cost"], float)
    if cost.ndim != 1:
        raise ValueError("cost: give a number for each item")
    bad = ~(np.isfinite(cost) & (cost > 0))
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(f"cost {cost[at]:g} of item {at + 1} is not above 0")
    return cost


def _quota(groups, quota) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Codes of the groups with weight, and their shares."""
    if quota is None:
        return None, None
    if groups is None:
        raise ValueError("a quota needs content groups: the items have no benchmarks")
    labels = np.asarray(groups, np.str_)
    names = list(dict.fromkeys(labels.tolist()))
    if isinstance(quota, str):
        if quota != "equal":
            raise ValueError(f"quota {quota!r} is neither 'equal' nor weights by group")
        quota = dict.fromkeys(names, 1.0)
    unknown = [name for name in quota if name not in names]
    if unknown:
        raise ValueError(
            f"quota: no items are of group {unknown[0]!r}; there are"
            f" {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
        )
    weighted = [name for name in names if quota.get(name, 0.0) != 0]
    weights = np.array([float(quota[name]) for name in weighted])
    if not weighted or not (np.isfinite(weights) & (weights > 0)).all():
        raise ValueError("quota: weights must be finite, not negative, and not all 0")
    place = {name: code for code, name in enumerate(weighted)}
    codes = np.array([place.get(name, -1) for name in labels.tolist()])
    return codes, weights / weights.sum()

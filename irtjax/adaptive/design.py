"""How a test is given: its rules, and the reasons for which it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

#: Rules of selection, and scores.
SELECTIONS = (
    *("information", "mutual_information", "kl", "d_optimal", "a_optimal"),
    *("random", "fixed"),
)
ORDERS = ("random", "fixed")
SCORES = ("eap", "map")
#: Rules that are a number, or None.
LIMITS = ("standard_error", "reliability", "gain", "determinant")


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

    def explain(self) -> str:
        """Explains the flags in words."""
        words = {
            StopFlag.NUM_ITEMS: "number of items",
            StopFlag.STANDARD_ERROR: "standard error",
            StopFlag.RELIABILITY: "reliability",
            StopFlag.GAIN: "no item adds enough information",
            StopFlag.NO_ITEMS: "no items left",
            StopFlag.DETERMINANT: "determinant",
        }
        return "; ".join(text for flag, text in words.items() if self & flag)


class Rules(TypedDict, total=False):
    """Rules of a test by name, for `Design.create`, `AdaptiveTest`, `simulate_tests`.

    Attributes:
        select: How the next item is chosen. "information" (the default): the most
            information about the reported ability at the current estimate.
            "mutual_information": the largest expected decrease of the posterior's
            entropy. "random", or "fixed": a given order. Of one ability also "kl": the
            KL information around the estimate. Of several also "d_optimal" and
            "a_optimal": the smallest determinant, or trace, of their covariance. See
            `adaptive.merits`.
        score: "eap" (the default) or "map".
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
    """

    select: str
    score: str
    standard_error: float | None
    reliability: float | None
    gain: float | None
    determinant: float | None
    randomesque: int
    quota: Mapping[str, Any] | str | None
    composite: Sequence[float] | None


#: The rules as they are where they are not given.
DEFAULTS: dict[str, Any] = dict.fromkeys(Rules.__annotations__) | {
    "select": "information",
    "score": "eap",
    "randomesque": 1,
}


class Design(eqx.Module):
    """The rules of a test; build it with `Design.create`, which describes them."""

    num_items: int = eqx.field(static=True)
    select: str = eqx.field(static=True, default="information")
    score: str = eqx.field(static=True, default="eap")
    randomesque: int = eqx.field(static=True, default=1)
    standard_error: Float[Array, ""] | None = None
    reliability: Float[Array, ""] | None = None
    gain: Float[Array, ""] | None = None
    determinant: Float[Array, ""] | None = None
    groups: Int[Array, " items"] | None = None  # codes, -1 for no group
    targets: Float[Array, " groups"] | None = None  # share of a test

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
        chosen = DEFAULTS | rules
        select, score = chosen["select"], chosen["score"]
        randomesque = chosen["randomesque"]
        if select not in SELECTIONS:
            raise ValueError(f"select {select!r} is not one of {', '.join(SELECTIONS)}")
        if score not in SCORES:
            raise ValueError(f"score {score!r} is not one of {', '.join(SCORES)}")
        for name, number in (("num_items", num_items), ("randomesque", randomesque)):
            if number < 1:
                raise ValueError(f"{name} {number} is not at least 1")
        if randomesque > 1 and select in ORDERS:
            raise ValueError(
                f"randomesque {randomesque} needs a rule that compares items, such as"
                f" select 'information', not {select!r}"
            )
        for name in ("standard_error", "determinant"):
            if chosen[name] is not None and not chosen[name] > 0:
                raise ValueError(f"{name} {chosen[name]:g} is not above 0")
        for name in ("reliability", "gain"):
            if chosen[name] is not None and not 0 < chosen[name] < 1:
                raise ValueError(f"{name} {chosen[name]:g} is not between 0 and 1")
        codes, targets = _quota(groups, chosen["quota"])
        optional = lambda x, dtype=float: None if x is None else jnp.asarray(x, dtype)
        static = int(num_items), select, score, int(randomesque)
        limits = {x: optional(chosen[x]) for x in LIMITS}
        content = dict(groups=optional(codes, jnp.int32), targets=optional(targets))
        return cls(*static, **limits, **content)


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
    kept = [name for name in names if quota.get(name, 0.0) != 0]
    weights = np.array([float(quota[name]) for name in kept])
    if not kept or not (np.isfinite(weights) & (weights > 0)).all():
        raise ValueError("quota: weights must be finite, not negative, and not all 0")
    place = {name: code for code, name in enumerate(kept)}
    codes = np.array([place.get(name, -1) for name in labels.tolist()])
    return codes, weights / weights.sum()

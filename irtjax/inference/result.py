"""What scoring returns."""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

from jaxtyping import Array, Float, Int

#: Names of the kinds of score.
METHODS = ("eap", "map", "ml", "wle")


class ScoreFlag(IntFlag):
    """What is special about a score; stored as integers, combined with `|`.

    >>> ScoreFlag(1).explain()
    'estimate beyond the bounds: set to the bound'
    """

    NONE = 0
    AT_BOUND = 1
    NO_RESPONSES = 2
    UNFINISHED = 4

    def explain(self) -> str:
        """Explains the flags in words."""
        words = {
            ScoreFlag.AT_BOUND: "estimate beyond the bounds: set to the bound",
            ScoreFlag.NO_RESPONSES: "no responses: mean and SD of the population",
            ScoreFlag.UNFINISHED: "the iteration did not finish",
        }
        return "; ".join(text for flag, text in words.items() if self & flag)


class Scores(NamedTuple):
    """Scores of subjects, each array `[subjects]`.

    Attributes:
        ability: The score.
        standard_error: Its standard error, always finite and positive.
        log_marginal: Log marginal likelihood of the subject's responses over the
            population, whatever the method, up to the h(y) of the family.
        flag: `ScoreFlag` codes.
        shared: `[subjects, rank]` loadings u of errors that subjects share, because
            the items and the scale are the same for all: scores i and k have
            covariance u_i'u_k, part of both squared errors. None, items as known.
    """

    ability: Float[Array, " subjects"]
    standard_error: Float[Array, " subjects"]
    log_marginal: Float[Array, " subjects"]
    flag: Int[Array, " subjects"]
    shared: Float[Array, "subjects rank"] | None = None

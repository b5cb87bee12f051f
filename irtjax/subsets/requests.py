"""Refusals of subsets that cannot be had, before anything is fitted."""

from __future__ import annotations

from irtjax.subsets.rules import AUTO
from irtjax.subsets.selection import AIMS, METHODS

#: What a full score may be a mean of.
AVERAGES = ("items", "benchmarks")


def check_choice(method: str, aim: str, level: float) -> None:
    """Refuses an unknown method or aim, and a level that is none."""
    if method not in (AUTO, *METHODS):
        known = ", ".join((AUTO, *METHODS))
        raise ValueError(f"method {method!r} is not one of {known}")
    if aim not in AIMS:
        raise ValueError(f"aim {aim!r} is not one of {', '.join(AIMS)}")
    if not 0 < level < 1:
        raise ValueError(f"level {level:g} is not between 0 and 1")


def check_average(average: str) -> None:
    """Refuses an unknown mean."""
    if average not in AVERAGES:
        raise ValueError(f"average {average!r} is not one of {', '.join(AVERAGES)}")


def check_size(size: int, count: int, name: str = "size") -> None:
    """Refuses a number of items that there are not, or that is not whole."""
    if not 1 <= size <= count:
        raise ValueError(
            f"{name} {size} is not between 1 and the {count} items there are"
        )
    if size != int(size):
        raise ValueError(f"{name} {size} is not a whole number")


#: Folds of subjects where no number is given.
FOLDS = 5


def check_folds(folds: int | None, subjects: int) -> int:
    """Returns the number of folds, of at least two subjects each."""
    if folds is None:
        folds = max(2, min(FOLDS, subjects // 2))
    if subjects < 4:
        raise ValueError(
            f"folds {folds}: {subjects} subjects are too few to hold any out; 0 folds"
            " take the model's own errors"
        )
    if not 2 <= folds <= subjects // 2:
        raise ValueError(
            f"folds {folds}: {subjects} subjects allow 2 to {subjects // 2}"
        )
    return folds

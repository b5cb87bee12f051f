"""Populations of groups of subjects in a calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.parts.part import Findings, Part
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates


@dataclasses.dataclass(frozen=True, eq=False)
class Populations(Part):
    """Mean and standard deviation of ability of each group of subjects (`groups=`).

    Attributes:
        names: `[groups]` names, with the number of subjects of each in `size`.
        mean: `[groups]` means, with standard errors, or None without errors.
        sd: `[groups]` standard deviations, likewise.
        mean_covariance: `[groups, groups]` covariance of the means.
        group: `[subjects]` the group of each, a place in `names`.
    """

    prefix: ClassVar[str] = "populations."
    absence: ClassVar[str] = (
        "this fit has one population of subjects: fit groups=FACET to have one for each"
        " group"
    )
    axes: ClassVar[Mapping[str, str]] = {
        "names": "populations",
        "size": "populations",
        "mean": "populations",
        "sd": "populations",
        "mean_error": "populations",
        "sd_error": "populations",
        "mean_covariance": "populations populations",
        "group": "subjects",
    }

    names: np.ndarray
    size: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    group: np.ndarray
    mean_error: np.ndarray | None = None
    sd_error: np.ndarray | None = None
    mean_covariance: np.ndarray | None = None

    @classmethod
    def of(cls, table: ResponseTable, estimates: Estimates, layout: Any) -> Self | None:
        """The populations of a fit with `groups=`."""
        populations = estimates.populations
        return None if populations is None else cls(**populations)

    def difference(self, first: str, second: str) -> tuple[float, float]:
        """Difference of the means of two groups by name, and its standard error.

        The error is NaN without standard errors.
        """
        names = self.names.tolist()
        places = []
        for name in (first, second):
            if name not in names:
                raise ValueError(f"no group {name!r}; there are {', '.join(names)}")
            places.append(names.index(name))
        contrast = np.zeros(len(names))
        contrast[places[0]] += 1
        contrast[places[1]] -= 1
        if self.mean_covariance is None:
            return float(contrast @ self.mean), float("nan")
        variance = contrast @ self.mean_covariance @ contrast
        return float(contrast @ self.mean), float(np.sqrt(variance))

    def take(self, order: np.ndarray) -> Self:
        """The part with its subjects in another order."""
        return dataclasses.replace(self, group=self.group[order])

    def ability_columns(self, estimates: Estimates) -> dict[str, Any]:
        """The name of each subject's group."""
        return {"population": self.names[self.group]}

    def findings(
        self, table: ResponseTable, estimates: Estimates, options: dict[str, Any]
    ) -> Findings:
        """The populations in one line each."""
        lines = []
        for k, name in enumerate(self.names):
            text = f"group {name}: {counted(int(self.size[k]), 'subject')}, mean"
            text += f" {self.mean[k]:.2f}"
            if self.mean_error is not None:
                half = ndtri(0.975) * self.mean_error[k]
                text += f" ± {half:.2f} (95 %)"
            lines.append(f"{text}, sd {self.sd[k]:.2f}")
        return Findings(notes=tuple(lines))

    @classmethod
    def from_own(
        cls, own: dict[str, Any], arrays: Mapping[str, Any], document: Any
    ) -> Self:
        """The populations of a file."""
        return cls(**own)

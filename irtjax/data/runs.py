"""Errors of mean scores by what the responses of one run share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from irtjax.data.stored_cells import AbstractStoredCells


class RunErrors(NamedTuple):
    """Standard errors of mean scores by runs, which `reading.run_errors` estimates.

    Attributes:
        common: `[subjects]` by what a run's responses to all items share.
        own: By benchmark `[subjects]`, by what those to its items share further; it is
            independent of the common part and of other benchmarks.
    """

    common: np.ndarray
    own: Mapping[str, np.ndarray]

    def select(self, rows: np.ndarray) -> RunErrors:
        """Those of some subjects, by position."""
        own = {name: error[rows] for name, error in self.own.items()}
        return RunErrors(self.common[rows], own)

    def scaled(self, width: np.ndarray, benchmarks: np.ndarray) -> RunErrors:
        """Those of scores divided by a width `[items]`, of one size in a benchmark."""
        own = {
            name: error / float(np.mean(width[benchmarks == name]))
            for name, error in self.own.items()
            if (benchmarks == name).any()
        }
        return RunErrors(self.common / float(np.mean(width)), own)

    def of_benchmark(self, name: str) -> np.ndarray:
        """Errors `[subjects]` of mean scores on one benchmark."""
        return np.hypot(self.common, self.own.get(name, 0.0))

    def of_scores(
        self, cells: AbstractStoredCells, benchmarks: np.ndarray
    ) -> np.ndarray:
        r"""Errors `[subjects]` of mean scores over all responses.

        With the share w of a subject's responses that are to items of benchmark b it is
        the root of :math:`s^2 + \sum_b w_b^2 s_b^2`.

        >>> from irtjax.data.stored_cells import DenseCells
        >>> errors = RunErrors(np.array([0.03]), {"x": np.array([0.08])})
        >>> cells = DenseCells(np.ones((1, 4)))
        >>> errors.of_scores(cells, np.array(["x", "x", "y", "y"])).round(3).tolist()
        [0.05]
        """
        square, total = self.common**2, np.maximum(cells.count(1), 1)
        for name, error in self.own.items():
            part = cells.select(None, np.flatnonzero(benchmarks == name))
            square = square + (part.count(1) / total * error) ** 2
        return np.sqrt(square)

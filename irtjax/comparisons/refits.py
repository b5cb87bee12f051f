"""Fits of a table that are repeated with other numbers of outcomes, for their checks.

Plain models are mixed models without random effects, so that checks and influence treat
all alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from irtjax.comparisons.mixed import MixedFit
from irtjax.comparisons.mixed_tables import MixedRows, mixed_rows
from irtjax.comparisons.problem import PRIOR, PairProblem
from irtjax.comparisons.settings import RANKINGS, PairSettings


class Refits(NamedTuple):
    """A problem with the rows that its fits are of.

    Attributes:
        plain: The comparisons that count, and the model without random effects.
        rows: The same with random effects.
    """

    plain: PairProblem
    rows: MixedRows

    @classmethod
    def of(cls, plain: PairProblem, settings: PairSettings) -> Refits:
        """The problem with the random effects of the settings, if any."""
        with jax.enable_x64(True):
            rows = mixed_rows(
                plain.family,
                plain.table,
                plain.outcomes,
                (plain.features, plain.names),
                category=settings.category,
                judge=settings.judge,
                tie_rates=settings.tie_rates,
                bad=settings.both_bad == "outcome",
            )
        return cls(plain, rows)

    def fit(
        self, outcomes: np.ndarray | None = None, start: MixedFit | None = None
    ) -> MixedFit:
        """Estimates; by the prior where comparisons do not determine them.

        Args:
            outcomes: `[comparisons, 4]`; None takes those of the table.
            start: A fit to similar comparisons, as `mixed.fit_mixed` has it.
        """
        four = self.rows.outcomes if outcomes is None else outcomes
        three = np.column_stack([four[:, :2], four[:, 2:].sum(axis=1)])
        precision = 1 / PRIOR**2 if self.plain.existence(three) else 0.0
        with jax.enable_x64(True):
            return self.rows.fit(outcomes, precision, start)


def settings_of(options: Mapping[str, Any]) -> PairSettings:
    """The settings of a fit that has checks and influence.

    Raises:
        ValueError: If the model is of rankings or has a preset, or no such setting.
    """
    settings = PairSettings.of(options)
    if settings.model == RANKINGS or settings.preset is not None:
        raise ValueError(
            "checks and influence are of comparisons of two without a preset: leave"
            " model='plackett_luce' and preset out"
        )
    return settings

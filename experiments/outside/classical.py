"""Classical statistics, tests and probit loadings against R's psych, stats, lavaan."""

from __future__ import annotations

from typing import Any

import numpy as np

import irtjax
from experiments.outside import data, rscript
from irtjax.data.stored_cells import DenseCells
from irtjax.ranking.accuracy import paired_difference
from irtjax.ranking.comparison import compare as compare_two
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.classical import classical
from irtjax.validity.tetrachoric import tetrachoric

PACKAGES = ("psych", "lavaan")
Row = dict[str, Any]


def compare(name: str, values: np.ndarray) -> list[Row]:
    """Largest differences of one table of right and wrong responses."""
    p_values = np.random.default_rng(0).random(40) ** 3
    pair = values.T[:2] if len(values) > 200 else values[:2]
    given = {"y": values, "p": p_values, "pair": pair}
    theirs = rscript.call("classical.R", given)
    table = irtjax.ResponseTable.from_arrays(values)
    found = classical(DenseCells(values))
    mean = paired_difference(pair)
    assert mean is not None
    counts = irtjax.ResponseTable.from_arrays(pair).responses()
    sign = compare_two(np.zeros(2), np.ones(2), 0, 1, data=counts).sign_p_value
    fit = irtjax.fit(table, "probit2pl", "em", priors=None)
    slope = np.asarray(fit.parameters.items.discrimination, float)
    loading = slope / np.sqrt(1 + slope**2)
    wlsmv, error = (np.array(theirs[x]) for x in ("loadings", "loading_errors"))
    both, right = values.T @ values, values.sum(0)
    only = right[:, None] - both
    # irtjax adds 0.5 to each cell of a table with an empty one; psych has other rules.
    full = np.min([both, only, only.T, len(values) - both - only - only.T], 0) > 0
    np.fill_diagonal(full, False)
    tetra = np.asarray(tetrachoric(table))
    differences = {
        "alpha": found.alpha - theirs["alpha"],
        "alpha without the item": found.alpha_without - theirs["alpha_without"],
        "item-rest correlation": found.item_rest - theirs["item_rest"],
        "tetrachoric correlation": tetra - np.where(full, theirs["tetrachoric"], tetra),
        "Benjamini-Hochberg": benjamini_hochberg(p_values) - theirs["adjusted"],
        "paired t": np.array([mean.difference, mean.standard_error, mean.lower,
                              mean.upper, mean.p_value]) - theirs["t"],
        "sign test": np.array(sign) - theirs["sign"],
        "probit loadings - WLSMV, in its errors": (loading - wlsmv) / error,
    }  # fmt: skip
    return [
        {"data": name, "quantity": quantity, "difference": float(np.abs(gap).max())}
        for quantity, gap in differences.items()
    ]


def main(*, small: bool) -> list[Row]:
    """Simulated data, and LSAT7 and verbal aggression."""
    rows = compare("simulated 300 x 8", data.simulated(300, 8))
    lsat, verbal = map(data.classic, ("lsat7", "verbagg"))
    if small or lsat is None or verbal is None:
        return rows
    rows += compare("LSAT7", lsat)
    return rows + compare("VerbAgg", (verbal > 0).astype(int))

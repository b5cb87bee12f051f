"""How far `laplace`s are from the posterior, on one set of data after another."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import irtjax
from experiments.lego_irt.structure import headed
from irtjax.estimators.posterior import diagnose
from irtjax.estimators.posterior.methods import NUTS

#: What is compared with `nuts`.
FAST = ("laplace", "vi")
#: The sampler. Of REALSumm's spread of intercepts 1,000 draws tell too little.
REFERENCE = NUTS(num_draws=3000, target_acceptance=0.9)
#: With that target 9 % of PSN-IRT's transitions diverged, and with 0.99 half of the
#: trajectories reached the usual depth of 10.
OF_ITS_OWN = {
    "psn_irt": NUTS(
        num_warmup=1500, num_draws=2000, target_acceptance=0.98, max_depth=11
    )
}


def distances(
    tables: dict[str, tuple[irtjax.ResponseTable, str]],
    method: NUTS | None = None,
    seed: int = 0,
) -> list[dict]:
    """Distances of fits by `laplace` and `vi` from one by `nuts`.

    Args:
        tables: A table with its model by name.
        method: The sampler; None for `REFERENCE`, or that of `OF_ITS_OWN`.
        seed: Of the sampler.

    Returns:
        For every set of data and method a row for each quantity. "distance" is the root
        mean square of differences of estimates over posterior standard deviations,
        "deviations" that of abilities less their group's mean; "ratio" is the median of
        standard errors over posterior standard deviations. Of the residual parts of
        ability there are the geometric mean of their standard deviations, by either,
        and the largest difference of a correlation.
    """
    rows = []
    for name, (table, model) in tables.items():
        key = jax.random.key(seed)
        sampler = method or OF_ITS_OWN.get(name, REFERENCE)
        reference = irtjax.fit(table, model, sampler, key=key)
        headed(f"{name} by nuts", reference)
        found = reference.structure
        assert found is not None and found.draws is not None
        for part, draws in found.draws.values.items():
            rhat = diagnose(draws).rhat
            rows.append(_row(name, "nuts", f"largest R-hat of {part}", np.max(rhat)))
        for fast in FAST:
            fit = irtjax.fit(table, model, fast)
            headed(f"{name} by {fast}", fit)
            for quantity, value in compared(fit, reference).items():
                rows.append(_row(name, fast, quantity, value))
                print(f"  {quantity}: {value:.3g}", flush=True)
    return rows


def _row(data: str, method: str, quantity: str, value) -> dict[str, Any]:
    return {"data": data, "method": method, "quantity": quantity, "value": float(value)}


def compared(
    fit: irtjax.Calibration, reference: irtjax.Calibration
) -> dict[str, float]:
    """Quantities of `distances` by name, of one fit beside that by `nuts`."""
    one, other = fit.structure, reference.structure
    assert one is not None and other is not None and other.draws is not None
    draws = np.asarray(other.draws.values["ability"])
    draws = draws.reshape(-1, *draws.shape[2:])
    gap, sd = one.ability - other.ability, draws.std(axis=0)
    ratio = one.error / sd
    low, high = np.quantile(ratio, [0.05, 0.95])
    centred = draws - draws.mean(axis=1, keepdims=True)
    own = gap - gap.mean(axis=0)
    out = {
        "abilities, distance": _root_mean_square(gap / sd),
        "abilities, deviations": _root_mean_square(own / centred.std(axis=0)),
        "abilities, ratio": float(np.median(ratio)),
        "abilities, ratio, 5 %": float(low),
        "abilities, ratio, 95 %": float(high),
    }
    for column, as_log in (("discrimination", True), ("intercept", False)):
        value, error = _column(fit, column, as_log)
        truth, their_sd = _column(reference, column, as_log)
        label = "log slopes" if as_log else "intercepts"
        out[f"{label}, distance"] = _root_mean_square((value - truth) / their_sd)
        out[f"{label}, ratio"] = float(np.median(error / their_sd))
    if len(one.groups) > 1:
        for label, found in (("own sd", one), ("own sd, nuts", other)):
            variances = np.diagonal(found.specific_covariance)
            out[label] = float(np.exp(0.5 * np.log(variances).mean()))
        change = np.abs(one.specific_correlation - other.specific_correlation)
        out["own correlations, largest difference"] = float(change.max())
    return out


def _column(
    fit: irtjax.Calibration, name: str, as_log: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of a column of the item table, and their errors."""
    value = fit.items.table.column(name).to_numpy()
    error = fit.items.table.column(f"{name}_se").to_numpy()
    return (np.log(value), error / value) if as_log else (value, error)


def _root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))

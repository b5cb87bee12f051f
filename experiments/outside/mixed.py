"""`laplace` of Rasch's model against R: lme4, quadrature, and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

import irtjax
from experiments.outside import data, rscript

PACKAGES = ("lme4",)
Row = dict[str, Any]


def placed(fit: irtjax.Calibration, table: irtjax.ResponseTable, column: str):
    """A column of the ability table in the order of the subjects of a table."""
    found = fit.abilities.table
    value = dict(
        zip(found["subject"].to_pylist(), found[column].to_pylist(), strict=True)
    )
    return np.array([value[name] for name in table.subjects.tolist()])


def pair_errors(covariance: np.ndarray) -> np.ndarray:
    """Standard errors of the differences of all pairs."""
    own = np.diag(covariance)
    first, second = np.triu_indices(len(own), 1)
    return np.sqrt(own[first] + own[second] - 2 * covariance[first, second])


def compare(name: str, values: np.ndarray, draws: int) -> list[Row]:
    """Rows of a quantity by lme4, by R without Laplace for both sides, by irtjax."""
    few = len(values) < values.shape[1]
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "rasch", "laplace")
    structure = fit.structure
    assert structure is not None and structure.standard_deviations is not None
    sd_subjects = float(np.sqrt(structure.general_variance))
    sd_items = float(np.ravel(structure.standard_deviations[1])[0])
    mean = float(np.ravel(structure.effects[1])[0])
    theirs = rscript.call("mixed.R", {
        "y": values, "sd_subjects": sd_subjects, "sd_items": sd_items, "mean": mean,
        "small": "subjects" if few else "items", "draws": draws,
    })  # fmt: skip
    rows: list[Row] = []

    def add(quantity: str, lme4, r, ours) -> None:
        rows.append({"data": name, "quantity": quantity, "lme4": lme4, "R": r,
                     "irtjax": ours})  # fmt: skip

    sampled = theirs["sampled"]
    truth = np.array(sampled["theta"])
    covariance = np.array(sampled["covariance"])
    error = np.sqrt(np.diag(covariance))
    ability, ours = (placed(fit, table, x) for x in ("ability", "ability_se"))
    intercept = np.asarray(fit.parameters.items.intercept, float)
    of_items = fit.items.table["intercept_se"].to_numpy()
    b_se = np.array(sampled["b_se"])
    add("log-likelihood", theirs["log_likelihood"], theirs["at_theirs"],
        fit.log_likelihood)  # fmt: skip
    add("log-likelihood, lme4 at irtjax's SDs", theirs["laplace"],
        theirs["at_theirs"], fit.log_likelihood)  # fmt: skip
    add("SD of abilities", theirs["sds"][0], theirs["joint"][1], sd_subjects)
    add("SD of items", theirs["sds"][1], theirs["integrated"][1], sd_items)
    add("mean of items", theirs["mean"], theirs["joint"][0], mean)
    gap = lambda x: float((np.abs(x - truth) / error).max())
    modes = gap(np.array(theirs["ability"]))
    add("abilities: largest gap / SE", modes, 0.0, gap(ability))
    same = gap(np.array(theirs["laplace_ability"]))
    add("abilities: largest gap / SE, lme4 at irtjax's SDs", same, 0.0, gap(ability))
    for which, end in (("least", np.min), ("largest", np.max)):
        ratio = lambda x, end=end: float(end(np.array(x) / error))
        name_of = f"errors of abilities, {which} ratio"
        add(name_of, ratio(theirs["henderson"]), 1.0, ratio(ours))
        add(f"{name_of}, condVar", ratio(theirs["condvar"]), 1.0, None)
    moved = float((np.abs(intercept - np.array(sampled["b"])) / b_se).max())
    add("items: largest gap / SE", None, 0.0, moved)
    for which, end in (("least", np.min), ("largest", np.max)):
        add(f"errors of items, {which} ratio", None, 1.0, float(end(of_items / b_se)))
    if not few:
        return rows
    names = table.subjects.tolist()
    pairs = list(zip(*np.triu_indices(len(names), 1), strict=True))
    found = [irtjax.compare(fit, names[i], names[j]) for i, j in pairs]
    z = np.array([one.z for one in found])
    by_pair = np.array([one.standard_error for one in found])
    sampled_errors = pair_errors(covariance)
    for which, end in (("least", np.min), ("largest", np.max)):
        add(f"errors of differences, {which} ratio", None, 1.0,
            float(end(by_pair / sampled_errors)))  # fmt: skip
    fixed = np.array(theirs["fixed"]["theta"])
    first, second = np.transpose(pairs)
    moves = fixed[first] - fixed[second]
    theirs_z, given_sd = (
        moves / pair_errors(np.array(theirs["fixed"][x]))
        for x in ("covariance", "given_sd")
    )
    gaps = np.abs(z - theirs_z)
    add("z of pairs: largest gap", 0.0, None, float(gaps.max()))
    add("z of pairs: largest gap where |z| < 4", 0.0, None,
        float(gaps[np.abs(theirs_z) < 4].max()))  # fmt: skip
    add("z of pairs: largest gap, given the items' SD", 0.0, None,
        float(np.abs(z - given_sd).max()))  # fmt: skip
    add("z of pairs: largest |z|", float(np.abs(theirs_z).max()), None,
        float(np.abs(z).max()))  # fmt: skip
    add("pairs significant at 5 %", int((np.abs(theirs_z) > 1.96).sum()), None,
        int((np.abs(z) > 1.96).sum()))  # fmt: skip
    both = (np.abs(theirs_z) > 1.96) != (np.abs(z) > 1.96)
    add("pairs decided otherwise", None, None, int(both.sum()))
    return rows


def main(*, small: bool) -> list[Row]:
    """Simulated data, and with them 12 models and LSAT7."""
    if small:
        return compare("simulated 8 x 60", data.simulated(8, 60), 4000)
    rows = compare("simulated 10 x 240", data.simulated(10, 240), 20_000)
    models, lsat = data.evaluations(300), data.classic("lsat7")
    if models is not None:
        rows += compare("12 models x 300", models, 20_000)
    if lsat is not None:
        rows += compare("LSAT7 1000 x 5", lsat, 5000)
    return rows

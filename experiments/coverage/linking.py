"""Linking of fits: coverage of constants, drifted items, twelve versions.

`python experiments/coverage/linking.py [--part pairs|versions] [--replicates N]`

**pairs**: two fits of 40 common items by 300 models each, the second with abilities of
mean .5 and standard deviation 1.2, so that A is 1.2 and B is .5. In half of the
replicates 8 items are easier by 1.5 logits in the second. Printed by method: bias,
standard deviation and mean standard error of A and B, and the share of 95 % intervals
that cover; drifted items that were found, and the share of false ones.

**versions**: twelve versions of 100 items by 500 models each, whose mean ability rises
by .15. "same": 50 items are in all; "next": 50 are in the next version. Printed: the
error in points of a hundred of the mean score of each version's models on the items of
the first, in units of score, against that with true abilities and items: the largest,
the root mean square and the mean standard error that the link states.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from irtjax.validity.linking import METHODS


def fitted(rng, items, slope, intercept, ability, name):
    """The fit of simulated responses."""
    logit = ability[:, None] * slope + intercept
    right = (rng.random(logit.shape) < expit(logit)).astype(np.int8)
    subjects = [f"{name}-{k}" for k in range(len(ability))]
    table = irtjax.ResponseTable.from_arrays(right, items=items, subjects=subjects)
    return irtjax.fit(table, "2pl", method="em")


def item_parameters(rng, count):
    return rng.uniform(0.7, 1.7, count), rng.normal(0, 1, count)


def score(ability, slope, intercept):
    """Mean expected score in points."""
    return 100 * expit(ability[:, None] * slope + intercept).mean()


def pairs(replicates):
    rng = np.random.default_rng(58)
    truth = np.array([1.2, 0.5])
    names = [f"q{k}" for k in range(40)]
    rows = {(drift, method): [] for drift in (0, 1) for method in METHODS}
    hits, false, flagged = [], {0: 0, 1: 0}, {0: 0, 1: 0}
    for replicate in range(replicates):
        drift = replicate % 2
        slope, intercept = item_parameters(rng, 40)
        old = fitted(rng, names, slope, intercept, rng.normal(size=300), "old")
        planted = intercept + 1.5 * drift * (np.arange(40) % 5 == 0)
        ability = truth[1] + truth[0] * rng.normal(size=300)
        new = fitted(rng, names, slope, planted, ability, "new")
        for method in METHODS:
            link = irtjax.link(old, new, method=method)
            errors = link.A_se, link.B_se
            rows[drift, method].append(((link.A, link.B), errors))
        found, true = set(link.drifted), set(names[::5]) if drift else set()
        hits += [len(found & true) / 8] * drift
        false[drift] += len(found - true)
        flagged[drift] += len(found)
    for (drift, method), row in rows.items():
        value, error = np.moveaxis(np.array(row), 1, 0)
        covered = np.abs(value - truth) < 1.96 * error
        columns = (value - truth).mean(0), value.std(0), error.mean(0), covered.mean(0)
        print(drift, f"{method:14}", *(np.round(x, 3) for x in columns), len(row))
    print("drifted items found:", np.mean(hits), "false of said:", false, flagged)


def versions(replicates):
    for design in ("same", "next"):
        worst, squares, stated = [], [], []
        for seed in range(replicates):
            rng = np.random.default_rng([58, seed])
            slope, intercept = item_parameters(rng, 650)
            fits, abilities = [], []
            for k in range(12):
                items = np.arange(50 * k, 50 * k + 100)
                if design == "same":
                    items = np.r_[0:50, 50 + 50 * k : 100 + 50 * k]
                ability = 0.15 * k + rng.normal(size=500)
                names = [f"q{j}" for j in items]
                parameters = slope[items], intercept[items]
                fits.append(fitted(rng, names, *parameters, ability, f"v{k}"))
                abilities.append(ability)
            link = irtjax.link(*fits)
            first = slope[:100], intercept[:100]
            constants = link.estimate.constants
            own = link.estimate.own.reshape(12, 2, 12, 2)
            errors = []
            for k in range(12):
                # The link alone: true abilities on the scale of the fit, which has mean
                # 0 and standard deviation 1, as the models of the version have.
                mean, sd = abilities[k].mean(), abilities[k].std()
                first_mean, first_sd = abilities[0].mean(), abilities[0].std()
                a, b = constants[k]
                linked = a * (abilities[k] - mean) / sd + b
                linked = first_mean + first_sd * linked
                here, there, above = (
                    score(x, *first) for x in (abilities[k], linked, linked + 0.01)
                )
                errors.append(there - here)
                step = (above - there) / 0.01
                stated += [step * np.sqrt(own[k, 1, k, 1])] * (k > 0)
            worst.append(np.abs(errors).max())
            squares.append(np.square(errors[1:]).mean())
        rms = np.sqrt(np.mean(squares))
        print(
            f"{design}: largest {np.max(worst):.2f}, rms {rms:.2f},"
            f" stated {np.mean(stated):.2f} points, {replicates} replicates"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["pairs", "versions"])
    parser.add_argument("--replicates", type=int)
    args = parser.parse_args()
    if args.part in (None, "pairs"):
        pairs(args.replicates or 200)
    if args.part in (None, "versions"):
        versions(args.replicates or 2)


if __name__ == "__main__":
    main()

"""Linking: coverage of constants, drifted items, twelve versions.

`python experiments/coverage/linking.py [--part pairs|versions|fits|subjects]
[--replicates N]`

Item estimates of **pairs** and **versions** are drawn from the normal distribution that
`irtjax.link` assumes: errors of each item by its information in 500 responses, and the
location and scale of the calibration. **fits** simulates responses and fits both.

**pairs**, **fits**: 40 common items, the second calibration with abilities of mean .5
and standard deviation 1.2, so that A is 1.2 and B is .5. In every other replicate 8
items are easier by 1 logit in the second. Printed by drift and method: bias, standard
deviation, mean standard error and coverage of 95 % intervals, of A and B; then the
share of drifted items that were found, and of false ones among those said to drift.

**versions**: twelve versions of 100 items whose mean ability rises by .15. "same": 50
items are in all versions; "next": 50 are in the next one. Printed: the error of the
link in points of the mean score of a version's models on the items of the first, the
largest and root mean square over versions, and the standard error that is stated. The
location of 500 models as a sample is no error of the link, and is left out.

**subjects**: two versions of 40 other items each, fitted by EM. 300 models respond to
the first; 100 of them, and 200 others whose mean ability is .5, to the second. Printed:
the share of the 200 whose ability on the first scale is in its 95 % interval, after
`rescaled`, with its standard error over replicates; and mean and standard deviation of
the errors of A and B over their standard errors.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from irtjax.validity.linking import METHODS

#: Methods by common items; the simulated versions have subjects of the same names.
BY_ITEMS = [method for method in METHODS if method != "subjects"]
TRUTH = np.array([1.2, 0.5])
RESPONSES = 500
NODES = np.linspace(-4, 4, 41)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def item_parameters(rng, count):
    """Discriminations and intercepts."""
    return rng.uniform(0.7, 1.7, count), rng.normal(0, 1, count)


def fitted(rng, slope, intercept, ability, items=None, subjects=None):
    """The fit of simulated responses."""
    logit = ability[:, None] * slope + intercept
    right = (rng.random(logit.shape) < expit(logit)).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(right, items=items, subjects=subjects)
    return irtjax.fit(table, "2pl", method="em")


def estimated(rng, base, slope, intercept, items, scale=True):
    """A calibration whose item estimates are drawn about their true values.

    Without `scale` location and scale of ability have no errors.
    """
    chance = expit(slope[:, None] * NODES + intercept[:, None])
    weight = WEIGHTS * chance * (1 - chance)
    power = [(weight * NODES**k).sum(axis=1) for k in range(3)]
    information = RESPONSES * np.array([[power[2], power[1]], [power[1], power[0]]])
    covariance = np.linalg.inv(np.moveaxis(information, 2, 0))
    root = np.linalg.cholesky(covariance)
    noise = np.einsum("jab,jb->ja", root, rng.normal(size=(len(slope), 2)))
    location, stretch = rng.normal(size=2) * scale / np.sqrt(RESPONSES * np.r_[1, 2])
    a = slope / (1 + stretch)
    d = intercept - a * location
    # What a calibration reports: errors of items with those of location and scale.
    moves = np.zeros((len(slope), 2, 2))
    moves[:, 0, 1] = moves[:, 1, 0] = -slope
    shared = moves @ np.diag([1, 0.5]) @ np.swapaxes(moves, 1, 2) / RESPONSES
    ability = base.abilities.table["ability"].to_numpy()
    # Loadings from which `link` infers these errors; abilities have no others.
    loadings = np.stack([np.ones_like(ability), ability * np.sqrt(0.5)], axis=1)
    record = base.parameters.items._replace(
        discrimination=a + noise[:, 0],
        intercept=d + noise[:, 1],
        lower_asymptote=np.zeros(len(a)),
        upper_asymptote=np.ones(len(a)),
    )
    return dataclasses.replace(
        base,
        # Abilities as parameters: they move with location and scale as they are.
        parameters=base.parameters._replace(items=record, theta=ability),
        item_covariance=covariance + scale * shared,
        ability_shared=scale * loadings / np.sqrt(RESPONSES),
        ability_scale=None,
        item_names=np.array(items),
    )


def base_fit():
    """A small fit whose items are replaced."""
    rng = np.random.default_rng(0)
    return fitted(rng, *item_parameters(rng, 12), rng.normal(size=100))


def pairs(replicates, methods, by_fits):
    """Prints coverage of constants and drift of two calibrations."""
    rng = np.random.default_rng(58)
    base = None if by_fits else base_fit()
    names = [f"q{k}" for k in range(40)]
    rows = {(drift, method): [] for drift in (0, 1) for method in methods}
    hits, false, flagged = [], [0, 0], [0, 0]
    for replicate in range(replicates):
        drift = replicate % 2
        slope, intercept = item_parameters(rng, 40)
        planted = intercept + drift * (np.arange(40) % 5 == 0)
        if by_fits:
            old = fitted(rng, slope, intercept, rng.normal(size=RESPONSES), names)
            ability = TRUTH[1] + TRUTH[0] * rng.normal(size=RESPONSES)
            new = fitted(rng, slope, planted, ability, names)
        else:
            old = estimated(rng, base, slope, intercept, names)
            moved = slope * TRUTH[0], planted + slope * TRUTH[1]
            new = estimated(rng, base, *moved, names)
        for method in methods:
            link = irtjax.link(old, new, method=method)
            errors = link.A_se, link.B_se
            rows[drift, method].append(((link.A, link.B), errors))
        said, true = set(link.drifted), set(names[::5]) if drift else set()
        hits += [len(said & true) / 8] * drift
        false[drift] += len(said - true)
        flagged[drift] += len(said)
    for (drift, method), row in rows.items():
        value, error = np.moveaxis(np.array(row), 1, 0)
        covered = np.abs(value - TRUTH) < 1.96 * error
        columns = (value - TRUTH).mean(0), value.std(0), error.mean(0), covered.mean(0)
        print(drift, f"{method:14}", *(np.round(x, 3) for x in columns), len(row))
    print(f"drifted items found: {np.mean(hits):.3f}")
    print(f"false / said to drift: without {false[0]}/{flagged[0]},", end=" ")
    print(f"with drift {false[1]}/{flagged[1]}")


def versions(replicates):
    """Prints errors of twelve versions in points."""
    base = base_fit()
    for design in ("same", "next"):
        worst, squares, stated = [], [], []
        for seed in range(replicates):
            rng = np.random.default_rng([58, seed])
            slope, intercept = item_parameters(rng, 650)
            fits = []
            for k in range(12):
                items = np.arange(50 * k, 50 * k + 100)
                if design == "same":
                    items = np.r_[0:50, 50 + 50 * k : 100 + 50 * k]
                parameters = slope[items], intercept[items] + slope[items] * 0.15 * k
                names = [f"q{j}" for j in items]
                fits.append(estimated(rng, base, *parameters, names, scale=False))
            link = irtjax.link(*fits)
            first = slope[:100], intercept[:100]
            points = []
            for k, (a, b) in enumerate(link.estimate.constants):
                linked, true = (
                    100 * WEIGHTS @ expit(t[:, None] * first[0] + first[1]).mean(axis=1)
                    for t in (a * NODES + b, NODES + 0.15 * k)
                )
                above = a * NODES + b + 0.01
                above = expit(above[:, None] * first[0] + first[1]).mean(axis=1)
                points.append(linked - true)
                slope_here = (100 * WEIGHTS @ above - linked) / 0.01
                error = np.sqrt(link.estimate.own[2 * k + 1, 2 * k + 1])
                stated += [slope_here * error] * (k > 0)
            worst.append(np.abs(points).max())
            squares.append(np.square(points[1:]).mean())
        rms = np.sqrt(np.mean(squares))
        print(
            f"{design}: largest {np.max(worst):.2f}, mean largest {np.mean(worst):.2f},"
            f" rms {rms:.2f}, stated {np.mean(stated):.2f} points, {replicates}"
            " replicates"
        )


def common_subjects(replicates):
    """Prints coverage of abilities that common subjects link."""
    rng, covered, errors = np.random.default_rng(7), [], []
    subjects = np.array([f"model {k}" for k in range(500)])
    items = np.array([f"q{k}" for k in range(80)])
    for _ in range(replicates):
        ability = rng.normal(size=500) + 0.5 * (np.arange(500) >= 300)
        fits = []
        for first, chosen in ((0, items[:40]), (200, items[40:])):
            rows = slice(first, first + 300)
            parameters = item_parameters(rng, 40)
            fits.append(fitted(rng, *parameters, ability[rows], chosen, subjects[rows]))
        link = irtjax.link(*fits)
        table = fits[1].rescaled(link).abilities.table
        value, error = (table[x].to_numpy()[100:] for x in ("ability", "ability_se"))
        covered.append(np.mean(np.abs(value - ability[300:]) < 1.96 * error))
        mean = 0.5 * 200 / 300
        sd = np.sqrt(1 + 0.25 * 200 / 300 - mean**2)
        errors.append([(link.A - sd) / link.A_se, (link.B - mean) / link.B_se])
    z = np.array(errors)
    spread = np.std(covered) / np.sqrt(replicates)
    print(f"abilities: covered {np.mean(covered):.3f} (standard error {spread:.3f})")
    print("A, B: mean", z.mean(0).round(2), "sd", z.std(0).round(2), replicates)


def main():
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["pairs", "versions", "fits", "subjects"])
    parser.add_argument("--replicates", type=int)
    parser.add_argument("--methods", default=",".join(BY_ITEMS))
    args = parser.parse_args()
    methods = args.methods.split(",")
    if args.part in (None, "pairs"):
        pairs(args.replicates or 400, methods, False)
    if args.part in (None, "versions"):
        versions(args.replicates or 20)
    if args.part in (None, "fits"):
        pairs(args.replicates or 200, methods, True)
    if args.part in (None, "subjects"):
        common_subjects(args.replicates or 24)


if __name__ == "__main__":
    main()

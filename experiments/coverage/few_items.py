"""Stated errors of the expected score after few items, known without error.

    python experiments/coverage/few_items.py RESPONSES --factors 2 4 --out results

Items are those of factor models fitted to a table of responses. New subjects from the
population take tests of chosen and of random items. Columns: `rmse` of the expected
score, `difference` of the stated error (root mean square) from it in percent and its
Monte-Carlo error, `coverage` of 95 % intervals.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import irtjax
from irtjax.adaptive import Design, FactorBank
from irtjax.adaptive.simulation import run_tests_jit

if __name__ == "__main__":  # Run as a script, from any folder.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.coverage.adaptive import compare
from experiments.coverage.tables import write

LENGTHS = (1, 2, 5, 10, 20, 50)


def compared(fit: Any, tested: int) -> list[dict[str, Any]]:
    """Rows of the tests of one bank."""
    known = fit.parameters
    bank = FactorBank.create(fit.model, known.items, known.population)
    theta = bank.draw_abilities(tested, jax.random.key(1))
    truth = np.asarray(bank.truth(theta))
    rows = []
    for select in ("information", "random"):
        design = Design.create(min(max(LENGTHS), bank.num_items), select=select)
        tests = run_tests_jit(bank, design, key=jax.random.key(2), theta=theta)
        for length in (x for x in LENGTHS if x <= bank.num_items):
            gap = np.asarray(tests.ability[:, length - 1]) - truth
            error = np.asarray(tests.standard_error[:, length - 1])
            found = compare("score", gap, error)
            rmse = np.sqrt(found["score_square"])
            stated = np.sqrt(found["score_stated"])
            noise = np.std(gap**2) / np.sqrt(tested) / (2 * rmse**2)
            row = dict(factors=theta.shape[1], select=select, items=length)
            row |= dict(rmse=float(rmse), difference=float(100 * (stated / rmse - 1)))
            rows.append(
                row | dict(noise=float(100 * noise), coverage=found["score_coverage"])
            )
    return rows


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the study and writes few_items.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("responses", type=Path, help="a table of responses")
    parser.add_argument("--factors", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--tested", type=int, default=4000, help="new subjects")
    parser.add_argument("--out", type=Path, help="folder for the CSV file")
    given = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    table, rows = irtjax.read(given.responses), []
    for factors in given.factors:
        fit = irtjax.fit(table, "factor", factors=factors)
        rows += compared(fit, given.tested)
    for row in rows:
        print(*(x if isinstance(x, str) else f"{x:.4g}" for x in row.values()))
    if given.out is not None:
        write(given.out, "few_items", rows)
    return rows


if __name__ == "__main__":
    main()

"""Size and power of the test of missing responses where benchmarks were not run.

    python experiments/cbmm/blocks.py --tables 200
    python experiments/cbmm/blocks.py --tables 200 --masks  # without blocks

Of two benchmarks of 20 items some subjects ran the first alone, some the second alone,
and some both; single calls fail as well. `SEVERAL` has three benchmarks of 5 to 80
items. A row for each setting: the share of tables with any item flagged at 5 %, of
items with p <= 0.05, of the first three items flagged, and of the others.
docs/evidence/audit-tests.md has the figures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

if __name__ == "__main__":  # Run as a script, from any folder.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from irtjax.validity import missing_matrix
from irtjax.validity.missing_matrix import missing_by_ability

ITEMS = 20
#: Settings of `draw`.
SETTINGS: dict[str, dict[str, Any]] = {
    "200 subjects": {},
    "200 subjects, 3 % fail": {"fail": 0.03},
    "200 subjects, 10 % fail": {"fail": 0.1},
    "60 subjects, 3 % fail": {"fail": 0.03, "subjects": 60},
    "equally hard, 3 % fail": {"fail": 0.03, "easy": 0.0},
    "strong subjects run the second, 3 % fail": {
        **{"fail": 0.03, "related": 0.5, "shares": (0.4, 0.3)},
    },
    "half of the wrong responses of three items are lost, 3 % fail": {
        **{"fail": 0.03, "lost": 0.5, "easy": 0.0, "shares": (0.5, 0.3)},
    },
}


#: Items and logits of three benchmarks.
SEVERAL_ITEMS, SEVERAL_EASY = (5, 30, 80), (2.0, 0.0, -2.0)
#: Settings of `draw_several`.
SEVERAL: dict[str, dict[str, Any]] = {
    "three benchmarks, 12 subjects, 3 % fail": {"fail": 0.03, "subjects": 12},
    "three benchmarks, 100 subjects, 3 % fail": {"fail": 0.03},
    "three benchmarks, each runs the first ones": {"nested": True, "fail": 0.0},
    "three benchmarks, each runs the first ones, 10 % fail": {
        **{"nested": True, "fail": 0.1},
    },
}


def draw_several(
    rng: np.random.Generator, subjects: int = 100, fail: float = 0, nested: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Three benchmarks, run or not whatever the ability; `draw` has the results.

    Each is run with a chance of 0.5, 0.9 and 0.3; if `nested`, half of the subjects run
    the first alone, and others the first two, or all three.
    """
    of_item = np.repeat(range(3), SEVERAL_ITEMS)
    easy = np.array(SEVERAL_EASY)[of_item] + rng.normal(size=of_item.size)
    logit = rng.normal(size=(subjects, 1)) + easy
    if nested:
        last = rng.choice(3, size=(subjects, 1), p=(0.5, 0.3, 0.2))
        ran = np.arange(3) <= last
    else:
        ran = rng.random((subjects, 3)) < (0.5, 0.9, 0.3)
    seen = ran[:, of_item] & (rng.random(logit.shape) >= fail)
    right = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    return (right & seen).astype(np.int8), seen


def draw(
    rng: np.random.Generator,
    subjects: int = 200,
    fail: float = 0.0,
    easy: float = 3.5,
    shares: tuple[float, float] = (0.8, 0.1),
    related: float = 0.0,
    lost: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Responses of Rasch's model, 0 where missing, and the mask.

    `shares` ran the first benchmark alone, and both; with `related` above 0 the weak
    are more often the former. Items of the first are easier by `easy` logits; of the
    first three a share `lost` of the wrong responses is missing.
    """
    first = np.arange(2 * ITEMS) < ITEMS
    ability = rng.normal(size=(subjects, 1))
    place = rng.random((subjects, 1))
    if related:
        order = np.argsort(related * ability[:, 0] + rng.normal(size=subjects))
        place = np.argsort(order)[:, None] / subjects
    logit = ability + np.where(first, easy, 0) + 0.5 * rng.normal(size=2 * ITEMS)
    alone, both = shares
    seen = np.where(first, (place < alone) | (place > alone + both), place > alone)
    right = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    gated = (np.arange(2 * ITEMS) < 3) & ~right & (lost > 0)
    seen = seen & (rng.random(seen.shape) >= np.where(gated, lost, fail))
    return (right & seen).astype(np.int8), seen


def study(
    tables: int, seed: int = 11, drawn: Any = draw, **setting: Any
) -> dict[str, float]:
    """Means over tables."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(tables):
        found = missing_by_ability(*drawn(rng, **setting))
        flagged = np.array([x is not None for x in found.more_for(0.05)])
        small = np.nanmean(found.p_value <= 0.05)
        rows.append([flagged.any(), small, flagged[:3].mean(), flagged[3:].mean()])
    names = ("any", "p <= 0.05", "first three", "others")
    means = np.nanmean(rows, axis=0).tolist()
    return dict(zip(names, means, strict=True))


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Prints a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--masks", action="store_true", help="no blocks, masks alone")
    options = parser.parse_args(arguments)
    none = lambda observed, *_: np.full(observed.shape[1], -1)
    chosen = none if options.masks else missing_matrix._blocks
    settings = [(draw, x) for x in SETTINGS.items()]
    settings += [(draw_several, x) for x in SEVERAL.items()]
    with mock.patch.object(missing_matrix, "_blocks", chosen):
        rows = {
            name: study(options.tables, drawn=drawn, **setting)
            for drawn, (name, setting) in settings
        }
    for name, row in rows.items():
        figures = "  ".join(f"{key} {value:.3f}" for key, value in row.items())
        print(f"{name}: {figures}")
    return rows


if __name__ == "__main__":
    main()

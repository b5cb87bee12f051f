"""Planted defects: precision and recall of `irtjax.audit`, and its false discoveries.

    python experiments/psn_irt/defects.py                        # a quick look
    python experiments/psn_irt/defects.py --full --json out.json  # 200 replications

quality.md beside this file defines what is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

#: The planted kinds, and the defects that each is an instance of.
PLANTED = {
    "flipped": ("negative discrimination", "suspected wrong key", "no discrimination"),
    "random": ("no discrimination",),
    "duplicate": ("duplicate", "local dependence"),
    "leaked": ("suspected contamination", "misfit"),
}
#: Shares of items without discrimination: those of the cBMM paper's A.6.4, and one
#: near 1, where the false discovery rate comes nearest to its bound.
SPARSITY = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.95)


class Case(NamedTuple):
    """Responses `[subjects, items]` and the kind of each item, "" for a sound one."""

    values: np.ndarray
    kinds: np.ndarray


def plant(
    random: np.random.Generator, subjects: int, items: int, share: float = 0.1
) -> Case:
    """2PL responses, with equal parts of a share of the items spoilt.

    Sound items have a ~ U(0.8, 2) and b ~ N(0, 1). Flipped items have their answers
    reversed; random ones have a chance U(0.2, 0.8) for everybody; a duplicate repeats
    another item, and counts with its original; a leaked item (a = 1.5,
    b ~ U(0.5, 1.5)) is known beforehand to half of the subjects, drawn for each item.
    """
    theta = random.standard_normal((subjects, 1))
    slope, middle = random.uniform(0.8, 2, items), random.standard_normal(items)
    chance = 1 / (1 + np.exp(-slope * (theta - middle)))
    values = random.random(chance.shape) < chance
    kinds = np.full(items, "", dtype="<U9")
    size = round(items * share / 4)
    order = random.permutation(items)
    flipped, noise, copies, leaked, originals = (
        order[k * size : (k + 1) * size] for k in range(5)
    )
    values[:, flipped] = ~values[:, flipped]
    values[:, noise] = random.random((subjects, size)) < random.uniform(0.2, 0.8, size)
    values[:, copies] = values[:, originals]
    hard = 1 / (1 + np.exp(-1.5 * (theta - random.uniform(0.5, 1.5, size))))
    knows = random.random((subjects, size)) < 0.5
    values[:, leaked] = knows | (random.random((subjects, size)) < hard)
    for name, places in (
        ("flipped", flipped),
        ("random", noise),
        ("duplicate", copies),
        ("duplicate", originals),
        ("leaked", leaked),
    ):
        kinds[places] = name
    return Case(values.astype(np.int8), kinds)


@eqx.filter_jit
def _fitted(values: jax.Array, observed: jax.Array | None, nodes: jax.Array):
    """2PL by EM with weak priors, and the scores: one program for all replications."""
    from irtjax.data.responses import Responses
    from irtjax.estimators.driver import run
    from irtjax.estimators.marginal.em import EM
    from irtjax.estimators.start import start_values
    from irtjax.inference import score
    from irtjax.likelihood.problem import Problem
    from irtjax.models.catalogue import two_parameter

    model = two_parameter()
    data = Responses(values, observed)
    problem, start = Problem.create(model, data), start_values(model, data)
    key = jax.random.key(0)
    fit = run(problem, EM(nodes, 1e-3), start, key=key, max_steps=100)
    found = fit.parameters
    scores = score(model, found.items, found.population, data, nodes=nodes)
    return found, scores.ability, scores.standard_error


def examined(values: np.ndarray, observed: np.ndarray | None = None) -> Any:
    """What an audit of a matrix computes.

    The same steps as `irtjax.audit`, less the tables, which take most of its time at
    this size.
    """
    import irtjax
    from irtjax.auditing.examine import OrderedFit, examine
    from irtjax.models.catalogue import two_parameter

    nodes = jnp.linspace(-6.0, 6.0, 121)
    cells = np.asarray(values, float)
    seen = None
    if observed is not None:
        values, seen = np.where(observed, values, 0), jnp.asarray(observed)
        cells = np.where(observed, cells, np.nan)
    found, ability, error = _fitted(jnp.asarray(values, jnp.int8), seen, nodes)
    fit: Any = SimpleNamespace(model=two_parameter(), parameters=found)
    known = OrderedFit(fit, found.items, np.asarray(ability), np.asarray(error))
    table = irtjax.ResponseTable.from_arrays(cells)
    return examine(table, known, np.zeros(values.shape[1]))


def flags_of(
    values: np.ndarray, level: float, observed: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Decisions `[items]` of an audit of a matrix, by tested defect."""
    from irtjax.auditing.examine import decide

    decided = decide(examined(values, observed), level)
    return {name: flagged for name, (_, flagged) in decided.items()}


def planted_counts(
    replication: int,
    subjects: int,
    items: int,
    level: float = 0.05,
    missing: float = 0.0,
) -> dict[str, tuple[int, int, int]]:
    """False flags, flags, and items to be flagged, by defect, in one table.

    A share of the answers is missing at random.
    """
    random = np.random.default_rng([1, replication])
    case = plant(random, subjects, items)
    observed = random.random(case.values.shape) >= missing if missing else None
    counts = {}
    for name, flagged in flags_of(case.values, level, observed).items():
        kinds = [kind for kind, names in PLANTED.items() if name in names]
        true = np.isin(case.kinds, kinds)
        sums = (np.sum(flagged & ~true), np.sum(flagged), np.sum(true))
        counts[name] = tuple(int(x) for x in sums)
    return counts


def planted_rows(
    tables: list[dict[str, tuple[int, int, int]]],
) -> list[dict[str, Any]]:
    """Share of false flags, precision and recall by defect, over replications.

    False discovery rate: mean over the replications of false flags over all flags, 0
    where there is no flag. Precision and recall are of all replications together.
    """
    rows = []
    for name in tables[0]:
        f, n, w = np.array([table[name] for table in tables], float).T
        share = f / np.maximum(n, 1)
        error = float("nan")
        if len(tables) > 1:
            error = float(share.std(ddof=1) / np.sqrt(len(tables)))
        rows.append(
            {
                "defect": name,
                "false_discovery_rate": float(share.mean()),
                "error": error,
                "precision": float(1 - f.sum() / n.sum()) if n.sum() else float("nan"),
                "recall": float((n - f).sum() / w.sum()),
                "flags": int(n.sum()),
            }
        )
    return rows


def planted_study(
    replications: int,
    subjects: int,
    items: int,
    level: float = 0.05,
    missing: float = 0.0,
) -> list[dict[str, Any]]:
    """`planted_rows` of as many tables."""
    counts = [
        planted_counts(k, subjects, items, level, missing) for k in range(replications)
    ]
    return planted_rows(counts)


def permuted_flags(
    replication: int, subjects: int, items: int, level: float = 0.05
) -> dict[str, int]:
    """Number of flags by defect in one permuted table."""
    import irtjax
    from irtjax.auditing import permuted

    random = np.random.default_rng([2, replication])
    case = plant(random, subjects, items, share=0.0)
    table = permuted(irtjax.ResponseTable.from_arrays(case.values), random)
    return {k: int(v.sum()) for k, v in flags_of(table.values, level).items()}


def permuted_study(
    replications: int, subjects: int, items: int, level: float = 0.05
) -> list[dict[str, Any]]:
    """How often an audit of a permuted table flags anything, by defect."""
    found = [permuted_flags(k, subjects, items, level) for k in range(replications)]
    return [
        {
            "defect": name,
            "tables_with_a_flag": float(np.mean([x[name] > 0 for x in found])),
            "flags": sum(x[name] for x in found),
        }
        for name in found[0]
    ]


def sparse_study(
    replications: int, subjects: int, items: int, level: float = 0.05
) -> list[dict[str, Any]]:
    """Zero discrimination by the design of the cBMM paper, A.6.4: FDR and recall.

    theta ~ N(0, 1), a ~ U(0.5, 1) but 0 for a share of the items, d ~ N(0, 0.5^2). A
    discovery is an item for which a = 0 is rejected.
    """
    from irtjax.auditing import benjamini_hochberg
    from irtjax.data.stored_cells import DenseCells
    from irtjax.validity.classical import classical

    rows = []
    for sparsity in SPARSITY:
        shares, recalls = [], []
        for k in range(replications):
            random = np.random.default_rng([3, k])
            theta = random.standard_normal((subjects, 1))
            slope = random.uniform(0.5, 1, items)
            zero = random.permutation(items) < round(sparsity * items)
            slope[zero] = 0
            place = slope * theta + random.normal(0, 0.5, items)
            values = random.random(place.shape) < 1 / (1 + np.exp(-place))
            found = classical(DenseCells(values.astype(np.int8)))
            p_value = np.minimum(1, 2 * np.minimum(found.p_positive, found.p_negative))
            called = benjamini_hochberg(p_value) <= level
            shares.append((called & zero).sum() / max(called.sum(), 1))
            recalls.append((called & ~zero).sum() / (~zero).sum())
        rows.append(
            {
                "sparsity": sparsity,
                "subjects": subjects,
                "false_discovery_rate": float(np.mean(shares)),
                "error": float(np.std(shares, ddof=1) / np.sqrt(replications)),
                "expected": level * sparsity,
                "recall": float(np.mean(recalls)),
            }
        )
    return rows


def levels_study(
    replications: int,
    subjects: int,
    items: int,
    missing: float = 0.0,
    share: float = 0.1,
) -> list[dict[str, Any]]:
    """How often p-values of sound items are at or below their levels, over these.

    Parameters are estimated, and a share of the items is spoilt. S-X2 and contamination
    only: the others' p-values are bounds, or of nulls that sound items are far inside.

    Returns:
        A row for each of the two and each level: the share at or below over the level,
        and its standard error over items as if independent.
    """
    found = {"misfit": [], "suspected contamination": []}
    for k in range(replications):
        random = np.random.default_rng([4, k])
        case = plant(random, subjects, items, share)
        observed = random.random(case.values.shape) >= missing if missing else None
        p_values = examined(case.values, observed).p_values()
        for name, kept in found.items():
            kept.append(p_values[name][case.kinds == ""])
    rows = []
    for name, parts in found.items():
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        if values.size == 0:
            continue
        for level in LEVELS:
            error = np.sqrt((1 - level) / level / values.size)
            ratio = float(np.mean(values <= level) / level)
            rows.append(
                {"defect": name, "items": values.size, "level": level}
                | {"share_over_level": ratio, "error": float(error)}
            )
    return rows


#: Levels of `levels_study`.
LEVELS = (0.001, 0.01, 0.05, 0.25)
#: Subjects and items of each study with --full.
FULL_SIZES = {
    "sparse": (500, 200),
    "planted": (1500, 80),
    "permuted": (500, 60),
    "levels": (1500, 80),
}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the studies and prints their tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="200 replications")
    parser.add_argument("--replications", type=int)
    parser.add_argument("--subjects", type=int)
    parser.add_argument("--items", type=int)
    parser.add_argument(
        "--study", action="append", choices=["planted", "permuted", "sparse", "levels"]
    )
    parser.add_argument(
        "--missing", type=float, default=0.0, help="share of answers (planted, levels)"
    )
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    replications = options.replications or (200 if options.full else 3)
    planted = partial(planted_study, missing=options.missing)
    studies = {"sparse": sparse_study, "planted": planted}
    studies["permuted"] = permuted_study
    studies["levels"] = partial(levels_study, missing=options.missing)
    results: dict[str, Any] = {}
    for name in options.study or studies:
        began = time.perf_counter()
        subjects, items = FULL_SIZES[name] if options.full else (400, 40)
        subjects, items = options.subjects or subjects, options.items or items
        results[name] = studies[name](replications, subjects, items)
        print(
            f"\n{name}: {replications} replications of {subjects:,} x {items:,},"
            f" {time.perf_counter() - began:.0f} s"
        )
        for row in results[name]:
            cells = (
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.items()
            )
            print("  " + ", ".join(cells), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return results


if __name__ == "__main__":
    main()

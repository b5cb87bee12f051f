"""Verdicts of `irtjax.claim` against those of claimeval and honestboard.

    python experiments/outside/claims.py             # 10 best systems of Terminal-Bench
    python experiments/outside/claims.py --full      # 20 best, and SWE-bench Verified

Both packages need NumPy and SciPy alone (`pip install --no-deps claimeval honestboard`,
versions 1.0.0 and 0.6.1). Data are those of `shared/data/agents`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.outside.data import SHARED

#: Points of "within", and k of "in top k".
WITHIN, TOP = 5, 3


def table_of(name: str, systems: int) -> irtjax.ResponseTable | None:
    """Responses of the best systems, best first, without names; None without data."""
    path = SHARED / "agents" / f"{name}_long.parquet"
    if not path.is_file():
        print(f"{path} is not there, skipped", file=sys.stderr)
        return None
    table = irtjax.read(path, subject="agent", item="task", response="resolved")
    best = np.argsort(-table.values.mean(axis=1), kind="stable")[:systems]
    return irtjax.ResponseTable.from_arrays(
        table.values[best], subjects=[f"s{k}" for k in range(len(best))]
    )


def by_honestboard(table: irtjax.ResponseTable) -> dict[str, Any]:
    """Exact two-sided McNemar tests of all pairs, and sets that have the best."""
    import honestboard

    names, values = table.subjects.tolist(), table.values
    tasks = [str(k) for k in range(table.num_items)]
    systems = [
        {"name": name, "resolved": [tasks[k] for k in np.flatnonzero(row)]}
        for name, row in zip(names, values, strict=True)
    ]
    board = honestboard.Board.from_resolved(tasks, systems)
    pairs = {
        (a, b): board.compare(b, a, B=10)["p_two_sided"] < 0.05
        for a, b in itertools.combinations(names, 2)
    }
    best = {
        kind: {*board.confidence_set_best(method=kind)["members"]}
        for kind in ("mcb", "simultaneous")
    }
    return {"pairs": pairs, "best": best}


def by_claimeval(table: irtjax.ResponseTable) -> dict[str, Any]:
    """Bootstrap probabilities of pairs, of "within", and of ranks."""
    from claimeval import Claim, Rollout, RolloutSet, evaluate_claims

    names, values = table.subjects.tolist(), table.values
    runs = RolloutSet(
        Rollout(names[i], str(j), "0", float(values[i, j]), 1.0)
        for i, j in np.ndindex(values.shape)
    )
    pairs = [*itertools.combinations(names, 2)]
    claims = [Claim("pairwise", a, [b]) for a, b in pairs]
    claims += [Claim("equivalent", a, [b], margin=WITHIN / 100) for a, b in pairs]
    others = lambda name: [x for x in names if x != name]
    claims += [Claim("topk", a, others(a), k=TOP) for a in names]
    chances = [x["probability"] for x in evaluate_claims(runs, claims, mode="task")]
    count = len(pairs)
    return {
        "pairs": dict(zip(pairs, chances[:count], strict=True)),
        "within": dict(zip(pairs, chances[count : 2 * count], strict=True)),
        "top": dict(zip(names, chances[2 * count :], strict=True)),
    }


def by_irtjax(table: irtjax.ResponseTable) -> dict[str, Any]:
    """Verdicts of `irtjax.claim`."""
    names = table.subjects.tolist()
    pairs, within = {}, {}
    for a, b in itertools.combinations(names, 2):
        two = table.select(subjects=[a, b])
        pairs[a, b] = irtjax.claim(f"{a} > {b}", two)
        within[a, b] = irtjax.claim(f"{a} within {WITHIN} points of {b}", two)
    best = {a: irtjax.claim(f"{a} in top {TOP}", table) for a in names}
    return {"pairs": pairs, "within": within, "top": best}


def agreement(what: str, ours: list[bool], theirs: list[bool]) -> dict[str, Any]:
    """A row: how many claims both, one, or none support."""
    one, other = np.array(ours), np.array(theirs)
    return {
        "claim and rule": what,
        "claims": len(one),
        "both": int(np.sum(one & other)),
        "irtjax alone": int(np.sum(one & ~other)),
        "other alone": int(np.sum(other & ~one)),
        "agreement": f"{np.mean(one == other):.1%}",
    }


def rows_of(table: irtjax.ResponseTable) -> list[dict[str, Any]]:
    """The agreement of all rules on a table."""
    ours, honest, bootstrap = (
        verdicts(table) for verdicts in (by_irtjax, by_honestboard, by_claimeval)
    )
    supported = lambda kind: [x.verdict == "supported" for x in ours[kind].values()]
    least = lambda kind, level: [x >= level for x in bootstrap[kind].values()]
    gap = lambda level: np.array([*bootstrap["pairs"].values()]) >= level
    possible = {name for name, x in ours["top"].items() if x.lower == 1}
    rows = [
        agreement(
            '"A > B": honestboard, exact test, p < .05',
            supported("pairs"),
            [*honest["pairs"].values()],
        ),
        agreement('"A > B": claimeval, P ≥ .975', supported("pairs"), gap(0.975)),
        agreement('"A > B": claimeval, P ≥ .9', supported("pairs"), gap(0.9)),
        agreement(
            f'"A within {WITHIN} points": claimeval, P ≥ .9',
            supported("within"),
            least("within", 0.9),
        ),
        agreement(
            f'"A in top {TOP}": claimeval, P ≥ .9', supported("top"), least("top", 0.9)
        ),
    ]
    names = table.subjects.tolist()
    for kind, members in honest["best"].items():
        rows.append(
            agreement(
                f"may be the best: honestboard, {kind}",
                [x in possible for x in names],
                [x in members for x in names],
            )
        )
    return rows


def main() -> None:
    """Prints a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="20 systems, both sets")
    options = parser.parse_args()
    sets = ["terminal_bench_2"] + ["swebench_verified"] * options.full
    for name in sets:
        table = table_of(name, 20 if options.full else 10)
        if table is None:
            continue
        rows = rows_of(table)
        print(f"{name}: {table.num_subjects} systems, {table.num_items} tasks")
        for row in [[*rows[0]], ["---"] * len(rows[0]), *(x.values() for x in rows)]:
            print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()

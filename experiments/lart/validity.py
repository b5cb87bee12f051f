"""The validity comparison of the LaRT paper (6.3.3) on the authors' own partition.

    python experiments/lart/validity.py --out DIR   # the data in ../shared/data/lart
    python experiments/lart/validity.py --data FOLDER

MATH500 without the 18 rows that the authors drop, its items in five sets by a shuffle
of seed 42, as in `application/validity_math500.py` of their repository. Each set is
fitted by itself; the variance of the five abilities of a model is summed over models.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.lart.compare import DATA, FOLDS, NODES, Measured, estimate
from experiments.tabulate import write_csv
from irtjax.inference import score_on_nodes
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import latency_response, probit_two_parameter

#: Base models whose zero- and one-shot rows the authors drop.
DROPPED = (
    *("meta_llama_llama_3.2_1b", "meta_llama_llama_3.2_3b"),
    *("meta_llama_meta_llama_3_8b", "microsoft_phi_4"),
    *("tinyllama_tinyllama_1.1b_chat_v1.0", "google_gemma_3_1b_pt"),
    *("google_gemma_7b_it", "google_vaultgemma_1b", "openai_community_gpt2"),
)
#: Variances that the paper prints.
PAPER = {"LaRT": 2.0130, "IRT": 2.3423}


def read_kept(folder: Path) -> tuple[Measured, int, int]:
    """MATH500 without the rows dropped; how many these are, and all-wrong rows left."""
    table = irtjax.read(
        folder / "accuracy_math500.parquet",
        length=folder / "cot_length_math500.parquet",
    )
    names = table.subjects.tolist()
    base = [x.removesuffix("_zero_shot").removesuffix("_one_shot") for x in names]
    keep = np.array([name not in DROPPED for name in base])
    right, lengths = np.asarray(table.values), np.asarray(table.lengths, float)
    data = Measured(right[keep], np.log1p(lengths[keep]))
    return data, int((~keep).sum()), int((data.right.sum(axis=1) == 0).sum())


def partition(items: int) -> list[np.ndarray]:
    """The authors' five sets: a shuffle of NumPy's first generator, of seed 42."""
    order = np.arange(items)
    np.random.RandomState(42).shuffle(order)
    return np.array_split(order, FOLDS)


def abilities(model, data: Measured, method: str) -> np.ndarray:
    """Abilities by "eap" or "map", from the items of one set fitted by themselves."""
    responses = data.responses()
    known = estimate(model, responses)
    problem, _ = with_lengths(Problem.create(model, responses), known.lengths)
    scores = score_on_nodes(
        model, known.items, known.population, problem.data, jnp.asarray(NODES),
        jnp.array([-6.0, 6.0]), scoring=method,
    )  # fmt: skip
    return np.asarray(scores.ability)


def compare(data: Measured) -> list[dict]:
    """The summed variances of both models, with and without priors, EAP and MAP."""
    models = {
        ("LaRT", "weak"): latency_response(),
        ("IRT", "weak"): probit_two_parameter(),
        ("LaRT", "none"): latency_response(None),
        ("IRT", "none"): probit_two_parameter(None),
    }
    parts = partition(data.right.shape[1])
    rows = []
    for (name, priors), model in models.items():
        cuts = [Measured(data.right[:, x], data.log_length[:, x]) for x in parts]
        for method in ("eap", "map"):
            theta = np.stack([abilities(model, cut, method) for cut in cuts])
            rows.append(
                {"model": name, "priors": priors, "scores": method}
                | {f"ddof {k}": float(theta.var(0, ddof=k).sum()) for k in (0, 1)}
                | {"paper": PAPER[name]}
            )
            print(
                f"  {name:<5} priors {priors:<5} {method}"
                f"  divided by 5: {rows[-1]['ddof 0']:.4f}"
                f"  by 4: {rows[-1]['ddof 1']:.4f}  paper {PAPER[name]:.4f}",
                flush=True,
            )
    return rows


def main(argv: list[str] | None = None) -> list[dict]:
    """Prints the table, and writes it to `validity_authors.csv`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, help="folder for the table")
    options = parser.parse_args(argv)
    if not (options.data / "accuracy_math500.parquet").is_file():
        parser.error(f"no accuracy_math500.parquet in {options.data}: give --data")
    jax.config.update("jax_enable_x64", True)
    data, dropped, wrong = read_kept(options.data)
    print(
        f"MATH500: {dropped} rows dropped, {len(data.right)} left,"
        f" {wrong} of them all wrong"
    )
    rows = compare(data)
    write_csv(options.out, "validity_authors", rows)
    return rows


if __name__ == "__main__":
    main()

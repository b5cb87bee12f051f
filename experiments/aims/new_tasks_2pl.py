"""New tasks by a 2PL with features of items, and by `cold_start`, in five folds.

`python -m experiments.aims.new_tasks_2pl [NAME]` with `../shared/data/agents` prints
the area under the curve of new tasks by both for each fold of SWE-bench Verified.
"""

import sys

import numpy as np

import irtjax
from experiments.aims.cold_start import FOLDS, area, load, table_of
from irtjax.data.features import read_features


def main(name: str) -> None:
    """Prints both areas for each fold."""
    right, file = load(name)
    features = read_features(file, right.columns.to_numpy(), "item")
    by_name = dict(zip(features.columns, features.numbers.T, strict=True))
    rng, values = np.random.default_rng(0), right.to_numpy()
    fold = rng.permutation(np.arange(right.shape[1]) % FOLDS)
    for k in range(FOLDS):
        new = fold == k
        table = table_of(right, np.where(new, np.nan, values))
        fit = irtjax.fit(table, "hierarchical", item_model="2pl", item_features=by_name)
        rasch = irtjax.cold_start(table, item_features=by_name)
        names = fit.subject_names, rasch.subjects["subject"].to_pylist()
        seen, areas = ~np.isnan(values[:, new]), []
        for subjects, expected in zip(
            names, (irtjax.predict(fit).expected, rasch.expected), strict=True
        ):
            places = {subject: row for row, subject in enumerate(subjects)}
            order = [places[subject] for subject in right.index]
            chance = expected[order][:, new][seen]
            areas.append(area(values[:, new][seen], chance))
        print(f"fold {k}: 2PL {areas[0]:.4f}, cold_start {areas[1]:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "swebench_verified")

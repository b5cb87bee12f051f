"""Items that are right or wrong and items with scores, in one multilevel fit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app

SUBJECTS, NEWCOMERS, PER_GROUP, DISPERSION = 40, 12, 20, 0.7
#: Benchmarks; of the last one responses are scores.
GROUPS = ("code", "law", "summary")


@pytest.mark.slow
def test_right_or_wrong_and_scores_in_one_structured_fit(tmp_path):
    rng, items = np.random.default_rng(5), 60
    theta, slope = rng.normal(size=(SUBJECTS, 1)), np.exp(0.4 * rng.normal(size=items))
    theta = (theta - theta.mean()) / theta.std()
    predictor = slope * theta + rng.normal(size=items)
    score = 1 / (1 + np.exp(-predictor - 0.7 * rng.normal(size=predictor.shape)))
    right = rng.random(predictor.shape) < 1 / (1 + np.exp(-predictor))
    is_binary = np.arange(items) % 2 == 0
    table = irtjax.ResponseTable.from_arrays(np.where(is_binary, right, score))
    fit = irtjax.fit(table, "hierarchical", item_model="mixed")
    assert fit.status == irtjax.Status.CONVERGED
    columns = {
        name: fit.items.table[name].to_numpy() for name in fit.items.table.schema.names
    }
    assert np.isnan(columns["dispersion"][is_binary]).all()
    # Of 40 scores around a line a standard deviation is known to a ninth.
    assert np.abs(columns["dispersion"][~is_binary] - 0.7).max() < 4 * 0.7 / 9
    relative = columns["discrimination_se"] / columns["discrimination"]
    error = (np.log(columns["discrimination"]) - np.log(slope)) / relative
    for kind in (is_binary, ~is_binary):
        # Of 30 errors 28.6 are expected within two, with a standard deviation of 1.1.
        assert np.sum(np.abs(error[kind]) < 2) >= 25
    irtjax.save(fit, tmp_path / "fit")
    again = irtjax.load(tmp_path / "fit")
    assert irtjax.score(again, table).table["ability"].to_numpy() == pytest.approx(
        irtjax.score(fit, table).table["ability"].to_numpy()
    )


def two_kinds():
    """Responses `[subjects, items]`, benchmarks, abilities by group and slopes."""
    rng = np.random.default_rng(0)
    subjects, group = SUBJECTS + NEWCOMERS, np.arange(3 * PER_GROUP) % 3
    ability = rng.normal(size=(subjects, 1)) + 0.5 * rng.normal(size=(subjects, 3))
    slope = np.exp(0.4 * rng.normal(size=len(group)))
    predictor = slope * ability[:, group] + rng.normal(size=len(group))
    noise = DISPERSION * rng.normal(size=predictor.shape)
    score = 1 / (1 + np.exp(-predictor - noise))
    right = rng.random(predictor.shape) < 1 / (1 + np.exp(-predictor))
    return np.where(group == 2, score, right), np.array(GROUPS)[group], ability, slope


@pytest.mark.slow
def test_one_benchmark_is_right_or_wrong_and_another_has_scores(tmp_path):
    values, benchmark, ability, slope = two_kinds()
    names = np.array([f"m{i:02d}" for i in range(len(values))])
    items = np.array([f"q{j:02d}" for j in range(len(slope))])

    def write(rows, columns, path):
        several, count = len(names[rows]), len(items[columns])
        content = {
            "model": np.repeat(names[rows], count).tolist(),
            "item": np.tile(items[columns], several).tolist(),
            "task": np.tile(benchmark[columns], several).tolist(),
            "score": values[rows][:, columns].ravel().tolist(),
        }
        pyarrow.csv.write_csv(pa.table(content), path)

    known, new = slice(SUBJECTS), slice(SUBJECTS, None)
    write(known, slice(None), tmp_path / "long.csv")
    command = ["fit", str(tmp_path / "long.csv"), "--out", str(tmp_path / "fit")]
    command += [
        "--model",
        "multibenchmark",
        "--item-model",
        "mixed",
        "--benchmark",
        "task",
    ]
    done = CliRunner().invoke(app, [*command, "--no-figures", "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["status"]["name"] == "converged"
    fit = irtjax.load(tmp_path / "fit")
    assert fit.structure.groups.tolist() == list(GROUPS)
    # Errors of abilities are made of what responses leave open and of the origin,
    # which a group's subjects share: of 40 squares over their expectation the mean is
    # 1 with a standard deviation of 0.22, and of the origin's share, a third at most,
    # with one of 0.47. Together below 0.5.
    place = [
        names.tolist().index(s) for s in fit.abilities.table["subject"].to_pylist()
    ]
    error = (fit.structure.ability - ability[place]) / fit.structure.error
    assert (np.mean(error**2, axis=0) < 1 + 3 * 0.5).all()
    # Scores tell more than answers: 20 of them with 1 / 0.7^2 each, in place of 1 / 5.
    assert (fit.structure.error[:, 2] < fit.structure.error[:, 0]).all()
    table = {
        name: fit.items.table[name].to_numpy() for name in fit.items.table.column_names
    }
    order = [items.tolist().index(name) for name in table["item"]]
    is_score = (benchmark == "summary")[order]
    assert np.isnan(table["dispersion"][~is_score]).all()
    # Of 40 scores around a line a standard deviation is known to a ninth.
    gap = np.abs(table["dispersion"][is_score] - DISPERSION)
    assert gap.max() < 4 * DISPERSION / 9
    relative = table["discrimination_se"] / table["discrimination"]
    off = (np.log(table["discrimination"]) - np.log(slope[order])) / relative
    for name in GROUPS:
        # Of 20 errors 19.1 are expected within two, with a standard deviation of 0.9.
        assert np.sum(np.abs(off[benchmark[order] == name]) < 2) >= 16, name
    # Newcomers to all of it, and to what is right or wrong alone.
    write(new, slice(None), tmp_path / "new.csv")
    answers = np.flatnonzero(benchmark != "summary")
    write(new, answers, tmp_path / "answers.csv")
    whole, part = (
        irtjax.score(fit, irtjax.read(tmp_path / name, benchmark="task")).table
        for name in ("new.csv", "answers.csv")
    )
    assert whole["subject"].to_pylist() == names[new].tolist()
    for k, name in enumerate(GROUPS):
        column = f"ability_{name}"
        error = whole[column].to_numpy() - ability[new, k]
        # As above: of 12 squares the standard deviation is 0.41, with the origin's 0.6.
        ratio = error / whole[f"{column}_se"].to_numpy()
        assert np.mean(ratio**2) < 1 + 3 * 0.6, name
    wide, narrow = (
        x["ability_summary_se"].to_numpy().astype(float) for x in (part, whole)
    )
    assert (wide > narrow).all()

"""Labels, covariates and shared items from the command line."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.cli.side_tables import SideTable, StructureOptions

SUBJECTS, ITEMS = 14, 40


def small_table():
    rng = np.random.default_rng(1)
    theta, d = rng.normal(size=(SUBJECTS, 1)), rng.normal(size=ITEMS)
    right = rng.random((SUBJECTS, ITEMS)) < 1 / (1 + np.exp(-theta - d))
    names = [f"b{k % 2}/q{k // 2:02d}" for k in range(ITEMS)]
    return irtjax.ResponseTable.from_arrays(
        right, items=names, benchmark=[name[:2] for name in names]
    )


@pytest.fixture(name="files")
def files_fixture(tmp_path):
    """Responses, items and subjects in files."""
    table = small_table()
    long = {
        "model": np.repeat(table.subjects, ITEMS).tolist(),
        "item": np.tile([i[3:] for i in table.items], SUBJECTS).tolist(),
        "benchmark": np.tile(table.benchmarks, SUBJECTS).tolist(),
        "score": table.values.ravel().tolist(),
    }
    pyarrow.csv.write_csv(pa.table(long), tmp_path / "long.csv")
    items = {
        "item": table.items.tolist()[::-1],
        "domain": [f"d{k % 5}" for k in range(ITEMS)],
        "words": [float(k % 7) for k in range(ITEMS)],
        "same": [1] * ITEMS,
        "article": [name[3:] for name in table.items.tolist()[::-1]],
    }
    pyarrow.csv.write_csv(pa.table(items), tmp_path / "items.csv")
    subjects = {
        "subject": table.subjects.tolist(),
        "size": list(range(SUBJECTS)),
        "kind": ["chat"] * SUBJECTS,
        "gap": [None, *range(1, SUBJECTS)],
    }
    pyarrow.parquet.write_table(pa.table(subjects), tmp_path / "subjects.parquet")
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def asked(files, **more):
    options = {
        "facets": (),
        "shared_items": None,
        "item_table": files / "items.csv",
        "item_covariates": (),
        "subject_table": files / "subjects.parquet",
        "subject_covariates": (),
    }
    return StructureOptions(**(options | more)).read(small_table())


def test_rows_are_found_by_name(files):
    table, options = asked(
        files,
        facets=("benchmark/domain",),
        shared_items="article",
        item_covariates=("words",),
        subject_covariates=("size",),
    )
    backwards = np.arange(ITEMS)[::-1]
    assert table.item_facets["domain"].tolist() == [f"d{k % 5}" for k in backwards]
    assert table.item_facets["article"][0] == "q00"
    assert options["facets"] == ("benchmark/domain",)
    assert options["item_covariates"]["words"].tolist() == (backwards % 7).tolist()
    assert options["subject_covariates"]["size"].tolist() == list(range(SUBJECTS))


def test_names_may_be_in_a_column_of_another_name(files):
    """Such as model, the column of responses; rows of other names may be there too."""
    path, names = files / "models.csv", small_table().subjects
    path.write_text("size,model\n" + "".join(f"{k},{x}\n" for k, x in enumerate(names)))
    side = SideTable.read("--subjects", path, "subject", names)
    assert side.numbers("size").tolist() == list(range(SUBJECTS))
    with pytest.raises(ValueError, match="no column 'item', nor one with names such"):
        SideTable.read("--items", path, "item", small_table().items)


def test_what_tables_lack_is_said(files):
    with pytest.raises(ValueError, match="has no column 'topic'; it has item, domain"):
        asked(files, facets=("benchmark/topic",))
    with pytest.raises(ValueError, match="has no column 'length'; it has item, domain"):
        asked(files, item_covariates=("length",))
    with pytest.raises(ValueError, match="'kind', '[^']+': 'chat' is not a number"):
        asked(files, subject_covariates=("kind",))
    with pytest.raises(ValueError, match="column 'gap', '[^']+': no value; give one"):
        asked(files, subject_covariates=("gap",))
    with pytest.raises(ValueError, match="name it with --subject-table"):
        asked(files, subject_table=None, subject_covariates=("size",))
    with pytest.raises(ValueError, match=r"none\.csv: cannot read it"):
        asked(files, item_table=files / "none.csv")
    names = small_table().items
    nothing = pa.table({"item": names, "a": [1] * ITEMS, "b": [0] * ITEMS})
    pyarrow.csv.write_csv(nothing, files / "loadings.csv")
    with pytest.raises(ValueError, match="b has 0 items: a factor needs at least 3"):
        asked(files, loadings=files / "loadings.csv")
    pyarrow.csv.write_csv(nothing.select(["item"]), files / "loadings.csv")
    with pytest.raises(ValueError, match="has no factor: give each a column"):
        asked(files, loadings=files / "loadings.csv")
    with pytest.raises(ValueError, match="has fewer than two factors"):
        asked(files, target=files / "loadings.csv")
    same = nothing.rename_columns(["item", "a", "a"])
    pyarrow.csv.write_csv(same, files / "loadings.csv")
    with pytest.raises(ValueError, match="has two columns 'a': name them apart"):
        asked(files, loadings=files / "loadings.csv")
    content = pyarrow.csv.read_csv(files / "items.csv")
    pyarrow.csv.write_csv(content.slice(1), files / "short.csv")
    with pytest.raises(ValueError, match=r"no row for item '\S+' \(1 of 40"):
        SideTable.read("--item-table", files / "short.csv", "item", names)
    twice = pa.concat_tables([content, content.slice(3, 1)])
    pyarrow.csv.write_csv(twice, files / "twice.csv")
    with pytest.raises(ValueError, match=r"twice\.csv has two rows for item 'b"):
        SideTable.read("--item-table", files / "twice.csv", "item", names)
    command = ("fit", files / "long.csv", "--out", files / "out")
    words = (*command, "--item-table", files / "items.csv", "--item-covariates", "same")
    done = run(*words, "--model", "hierarchical")
    assert done.exit_code == 2 and "the same for all items: leave it out" in done.stderr
    done = run(*words, "--method", "em")
    assert done.exit_code == 2 and "requires a multilevel model" in done.stderr
    (files / "out.nuts.npz").write_bytes(b"")
    done = run(*command, "--method", "nuts")
    assert done.exit_code == 2 and "add --resume to resume it" in done.stderr


@pytest.mark.slow
def test_the_command_line_takes_all_of_it(files):
    command = ("fit", files / "long.csv", "--json", "--no-figures", "--max-steps", 30)
    command += ("--item-table", files / "items.csv", "--item-model", "rasch")
    command += ("--subject-table", files / "subjects.parquet")
    command += ("--subject-covariates", "size", "--item-covariates", "words")
    out = files / "out"
    done = run(
        *command, "--out", out, "-m", "hierarchical", "--facets", "benchmark/domain"
    )
    assert done.exit_code == 0, done.stderr
    options = json.loads(done.stdout)["options"]
    assert options["item_covariates"] == ["words"]
    assert options["subject_covariates"] == ["size"]
    effects = pyarrow.csv.read_csv(out / "effects.csv")["effect"].to_pylist()
    assert {"words", "benchmark: b0", "benchmark/domain: b0/d2"} <= set(effects)
    rows = pyarrow.csv.read_csv(out / "subject_effects.csv").to_pydict()
    assert rows["covariate"] == ["size"] and rows["effect_se"][0] > 0
    fit = irtjax.load(out)
    assert fit.structure.subject_effects[1].tolist() == rows["effect"]
    assert float(fit.parameters.population.sd) ** 2 == pytest.approx(
        fit.structure.general_variance
    )
    scored = irtjax.score(fit, irtjax.read(files / "long.csv"))
    assert any("average ones in size" in note for note in scored.notes)
    sizes = {"subject": ["new"], "size": [2.5]}
    pyarrow.parquet.write_table(pa.table(sizes), files / "new.parquet")
    words = ("--subject-table", files / "new.parquet", "--out", files / "new.csv")
    done = run("predict", out, *words, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["subjects"] == 1
    command_line = ("score", files / "long.csv", "--fit", out, "--json")
    done = run(*command_line, "--subject-table", files / "subjects.parquet")
    assert done.exit_code == 0, done.stderr
    assert not any("average ones" in x for x in json.loads(done.stdout)["notes"])
    done = run(*command_line, "--subject-table", files / "new.parquet")
    assert done.exit_code == 2 and "has no row for subject" in done.stderr
    shared = ("--share-items", "article", "--no-metric-effects", "-m", "multimetric")
    words = [x for x in command if x not in ("--item-covariates", "words")]
    done = run(*words, "--out", files / "shared", *shared)
    assert done.exit_code == 0, done.stderr
    options = json.loads(done.stdout)["options"]
    assert options["shared_items"] == "article" and not options["metric_effects"]
    fit = irtjax.load(files / "shared")
    intercept = np.asarray(fit.parameters.items.intercept).reshape(-1, 2)
    np.testing.assert_array_equal(intercept[:, 0], intercept[:, 1])
    done = run("score", files / "long.csv", "--fit", files / "shared", "--json")
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_a_command_that_was_killed_goes_on_to_the_same_draws(tmp_path):
    rng = np.random.default_rng(1)
    theta, d = rng.normal(size=(30, 1)), rng.normal(size=60)
    right = rng.random((30, 60)) < 1 / (1 + np.exp(-theta - d))
    columns = {"model": [f"m{i}" for i in range(30)]}
    columns |= {f"q{j}": right[:, j].astype(int).tolist() for j in range(60)}
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "data.csv")
    # Well beyond the 20 seconds to the first checkpoint.
    size = ("--chains", "2", "--draws", "100", "--warmup", "200", "--quiet")

    def command(out, *more):
        words = [sys.executable, "-m", "irtjax", "fit", str(tmp_path / "data.csv")]
        words += [
            "--method",
            "nuts",
            "--no-figures",
            *size,
            "--out",
            str(tmp_path / out),
        ]
        return [*words, *more]

    piped = {"capture_output": True, "text": True, "timeout": 500}
    whole = subprocess.run(command("whole"), **piped)
    assert whole.returncode == 0, whole.stderr
    left = tmp_path / "broken.nuts.npz"
    running = subprocess.Popen(command("broken"), stderr=subprocess.DEVNULL)
    began = time.monotonic()
    while not left.exists() and time.monotonic() - began < 300:
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert left.exists() and not (tmp_path / "broken").exists()
    with np.load(left) as file:
        assert "leaf_0" in file.files
    rest = subprocess.run(command("broken", "--resume"), **piped)
    assert rest.returncode == 0, rest.stderr
    assert not left.exists()
    # Means, covariances and every diagnostic of all draws, to the last bit.
    with np.load(tmp_path / "whole" / "parameters.npz") as one:
        with np.load(tmp_path / "broken" / "parameters.npz") as other:
            assert set(one.files) == set(other.files)
            for name in one.files:
                np.testing.assert_array_equal(one[name], other[name])
    for name in ("diagnostics.csv", "trajectories.csv", "abilities.csv", "items.csv"):
        pair = [(tmp_path / out / name).read_bytes() for out in ("whole", "broken")]
        assert pair[0] == pair[1], name


def test_parameters_free_by_group_are_listed_or_in_a_table(tmp_path):
    _, settings = StructureOptions(free_by_group="intercept, discrimination").read(
        small_table()
    )
    assert settings["free_by_group"] == ["intercept", "discrimination"]
    path = tmp_path / "free.csv"
    path.write_text("item,parameter\nq1,intercept\nq1,discrimination\nq2,intercept\n")
    _, settings = StructureOptions(free_by_group=str(path)).read(small_table())
    both = ["intercept", "discrimination"]
    assert settings["free_by_group"] == {"q1": both, "q2": ["intercept"]}


def with_column(path, values):
    names = small_table().subjects
    content = pa.table({"subject": names, "value": values})
    pyarrow.csv.write_csv(content, path)
    return path


def test_groups_of_dates_are_quarters_and_a_wrong_date_is_refused(tmp_path):
    dates = [f"2025-{1 + k % 12:02}-{1 + k // 12:02}" for k in range(SUBJECTS)]
    path = with_column(tmp_path / "dates.csv", dates)
    options = StructureOptions(groups="value", subject_table=path)
    table, settings = options.read(small_table())
    labels = table.subject_facets["value"]
    assert settings["groups"] == "value"
    assert sorted(set(labels)) == [f"quarter {k}" for k in (1, 2, 3, 4)]
    first = sorted(np.array(dates)[labels == "quarter 1"])
    assert f"quarter 1 {first[0]} to {first[-1]}" in table.notes[-1]
    days = StructureOptions(subject_covariates=("value",), subject_table=path)
    numbers = days.read(small_table())[1]["subject_covariates"]["value"]
    assert numbers[1] - numbers[0] == 31
    for wrong, kind in (("2025-13-01", "date"), ("unknown", "date")):
        with_column(path, [wrong, *dates[1:]])
        for made in (options, days):
            with pytest.raises(ValueError, match=f"'{wrong}' is not a {kind} such as"):
                made.read(small_table())


def test_a_text_among_numbers_of_groups_is_refused(tmp_path):
    sizes = ["big", *map(str, range(1, SUBJECTS))]
    path = with_column(tmp_path / "sizes.csv", sizes)
    options = StructureOptions(groups="value", subject_table=path)
    with pytest.raises(ValueError, match="--groups value, '.*': 'big' is not a number"):
        options.read(small_table())


@pytest.mark.slow
def test_a_fit_with_a_parameter_free_by_group_has_a_page_and_an_audit(tmp_path):
    table = small_table()
    rows = [
        (subject, item, int(table.values[i, j]))
        for i, subject in enumerate(table.subjects)
        for j, item in enumerate(table.items)
    ]
    names = ("subject", "item", "score")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "responses.csv")
    group = ["a", "b"] * (SUBJECTS // 2)
    side = with_column(tmp_path / "subjects.csv", group)
    free = tmp_path / "free.csv"
    item = table.items[0]
    free.write_text(f"item,parameter\n{item},intercept\n")
    of_groups = "--groups", "value", "--subject-table", side, "--free-by-group", free
    out = tmp_path / "out"
    made = run("fit", tmp_path / "responses.csv", "--out", out, *of_groups)
    assert made.exit_code == 0, made.output
    assert f"{item} [b]" in (out / "items.csv").read_text()
    assert (out / "report.html").is_file()
    assert run("audit", out).exit_code == 0

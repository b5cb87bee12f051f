"""Repeats, conditions, roles of columns and covariates, read without an option."""

import itertools
import json

import jax
import numpy as np
import pytest

import irtjax
from irtjax.data.reading.read import read
from irtjax.data.scores import as_majority, as_shares, trial_dependence
from irtjax.data.table import ResponseTable

MODELS, ITEMS = ["m1", "m2", "m3"], [f"q{k}" for k in range(4)]


def noted(table, text):
    return any(text in note for note in table.notes)


def rows_of(values, seed=0):
    """Rows of all models, items and values, with random responses."""
    rng = np.random.default_rng(seed)
    cells = itertools.product(MODELS, values, ITEMS)
    return [(m, v, q, int(rng.integers(0, 2))) for m, v, q in cells]


def write_long(path, column, values, item="item", response="correct"):
    """A long table with another column; returns its rows."""
    rows = rows_of(values)
    text = f"model,{column},{item},{response}\n"
    path.write_text(text + "".join(f"{m},{v},{q},{y}\n" for m, v, q, y in rows))
    return rows


def totals(rows):
    """Numbers right by model and item."""
    right = {(m, q): 0 for m, _, q, _ in rows}
    for m, _, q, y in rows:
        right[m, q] += y
    return [[right[m, q] for q in ITEMS] for m in MODELS]


# Repeats


@pytest.mark.parametrize(
    "column",
    ["seed", "run", "rollout_idx", "attempt", "gen_id", "sample_idx", "random_seed"],
)
@pytest.mark.parametrize("values", [(0, 1, 2), (42, 1234, 7), ("a", "b", "c")])
def test_columns_of_repeats(tmp_path, column, values):
    path = tmp_path / "t.csv"
    rows = write_long(path, column, values)
    table = read(path)
    assert table.items.tolist() == ITEMS
    assert table.values.tolist() == totals(rows)
    assert table.trials is not None and (table.trials == 3).all()
    assert noted(table, f"12 subject-item pairs had repeats by column {column!r} (")
    assert read(path, trials="mean").values.tolist() == as_shares(table).values.tolist()


def test_a_column_of_another_name_that_numbers_repeats(tmp_path):
    path = tmp_path / "t.csv"
    rows = write_long(path, "zz", (1, 2, 3))
    table = read(path)
    assert table.values.tolist() == totals(rows)
    assert noted(table, "had repeats by column 'zz' (1, 2, 3)")


def test_repeats_without_a_column_that_tells_them_apart(tmp_path):
    path = tmp_path / "t.csv"
    rows = rows_of(range(2))
    lines = [f"{m},{q},{y},{k}.{k}\n" for k, (m, _, q, y) in enumerate(rows)]
    path.write_text("model,item,correct,latency\n" + "".join(lines))
    table = read(path)
    assert table.items.tolist() == ITEMS and table.values.tolist() == totals(rows)
    assert noted(table, "had repeats, read as numbers right of up to 2 trials")


def test_repeated_scores_are_averaged(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,item,seed,score\na,x,0,0.5\na,x,1,1\nb,x,0,0.25\nb,x,1,0\n")
    table = read(path)
    assert table.values.tolist() == [[0.75], [0.125]] and table.trials is None
    assert noted(table, "2 subject-item pairs had repeats by column 'seed' (0, 1),")


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("run1.csv", "run2.csv", True),
        ("seed_0/t.csv", "seed_1/t.csv", True),
        ("results-rep-a.csv", "results-rep-b.csv", True),
        ("aime24.csv", "aime25.csv", False),
        ("gsm8k.csv", "arc.csv", False),
        ("a/t.csv", "b/t.csv", False),
    ],
)
@pytest.mark.parametrize("wide", [True, False])
def test_files_that_share_pairs(tmp_path, first, second, alike, wide):
    """Two benchmarks may have the same names of items."""
    text = "model,q1,q2\nm,1,0\nn,0,0\n"
    if not wide:
        text = "model,item,correct\nm,q1,1\nm,q2,0\nn,q1,0\nn,q2,0\n"
    for name in (first, second):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    if alike:
        table = read(tmp_path)
        assert table.values.tolist() == [[2, 0], [0, 0]] and table.kind == "counts"
    else:
        with pytest.raises(ValueError, match="choose trials="):
            read(tmp_path)
        assert read(tmp_path, trials="counts").kind == "counts"


@pytest.mark.parametrize(
    ("right", "trials"),
    [
        ("num_correct", "num_samples"),
        ("n_correct", "n_samples"),
        ("correct", "total"),
        ("passed", "num_trials"),
        ("successes", "n"),
        ("num_passed", "attempts"),
        ("c", "n"),
    ],
)
def test_numbers_right_are_divided_by_the_numbers_of_trials(tmp_path, right, trials):
    path = tmp_path / "t.csv"
    path.write_text(
        f"model,task_id,{right},{trials}\na,x,2,10\na,y,4,10\nb,x,0,10\nb,y,3,5\n"
    )
    table = read(path)
    assert table.values.tolist() == [[2, 4], [0, 3]]
    assert table.trials is not None
    assert table.trials.tolist() == [[10, 10], [10, 5]]
    assert noted(table, f"column {right!r} was read as numbers of right responses")
    means = read(path, trials="mean").subject_accuracy()
    np.testing.assert_allclose(means, [0.3, 0.3], atol=1e-12)


def test_right_and_wrong_next_to_a_number_are_no_counts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,item,correct,total\na,x,1,10\na,y,0,10\nb,x,0,10\nb,y,1,5\n")
    assert read(path).kind == "binary"


# Conditions


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("language", ("en", "sw", "hi")),
        ("judge_model", ("g", "h")),
        ("prompt_template", ("t1", "t2")),
        ("temperature", (0.0, 0.7)),
        ("num_fewshot", (0, 5)),
        ("turn", (1, 2)),
        ("flavour", ("plain", "hard")),  # A name that is not known.
    ],
)
def test_conditions_of_items(tmp_path, column, values):
    path = tmp_path / "t.csv"
    rows = write_long(path, column, values, item="sample_id")
    table = read(path)
    assert table.num_items == len(ITEMS) * len(values) and table.kind == "binary"
    names = np.unique(table.item_facets[column])
    assert len(names) == len(values)
    assert noted(table, f"column {column!r} makes subject-item pairs unique: an item")
    for model, value, item, y in rows:
        row = table.subjects.tolist().index(model)
        at = table.item_facets[column] == str(value)
        at = at & (table.item_facets["sample_id"] == item)
        assert table.values[row, at].tolist() == [y]
    if column != "flavour":
        assert set(table.benchmarks) == {""}


@pytest.mark.parametrize("column", ["subset", "category", "topic", "subject"])
def test_topics_are_benchmarks(tmp_path, column):
    path = tmp_path / "t.csv"
    write_long(path, column, ("maths", "art"), item="question_id")
    table = read(path)
    assert table.subjects.tolist() == MODELS and table.num_items == 8
    assert set(table.benchmarks) == {"maths", "art"}


@pytest.mark.parametrize("column", ["reasoning_effort", "checkpoint", "model_version"])
def test_conditions_of_subjects(tmp_path, column):
    path = tmp_path / "t.csv"
    write_long(path, column, ("x", "y"))
    table = read(path)
    names = [f"{m}/{v}" for m in MODELS for v in "xy"]
    assert table.subjects.tolist() == names and table.items.tolist() == ITEMS


def test_languages_and_seeds(tmp_path):
    path = tmp_path / "t.csv"
    rows = ["model,item,seed,lang,tokens,correct"]
    for m, q, s, v in itertools.product(MODELS, ITEMS, (0, 1), ("en", "fr")):
        rows.append(f"{m},{q},{s},{v},{len(rows)},1")
    path.write_text("\n".join(rows) + "\n")
    table = read(path)
    assert table.num_items == 8 and table.kind == "counts"
    assert table.trials is not None and (table.trials == 2).all()
    assert not noted(table, "'tokens'")


def test_conditions_that_pairs_do_not_need_are_not_used(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,item,language,correct\na,x,en,1\na,y,fr,0\nb,x,en,0\n")
    table = read(path)
    assert table.items.tolist() == ["x", "y"] and "language" not in table.item_facets


def test_judges_drawn_at_random_are_repeats(tmp_path):
    """Items by judge would have responses of one model each."""
    path = tmp_path / "t.csv"
    rows = ["model,item,judge,correct"]
    for k, (m, q, _) in enumerate(itertools.product(MODELS, ITEMS, "ab")):
        rows.append(f"{m},{q},judge{k},1")
    path.write_text("\n".join(rows) + "\n")
    table = read(path)
    assert table.items.tolist() == ITEMS and table.kind == "counts"


def test_ids_of_parts_of_items_are_no_repeats(tmp_path):
    """As the test cases of a question, whose numbers go on from one to the next."""
    path = tmp_path / "t.csv"
    rows = [
        f"{m},{q},s{k // 2 * 2 + n},{n}"
        for m in MODELS
        for k, q in enumerate(np.repeat(ITEMS, 2))
        for n in [k % 2]
    ]
    path.write_text("\n".join(["model,question_id,sample_id,correct", *rows]) + "\n")
    table = read(path)
    assert table.num_items == 8 and table.kind == "binary"
    assert set(table.item_facets["sample_id"]) == {f"s{k}" for k in range(8)}


def test_a_source_of_many_rows_is_no_subject(tmp_path):
    path = tmp_path / "t.csv"
    right = matrix(path, "source", (2,), size=20)
    assert read(path).values.tolist() == right.tolist()


def test_conditions_in_several_files(tmp_path):
    """Each file alone has no repeats."""
    for language in ("en", "fr"):
        lines = "".join(f"{m},{language},{q},1\n" for m in MODELS for q in ITEMS)
        text = f"model,language,item,correct\n{lines}"
        (tmp_path / f"{language}.csv").write_text(text)
    table = read(tmp_path)
    assert table.num_items == 8 and set(table.item_facets["language"]) == {"en", "fr"}


def test_a_matrix_whose_rows_repeat_by_language(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,language,q1,q2\na,en,1,0\na,fr,0,0\nb,en,1,1\nb,fr,1,0\n")
    table = read(path)
    assert table.subjects.tolist() == ["a", "b"] and table.num_items == 4
    path.write_text("model,q1,q2\na,1,0\na,0,0\nb,1,1\nb,1,0\n")
    assert read(path).values.tolist() == [[1, 0], [2, 1]]


# The subject


@pytest.mark.parametrize("name", ["model", "model_name", "student_id", "llm"])
def test_a_subject_next_to_models_is_a_topic(tmp_path, name):
    path = tmp_path / "t.csv"
    lines = [f"{m},{s},{q},1" for m in MODELS for s in ("law", "art") for q in ITEMS]
    path.write_text("\n".join([f"{name},subject,question_id,correct", *lines]) + "\n")
    table = read(path)
    assert table.subjects.tolist() == MODELS
    assert set(table.benchmarks) == {"law", "art"}
    assert noted(table, f"columns {name!r} and 'subject' may both name subjects")
    assert read(path, subject="subject").subjects.tolist() == ["law", "art"]
    alone = path.read_text().replace("subject,", "kind,")
    path.write_text(alone.replace(name, "subject"))
    assert read(path).subjects.tolist() == MODELS


def test_a_column_that_describes_items_names_no_subjects(tmp_path):
    text = "source,item,correct\nbook,q1,1\nbook,q2,0\nweb,q3,1\nweb,q4,0\n"
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="subject_name=") as refused:
        read(path)
    assert "column 'source', which describes items" in str(refused.value)
    assert read(path, subject_name="m").subjects.tolist() == ["m"]
    assert read(path, subject="source").num_subjects == 2


def test_ids_of_problems_in_a_file_for_each_model(tmp_path):
    for model, right in (("alpha", 1), ("beta", 0)):
        lines = [
            {"id": f"aime-{k}", "problem": f"p{k}", "correct": bool(right or k)}
            for k in range(3)
        ]
        path = tmp_path / f"{model}.jsonl"
        path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    table = read(tmp_path)
    assert table.subjects.tolist() == ["alpha", "beta"]
    assert table.values.tolist() == [[1, 1, 1], [0, 1, 1]]


# Covariates


def matrix(path, name, values, names=tuple(f"q{k}" for k in range(8)), size=12):
    """A matrix of random responses with one more column."""
    right = np.random.default_rng(1).integers(0, 2, (size, len(names)))
    lines = [",".join([*names, name])]
    for k, row in enumerate(right.tolist()):
        lines.append(",".join(map(str, [*row, values[k % len(values)]])))
    path.write_text("\n".join(lines) + "\n")
    return right


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Gender", (0, 1)),
        ("sex", ("M", "F")),
        ("age", (19, 34, 52)),
        ("Age", (1, 0)),
        ("group", (1, 2)),
        ("country", ("DE", "FR")),
        ("school", ("A", "B", "C")),
        ("start_time", ("2024-01-01 10:00:00", "2024-02-01 11:30:00")),
        ("params_b", (7.5, 70.1, 405.2)),  # By its values alone.
        ("context", (8192, 32768)),
    ],
)
def test_covariates_are_facets(tmp_path, name, values):
    path = tmp_path / "t.csv"
    right = matrix(path, name, values)
    table = read(path)
    assert table.values.tolist() == right.tolist()
    assert len(np.unique(table.subject_facets[name])) == len(values)
    assert noted(table, f"column {name!r} describes subjects and was read as a facet")


@pytest.mark.parametrize(
    ("name", "values"),
    [("q9", (0, 1, 2)), ("partial", (0, 1, 2, 3)), ("q10", (0, 99))],
)
def test_items_are_no_covariates(tmp_path, name, values):
    path = tmp_path / "t.csv"
    matrix(path, name, values)
    assert name in read(path, missing_values="none").items.tolist()


def test_benchmarks_with_names_of_covariates(tmp_path):
    """RACE and SEED-Bench are benchmarks."""
    path = tmp_path / "t.csv"
    names = "model,race,seed,arc,mmlu,hellaswag,piqa\n"
    path.write_text(f"{names}a,.5,.4,.3,.2,.1,.6\nb,.7,.6,.5,.4,.2,.1\n")
    assert read(path).num_items == 6


def test_genders_in_the_first_column_name_no_rows(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{'MF'[k % 2]},{k % 3 % 2},{k % 2},1" for k in range(30)]
    path.write_text("\n".join(["gender,i1,i2,i3", *lines]) + "\n")
    table = read(path)
    assert table.num_subjects == 30 and table.num_items == 3
    assert set(table.subject_facets["gender"]) == {"M", "F"}


def test_rows_without_names_are_others_in_another_file(tmp_path):
    one, two = tmp_path / "a.csv", tmp_path / "b.csv"
    one.write_text("v1,v2,v3\n1,0,1\n0,0,1\n")
    two.write_text("v2,v3,v4\n1,1,0\n0,1,1\n1,1,1\n")
    table = read([one, two])
    assert table.num_subjects == 5 and table.num_items == 4
    assert noted(table, "other subjects in each of 2 files: 5 subjects in all")
    # Other items of as many rows are those of the same subjects.
    two.write_text("v4,v5\n1,0\n0,1\n")
    assert read([one, two]).num_subjects == 2
    arrays = [np.eye(3), np.ones((2, 3))]
    assert read(arrays).num_subjects == 5


# Published files


@pytest.mark.parametrize(
    ("case", "size", "kind"),
    [
        ("C55", (10, 80), "binary"),
        ("C57", (8, 30), "counts"),
        ("C58", (10, 60), "binary"),
        ("C59", (10, 25), "counts"),
        ("C59d", (10, 25), "counts"),
        ("C69", (6, 30), "binary"),
        ("C80", (150, 24), "binary"),
        ("C30", (160, 24), "binary"),
    ],
)
def test_published_files(shared_cases, case, size, kind):
    table = read(shared_cases / case)
    assert (table.num_subjects, table.num_items) == size and table.kind == kind
    if case == "C59d":
        mean = table.subject_accuracy()
        assert (round(mean.max(), 3), round(mean.min(), 3)) == (0.364, 0.112)
    if case == "C80":
        assert "Gender" in table.subject_facets
    if case == "C55":
        assert len(set(table.benchmarks)) == 4


# Trials that are alike


def drawn(icc, seed=0, size=(12, 40), trials=4):
    """Counts of a Rasch model with beta-binomial trials."""
    rng = np.random.default_rng(seed)
    ability, easy = rng.normal(0, 1, size[0]), rng.normal(0, 1, size[1])
    chance = 1 / (1 + np.exp(-(ability[:, None] + easy)))
    if icc:
        both = (1 - icc) / icc
        chance = rng.beta(both * chance, both * (1 - chance))
    count = np.full(size, trials)
    return ResponseTable.from_arrays(rng.binomial(trials, chance), trials=count)


@pytest.mark.parametrize(("icc", "alike"), [(0.0, False), (0.5, True), (0.9, True)])
def test_dependence_of_trials(icc, alike):
    found = trial_dependence(drawn(icc))
    assert (found > 1.1) == alike
    if alike:
        # Errors are too small by the root of 1 + 3 icc; 429 degrees of freedom give
        # the ratio of variances to some 7 %, its root to half of that.
        assert found == pytest.approx(np.sqrt(1 + 3 * icc), rel=0.12)


def test_counts_are_fitted_as_what_they_are_worth():
    table = drawn(0.9)
    fit = irtjax.fit(table, method="em")
    assert fit.options["model"] == "share"
    assert 1 / fit.options["worth"] > 0.7  # Four that agree are nearly one.
    means = irtjax.fit(as_shares(table), method="em")
    np.testing.assert_allclose(
        fit.abilities.table.column("ability").to_numpy(),
        means.abilities.table.column("ability").to_numpy(),
        atol=1e-6,
    )
    scored = irtjax.score(fit, table)
    np.testing.assert_allclose(
        scored.table.column("accuracy").to_numpy(), table.subject_accuracy()
    )


def test_majorities_of_trials():
    counts = ResponseTable.from_arrays([[1, 2, 0]], trials=[[3, 4, 0]])
    found = as_majority(counts)
    assert found.values.tolist() == [[0, 1, 0]] and found.trials is None
    assert found.observed is not None
    assert found.observed.tolist() == [[True, True, False]]


@pytest.mark.slow
def test_an_audit_and_a_subset_of_counts():
    table = drawn(0.5, size=(14, 30))
    report = irtjax.audit(table, model="rasch", method="em")
    assert report.items.num_rows == 30
    assert any("at least half of them are" in x for x in report.warnings)
    right = irtjax.audit(as_majority(table), model="rasch", method="em")
    assert report.items.equals(right.items)
    subset = irtjax.shrink(table, 8, rule="random", key=jax.random.key(0))
    assert subset.items.size == 8
    predicted = subset.predict(table.select(items=subset.items))
    assert predicted.table.num_rows == 14

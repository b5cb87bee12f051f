"""Codes for "no score": read as missing with a note, or asked for in one line."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.cli.errors import as_options
from irtjax.data.reading.missing_codes import find

RNG = np.random.default_rng(0)
#: Scales that people use, and what can stand for a missing value next to them.
SCALES = {
    "right or wrong": [0, 1],
    "coded 1 and 2": [1, 2],
    "four levels": [0, 1, 2, 3],
    "Likert": [1, 2, 3, 4, 5],
    "judge": list(range(1, 11)),
    "shares": [0.0, 0.25, 0.5, 0.8, 1.0],
    "per cent": [0.0, 12.5, 40.0, 77.3, 100.0],
}


def matrix(levels, codes=(), share=0.1, shape=(20, 8)):
    """Responses of these levels, each of which occurs, some of them codes."""
    values = RNG.choice(np.array(levels, float), size=shape)
    if len(levels) <= 2 * shape[1]:
        values.flat[: len(levels)] = levels
    places = 2 * shape[1] + RNG.permutation(values.size - 2 * shape[1])
    places = places[: int(share * values.size)]
    values.flat[places] = np.resize(codes, len(places))
    return values, np.isin(values, codes)


def wide(values):
    """A data frame with a row per subject."""
    frame = pd.DataFrame(values, columns=[f"q{k}" for k in range(values.shape[1])])
    frame.insert(0, "model", [f"m{k}" for k in range(len(values))])
    return frame


def long(values):
    """A data frame with a row per response."""
    rows = [(f"m{i}", f"q{j}", x) for (i, j), x in np.ndenumerate(values)]
    return pd.DataFrame(rows, columns=["model", "item", "score"])


SURE = [
    (scale, code)
    for scale in ("right or wrong", "coded 1 and 2", "four levels", "Likert", "shares")
    for code in (-99, -999, -9999, -99999, 999, 9999)
] + [
    *[(scale, 99) for scale in ("right or wrong", "coded 1 and 2", "Likert")],
    ("right or wrong", 9),
    ("right or wrong", -9),
    ("right or wrong", -1),
    ("coded 1 and 2", -1),
    ("Likert", -1),
    ("judge", -1),
    ("judge", -99),
    ("Likert", -9),
    ("Likert", -8),
]


@pytest.mark.parametrize("shape", [wide, long])
@pytest.mark.parametrize("scale, code", SURE)
def test_a_code_that_can_be_no_score_is_missing(scale, code, shape):
    values, missing = matrix(SCALES[scale], [code])
    table = irtjax.read(shape(values))
    assert np.array_equal(~table.observed, missing)
    assert np.array_equal(table.values[~missing], values[~missing])
    note = f"{missing.sum()} scores of {code} are missing: {code} is a usual code"
    assert sum(x.startswith(note) for x in table.notes) == 1
    kept = irtjax.read(shape(values), missing_values="none")
    assert kept.num_observed == values.size
    assert kept.values.min() == values.min() and kept.values.max() == values.max()


UNSURE = [
    ("four levels", [-1]),
    ("four levels", [9]),
    ("Likert", [9]),
    ("Likert", [8, 9]),
    ("Likert", [55]),
    ("shares", [-1]),
    ("shares", [99]),
    ("per cent", [-1]),
    ("per cent", [-9]),
    ("per cent", [999]),
    ("right or wrong", [-1, -2]),
]


@pytest.mark.parametrize("scale, codes", UNSURE)
def test_what_can_be_a_score_is_asked_for_and_every_cure_works(tmp_path, scale, codes):
    values, missing = matrix(SCALES[scale], codes)
    for shape in (wide, long):
        file = tmp_path / f"{shape.__name__}.csv"
        shape(values).to_csv(file, index=False)
        with pytest.raises(ValueError) as refusal:
            irtjax.read(file)
        message = as_options(str(refusal.value))
        cures = re.findall(r"--missing-values \S+(?=,? )", message)
        assert len(cures) >= 2 and cures[-1].endswith("none"), message
        for cure in cures if shape is wide else ():
            result = CliRunner().invoke(app, ["info", str(file), *shlex.split(cure)])
            assert result.exit_code == 0, result.output
        first = shlex.split(cures[0])[1]
        assert {float(x) for x in first.split(",")} == set(codes)
        table = irtjax.read(file, missing_values=first)
        assert np.array_equal(~table.observed, missing)
        as_wrong = irtjax.read(file, missing_values=first, missing_as="wrong")
        assert np.array_equal(as_wrong.values, np.where(missing, 0, values))


@pytest.mark.parametrize(
    "levels",
    [
        *SCALES.values(),
        [-2, -1, 0, 1, 2],
        [-1, -0.4, 0.1, 0.9],
        list(range(1, 10)),
        list(range(101)),
        [0, 1, 2, 3, 4, 6, 9, 14, 40],
        [0, 2, 4],
        [-3.2, -0.1, 4.9],
        [0.7, 3.1, 8.8, 60.2, 600.0],
        [-4, 0, 12],
    ],
)
def test_no_score_is_taken_for_a_code(levels):
    table = irtjax.read(wide(matrix(levels, share=0, shape=(30, 12))[0]))
    assert table.observed is None
    assert not any("missing" in note for note in table.notes)


def votes(wrong, none, right, shape=(20, 10)):
    return RNG.choice([-1, 0, 1], p=[wrong, none, right], size=shape)


@pytest.mark.parametrize(
    "shares", [(0.2, 0.4, 0.4), (0.1, 0.15, 0.75), (0.4, 0.1, 0.5)]
)
def test_wrong_nothing_right_as_minus_one_zero_one(tmp_path, shares):
    values = votes(*shares)
    file = tmp_path / "votes.csv"
    wide(values).to_csv(file, index=False)
    with pytest.raises(ValueError) as refusal:
        irtjax.read(file)
    first = "-1" if shares[0] <= shares[1] else "0"
    assert re.search(
        rf"and 1 \([\d.]+ %\): add missing_values='{first}' if", str(refusal.value)
    )
    right = irtjax.read(file, missing_values=0)
    assert np.array_equal(right.observed, values != 0)
    assert np.array_equal(right.values[right.observed], (values > 0)[values != 0])
    assert right.kind == "binary"
    assert "responses are -1 and 1: -1 was read as wrong, 1 as right" in right.notes
    code = irtjax.read(file, missing_values=[-1])
    assert np.array_equal(code.observed, values != -1)
    kept = irtjax.read(file, missing_values="none")
    assert np.array_equal(kept.values, values)


@pytest.mark.parametrize("shares", [(0.09, 0.46, 0.45), (0.05, 0.25, 0.7)])
def test_a_rare_minus_one_next_to_zero_and_one_is_no_response(tmp_path, shares):
    values = votes(*shares)
    file = tmp_path / "rare.csv"
    wide(values).to_csv(file, index=False)
    for source in (file, long(values)):
        table = irtjax.read(source)
        assert table.kind == "binary"
        assert np.array_equal(table.observed, values != -1)
        note = f"{(values == -1).sum()} scores of -1 are missing"
        assert any(note in x for x in table.notes)
    kept = irtjax.read(file, missing_values="none")
    assert np.array_equal(kept.values, values)
    right = irtjax.read(file, missing_values=0)
    assert np.array_equal(right.observed, values != 0)


def test_signs_without_a_zero_are_wrong_and_right():
    values = RNG.choice([-1, 1], size=(10, 6))
    for shape in (wide, long):
        assert np.array_equal(irtjax.read(shape(values)).values, values > 0)


@pytest.mark.parametrize("word", ["skipped", "refused to answer", "?"])
def test_words_for_no_score(tmp_path, word):
    values, missing = matrix([0, 1], [-7])
    texts = pd.DataFrame(values).astype(int).astype(str).mask(missing, word).to_numpy()
    for shape in (wide, long):
        file = tmp_path / f"{shape.__name__}.csv"
        shape(texts).to_csv(file, index=False)
        for source in (file, shape(texts)):
            table = irtjax.read(source, missing_values=[word, 99])
            assert np.array_equal(~table.observed, missing)


@pytest.mark.parametrize("text", [".", "-", "NA", "N/A", "", "NaN"])
def test_usual_words_need_no_option(tmp_path, text):
    (tmp_path / "a.csv").write_text(f"model,q1,q2\na,1,{text}\nb,0,1\nc,1,0\n")
    assert irtjax.read(tmp_path / "a.csv").num_observed == 5


def test_of_each_benchmark_apart():
    graded, binary = matrix([1, 2, 3, 4, 5], [9])[0], matrix([0, 1])[0]
    frame = pd.concat(
        [long(graded).assign(benchmark="judge"), long(binary).assign(benchmark="quiz")]
    )
    frame["item"] = frame["benchmark"] + "-" + frame["item"]
    with pytest.raises(
        ValueError, match=r"scores of 'judge' are 9, apart .*\(1 to 5\)"
    ):
        irtjax.read(frame)


def test_repeats_are_averaged_without_codes(tmp_path):
    lines = ["model,item,trial,score"]
    lines += [f"m{i},q{j},{k},{[8, -99][k % 2] if i else 3 + j}"
              for i in range(3) for j in range(4) for k in range(2)]  # fmt: skip
    (tmp_path / "a.csv").write_text("\n".join(lines))
    table = irtjax.read(tmp_path / "a.csv", trials="mean")
    assert table.values[1:].tolist() == [[8] * 4] * 2


def test_saved_tables_and_matrices_take_the_option(tmp_path):
    values, missing = matrix([0, 1], [99])
    path = irtjax.ResponseTable.from_arrays(values).save(tmp_path / "t.parquet")
    for source in (path, irtjax.read(path), values):
        table = irtjax.read(source, missing_values=99)
        assert np.array_equal(~table.observed, missing)


def test_failed_judgments_of_mt_bench_are_missing(shared_cases):
    table = irtjax.read(shared_cases / "C09", trials="mean")
    assert any("3 failed judgments (score -1) are missing" in x for x in table.notes)
    means = table.subject_accuracy()[:3]
    assert (means > 1).all() and table.values.min() >= 1


@pytest.mark.parametrize("name", ["C26/minus99999", "C26d/ninetynine", "C26e/dot"])
def test_shared_matrices(shared_cases, name):
    table = irtjax.read(shared_cases / f"{name}.csv")
    assert table.kind == "binary"
    assert table.num_observed == 655


def test_shared_matrix_of_minus_one(shared_cases):
    path = shared_cases / "C26c/minus1.csv"
    table = irtjax.read(path)
    assert table.kind == "binary" and table.num_observed == 655
    assert any("scores of -1 are missing" in note for note in table.notes)


def test_runs_of_codes():
    found = find(np.array([1.0, 2, 3, 4, 97, 98, 99]), np.arange(1, 8))
    assert [code.value for code in found] == [97, 98, 99]
    assert all(code.sure for code in found)


def test_successes_of_trials_may_be_codes(tmp_path):
    lines = ["model,item,response,trials"]
    lines += [f"m{i},q{j},{-1 if i == j else i},4" for i in range(4) for j in range(3)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    table = irtjax.read(tmp_path / "a.csv", trials="counts", missing_values=-1)
    assert np.array_equal(~table.observed, np.eye(4, 3, dtype=bool))
    assert sum("3 scores of -1 are missing" in note for note in table.notes) == 1


def test_a_code_of_one_metric_is_no_code_of_another():
    frame = pd.DataFrame(
        {
            "sample_id": ["a", "b"],
            "eval_id": "e",
            "id": ["1", "2"],
            "epoch": 1,
            "model": "m",
            "score_match": [1, -1],
            "score_judge": [0.5, 0.75],
        }
    )
    judge = irtjax.read(frame, metric="judge", missing_values=-1)
    assert judge.num_observed == 2
    assert irtjax.read(frame, metric="match", missing_values=-1).num_observed == 1


def test_logs_take_the_option(tmp_path):
    from tests.data.test_lm_eval import sample, write_log

    for name, right in (("a", [1.0, 0.0, -1.0, 1.0]), ("b", [0.0, 1.0, 1.0, -1.0])):
        write_log(tmp_path, name, [sample(k, x) for k, x in enumerate(right)])
    with pytest.raises(ValueError, match="add missing_values='-1' if -1 means no resp"):
        irtjax.read(tmp_path)
    assert irtjax.read(tmp_path, missing_values=-1).num_observed == 6


def test_codes_of_several_kinds():
    """Surveys have several codes; a sure one does not make the others sure."""
    binary = matrix([0, 1], [7, 8, 9])[0]
    table = irtjax.read(wide(binary))
    assert table.kind == "binary"
    assert (
        sum("scores of 7, 8, 9 are missing: these are" in x for x in table.notes) == 1
    )
    mixed, _ = matrix([0, 1], [-1, -9])
    with pytest.raises(ValueError) as refusal:
        irtjax.read(wide(mixed))
    cures = re.findall(r"missing_values='([^']*)'", str(refusal.value))
    assert cures == ["-9,-1", "-9,0", "-9,none"]
    for cure in cures:
        table = irtjax.read(wide(mixed), missing_values=cure)
        assert table.values.min() >= -1 and not table.observed.all()

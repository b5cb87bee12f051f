"""Tables of a folder that describe subjects or items, without responses."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.data import read
from tests.small_fits import small_fit

MODELS = "model_name,family\nm,a\nn,b\n"


def folder_with(folder, text):
    """A folder of a table of responses and another table."""
    (folder / "a.csv").write_text("model,item,score\nm,a,1\nn,a,0\n")
    (folder / "b.csv").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path):
    rows = [(m, f"q{k}", 50.0 * k) for m in "mn" for k in range(3)]
    names = ["model", "item", "pass1"]
    columns = {n: list(x) for n, x in zip(names, zip(*rows, strict=True), strict=True)}
    pq.write_table(pa.table(columns), tmp_path / "long.parquet")
    (tmp_path / "models.csv").write_text(MODELS)
    return tmp_path


def test_side_tables_of_another_format_are_left_out(folder):
    table = read(folder)
    assert table.values.tolist() == [[0, 50, 100]] * 2
    assert "models.csv has no responses and was left out" in table.notes
    assert [x.rsplit("/", 1)[1] for x in table.sources] == ["long.parquet"]


def test_side_tables_of_the_same_format_are_left_out(tmp_path):
    (tmp_path / "models.csv").write_text(MODELS)
    (tmp_path / "long.csv").write_text("model,item,correct\nm,a,1\nn,a,0\n")
    table = read(tmp_path)
    assert table.subjects.tolist() == ["m", "n"]
    assert "models.csv has no responses and was left out" in table.notes
    assert [x.rsplit("/", 1)[1] for x in table.sources] == ["long.csv"]


@pytest.mark.parametrize(
    "text",
    [
        "llm_under_test,prompt_text,verdict\nm,a,pass\nn,a,fail\n",
        "llm_under_test,prompt_text,verdict\nm,a,good\nn,b,bad\n",
        "id,llm_under_test,prompt_text,verdict\n1,m,a,good\n2,n,a,bad\n",
        "model,prompt_text,verdict\nm,a,good\nm,b,bad\n",
        "item,prompt_text,verdict\na,what?,pass\nb,why?,fail\n",
        "sample_id,prompt_text,how_it_went\na,what?,solved\nb,why?,unsolved\n",
        "sample_id,prompt_text,outcome\na,what?,splendid\nb,why?,so so\n",
    ],
)
def test_a_table_that_may_have_responses_is_not_left_out(text, tmp_path):
    with pytest.raises(ValueError, match=r"b\.csv: .*subject=, item= and response="):
        read(folder_with(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "model_repr,model_name,style,released\nM,m,x,2023-07-30\nN,n,y,2023-08-30\n",
        "model,licence,open,team\nm,mit,yes,x\nn,own,no,y\n",
        "item,category,wording\na,logic,what?\nb,sums,why?\n",
    ],
)
def test_a_table_of_models_or_items_is_left_out(text, tmp_path):
    notes = read(folder_with(tmp_path, text)).notes
    assert "b.csv has no responses and was left out" in notes


def test_what_was_named_or_is_alone_is_refused(folder):
    with pytest.raises(ValueError, match="models.csv: there are no columns of resp"):
        read([folder, folder / "models.csv"])
    (folder / "long.parquet").unlink()
    with pytest.raises(ValueError, match="models.csv: there are no columns of resp"):
        read(folder)


def test_responses_of_two_formats_are_still_to_choose(folder):
    (folder / "more.csv").write_text("model,item,correct\nm,a,1\nn,a,0\n")
    kinds = r"several kinds of files \(csv, parquet\)"
    # Those that have responses are named, and models.csv is not.
    names = r"of csv: more\.csv; parquet: long\.parquet$"
    with pytest.raises(ValueError, match=f"{kinds}.*read together, {names}"):
        read(folder)


@pytest.fixture
def lengths(tmp_path):
    head = "model,q1,q2\n"
    (tmp_path / "right.csv").write_text(head + "m,1,0\nn,0,1\n")
    (tmp_path / "cot_length.csv").write_text(head + "m,310,12\nn,700,900\n")
    return tmp_path


def test_lengths_next_to_their_responses_are_left_out(lengths):
    table = read(lengths)
    assert table.values.tolist() == [[1, 0], [0, 1]] and table.lengths is None
    (note,) = (x for x in table.notes if "cot_length.csv" in x)
    assert note.startswith("cot_length.csv holds response lengths and was left out")
    assert [x.rsplit("/", 1)[1] for x in table.sources] == ["right.csv"]
    assert read(lengths, format="csv").values.tolist() == table.values.tolist()
    both = read(lengths / "right.csv", length=lengths / "cot_length.csv")
    assert both.lengths.tolist() == [[310, 12], [700, 900]]
    # Of a folder, the note does not advise what was done.
    both = read(lengths, length=lengths / "cot_length.csv")
    assert both.lengths.tolist() == [[310, 12], [700, 900]]
    assert not any("length=" in x for x in both.notes)


def test_one_of_two_matrices_of_lengths_does_not_replace_the_other(lengths):
    """The first was taken for the responses of the second."""
    other = (lengths / "cot_length.csv").read_text().replace("310", "311")
    (lengths / "tokens.csv").write_text(other)
    assert len(read(lengths, format="csv").notes) == 2
    (lengths / "right.csv").unlink()
    with pytest.raises(ValueError, match="the response of 'm' to 'q1' is also in"):
        read(lengths, format="csv")


@pytest.mark.parametrize("key", ["Model Name", "model-name"])
def test_side_tables_with_spaces_in_names_are_left_out(key, folder):
    text = f"{key},Developer,License\nm,x,MIT\nn,y,GPL\n"
    (folder / "makers.csv").write_text(text)
    assert "makers.csv has no responses and was left out" in read(folder).notes


def test_of_many_files_none_is_read_for_a_message(folder, monkeypatch):
    (folder / "more.csv").write_text("model,item,correct\nm,a,1\nn,a,0\n")
    monkeypatch.setattr("irtjax.data.reading.find._FEW", 1)
    with pytest.raises(ValueError, match=r"of csv: .*models\.csv.*; parquet: "):
        read(folder)


def test_lengths_without_their_responses_are_refused(lengths):
    with pytest.raises(ValueError, match="cot_length.csv holds response lengths"):
        read([lengths / "right.csv", lengths / "cot_length.csv"])
    (lengths / "right.csv").write_text("model,q1,q3\nm,1,0\nn,0,1\n")
    with pytest.raises(ValueError, match="cot_length.csv holds response lengths"):
        read(lengths)
    named = read(lengths / "cot_length.csv", format="csv")
    assert named.values.tolist() == [[310, 12], [700, 900]]


def test_a_leaderboard_of_alpacaeval_has_no_responses(folder):
    text = ",win_rate,standard_error,n_total\nm,50.5,1.1,805\nn,20.1,1.0,805\n"
    (folder / "leaderboard.csv").write_text(text)
    assert "leaderboard.csv has no responses and was left out" in read(folder).notes
    with pytest.raises(ValueError, match="totals of a leaderboard .win_rate, stand"):
        read(folder / "leaderboard.csv")


def test_means_of_lengths_are_lengths(lengths):
    path = lengths / "cot_length.csv"
    path.write_text(path.read_text().replace("310", "310.5"))
    assert read(lengths).values.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="response lengths .numbers up to 900., not"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Model,Win Rate,Avg Length\nm,55.2,120\nn,31.0,90\n", "totals .* .Win Rate"),
        ("Model,Win Rate,Standard Error\nm,55.2,1\nn,31.0,2\n", "totals .* .Win Rate"),
        ("model,Elo\nm,1203\nn,1190\n", "totals of a leaderboard .Elo."),
        ("model,rating\nm,1203\nn,1190\n", "one number for each subject .'rating'"),
        (",score\nm,0.5\nn,0.7\n", "one number for each subject .'score'"),
    ],
)
def test_totals_of_subjects_are_no_responses(folder, text, message):
    (folder / "board.csv").write_text(text)
    assert "board.csv has no responses and was left out" in read(folder).notes
    with pytest.raises(ValueError, match=message):
        read(folder / "board.csv")
    # They are read where the layout is given.
    assert read(
        folder / "board.csv", orientation="subjects_by_items", format="csv"
    ).subjects.tolist() == ["m", "n"]


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ("55%", "31 %", "one number for each subject .'share'.*orientation= reads"),
        ('"128,000"', '"8,192"', "row 1, column 'share' is .*leave"),
    ],
)
def test_numbers_of_subjects_that_people_wrote_are_no_responses(
    folder, one, two, message
):
    (folder / "board.csv").write_text(f"model,share\nm,{one}\nn,{two}\n")
    assert "board.csv has no responses and was left out" in read(folder).notes
    with pytest.raises(ValueError, match=message):
        read(folder / "board.csv")


def test_responses_next_to_totals_are_responses(folder):
    text = "model,item,score,Win Rate,Standard Error\nm,q,1,55,1\nn,q,0,31,2\n"
    (folder / "long.csv").write_text(text)
    assert read(folder / "long.csv").values.tolist() == [[1], [0]]


@pytest.mark.parametrize("column", ["Elo", "score"])
def test_the_refusal_of_totals_names_what_reads_them(folder, column):
    path = folder / "board.csv"
    path.write_text(f"id,{column}\nm,0.5\nn,0.7\n")
    with pytest.raises(ValueError, match="orientation= reads"):
        read(path)
    table = read(path, orientation="subjects_by_items")
    assert table.subjects.tolist() == ["m", "n"]


def test_info_takes_the_bounds_of_a_fit(folder):
    def info(*more):
        done = CliRunner().invoke(app, ["info", str(folder), "--json", *more])
        return done, json.loads(done.stdout) if done.exit_code == 0 else {}

    _, facts = info("--bounds", "0", "200")
    # A third of the scores is the lowest possible one.
    assert facts["suggested_model"] == "share"
    assert facts["reason"].startswith("33.3 % of the scores are at an end")
    assert facts["reason"].endswith("fit them with --bounds 0 200")
    assert (facts["items_all_highest"], facts["items_all_zero"]) == (0, 1)
    _, facts = info("--bounds", "0", "100")
    assert (facts["items_all_highest"], facts["items_all_zero"]) == (1, 1)
    assert facts["mean"] == 50
    _, facts = info("--bounds", "-50", "150")
    assert facts["suggested_model"] == "continuous"
    done, _ = info("--bounds", "0", "60")
    assert done.exit_code == 2 and "score 100 is not between 0 and 60" in done.stderr
    done, _ = info("--bounds", "0", "100", "--bounds-of", "a=0:100")
    assert done.exit_code == 2 and "give --bounds or" in done.stderr


@pytest.mark.parametrize(("low", "bounds"), [(1, "1 5"), (0.5, "0 5")])
def test_info_suggests_the_bounds_of_ratings(low, bounds, tmp_path):
    path = tmp_path / "ratings.csv"
    rows = [f"m,a,{low}", "m,b,2.5", "n,a,5", "n,b,3.25"]
    path.write_text("\n".join(["model,item,score", *rows]))
    done = CliRunner().invoke(app, ["info", str(path), "--json"])
    facts = json.loads(done.stdout)
    reason = facts["reason"]
    # A score of four is the highest possible one, or two are at the ends.
    assert facts["suggested_model"] == "share"
    assert reason.endswith(
        f"give the lowest and highest possible score with --bounds {bounds}"
    )


def test_info_suggests_bounds_of_one_benchmark_and_the_model_that_fits(tmp_path):
    def info(rows, *more):
        path = tmp_path / "scores.csv"
        path.write_text("\n".join(["model,item,score,benchmark", *rows]))
        done = CliRunner().invoke(app, ["info", str(path), "--json", *more])
        facts = json.loads(done.stdout)
        return facts["suggested_model"], facts["reason"]

    judge = [f"{m},j{k},{x},judge" for m, x in (("m", 1), ("n", 7)) for k in range(3)]
    share = [f"{m},s{k},{x},share" for m, x in (("m", 0), ("n", 0.5)) for k in range(3)]
    model, reason = info(judge + share)
    assert model == "auto" and reason.endswith(" with --bounds-of judge=LOW:HIGH")
    # Items with bounds are scores: half of the six at an end.
    model, reason = info(judge + share, "--bounds-of", "judge=1:7")
    assert model == "share" and reason.startswith("75 % of the scores")
    model, reason = info(["m,a,0,b\nm,b,62.5,b\nn,a,100,b\nn,b,50,b"])
    assert model == "share" and reason.endswith("--bounds 0 100")


def test_results_of_irtjax_below_a_folder_are_not_read(folder):
    fit = small_fit(errors=False)
    irtjax.write_report(fit, folder / "out", figures=False)
    irtjax.write_report(fit, folder / "run" / "fit", figures=False)
    shutil.copy(folder / "out" / "report.html", folder / "run")
    (folder / "run" / "run.json").write_text('{"format": {}, "parts": {}}')
    table = read(folder)
    assert table.values.tolist() == [[0, 50, 100]] * 2
    names = f"{folder / 'out'}, {folder / 'run'}"
    assert f"2 folders that irtjax wrote were not read: {names}" in table.notes
    # Alone it is named as what it is.
    for name, what in (
        ("out", "the fit in .*out does not keep its responses: name the files"),
        ("run", "run is a folder that irtjax wrote"),
    ):
        with pytest.raises(ValueError, match=what):
            read(folder / name)
    # Files of such names, neither a fit nor with our page, are other people's.
    (folder / "out" / "fit.json").write_text("{}")
    (folder / "out" / "report.html").write_text("<!DOCTYPE html>")
    with pytest.raises(ValueError, match="several kinds"):
        read(folder)

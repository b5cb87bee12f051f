"""Votes in files: the formats of others, rankings, and what no vote can be."""

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.comparisons import checks

PAIR = "model_a,model_b,winner"


def written(folder, text, name="votes.csv"):
    path = folder / name
    path.write_text(text + "\n", encoding="utf-8")
    return path


def wins(table):
    """Points of the first name against the second, by pair of names, and ties."""
    found = {}
    for i, j, outcome in zip(table.first, table.second, table.outcomes, strict=True):
        pair = str(table.subjects[i]), str(table.subjects[j])
        found[pair] = found.get(pair, 0) + outcome
    return {pair: x.tolist() for pair, x in found.items()}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            "arena/battles_33k_style.csv",
            {("toy-1b", "toy-7b"): [0, 0, 0, 1], ("toy-7b", "toy-2b"): [1, 0, 0, 0]},
        ),
        (
            "arena/battles_55k_style.csv",
            {("toy-1b", "toy-7b"): [0, 1, 0, 0], ("toy-2b", "toy-7b"): [0, 0, 1, 0]},
        ),
        (
            "arena/battles_140k_style.jsonl",
            {("toy-1b", "toy-7b"): [0, 1, 0, 0], ("toy-7b", "toy-2b"): [0, 0, 0, 1]},
        ),
        ("alpaca_eval", {("gpt4_1106_preview", "toy-1b"): [0.6579, 0.3421, 2, 0]}),
    ],
)
def test_shared_examples_are_read(path, wanted, shared_data):
    table = irtjax.read_comparisons(shared_data.parent / "formats" / "examples" / path)
    found = wins(table)
    assert found.keys() == wanted.keys()
    for pair, outcomes in wanted.items():
        assert found[pair] == pytest.approx(outcomes)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            '{"q": 1, "ranking": ["b", "a", "c"]}\n{"q": 2, "ranking": ["b", "a"]}',
            "jsonl",
        ),
        ("q,ranking\n1,b > a > c\n2,b > a", "csv"),
        ("question_id,model,rank\n2,a,2\n1,b,1\n1,c,9\n1,a,2\n2,b,1", "csv"),
    ],
)
def test_rankings_are_comparisons_of_two(text, name, tmp_path):
    table = irtjax.read_comparisons(written(tmp_path, text, f"votes.{name}"))
    wanted = {("b", "a"): [2, 0, 0, 0], ("b", "c"): [1, 0, 0, 0]}
    assert wins(table) == {**wanted, ("a", "c"): [1, 0, 0, 0]}
    assert len(np.unique(table.labels["ranking"])) == 2
    assert "--cluster ranking" in table.notes[0]


def test_equal_ranks_are_ties(tmp_path):
    text = "question_id,model,rank\n1,a,1\n1,b,2\n1,c,2"
    table = irtjax.read_comparisons(written(tmp_path, text))
    assert wins(table)["b", "c"] == [0, 0, 1, 0]


def test_rankings_recover_the_abilities_behind_them(tmp_path):
    """Of rankings by Plackett and Luce all pairs follow Bradley and Terry's model."""
    rng, ability = np.random.default_rng(0), np.array([-1.0, -0.3, 0.3, 1.0])
    drawn = ability + rng.gumbel(size=(800, 4))
    lines = [",".join(f"m{k}" for k in np.argsort(-row)) for row in drawn]
    text = "ranking\n" + "\n".join(line.replace(",", " > ") for line in lines)
    table = irtjax.read_comparisons(written(tmp_path, text))
    fit = irtjax.fit_comparisons(table, cluster="ranking")
    z = (fit.abilities.estimates - ability) / fit.abilities.standard_error
    # Of four estimates with a sum of 0: beyond 3.3 in one of 250 data sets.
    assert np.max(np.abs(z)) < 3.3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{PAIR}\na,b,model_a\na,b,zebra", "row 2: winner is 'zebra', neither"),
        (f"{PAIR}\na,b,model_a\na,a,model_b", "row 2: 'a' is compared with itself"),
        (f"{PAIR}\na,b,model_a\n,a,model_b", "row 2: model_a is empty"),
        ("model_a,model_b,wins_a,wins_b\na,b,3,-1", "row 1: wins_b is -1"),
        ("question_id,model,rank\n1,a,1\n1,b,x", "row 2: rank is 'x', not a number"),
        ("question_id,model,rank\n1,a,1\n1,a,2", "has 'a' twice; leave one out"),
        (f"{PAIR}\na,b,\nb,c,", "no row has a verdict"),
    ],
)
def test_what_no_vote_can_be_is_refused_in_one_line(text, said, tmp_path):
    path = written(tmp_path, text)
    result = CliRunner().invoke(app, ["arena", str(path)])
    assert result.exit_code != 0
    message = result.output.strip().splitlines()[-1] if result.output else ""
    with pytest.raises(ValueError, match="votes.csv") as error:
        irtjax.read_comparisons(path)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{PAIR}\na,b,model_a\na,c,model_a\nb,c,model_b\nc,b,model_b",
            "never lost: a",
        ),
        (
            f"{PAIR}\na,b,model_a\na,b,model_b\nc,d,model_a\nc,d,model_b",
            "were never compared with the others: c, d",
        ),
        (
            f"{PAIR},tstamp\na,b,model_a,1690000000\na,b,model_b,99999999999",
            "1 comparison of the future (tstamp 99999999999)",
        ),
        (
            f"{PAIR},judge\n"
            + "a,b,model_a,x\na,b,model_b,x\n" * 4
            + "a,b,tie,y\n" * 5,
            "1 judge gave ties alone: y (5 comparisons)",
        ),
    ],
)
def test_what_limits_a_ranking_is_a_warning(text, said, tmp_path):
    fit = irtjax.fit_comparisons(irtjax.read_comparisons(written(tmp_path, text)))
    assert [x for x in fit.warnings if said in x], fit.warnings
    assert np.isfinite(fit.abilities.standard_error).all()


def test_few_ties_of_a_judge_are_chance(tmp_path):
    votes = "a,b,model_a,x\na,b,model_b,x\na,b,tie,x\n" * 4 + "a,b,tie,y\n"
    table = irtjax.read_comparisons(written(tmp_path, f"{PAIR},judge\n{votes}"))
    assert checks.findings(table) == []


def test_an_empty_count_is_none(tmp_path):
    text = "model_a,model_b,wins_a,wins_b,ties,both_bad\na,b,3,1,2,1\nb,c,4,2,,"
    table = irtjax.read_comparisons(written(tmp_path, text))
    assert table.outcomes.tolist() == [[3, 1, 2, 1], [4, 2, 0, 0]]


def test_zero_and_one_state_if_the_first_won(tmp_path):
    text = "llm_1,llm_2,first_is_chosen\na,b,1\na,b,0\na,b,0"
    path = written(tmp_path, text)
    table = irtjax.read_comparisons(path, winner="first_is_chosen")
    assert wins(table) == {("a", "b"): [1, 2, 0, 0]}

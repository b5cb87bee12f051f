"""The folder of an arena: restored as it was, its page, and what style changes."""

import dataclasses
import json
import re

import numpy as np
import pytest

import irtjax
from irtjax.comparisons.arena import win_shares
from irtjax.report.arena_answers import answer_lines, with_answers
from irtjax.report.arena_page import arena_page
from irtjax.report.arena_verdict import verdict
from irtjax.storage import is_arena, load, load_arena

HOSTILE = '<b>"x"</b>&<script>alert(1)</script>'


def battles(seed=0, models=6, votes=1500, effect=0.4):
    """Votes on pairs that depend on ability and on a length that ability changes."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1, models)
    first = rng.integers(models, size=votes)
    second = (first + rng.integers(1, models, size=votes)) % models
    length = 0.3 * (ability[first] - ability[second]) + rng.normal(size=votes)
    gap = ability[first] - ability[second] + effect * length + rng.logistic(size=votes)
    kind = np.where(gap > 0.3, 0, np.where(gap < -0.3, 1, 2))
    names = [f"m{k}" for k in range(models - 1)] + [HOSTILE]
    return irtjax.ComparisonTable.of(
        names,
        first,
        second,
        np.eye(4)[kind],
        features={"length": length},
        labels={"prompt": rng.integers(200, size=votes).astype(str)},
    )


@pytest.fixture(scope="module")
def table():
    return battles()


@pytest.fixture(scope="module")
def fit(table):
    return irtjax.fit_comparisons(table, cluster="prompt", covariates=["length"])


def test_a_folder_gives_the_fit_back(fit, tmp_path):
    fit.save(tmp_path)
    assert is_arena(tmp_path)
    found = load_arena(tmp_path)
    assert found.document() == fit.document()
    np.testing.assert_array_equal(found.abilities.covariance, fit.abilities.covariance)
    assert found.abilities.table.equals(fit.abilities.table)
    assert found.pairs.equals(fit.pairs) and found.style.equals(fit.style)
    with pytest.raises(ValueError, match="was written by `irtjax arena`"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("abilities.npz", b"no archive"),
        ("fit.json", b'{"format": "irtjax.arena", "version": 1}'),
        ("fit.json", b'{"format": "irtjax.arena", "version": 99}'),
    ],
)
def test_a_damaged_folder_is_refused(fit, tmp_path, name, content):
    fit.save(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="is damaged .*run `irtjax arena` again"):
        load_arena(tmp_path)


@pytest.mark.parametrize("option", [["--fail-if", "worse"], ["--out", "pair"]])
def test_gates_of_an_arena_are_refused_in_one_line(fit, tmp_path, option, monkeypatch):
    from typer.testing import CliRunner

    from irtjax.cli.app import app

    monkeypatch.chdir(tmp_path)
    fit.save("arena")
    words = ["compare", "m0", "m1", "--fit", "arena", *option]
    result = CliRunner().invoke(app, words)
    assert result.exit_code
    said = " ".join(result.output.split())
    assert "arena is the folder of an arena" in said and "--json" in said


def test_a_folder_without_an_arena_names_the_command(tmp_path):
    with pytest.raises(ValueError, match="irtjax arena FILE --out"):
        load_arena(tmp_path)


@pytest.mark.slow
def test_errors_of_differences_are_those_of_a_bootstrap(table, fit):
    """The spread over replicates that draw prompts with replacement."""
    rng = np.random.default_rng(1)
    _, codes = np.unique(table.labels["prompt"], return_inverse=True)
    order = np.argsort(fit.style["subject"].to_pylist())
    draws = []
    for _ in range(60):
        weight = np.bincount(rng.integers(200, size=200), minlength=200)[codes]
        outcomes = table.outcomes * weight[:, None]
        rows = np.flatnonzero(weight)
        some = dataclasses.replace(table, verdicts=outcomes).select(rows)
        style = irtjax.fit_comparisons(some, covariates=["length"]).style
        place = np.argsort(style["subject"].to_pylist())
        draws.append(np.asarray(style["difference"])[place])
    spread = np.std(draws, axis=0, ddof=1)
    # 60 replicates: the spread has a relative standard error of 9 %.
    found = np.asarray(fit.style["difference_se"])[order]
    np.testing.assert_allclose(found, spread, rtol=0.3)
    gap = np.asarray(fit.style["ability"]) - np.asarray(fit.style["ability_without"])
    np.testing.assert_allclose(fit.style["difference"], gap)


def test_errors_of_differences_do_not_depend_on_how_votes_are_stored(table):
    """A row of n alike comparisons counts as n rows, where none are clustered."""
    twice = dataclasses.replace(table, verdicts=2 * table.outcomes)
    rows = np.concatenate([np.arange(len(table.first))] * 2)
    one, other = (
        irtjax.fit_comparisons(x, covariates=["length"]).style
        for x in (twice, table.select(rows))
    )
    np.testing.assert_allclose(one["difference_se"], other["difference_se"], rtol=1e-6)


def test_wins_are_those_of_the_votes(table, fit):
    names = fit.abilities.names.tolist()
    share, expected, games = win_shares(fit, names)
    i, j = 0, 3
    wins = sum(
        table.outcomes[k, int(table.first[k] != i)] + table.outcomes[k, 2] / 2
        for k in np.flatnonzero((table.first == i) | (table.second == i))
        if j in (table.first[k], table.second[k])
    )
    assert share[i, j] == pytest.approx(wins / games[i, j])
    assert games.sum() / 2 == table.num_comparisons
    np.testing.assert_allclose(share + share.T, 1 + 0 * share)
    gap = fit.abilities.estimates[:, None] - fit.abilities.estimates
    wanted = 1 / (1 + np.exp(-gap))
    np.testing.assert_allclose(expected[games > 0], wanted[games > 0], rtol=1e-6)


def test_the_page_has_leaderboard_wins_and_style_and_no_markup_of_names(fit):
    page = arena_page(fit, title="Votes")
    for name in ("scores", "compare", "wins", "covariates", "notes"):
        assert f'<section id="{name}"' in page
    assert "<script>alert" not in page and "<b>&#34;x" not in page
    assert "may be mediators" in page and "items-h" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    loadings = np.array(data["subjects"]["shared"]) / data["subjects"]["scale_of_exact"]
    at = [
        fit.abilities.names.tolist().index(r["subject"])
        for r in fit.abilities.table.to_pylist()
    ]
    wanted = fit.abilities.covariance[np.ix_(at, at)]
    np.testing.assert_allclose(loadings @ loadings.T, wanted, rtol=1e-2, atol=1e-5)


def test_the_verdict_is_short(fit, table):
    found = verdict(fit, fit.abilities.rank(), folder="arena", width=80)
    assert list(found) == ["First", "Style", "Next"]
    assert "length +0." in found["Style"]
    plain = irtjax.fit_comparisons(table)
    found = verdict(plain, plain.abilities.rank(), width=80)
    assert list(found) == ["First", "Mind"] and "--cluster" in found["Mind"]


def test_answers_stand_in_the_verdict_and_on_the_page(table, fit):
    few = battles(votes=60)
    plain = irtjax.fit_comparisons(few)
    decided = answer_lines(with_answers(plain, few))["Plan"]
    assert decided.endswith("decide between them with a power of .8.")
    fit = with_answers(fit, table)
    lines = answer_lines(fit)
    assert lines["Fragile"].startswith("Without ") and "is first" in lines["Fragile"]
    assert "Misfit" not in lines
    found = verdict(fit, fit.abilities.rank(), width=80)
    assert list(found) == ["First", "Style", "Fragile"]
    page = arena_page(fit)
    assert ">Fragile<" in page and "Deviance" in page


def test_large_tables_have_no_influence(table, fit, monkeypatch):
    from irtjax.report import arena_answers as module

    monkeypatch.setattr(module, "MOST_ROWS", 1)
    monkeypatch.setattr(module, "MOST_COMPARISONS", 1)
    assert "Fragile" not in answer_lines(with_answers(fit, table))


@pytest.mark.parametrize("command", ["show", "rank"])
def test_a_saved_arena_prints_what_the_fit_printed(command, tmp_path, monkeypatch):
    """All lines of the verdict but the next command, and the same page."""
    from typer.testing import CliRunner

    from irtjax.cli.app import app

    monkeypatch.chdir(tmp_path)

    def printed(*words):
        result = CliRunner().invoke(app, [*words])
        assert result.exit_code == 0, result.output
        return result.stdout

    votes = battles(votes=60).table.to_pandas()
    kind = votes[["first", "second", "tie"]].to_numpy().argmax(axis=1)
    votes["winner"] = np.array(["model_a", "model_b", "tie"])[kind]
    votes[["model_a", "model_b", "winner", "prompt"]].to_csv("votes.csv", index=False)
    first = printed("arena", "votes.csv", "--out", "arena")
    assert "\nFragile" in first and "\nPlan" in first
    assert printed(command, "arena") == first
    page = tmp_path / "arena" / "report.html"
    tiles = lambda: re.findall(r'class="tile.*?</div>', page.read_text(), re.DOTALL)
    before = tiles()
    printed("report", "arena")
    assert tiles() == before and "Fragile" in str(before)


@pytest.mark.parametrize(
    ("options", "has"),
    [
        ({"category": "topic"}, True),
        ({"ties": "davidson", "tie_rates": True}, True),
        ({"preset": "arena_rank"}, False),
    ],
)
def test_fits_with_effects_have_influence_and_checks_and_presets_do_not(options, has):
    votes = battles(votes=400)
    topic = np.char.add("t", (np.arange(400) % 3).astype(str))
    votes = irtjax.ComparisonTable.of(
        votes.subjects, votes.first, votes.second, votes.outcomes,
        labels={"topic": topic},
    )  # fmt: skip
    answers = with_answers(irtjax.fit_comparisons(votes, **options), votes).answers
    assert ("influence" in answers, "checks" in answers) == (has, has)
    assert "decision" in answers

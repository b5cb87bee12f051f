"""Clusters of items: planted skills, the band of one skill, the command line."""

import dataclasses
import functools
import json
import types
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.fitting.several_abilities import with_wide_slopes
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.validity.heterogeneity import (
    Heterogeneity,
    _doubts,
    _groups,
    _judged,
    _resampler,
    _sentence,
)
from irtjax.validity.item_clusters import Analysis
from irtjax.validity.one_skill import OneSkill

SUBJECTS = 150
#: Items: one skill, two skills, too few for a verdict, one that all solve.
NAMES = ["one"] * 12 + ["two"] * 24 + ["few"] * 3 + ["two"]
SKILL = np.array([0] * 12 + [0, 1] * 12 + [0] * 3 + [0])


def planted(correlation: float, names=NAMES, skill=SKILL, seed=3, subjects=SUBJECTS):
    """Responses to items of two skills; the last item is solved by everyone."""
    rng = np.random.default_rng(seed)
    covariance = [[1, correlation], [correlation, 1]]
    theta = rng.multivariate_normal([0, 0], covariance, size=subjects)
    eta = 2 * theta[:, skill] + rng.normal(size=len(skill))
    right = (rng.random(eta.shape) < expit(eta)).astype(float)
    right[rng.random(eta.shape) < 0.05] = np.nan
    right[:, -1] = 1
    return irtjax.ResponseTable.from_arrays(right, benchmark=names)


def stub(table: irtjax.ResponseTable, model=None) -> Any:
    """What is needed of a fit, without estimates: the clusters are of the data."""
    return types.SimpleNamespace(
        factor_names=("one", "two"),
        item_names=table.items,
        item_contents=table.item_contents,
        model=model or factor_model(Factor(2)),
        options={"loadings": "all"},
    )


@functools.cache
def found_of_stub() -> Heterogeneity:
    table = planted(0)
    return irtjax.heterogeneity(stub(table), table, most=3)


@pytest.mark.slow
def test_two_skills_are_found_and_one_is_not_split():
    found = found_of_stub()
    rows = {row["benchmark"]: row for row in found.table.to_pylist()}
    assert rows["two"]["verdict"] == "related skills" and rows["two"]["clusters"] > 1
    # Independent skills: the correlation is 0 within its interval.
    assert rows["two"]["smallest_lower"] < 0 < rows["two"]["smallest_upper"]
    assert rows["two"]["smallest"] < rows["two"]["band_lower"] <= 1.05
    assert rows["one"]["verdict"] == "one skill"
    assert rows["few"]["verdict"] == "no verdict" and rows["few"]["clusters"] is None
    assert [rows[name]["excluded"] for name in ("one", "two", "few")] == [0, 1, 0]
    texts = {text.partition(":")[0]: text for text in found.sentences}
    assert "related skills. The smallest correlation of its" in texts["two"]
    assert "no verdict, with fewer than 6 items that vary" in texts["few"]
    assert any("few" in text for text in found.warnings)
    assert not any("converge" in text for text in found.warnings)
    assert any(
        text.startswith("items in no cluster") and text.endswith(": 1")
        for text in found.warnings
    )


@pytest.mark.slow
def test_rows_agree_with_the_responses():
    found, table = found_of_stub(), planted(0)
    items = found.items.to_pylist()
    cluster = [row["cluster"] for row in items]
    # The excluded item and those of the short benchmark are in no cluster.
    assert [k for k, c in enumerate(cluster) if c is None] == [36, 37, 38, 39]
    two = np.array(cluster[12:36])
    # No cluster has items of both skills.
    assert set(two[::2]) == {1} and 1 not in two[1::2]
    part = table.select(items=12 + np.flatnonzero(two == 1))
    score = [
        row["accuracy"]
        for row in found.scores.to_pylist()
        if row["benchmark"] == "two" and row["cluster"] == 1
    ]
    np.testing.assert_allclose(score, part.subject_accuracy())
    sizes = [row for row in found.clusters.to_pylist() if row["benchmark"] == "two"]
    assert sizes[0]["items"] == 12 and sum(row["items"] for row in sizes) == 24
    assert sizes[0]["share"] == pytest.approx(12 / 25)
    assert sizes[0]["mean"] == pytest.approx(
        part.values.sum() / part.num_observed, abs=1e-12
    )
    for row in found.correlations.to_pylist():
        assert row["raw_lower"] <= row["raw"] <= row["raw_upper"]


@pytest.mark.slow
def test_data_and_simulations_have_one_estimator(monkeypatch):
    """Simulations of the same responses have the smallest correlation of the data.

    The fit has the wide priors of a marginal method, which the clusters do not use.
    """
    run, first = Analysis.run, jax.random.split(jax.random.key(0), 3)[0]
    monkeypatch.setattr(OneSkill, "draw", lambda self, values, seen, key: values)
    # The mixtures have the same random starts.
    fixed = lambda self, values, seen, key: run(self, values, seen, first)
    monkeypatch.setattr(Analysis, "run", fixed)
    table = planted(0)
    wide = stub(table, with_wide_slopes(factor_model(Factor(2)), SUBJECTS, 20))
    found = irtjax.heterogeneity(wide, table, most=3, simulations=3, level=0.5)
    row, same = (x.table.to_pylist()[2] for x in (found, found_of_stub()))
    assert row["benchmark"] == "two" and row["smallest"] == same["smallest"]
    for name in ("band_lower", "band_upper"):
        assert row[name] == pytest.approx(row["smallest"], abs=1e-6)


def test_a_fit_that_does_not_converge_and_few_families_are_doubted():
    assert _doubts(None, True) == _doubts(10, True) == []
    few, rough = _doubts(9, False)
    assert few.startswith("intervals are resamples of 9 families: with fewer than 10")
    assert rough.startswith("the joint factor fit did not converge in 200 steps")


@pytest.mark.parametrize(
    ("pair", "verdict"),
    [
        ((0.95, 0.9, 1.0, True), "one skill"),
        ((0.5, 0.4, 0.6, True), "related skills"),
        ((0.0, -0.2, 0.2, True), "related skills"),
        ((-0.5, -0.7, -0.3, True), "conflicting skills"),
        ((-0.5, -0.7, -0.3, False), "no verdict"),
        ((None, None, None, True), "no verdict"),
    ],
)
def test_the_rule_of_the_verdict(pair, verdict):
    names = ("correlation", "correlation_lower", "correlation_upper", "compared")
    row = dict(zip(names, pair, strict=True))
    found = _judged(2, [row], 0.9, 1.0)
    assert found["verdict"] == verdict
    assert _judged(1, [], 0.9, 1.0)["verdict"] == "one skill"
    assert found.get("smallest") == (row["correlation"] if row["compared"] else None)


def test_families_are_resampled_together():
    table = planted(0)
    family = np.arange(SUBJECTS) // 10
    grouped = dataclasses.replace(table, subject_facets={"family": family.astype(str)})
    key = jax.random.key(0)
    families, draw = _resampler(grouped, None, key)
    weights = draw(50)
    assert (weights == weights[:, ::10].repeat(10, axis=1)).all()
    assert families == 15
    none, draw = _resampler(table, None, key)
    alone = draw(50)
    assert (
        none is None
        and (alone.sum(axis=1) == SUBJECTS).all()
        and (alone[:, 0] != alone[:, 1]).any()
    )


def test_clusters_that_cannot_be_compared_have_no_verdict():
    row = {"benchmark": "b", "clusters": 2, "items": 9} | _judged(2, [], 0.9, 1.0)
    text = _sentence(row | {"smallest": None}, 0.95)
    assert text == "b: no verdict, its 2 clusters are too unreliable to compare."


def test_one_family_is_refused():
    table = planted(0)
    facets = {"family": np.full(SUBJECTS, "llama")}
    alone = dataclasses.replace(table, subject_facets=facets)
    with pytest.raises(ValueError, match="all subjects have the family 'llama'"):
        irtjax.heterogeneity(stub(table), alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "topic"}, "no facet 'topic' of items; there are: benchmark"),
        ({"family": "lab"}, "no facet 'lab' of subjects; there are: none"),
        ({"simulations": 38}, "simulations 38: a band of 95 % needs at least 39"),
        ({"level": 1.0}, "level 1 is not between 0 and 1"),
        ({"most": 0}, "most 0: give at least 1 cluster"),
    ],
)
def test_what_cannot_be_answered_is_refused(change, message):
    table = planted(0)
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.heterogeneity(stub(table), table, **change)
    assert "\n" not in str(refused.value)


def test_other_data_and_fits_are_refused():
    table = planted(0)
    none: Any = types.SimpleNamespace(
        factor_names=(),
        model=types.SimpleNamespace(name="2pl"),
        item_names=table.items,
        item_contents=None,
    )
    with pytest.raises(
        ValueError, match="fit of 2pl has one ability: fit model='factor'"
    ):
        irtjax.heterogeneity(none, table)
    scores = irtjax.ResponseTable.from_arrays(np.full((4, 40), 0.5), items=table.items)
    with pytest.raises(ValueError, match="right or wrong, not continuous"):
        irtjax.heterogeneity(stub(table), scores)
    few = table.select(items=np.arange(36, 40))
    with pytest.raises(ValueError, match="no benchmark has 6 items with variation"):
        irtjax.heterogeneity(stub(table), few)
    other = irtjax.ResponseTable.from_arrays(table.values, benchmark=NAMES)
    renamed = [f"x{k}" for k in range(40)]
    other = irtjax.ResponseTable.from_arrays(table.values, items=renamed)
    with pytest.raises(ValueError, match="item 'x0' is not in the fit: analyse"):
        irtjax.heterogeneity(stub(table), other)


@pytest.mark.slow
def test_conflicting_skills_and_another_method():
    skill = np.arange(41) % 2
    table = planted(-0.6, ["b"] * 41, skill, subjects=300)
    verdicts, labels = set(), []
    for method in ("gvem", "mm"):
        fit = irtjax.fit(table, "factor", method, factors=2)
        found = irtjax.heterogeneity(fit, table)
        verdicts |= set(found.table["verdict"].to_pylist())
        labels.append(found.items["cluster"].to_pylist())
    assert verdicts == {"conflicting skills"}
    assert labels[0] == labels[1]


@pytest.mark.slow
def test_the_command_line(tmp_path):
    table = planted(0.3, ["b"] * 40)
    lines = ["subject,item,benchmark,response"]
    assert table.observed is not None
    for row, column in np.argwhere(table.observed):
        name, item = table.subjects[row], table.items[column]
        lines.append(f"{name},{item},b,{table.values[row, column]}")
    source = tmp_path / "long.csv"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = lambda *words: CliRunner().invoke(app, [*map(str, words)])
    folder, out = tmp_path / "fitted", tmp_path / "clusters"
    command = ["fit", source, "--model", "factor", "--factors", "2", "--out", folder]
    done = run(*command, "--quiet", "--figures")
    assert done.exit_code == 0, done.output
    assert (folder / "biplot.png").is_file()
    done = run("clusters", folder, source, "--most", "3", "--json", "--out", out)
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["benchmarks"][0]["verdict"] == "related skills"
    assert content["sentences"][0].startswith("b: related skills.")
    names = {path.name for path in out.iterdir()}
    assert names == {
        *("benchmarks.csv", "clusters.csv", "cluster_sizes.csv", "cluster_scores.csv"),
        *("cluster_correlations.csv", "clusters.png", "structure.png"),
    }
    done = run("clusters", folder, source, "--simulations", "3")
    assert done.exit_code == 2 and "--simulations 3: a band of 95 %" in done.stderr
    done = run("clusters", folder, source, "--most", "3", "--by", "none")
    assert done.exit_code == 2 and "no facet 'none' of items" in done.stderr
    done = run("clusters", folder, source, "--most", "3")
    assert done.exit_code == 0 and "related skills" in done.stdout


def test_all_items_are_one_group_by_that_name():
    table = planted(0)
    codes, names = _groups(table, "all")
    assert names == [""] and not codes.any()
    assert _groups(table, "benchmark")[1] == ["few", "one", "two"]
    bare = dataclasses.replace(table, item_facets={})
    assert _groups(bare, "benchmark")[1] == [""]

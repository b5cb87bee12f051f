"""Stability of rankings: against rankings by sums, and runs from many starts."""

import csv
import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kendalltau, rankdata, spearmanr
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.estimators.joint.mm import MM
from irtjax.numerics.progress import watching
from irtjax.plots import plot_rank_ribbons
from irtjax.plots.stability import VARIED
from irtjax.validity import stability as module
from irtjax.validity import starts
from irtjax.validity.families import families_of
from irtjax.validity.rank_agreement import partners

SUBJECTS, ITEMS, NUM, TOP = 8, 24, 16, 3
KEY = jax.random.key(5)


@functools.cache
def responses() -> np.ndarray:
    rng = np.random.default_rng(4)
    ability, easy = np.linspace(-1.5, 1.5, SUBJECTS), rng.normal(size=ITEMS)
    return (
        rng.random((SUBJECTS, ITEMS)) < 1 / (1 + np.exp(-ability[:, None] - easy))
    ) * 1.0


@functools.cache
def table(missing: bool = False) -> irtjax.ResponseTable:
    """Two benchmarks of 8 and 16 items; one subject answered two items, if missing."""
    values = responses().copy()
    if missing:
        values[2, 2:] = np.nan
    benchmark = ["a"] * 8 + ["b"] * 16
    return irtjax.ResponseTable.from_arrays(values, benchmark=benchmark)


@functools.cache
def found(kind: str, missing: bool = False):
    num = None if kind == "benchmarks" else NUM
    return irtjax.stability(table(missing), kind, num=num, top=TOP, key=KEY)


def ranks_by_sums(weight: np.ndarray) -> np.ndarray:
    return rankdata(-(weight @ responses().T), "min", axis=1)


SLOW = pytest.mark.slow


def tau(first, second) -> float:
    return float(np.asarray(kendalltau(first, second))[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["items", *(pytest.param(x, marks=SLOW) for x in ("halves", "benchmarks"))]
)
def test_ranks_of_replicates_are_those_of_sums(kind):
    # By the 1PL and complete responses, abilities have the order of sums of weights
    # times responses, whatever the estimates of the items.
    stable = found(kind)
    assert stable.model == "1pl"
    weight = module._weights(table(), kind, NUM, KEY)
    ranks, full = ranks_by_sums(weight), ranks_by_sums(np.ones((1, ITEMS)))[0]
    rows = {row["subject"]: row for row in stable.table.to_pylist()}
    rows = [rows[str(name)] for name in table().subjects]
    assert [row["rank"] for row in rows] == full.tolist()
    low = np.quantile(ranks, 0.025, axis=0, method="lower")
    high = np.quantile(ranks, 0.975, axis=0, method="higher")
    assert [row["rank_lower"] for row in rows] == np.minimum(low, full).tolist()
    assert [row["rank_upper"] for row in rows] == np.maximum(high, full).tolist()
    for name, mask in (("share_first", ranks == 1), ("share_in_top", ranks <= TOP)):
        np.testing.assert_allclose([row[name] for row in rows], mask.mean(axis=0))
    with_all = np.array([tau(row, full) for row in ranks])
    np.testing.assert_allclose(stable.runs.column("kendall").to_numpy(), with_all)
    by_name = {row["measure"]: row for row in stable.agreement.to_pylist()}
    assert by_name["kendall"]["mean"] == pytest.approx(with_all.mean())
    if kind == "halves":
        pairs = zip(ranks[::2], ranks[1::2], strict=True)
        halves = np.mean([tau(x, y) for x, y in pairs])
        assert by_name["kendall_between"]["mean"] == pytest.approx(halves)
        assert 0 < by_name["reliability"]["mean"] < 1
    if kind == "items":
        pairs = zip(ranks, np.roll(ranks, -1, axis=0), strict=True)
        two = np.mean([tau(x, y) for x, y in pairs])
        assert by_name["kendall_between"]["mean"] == pytest.approx(two)
        assert f"{two:.2f}" in stable.sentence


@functools.cache
def silent() -> irtjax.ResponseTable:
    """The same table, but one subject has no responses."""
    values = responses().copy()
    values[3] = np.nan
    return irtjax.ResponseTable.from_arrays(values, benchmark=table().benchmarks)


@functools.cache
def by_other_subjects():
    return irtjax.stability(silent(), "subjects", num=NUM, top=TOP, key=KEY)


@pytest.mark.slow
def test_other_subjects_do_not_change_the_order_of_sums():
    stable = by_other_subjects()
    by_name = {row["measure"]: row for row in stable.agreement.to_pylist()}
    assert by_name["kendall"]["lower"] == pytest.approx(1)
    # Items that other subjects answered have other estimates.
    assert 0 < by_name["spearman_intercept"]["mean"] < 1
    assert any("only 8 subjects" in text for text in stable.warnings)


def test_weights_keep_the_benchmarks():
    code = table().benchmarks == "b"
    drawn = module._weights(table(), "items", 50, KEY)
    assert (drawn[:, code].sum(1) == 16).all() and (drawn[:, ~code].sum(1) == 8).all()
    # Multinomial counts have the variance 1 - 1 / n; five standard errors.
    assert abs(drawn[:, code].var() - 15 / 16) < 5 * (2 / 800) ** 0.5
    halves = module._weights(table(), "halves", 50, KEY)
    np.testing.assert_array_equal(halves[::2] + halves[1::2], 1)
    assert (halves[:, code].sum(1) == 8).all() and (halves[:, ~code].sum(1) == 4).all()
    assert len(np.unique(halves, axis=0)) == 100
    left = module._weights(table(), "benchmarks", 50, KEY)
    np.testing.assert_array_equal(left, [code, ~code])


@pytest.mark.slow
def test_a_subject_without_responses_in_a_replicate_has_no_rank_there():
    stable = found("items", missing=True)
    weight = module._weights(table(True), "items", NUM, KEY)
    lost = weight[:, :2].sum(axis=1) == 0
    assert 0 < lost.sum() < NUM
    assert "1 subject has no responses left" in stable.warnings[-1]
    for part in (stable.table, stable.agreement, stable.runs):
        values = [x for row in part.to_pylist() for x in row.values()]
        assert not any(isinstance(x, float) and not np.isfinite(x) for x in values)


def test_a_subject_without_responses_has_no_rank_in_any_replicate():
    stable = by_other_subjects()
    row = stable.table.to_pylist()[-1]
    assert row["subject"] == str(silent().subjects[3])
    assert row["rank"] is None and row["share_first"] is None
    # The order of the others is that of their sums, in every replicate.
    rest = np.delete(responses(), 3, axis=0).sum(axis=1)
    ranks = rankdata(-rest, "min")
    for row in stable.table.to_pylist()[:-1]:
        place = np.delete(silent().subjects, 3).tolist().index(row["subject"])
        ends = [row[name] for name in ("rank", "rank_lower", "rank_upper")]
        assert ends == [ranks[place]] * 3
    assert "1 subject has no responses and no rank" in stable.warnings


FAMILIES = np.array(["a", "b", "a", "c", "b", "a", "c", "b"])


def of_families() -> irtjax.ResponseTable:
    return dataclasses.replace(table(), subject_facets={"lab": FAMILIES})


@pytest.mark.slow
def test_a_family_left_out_does_not_calibrate_the_items():
    stable = irtjax.stability(of_families(), "families", family="lab", top=TOP)
    assert stable.runs.column("left_out").to_pylist() == ["a", "b", "c"]

    def intercepts(kept):
        part = table().select(subjects=kept)
        fit = irtjax.fit(part, "1pl", "em", standard_errors="none")
        # Items with equal sums have equal intercepts but for rounding: ties.
        return np.round(fit.parameters.items.intercept, 4)

    of_all = intercepts(np.ones(SUBJECTS, bool))
    each = [spearmanr(of_all, intercepts(name != FAMILIES))[0] for name in "abc"]
    by_name = {row["measure"]: row for row in stable.agreement.to_pylist()}
    # Replicates end a thousandth of an error from the maximum.
    assert by_name["spearman_intercept"]["mean"] == pytest.approx(
        np.mean(each), abs=0.01
    )
    assert by_name["kendall"]["lower"] == pytest.approx(1)  # All have all responses.
    assert stable.sentence.startswith("Rankings by items calibrated without one of")
    assert not stable.warnings


def test_every_kind_has_its_words():
    assert set(VARIED) == set(module._COMPARED) == set(module.KINDS) - {"starts"}


def test_families_are_left_out_or_drawn_whole():
    families = families_of(of_families(), "lab")
    left = module._weights(table(), "families", 50, KEY, families)
    np.testing.assert_array_equal(left, [FAMILIES != name for name in "abc"])
    drawn = module._weights(table(), "subjects", 50, KEY, families)
    for name in "abc":
        assert np.ptp(drawn[:, FAMILIES == name], axis=1).max() == 0
    assert (drawn[:, [0, 1, 3]].sum(axis=1) == 3).all()  # One of each family.
    assert len(np.unique(drawn, axis=0)) > 5


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("families", {}, "subjects have no families: give family="),
        ("families", {"family": "team"}, "no facet 'team' of subjects; there are: lab"),
        ("families", {"family": "lab", "num": 9}, "each family is left out once"),
        ("items", {"family": "lab"}, "kinds subjects and families, not items"),
    ],
)
def test_families_that_do_not_exist_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        irtjax.stability(of_families(), kind, **settings)


@pytest.mark.slow
def test_rounding_in_single_precision_breaks_no_tie():
    with jax.enable_x64(False):
        part = dataclasses.replace(of_families(), values=responses().astype(np.int8))
        stable = irtjax.stability(part, "families", family="lab", top=TOP)
    ranks = [row["rank"] for row in stable.table.to_pylist()]
    assert ranks == sorted(rankdata(-responses().sum(axis=1), "min").tolist())
    assert len(set(ranks)) < SUBJECTS
    assert stable.runs.column("kendall").to_pylist() == pytest.approx([1] * 3)


@pytest.mark.slow
def test_two_replicates_are_one_pair():
    stable = irtjax.stability(table(), "items", num=2, top=TOP, key=KEY)
    weight = module._weights(table(), "items", 2, KEY)
    between = tau(*ranks_by_sums(weight))
    rows = {row["measure"]: row for row in stable.agreement.to_pylist()}
    assert rows["kendall_between"]["mean"] == pytest.approx(between)
    assert f"Kendall's tau {between:.2f}" in stable.sentence
    good = np.array([True, False, True])
    assert partners("items", good).tolist() == [2, -1, -1]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [((1, 1, None), "All subjects are tied"), ((1, 2, None), "No two of these")],
)
def test_what_cannot_be_compared_is_said(ranks, message):
    rows = [{"rank": rank} for rank in ranks]
    said = module._sentence(table(), "items", [], rows, TOP, 0.95)
    assert said.startswith(message)


def test_few_responses_to_an_item_have_equal_discriminations():
    many = irtjax.ResponseTable.from_arrays(np.tile(responses(), (10, 1)))
    assert module._model(many, "auto")[0] == "2pl"
    model, note = module._model(table(), "auto")
    assert model == "1pl" and "8 responses" in note
    assert module._model(table(), "rasch") == ("rasch", "")


@functools.cache
def from_starts():
    return irtjax.stability(table(), "starts", num=4, variances=(1, 5), key=KEY)


@pytest.mark.slow
def test_starts_reach_the_optimum_of_the_fit():
    stable = from_starts()
    fit = irtjax.fit(table(), "2pl", "mm", positive=True, standard_errors="none")
    runs = stable.runs.to_pylist()
    assert len(runs) == 8 and all(row["at_best"] for row in runs)
    best = max(row["objective"] for row in runs)
    assert best == pytest.approx(fit.trace[-1], abs=1e-6)
    rows = stable.table.to_pylist()
    pairs = {(row["variance"], row["other_variance"]) for row in rows}
    assert pairs == {(1, 1), (5, 1), (5, 5)}
    abilities = [row["min"] for row in rows if row["quantity"] == "ability"]
    # Runs end within a relative residual of 1e-6 of one point.
    assert min(abilities) > 0.999
    assert not stable.warnings and stable.sentence.startswith("8 of 8 runs")


def test_reversed_runs_are_named(monkeypatch):
    run = starts._run_batch

    def turned(*given):
        ability, slope, intercept, objective, *more = run(*given)
        sign = np.where(np.arange(starts.BATCH) == 1, -1, 1)
        lower = objective - 3.0 * (sign < 0)
        return ability * sign[:, None], slope, intercept, lower, *more

    monkeypatch.setattr(starts, "_run_batch", turned)
    stable = irtjax.stability(table(), "starts", num=4, variances=(1, 5), key=KEY)
    flags = stable.runs.column("reversed").to_pylist()
    assert [k for k, flag in enumerate(flags) if flag] == [1, 5]
    assert stable.warnings[0].startswith("2 of 8 runs are reversed")
    assert stable.runs.column("gap").to_pylist()[1] == pytest.approx(3, abs=1e-6)


def test_spearman_of_all_pairs_is_scipys():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4, 30)).round(1)
    expected = np.asarray(spearmanr(values.T)[0])
    np.testing.assert_allclose(starts.spearman_matrix(values), expected, atol=1e-12)


def test_the_figure_has_names_or_a_band():
    figure = plot_rank_ribbons(found("items"))
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert set(names) == set(table().subjects)
    with pytest.raises(ValueError, match="starts have no rank intervals"):
        plot_rank_ribbons(from_starts())


def test_the_command_writes_tables_and_a_figure(tmp_path):
    path, out = tmp_path / "responses.csv", tmp_path / "out"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", *table().items])
        for name, row in zip(table().subjects, responses(), strict=True):
            writer.writerow([name, *row.astype(int)])
    command = ["stability", str(path), "--num", str(NUM), "--top", str(TOP)]
    result = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "Kendall's tau" in " ".join(result.output.split())
    written = {"stability.csv", "agreement.csv", "runs.csv", "stability.png"}
    assert {p.name for p in out.iterdir()} == written
    result = CliRunner().invoke(app, [*command, "--json"])
    content = json.loads(result.stdout)
    assert content["top"] == TOP and len(content["runs"]) == NUM
    result = CliRunner().invoke(app, [*command, "--kind", "nothing"])
    assert (
        result.exit_code == 2 and "--kind nothing is not one of items" in result.stderr
    )
    result = CliRunner().invoke(app, [*command, "--kind", "starts"])
    assert result.exit_code == 2 and "leave top out" in result.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "cells"}, "kind 'cells' is not one of items"),
        ({"num": 1}, "num 1: a comparison needs at least 2"),
        ({"top": 8}, "top 8: give 1 to 7 subjects"),
        ({"level": 95}, "level 95 is not between 0 and 1"),
        ({"kind": "starts", "variances": (0,)}, "variances"),
        ({"kind": "starts", "model": "rasch"}, "equal discriminations"),
        ({"kind": "starts", "top": 3}, "leave top out"),
        ({"kind": "starts", "level": 0.95}, "leave level out"),
        ({"kind": "benchmarks", "num": 2}, "leave num out"),
        ({"model": "multibenchmark"}, "needs one ability"),
        ({"model": "factor"}, "needs one ability"),
        ({"kind": "starts", "model": "factor"}, "needs one ability"),
        ({"model": irtjax.Factor(factors=2)}, "needs one ability"),
    ],
)
def test_what_cannot_be_compared_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        irtjax.stability(table(), **given)


def test_one_benchmark_cannot_be_left_out():
    single = irtjax.ResponseTable.from_arrays(responses())
    with pytest.raises(ValueError, match="one benchmark"):
        irtjax.stability(single, "benchmarks")


def test_bounds_of_scores_are_those_of_the_command(tmp_path, monkeypatch):
    seen = []

    def caught(table, *more, **options):
        seen.append(table)
        raise ValueError("enough")

    monkeypatch.setattr(module, "stability", caught)
    path = tmp_path / "scores.csv"
    path.write_text("model,item,score\na,x,0\na,y,50\nb,x,100\nb,y,25\n")
    done = CliRunner().invoke(app, ["stability", str(path), "--bounds", "0", "100"])
    assert done.exit_code == 2 and "enough" in done.stderr
    assert seen[0].values.tolist() == [[0.0, 0.5], [1.0, 0.25]]


def test_a_share_of_random_starts_is_that_of_batches_that_are_finished(monkeypatch):
    begun, ready = [], []

    def batch(problem, method, key, variance, max_steps, size):
        # About 50 ms, while JAX returns at once.
        slow = jax.lax.fori_loop(0, 40, lambda _, x: x @ x / 400, jnp.ones((400, 400)))
        begun.append(jnp.full(size, slow[0, 0]))
        return (begun[-1],) * 7

    monkeypatch.setattr(starts, "_run_batch", batch)
    monkeypatch.setattr(starts, "_described", lambda *given: given)
    monkeypatch.setattr(starts, "BATCH", 2)
    data = irtjax.Responses(jnp.ones((2, 2), jnp.int8))
    problem = irtjax.Problem.create(irtjax.MODELS["2pl"](), data)
    given = {"num": 4, "variances": [1.0], "key": jax.random.key(0)}
    with watching(lambda *_: ready.extend(x.is_ready() for x in begun)):
        starts.compare_starts(problem, MM(), **given, report=lambda _: None)
    assert len(begun) == 2 and ready and all(ready)

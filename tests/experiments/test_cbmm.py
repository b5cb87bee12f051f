"""The experiments on the cBMM paper: the printed algorithm, the designs, small runs."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, ndtr

import irtjax
from experiments.cbmm import (
    blocks,
    designs,
    figures,
    figures_1_to_3,
    math500,
    methods,
    real,
    run,
    simulations,
)
from experiments.cbmm.printed import printed
from irtjax.calibration.result_tables import AbilityTable


def test_a_step_of_the_printed_algorithm_is_lines_5_to_9():
    drawn = designs.simulated(12, 7, 0, pattern="mcar", rate=0.3)
    assert drawn.observed is not None
    y = np.where(drawn.observed, 2.0 * drawn.values - 1, 0)
    key = jax.random.key(2)
    keys = jax.random.split(key, 3)
    normal = [np.asarray(jax.random.normal(k, (n,), float))
              for k, n in zip(keys, (12, 7, 7), strict=True)]  # fmt: skip
    theta, a, b = normal[0], np.exp(normal[1]), normal[2]
    x = np.outer(theta, a) + b
    target = x + 4 * y * expit(-y * x)
    for j in range(7):
        seen = y[:, j] != 0
        least = np.linalg.lstsq(theta[seen, None], (target - b)[seen, j], rcond=None)
        a[j] = max(least[0][0], 0)
    b = (target - np.outer(theta, a)).mean(axis=0)
    theta = (target - b) @ a / (a @ a)
    found = printed(jnp.asarray(y), key, -1.0, max_steps=1)
    for part, expected in zip(found[:3], (theta, a, b), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12)


@pytest.mark.slow
def test_plain_joint_likelihood_has_one_optimum_by_two_methods():
    drawn = designs.simulated(60, 40, 0)
    found = {
        name: methods.fits(name, [drawn.values], None, [0])[0]
        for name in ("mm, penalty 0", "scipy")
    }
    for one in found.values():
        # Gradients in standard errors; both tolerances are far below this.
        assert methods.left_gradient(one, drawn.values, None) < 1e-2
    first, second = found.values()
    np.testing.assert_allclose(first.theta, second.theta, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["printed", "mm", "em", "gradient"])
def test_replicates_of_one_program_are_the_single_fits(name):
    drawn = [designs.simulated(30, 20, k, pattern="mcar", rate=0.1) for k in range(3)]
    values = [one.values for one in drawn]
    masks = [one.observed for one in drawn if one.observed is not None]
    together = methods.fits(name, values, masks, [4, 5, 6])
    for found, value, mask, seed in zip(
        together, values, masks, [4, 5, 6], strict=True
    ):
        (alone,) = methods.fits(name, [value], [mask], [seed])
        assert isinstance(found, methods.Found) and isinstance(alone, methods.Found)
        assert (found.steps, found.status) == (alone.steps, alone.status)
        np.testing.assert_allclose(found.theta, alone.theta, rtol=1e-9, atol=1e-9)
    # Another seed is another start of the printed algorithm.
    if name == "printed":
        (other,) = methods.fits(name, values[:1], masks[:1], [9])
        assert np.abs(other.theta - together[0].theta).max() > 1e-6


@pytest.mark.slow
def test_a_peer_that_fails_leaves_the_other_replicates(monkeypatch):
    def fails(values, observed, seed, temperature):
        if seed == 1:
            raise RuntimeError("too few categories")
        return methods.by_means(values, observed, seed, temperature)

    monkeypatch.setitem(methods.METHODS, "additive", fails)
    drawn = [designs.simulated(9, 8, k) for k in range(3)]
    rows = simulations.several("additive", drawn, range(3))
    assert [row["status"] for row in rows] == [
        "CONVERGED",
        "too few categories",
        "CONVERGED",
    ]
    assert rows[0]["seconds"] > 0 and "rmse_d" not in rows[1]


def test_missing_patterns():
    rng = np.random.default_rng(0)
    values = (rng.random((300, 200)) < 0.5).astype(np.int8)
    chance = designs.by_place(300, 200, 0.4)
    assert chance.mean() == pytest.approx(0.4, abs=1e-9)
    assert (np.diff(chance, axis=0) > 0).all() and (np.diff(chance, axis=1) > 0).all()
    seen = designs.mask(rng, values, "mnar", 0.3)
    assert seen is not None
    gated = ~seen.all(axis=0)
    # What is missing was wrong, and all that was wrong in these items is missing.
    np.testing.assert_array_equal(seen[:, gated], values[:, gated] == 1)
    assert abs(gated.mean() - 0.3) < 5 * (0.3 * 0.7 / 200) ** 0.5


def test_sizes_in_names():
    assert math500.billions("01_ai_yi_1.5_34b_chat_zero_shot") == 34
    assert math500.billions("meta_llama_3_8b") == 8
    assert math500.billions("openai_gpt_oss_mini") is None


def test_the_test_of_a_trend_by_its_definition():
    rng = np.random.default_rng(0)
    level = np.repeat([1, 2, 3, 4], [5, 9, 4, 7])
    value = rng.normal(size=25) + 0.3 * level
    pairs = [(x, y) for x in range(25) for y in range(25) if level[x] < level[y]]
    expected = sum(value[x] < value[y] for x, y in pairs)
    sizes = np.bincount(level)[1:]
    mean = (25**2 - np.sum(sizes**2)) / 4
    sd = ((25**2 * 53 - np.sum(sizes**2 * (2 * sizes + 3))) / 72) ** 0.5
    count, p_value = math500.jonckheere(level, value)
    assert count == expected
    assert p_value == pytest.approx(ndtr(-(count - mean) / sd), rel=1e-9)


def test_dates_of_a_file(tmp_path):
    file = tmp_path / "dates.csv"
    file.write_text("subject,date\na_7b,2024-01\nb_8b_one_shot,2024-12-31\nc_9b,\n")
    names = ["a_7b_zero_shot", "a_7b_one_shot", "b_8b_one_shot", "b_8b_zero_shot",
             "c_9b_one_shot"]  # fmt: skip
    date = math500.dates_of(file, names)
    assert date[:3].round(2).tolist() == [2024.04, 2024.04, 2025.0]
    assert np.isnan(date[3:]).all()
    size, date = np.array([7.0, 7, 8, 30, 30]), np.array([1.0, 2, 3, 4, np.nan])
    rows = math500.by_date(np.array([0.0, 0.5, 1, 0, 9]), size, date)
    assert [(row["quantity"], row["models"]) for row in rows[::2]] == [
        ("Spearman of ability and date, all", 4),
        ("Spearman of ability and date, medium", 3),
    ]
    assert rows[2]["value"] == 1 and rows[3]["value"] == pytest.approx(0.5)
    for text, message in (
        ("subject,when\na,1\n", "no column 'date'"),
        ("subject,date\na_7b,May 2024\n", "write 2024, 2024-09"),
        ("subject,date\nother,2024\n", "no subject of it"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            math500.dates_of(file, names)


def test_levels_of_a_file(tmp_path):
    items = [f"math500_{k:03d}" for k in range(6)]
    plain = tmp_path / "levels.jsonl"
    rows = [{"level": 1 + k // 2, "subject": "Algebra"} for k in range(6)]
    rows[5]["subject"] = "Geometry"
    plain.write_text("\n".join(map(json.dumps, rows)))
    level, subject = math500.levels_of(plain, items)
    assert level.tolist() == [1, 1, 2, 2, 3, 3] and subject[5] == "Geometry"
    named = tmp_path / "levels.csv"
    named.write_text("item,level,subject\nmath500_004,Level 5,Geometry\nx,1,y\n")
    level, subject = math500.levels_of(named, items)
    assert level.tolist() == [0, 0, 0, 0, 5, 0] and subject[4] == "Geometry"
    with pytest.raises(ValueError, match="2 rows without a column 'item', and 6"):
        named.write_text("level,subject\n1,a\n2,b\n")
        math500.levels_of(named, items)
    with pytest.raises(ValueError, match="no item of it"):
        named.write_text("item,level,subject\nq,1,a\n")
        math500.levels_of(named, items)


def test_difficulties_by_level():
    slope = np.array([1.0, 2, 1, 1, -1, 1])
    intercept = np.array([2.0, 2, 0, 1, -3, 9])
    level, subject = np.array([1, 1, 2, 2, 3, 0]), np.array([*"abab", "a", ""], object)
    rows = math500.by_level(slope, intercept, 0.5, level, subject)
    of = {(row["quantity"][:5], row["subject"]): row for row in rows}
    first = of["logit", "all"]
    # -(d + a / 2) is -2.5, -3, -0.5, -1.5 and 3.5.
    assert first["items"] == 5 and first["falls"] == 0
    assert [first[f"level {k}"] for k in (1, 2, 3)] == [-2.75, -1.0, 3.5]
    assert 0.9 < first["spearman"] < 1 and first["jonckheere_p"] < 0.05
    # -d / a of items with a > 0 is -2, -1, 0 and -1; d alone would fall in b.
    second = of["diffi", "all"]
    assert second["items"] == 4 and "level 3" not in second
    assert second["level 1"] == -1.5 and second["level 2"] == -0.5
    # Two items have no trend to test.
    assert ("diffi", "b") not in of and of["logit", "a"]["items"] == 3


def test_the_study_of_math500_with_both_files(tmp_path, monkeypatch):
    names = [f"{f}_{size}b_{prompt}" for f in "ab" for size in (3, 8, 30)
             for prompt in ("zero_shot", "one_shot")]  # fmt: skip
    drawn = designs.simulated(12, 10, 0).values
    table = irtjax.ResponseTable.from_arrays(drawn, subjects=names)
    # Its fit is that of other tests; here the figures of the paper are made of it.
    items = methods.record(np.full(10, 0.5), np.linspace(2, -2, 10))
    fit = SimpleNamespace(
        subject_names=np.array(names),
        abilities=AbilityTable(pa.table({"ability": np.arange(12.0)})),
        parameters=SimpleNamespace(items=items),
    )
    monkeypatch.setattr(math500, "responses", lambda scale: table)
    monkeypatch.setattr(irtjax, "fit", lambda *args, **options: fit)
    monkeypatch.setattr(run, "prepare", lambda: None)
    dates, levels = tmp_path / "dates.csv", tmp_path / "levels.csv"
    lines = [f"{f}_{size}b,20{20 + 2 * (f == 'b')}-0{k}" for f in "ab"
             for k, size in enumerate((3, 8, 30), 1)]  # fmt: skip
    dates.write_text("subject,date\n" + "\n".join(lines))
    rows = [f"{1 + k // 2},Algebra" for k in range(10)]
    levels.write_text("level,subject\n" + "\n".join(rows))
    more = ["--dates", str(dates), "--levels", str(levels), "--out", str(tmp_path)]
    found = run.main(["--small", "--only", "math500", *more])["math500"]
    values = {row["quantity"]: row.get("value") for row in found}
    assert values["Spearman of ability and date, large"] == pytest.approx(
        0.894, abs=0.01
    )
    difficulty = [row for row in found if "jonckheere_p" in row]
    assert [row["spearman"] for row in difficulty[::2]] == pytest.approx(
        [0.985] * 2, abs=0.01
    )
    assert (tmp_path / "math500.png").stat().st_size > 10_000
    assert (tmp_path / "math500.csv").read_text().count("\n") == len(found) + 1


def test_stability_has_the_chosen_suites_and_variances(monkeypatch):
    seen = []

    def stability(table, kind, *, num, variances):
        seen.append((table.num_items, num, list(variances)))
        run = {"at_best": True, "reversed": False, "steps": 3, "gap": 0.0}
        one = SimpleNamespace(to_pylist=lambda: [run, run | {"reversed": True}])
        pair = SimpleNamespace(to_pylist=lambda: [{"quantity": "ability", "mean": 1.0}])
        return SimpleNamespace(runs=one, agreement=pair, sentence="", warnings=())

    monkeypatch.setattr(irtjax, "stability", stability)
    monkeypatch.setattr(run, "prepare", lambda: None)
    monkeypatch.setattr(methods, "add_peers", list)
    drawn = {f"{k} (drawn)": np.eye(6, k, dtype=np.int8) for k in (5, 9)}
    monkeypatch.setattr(real, "suites", lambda *sizes, **more: drawn)
    common = ["--small", "--only", "stability", "--starts", "3"]
    rows = run.main(common)["stability"]
    assert seen == [(5, 3, [1, 2, 3, 4, 5]), (9, 3, [1, 2, 3, 4, 5])]
    assert [row["reversed"] for row in rows] == [1, 1] and rows[0]["runs"] == 2
    run.main([*common, "--suite", "9", "--variance", "4", "--variance", "5"])
    assert seen[2:] == [(9, 3, [4, 5])]
    with pytest.raises(ValueError, match="no suite is called"):
        run.main([*common, "--suite", "arc"])


def test_the_relation_of_variation_and_rank_correlation(monkeypatch):
    monkeypatch.setattr(real, "RESAMPLES", 300)
    rng = np.random.default_rng(0)
    ability = rng.normal(size=40)
    found = real.top(ability, ability + 0.3 * rng.normal(size=40))
    assert found["top_lower"] < found["spearman_top_fifth"] < found["top_upper"] <= 1
    names = ["gsm8k", "a (drawn)", "b (drawn)", "c (drawn)", "a (drawn, 64)",
             "b (drawn, 64)", "c (drawn, 64)"]  # fmt: skip
    rows = [
        {"suite": name, "cv": cv, "spearman": 1 - cv, "spearman_top_fifth": cv}
        for name, cv in zip(names, (0.1, 0.2, 0.3, 0.4, 0.9, 0.8, 0.7), strict=True)
    ]
    found = real.relations(rows)
    # Each has the real suite and the three suites of its own draws.
    assert [row["subjects"] for row in found] == [4] * 4
    assert [row["relation"] for row in found] == pytest.approx([-1, 1, -1, 1])
    # One of 24 orders is as extreme as -1, and all are as extreme as 1.
    assert 0.01 < found[0]["p_value"] < 0.09 and found[1]["p_value"] == 1
    assert found[2]["suite"].endswith("64 factors")


def test_means_are_over_replicates():
    rows = [
        {"rows": 5, "replicate": k, "method": "em", "value": float(k), "plain": None}
        for k in range(3)
    ]
    assert run.means(rows) == [
        {"rows": 5, "method": "em", "value": 1.0, "replicates": 3}
    ]


def test_methods_are_chosen_and_replicates_are_added(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "prepare", lambda: None)
    monkeypatch.setattr(methods, "add_peers", list)

    def measures(name, drawn, found):
        values = {"rmse_d": drawn.values.mean() / 3, "gap": 1e-5 * drawn.values.sum()}
        return {"status": "CONVERGED", "gradient": None} | values

    monkeypatch.setattr(simulations, "measures", measures)
    drawn = []
    monkeypatch.setattr(figures, "draw", lambda *given: drawn.append(given))
    common = ["--small", "--only", "temperature", "--out", str(tmp_path)]
    common += ["--method", "additive"]
    first = run.main(common)["temperature"]
    assert [row["method"] for row in first] == ["additive"]
    both = run.main([*common, "--first", "1"])["temperature"]
    assert [row["replicate"] for row in both] == [0, 1]
    # What was read from the file is what was written to it, and the seeds differ.
    assert both[0]["rmse_d"] == first[0]["rmse_d"] != both[1]["rmse_d"]
    assert both[0]["status"] == "CONVERGED" and both[0]["gradient"] is None
    assert len(run.read(tmp_path / "temperature.csv")) == 2
    # The figures have the rows of the file, not of this run alone.
    assert [(study, len(rows)) for _, study, rows in drawn] == [
        ("temperature", 1),
        ("temperature", 2),
    ]
    with pytest.raises(SystemExit):
        run.main(["--small", "--method", "nls"])
    assert "--method 'nls' is not one of printed, mm" in capsys.readouterr().err


def test_boxplots_have_a_box_for_each_setting_and_method():
    rng = np.random.default_rng(0)
    rows = [
        {"rows": n, "columns": j, "method": method, "level": None, "replicate": k}
        | {name: float(rng.random()) for name, *_ in figures.MEASURES}
        for n, j in ((5, 2), (5, 5), (5, 9), (2, 5), (9, 5))
        for method in ("mm", "em")
        for k in range(figures.FEWEST)
    ]
    for row in rows:
        if row["method"] == "em":
            row["spearman_a"] = float("nan")  # No boxes of a method without numbers.
    drawing = figures.STUDIES["sizes"]["items"]
    mine = [row for row in rows if drawing.keeps(row, rows)]
    assert {row["columns"] for row in mine} == {2, 5, 9}
    assert {row["rows"] for row in mine} == {5}
    figure = figures.boxplots(mine, drawing)
    panels = figure.axes
    assert [len(axes.patches) for axes in panels] == [6, 3, 6, 6, 6, 6]
    assert [x.get_text() for x in panels[0].get_xticklabels()] == ["2", "5", "9"]
    assert [axes.get_yscale() for axes in panels[1:3]] == ["linear", "log"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["mm", "em"]
    # The line of a box's median is at the median of its rows.
    values = [x["rmse_d"] for x in mine if x["columns"] == 2 and x["method"] == "mm"]
    lines = [line.get_ydata() for line in panels[2].lines]
    assert any(np.allclose(y, np.median(values)) for y in lines if len(y) == 2)


def test_few_replicates_are_points_in_the_colour_of_their_method():
    rows = [
        {"log10_s": s, "method": method, "replicate": k}
        | {name: 1.0 + k + (method == "em") for name, *_ in figures.MEASURES}
        for s in (-0.5, 0.5)
        for method in ("mm", "em")
        for k in range(2)
    ]
    for given in (rows, [row for row in rows if row["replicate"] == 0]):
        figure = figures.boxplots(given, figures.STUDIES["temperature"][""])
        axes = figure.axes[0]
        assert not axes.patches
        points = [x for x in axes.lines if x.get_marker() == "o"]
        assert [x.get_color() for x in points] == ["C0", "C1"]
        ours = sorted(row["rmse_d"] for row in given if row["method"] == "mm")
        np.testing.assert_allclose(sorted(points[0].get_ydata()), ours)
        # Side by side at each setting.
        assert (points[0].get_xdata() < points[1].get_xdata()).all()
        assert [x.get_color() for x in figure.legends[0].legend_handles] == ["C0", "C1"]


def test_seconds_have_means_ranges_and_speedups(tmp_path):
    seconds = {"mm": (1.0, 3.0), "scipy": (20.0, 20.0), "py-irt (variational)": (50.0,)}
    seconds |= {"mm, 1e-4": (1.0,), "scipy, 1e-4": (4.0,), "printed": (2.0,)}
    rows = [
        {"items": float(items), "method": name, "processor_seconds": items * second}
        for items in (541, 1192)
        for name, values in seconds.items()
        for second in values
    ]
    rows.append({"items": 1192.0, "method": "scipy", "status": "failed"})
    left, right = (figures_1_to_3.speed(rows).axes[k] for k in range(2))
    names = [text.get_text() for text in left.get_legend().get_texts()]
    assert names == ["mm", "scipy", "py-irt (variational)"]
    line, _, (bars,) = left.containers[0]
    np.testing.assert_allclose(line.get_ydata(), [2 * 541, 2 * 1192])
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [541, 3 * 541])
    labels = [text.get_text() for text in left.get_xticklabels()]
    assert labels == ["541\nIFEval", "1,192\nGPQA"] and len(right.containers) == 3
    # The fastest baseline over ours; the printed algorithm is the paper's own.
    heights = [[b.get_height() for b in x.patches] for x in left.figure.axes[2:]]
    np.testing.assert_allclose(heights, [[10, 10], [4, 4]])
    (path,) = figures.draw(tmp_path, "speed", rows)
    assert path.name == "speed.png" and path.stat().st_size > 10_000


def test_levels_have_a_box_each_overall_and_by_subject():
    level = np.array([1, 1, 2, 2, 0, 5])
    subject = np.array(["Geometry", "Algebra"] * 3, object)
    value = np.array([0.0, 1.0, 2.0, 5.0, 99.0, 7.0])
    panels = [x for x in figures_1_to_3.levels(value, level, subject).axes if x.axison]
    titles = [axes.get_title() for axes in panels]
    assert titles == ["all (5 items)", "Algebra (3 items)", "Geometry (2 items)"]
    (medians,) = (x for x in panels[0].lines if x.get_linestyle() == ":")
    np.testing.assert_allclose(medians.get_xydata(), [[1, 0.5], [2, 3.5], [5, 7]])


def test_abilities_by_date_name_the_ablest_and_the_weakest_large_model():
    names = [
        f"maker_{k}b_{shot}_shot" for k in range(20, 26) for shot in ("zero", "one")
    ]
    ability = np.repeat(np.arange(6.0), 2) + np.tile([0, 0.1], 6)
    size, date = np.repeat(np.arange(20.0, 26), 2), np.linspace(2024, 2025, 12)
    pairs = [(0, 1), (2, 3)]
    panels = figures_1_to_3.abilities(ability, names, size, date, pairs).axes
    written = [text.get_text() for text in panels[2].texts]
    assert written == ["25b", "24b", "23b", "20b"] and not panels[0].texts
    assert len(panels[2].lines) == 2
    by_size = figures_1_to_3.abilities(ability, names, size, None, pairs).axes[2]
    assert by_size.get_xscale() == "log"


def test_release_dates_name_models_of_the_responses(shared_data):
    folder = Path(math500.__file__).parent
    names = math500.responses(simulations.SCALES["small"]).subjects.tolist()
    date = math500.dates_of(folder / "release_dates.csv", names)
    # All but three of the 79 models, each with two prompts.
    assert np.isfinite(date).sum() == 152 and len(names) == 158
    assert 2023.5 < np.nanmin(date) and np.nanmax(date) < 2025.8


def test_the_figure_of_discriminations_has_bars_of_intervals(tmp_path):
    rows = [
        {"suite": name, "cv": cv, "cv_corrected": cv - 0.1, "cv_lower": cv - 0.2,
         "cv_upper": cv, "spearman": 1 - cv / 3, "lower": 0.4, "upper": 1 - cv / 4,
         "spearman_top_fifth": 0.5, "top_lower": 0.3, "top_upper": 0.6}
        for name, cv in (("gsm8k", 0.3), ("bbh (drawn)", 0.5), ("bbh (drawn, 64)", 0.9))
    ]  # fmt: skip
    rows.append({"suite": "relation of CV and spearman, 16 factors", "relation": -1.0})
    left, right = figures.discriminations(rows).axes
    first, second = left.containers
    np.testing.assert_allclose(first[0].get_xydata(), [[0.2, 0.9], [0.4, 1 - 0.5 / 3]])
    np.testing.assert_allclose(second[0].get_xydata(), [[0.8, 0.7]])
    ((_, low), (_, high)) = right.containers[1][2][1].get_segments()[0]
    assert (low, high) == pytest.approx((0.3, 0.6))
    assert [text.get_text() for text in left.texts] == ["gsm8k", "bbh", "bbh"]
    (path,) = figures.draw(tmp_path, "discrimination", rows)
    assert path.name == "discrimination.png" and path.stat().st_size > 10_000


def test_the_curve_of_the_path_has_the_means_by_level():
    points = {0.5: (1.0, 0.7), 0.05: (0.9, 0.95)}
    rows = [
        {"zeros": 0.3, "method": "l1 path", "level": level, "replicate": k,
         "recall": recall, "precision": precision + 0.01 * (2 * k - 1)}
        for level, (recall, precision) in points.items() for k in range(2)
    ]  # fmt: skip
    (axes,) = figures.precision_recall([*rows, {"method": "audit"}]).axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_xydata(), [[1.0, 0.7], [0.9, 0.95]])


def test_shifts_leave_out_items_without_variation():
    drawn = designs.simulated(50, 6, 0)
    items, theta = drawn.truth
    values, observed = drawn.values.copy(), np.ones((50, 6), bool)
    observed[:, 0] = values[:, 0] == 1  # A gated item.
    mean, sd = theta.mean(), theta.std()
    gap = jnp.array([99] + 5 * [2])
    moved = items._replace(
        intercept=items.intercept + items.discrimination * mean + gap
    )
    found = methods.Found(moved, (theta - mean) / sd + 3, 1, "CONVERGED")
    drawn = drawn._replace(observed=observed)
    assert simulations.shifts(drawn, found) == pytest.approx((3, 2), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("study", list(run.STUDIES))
def test_studies_small(study, tmp_path, capsys, monkeypatch):
    # On simulated stand-ins, whether or not the shared data are there.
    monkeypatch.setattr(designs, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(math500, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(run, "prepare", lambda: None)
    real.fitted.cache_clear()
    rows = run.main(["--small", "--only", study, "--out", str(tmp_path)])[study]
    assert study in capsys.readouterr().out
    with (tmp_path / f"{study}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    if study == "degenerate":
        assert all(row["finite"] for row in rows)
    if study == "coverage":
        # One data set: its subjects share the error of the axes.
        assert {row["method"] for row in rows} == {"mm", "em"}
        assert all(row["ability_coverage"] > 0.8 for row in rows)
    if study == "missing":
        rises = {r["rate"]: r["runs_that_rise"] for r in rows if "runs_that_rise" in r}
        assert rises[0.0] == rises[0.5] == 0
    if study == "redundancy":
        path = [row for row in rows if row["method"] == "l1 path"]
        assert path[0]["level"] == 0.5 and path[0]["recall"] == 1
        assert path[-1]["precision"] >= path[0]["precision"]
        (kept,) = (row for row in rows if row["method"] == "l1 path, 5 % false")
        assert kept["precision"] > 0.9
    if study == "speed":
        sizes = {row["method"]: row["gb"] for row in rows}
        # At least the responses, in bytes; a few matrices of floats at the most.
        assert {"mm", "mm, 1e-4", "scipy, 1e-4"} <= set(sizes)
        cells = rows[0]["subjects"] * rows[0]["items"]
        assert all(cells <= 1e9 * size <= 200 * cells for size in sizes.values())
    if study in figures.STUDIES:
        names = [f"{study}*{x}.png" for x in figures.STUDIES[study]]
        names += ["speed.png"] * (study == "speed")
        assert all(list(tmp_path.glob(name)) for name in names)


def test_the_sizes_of_a_full_run_are_those_of_the_paper():
    full = simulations.SCALES["full"]
    assert full.replicates == 50 and full.fixed == 1000
    assert tuple(full.sizes) == (200, 500, 1000, 2000, 5000)
    assert tuple(full.speed) == (541, 756, 1192, 1324, 5761, 12032)


def test_blocks_of_missing_responses():
    rows = blocks.main(["--tables", "3"])
    assert len(rows) == len(blocks.SETTINGS) + len(blocks.SEVERAL)
    masks = blocks.main(["--tables", "1", "--masks"])
    assert list(masks) == list(rows) and masks != rows
    related = rows["strong subjects run the second, 3 % fail"]
    # Of three tables at least two have the benchmarks flagged as a whole.
    assert related["any"] >= 0.6 and related["others"] > 0.3
    values, seen = blocks.draw(np.random.default_rng(0), fail=0.1)
    first, second = seen[:, :20].any(1), seen[:, 20:].any(1)
    assert first.mean() > 0.8 and 0.1 < second.mean() < 0.35
    assert not values[~seen].any()

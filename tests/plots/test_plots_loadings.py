"""Figures of factor models and clusters: what is drawn, and for any size."""

import dataclasses
import types
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from irtjax import plots
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.factors import Factors
from irtjax.plots.clusters import twins
from irtjax.plots.loadings import ARROWS, NAMED_ITEMS, _spread_out
from irtjax.validity.heterogeneity import Heterogeneity


class Fit(types.SimpleNamespace):
    """The parts of a calibration, and what else a test states."""

    part, require, factors = Calibration.part, Calibration.require, Calibration.factors


def fit_of(items: int, factors: int = 3, subjects: int = 80) -> Any:
    """What the figures read of a calibration."""
    rng = np.random.default_rng(0)
    structure = 0.3 * rng.normal(size=(items, factors))
    structure[np.arange(items), np.arange(items) % factors] = 0.7
    ability = rng.normal(size=(subjects, factors))
    found = Factors(
        names=np.array([f"factor_{k + 1}" for k in range(factors)]),
        loadings=structure,
        loadings_error=None,
        structure=structure,
        communality=np.full(items, 0.5),
        correlation=np.eye(factors) * 0.8 + 0.2,
        ability=ability,
        covariance=np.zeros((subjects, factors, factors)),
        mean=ability,
        spread=np.zeros((subjects, factors, factors)),
        rotation="oblimin",
        share_at_best=1.0,
    )
    names = np.array([f"item $x_{k}" for k in range(items)])
    benchmarks = np.array([f"b{k % 2}" for k in range(items)])
    return Fit(parts=(found,), item_names=names, benchmarks=benchmarks)


def clusters_of(fit, count: int) -> Heterogeneity:
    """Clusters of two benchmarks: of b0 `count`, of b1 one; item 0 is in none."""
    cluster = [None if k == 0 else 1 + (k // 2) % count * (k % 2 == 0)
               for k in range(len(fit.item_names))]  # fmt: skip
    items = {"item": fit.item_names, "benchmark": fit.benchmarks, "cluster": cluster}
    rng, subjects = np.random.default_rng(1), 30
    score = np.clip(rng.normal(0.5, 0.2, size=(subjects, count)), 0, 1)
    score[:2] = 0.5
    score[0, :2] += [0.4, -0.4][:count]
    score[1, :2] -= [0.4, -0.4][:count]
    scores = {
        "subject": np.repeat([f"m{k}" for k in range(subjects)], count),
        "benchmark": ["b0"] * score.size,
        "cluster": np.tile(np.arange(1, count + 1), subjects),
        "accuracy": score.ravel(),
        "observed": [20] * score.size,
    }
    number = {"correlation_lower": 0.1, "correlation_upper": 0.5, "compared": True}
    pairs = [
        {"benchmark": "b0", "cluster_1": g, "cluster_2": h}
        | {"correlation": 0.1 * g if g + h > 3 else -0.3}
        | number
        for g in range(1, count + 1)
        for h in range(g + 1, count + 1)
    ]
    band = {"band_lower": 0.9, "band_upper": 1.0}
    rows = [
        {"benchmark": "b0", "clusters": count, "smallest": -0.3} | band,
        {"benchmark": "b1", "clusters": 1, "smallest": None} | band,
    ]
    rows = [row | {"items": 9, "verdict": "related skills"} for row in rows]
    sizes = [
        {"benchmark": name, "cluster": k + 1, "items": 5}
        for name, most in (("b0", count), ("b1", 1))
        for k in range(most)
    ]
    tables = (rows, sizes, pairs)
    table, parts, found = (pa.Table.from_pylist(x) for x in tables)
    return Heterogeneity(
        table, pa.table(items), parts, found, pa.table(scores), 0.95, 39
    )


def drawn(figure, path) -> None:
    assert plots.save_figure(figure, path, dpi=40).read_bytes()[:4] == b"\x89PNG"


def test_structure_is_sorted_by_cluster(tmp_path):
    fit = fit_of(41)
    found = clusters_of(fit, 3)
    figure = plots.plot_structure(fit, found)
    axes = figure.axes[0]
    data = np.asarray(axes.images[0].get_array())
    rows = found.items.to_pylist()
    keys = [(row["benchmark"], row["cluster"]) for row in rows if row["cluster"]]
    assert len(data) == len(keys) == 40
    # Within a block stand the items of one cluster, in the order of the names.
    sizes = {key: keys.count(key) for key in sorted(keys)}
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [f"{b} {c} ({n})" for (b, c), n in sizes.items()]
    first = np.array([k for k, row in enumerate(rows) if row["benchmark"] == "b0"
                      and row["cluster"] == 1])  # fmt: skip
    block = data[: len(first)]
    expected = fit.factors.structure[first]
    np.testing.assert_allclose(np.sort(block, axis=0), np.sort(expected, axis=0))
    drawn(figure, tmp_path / "s.png")
    plain = plots.plot_structure(fit).axes[0]
    assert np.asarray(plain.images[0].get_array()).shape == (41, 3)
    assert plain.texts[0].get_text() == "41 items, oblimin rotation"
    fit.parts = (dataclasses.replace(fit.factors, rotation="none"),)
    plain = plots.plot_structure(fit).axes[0]
    assert plain.texts[0].get_text() == "41 items, not rotated"


@pytest.mark.parametrize("items", [ARROWS, 1000])
def test_biplot_has_every_subject_and_item(tmp_path, items):
    fit = fit_of(items, subjects=700 if items > ARROWS else 80)
    figure = plots.plot_biplot(fit, factors=(3, 1))
    axes = figure.axes[0]
    points = [np.asarray(c.get_offsets()) for c in axes.collections
              if type(c).__name__ == "PathCollection"]  # fmt: skip
    np.testing.assert_array_equal(points[0], fit.factors.ability[:, [2, 0]])
    ends = np.concatenate(points[1:])
    assert len(ends) == items
    # The items of one benchmark after the other, on one scale.
    order = np.argsort(fit.benchmarks, kind="stable")
    loadings = fit.factors.loadings[order][:, [2, 0]]
    scale = np.linalg.norm(ends) / np.linalg.norm(loadings)
    np.testing.assert_allclose(ends, scale * loadings)
    arrows = [c for c in axes.collections if type(c).__name__ == "LineCollection"]
    assert bool(arrows) == (items <= ARROWS)
    named = [t for t in axes.texts if t.get_text().startswith("item ")]
    assert 1 <= len(named) <= (ARROWS if items <= ARROWS else NAMED_ITEMS)
    # Names lie inside the axes and not on each other.
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in named]
    frame = axes.get_window_extent()
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])
    drawn(figure, tmp_path / "b.png")


def test_a_strong_item_that_stands_alone_has_its_name():
    rng = np.random.default_rng(0)
    # Forty strong items on one factor, and a weaker one on the other.
    ends = np.column_stack([rng.uniform(0.7, 1, 41), rng.uniform(-0.2, 0.2, 41)])
    ends[17] = [0.05, 0.7]
    named = _spread_out(ends, np.linalg.norm(ends, axis=1), NAMED_ITEMS)
    assert 17 in named[:2] and len(named) <= NAMED_ITEMS


def test_factors_that_are_not_there_are_refused():
    fit = fit_of(12)
    for pair in ((1, 1), (0, 1), (1, 4)):
        with pytest.raises(ValueError, match="two factors, from 1 to 3"):
            plots.plot_biplot(fit, factors=pair)
    none: Any = Fit(parts=())
    for plot in (plots.plot_biplot, plots.plot_structure):
        with pytest.raises(ValueError, match="no factors: fit model='factor'"):
            plot(none)


@pytest.mark.parametrize("count", [2, 6, 12])
def test_correlations_of_clusters_and_two_profiles(tmp_path, count):
    found = clusters_of(fit_of(60), count)
    figure = plots.plot_clusters(found)
    # A matrix, the profiles and the scale of colours; b1 is one cluster.
    assert len(figure.axes) == 3
    matrix = np.asarray(figure.axes[0].images[0].get_array())
    assert matrix[0, 1] == matrix[1, 0] == -0.3 and np.isnan(matrix[0, 0])
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any(text.startswith("-.30") for text in texts) == (count <= 10)
    assert any("related skills; one skill: .90 … 1.00" in text for text in texts)
    pair = twins(found, "b0")
    assert pair is not None and pair.subjects == ("m0", "m1")
    assert abs(pair.mean[0] - pair.mean[1]) < 0.01
    drawn(figure, tmp_path / "c.png")


def test_one_cluster_everywhere_is_stated(tmp_path):
    found = clusters_of(fit_of(20), 1)
    figure = plots.plot_clusters(found)
    assert "every benchmark is one cluster" in figure.axes[0].texts[0].get_text()
    drawn(figure, tmp_path / "c.png")

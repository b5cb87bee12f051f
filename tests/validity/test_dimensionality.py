"""How many abilities: planted numbers, the certificate, the command line."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.estimators.noise_rank import fit_factors, rank_above_noise
from irtjax.numerics import compiling
from irtjax.numerics.progress import watching
from irtjax.plots import plot_dimensions
from irtjax.validity import dimensionality
from irtjax.validity.dimensionality import Dimensions, _HeldOut

SUBJECTS, ITEMS = 150, 30


@functools.cache
def table_of(factors: int) -> irtjax.ResponseTable:
    """Items of simple structure on so many factors, a tenth of the cells missing."""
    rng = np.random.default_rng(7)
    eta = rng.normal(size=(SUBJECTS, ITEMS)) * 0 + rng.normal(size=ITEMS)
    if factors:
        theta = rng.normal(size=(SUBJECTS, factors))
        eta = eta + 2.0 * theta[:, np.arange(ITEMS) % factors]
    right = (rng.random(eta.shape) < expit(eta)).astype(np.int8)
    return irtjax.ResponseTable.from_arrays(right, observed=rng.random(eta.shape) < 0.9)


@functools.cache
def found_of(factors: int):
    return irtjax.dimensions(table_of(factors), most=3)


@pytest.mark.parametrize(
    "factors", [*(pytest.param(x, marks=pytest.mark.slow) for x in (0, 1)), 2]
)
def test_the_planted_number_is_found(factors):
    found = found_of(factors)
    # Ten responses to each of the three factors fitted in vain: held-out cells and
    # permuted responses decide without doubt at slopes of 2, and at slopes of 0.
    assert found.chosen == found.by_parallel == factors
    assert found.by_penalty == factors and found.by_jic == factors
    assert found.sentence.startswith(f"Use {factors} factor")


def test_the_largest_number_tried_is_a_lower_bound():
    found = found_of(2)
    # As if no more than two had been tried.
    short = dataclasses.replace(found, table=found.table.slice(0, 3))
    assert short.most == 2 and found.most == 3
    assert short.sentence.startswith("Use 2 factors or more: fewer predict held-out")
    assert "2 is the largest number tried, so try more. (Best at" in short.sentence
    assert "JIC at least 2; parallel analysis at least 2; rank" in short.sentence
    assert "noise at least 2.)" in short.sentence
    assert "at least" not in found.sentence


@pytest.mark.parametrize("slope", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_ten_subjects_have_one_ability_or_none(slope):
    rng = np.random.default_rng(2)
    ability, easy = rng.normal(size=(10, 1)), rng.normal(0, 1.2, 80)
    chance = 1 / (1 + np.exp(-slope * ability - easy))
    right = rng.random(chance.shape) < chance
    found = irtjax.dimensions(irtjax.ResponseTable.from_arrays(right))
    # Fewer than half as many factors as subjects are tried.
    assert found.most == 4 and found.chosen == int(slope)


@pytest.mark.parametrize(("gain", "chosen"), [(0.1, 1), (0.003, 0), (-0.1, 0)])
def test_one_factor_that_orders_held_out_responses_is_kept(gain, chosen):
    """Joint estimates from few subjects are too sure, but in order."""
    noise = np.array([-1, 0, 1, -1, 1])[:, None] * 0.01
    height = np.tile([-0.65, -0.67, -0.8], (5, 1)) + noise * [0, 1, 1]
    area = np.tile([0.65, 0.65 + gain, 0.6], (5, 1)) + noise * [0, 1, 1]
    area[4] = np.nan  # Of a fold whose responses are all right.
    out = _HeldOut(height, area)
    assert out.losses.chosen == 0 and out.chosen == chosen
    rows = found_of(2).table.slice(0, 3).set_column(4, "auc", [out.mean_area])
    found = Dimensions(rows, out.chosen, 0, 1, 1, 1, 1.0, (), bool(chosen))
    start = "Use 1 factor: it orders" if chosen else "Use 0 factors: more do not"
    assert found.sentence.startswith(start)


def test_the_rank_at_the_penalty_of_noise_is_proven():
    # q is 1 at the global maximum and never below, up to the tolerance of the fit.
    assert found_of(2).certificate == pytest.approx(1, abs=2e-3)


def test_from_the_bottom_up_the_rank_is_the_same():
    dtype = jnp.zeros(()).dtype
    data = table_of(2).responses(dtype).with_mask()
    found = rank_above_noise(data, 3, dtype, jax.random.key(0))
    assert found.rank == 2 and found.certificate == pytest.approx(1, abs=2e-3)


def test_rows_and_the_figure():
    found = found_of(2)
    rows = found.table.to_pylist()
    assert [row["factors"] for row in rows] == [0, 1, 2, 3]
    assert rows[found.best]["loss"] == 0 and rows[0]["eigenvalue"] is None
    assert all(row["loss"] >= 0 for row in rows)
    # More factors fit the cells that they see better, by whatever they cost.
    heights = [row["log_likelihood"] for row in rows]
    assert heights == sorted(heights)
    jic = [-2 * x + k * SUBJECTS * np.log(table_of(2).num_observed / SUBJECTS)
           for k, x in enumerate(heights)]  # fmt: skip
    np.testing.assert_allclose([row["jic"] for row in rows], jic)
    low, high = (
        np.array([row[name] for row in rows[1:]])
        for name in ("eigenvalue_permuted_lower", "eigenvalue_permuted")
    )
    assert (low < high).all()
    figure = plot_dimensions(found)
    assert len(figure.axes) == 2
    # The band of the scree, between these quantiles.
    (band,) = figure.axes[1].collections
    edge = band.get_paths()[0].vertices[:, 1]
    assert edge.min() == low.min() and edge.max() == high.max()
    assert figure.axes[1].get_yscale() == "linear"
    # One eigenvalue that is much larger than all others would flatten the band.
    place = found.table.column_names.index("eigenvalue")
    steep = [None, 100.0, *(row["eigenvalue"] for row in rows[2:])]
    table = found.table.set_column(place, "eigenvalue", [steep])
    scree = plot_dimensions(dataclasses.replace(found, table=table)).axes[1]
    assert scree.get_yscale() == "log"


def test_numbers_are_those_of_another_method():
    # By MM at a KKT residual of 1e-7. Here fits end at a gradient of 3e-4 standard
    # errors; the smallest standard error of a loss is 4e-3.
    rows = found_of(2).table
    held_out = [-0.6330452954505341, -0.5609638012813977, -0.46702250204060797,
                -0.4868312667405303]  # fmt: skip
    height = [-2534.17691634668, -2018.5427364499556, -1501.4390731739961,
              -1354.0455970176467]  # fmt: skip
    for name, wanted, within in (
        ("held_out", held_out, 1e-5),
        ("log_likelihood", height, 5e-3),
    ):
        np.testing.assert_allclose(rows[name].to_pylist(), wanted, rtol=0, atol=within)
    # Of factors that have not quite vanished: q is 1 at the optimum.
    assert found_of(2).certificate == pytest.approx(1.00000025, abs=2e-5)


@pytest.mark.slow
def test_all_fits_are_one_program_of_few_steps(monkeypatch):
    """What made it take minutes: programs for each fit, and fits that do not end."""
    table, fits, spent = table_of(2), [], []
    # Another shape than in other tests: nothing is compiled yet.
    table = table.select(subjects=np.arange(SUBJECTS - 7))
    compiling.watch()

    def noted(*given):
        spent.append(compiling.seconds())
        fits.append(fit_factors(*given))
        return fits[-1]

    monkeypatch.setattr(dimensionality, "fit_factors", noted)
    irtjax.dimensions(table, most=3)
    # 3 sizes in each of 5 folds, and 4 of all cells. The first fit and the prediction
    # by it are compiled; only means of all cells come between folds and all cells.
    assert len(fits) == 5 * 3 + 4 and spent[1] > spent[0]
    assert len(set(spent[1:15])) == 1 and len(set(spent[15:])) == 1
    assert {int(fit.status) for fit in fits} == {irtjax.Status.CONVERGED}
    assert sum(int(fit.num_steps) for fit in fits) < 2500


def test_progress_is_the_share_of_the_whole():
    shares, phases = [], []
    with watching(lambda share, name: shares.append(share)):
        irtjax.dimensions(table_of(2), most=3, progress=phases.append)
    # To the end, without a fall: what is left is estimated from it.
    assert shares[0] == 0 and shares[-2:] == [1, None]
    assert shares[:-1] == sorted(shares[:-1]) and len(set(shares)) > 20
    assert phases[-1] == "rank at the penalty of noise"


def test_the_command_line(tmp_path):
    table = table_of(1)
    lines = ["subject," + ",".join(table.items)]
    for subject, row, seen in zip(
        table.subjects, table.values, table.observed, strict=True
    ):
        cells = (str(x) if y else "" for x, y in zip(row, seen, strict=True))
        lines.append(f"{subject}," + ",".join(cells))
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["dimensions", str(tmp_path / "wide.csv"), "--most", "3", "--json"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "found")])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["chosen"] == 1 and len(content["rows"]) == 4
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert names == {"dimensions.csv", "dimensions.png"}


@pytest.mark.parametrize(
    ("values", "most", "message"),
    [
        (np.full((4, 5), 0.5), 1, "right or wrong, not continuous: choose a 0/1"),
        (np.eye(4), 4, "most 4: give 1 to 3 factors for 4 subjects and 4 items"),
        (np.eye(4), 0, "most 0: give 1 to 3 factors"),
        (np.eye(4)[:, [0, 0, 0, 0]] * [1, 1, 0, 0], 1, "wrong; there are 2 of 4"),
    ],
)
def test_what_cannot_be_answered_is_refused(values, most, message):
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.dimensions(irtjax.ResponseTable.from_arrays(values), most=most)
    assert "\n" not in str(refused.value)

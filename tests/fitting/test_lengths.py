"""From files of responses and lengths to a fit, scores and back."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy import optimize, stats
from typer.testing import CliRunner

import irtjax
from irtjax import plots
from irtjax.calibration.parts.lengths import ability_columns
from irtjax.cli.app import app
from irtjax.inference import (
    evidence_moves,
    length_covariance,
    score_on_nodes,
    speed_error,
)
from irtjax.inference import length_errors as lengths_of
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import latency_response
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Population
from irtjax.models.simulate import (
    simulate,
    simulate_abilities,
    simulate_items,
    simulate_length_items,
    simulate_log_lengths,
)
from irtjax.numerics import progress
from irtjax.numerics.kernels import equal_nodes
from irtjax.storage import FIT_FILES
from tests.estimators.marginal.test_lart import drawn
from tests.tables import fit_with, marginal_method

SUBJECTS, ITEMS, RHO = 120, 15, -0.7


@functools.cache
def table() -> irtjax.ResponseTable:
    keys = jax.random.split(jax.random.key(3), 5)
    model = latency_response()
    items = simulate_items(model, ITEMS, keys[0], discrimination=(0.6, 1.4))
    theta = simulate_abilities(SUBJECTS, keys[1])
    parameters = LengthParameters(
        simulate_length_items(ITEMS, keys[2]), jnp.asarray(RHO)
    )
    log_length, _ = simulate_log_lengths(parameters, theta, keys[3])
    data = simulate(model, items, theta, keys[4])
    lengths = np.rint(np.exp(np.asarray(log_length)))
    lengths[0, 0], lengths[1, 1] = np.nan, 0.0
    return irtjax.ResponseTable.from_arrays(np.asarray(data.values), lengths=lengths)


@functools.cache
def fitted():
    return irtjax.fit(table(), "lart")


@functools.cache
def without_lengths():
    return irtjax.fit(table(), "1pl", "mm", standard_errors="none")


@pytest.mark.slow
def test_columns_warnings_and_the_correlation():
    fit = fitted()
    assert fit.status == irtjax.Status.CONVERGED
    names = fit.items.table.column_names
    assert names[-6:] == [
        "speed_intercept",
        "speed_intercept_se",
        "speed_discrimination",
        "speed_discrimination_se",
        "residual_variance",
        "residual_variance_se",
    ]
    assert fit.abilities.table.column_names[-3:] == [
        *("speed", "speed_se", "ability_speed_correlation")
    ]
    joint = fit.abilities.table.column("ability_speed_correlation").to_numpy()
    assert np.abs(joint).max() < 1
    for part in (fit.items.table, fit.abilities.table):
        for name in part.column_names:
            assert part.column(name).null_count == 0
    lengths = fit.parameters.lengths
    assert lengths is not None and fit.correlation_error is not None
    lower, upper = fit.correlation_interval
    assert -1 < lower < lengths.correlation < upper < 0
    # Wider toward zero, and nearly four errors wide.
    assert upper - lengths.correlation > lengths.correlation - lower
    assert (upper - lower) / fit.correlation_error == pytest.approx(3.92, rel=0.02)
    # Within four standard errors of the truth.
    assert abs(lengths.correlation - RHO) < 4 * fit.correlation_error
    assert 0.02 < fit.correlation_error < 0.15
    text = "\n".join(fit.warnings)
    assert "1 of 1,799 lengths is 0" in text
    assert "1 of 1,800 lengths is missing" in text
    ability = fit.abilities.table.to_pydict()
    # Speed opposes ability, and what is added up is ordered as abilities are.
    assert np.corrcoef(ability["ability"], ability["speed"])[0, 1] < -0.5
    plain = irtjax.fit(table(), "probit2pl")
    assert fit.num_parameters == plain.num_parameters + 3 * ITEMS + 1
    ours, theirs = (
        np.mean(f.abilities.table.column("ability_se").to_numpy()) for f in (fit, plain)
    )
    # Lengths tell of ability: errors shrink.
    assert ours < theirs


@pytest.mark.slow
def test_a_saved_fit_comes_back(tmp_path):
    fit = fitted()
    irtjax.save(fit, tmp_path / "fit")
    again = irtjax.load(tmp_path / "fit")
    assert again.model.name == "lart"
    assert again.correlation_error == pytest.approx(fit.correlation_error)
    for a, b in zip(
        jax.tree.leaves(again.parameters), jax.tree.leaves(fit.parameters), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    content = json.loads((tmp_path / "fit" / "fit.json").read_text(encoding="utf-8"))
    assert content["correlation"] == pytest.approx(
        float(fit.parameters.lengths.correlation)
    )


def items_known():
    """The fit without errors of its items, which scores of new subjects count."""
    return dataclasses.replace(fitted(), item_covariance=None, ability_shared=None)


def test_scores_from_both_from_accuracy_and_from_length():
    fit, data = items_known(), table()
    both = irtjax.score(fit, data)
    columns = fit.abilities.table.to_pydict()
    mine = dict(zip(columns["subject"], columns["ability"], strict=True))
    # The fit's own scores are the same expectations with the items known.
    np.testing.assert_allclose(
        both.table.column("ability").to_numpy(),
        [mine[s] for s in both.table.column("subject").to_pylist()],
        atol=1e-6,
    )
    errors = {}
    for measures in ("both", "accuracy", "length"):
        scored = irtjax.score(fit, data, measures=measures).table
        errors[measures] = scored.column("ability_se").to_numpy().mean()
        assert ("speed" in scored.column_names) == (measures != "accuracy")
    assert errors["both"] < errors["accuracy"] < 1
    assert errors["both"] < errors["length"] < 1
    # Length alone: the variance of ability is 1 - rho^2 A / (1 + A), in closed form.
    items = fit.parameters.lengths.items
    rho = float(fit.parameters.lengths.correlation)
    precision = np.sum(items.speed_discrimination**2 / items.residual_variance)
    last = irtjax.score(fit, data, measures="length").table
    np.testing.assert_allclose(
        last.column("ability_se").to_numpy()[-1] ** 2,
        1 - rho**2 * precision / (1 + precision),
        rtol=1e-6,
    )
    bare = dataclasses.replace(data, lengths=None)
    assert "accuracy alone" in irtjax.score(fit, bare).notes[-1]


def test_modes_maximise_over_ability_and_speed_together():
    fit, data = items_known(), table()
    modes = irtjax.score(fit, data, scoring="map").table.to_pylist()
    items, lengths = fit.parameters.items, fit.parameters.lengths
    omega, phi, variance = lengths.items
    rho = float(lengths.correlation)
    prior = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    logs = np.log1p(data.lengths)

    def surprise(point, row):
        theta, tau = point
        sign = 2 * data.values[row] - 1
        right = stats.norm.logcdf(
            sign * (items.discrimination * theta + items.intercept)
        )
        line = stats.norm.logpdf(logs[row], omega - phi * tau, np.sqrt(variance))
        return -(right.sum() + np.nansum(line) + prior.logpdf(point))

    for row in (0, 1, 17, 60):
        found = modes[row]
        assert found["subject"] == data.subjects[row]
        best = optimize.minimize(surprise, [0.0, 0.0], (row,), method="BFGS", tol=1e-9)
        # Differences of some 1e-16 times a surprise of 40 over a curvature above 1.
        np.testing.assert_allclose(
            [found["ability"], found["speed"]], best.x, atol=1e-4
        )
        # Errors, single and joint, are those of the inverse curvature there.
        hessian = np.asarray(
            [
                [second_difference(surprise, best.x, row, i, k) for k in range(2)]
                for i in range(2)
            ]
        )
        covariance = np.linalg.inv(hessian)
        error = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(
            [found["ability_se"], found["speed_se"]], error, rtol=2e-3
        )
        joint = covariance[0, 1] / error.prod()
        assert found["ability_speed_correlation"] == pytest.approx(joint, rel=5e-3)


def second_difference(function, at, row, i, k, step=1e-3):
    one, other = step * np.eye(2)[i], step * np.eye(2)[k]
    corners = [(1, at + one + other), (-1, at + one - other)]
    corners += [(-1, at - one + other), (1, at - one - other)]
    return sum(sign * function(x, row) for sign, x in corners) / (4 * step**2)


@pytest.mark.slow
def test_errors_of_speed_count_those_of_all_parameters():
    # With 41 parameters the shared part is the whole covariance, so the delta method
    # can be checked by moving all of them along its rows and scoring again.
    model, data = latency_response(), drawn()[0]
    problem = Problem.create(model, data)
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 81))
    population = Population(jnp.zeros(()), jnp.ones(()))
    found = fit_with(marginal_method(), model, data).parameters
    at = model.unconstrain(found.items), model.lengths.unconstrain(found.lengths)
    every = length_covariance(problem, at[0], found.lengths, nodes)

    @jax.jit
    def scored(coordinates, lengths, moves=None):
        lengths = model.lengths.constrain(lengths)
        joint, part = with_lengths(problem, lengths)
        shared = None if moves is None else every.of_items()
        scores = score_on_nodes(
            model,
            model.constrain(coordinates),
            population,
            joint.data,
            nodes,
            jnp.asarray([-6.0, 6.0]),
            shared,
            moves,
            scoring="eap",
        )
        moments = scores.ability, scores.standard_error**2
        speed = part.model.speed(lengths, part.summary, *moments)
        return scores, speed, part

    plain = scored(*at)
    moves = evidence_moves(problem, found.lengths, every.shared_lengths)
    scores, _, part = scored(*at, moves)
    columns = ability_columns(
        part,
        scores.ability,
        scores.standard_error,
        scores.shared,
        speed_error(part, data, scores.ability, every),
    )
    step = 1e-4
    added = together = 0.0
    for r in range(every.shared.shape[0]):
        row = every.shared[r], jax.tree.map(lambda x, r=r: x[r], every.shared_lengths)
        up, down = (
            scored(*jax.tree.map(lambda x, d, s=sign: x + s * step * d, at, row))
            for sign in (1, -1)
        )
        of_speed = (up[1].mean - down[1].mean) / (2 * step)
        of_ability = (up[0].ability - down[0].ability) / (2 * step)
        added, together = added + of_speed**2, together + of_speed * of_ability
    wanted = jnp.sqrt(plain[1].variance + added)
    np.testing.assert_allclose(columns["speed_se"], wanted, rtol=1e-4)
    joint = (plain[1].covariance + together) / (wanted * scores.standard_error)
    np.testing.assert_allclose(
        columns["ability_speed_correlation"], joint, rtol=1e-3, atol=1e-4
    )
    # Where errors of ability have no shared part those of the parameters count still.
    of_parameters = speed_error(part, data, scores.ability, every)
    given = part, scores.ability, scores.standard_error, None
    alone, without = (ability_columns(*given, x) for x in (of_parameters, None))
    more = jnp.sum(of_parameters.shared**2, axis=1) + of_parameters.own
    np.testing.assert_allclose(
        alone["speed_se"] ** 2, without["speed_se"] ** 2 + more, rtol=1e-6
    )
    # It matters: some per cent at 200 subjects.
    assert np.median(wanted / jnp.sqrt(plain[1].variance)) > 1.005


def test_bad_requests_name_the_cure():
    data = table()
    bare = dataclasses.replace(data, lengths=None)
    with pytest.raises(ValueError, match="no response lengths.* length=$"):
        irtjax.fit(bare, "lart")
    with pytest.raises(ValueError, match="estimated by method='em' or 'saem'"):
        irtjax.fit(data, "lart", "mm")
    with pytest.raises(ValueError, match="standard_errors='none' and the bootstrap"):
        irtjax.fit(data, "lart", standard_errors="sandwich")
    with pytest.raises(ValueError, match="larger offset"):
        irtjax.fit(data, "lart", length_offset=0.0)
    fit = fitted()
    with pytest.raises(ValueError, match="'wle' does not use lengths"):
        irtjax.score(fit, data, scoring="wle")
    with pytest.raises(ValueError, match="'all' is not one of both"):
        irtjax.score(fit, data, measures="all")
    with pytest.raises(ValueError, match="no model of response lengths"):
        irtjax.score(without_lengths(), data, measures="length")


def test_the_figure_shows_every_subject_and_item():
    left, right = plots.plot_latency(fitted()).axes
    ability = fitted().abilities.table.to_pydict()
    points = left.collections[-1].get_offsets()
    np.testing.assert_allclose(
        points, np.stack([ability["ability"], ability["speed"]], axis=1)
    )
    assert len(right.collections[0].get_offsets()) == ITEMS
    boxes = plots.plot_item_parameters(fitted()).axes
    assert [axes.get_title(loc="left") for axes in boxes][2:] == [
        "Speed discrimination",
        "Time intensity",
        "Residual variance",
    ]
    with pytest.raises(ValueError, match="no response lengths to draw"):
        plots.plot_latency(without_lengths())


def write_wide(path, names, columns, values) -> None:
    data = {"model": names} | dict(zip(columns, values.T.tolist(), strict=True))
    pa.csv.write_csv(pa.table(data), path)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    data = table()
    names, items = data.subjects.tolist(), data.items.tolist()
    write_wide(tmp_path / "right.csv", names, items, data.values)
    # The lengths of the fit, its missing one too: its programs are compiled already.
    lengths = np.where(np.isnan(data.lengths), None, data.lengths)
    write_wide(tmp_path / "length.csv", names, items, lengths)
    run = lambda *words: CliRunner().invoke(app, [str(w) for w in words])
    fit = ("fit", tmp_path / "right.csv", "--model", "lart", "--out", tmp_path / "out")
    done = run(*fit, "--length", tmp_path / "length.csv")
    assert done.exit_code == 0, done.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} == set(FIT_FILES)
    assert (tmp_path / "out" / "latency.png").stat().st_size > 10_000
    assert "Ability and speed correlate at -0." in " ".join(done.stdout.split())
    done = run(
        "score",
        tmp_path / "right.csv",
        *("--fit", tmp_path / "out"),
        *("--length", tmp_path / "length.csv", "--measures", "length", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert "speed" in json.loads(done.stdout)["subjects"][0]
    replay = ("adapt", tmp_path / "out", "--num-items", 4, "--json")
    answers = ("--replay", tmp_path / "right.csv")
    both = run(*replay, *answers, "--length", tmp_path / "length.csv")
    assert both.exit_code == 0, both.stderr
    alone = run(*replay, *answers)
    ours, theirs = (
        json.loads(done.stdout)["by_num_items"]["standard_error"][-1]
        for done in (both, alone)
    )
    assert ours < theirs
    done = run(*replay, "--length", tmp_path / "length.csv")
    assert done.exit_code == 2 and "requires --replay" in done.stderr
    done = run(*fit, "--overwrite")
    assert done.exit_code == 2
    assert "read them with --length" in done.stderr and "Traceback" not in done.stderr


def test_simulated_files_fit_back(tmp_path):
    run = lambda *words: CliRunner().invoke(app, [str(w) for w in words])
    out = tmp_path / "drawn.csv"
    made = run(
        *(
            "simulate",
            "--model",
            "lart",
            "--num-subjects",
            SUBJECTS,
            "--num-items",
            ITEMS,
        ),
        *("--missing", 0.1, "--out", out, "--json"),
    )
    assert made.exit_code == 0, made.stderr
    lengths = json.loads(made.stdout)["lengths"]
    back = irtjax.read(out, length=lengths)
    assert back.lengths is not None and back.lengths.shape == (SUBJECTS, ITEMS)
    assert np.nanmin(back.lengths) >= 0
    truth = pa.csv.read_csv(tmp_path / "drawn.abilities.csv").to_pydict()
    # True correlation -0.8 over so many subjects: within five standard errors.
    found = np.corrcoef(truth["ability"], truth["speed"])[0, 1]
    assert abs(found + 0.8) < 5 * (1 - 0.8**2) / np.sqrt(SUBJECTS)
    items = pa.csv.read_csv(tmp_path / "drawn.items.csv")
    assert "speed_discrimination" in items.column_names
    logs = np.nanmean(np.log1p(back.lengths), axis=0)
    assert np.corrcoef(logs, items.column("speed_intercept").to_numpy())[0, 1] > 0.9


@pytest.mark.slow
def test_errors_are_summed_over_blocks_of_subjects_and_show_their_share(monkeypatch):
    model = latency_response()
    data = table().select(subjects=table().subjects[:118]).responses(length_offset=1.0)
    problem = Problem.create(model, data)
    found = fitted().parameters
    coordinates = model.unconstrain(jax.tree.map(jnp.asarray, found.items))
    given = coordinates, found.lengths, equal_nodes(-5.0, 5.0, 31)
    whole = length_covariance(problem, *given)

    monkeypatch.setattr(lengths_of, "BLOCK_BYTES", 1)
    monkeypatch.setattr(progress, "STRETCH", 0.0)
    weighted = dataclasses.replace(data, subject_weight=jnp.ones(118))
    problem, shares = Problem.create(model, weighted), []
    alone = length_covariance(problem, *given)
    with progress.watching(lambda share, name: shares.append(share)):
        seen = length_covariance(problem, *given)
    # Eight blocks of fifteen, two subjects of the last one being in the one before.
    assert len(shares) == 9 and shares[:2] == [0.0, 1 / 8]
    found = map(jax.tree.leaves, (alone, seen, whole))
    for one, other, all_at_once in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, all_at_once, rtol=1e-6, atol=1e-9)

"""Twin networks and variational inference: recovery, stopping, and honest doors."""

import csv
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.neural.towers import (
    aggregate,
    make_graph,
    make_table,
    update_rows,
)
from irtjax.estimators.neural.twin import Neural
from irtjax.estimators.neural.vibo import VIBO, predict
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models import catalogue

SUBJECTS, ITEMS = 40, 60
#: Small, so that each program of the tests is compiled in a second or two.
QUICK = Neural(embedding_size=8, batch_size=256, epochs=40, learning_rate=0.03)
_run_jit = eqx.filter_jit(run)


def draw(seed=0):
    """Answers of a 2PL, a tenth of them missing, with the truth."""
    rng = np.random.default_rng(seed)
    theta, slope = rng.normal(size=SUBJECTS), rng.uniform(0.8, 2.0, ITEMS)
    intercept = rng.normal(size=ITEMS)
    chance = 1 / (1 + np.exp(-slope * theta[:, None] - intercept))
    seen = rng.random(chance.shape) < 0.9
    values = ((rng.random(chance.shape) < chance) & seen).astype(np.int8)
    return values, seen, theta, intercept


@pytest.fixture(scope="module")
def table():
    values, seen, _, _ = draw()
    return irtjax.ResponseTable.from_arrays(values, observed=seen)


@pytest.fixture(scope="module")
def calibration(table):
    return irtjax.fit(table, "2pl", QUICK, positive=True, key=jax.random.key(0))


def problem_of(values, seen, model=None):
    model = catalogue.two_parameter(positive=True) if model is None else model
    return Problem.create(model, Responses(jnp.asarray(values), jnp.asarray(seen)))


def test_the_truth_is_recovered_and_training_stops_early(calibration):
    _, _, theta, intercept = draw()
    found = calibration.parameters
    # Marginal maximum likelihood reaches 0.94 and 0.89 on these data. The standard
    # error of such correlations is 0.02 with 40 subjects and 0.03 with 60 items.
    assert np.corrcoef(found.theta, theta)[0, 1] > 0.90
    assert np.corrcoef(found.items.intercept, intercept)[0, 1] > 0.85
    assert calibration.status is irtjax.Status.CONVERGED
    trace = np.asarray(calibration.trace)
    assert len(trace) < QUICK.epochs
    # The objective is that of the best epoch, and the last ones were no better.
    assert np.all(trace[-QUICK.patience :] == trace[-1])


def test_errors_are_given_only_where_they_can_be_had(calibration):
    said = " ".join(calibration.warnings)
    assert "they have no standard errors" in said and "poorly determined" in said
    # There is no prior to rest on, and no step limit to raise.
    assert "rest on the prior" not in said and "joint estimates" not in said
    assert calibration.items.table.column("discrimination_se").null_count == ITEMS
    errors = np.asarray(calibration.abilities.table.column("ability_se"))
    assert np.all((errors > 0.05) & (errors < 1))
    assert calibration.options["method"] == "neural"
    assert calibration.options["embedding_size"] == 8


def test_it_is_saved_loaded_and_scores(calibration, table, tmp_path):
    loaded = irtjax.load(irtjax.save(calibration, tmp_path / "fit"))
    np.testing.assert_array_equal(loaded.parameters.theta, calibration.parameters.theta)
    np.testing.assert_array_equal(
        loaded.parameters.items.intercept, calibration.parameters.items.intercept
    )
    scores = irtjax.score(loaded, table)
    assert scores.scoring == "eap"
    assert any(f"from the {SUBJECTS} subjects" in note for note in scores.notes)
    estimates = np.asarray(scores.table.column("ability"))
    assert np.corrcoef(estimates, calibration.parameters.theta)[0, 1] > 0.98


def test_an_epoch_is_one_scan_and_follows_from_its_key():
    values, seen, _, _ = draw()
    problem = problem_of(values, seen)
    start = start_values(problem.model, problem.data)
    state = eqx.filter_jit(QUICK.init)(problem, start, jax.random.key(0))
    program = jax.make_jaxpr(lambda s, k: jax.tree.leaves(QUICK.step(problem, s, k)))(
        state, jax.random.key(1)
    )
    scans = [e for e in program.jaxpr.eqns if e.primitive.name == "scan"]
    batches = -(-int(SUBJECTS * ITEMS * 0.9) // QUICK.batch_size)
    # Another one judges, a block of subjects at a time.
    assert sorted(e.params["length"] for e in scans)[-1] == batches
    step = eqx.filter_jit(QUICK.step)
    once, again, other = (step(problem, state, jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(once.items.rows, again.items.rows)
    assert np.abs(np.asarray(once.items.rows - other.items.rows)).max() > 1e-6
    # Missing cells say nothing, whatever they hold.
    rng = np.random.default_rng(5)
    junk = np.where(seen, values, rng.integers(0, 2, values.shape)).astype(np.int8)
    assert (junk != values).any()
    third = step(problem_of(junk, seen), state, jax.random.key(1))
    np.testing.assert_array_equal(once.items.rows, third.items.rows)
    assert float(once.value) == float(third.value)


def test_every_cell_is_met_once_in_an_epoch():
    values, seen, _, _ = draw()
    data = problem_of(values, seen).data
    held = np.random.default_rng(1).random(seen.shape) < 0.2
    wanted = np.flatnonzero(seen & ~held)
    method = Neural(batch_size=100, epoch_cells=len(wanted))
    batches = method._batches(data, jnp.asarray(held), jax.random.key(0))
    met = np.ravel(batches)
    np.testing.assert_array_equal(np.sort(met[: len(wanted)]), wanted)
    # The last batch is filled up with the first cells.
    np.testing.assert_array_equal(met[len(wanted) :], met[: len(met) - len(wanted)])


@pytest.mark.filterwarnings("error::FutureWarning")
def test_rows_touched_twice_get_the_sum_and_others_stay():
    import optax

    optimiser = optax.sgd(1.0)
    # As cells are numbered: JAX is to refuse wider integers put among these.
    places = jnp.asarray([7, 2, 7, 2, 7], jnp.int32)
    gradient = jnp.arange(15.0).reshape(5, 3)
    for count in (8, 4 * len(places)):  # With less and with more rows than the batch.
        rows = make_table(count, 3, optimiser, jnp.float64, key=jax.random.key(0))
        moved = update_rows(rows, places, gradient, optimiser)
        expected = np.array(rows.rows)
        np.subtract.at(expected, np.asarray(places), np.asarray(gradient))
        np.testing.assert_allclose(moved.rows, expected, atol=1e-12)


def test_the_graph_is_the_attention_of_the_paper():
    rng = np.random.default_rng(2)
    own, others = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    met = rng.random((3, 5)) < 0.7
    met[2] = False
    right = met & (rng.random((3, 5)) < 0.5)
    graph = make_graph(4, jnp.float64, key=jax.random.key(0))
    found = aggregate(graph, *map(jnp.asarray, (own, others, right, met & ~right)))
    for s in range(3):
        states, scores = [], []
        for q in np.flatnonzero(met[s]):
            gate = (
                others[q] @ graph.matrix
                + graph.bias
                + right[s, q] * (graph.by_response)
            )
            states.append(others[q] * gate)
            score = own[s] @ graph.own + states[-1] @ graph.others
            scores.append(float(jnp.where(score > 0, score, 0.01 * score)))
        expected = own[s]
        if states:
            share = np.exp(scores) / np.sum(np.exp(scores))
            expected = own[s] + share @ np.array(states)
        np.testing.assert_allclose(found[s], expected, atol=1e-10)


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param("deep", marks=pytest.mark.slow),
        pytest.param("graph", marks=pytest.mark.slow),
        pytest.param("features", marks=pytest.mark.slow),
    ],
)
def test_the_variants_of_the_paper_learn(variant):
    values, seen, theta, intercept = draw()
    model = catalogue.two_parameter(positive=True)
    options = {
        "deep": {"head": "deep"},
        "graph": {"encoder": "graph", "hidden": (8,)},
        "features": {"item_features": jnp.asarray(intercept)[:, None]},
    }[variant]
    if variant == "deep":
        model = catalogue.one_parameter()
    method = Neural(
        embedding_size=8, batch_size=256, epochs=40, learning_rate=0.03, **options
    )
    problem = problem_of(values, seen, model)
    start = start_values(problem.model, problem.data)
    fit = _run_jit(problem, method, start, key=jax.random.key(0), max_steps=40)
    assert np.isfinite(float(fit.log_lik))
    assert np.corrcoef(fit.parameters.theta, theta)[0, 1] > 0.9
    assert np.corrcoef(fit.parameters.items.intercept, intercept)[0, 1] > 0.8


@pytest.mark.slow
def test_f1_is_that_of_the_cells_held_out():
    values, seen, _, _ = draw()
    held = np.random.default_rng(3).random(seen.shape) < 0.2
    method = Neural(
        embedding_size=8,
        batch_size=256,
        epochs=40,
        learning_rate=0.03,
        criterion="f1",
        validation=jnp.asarray(held),
    )
    problem = problem_of(values, seen)
    start = start_values(problem.model, problem.data)
    fit = _run_jit(problem, method, start, key=jax.random.key(0), max_steps=40)
    assert irtjax.Status(int(fit.status)) is irtjax.Status.CONVERGED
    items, theta, judged = fit.parameters.items, fit.parameters.theta, held & seen
    called = np.asarray(items.discrimination * theta[:, None] + items.intercept) > 0
    right = values[judged] == 1
    hits = np.sum(called[judged] & right)
    expected = 2 * hits / (called[judged].sum() + right.sum())
    assert float(fit.state.best_value) == pytest.approx(expected)


@pytest.mark.slow
def test_amortised_inference_recovers_the_truth(table):
    _, _, theta, intercept = draw()
    method = VIBO(epochs=400, hidden=(8,))
    fit = irtjax.fit(table, "2pl", method, positive=True)
    assert fit.options["method"] == "vibo"
    said = " ".join(fit.warnings)
    assert "variational approximation" in said and "joint estimates" not in said
    assert fit.status is irtjax.Status.CONVERGED
    # As for the networks.
    assert np.corrcoef(fit.parameters.theta, theta)[0, 1] > 0.90
    assert np.corrcoef(fit.parameters.items.intercept, intercept)[0, 1] > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("amortised", [True, False])
def test_predictions_average_over_the_approximation(amortised):
    values, seen, theta, _ = draw()
    problem = problem_of(values, seen)
    method = VIBO(amortised=amortised, epochs=400, hidden=(8,))
    start = start_values(problem.model, problem.data)
    fit = _run_jit(problem, method, start, key=jax.random.key(0), max_steps=400)
    assert np.corrcoef(fit.parameters.theta, theta)[0, 1] > 0.90
    chance = predict(problem, fit.state, key=jax.random.key(1), num_draws=4)
    means = np.asarray(chance)
    assert means.shape == values.shape and 0 < means.min() and means.max() < 1
    assert means[values == 1].mean() > means[(values == 0) & seen].mean() + 0.2


def test_what_cannot_be_trained_is_refused(table):
    with pytest.raises(ValueError, match="it needs at least 1"):
        Neural(epochs=0)
    with pytest.raises(ValueError, match="is none of log_loss, f1"):
        Neural(criterion="auc")
    with pytest.raises(ValueError, match="use the model 1pl, not 2pl"):
        irtjax.fit(table, "2pl", Neural(head="deep"))
    with pytest.raises(ValueError, match="have 2 rows for 60 items"):
        irtjax.fit(table, "2pl", Neural(item_features=jnp.ones((2, 3))))
    for wrong in ({"learning_rate": 0.0}, {"weight_decay": -1.0}, {"hidden": (8, 0)}):
        with pytest.raises(ValueError, match=r"not a number|width below 1"):
            Neural(**wrong)
    with pytest.raises(ValueError, match=r"shape \(60,\), responses \(40, 60\)"):
        irtjax.fit(table, "2pl", Neural(validation=jnp.zeros(60, bool)))
    with pytest.raises(ValueError, match="population requires method em; neural"):
        irtjax.fit(table, "2pl", QUICK, population="histogram")
    trials = np.full((SUBJECTS, ITEMS), 3)
    counts = irtjax.ResponseTable.from_arrays(trials // 2, trials=trials)
    with pytest.raises(ValueError, match="right and wrong responses, not counts"):
        irtjax.fit(counts, "2pl", Neural(encoder="graph"))
    with pytest.raises(ValueError, match="anchor requires method em"):
        anchors = {"item_0": {"intercept": 0.0}}
        irtjax.fit(table, "2pl", "neural", anchor=anchors)


@pytest.mark.slow
def test_the_command_line_trains(tmp_path):
    values, seen, _, _ = draw()
    lines = ["model," + ",".join(f"q{j}" for j in range(ITEMS))]
    for i, row in enumerate(np.where(seen, values.astype(str), "")):
        lines.append(f"m{i}," + ",".join(row))
    (tmp_path / "r.csv").write_text("\n".join(lines))
    common = ["fit", str(tmp_path / "r.csv"), "--out", str(tmp_path / "fit"), "-q"]
    common += ["--no-figures"]
    settings = ["--epochs", "2", "--embedding-size", "4", "--layers", "4"]
    settings += ["--batch-size", "64", "--learning-rate", "0.01"]
    settings += ["--weight-decay", "0.1", "--patience", "1", "--criterion", "f1"]
    rows = [
        "item,emb_0,emb_1,words",
        *(f"q{j},{j % 2},{j % 3},9" for j in range(ITEMS)),
    ]
    (tmp_path / "items.csv").write_text("\n".join(rows))
    settings += ["--item-table", str(tmp_path / "items.csv"), "--validation", "0.2"]
    settings += ["--item-features", "emb_*"]
    asked = [*common, "--method", "neural", *settings]
    done = CliRunner().invoke(app, asked, prog_name="irtjax")
    assert done.exit_code == 0, done.output
    options = json.loads((tmp_path / "fit" / "fit.json").read_text())["options"]
    assert options["hidden"] == [4] and options["epochs"] == 2
    assert options["criterion"] == "f1" and options["validation"] == 0.2
    assert options["item_features"] == ["emb_*"]
    # Two features serve six kinds of items alike.
    with (tmp_path / "fit" / "items.csv").open() as file:
        kinds = {row["difficulty"] for row in csv.DictReader(file)}
    assert len(kinds) == 6
    refused = CliRunner().invoke(app, [*common, "--patience", "3"], prog_name="irtjax")
    assert refused.exit_code == 2 and "patience requires --method" in refused.output
    for extra, said in (
        (["--method", "neural", "--item-features", "emb_*"], "--item-table"),
        (["--method", "neural", "--mean-field"], "--method vibo"),
        (["--method", "vibo", "--learning-rate", "-1"], "not a number above 0"),
        (["--method", "neural", "--population", "histogram"], "--method em"),
        (["--method", "neural", "--epochs", "2", "--max-steps", "3"], "leave one out"),
    ):
        refused = CliRunner().invoke(app, [*common, *extra], prog_name="irtjax")
        assert refused.exit_code == 2 and said in " ".join(refused.output.split())

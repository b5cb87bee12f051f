"""Models and priors compared by responses left out: reference values and rules."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.estimators.driver import run_jit
from irtjax.models.catalogue import rasch
from irtjax.models.model import Population
from irtjax.models.priors import Normal
from irtjax.prediction import splits
from irtjax.prediction.cross_validation import cross_validate

#: Log scores of AIMS (4.6.2) by the penalty, recomputed by an independent program
#: (scipy's L-BFGS).
PENALTIES = {0.001: -0.5146, 0.01: -0.5144, 0.1: -0.5132, 0.5: -0.5103}
PENALTIES |= {1.0: -0.5096, 2.0: -0.5118, 5.0: -0.5248}


def by_penalty(penalty):
    """Joint estimates of Rasch's model with penalty / 2 times the sum of squares."""
    sd = jnp.asarray(penalty**-0.5)
    model = rasch({"intercept": Normal(jnp.zeros(()), sd)})

    def chances(part):
        data = part.responses(jnp.zeros(()).dtype).with_mask()
        start = irtjax.start_values(model, data)
        problem = irtjax.Problem.create(model, data)
        population = Population(jnp.zeros(()), sd)
        problem = irtjax.Problem(model, data, problem.free, prior=population)
        method = irtjax.MM(tolerance=jnp.asarray(1e-7))
        fit = run_jit(problem, method, start, max_steps=3000)
        items, _, theta = fit.parameters[:3]
        return expit(np.asarray(theta)[:, None] + np.asarray(items.intercept))

    return chances


def test_penalties_of_the_aims_book():
    """The data, the folds and the scores of A63: the best penalty is 1."""
    state = np.random.RandomState(42)
    theta, beta = state.normal(0, 1, 100), state.normal(0, 1.5, 50)
    values = (state.random((100, 50)) < expit(theta[:, None] - beta)).astype(float)
    folds = np.random.RandomState(42).randint(0, 5, (100, 50))
    table = irtjax.ResponseTable.from_arrays(values)
    models = {f"{x:g}": by_penalty(x) for x in PENALTIES}
    result = cross_validate(table, models, folds=folds)
    # Printed to four digits; folds differ in size by a few percent.
    scores = result.table["log_score"].to_numpy()
    np.testing.assert_allclose(scores, [*PENALTIES.values()], atol=6e-5)
    assert result.best == "1"


@pytest.fixture(scope="module")
def table():
    """Responses of a Rasch model, of the shape of `test_generalise.py`."""
    rng = np.random.default_rng(8)
    ability, easy = rng.normal(size=(150, 1)), rng.normal(0, 1.5, size=60)
    right = (rng.random((150, 60)) < expit(1.2 * ability + easy)).astype(float)
    return irtjax.ResponseTable.from_arrays(right)


def test_equal_slopes_are_chosen_where_they_are_true(table):
    """One standard error: slopes of Rasch responses do not predict better."""
    result = cross_validate(table, ["1pl", "2pl"], key=1)
    assert result.chosen == "1pl" and result.sentence.startswith("Use 1pl")
    rows = result.table.to_pylist()
    # By hand, from the scores of the folds.
    scores = np.array([x["log_score"] for x in result.scores.to_pylist()])
    scores = scores.reshape(5, 2)
    assert rows[0]["log_score"] == pytest.approx(scores[:, 0].mean())
    loss = scores.max(axis=1)[:, None] - scores
    best = int(scores.mean(axis=0).argmax())
    loss = scores[:, [best]] - scores
    assert rows[0]["loss"] == pytest.approx(loss[:, 0].mean())
    assert rows[0]["loss_se"] == pytest.approx(loss[:, 0].std(ddof=1) / 5**0.5)
    # Paired differences have smaller errors than scores.
    assert rows[1 - best]["loss_se"] < rows[0]["log_score_se"] / 2


def test_a_narrow_prior_is_best_where_slopes_are_equal(table):
    """Priors of the 2PL on responses of equal slopes; the path has a start each."""
    result = cross_validate(table, ["2pl"], prior_scales=[4, 1, 0.25], key=1)
    rows = result.table.to_pylist()
    assert [x["prior_scale"] for x in rows] == [0.25, 1, 4]
    assert rows[0]["log_score"] > rows[2]["log_score"]
    assert "at the end of those tried (0.25 to 4)" in result.warnings[0]
    alone = cross_validate(table, ["2pl"], prior_scales=[4], key=1).table.to_pylist()
    # EM ends where 120 coordinates are within .03 standard errors of estimates. Each
    # moves the log-likelihood of a fold a quarter as large by about .015 nats, all
    # together by .16 of 1,800 responses.
    assert alone[0]["log_score"] == pytest.approx(rows[2]["log_score"], abs=1e-4)


@pytest.mark.parametrize("scheme", ["entry", "rows", "columns"])
def test_each_response_is_left_out_once(table, scheme):
    parts = splits.cross_folds(table, scheme, 4)
    times = sum(part.test.astype(int) for part in parts)
    if scheme == "entry":
        assert (times == 1).all()
    assert times.max() == 1 and len(parts) == 4
    new = {"rows": "new_subjects", "columns": "new_items"}.get(scheme)
    if new:
        assert sum(getattr(x, new).astype(int) for x in parts).tolist() == [1] * len(
            getattr(parts[0], new)
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior_scales": [0, 1]}, "prior scales [0, 1] are not positive numbers"),
        (
            {"prior_scales": [1], "models": {"x": len}},
            "are of models that em estimates",
        ),
        ({"scheme": "row"}, "no scheme 'row' of folds; there are entry, rows, columns"),
        ({"folds": 1}, "folds 1: give 2 to 9000"),
        ({"folds": np.ones((2, 2))}, "folds of responses have shape (150, 60)"),
        ({"models": []}, "no model is named"),
    ],
)
def test_bad_input_is_refused_in_one_line(table, arguments, message):
    with pytest.raises(ValueError) as refused:
        cross_validate(table, **arguments)
    assert message in str(refused.value) and "\n" not in str(refused.value)

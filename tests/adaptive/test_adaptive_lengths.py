"""Adaptive tests that learn from lengths score as `irtjax.score` does."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.adaptive import Answer, Design, ItemBank, LengthBank
from irtjax.adaptive.lengths import LengthMemory
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.data.responses import Responses
from irtjax.inference import score
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import latency_response, two_parameter
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_items, simulate_length_items

SIZE, RHO = 30, -0.8
UNIT = Population(jnp.zeros(()), jnp.ones(()))


@functools.cache
def bank() -> LengthBank:
    keys = jax.random.split(jax.random.key(0), 2)
    items = simulate_items(latency_response(), SIZE, keys[0])
    lengths = LengthParameters(simulate_length_items(SIZE, keys[1]), jnp.asarray(RHO))
    return LengthBank.of(latency_response(), items, UNIT, lengths)


@pytest.mark.parametrize("rule", ["eap", pytest.param("map", marks=pytest.mark.slow)])
def test_a_test_scores_as_irtjax_scores(rule):
    theta = jnp.array([-1.5, -0.5, 0.0, 0.7, 1.4, 2.0])
    tests = run_tests_jit(
        bank(), Design.create(12, scoring=rule), key=jax.random.key(1), theta=theta
    )
    answers = tests.observations
    assert isinstance(answers, Answer)
    rows = jnp.arange(6)[:, None]
    seen = jnp.zeros((6, SIZE), bool).at[rows, tests.items].set(True)
    values = jnp.zeros((6, SIZE), jnp.int8)
    values = values.at[rows, tests.items].set(answers.response.astype(jnp.int8))
    logs = jnp.zeros((6, SIZE)).at[rows, tests.items].set(answers.log_length)
    data = Responses(values, seen, log_length=logs, length_observed=seen)
    problem, _ = with_lengths(Problem.create(bank().model, data), bank().lengths)
    nodes = np.linspace(-6, 6, 241)
    found = score(
        bank().model, bank().items, UNIT, problem.data, scoring=rule, nodes=nodes
    )
    # Both nodes resolve the posteriors far beyond this.
    np.testing.assert_allclose(tests.ability[:, -1], found.ability, atol=1e-4)
    np.testing.assert_allclose(
        tests.standard_error[:, -1], found.standard_error, rtol=1e-3
    )
    # Without the lengths the answers alone say something else, and less.
    plain = ItemBank.create(bank().model, bank().items, UNIT)
    alone = run_tests_jit(
        plain,
        Design.create(12, scoring=rule),
        key=jax.random.key(1),
        theta=theta,
    )
    assert float(found.standard_error.mean()) < float(
        alone.standard_error[:, -1].mean()
    )


def test_lengths_of_a_test_follow_one_speed():
    # Of two items drawn in turn at one ability: means omega - phi rho theta, variances
    # lambda + phi^2 (1 - rho^2), covariance phi_1 phi_2 (1 - rho^2).
    omega, phi, variance, rho = bank()._records
    theta, count = 0.9, 20_000

    def two(key):
        first, second = jax.random.split(key)
        memory = bank().memory
        one = bank().draw(jnp.array(3), jnp.asarray(theta), first, memory)
        memory = bank().remember(memory, jnp.array(3), one)
        other = bank().draw(jnp.array(8), jnp.asarray(theta), second, memory)
        return jnp.stack([one.log_length, other.log_length])

    drawn = np.asarray(
        jax.jit(jax.vmap(two))(jax.random.split(jax.random.key(2), count))
    )
    pick = np.array([3, 8])
    spread = np.asarray(phi)[pick]
    wanted = np.outer(spread, spread) * (1 - float(rho) ** 2)
    wanted += np.diag(np.asarray(variance)[pick])
    mean = np.asarray(omega)[pick] - spread * float(rho) * theta
    error = np.sqrt(np.diag(wanted) / count)
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * error).all()
    # The standard error of a covariance of normals.
    width = np.sqrt((np.outer(*(np.diag(wanted),) * 2) + wanted**2) / count)
    assert (np.abs(np.cov(drawn.T) - wanted) < 5 * width).all()


def test_what_an_item_would_add():
    omega, phi, variance, rho = bank()._records
    theta = jnp.asarray(0.4)
    empty = bank().memory
    sums = phi**2 / variance
    gain = bank().gain(theta, empty) - bank().information(theta)
    np.testing.assert_allclose(gain, 1 / (1 - rho**2 * sums / (1 + sums)) - 1)
    # However much is known of speed, ability has precision 1 / (1 - rho^2) from it.
    known = LengthMemory(jnp.asarray(1e9), jnp.asarray(0.0))
    np.testing.assert_allclose(
        bank().gain(theta, known), bank().information(theta), atol=1e-6
    )
    blank = Answer(jnp.array(1, jnp.int32), jnp.asarray(jnp.nan))
    same = bank().remember(empty, jnp.array(0), blank)
    np.testing.assert_array_equal(jnp.stack(same), jnp.zeros(2))
    assert float(jax.grad(lambda t: bank().log_memory(empty, t))(theta)) == 0


@functools.cache
def calibrated():
    rng = np.random.default_rng(4)
    theta, noise = rng.normal(size=(2, 120, 1))
    tau = RHO * theta + np.sqrt(1 - RHO**2) * noise
    right = theta + rng.normal(size=12) + rng.normal(size=(120, 12)) > 0
    lengths = np.exp(6 - 0.7 * tau + 0.5 * rng.normal(size=(120, 12)))
    table = irtjax.ResponseTable.from_arrays(right, lengths=lengths.round())
    return table, irtjax.fit(table, "lart", standard_errors="none")


@pytest.mark.slow
def test_a_harness_reports_lengths(tmp_path):
    table, fit = calibrated()
    test = irtjax.AdaptiveTest(fit, num_items=6)
    for _ in range(3):
        item = test.next_item()
        column = table.items.tolist().index(item)
        test.record(item, int(table.values[5, column]), table.lengths[5, column])
    again = irtjax.AdaptiveTest.load(test.save(tmp_path / "test.json"), fit)
    assert (again.ability, again.standard_error) == (test.ability, test.standard_error)
    item = test.next_item()
    with pytest.raises(ValueError, match="length -1 is not a number"):
        test.record(item, 1, -1)
    test.record(item, 1)  # A length that is not known.
    assert test.num_given == 4
    plain = irtjax.AdaptiveTest(irtjax.fit(table, "2pl", standard_errors="none"))
    with pytest.raises(ValueError, match="no model of response lengths"):
        plain.record(plain.next_item(), 1, 100)


@pytest.mark.slow
def test_simulated_and_replayed_tests():
    table, fit = calibrated()
    key = jax.random.key(0)
    drawn = irtjax.simulate_tests(fit, key=key, num_subjects=200, num_items=8)
    assert drawn.responses.shape == (200, 8)
    error = np.sqrt(np.mean((drawn.ability[:, -1] - drawn.truth) ** 2))
    stated = np.sqrt(np.mean(drawn.standard_error[:, -1] ** 2))
    # The standard error of a root mean square of 200 is a twentieth; four of them.
    assert error == pytest.approx(stated, rel=0.2)
    replayed = irtjax.simulate_tests(fit, key=key, num_items=12, replay=table)
    # All items given: the score is that of the fit.
    rows = fit.abilities.table.to_pydict()
    known = dict(zip(rows["subject"], rows["ability"], strict=True))
    np.testing.assert_allclose(
        replayed.ability[:, -1], [known[s] for s in table.subjects], atol=2e-3
    )
    bare = dataclasses.replace(table, lengths=None)
    notes = irtjax.simulate_tests(fit, key=key, num_items=4, replay=bare).notes
    assert "accuracy alone" in notes[-1]


def test_a_bank_of_lengths_needs_a_model_of_them():
    with pytest.raises(ValueError, match="use ItemBank"):
        LengthBank.of(two_parameter(), bank().items, UNIT, bank().lengths)

"""NUTS: draws of the right law, whatever the chunks, chains and files between."""

import itertools
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax._types import Status
from irtjax.estimators.posterior import diagnose, has_converged, verdict
from irtjax.estimators.posterior import sample as sampling
from irtjax.estimators.posterior.checkpoint import identity
from irtjax.estimators.posterior.methods import NUTS
from irtjax.estimators.posterior.nuts import (
    advance,
    begin,
    dispersed_starts,
    draws_of,
    keep_position,
)
from irtjax.estimators.posterior.sample import sample
from irtjax.storage import load_chains, save_chains

CHECKOUT = Path(__file__).resolve().parents[3]
KEY = jax.random.key(3)
SHORT = NUTS(num_warmup=300, num_draws=1000)
MEAN = np.array([1.0, -2.0, 0.0])
COVARIANCE = np.array([[1.0, 1.6, 0.0], [1.6, 4.0, -0.3], [0.0, -0.3, 0.25]])
GAUSSIAN = (jnp.asarray(MEAN), jnp.asarray(np.linalg.inv(COVARIANCE)))


def gaussian(x, data):
    mean, precision = data
    return -0.5 * (x - mean) @ precision @ (x - mean)


def sampled(key=KEY, **options):
    return sample(gaussian, jnp.zeros(3), GAUSSIAN, key=key, method=SHORT, **options)


@pytest.fixture(scope="module")
def unbroken():
    return sampled()


def test_moments_of_a_correlated_normal(unbroken):
    x = np.asarray(unbroken.values["position"])
    centred = x - MEAN
    products = centred[..., :, None] * centred[..., None, :]
    for values, truth in ((x, MEAN), (products, COVARIANCE)):
        found = diagnose(values)
        # Twelve means, each within five of its own standard errors.
        assert (np.abs(found.mean - truth) < 5 * found.mcse).all()
        assert (found.mcse < 0.1 * found.sd).all()
    assert Status(int(unbroken.status)) is Status.CONVERGED
    assert verdict(unbroken)[0].startswith("Converged: 4 chains")
    # Adapted: to the target within the noise of 50 steps, and to the variances
    # within that of the last window of warm-up.
    assert 0.65 < float(unbroken.acceptance.mean()) < 0.95
    ratio = np.asarray(unbroken.inverse_mass) / np.diag(COVARIANCE)
    assert 0.4 < ratio.min() and ratio.max() < 2.5
    assert (unbroken.num_leapfrog < 2 ** np.asarray(unbroken.tree_depth)).all()
    density = jax.vmap(jax.vmap(lambda x: gaussian(x, GAUSSIAN)))(x)
    np.testing.assert_allclose(unbroken.log_density, density, atol=1e-9)
    # Total energy is potential plus kinetic, so it exceeds the potential.
    assert (unbroken.energy > -unbroken.log_density).all()


def test_the_key_decides(unbroken):
    again, other = sampled(), sampled(jax.random.key(4))
    np.testing.assert_array_equal(unbroken.values["position"], again.values["position"])
    assert not np.allclose(unbroken.values["position"], other.values["position"])


class Crash(Exception):
    pass


@pytest.mark.parametrize("place", [100, 700])
def test_a_run_goes_on_after_a_crash(tmp_path, monkeypatch, unbroken, place):
    # In warm-up and after it; saved after every chunk, each twice as long as the one
    # before: by a clock that moves a second when it is read, as speeds differ.
    ticks = itertools.count()
    clock = types.SimpleNamespace(monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr(sampling, "time", clock)
    monkeypatch.setattr(sampling, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(sampling, "SAVE_SHARE", np.inf)
    monkeypatch.setattr(sampling, "CHUNK_SECONDS", 2.0)
    path, seen = tmp_path / "run.npz", []

    def crash(progress):
        seen.append(progress)
        if progress.step > place:
            raise Crash

    with pytest.raises(Crash):
        sampled(checkpoint=path, resume=True, progress=crash)
    with pytest.raises(ValueError, match="pass resume=True"):
        sampled(checkpoint=path)
    before = len(seen)
    rest = sampled(checkpoint=path, resume=True, progress=seen.append)
    assert 1 < seen[before].step < SHORT.num_steps
    after = {"sampling"} if place > SHORT.num_warmup else set()
    assert {p.phase for p in seen[:before]} == {"warm-up"} | after
    assert seen[-1].phase == "finished" and seen[-1].step == 1300
    for name in ("values", "energy", "divergent", "step_size", "inverse_mass"):
        jax.tree.map(
            np.testing.assert_array_equal, getattr(rest, name), getattr(unbroken, name)
        )
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]
    # A finished run is read, not run again.
    done = sampled(checkpoint=path, resume=True, progress=lambda _: pytest.fail("ran"))
    np.testing.assert_array_equal(done.energy, unbroken.energy)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    method = NUTS(num_warmup=5, num_draws=5, num_chains=2)
    start = dispersed_starts(jnp.zeros(3), 2, key=KEY)
    first = eqx.filter_jit(begin)(gaussian, start, GAUSSIAN, key=KEY, method=method)
    mine = identity(method, GAUSSIAN, first)
    path = save_chains(tmp_path / "run.npz", first, mine)
    back = load_chains(path, first, mine)
    assert eqx.tree_equal(back, first)

    def refused(words, like=mine, chains=first, at=path):
        with pytest.raises(ValueError, match=words):
            load_chains(at, chains, like)

    longer = NUTS(num_warmup=6, num_draws=5, num_chains=2)
    refused("other settings", identity(longer, GAUSSIAN, first))
    refused("other data", identity(method, (GAUSSIAN[0] + 1, GAUSSIAN[1]), first))
    named = [identity(method, {name: GAUSSIAN[0]}, first)["data"] for name in "ab"]
    assert named[0] != named[1]
    keyed = first.each._replace(key=jax.random.split(jax.random.key(9), 2))
    refused(
        "another random key", identity(method, GAUSSIAN, first._replace(each=keyed))
    )
    model = first.each._replace(log_density=first.each.log_density * 1.001)
    refused("another model", identity(method, GAUSSIAN, first._replace(each=model)))
    more = first.each._replace(values={"position": jnp.zeros((2, 5, 4))})
    refused("other values", chains=first._replace(each=more))
    (tmp_path / "text.npz").write_text("nothing")
    refused("damaged", at=tmp_path / "text.npz")
    refused("cannot read", at=tmp_path / "none.npz")


def test_draws_of_a_tree_have_the_names_of_its_leaves():
    found = keep_position({"mean": 1.0, "log_sd": {"a": 0.0}})
    assert found == {"log_sd.a": 0.0, "mean": 1.0}


@pytest.mark.slow
def test_chains_together_are_single_chains():
    # Lockstep, one by one, and one of them alone: the same trajectories to rounding,
    # over few enough steps that rounding has not grown. Thinned, another thing kept.
    keep = lambda x, data: {"centred": x - data[0]}
    start = dispersed_starts(jnp.zeros(3), 2, key=KEY)
    found = {}
    for how in ("vectorized", "sequential"):
        method = NUTS(
            num_warmup=20, num_draws=5, num_chains=2, thinning=2, chain_method=how
        )
        options = {"method": method, "keep": keep}
        run = eqx.filter_jit(advance)
        chains = eqx.filter_jit(begin)(gaussian, start, GAUSSIAN, key=KEY, **options)
        chains = run(chains, gaussian, GAUSSIAN, num_steps=30, **options)
        found[how] = draws_of(chains, method)
    for one, two in zip(
        jax.tree.leaves(found["vectorized"]),
        jax.tree.leaves(found["sequential"]),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)
    draws = found["sequential"]
    centred = np.asarray(draws.values["centred"])
    assert centred.shape == (2, 5, 3) and draws.energy.shape == (2, 10)
    # A draw is of the last of its two transitions.
    density = -0.5 * np.einsum("cdi,ij,cdj->cd", centred, GAUSSIAN[1], centred)
    np.testing.assert_allclose(draws.log_density[:, 1::2], density, atol=1e-9)


@pytest.mark.slow
def test_chains_side_by_side_give_the_draws_of_chains_in_turn(tmp_path):
    found = {}
    for how in ("auto", "sequential"):
        method = NUTS(num_warmup=60, num_draws=40, num_chains=3, chain_method=how)
        seen = []
        path = tmp_path / f"{how}.npz"
        options = {"key": KEY, "method": method, "progress": seen.append}
        found[how] = sample(
            gaussian, jnp.zeros(3), GAUSSIAN, checkpoint=path, **options
        )
        assert seen[-1].phase == "finished"
        assert seen[-1].num_divergent == found[how].divergent.sum()
        # What was saved on the way is the whole run, chain by chain.
        again = sample(
            gaussian, jnp.zeros(3), GAUSSIAN, checkpoint=path, resume=True, **options
        )
        np.testing.assert_array_equal(
            again.values["position"], found[how].values["position"]
        )
    for one, two in zip(
        jax.tree.leaves(found["auto"]),
        jax.tree.leaves(found["sequential"]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_chains_in_threads_are_those_of_one_program():
    # By default this follows from the two tests before, of chains in turn.
    # Few steps, over which rounding has not grown.
    method = NUTS(num_warmup=20, num_draws=5, num_chains=3)
    start = dispersed_starts(jnp.zeros(3), 3, key=KEY)
    found = sample(gaussian, start, GAUSSIAN, key=KEY, method=method, radius=None)
    key = jax.random.split(KEY)[1]
    chains = eqx.filter_jit(begin)(gaussian, start, GAUSSIAN, key=key, method=method)
    run = eqx.filter_jit(advance)
    chains = run(chains, gaussian, GAUSSIAN, num_steps=25, method=method)
    for one, two in zip(
        jax.tree.leaves(found.values),
        jax.tree.leaves(draws_of(chains, method).values),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)


def test_threads_have_the_settings_of_the_thread_that_asked(monkeypatch):
    # Contexts hold for a thread only: without them draws would be of another precision.
    # The first chunk is done here, so there are to be several.
    monkeypatch.setattr(sampling, "CHUNK_SECONDS", 1e-4)
    assert jax.config.jax_enable_x64
    with jax.enable_x64(False):
        draws = sample(
            lambda x, scale: -0.5 * jnp.sum((x / scale) ** 2),
            jnp.zeros(2),
            jnp.ones(2),
            key=jax.random.key(0),
            method=NUTS(num_warmup=30, num_draws=20, num_chains=2),
        )
    assert draws.values["position"].dtype == draws.energy.dtype == jnp.float32


@pytest.mark.slow
def test_single_precision_stays_single():
    data = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), GAUSSIAN)
    method = NUTS(num_warmup=300, num_draws=700, num_chains=2)
    draws = sample(gaussian, jnp.zeros(3, jnp.float32), data, key=KEY, method=method)
    floats = (draws.values, draws.energy, draws.acceptance, draws.inverse_mass)
    assert {leaf.dtype for leaf in jax.tree.leaves(floats)} == {jnp.dtype(jnp.float32)}
    found = diagnose(draws.values["position"])
    assert (np.abs(found.mean - MEAN) < 5 * found.mcse).all()


@pytest.mark.slow
def test_divergences_are_counted_on_a_funnel():
    # Neal's (2003), centred: x_i ~ N(0, exp(v / 2)) with v ~ N(0, 3); its neck is
    # narrower than any step that suits its mouth.
    def funnel(p, data):
        return -(p["v"] ** 2) / 18 - jnp.sum(
            p["x"] ** 2 * jnp.exp(-p["v"]) / 2 + p["v"] / 2
        )

    start = {"v": jnp.zeros(()), "x": jnp.zeros(9)}
    method = NUTS(num_warmup=300, num_draws=500)
    draws = sample(funnel, start, key=KEY, method=method)
    count = int(draws.divergent.sum())
    assert count > 0
    assert Status(int(draws.status)) is Status.MAX_STEPS
    said = verdict(draws)
    assert said[0].startswith("Not converged")
    assert any(f"{count} of 2,000 transitions diverged" in line for line in said)
    assert any("non-centred" in line for line in said)


def test_the_schedule_of_warm_up_is_that_of_stan():
    from blackjax.adaptation.window_adaptation import build_schedule

    # Where the mass matrix is estimated, and the last steps of windows.
    for num, slow, ends in (
        (5, [], []),
        (20, [3, 18], [17]),
        (100, [15, 90], [89]),
        (149, [22, 135], [134]),
        (150, [75, 100], [99]),
        (300, [75, 250], [99, 149, 249]),
        (1000, [75, 950], [99, 149, 249, 449, 949]),
        (1234, [75, 1184], [99, 149, 249, 449, 1183]),
    ):
        schedule = np.asarray(build_schedule(num))
        estimated = np.diff(schedule[:, 0], prepend=0, append=0)
        assert np.flatnonzero(estimated).tolist() == slow
        assert np.flatnonzero(schedule[:, 1]).tolist() == ends
    # The sampler changes its mass matrix at the ends of windows and nowhere else.
    method = NUTS(num_warmup=250, num_draws=1, num_chains=1)
    start = jnp.zeros((1, 3))
    chains = eqx.filter_jit(begin)(gaussian, start, GAUSSIAN, key=KEY, method=method)
    run, found = eqx.filter_jit(advance), []
    for step in range(method.num_steps):
        before = np.asarray(chains.each.inverse_mass)
        one = jnp.asarray(1)
        chains = run(chains, gaussian, GAUSSIAN, method=method, num_steps=one)
        if (np.asarray(chains.each.inverse_mass) != before).any():
            found.append(step)
    assert found == [99, 199]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_chains": 0}, "num_chains=0; it needs at least 1"),
        ({"num_warmup": -1}, "num_warmup=-1"),
        ({"target_acceptance": 1.0}, "between 0 and 1"),
        ({"chain_method": "magic"}, "'magic' is none of auto"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        NUTS(**options)


def test_starts_that_cannot_be_are_refused(tmp_path):
    few = NUTS(num_warmup=5, num_draws=5, num_chains=2)
    options = {"key": KEY, "method": few}
    with pytest.raises(ValueError, match="floating arrays of one dtype"):
        sample(gaussian, jnp.zeros((2, 3), int), GAUSSIAN, radius=None, **options)
    with pytest.raises(ValueError, match="leading axis of 2 chains"):
        sample(gaussian, jnp.zeros(3), GAUSSIAN, radius=None, **options)
    nowhere = lambda x, data: jnp.log(-jnp.sum(x**2))
    with pytest.raises(ValueError, match="not finite at the start of chain 0"):
        sample(nowhere, jnp.ones(3), **options)
    with pytest.raises(ValueError, match="needs checkpoint="):
        sample(gaussian, jnp.zeros(3), GAUSSIAN, resume=True, **options)


@pytest.mark.slow
def test_a_dense_mass_matrix_learns_correlations():
    corr = 0.999
    precision = jnp.linalg.inv(jnp.array([[1, corr], [corr, 1]]))
    data = (jnp.zeros(2), precision)
    lengths = {}
    for dense in (False, True):
        method = NUTS(num_warmup=500, num_draws=1000, dense=dense)
        draws = sample(gaussian, jnp.zeros(2), data, key=KEY, method=method)
        found = diagnose(draws.values["position"])
        assert (np.abs(found.mean) < 5 * found.mcse).all()
        lengths[dense] = float(draws.num_leapfrog.mean())
    # 1 / sqrt(1 - corr) = 32 times as many steps without it, up to doubling.
    assert lengths[True] < lengths[False] / 4


EFFECT = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.mark.slow
def test_eight_schools_as_numpyro_samples_them():
    # Rubin (1981); mu ~ N(0, 5), tau ~ half-Cauchy(5), non-centred.
    import numpyro
    import numpyro.distributions as dist
    from numpyro import infer

    def schools(p, data):
        effect, error = data
        tau = jnp.exp(p["log_tau"])
        theta = p["mu"] + tau * p["z"]
        prior = -jnp.sum(p["z"] ** 2) / 2 - p["mu"] ** 2 / 50
        prior += p["log_tau"] - jnp.log1p((tau / 5) ** 2)
        return prior - jnp.sum(((effect - theta) / error) ** 2) / 2

    def keep(p, data):
        tau = jnp.exp(p["log_tau"])
        return {"mu": p["mu"], "log_tau": p["log_tau"], "theta": p["mu"] + tau * p["z"]}

    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        numpyro.deterministic("log_tau", jnp.log(tau))
        with numpyro.plate("schools", 8):
            z = numpyro.sample("z", dist.Normal(0, 1))
            theta = numpyro.deterministic("theta", mu + tau * z)
            numpyro.sample("y", dist.Normal(theta, ERROR), obs=EFFECT)

    start = {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()), "z": jnp.zeros(8)}
    method = NUTS(num_draws=4000, target_acceptance=0.95)
    draws = sample(schools, start, (EFFECT, ERROR), key=KEY, method=method, keep=keep)
    other = infer.MCMC(
        infer.NUTS(model, target_accept_prob=0.95),
        num_warmup=1000,
        num_samples=4000,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    other.run(KEY)
    theirs = other.get_samples(group_by_chain=True)
    for name in ("mu", "log_tau", "theta"):
        mine, reference = diagnose(draws.values[name]), diagnose(theirs[name])
        # Ten comparisons, each within four standard errors of the difference.
        error = np.hypot(mine.mcse, reference.mcse)
        assert (np.abs(mine.mean - reference.mean) < 4 * error).all()
        np.testing.assert_allclose(mine.sd, reference.sd, rtol=0.1)
    assert draws.divergent.mean() < 0.01
    assert has_converged(draws) == (int(draws.status) == Status.CONVERGED)


PROGRAM = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from irtjax.estimators.posterior import sample as sampling
from irtjax.estimators.posterior.methods import NUTS
path, out, pause = sys.argv[1:]
sampling.SAVE_SECONDS, sampling.SAVE_SHARE, sampling.CHUNK_SECONDS = 0.0, 1e9, 0.01
def funnel(p, data):
    return -p["v"] ** 2 / 18 - jnp.sum(p["x"] ** 2 * jnp.exp(-p["v"]) / 2 + p["v"] / 2)
def watch(progress):
    print(progress.step, flush=True)
    time.sleep(float(pause))
draws = sampling.sample(
    funnel, {"v": jnp.zeros(()), "x": jnp.zeros(9)}, key=jax.random.key(1),
    method=NUTS(num_warmup=300, num_draws=500, num_chains=2),
    checkpoint=path, resume=True, progress=watch,
)
np.savez(out, **draws.values)
"""


@pytest.mark.slow
def test_a_killed_run_gives_the_draws_of_an_unbroken_one(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "JAX_PLATFORMS": "cpu"}

    def start(path, out, pause):
        command = [sys.executable, "-c", PROGRAM, str(path), str(out), str(pause)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    whole = start(tmp_path / "whole.npz", tmp_path / "whole_draws.npz", 0)
    assert whole.wait(300) == 0
    for place in (50, 400):  # twice, in warm-up and after it
        process = start(tmp_path / "run.npz", tmp_path / "draws.npz", 0.3)
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) > place:
                time.sleep(0.15)  # the checkpoint is being written, or has been
                os.kill(process.pid, signal.SIGKILL)
                break
        assert process.wait(60) == -signal.SIGKILL
    assert not (tmp_path / "draws.npz").exists()
    rest = start(tmp_path / "run.npz", tmp_path / "draws.npz", 0)
    assert rest.wait(300) == 0
    one, two = (np.load(tmp_path / f) for f in ("whole_draws.npz", "draws.npz"))
    for name in ("v", "x"):
        np.testing.assert_array_equal(one[name], two[name])

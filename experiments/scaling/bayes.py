"""Times the two routes to the posteriors of multilevel models.

    python experiments/scaling/bayes.py '{"subjects": 58, "items": 805, ...}'

Worker of `run.py`: NUTS on normal logits against numpyro's on the same model, written
in numpyro's own words, and `laplace` on binary responses of several benchmarks.
A package that is not installed is named and skipped.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.scaling.measure import Row, Spec, peak_bytes, row
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem, start_multilevel
from irtjax.estimators.posterior import diagnose
from irtjax.estimators.posterior.methods import NUTS
from irtjax.estimators.posterior.sample import sample
from irtjax.estimators.posterior.sampling_frame import SamplingFrame
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.model import MultilevelModel
from irtjax.models.priors import HalfNormal, LogNormal, Normal


class Sampled(NamedTuple):
    """What a sampler gave.

    Attributes:
        ability: `[chains, draws, subjects]`.
        items: `[chains, draws, items, 3]` coordinates, or what they are monotone in.
        num_leapfrog: Leapfrog steps after warm-up, of all chains.
        num_divergent: Divergent transitions after warm-up, of all chains.
    """

    ability: np.ndarray
    items: np.ndarray
    num_leapfrog: int
    num_divergent: int


def draw_logits(subjects: int, items: int) -> jax.Array:
    """Simulated logits of LEGO-CM."""
    rng = np.random.default_rng(0)
    slope, shift = rng.lognormal(0, 0.5, items), rng.normal(0, 1, items)
    noise = rng.uniform(0.5, 1.5, items) * rng.normal(size=(subjects, items))
    logits = slope * rng.normal(size=(subjects, 1)) + shift + noise
    return jnp.asarray(logits, jnp.float32)


def score_model(subjects: int, items: int) -> MultilevelModel:
    """LEGO-CM with priors that are given."""
    return MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.zeros(items, int),
        jnp.arange(items),
        jnp.ones((items, 1), jnp.float32),
        jnp.asarray([-1]),
        jnp.zeros((subjects, 0), jnp.float32),
        {
            "discrimination": LogNormal(0.0, 0.5),
            "intercept": Normal(0.0, 2.0),
            "dispersion": HalfNormal(1.0),
        },
        num_stems=items,
    )


def our_sampler(logits: jax.Array, method: NUTS):
    """A function of a seed that samples by irtjax."""
    model, data = score_model(*logits.shape), Responses(logits)
    frame = SamplingFrame(model, rough=start_multilevel(model, data)[0])
    # Methods of a module are trees: its arrays are arguments of what is compiled.
    log_density, keep = frame.log_density, frame.kept
    start = frame.coordinates(frame.model.zeros(jnp.float32))

    def call(seed: int) -> Sampled:
        draws = sample(
            log_density,
            start,
            data,
            key=jax.random.key(seed),
            method=method,
            keep=keep,
        )
        ability, items = draws.values["ability"], draws.values["items"]
        return Sampled(
            np.asarray(ability)[..., 0],
            np.asarray(items),
            int(draws.num_leapfrog.sum()),
            int(draws.divergent.sum()),
        )

    return call


def numpyro_sampler(logits: jax.Array, method: NUTS):
    """The same by numpyro, chains one after the other as irtjax has them on a CPU.

    numpyro traces and compiles anew in every run, be it called before or not.
    """
    numpyro: Any = importlib.import_module("numpyro")
    dist: Any = importlib.import_module("numpyro.distributions")
    infer: Any = importlib.import_module("numpyro.infer")
    subjects, items = logits.shape

    def model(logits):
        with numpyro.plate("items", items):
            slope = numpyro.sample("slope", dist.LogNormal(0.0, 0.5))
            shift = numpyro.sample("shift", dist.Normal(0.0, 2.0))
            sd = numpyro.sample("sd", dist.HalfNormal(1.0))
        with numpyro.plate("subjects", subjects):
            theta = numpyro.sample("theta", dist.Normal())
        mean = slope * theta[:, None] + shift
        numpyro.sample("logits", dist.Normal(mean, sd), obs=logits)

    sampler = infer.MCMC(
        infer.NUTS(
            model,
            target_accept_prob=method.target_acceptance,
            # irtjax' starts: uniform within 1 of the zero position.
            init_strategy=infer.init_to_uniform(radius=1.0),
        ),
        num_warmup=method.num_warmup,
        num_samples=method.num_draws,
        num_chains=method.num_chains,
        chain_method="sequential",
        progress_bar=False,
    )

    def call(seed: int) -> Sampled:
        fields = ("num_steps", "diverging")
        sampler.run(jax.random.key(seed), logits, extra_fields=fields)
        draws = sampler.get_samples(group_by_chain=True)
        extra = sampler.get_extra_fields(group_by_chain=True)
        return Sampled(
            np.asarray(draws["theta"]),
            np.stack([draws[name] for name in ("slope", "shift", "sd")], axis=-1),
            int(extra["num_steps"].sum()),
            int(extra["diverging"].sum()),
        )

    return call


def timed(call, seed: int) -> tuple[float, Sampled]:
    """Seconds of one run, and what it gave."""
    began = time.perf_counter()
    found = call(seed)
    return time.perf_counter() - began, found


def sampler_rows(
    name: str, found: Sampled, seconds: float, compiling: float, method: NUTS
) -> tuple[list[Row], dict[str, float]]:
    """Rows of one sampler, and its effective draws per second by name."""
    rates: dict[str, float] = {}
    rhat = 0.0
    for part, values in (("abilities", found.ability), ("items", found.items)):
        diagnosis = diagnose(values)
        rates[f"{part}, least"] = float(diagnosis.ess_bulk.min()) / seconds
        rates[f"{part}, median"] = float(np.median(diagnosis.ess_bulk)) / seconds
        rhat = max(rhat, float(diagnosis.rhat.max()))
    draws = method.num_draws * method.num_chains
    return [
        row(f"{name}: warm-up and draws, without compiling", seconds, "s"),
        row("  compiling", compiling, "s"),
        row("  leapfrog steps per draw", found.num_leapfrog / draws),
        row("  divergent transitions", found.num_divergent),
        row("  largest R-hat", rhat),
        *(row(f"  effective draws, {k}", v, "per s") for k, v in rates.items()),
    ], rates


def measure_samplers(spec: Spec) -> tuple[list[Row], list[str]]:
    """irtjax' and numpyro's NUTS, turn by turn in this process."""
    logits = draw_logits(spec["subjects"], spec["items"])
    method = NUTS(
        num_warmup=spec["warmup"], num_draws=spec["draws"], num_chains=spec["chains"]
    )
    rows, ours = [], {}
    for name, how in (("NUTS", "auto"), ("NUTS, chains in turn", "sequential")):
        call = our_sampler(logits, dataclasses.replace(method, chain_method=how))
        first, _ = timed(call, 1)
        seconds, found = timed(call, 2)
        more, ours[how] = sampler_rows(name, found, seconds, first - seconds, method)
        rows += more
    if importlib.util.find_spec("numpyro") is None:
        return rows, ["numpyro: not installed, skipped"]
    shortest = dataclasses.replace(method, num_warmup=2, num_draws=1)
    compiling, _ = timed(numpyro_sampler(logits, shortest), 1)
    whole, found = timed(numpyro_sampler(logits, method), 2)
    more, theirs = sampler_rows(
        "numpyro NUTS", found, max(whole - compiling, 1e-3), compiling, method
    )
    rows += more
    wanted = spec.get("min_ratio")
    for name, rate in theirs.items():
        ratio, in_turn = (ours[how][name] / rate for how in ("auto", "sequential"))
        rows.append(row(f"ratio of {name}", ratio, "", wanted, ">="))
        rows.append(row("  chains in turn", in_turn))
    return rows, []


def draw_benchmarks(
    subjects: int, items: int, groups: int, missing: float
) -> tuple[MultilevelModel, Responses, np.ndarray]:
    """Binary responses of benchmarks, their model, and the abilities behind them."""
    rng = np.random.default_rng(1)
    group = np.arange(items) % groups
    own = 0.3**2 * (0.3 + 0.7 * np.eye(groups))
    theta = rng.normal(size=(subjects, 1))
    theta = theta + rng.multivariate_normal(np.zeros(groups), own, subjects)
    slope = np.exp(0.2 + 0.4 * rng.normal(size=items))
    shift = np.linspace(-0.7, 0.7, groups)[group] + rng.normal(size=items)
    chance = 1 / (1 + np.exp(-slope * theta[:, group] - shift))
    seen = rng.random((subjects, items)) >= missing
    right = (rng.random((subjects, items)) < chance) & seen
    model = MultilevelModel(
        Binary(slopes="positive"),
        jnp.asarray(group),
        jnp.arange(items),
        jnp.asarray(np.column_stack([np.ones(items), np.eye(groups)[group]]), float),
        jnp.asarray([-1, *[0] * groups]),
        jnp.zeros((subjects, 0)),
        num_groups=groups,
        num_stems=items,
        num_components=1,
        has_group_scales=True,
    )
    return model, Responses(jnp.asarray(right, jnp.int8), jnp.asarray(seen)), theta


def measure_fast(spec: Spec) -> list[Row]:
    """`laplace`: a whole fit of many items by few subjects."""
    model, data, theta = draw_benchmarks(
        spec["fast_subjects"], spec["fast_items"], spec["fast_groups"], 0.0025
    )
    jax.block_until_ready(data)
    before = peak_bytes()
    began = time.perf_counter()
    problem = MultilevelProblem.create(model, data)
    arranged = time.perf_counter() - began
    method = Laplace()
    call = lambda: jax.block_until_ready(run_jit(problem, method, None, max_steps=300))
    began = time.perf_counter()
    call()
    first = time.perf_counter() - began
    began = time.perf_counter()
    fit = call()
    seconds = time.perf_counter() - began
    peak = peak_bytes()
    ability = np.asarray(fit.state.ability)
    return [
        row("`laplace`: arranging the data", arranged, "s"),
        row("  whole fit", seconds, "s", spec.get("max_seconds")),
        row("  compiling", first - seconds, "s"),
        row("  distinct items (with responses of their own)",
            problem.distinct.weight.shape[0]),
        row("  steps", int(fit.num_steps)),
        row("  last move", float(fit.state.residual), "standard errors"),
        row("  converged", int(fit.status) == Status.CONVERGED, "", 1.0, ">="),
        row("  correlation of abilities with the truth",
            np.corrcoef(ability.ravel(), theta.ravel())[0, 1]),
        row("  peak memory", peak / 1e9, "GB"),
        row("  of which before the fit", before / 1e9, "GB"),
    ]  # fmt: skip


def measure(spec: Spec) -> dict[str, Any]:
    """Rows of both routes, with the load of the machine around them."""
    load_before = os.getloadavg()[0]
    # First: the high-water mark of memory is to be its own.
    rows = measure_fast(spec)
    more, notes = measure_samplers(spec)
    load = [load_before, os.getloadavg()[0]]
    return {"rows": rows + more, "load": load, "notes": notes}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))

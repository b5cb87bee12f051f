"""Posteriors of multilevel models: as numpyro samples the same models in its words."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import infer
from scipy import stats

from experiments.lego_irt.posteriors import TIGHT, structured_model
from experiments.lego_irt.prior_draws import simulate_multilevel, simulate_position
from irtjax.estimators.laplace.laplace import start_multilevel
from irtjax.estimators.posterior import diagnose
from irtjax.estimators.posterior.estimates import kept_quantities
from irtjax.estimators.posterior.methods import NUTS, frame_log_density
from irtjax.estimators.posterior.sample import sample
from irtjax.estimators.posterior.sampling_frame import Centring, SamplingFrame

SUBJECTS, ITEMS = 10, 30


def written(model, data):
    """The model, non-centred throughout; what is compared are deterministic sites."""
    groups, stems = model.num_groups, model.num_stems
    columns, own = model.num_columns, model.hyperpriors
    half = lambda name, scale, *shape: numpyro.sample(
        name, dist.HalfNormal(scale).expand(shape)
    )
    normal = lambda name, *shape: numpyro.sample(name, dist.Normal().expand(shape))
    theta = normal("psi", SUBJECTS)[:, None]
    if groups > 1:
        factor = numpyro.sample("factor", dist.LKJCholesky(groups, 2.0))
        root = half("scale", own.scale, groups)[:, None] * factor
        theta = theta + normal("zeta", SUBJECTS, groups) @ root.T
        numpyro.deterministic("specific_covariance", root @ root.T)
    mean = own.effect * normal("all", 1, columns)
    if model.num_components:
        sd = half("component", own.component, 1, columns)
        mean = mean + (sd * normal("benchmarks", groups, columns))[model.group]
    residual = half("residual", own.residual, columns)
    tied = numpyro.sample("tied", dist.LKJCholesky(columns, 2.0))
    gap = normal("gap", stems, columns) @ (residual[:, None] * tied).T
    if model.has_tilts:
        tilt = own.tilt * normal("tilt", groups)
        slope = (tilt - tilt.mean())[model.group]
        gap = gap.at[:, 1].add(slope * gap[:, 0])
    rows = (mean + gap)[model.stem]
    if model.has_group_effects:
        shift = own.group_effect * normal("shift", groups, columns)
        rows = rows + shift[model.group]
    eta = jnp.exp(rows[:, 0]) * theta[:, model.group] + rows[:, 1]
    numpyro.deterministic("ability", theta * jnp.ones(groups))
    numpyro.deterministic("coordinates", rows)
    if columns == 3:
        numpyro.sample("y", dist.Normal(eta, jnp.exp(rows[:, 2])), obs=data.values)
    else:
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data.values)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LEGO-CM", "LEGO-MM", "LEGO-MB"])
def test_posteriors_are_those_of_numpyro(kind):
    model = structured_model(kind, SUBJECTS, ITEMS, 3, TIGHT)
    keys = jax.random.split(jax.random.key(4), 4)
    truth = simulate_position(model, keys[0]).position
    data = simulate_multilevel(model, truth, keys[1])
    rough = start_multilevel(model, data)
    frame = SamplingFrame(model, Centring.create(model, *rough, data))
    start = model.zeros()._replace(log_residual_sd=jnp.full(model.num_columns, -1.0))
    draws = sample(
        frame_log_density,
        frame.coordinates(start),
        (frame, data),
        key=keys[2],
        method=NUTS(num_draws=1000, target_acceptance=0.9),
        keep=kept_quantities,
        radius=0.5,
    )
    other = infer.MCMC(
        infer.NUTS(written, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=1000,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    other.run(keys[3], model, data)
    theirs = other.get_samples(group_by_chain=True)
    names = ["ability", "coordinates"]
    names += ["specific_covariance"] * (model.num_groups > 1)
    for name in names:
        parts = [np.asarray(of[name]) for of in (draws.values, theirs)]
        if name != "specific_covariance":
            # Origin and unit of ability move all of a column at once: that is one
            # comparison, and would be taken for as many as there are rows.
            wholes = [part.mean(axis=2, keepdims=True) for part in parts]
            assert_same(wholes, f"mean {name}")
            parts = [part - whole for part, whole in zip(parts, wholes, strict=True)]
        assert_same(parts, name)


def assert_same(parts, name):
    """Means and standard deviations of two arrays of draws, in Monte-Carlo errors."""
    one, other = (diagnose(part) for part in parts)
    off = (one.mean - other.mean) / np.hypot(one.mcse, other.mcse)
    # Some 130 comparisons in all: the largest of as many normal ones is 3.6.
    assert np.abs(off).max() < 5 and np.abs(np.median(off)) < 3.5, name
    # A log standard deviation from n effective draws errs by sqrt((kurtosis - 1) / 4n):
    # 4 % of normal ones with 300, and five times that of variances and covariances.
    errors = [
        np.sqrt(
            (stats.kurtosis(part, axis=(0, 1), fisher=False) - 1) / (4 * d.ess_bulk)
        )
        for part, d in zip(parts, (one, other), strict=True)
    ]
    ratio = np.log(one.sd / other.sd) / np.hypot(*errors)
    assert np.abs(ratio).max() < 5 and np.abs(np.median(ratio)) < 3.5, name

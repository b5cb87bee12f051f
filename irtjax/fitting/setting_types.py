"""Names and types of the settings of a fit: the one list for Python and command line.

The command line makes options of them, so nothing is imported here that loads arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import numpy as np

    from irtjax.data.scores import Bounds
    from irtjax.fitting.anchors import Anchor
    from irtjax.fitting.groups import FreeByGroup
    from irtjax.likelihood.problem import Start
    from irtjax.models.catalogue import Priors
    from irtjax.models.multilevel.model import Hyperpriors


class Settings(TypedDict, total=False):
    """Settings that `irtjax.fit` takes by name; those of methods are their fields.

    The first three belong to a model given by name, the next three to the data. From
    `item_model` to `hyperpriors` they are settings of multilevel models and of the
    methods "laplace", "nuts" and "vi"; the others are settings of methods.

    Attributes:
        priors: "weak", None for plain maximum likelihood, or a mapping of parameter
            names to priors. Unless there are anchors, priors hold up to a location
            and scale of ability, which are estimated (see `Model.prior_frame`).
            Multilevel models estimate the priors that are not given. "held_out", for
            "factor" by "mm": slopes are N(0, s^2), s chosen by responses held out
            (`estimators.slope_prior`).
        positive: Keep every discrimination above 0.
        ends: For "inflated_beta": treat scores within this of 0 or 1 as 0 or 1.
        squeeze: For "continuous", "beta" and "mixed": move scores nearer to 0 or 1 than
            1 / (2 squeeze) to that distance, with a warning that counts them. None
            moves only 0 and 1 themselves, half-way to the score nearest to any end. May
            be a mapping by benchmark (or metric).
        bounds: For models of scores: lowest and highest possible score, if these are
            not 0 and 1; or these by benchmark: ``{"judge": (1, 10)}``.
        length_offset: For "lart": the logarithm of offset + length is modelled.
        zero_lengths: For "lart": "kept", or "missing" for lengths of 0, which are those
            of empty responses.
        item_model: The model of single responses, such as "2pl" or "continuous"; None:
            by the kind of the data. "rasch" has slopes of 1 and an estimated standard
            deviation of (general) ability. For "factor": "binary", "graded",
            "partial_credit" or "continuous".
        facets: Facets of items (other than the benchmark) whose values shift items,
            such as "domain"; or a label for each item, `[items]`, by name of the facet.
            "benchmark/domain" is the domain within each benchmark.
        shared_items: For "multimetric": the facet that names the thing measured, or
            such a name for each item. The metrics of a thing then share its parameters.
        metric_effects: With `shared_items`: whether each metric shifts the parameters
            of all things (its intercept, slope and dispersion).
        sd_by_benchmark: Whether the items of each benchmark have their own standard
            deviations around its mean; else one serves all.
        item_covariates: Numbers `[items]` by name that shift items (LLTM).
        item_features: Numbers `[items]` by name, or `[items, features]`: of multilevel
            models they are standardised and shift items, with one variance of effects
            on each parameter, a ridge, that the marginal likelihood chooses. Of
            "neural" they represent the items.
        subject_covariates: Numbers `[subjects]` by name, or `[subjects, covariates]`,
            that shift abilities (latent regression).
        hyperpriors: Priors of variances and correlations; see `irtjax.Hyperpriors`.
        factors: For "factor": number of factors, 2 where None. With the setting
            ``penalty="noise"`` of "mm" it is the largest number: those above noise are
            kept (`estimators.noise_rank`).
        rotation: Rotation of the factors, by name; "none" for the principal axes.
        loadings: Which loadings to estimate; see `irtjax.Factor`.
        target: Loadings that the rotation approaches; see `irtjax.Factor`.
        num_starts: For "factor" with `positive`, by "mm": starts, of which the best
            end is kept; see `irtjax.Factor`.
        link: For "factor": "logit", or "probit" of binary responses.
        anchor: Items with fixed parameters; the ability distribution is then estimated
            on their scale. See `anchors.read_anchor`.
        start: "proportions", "spectral", "low_rank", or start values.
        population: For "em": "normal", or "histogram" to estimate its form.
        standard_errors: "observed", "cross_product", "sandwich" or "none".
        item_uncertainty: Whether ability errors include the items' uncertainty; when
            False (or without standard errors) items are taken as known.
        family: Families of subjects that errors count as related, such as fine-tunes of
            one base model: a facet of subjects, or a label for each. None: labels that
            the data have, beginnings of names and the responses are searched.
        cluster: Clusters of items that errors count as dependent, such as questions on
            one passage: a facet of items, or a label for each. None: searched as well.
        run_sd: Standard deviation of a score from run to run, in points (hundredths of
            scores from 0 to 1), that errors count in addition to what repeated runs
            show; see `calibration.runs`.
        groups: Groups of subjects that each have a mean and standard deviation of
            ability of their own, by "em": a facet of subjects, or a label for each.
        free_by_group: With `groups`, names of item parameters that each group has of
            its own: "intercept", or several, of all items, or by item:
            ``{"q7": ("discrimination", "intercept")}``. All other parameters are equal
            in all groups.
        checkpoint: File that saves the fit on its way, every few steps; by "nuts", "em"
            and other methods that take steps.
        resume: Whether to resume from that file: with the same result, to the last bit.
    """

    priors: Priors
    positive: bool
    ends: float | None
    squeeze: float | Mapping[str, float] | None
    bounds: Bounds | None
    length_offset: float
    zero_lengths: str
    item_model: str | None
    facets: Sequence[str] | Mapping[str, np.ndarray]
    shared_items: str | Sequence[str] | np.ndarray | None
    metric_effects: bool
    sd_by_benchmark: bool
    item_covariates: Mapping[str, np.ndarray] | None
    item_features: Mapping[str, np.ndarray] | np.ndarray | None
    subject_covariates: Mapping[str, np.ndarray] | np.ndarray | None
    hyperpriors: Hyperpriors | None
    factors: int | None
    rotation: str | None
    loadings: np.ndarray | Mapping[str, Sequence[str]] | None
    target: np.ndarray | Mapping[str, Mapping[str, float]] | None
    num_starts: int | None
    link: str
    anchor: Anchor | None
    start: Start | str
    population: str
    standard_errors: str
    item_uncertainty: bool
    family: str | Sequence[str] | None
    cluster: str | Sequence[str] | None
    run_sd: float | None
    groups: str | Sequence[str] | None
    free_by_group: FreeByGroup | None
    checkpoint: str | None
    resume: bool


def typed_as(setting: str) -> type:
    """The type of a setting that a command line can have: a number, a flag or text.

    >>> typed_as("factors"), typed_as("positive"), typed_as("start")
    (<class 'int'>, <class 'bool'>, <class 'str'>)
    """
    annotation: Any = Settings.__annotations__[setting]
    kinds = {kind.__name__: kind for kind in (bool, int, float)}
    return kinds.get(annotation.__forward_arg__.partition(" | ")[0], str)

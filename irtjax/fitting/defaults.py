"""The model and the method that suit the data: what `irtjax.fit` does by default.

The kind of responses determines the model, and what they carry the method. With n
responses to an item and a mean correlation r of two items, n r determines the slope of
an item (`identification.variation`). Where it is small, because subjects are few or
hardly differ, a slope is hardly estimated: maximum likelihood makes it too large, and
treats it as known when abilities are scored. With many more items than subjects the
errors of items add up. `laplace` integrates items out, with priors estimated from all
of them. Else both agree, and `em` is faster.

`laplace` takes abilities as normal given the responses. Of m responses of a subject,
with m r below about 1.5 and slopes that are hardly estimated, neither method orders
subjects as well as accuracy does: all slopes are equal then (`1pl`).

Fewer than eight subjects do not even determine the scale of ability, on which slopes
depend: models with slopes of 1 have the items' scale, and tests of pairs that hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from irtjax.calibration.identification import variation
from irtjax.calibration.scale import ENOUGH_STRENGTH, LEAST_CARRIED
from irtjax.data.scores import Bounds, trial_dependence
from irtjax.data.table import FEW_SUBJECTS, MOST_LEVELS, ResponseTable
from irtjax.data.wording import are, counted, percent
from irtjax.fitting.problem import specify
from irtjax.fitting.resolve import category_codes, nearly_binary
from irtjax.fitting.settings import ITEMS, changed
from irtjax.models.catalogue import (
    MODELS,
    ORDERED_MODELS,
    model_class,
    share,
    weak_priors,
)
from irtjax.models.families.bounded import MANY_ENDS, at_the_ends, binary_items
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.model import Model
from irtjax.models.multilevel.specification import MULTILEVEL

#: The name that leaves a choice to the data.
AUTO = "auto"
#: Mean number of responses to an item below which items are integrated out. By EM,
#: 95 % intervals of differences covered 94 % with 60 responses to an item and 91 % with
#: 18, where those by Laplace covered 95 %.
FEW_RESPONSES = 50
#: Items to a subject from which they are integrated out, as they are where strength is
#: below `ENOUGH_STRENGTH`. By EM intervals of differences covered 91 to 93 % at 2 to 5
#: and 95 % at 12, and 88 % of 60 subjects and 1,000 items.
MOST_ITEMS = 5
#: Subjects from which slopes are equal below `LEAST_CARRIED`. Of 200 x 25 with a
#: standard deviation of 0.3 logits Kendall's tau was .07 less than that of accuracy by
#: `laplace`, and expected scores covered 80 %.
LEAST_SUBJECTS = 20
#: Subjects squared times items that `laplace` integrates over in a minute or two, and
#: responses in ordered categories.
MOST_WORK, MOST_ORDERED = 4e8, 15_000
#: Models with slopes of 1 that are integrated over with few subjects.
UNIT_SLOPES = ("rasch", "pcm")
#: Subjects whose abilities `laplace` stores a dense covariance of in seconds.
MOST_INTEGRATED = 600
#: Ordered categories that `laplace` integrates over in seconds: 10 x 349 responses of 5
#: take it 13 processor seconds, of 11 more than 200, `em` 6.
MOST_CATEGORIES = 5
#: Times that errors are too small, from which trials are no independent responses.
LEAST_DEPENDENCE = 1.1
#: Settings with which counts are right and wrong responses.
ONLY_BINARY = {"item_model", "priors", "positive", *ITEMS}
#: Settings of multilevel models that do not determine the method.
KEPT = ("item_model", "metric_effects")


class ModelChoice(NamedTuple):
    """The model and the method to fit, by name or as given, and the reason.

    The reason is one sentence; empty where nothing was left to the data. `bounds` are
    those of ratings that are taken as scores.
    """

    model: Any
    method: Any
    reason: str
    bounds: tuple[float, float] | None = None


def choose(
    table: ResponseTable,
    model: Any = AUTO,
    method: Any = AUTO,
    settings: Mapping[str, Any] | None = None,
    *,
    categories: bool = False,
) -> ModelChoice:
    """Chooses the model and the method that are left to the data (`AUTO`).

    Of the settings given to `irtjax.fit`, `bounds` determine the model, and those that
    one method alone accepts the method; a ValueError if options of both were given.
    Ratings in many categories are taken as scores where few subjects rated each item,
    whatever the categories are needed for (`categories`).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> few = ResponseTable.from_arrays(rng.integers(0, 2, size=(10, 240)))
    >>> many = ResponseTable.from_arrays(rng.integers(0, 2, size=(900, 40)))
    >>> choose(few)[:2], choose(many)[:2]
    (('2pl', 'laplace'), ('2pl', 'em'))
    """
    settings, why_model = settings or {}, ""
    if isinstance(model, str) and model == AUTO:
        model, why_model = _model_of(table, settings)
        by_data = isinstance(method, str) and method == AUTO and not categories
        if by_data and _has_many_categories(table, model, settings):
            low, high = float(table.seen.min()), float(table.seen.max())
            chosen = choose(table, AUTO, AUTO, {**settings, "bounds": (low, high)})
            why = (
                f"{len(category_codes(table))} categories are too many for {model} with"
                f" {_responses_per_item(table):,.0f} responses to an item: ratings"
                f" from {low:g} to {high:g} are scores"
            )
            _, _, method_part = chosen.reason.partition("; ")
            reason = _sentence(chosen.model, chosen.method, why, "")
            reason = "; ".join(filter(None, (reason, method_part)))
            return chosen._replace(reason=reason, bounds=(low, high))
        if by_data and model == "2pl" and _equal_slopes(table, settings):
            model = "1pl"
            why_model += (
                ", and subjects hardly differ on so few items: slopes are equal"
            )
    if not (isinstance(method, str) and method == AUTO):
        return ModelChoice(model, method, _sentence(model, method, why_model, ""))
    method, why_method = _method_of(table, model, settings)
    return ModelChoice(model, method, _sentence(model, method, why_model, why_method))


def _model_of(table: ResponseTable, settings: Mapping[str, Any]) -> tuple[Any, str]:
    """The name of the model that suits a table, and the reason."""
    bounds: Bounds | None = settings.get("bounds")
    few = table.num_subjects < FEW_SUBJECTS
    binary, ordered = ("rasch", "pcm") if few else ("2pl", "graded")
    subjects = f"{counted(table.num_subjects, 'subject')} {are(table.num_subjects)}"
    slopes = f", and {subjects} too few for slopes" * few
    if table.trials is not None:
        if binary_items(table, bounds).all():
            times = trial_dependence(table)
            if times < LEAST_DEPENDENCE or settings.keys() & ONLY_BINARY:
                return binary, f"responses are counts of right responses{slopes}"
            why = "repeated responses of a subject to an item are alike"
            why += f" (as independent ones, errors were {times:.1f} times too small)"
            return (share(slopes="unit") if few else "share"), f"{why}{slopes}"
        return "mixed", "some items have counts of right responses, the others scores"
    if bounds is None and nearly_binary(table):
        # A response that is neither is refused with its place.
        return binary, f"responses are right or wrong{slopes}"
    levels = table.kind == "ordinal" and np.ptp(table.seen) < MOST_LEVELS
    if levels and bounds is None:
        return ordered, f"responses are ordered categories{slopes}"
    plain = few and not settings.keys() & {"priors", "positive", "item_model"}
    ends = at_the_ends(table, bounds)
    if ends >= MANY_ENDS:
        at = f"{percent(round(ends, 3))} of the scores are at an end of their range"
        if plain:
            return share(slopes="unit"), f"{at}{slopes}"
        return "share", at
    right = binary_items(table, bounds)
    if right.any() and not right.all():
        return "mixed", "some items are right or wrong, the others have scores"
    if plain:
        return _unit_scores(), f"responses are scores in an interval{slopes}"
    return "continuous", "responses are scores in an interval"


def _has_many_categories(
    table: ResponseTable, model: Any, settings: Mapping[str, Any]
) -> bool:
    """Whether items of ordered categories can be neither estimated nor integrated out.

    Estimates of 10 subjects by 80 items of 10 categories did not converge by `em`;
    scores covered 95 %.
    """
    usual = {**dict.fromkeys(ITEMS), "priors": "weak"}
    return (
        model in ("graded", "pcm")
        and not changed(settings, {**usual, **dict.fromkeys(MULTILEVEL)})
        and len(category_codes(table)) > MOST_CATEGORIES
        and _responses_per_item(table) < FEW_RESPONSES
        and table.num_subjects <= MOST_INTEGRATED
    )


def _unit_scores() -> Model:
    """`continuous` with slopes of 1, the standard deviation of ability estimated."""
    return Model("continuous", LogitNormalScores("unit"), scale="unit_slope")


def _method_of(
    table: ResponseTable, model: Any, settings: Mapping[str, Any]
) -> tuple[str, str]:
    """The name of the method that suits a table and a model, and the reason."""
    usual = {**dict.fromkeys(ITEMS), "priors": "weak"}
    classical, specification = list(changed(settings, usual)), specify(model)
    multilevel = [n for n in changed(settings, MULTILEVEL) if n not in KEPT]
    default = specification.default_for(table, settings)
    if default is not None:
        return default
    if classical and multilevel:
        raise ValueError(
            f"{classical[0]} requires method='em' and {multilevel[0]} requires"
            " method='laplace': leave one of them out"
        )
    if multilevel:
        return "laplace", f"{multilevel[0]} requires it"
    if classical:
        return "em", f"{classical[0]} requires it"
    subjects = table.num_subjects
    unit = (
        model in UNIT_SLOPES if isinstance(model, str) else model.scale == "unit_slope"
    )
    if not (unit and subjects < FEW_SUBJECTS) and not is_integrated(model):
        return "em", ""
    each = _responses_per_item(table)
    why = f"an item has {counted(round(each), 'response')} on average"
    ordered = _has_categories(model)
    if each >= FEW_RESPONSES:
        if _too_large(table, ordered):
            return "em", why
        strength = _carried(table)[0]
        if strength >= ENOUGH_STRENGTH and table.num_items <= MOST_ITEMS * subjects:
            return "em", why
        why = f"the {counted(round(each), 'response')} to an item"
        why += " hardly determine its slope" * (strength < ENOUGH_STRENGTH)
        why += " leave errors that add up" * (strength >= ENOUGH_STRENGTH)
        return "laplace", f"{why}: items are integrated out"
    if subjects > MOST_INTEGRATED:
        return "em", f"{subjects:,} subjects are too many for laplace"
    categories = len(category_codes(table)) if ordered else 0
    if categories > MOST_CATEGORIES:
        return "em", f"{categories} categories are too many for laplace"
    return "laplace", f"{why}, below {FEW_RESPONSES}: items are integrated out"


def _too_large(table: ResponseTable, ordered: bool) -> bool:
    """Whether `laplace` takes much longer than `em` where items have many responses."""
    subjects = table.num_subjects
    if subjects > MOST_INTEGRATED or subjects**2 * table.num_items > MOST_WORK:
        return True
    if not ordered:
        return False
    large = table.num_observed > MOST_ORDERED
    return large or len(category_codes(table)) > MOST_CATEGORIES


def _carried(table: ResponseTable) -> tuple[float, float]:
    """Mean correlation of two items times responses to an item, and of a subject."""
    strength = variation(table).strength
    return strength, strength * table.num_items / table.num_subjects


def _equal_slopes(table: ResponseTable, settings: Mapping[str, Any]) -> bool:
    """Whether responses are too few for slopes, whatever the method; see the module."""
    free = not changed(settings, {**dict.fromkeys(ITEMS), "priors": "weak"})
    free = free and not changed(settings, dict.fromkeys(MULTILEVEL))
    free = free and not settings.get("positive")
    if not free or not LEAST_SUBJECTS <= table.num_subjects <= MOST_INTEGRATED:
        return False
    strength, own = _carried(table)
    return strength < ENOUGH_STRENGTH and own < LEAST_CARRIED


def is_integrated(model: Any) -> bool:
    """Whether `laplace` fits a model with one ability, by the family.

    A model object must be what its name would be: slopes above 0, and weak priors,
    which learned ones replace.
    """
    if not issubclass(model_class(model), Model):
        return False
    if isinstance(model, str):
        make = MODELS[model]
        any_data = {"num_categories": 3, "binary": (True, False)}
        accepted = inspect.signature(make).parameters
        model = make(**{k: v for k, v in any_data.items() if k in accepted})
    elif model.priors != weak_priors(model.family):
        return False
    elif model.family.parameters[0].bijection.kind != "positive":
        return False
    family = model.family
    return family.integrable and family.has_slope and not model.has_lengths


def _has_categories(model: Any) -> bool:
    """Whether a model is of more than two ordered categories."""
    if isinstance(model, str):
        return model in ORDERED_MODELS
    return model.family.num_categories > 2


def _responses_per_item(table: ResponseTable) -> float:
    """Mean number of subjects who answered an item, of items that any answered."""
    count = table.num_answered(0)
    answered = count[count > 0]
    return float(answered.mean()) if answered.size else 0.0


def _sentence(model: Any, method: Any, why_model: str, why_method: str) -> str:
    """What was left to the data and why, in one line."""
    parts = []
    if why_model:
        name = model if isinstance(model, str) else model.name
        parts.append(f"model {name}, because {why_model}")
    if why_method:
        parts.append(f"method {method}, because {why_method}")
    return f"chosen from the data: {'; '.join(parts)}" if parts else ""

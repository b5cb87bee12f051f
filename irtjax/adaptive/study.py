"""How a bank does: simulated or replayed tests with labels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from irtjax._types import KeyArray, RandomKey
from irtjax.adaptive.design import Design, Rules, StopFlag
from irtjax.adaptive.labels import (
    LabelledBank,
    check_exposure,
    label,
    prior_by_covariates,
)
from irtjax.adaptive.misfit import true_bank
from irtjax.adaptive.model_bank import AbstractModelBank
from irtjax.adaptive.populations import population_of
from irtjax.adaptive.repeats import TrialCounts
from irtjax.adaptive.simulation import SIDE_BY_SIDE, Tests, run_tests_jit
from irtjax.calibration.covariates import AbilityPrior, evidence_of
from irtjax.data import ResponseTable, read
from irtjax.data.frames import HasTable
from irtjax.data.matching import arrange
from irtjax.data.responses import Responses
from irtjax.data.wording import counted, were
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.dispersion import intraclass
from irtjax.numerics.memory import require_memory
from irtjax.numerics.precision import full_precision
from irtjax.numerics.progress import watched
from irtjax.numerics.random_keys import as_key

#: Bytes of a cell of replayed responses: 8,000 x 5,000 took 9, and a table of
#: observed responses 2 more for its matrix.
CELL_BYTES = 11.0


class TestedFactors(NamedTuple):
    """Several abilities at the end of tests.

    Attributes:
        names: `[dims]` names.
        ability: `[subjects, dims]` posterior modes.
        covariance: `[subjects, dims, dims]` their covariances.
        truth: `[subjects, dims]` true abilities; None if replayed.
    """

    names: np.ndarray
    ability: np.ndarray
    covariance: np.ndarray
    truth: np.ndarray | None


# Not a test, whatever its name suggests to a test runner.
TestedFactors.__test__ = False  # pyright: ignore[reportAttributeAccessIssue]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SimulatedTests(HasTable):
    """Tests of many subjects over one bank; what `simulate_tests` returns.

    Attributes:
        subjects: `[subjects]` names.
        items: `[items]` names of the bank.
        given: `[subjects, num_items]` positions in the bank, -1 where a test was over.
        responses: `[subjects, num_items]` responses, 0 where a test was over.
        ability, standard_error: `[subjects, num_items]` after each item, or the last;
            of several abilities those of the expected score, or of the composite.
        num_given, stopped: `[subjects]` number of items given, and why tests ended
            (`StopFlag` codes).
        truth: `[subjects]` true abilities; if replayed, scores from all responses.
        replayed: Whether responses were replayed.
        notes: What was matched and what was left out.
        factors: Abilities at the end of tests of several abilities; else None.
        prior: Mean and standard deviation of the reported ability over the population;
            with covariates `[subjects]` each.
        cost: `[subjects, num_items]` what a test cost so far; None without costs.
        probability_passed: `[subjects]` of an ability above the pass mark, or the
            rival's; or None.
        pass_mark: The mark, or the rival's ability; or None.
        passed: `[subjects]` the decisions on the pass mark, or None. Those of the
            smaller expected loss; with `indifference` those of Wald's test, and between
            its bounds those of the nearer one.
    """

    title = "Simulated tests"

    subjects: np.ndarray
    items: np.ndarray
    given: np.ndarray
    responses: np.ndarray
    ability: np.ndarray
    standard_error: np.ndarray
    num_given: np.ndarray
    stopped: np.ndarray
    truth: np.ndarray
    replayed: bool
    notes: tuple[str, ...] = ()
    factors: TestedFactors | None = None
    prior: tuple[Any, Any] = (math.nan, math.nan)
    cost: np.ndarray | None = None
    probability_passed: np.ndarray | None = None
    passed: np.ndarray | None = None
    pass_mark: float | None = None

    def rmse(self) -> np.ndarray:
        """Root mean squared error after each number of items, or the last of a test."""
        return np.sqrt(np.mean((self.ability - self.truth[:, None]) ** 2, axis=0))

    def mean_standard_error(self) -> np.ndarray:
        """Root mean squared standard error after each number, `[num_items]`."""
        return np.sqrt(np.mean(self.standard_error**2, axis=0))

    def coverage(self, level: float = 0.95) -> float:
        """Share of the last intervals of this level that contain the true ability.

        >>> import irtjax
        >>> fit = irtjax.fit(irtjax.make_demo().table, "rasch", standard_errors="none")
        >>> tests = simulate_tests(fit, 50, key=jax.random.key(0), num_items=5)
        >>> tests.coverage() > tests.coverage(0.5) > 0
        True
        """
        half = float(ndtri(0.5 + level / 2)) * self.standard_error[:, -1]
        return float(np.mean(np.abs(self.ability[:, -1] - self.truth) <= half))

    def rmse_by_cost(self, budgets: Any) -> np.ndarray:
        """Root mean squared error of tests that end when a budget is spent.

        A test within a budget is the part of this one that costs no more; before its
        first item the ability is the mean of the population.

        Args:
            budgets: `[budgets]` what a test may cost.

        Returns:
            `[budgets]` errors.

        Raises:
            ValueError: If the tests have no costs.
        """
        if self.cost is None:
            raise ValueError("the tests have no costs: give simulate_tests a cost")
        path = np.c_[np.full(len(self.ability), self.prior[0]), self.ability]
        # Places after the end of a test repeat its cost and its last ability.
        slack = 1 + 1e-6
        budgets = np.asarray(budgets, float)
        within = self.cost[:, :, None] <= budgets * slack
        count = within.sum(axis=1)
        reached = np.take_along_axis(path, count, axis=1)
        return np.sqrt(np.mean((reached - self.truth[:, None]) ** 2, axis=0))

    def exposure(self) -> np.ndarray:
        """Share of the tests in which each item was used, `[items]`."""
        row, column = np.nonzero(self.given >= 0)
        # An item that is given repeatedly is used once.
        used = np.unique(np.stack([row, self.given[row, column]]), axis=1)[1]
        return np.bincount(used, minlength=len(self.items)) / len(self.subjects)

    @property
    def table(self) -> pa.Table:
        """One row per subject: number of items, ability, error, truth, why it ended.

        Of several abilities each and its error too; what tests cost; with a pass mark
        the probability of an ability above it, and the decision.
        """
        reasons = [StopFlag(int(flag)).explain() for flag in self.stopped]
        last = "ability_all_items" if self.replayed else "true_ability"
        columns = {}
        if self.factors is not None:
            error = np.sqrt(np.diagonal(self.factors.covariance, axis1=1, axis2=2))
            for k, name in enumerate(self.factors.names.tolist()):
                columns[f"ability_{name}"] = self.factors.ability[:, k]
                columns[f"ability_{name}_se"] = error[:, k]
        if self.cost is not None:
            columns["cost"] = self.cost[:, -1]
        if self.probability_passed is not None:
            columns["probability_passed"] = self.probability_passed
        decision = {} if self.passed is None else {"passed": pa.array(self.passed)}
        return pa.table(
            {
                "subject": pa.array(self.subjects.tolist(), pa.string()),
                "num_items": pa.array(self.num_given.astype(np.int64)),
                "ability": pa.array(self.ability[:, -1].astype(np.float64)),
                "ability_se": pa.array(self.standard_error[:, -1].astype(np.float64)),
                last: pa.array(self.truth.astype(np.float64)),
                **{k: pa.array(v.astype(np.float64)) for k, v in columns.items()},
                **decision,
                "stopped": pa.array(reasons, pa.string()),
            }
        )


class StudyRules(Rules, total=False):
    """Rules of simulated tests: those of a test, and a limit over all tests.

    Attributes:
        max_exposure: Largest share of tests with an item; see `adaptive.open_items`.
    """

    max_exposure: float | None


@full_precision
def simulate_tests(
    source: Any,
    num_subjects: int = 100,
    *,
    key: RandomKey,
    num_items: int = 50,
    ability: Any = None,
    population: Any = None,
    replay: ResponseTable | Any = None,
    truth: Any = "bank",
    names: Iterable[Any] | None = None,
    groups: Iterable[Any] | None = None,
    subject_table: Any = None,
    **rules: Unpack[StudyRules],
) -> SimulatedTests:
    """Gives adaptive tests to simulated subjects, or replays recorded ones.

    Args:
        source: A calibration, an `adaptive.ItemBank` or an `adaptive.FactorBank`.
        num_subjects: Subjects to draw from the population.
        key: A whole number or a JAX key.
        num_items: Items after which a test ends, at the latest.
        ability: True abilities instead of drawn ones, `[subjects]`; of several
            abilities `[subjects, dims]`.
        population: Normal population of the subjects in place of that of the bank, on
            the same scale: (mean, sd) of true abilities. Of several abilities each is a
            number for all or `[dims]`, with the correlations of the bank; in place of
            sds a covariance `[dims, dims]`. Tests score by the population of the bank.
        replay: A `ResponseTable`, or anything that `irtjax.read` takes: its subjects
            are tested instead, on items they answered, and respond as they did. Of
            counts each response is one of the trials left, in random order; with
            `repeats` and no `icc` that is estimated from them.
        truth: By which items simulated subjects respond. "bank": those of the bank,
            another draw from their errors for each response, and of the errors of
            location and scale, or of the axes, for each subject. "draw": items drawn
            once from the errors of the bank. Another calibration that has these items,
            on the same scale: its estimates of them and its population. An item record,
            such as `fit.parameters.items` with other values: these parameters, in the
            order and on the scale of the items of the bank.
        names: `[items]` names of the items of a bank.
        groups: `[items]` content groups; None takes the calibration's benchmarks.
        subject_table: Covariates of new subjects, of a calibration with
            `subject_covariates` (`calibration.covariates.read_priors`): its subjects
            are tested, or those of `replay`, each of which needs a row. Tests begin
            with the prior that covariates imply, and abilities are drawn from it.
        **rules: Those of `adaptive.Rules`, such as `select` and `reliability`, and
            `max_exposure`, the largest share of tests with an item; see
            `adaptive.open_items`.

    Returns:
        The tests. EAP's standard errors are right on average over the population,
        and over the errors of the items that a calibration states.

    Raises:
        ValueError: If a rule is unknown, a number out of range, or `replay`, truth
            or the population do not suit the bank.

    >>> import irtjax
    >>> fit = irtjax.fit(irtjax.make_demo().table, "2pl", standard_errors="none")
    >>> tests = simulate_tests(fit, 20, key=0, num_items=10)
    >>> tests.given.shape, bool(tests.rmse()[-1] < tests.rmse()[0])
    ((20, 10), True)
    """
    key = as_key(key)
    if num_subjects < 1:
        raise ValueError(f"num_subjects {num_subjects} is not at least 1")
    max_exposure = rules.pop("max_exposure", None)
    check_exposure(max_exposure)
    replayed = replay is not None
    if replayed and not (isinstance(truth, str) and truth == "bank"):
        raise ValueError("truth is for simulated subjects: leave replay out")
    if population is not None and (replayed or ability is not None):
        other = "replay" if replayed else "ability"
        raise ValueError(f"population is for subjects to draw: leave {other} out")
    tested = None
    if subject_table is not None:
        tested = _by_covariates(source, subject_table, replay, ability, population, key)
        replay, ability = tested.replay, tested.ability
    scale = None if tested is None else tested.population
    bank = label(source, num_items, names, groups, rules, scale)
    recorded = _recorded(bank, replay, rules) if replayed else None
    design = bank.design(num_items, **rules)
    count = num_subjects if recorded is None else len(recorded.names)
    count = count if ability is None else int(np.size(ability))
    _check_size(count, design.num_items, design.repeats, bank.bank.num_items)
    test_key = jax.random.split(key)[1]
    notes = bank.warnings(design)
    if recorded is not None:
        notes += recorded.notes
        subjects = _replayed(bank, recorded, design)
    else:
        subjects = _simulated(
            source, bank, truth, num_subjects, ability, population, key
        )
    if tested is not None and recorded is None:
        subjects = subjects._replace(names=tested.names)
    limit = None
    if max_exposure is not None:
        limit = jnp.asarray(max_exposure, bank.bank.mean.dtype)
    options = {
        "available": None if recorded is None else recorded.available,
        "max_exposure": limit,
        "recorded": None if recorded is None else recorded.counts,
        "theta": subjects.theta,
        "answers": None if subjects.answers is bank.bank else subjects.answers,
        "priors": None if tested is None else tested.priors,
    }
    tests: Tests = _tests(bank.bank, design, test_key, options)
    decides = design.pass_mark is not None
    return SimulatedTests(
        subjects=subjects.names,
        items=bank.names,
        given=np.asarray(tests.items),
        responses=np.asarray(bank.bank.response_of(tests.observations)),
        ability=np.asarray(tests.ability),
        standard_error=np.asarray(tests.standard_error),
        num_given=np.asarray(tests.num_given),
        stopped=np.asarray(tests.stopped),
        truth=np.asarray(subjects.truth),
        replayed=replayed,
        notes=notes,
        factors=_tested_factors(bank, tests, None if replayed else subjects.abilities),
        prior=(
            (float(bank.bank.mean), float(bank.bank.sd))
            if tested is None
            else (np.asarray(tested.priors[0]), np.asarray(tested.priors[1]))
        ),
        cost=_cumulated(design, np.asarray(tests.items)),
        probability_passed=tests.above if decides else None,
        passed=tests.passed if decides else None,
        pass_mark=None if design.pass_mark is None else float(design.pass_mark),
    )


class _Recorded(NamedTuple):
    """Responses to replay: subjects, numbers right and of trials, and their mask."""

    names: np.ndarray
    counts: TrialCounts
    available: jax.Array
    notes: tuple[str, ...]


class _ByCovariates(NamedTuple):
    """Subjects with priors by covariates.

    `priors` are means and standard deviations `[subjects]`, and `population` covers
    all. `replay` is the table of recorded responses, else `ability` are drawn ones.
    """

    names: np.ndarray
    priors: tuple[jax.Array, jax.Array]
    population: Population
    replay: ResponseTable | None
    ability: jax.Array | None


def _by_covariates(
    source: Any, subject_table: Any, replay: Any, ability: Any, population: Any, key
) -> _ByCovariates:
    """The subjects of a table of covariates, or those to replay."""
    if ability is not None or population is not None:
        raise ValueError("subject_table: leave ability and population out")
    table = replay
    if replay is not None and not isinstance(replay, ResponseTable):
        table = read(replay)
    wanted = () if table is None else table.subjects.tolist()
    names, _, prior = prior_by_covariates(source, subject_table, wanted)
    count = len(wanted) or len(names)
    prior = AbilityPrior(*(x[:count] for x in prior))
    dtype = jnp.asarray(source.parameters.items[0]).dtype
    mean, sd = (jnp.asarray(x, dtype) for x in (prior.mean, prior.sd))
    normal = (jnp.asarray(x, dtype) for x in evidence_of(prior)[0])
    drawn = None
    if table is None:
        noise = jax.random.normal(jax.random.fold_in(key, 3), mean.shape, dtype)
        drawn = mean + sd * noise
    return _ByCovariates(names[:count], (mean, sd), Population(*normal), table, drawn)


class _Subjects(NamedTuple):
    """Those who are tested.

    `theta` are abilities on the bank's scale, `truth` those with which scores are
    compared, `answers` the bank by which subjects respond; None for recorded responses.
    `abilities` are those of the population.
    """

    names: np.ndarray
    theta: jax.Array
    truth: jax.Array
    answers: Any
    abilities: jax.Array


def _recorded(bank: LabelledBank, responses: Any, rules: Any) -> _Recorded:
    """The responses of a table to the items of a bank; adds `icc` to the rules."""
    table = responses if isinstance(responses, ResponseTable) else read(responses)
    # Other banks refuse repeats later.
    repeats = rules.get("repeats", 1) > 1 and bank.bank.may_repeat
    recorded = _Recorded(*_matched(bank, table, repeats))
    if not repeats or rules.get("icc") is not None:
        return recorded
    notes = _with_icc(bank.bank, recorded.counts, recorded.available, rules)
    return recorded._replace(notes=recorded.notes + notes)


def _replayed(bank: LabelledBank, recorded: _Recorded, design: Design) -> _Subjects:
    """Subjects with the scores that all their responses would give."""
    icc = 0.0 if design.icc is None else float(design.icc)
    theta = _all_items(bank.bank, recorded.counts, recorded.available, icc)
    return _Subjects(recorded.names, theta, theta, None, theta)


def _simulated(
    source: Any,
    bank: LabelledBank,
    truth: Any,
    num: int,
    ability: Any,
    population: Any,
    key: KeyArray,
) -> _Subjects:
    """Subjects of the population, of another one, or of given abilities."""
    answers = true_bank(source, bank, truth, jax.random.fold_in(key, 1))
    ability_key = jax.random.split(key)[0]
    if population is not None:
        other = population_of(bank.bank, population)
        theta = simulate_abilities(num, ability_key, other, bank.bank.mean.dtype)
    elif ability is None:
        theta = answers.draw_abilities(num, ability_key)
    else:
        theta = _given_abilities(bank, jnp.asarray(ability, bank.bank.mean.dtype))
    names = np.array([f"subject_{k + 1}" for k in range(theta.shape[0])])
    placed = theta
    if isinstance(truth, str):
        placed = bank.bank.placed(theta, jax.random.fold_in(key, 2))
    scores = answers.truth(theta if bank.bank.on_axes else placed)
    return _Subjects(names, placed, scores, answers, theta)


def _tests(bank: Any, design: Design, key: KeyArray, options: dict[str, Any]) -> Any:
    """The tests of all subjects, in batches where they do not depend on each other."""
    count = len(options["theta"])
    if options["max_exposure"] is not None or count <= SIDE_BY_SIDE:
        return jax.tree.map(np.asarray, run_tests_jit(bank, design, key=key, **options))
    chunks = []
    for begin in watched(range(0, count, SIDE_BY_SIDE), "batch of tests"):
        # Whole batches, so that one program serves any number of subjects.
        rows = jnp.minimum(begin + jnp.arange(SIDE_BY_SIDE), count - 1)
        part = run_tests_jit(bank, design, key=key, subjects=rows, **options)
        chunks.append(jax.tree.map(lambda x: np.asarray(x)[: count - begin], part))  # noqa: B023
    return jax.tree.map(lambda *x: np.concatenate(x), *chunks)


def _tested_factors(
    bank: LabelledBank, tests: Tests, abilities: jax.Array | None
) -> TestedFactors | None:
    """Several abilities at the end of tests, with the true ones if they are known."""
    if bank.factors is None:
        return None
    last, truth = tests.abilities, None if abilities is None else np.asarray(abilities)
    return TestedFactors(bank.factors, last.mode, last.covariance, truth)


def _cumulated(design: Design, given: np.ndarray) -> np.ndarray | None:
    """What tests cost after each item; None without costs."""
    if design.cost is None:
        return None
    each = np.asarray(design.cost, np.float64)[given]
    return np.cumsum(np.where(given >= 0, each, 0), axis=1)


def _given_abilities(bank: LabelledBank, ability: jax.Array) -> jax.Array:
    """Abilities as they were given, `[subjects]` or `[subjects, dims]`."""
    if bank.factors is None:
        return jnp.atleast_1d(ability)
    ability = jnp.atleast_2d(ability)
    if ability.ndim != 2 or ability.shape[1] != len(bank.factors):
        raise ValueError(
            f"ability has shape {ability.shape}: give subjects x abilities,"
            f" {len(bank.factors)} of these"
        )
    return ability


def _matched(bank: LabelledBank, table: ResponseTable, repeats: bool):
    """Responses in the order of the bank, and which there are."""
    tested: Any = bank.bank
    if not isinstance(bank.bank, AbstractModelBank):
        raise ValueError(
            "responses can be replayed on an ItemBank, a FactorBank or a calibration"
        )
    trials = table.trials
    codes = tested.category_codes
    low, top = codes[0], codes[-1]
    if trials is not None:
        if top > 1 or not tested.repeatable:
            raise ValueError(
                "counts of trials are replayed on models of right and wrong responses"
                " without lengths: read the file with trials='first'"
            )
        # Counts exceed the categories, and are checked against the trials already.
        top = max(top, int(trials.max(initial=0)))
    size = f"{table.num_subjects:,} subjects to {len(bank.names):,} items"
    cells = float(table.num_subjects) * len(bank.names)
    cure = "select fewer subjects or items"
    require_memory(CELL_BYTES * cells, f"replayed responses of {size}", cure)
    values, available, columns = arrange(
        table, bank.names, "the bank", top, bank.contents, lowest=low
    )
    if codes != tuple(range(len(codes))):
        values = np.clip(np.searchsorted(codes, values), 0, len(codes) - 1)
    matched = columns >= 0
    recorded: Any = jnp.asarray(values, jnp.int32)
    notes: list[str] = []
    if trials is not None:
        placed = np.zeros(values.shape, np.int32)
        placed[:, columns[matched]] = trials[:, matched]
        recorded = TrialCounts(recorded, jnp.asarray(placed))
    elif repeats:
        # One response to each item: there is no other to give.
        recorded = TrialCounts(recorded, jnp.asarray(available, jnp.int32))
        single = "the responses have no repeats, so that no item was given twice: read"
        notes = [f"{single} them with trials='counts'"]
    answered = (
        f"{matched.sum():,} of the {counted(len(bank.names), 'item')} of the bank"
    )
    notes = [*notes, f"{answered} {were(matched.sum())} answered"]
    if tested.model.has_lengths:
        lengths = np.full(values.shape, np.nan)
        lengths[:, columns[matched]] = table.length_cells[:, matched]
        lengths = np.where(available, lengths, np.nan)
        if not table.has_lengths:
            notes.append("the responses have no lengths: replayed by accuracy alone")
        recorded = tested.observations(recorded, lengths)
    if not matched.all():
        unknown = int((~matched).sum())
        items = "1 item is" if unknown == 1 else f"{unknown:,} items are"
        notes.append(f"{items} not in the bank and left out")
    return table.subjects, recorded, jnp.asarray(available), tuple(notes)


def _with_icc(
    bank: Any, recorded: TrialCounts, seen: Any, rules: Any
) -> tuple[str, ...]:
    """Estimates the correlation of repeats, and adds a note on it."""
    right, trials = (np.asarray(x) for x in recorded)
    data = Responses(recorded.right, seen, recorded.trials)
    icc = intraclass(np.asarray(bank.chances(data)), right, trials)
    if icc is None:
        rules["icc"] = 0.0  # Nothing is repeated.
        return ()
    rules["icc"] = icc.icc
    return (
        f"icc {icc.icc:.3g} (standard error {icc.standard_error:.2g}) is estimated"
        " from the responses",
    )


def _all_items(bank: Any, recorded: Any, seen: jax.Array, icc: float) -> jax.Array:
    """EAP ability from all responses of each subject, on nodes that suit so many.

    Counts enter as the number of independent responses that they are worth.
    """
    if isinstance(recorded, TrialCounts):
        trials = recorded.trials.astype(bank.mean.dtype)
        worth = 1 / (1 + jnp.maximum(trials - 1, 0) * icc)
        data = Responses(recorded.right * worth, seen, trials * worth)
    else:
        data = bank.responses_of(recorded, seen)
    return bank.all_items(data)


def _check_size(count: int, length: int, repeats: int, num_items: int) -> None:
    """Refuses tests that do not fit into the memory, before any array is made."""
    # Of a test 200 bytes, of each step item, response, ability and error.
    needed, what = (
        200.0 * count,
        f"{counted(count, 'test')} of {counted(length, 'item')}",
    )
    cure = "simulate fewer subjects or shorter tests"
    require_memory(needed + 16.0 * count * length, what, cure)
    what = f"repeats {repeats:,} of each item"
    require_memory(8.0 * repeats * num_items, what, "lower repeats")

"""One test, one item at a time, by name; it can be saved and resumed."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import RandomKey
from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.design import DEFAULTS, Design, Rules, StopFlag
from irtjax.adaptive.labels import check_exposure, label, prior_by_covariates
from irtjax.adaptive.saved import fingerprint, read_saved, write_saved
from irtjax.adaptive.score_draws import (
    Draw,
    DrawnScore,
    draw_of,
    estimate_drawn,
    predicted_score,
    stopping_error,
)
from irtjax.adaptive.state import State
from irtjax.adaptive.steps import (
    above_mark,
    open_items,
    passed,
    reserve,
    select,
    spent,
    start,
    stop,
    update,
    withdraw,
)
from irtjax.calibration.covariates import covariate_names
from irtjax.data.frames import HasTable
from irtjax.models.model import Population
from irtjax.numerics.precision import full_precision
from irtjax.numerics.random_keys import as_key
from irtjax.numerics.seeds import seed_of

if TYPE_CHECKING:
    import pyarrow as pa


@full_precision
@eqx.filter_jit
def _propose(bank: AbstractBank, design: Design, state: State):
    """The next item, and whether a rule ends the test before it."""
    return select(bank, design, state), stop(bank, design, state)


_start_jit = full_precision(eqx.filter_jit(start))
_update_jit = full_precision(eqx.filter_jit(update))
_reserve_jit = full_precision(eqx.filter_jit(reserve))
_withdraw_jit = full_precision(eqx.filter_jit(withdraw))
_reported_jit = full_precision(eqx.filter_jit(lambda bank, x: bank.reported(x)))
_draw_jit = full_precision(eqx.filter_jit(draw_of))
_predicted_jit = full_precision(eqx.filter_jit(predicted_score))
_passed_jit = full_precision(eqx.filter_jit(passed))


class AdaptiveTest(HasTable):
    """A test of one subject that hands out items by name and takes responses.

    >>> import irtjax
    >>> fit = irtjax.fit(irtjax.make_demo().table, "2pl", standard_errors="none")
    >>> test = AdaptiveTest(fit, num_items=8)
    >>> while (item := test.next_item()) is not None:
    ...     test.record(item, 1)
    >>> test.num_given, test.stopped, test.ability > 1
    (8, 'number of items', True)
    """

    title = "An adaptive test"

    def __init__(
        self,
        source: Any,
        num_items: int | None = None,
        *,
        key: RandomKey | None = None,
        items: Iterable[str] | None = None,
        times_used: Mapping[str, int] | None = None,
        num_tests: int = 0,
        max_exposure: float | None = None,
        time_limit: float | None = None,
        score_error: float | None = None,
        names: Iterable[Any] | None = None,
        groups: Iterable[Any] | None = None,
        subject_table: Any = None,
        **rules: Unpack[Rules],
    ) -> None:
        """Begins a test.

        Args:
            source: A calibration, an `adaptive.ItemBank` or an `adaptive.FactorBank`.
            num_items: Items after which the test ends, at the latest; None for all.
            key: A whole number or a JAX key, for "random" and "randomesque"; give each
                subject its own.
            items: Items that may be given, in their order under "fixed"; None for all.
            times_used: Number of earlier tests that used each item, by name.
            num_tests: Number of earlier tests.
            max_exposure: Largest share of tests with an item (`adaptive.open_items`).
            time_limit: Seconds since the first item was handed out after which no
                other one is; None for no limit. A saved test has its time stored.
            score_error: With select="score", also end when the standard error of the
                score (`score`) is below this.
            names: `[items]` names of the items of a bank.
            groups: `[items]` content groups; None takes the calibration's benchmarks.
            subject_table: Covariates of the one subject, of a calibration with
                `subject_covariates`: the test begins with the prior that they imply.
                A table with one row, or one number by name.
            **rules: Those of `adaptive.Rules`, such as `select` and `reliability`.

        Raises:
            ValueError: If a rule, an item or a covariate is unknown, or a number out of
                range.
        """
        if time_limit is not None and not time_limit > 0:
            raise ValueError(f"time_limit {time_limit:g} is not above 0")
        if score_error is not None and not score_error > 0:
            raise ValueError(f"score_error {score_error:g} is not above 0")
        if score_error is not None and rules.get("select") != "score":
            raise ValueError("score_error requires select='score'")
        quota = rules.get("quota")
        if not (quota is None or isinstance(quota, str)):
            rules["quota"] = dict(quota)
        rules.update(_plain_numbers(rules))
        covariates, population = None, None
        if subject_table is not None:
            covariates, population = _one_subject(source, subject_table)
        self._bank = label(source, num_items, names, groups, rules, population)
        self._design = self._bank.design(num_items, **rules)
        self._rules: dict[str, Any] = dict(
            num_items=num_items,
            **(DEFAULTS | rules),
            key=seed_of(key),
            items=None if items is None else [str(name) for name in items],
            times_used=dict(times_used or {}),
            num_tests=num_tests,
            max_exposure=max_exposure,
            time_limit=time_limit,
            score_error=score_error,
            **({} if covariates is None else {"subject_table": covariates}),
        )
        available, order = self._allowed()
        self._open_items = np.asarray(available)
        self._path: list[tuple[float, float]] = []
        options = dict(key=as_key(self._rules["key"]), available=available, order=order)
        self._state = _start_jit(self._bank.bank, self._design, **options)
        #: Items that were handed out and wait for their responses.
        self._open: list[str] = []
        self._before, self._since = 0.0, None
        self._responses: list[tuple[str, int]] = []
        self._skipped: list[str] = []
        self._lengths: dict[str, float] = {}
        #: Draws by item, in their order (`score`).
        self._draws: dict[str, list[float]] = {}
        self._propose()

    def _allowed(self) -> tuple[jax.Array, jax.Array]:
        """Items that may be given, and the place of each under "fixed"."""
        rules, size = self._rules, self._bank.bank.num_items
        allowed, order = np.ones(size, bool), np.arange(size)
        if rules["items"] is not None:
            chosen = [self._bank.position(name) for name in rules["items"]]
            allowed = np.isin(order, chosen)
            order[chosen] = np.arange(len(chosen))
        limit = rules["max_exposure"]
        check_exposure(limit)
        if limit is not None:
            used = np.zeros(size, int)
            for name, count in rules["times_used"].items():
                used[self._bank.position(name)] = count
            counts = (jnp.asarray(x) for x in (used, rules["num_tests"], limit))
            allowed &= np.asarray(open_items(*counts))
        return jnp.asarray(allowed), jnp.asarray(order)

    def _proposed(self, state: State) -> tuple[str, StopFlag]:
        """The next item in a state, and why the test would be over."""
        item, flags = _propose(self._bank.bank, self._design, state)
        return str(self._bank.names[int(item)]), StopFlag(int(flags))

    def _propose(self) -> None:
        """Keeps the next item and the rule that ends the test."""
        self._item, self._stopped = self._proposed(self._state)

    def _with(self, change: Any, state: State, item: str) -> State:
        """A state after a step that concerns one item."""
        position = jnp.asarray(self._bank.position(item), jnp.int32)
        return change(self._bank.bank, self._design, state, position)

    @property
    def num_given(self) -> int:
        """Number of responses."""
        return len(self._responses)

    @property
    def ability(self) -> float:
        """The score so far; the mean of the population before any response.

        Of several abilities the expected score on all items, or the composite.
        """
        return float(self._state.ability)

    @property
    def standard_error(self) -> float:
        """Standard error of the score, with that of the items of a calibration."""
        return float(self._state.standard_error)

    @property
    def selections(self) -> tuple[str, ...]:
        """Values of `select` that compare the items of this bank."""
        return self._bank.bank.selections

    @property
    def reliability(self) -> float:
        """1 - se^2 / sd^2, negative at worst."""
        return 1 - (self.standard_error / float(self._bank.bank.sd)) ** 2

    @property
    def abilities(self) -> dict[str, tuple[float, float]]:
        """Of several abilities each with its standard error, by name; else empty."""
        if self._bank.factors is None:
            return {}
        reported = _reported_jit(self._bank.bank, self._state.posterior)
        error = np.sqrt(np.diagonal(np.asarray(reported.covariance)))
        values = zip(np.asarray(reported.mode).tolist(), error.tolist(), strict=True)
        return dict(zip(self._bank.factors.tolist(), values, strict=True))

    @property
    def cost(self) -> float:
        """What the responses so far cost; their number without costs."""
        return float(spent(self._design, self._state))

    @property
    @full_precision
    def probability_passed(self) -> float:
        """Probability of an ability above the pass mark, or the rival's; else NaN."""
        if self._design.pass_mark is None:
            return float("nan")
        return float(above_mark(self._bank.bank, self._design, self._state))

    @property
    def passed(self) -> bool | None:
        """The decision if the test ended now; None without a mark or a rival.

        The one of the smaller expected loss; with `indifference` that of Wald's test,
        and between its bounds that of the nearer one.
        """
        if self._design.pass_mark is None:
            return None
        return bool(_passed_jit(self._bank.bank, self._design, self._state))

    @property
    def responses(self) -> dict[str, int]:
        """Response of each item answered, in the order first given.

        Of items that are given repeatedly the number of right responses.
        """
        responses: dict[str, int] = {}
        for item, response in self._responses:
            responses[item] = responses.get(item, 0) + response
        return responses

    @property
    def times_given(self) -> dict[str, int]:
        """Number of responses to each item answered, in the order first given."""
        return dict(Counter(item for item, _ in self._responses))

    @property
    def seconds(self) -> float:
        """Seconds since the first item was handed out."""
        since = self._since
        return self._before + (0.0 if since is None else time.monotonic() - since)

    @property
    def over(self) -> bool:
        """Whether the test has ended; not while an item waits for its response."""
        return not self._open and self._flags() != StopFlag.GOES_ON

    @property
    def stopped(self) -> str:
        """Why the test has ended, in words; empty while it goes on."""
        return self._flags().explain() if self.over else ""

    def _flags(self) -> StopFlag:
        """Why no other item is handed out; those that wait may be answered."""
        limit = self._rules["time_limit"]
        late = limit is not None and self.seconds >= limit
        flags = self._stopped | StopFlag.TIME if late else self._stopped
        return flags | StopFlag.SCORE_ERROR if self._score_ends else flags

    @property
    def _score_ends(self) -> bool:
        """Whether the error of the score ends the test."""
        limit = self._rules["score_error"]
        if limit is None or self.num_given < self._rules["min_items"]:
            return False
        return stopping_error(*self._drawn(), self._num_allowed) < limit

    @property
    def _num_allowed(self) -> int:
        """Number of items that may be given."""
        return int(self._open_items.sum())

    def _drawn(self) -> tuple[Draw, np.ndarray]:
        """Draws up to the first that waits for its response, and the responses."""
        responses, values, rows = dict(self._responses), [], []
        for item, row in self._draws.items():
            if item in self._open:
                break
            rows.append(row)
            values.append(responses.get(item, np.nan))
        columns: Any = np.asarray(rows, float).reshape(-1, len(Draw._fields)).T
        return Draw(*columns), np.asarray(values, float)

    def draw(self, item: str) -> dict[str, float]:
        """The draw of an item that was handed out, by the names of `adaptive.Draw`.

        With it and its response another process may estimate the score: see
        `adaptive.score_of_records`.

        Args:
            item: Its name.

        Raises:
            KeyError: If it was not drawn.
        """
        row = dict(zip(Draw._fields, self._draws[item], strict=True))
        return row | {"items": self._num_allowed}

    @full_precision
    def score(self, level: float = 0.95) -> DrawnScore:
        """The score on all items that may be given, unbiased whatever the model.

        The items are drawn with known chances (`adaptive.score_draws`), so that the
        estimate and its interval hold whenever the test ends.

        Args:
            level: Level of the interval.

        Raises:
            ValueError: If the test does not draw its items: select="score" does.

        >>> import irtjax
        >>> fit = irtjax.fit(irtjax.make_demo().table, "2pl", standard_errors="none")
        >>> test = AdaptiveTest(fit, num_items=8, select="score")
        >>> while (item := test.next_item()) is not None:
        ...     test.record(item, 1)
        >>> score = test.score()
        >>> score.answers, score.items, score.lower < score.score <= score.upper
        (8, 150, True)
        """
        if self._design.select != "score":
            raise ValueError(
                "the score is estimated from items that were drawn: begin the test with"
                " select='score'"
            )
        draws, responses = self._drawn()
        total = float(sum(value for _, value in self._responses))
        allowed = jnp.asarray(self._open_items)
        value, error = _predicted_jit(self._bank.bank, self._state, total, allowed)
        predicted = float(value), float(error)
        return estimate_drawn(draws, responses, self._num_allowed, predicted, level)

    @property
    def rules(self) -> dict[str, Any]:
        """The rules with which the test was begun, by the names of its arguments."""
        return dict(self._rules)

    @property
    def handed_out(self) -> tuple[str, ...]:
        """Items that wait for their responses, in the order handed out."""
        return tuple(self._open)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Items that had no response (`skip`)."""
        return tuple(self._skipped)

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Targets that cannot be reached or are reached at once, each a sentence."""
        return self._bank.warnings(self._design, self._open_items)

    @property
    def prior(self) -> tuple[float, float]:
        """Mean and standard deviation of the ability over the population."""
        return float(self._bank.bank.mean), float(self._bank.bank.sd)

    @property
    def table(self) -> pa.Table:
        """One row per response, in order: item, response, ability, ability_se."""
        import pyarrow as pa

        path = np.asarray(self._path, np.float64).reshape(-1, 2)
        return pa.table(
            {
                "item": pa.array([x for x, _ in self._responses], pa.string()),
                "response": pa.array([x for _, x in self._responses], pa.int64()),
                "ability": pa.array(path[:, 0]),
                "ability_se": pa.array(path[:, 1]),
            }
        )

    def next_item(self) -> str | None:
        """Name of the item that waits for its response; None if the test is over."""
        return next(iter(self.next_items(1)), None)

    def next_items(self, count: int) -> list[str]:
        """Names of items that wait for their responses, to be given side by side.

        Further items are chosen at the ability so far, as if those that wait were
        given: they count for the length, the quota and the budget. A test in rounds
        needs somewhat more items than one that chooses after each response.

        Args:
            count: How many; fewer where the test ends before, or none are left.

        Returns:
            The items that wait already, then new ones; empty if the test is over.

        >>> import irtjax
        >>> fit = irtjax.fit(irtjax.make_demo().table, "2pl", standard_errors="none")
        >>> test = AdaptiveTest(fit, num_items=3)
        >>> first = test.next_items(2)
        >>> for item in reversed(first):
        ...     test.record(item, 1)
        >>> len(first), len(test.next_items(2))
        (2, 1)
        """
        state = self._state
        for item in self._open:
            state = self._with(_reserve_jit, state, item)
        while len(self._open) < count:
            if self._flags() & (StopFlag.TIME | StopFlag.SCORE_ERROR):
                break
            item, flags = self._item, self._stopped
            if self._open:
                item, flags = self._proposed(state)
            if flags:
                break
            if self._since is None:
                self._since = time.monotonic()
            if self._design.select == "score":
                draw: Any = self._with(_draw_jit, state, item)
                self._draws[item] = [float(x) for x in draw]
            self._open.append(item)
            state = self._with(_reserve_jit, state, item) if count > 1 else state
        return self._open[:count]

    def hand_out(self, item: str) -> str:
        """Hands out an item of the caller's choice, if the rules give another one.

        A harness that runs items in an order of its own asks before each.

        Args:
            item: Its name.

        Returns:
            Empty if the item now waits for its response, else why the test ends.

        Raises:
            ValueError: If the item is unknown, waits already or cannot be given again.

        >>> import irtjax
        >>> fit = irtjax.fit(irtjax.make_demo().table, "2pl", standard_errors="none")
        >>> test = AdaptiveTest(fit, num_items=1)
        >>> first, second = fit.item_names[:2]
        >>> test.hand_out(first), test.hand_out(second)
        ('', 'number of items')
        """
        position = self._bank.position(item)
        if self._design.select == "score":
            raise ValueError(
                "items of a test with select='score' are drawn: use next_items"
            )
        flags = self._flags()
        if self.num_given + len(self._open) >= self._design.num_items:
            flags |= StopFlag.NUM_ITEMS
        if flags:
            return flags.explain()
        if item in self._open or not bool(self._state.available[position]):
            raise ValueError(f"item {item!r} waits already, or cannot be given again")
        if self._since is None:
            self._since = time.monotonic()
        self._open.append(item)
        return ""

    def skip(self, item: str) -> None:
        """Ends the wait for an item without a response, which is not given again.

        Args:
            item: Its name.

        Raises:
            ValueError: If the item is unknown or was not handed out.
        """
        self._check_open(item)
        self._state = self._with(_withdraw_jit, self._state, item)
        self._open.remove(item)
        self._skipped.append(item)
        self._propose()

    def _check_open(self, item: str) -> None:
        """Refuses an item that does not wait for a response."""
        self._bank.position(item)
        if item in self._open:
            return
        if self.over:
            raise ValueError(
                f"item {item!r}: the test is over ({self.stopped}); begin another"
                " AdaptiveTest"
            )
        why = "call next_item() for the next one"
        if self._open:
            shown = ", ".join(map(repr, self._open[:5]))
            why = f"{shown} waits for its response"
            if len(self._open) > 1:
                ellipsis = ", ..." if len(self._open) > 5 else ""
                why = f"{shown}{ellipsis} wait for their responses"
        raise ValueError(f"item {item!r} was not handed out: {why}")

    def record(self, item: str, response: Any, length: Any = None) -> None:
        """Takes the response to an item that was handed out.

        Args:
            item: Its name.
            response: A category: 0 for wrong and 1 for right, or 0 ... C - 1.
            length: Length of the response, for models with response lengths, or None.

        Raises:
            ValueError: If the item is unknown or was not handed out, the response or
                the length is none, or the test is over. Nothing changes then.
        """
        self._check_open(item)
        position = self._bank.position(item)
        category = self._category(item, response)
        try:
            observation = self._bank.bank.observe(category, length)
        except (TypeError, ValueError) as error:
            raise ValueError(f"item {item!r}: {error}") from None
        test = self._bank.bank, self._design, self._state
        self._state = _update_jit(*test, jnp.asarray(position, jnp.int32), observation)
        self._responses.append((item, self._bank.bank.category_codes[category]))
        self._path.append((self.ability, self.standard_error))
        if length is not None:
            self._lengths[item] = float(length)
        self._open.remove(item)
        self._propose()

    def _category(self, item: str, response: Any) -> int:
        """The response as a category of the model."""
        codes = self._bank.bank.category_codes
        try:
            whole = int(response) if int(response) == response else None
        except (TypeError, ValueError, OverflowError):
            whole = None
        if whole not in codes:
            raise ValueError(
                f"item {item!r}: the response {response!r} is not one of the categories"
                f" {codes[0]} to {codes[-1]}"
            )
        return codes.index(whole)

    def _reopen(self, item: str, skipped: bool = False) -> None:
        """Hands out an item that was chosen when the test was saved."""
        position = self._bank.position(item)
        free = bool(self._state.available[position]) and item not in self._open
        # Skipped items do not count, and were chosen before the last response.
        room = skipped or self.num_given + len(self._open) < self._design.num_items
        if not (free and room):
            raise ValueError(f"it is damaged: {item!r} could not be given")
        self._open.append(item)

    def save(self, path: str | Path) -> Path:
        """Writes the test to a JSON file, whole or not at all, and returns its path.

        The file has the rules and what was answered, not the bank.

        Args:
            path: The file.

        Raises:
            ValueError: If it cannot be written.
        """
        path = Path(path)
        content = {
            "rules": self._rules,
            "handed_out": self._open,
            "responses": [list(pair) for pair in self._responses],
            "seconds": self.seconds,
            "lengths": self._lengths,
            "skipped": self._skipped,
            "draws": self._draws,
            "ability": self.ability,
            "standard_error": self.standard_error,
        }
        write_saved(path, self._bank, content)
        return path

    @classmethod
    def load(
        cls,
        path: str | Path,
        source: Any,
        *,
        names: Iterable[Any] | None = None,
        groups: Iterable[Any] | None = None,
    ) -> AdaptiveTest:
        """Resumes a test in the state in which it was saved.

        Args:
            path: The file that `save` wrote.
            source: The calibration or bank that the test was built from.
            names: As given when the test was built.
            groups: As given when the test was built.

        Raises:
            ValueError: If the file is missing or damaged, or the bank is another one.
        """
        path = Path(path)
        content = read_saved(path)
        try:
            test = cls(source, **content["rules"], names=names, groups=groups)
            if content["bank"] != fingerprint(test._bank):
                raise ValueError(
                    "it was begun with other items or parameters: load it with the"
                    " calibration it was built from"
                )
            lengths = content.get("lengths", {})
            draws = content.get("draws", {})
            test._draws = {str(k): [float(x) for x in v] for k, v in draws.items()}
            for item, response in content["responses"]:
                test._reopen(item)
                test.record(item, response, lengths.get(item))
            for item in content.get("skipped", []):
                test._reopen(item, skipped=True)
                test.skip(item)
            waiting = content["handed_out"] or []
            # Up to version 2 a test handed out one item at a time.
            for item in [waiting] if isinstance(waiting, str) else waiting:
                test._reopen(item)
            # Time runs on with the next item.
            test._before, test._since = float(content.get("seconds", 0.0)), None
            if waiting:
                test._since = time.monotonic()
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: it is damaged ({error!r})") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return test


def _one_subject(source: Any, table: Any) -> tuple[dict[str, float], Population]:
    """Covariates of one subject by name, and the prior that they imply."""
    alone = isinstance(table, Mapping) and "subject" not in table
    if alone:
        table = {name: np.atleast_1d(value) for name, value in table.items()}
    names = ["the subject"] if alone else []
    subjects, values, prior = prior_by_covariates(source, table, names)
    if len(subjects) != 1:
        raise ValueError(
            f"subject_table has {len(subjects):,} subjects: a test is of one"
        )
    covariates = covariate_names(source)
    dtype = jnp.asarray(source.parameters.items[0]).dtype
    normal = (jnp.asarray(float(x[0]), dtype) for x in (prior.mean, prior.sd))
    return dict(zip(covariates, values[0].tolist(), strict=True)), Population(*normal)


def _plain_numbers(rules: Mapping[str, Any]) -> Any:
    """Rules of several numbers in the form in which a file has them."""
    plain: dict[str, Any] = {}
    for name in ("composite", "cost", "losses", "rival"):
        rule = rules.get(name)
        if isinstance(rule, str):
            continue
        if isinstance(rule, Mapping):
            plain[name] = {str(k): float(v) for k, v in rule.items()}
        elif rule is not None:
            plain[name] = np.asarray(rule, float).tolist()
    return plain

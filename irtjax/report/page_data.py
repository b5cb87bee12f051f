"""What `report.html` computes with: columns of numbers, compact enough to be mailed.

Numbers are whole thousandths, hundredths of what is shown with two digits, and as exact
as their errors need where two subjects are compared; missing ones are null. Names
are shortened and lose characters that steer a display. Item response functions are
parameters where a formula reproduces them, else values on a grid. Responses are packed,
the subjects of the best ranks first, up to `MOST_CELLS`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from irtjax.data.arrays import places_of
from irtjax.data.item_texts import refuse_other_contents
from irtjax.data.reversal import aligned
from irtjax.data.sparse_table import SparseCells
from irtjax.models.families.bounded import in_unit_range
from irtjax.models.model import unit_responses
from irtjax.report.words import short, visible

if TYPE_CHECKING:
    from irtjax.auditing import Audit
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable

#: Items in a page; of more, the flagged ones and an even sample of the others.
MOST_ITEMS = 20_000
#: Binary cells in a page, a quarter of a byte each; a cell of another kind takes two.
MOST_CELLS = 480_000
#: Groups of subjects next to a curve, and the least variance of a response in their
#: standard errors (that of a share of 0 or 1 would be 0): as in the script.
GROUPS, LEAST_VARIANCE = 8, 0.01
#: Letters of all texts of items to read, and of those where the pointer is on an item;
#: the same of more items than `LARGE`, whose numbers fill a page that can be mailed.
ROOMS, LARGE, LARGE_ROOMS = (60_000, 60_000), 1000, (20_000, 8000)
#: Units of the numbers that are shown rounded.
FINE = 1_000_000
#: Letters of a name.
LABEL = 100
#: Characters of a curve's table in all, and points of one curve.
CURVE_CHARACTERS, FEWEST, MOST_POINTS = 150_000, 11, 41
#: Factors with a curve, and their abilities at the ends of it.
MOST_FACTORS, FACTOR_ENDS = 7, (-3.0, 3.0)
#: Printable characters that neither HTML nor JSON escapes: digits to the base 81.
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGITS += "!#$%()*+,-./:;=?@[]"
#: Highest of the levels that two digits hold; the next one marks a missing response.
LEVELS = len(DIGITS) ** 2 - 2
#: A name that is a hash.
_HASH = re.compile("[0-9a-f]{8,}")
#: Formulas of binary responses that the page's script has.
LINKS = {"logit": expit, "probit": ndtr, "cloglog": lambda x: -np.expm1(-np.exp(x))}


class PageCells(NamedTuple):
    """Responses `[subjects, items]` in the order of a fit.

    `rate` is a share of the highest response, NaN where missing; `binary` whether all
    are 0 or 1.
    """

    rate: np.ndarray | SparseCells
    binary: bool

    def of_items(self, places: np.ndarray) -> PageCells:
        """The responses to some items."""
        if isinstance(self.rate, SparseCells):
            return self._replace(rate=self.rate.select(None, places))
        if np.array_equal(places, np.arange(self.rate.shape[1])):
            return self  # A copy of 26 million cells takes half a second.
        return self._replace(rate=self.rate[:, places])

    def of_subjects(self, rows: np.ndarray) -> np.ndarray:
        """The responses of some subjects."""
        if isinstance(self.rate, SparseCells):
            values, observed = self.rate.select(rows, None).dense
            return np.where(observed, values, np.nan)
        return self.rate[rows]

    def means(self, rows: np.ndarray) -> np.ndarray:
        """Mean response of some subjects to each item, NaN where there is none."""
        if isinstance(self.rate, SparseCells):
            part = self.rate.select(rows, None)
            total, count = part.sum(0), part.count(0)
        else:
            rate = self.rate[rows]
            seen = np.isfinite(rate)
            total, count = np.where(seen, rate, 0).sum(axis=0), seen.sum(axis=0)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def moments(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, number and variance of the responses of some subjects to each item.

        NaN where there is no response.
        """
        if isinstance(self.rate, SparseCells):
            part = self.rate.select(rows, None)
            total, count = part.sum(0), part.count(0)
            count = np.where(count > 0, count, np.nan)
            mean = total / count
            return mean, count, mean * (1 - mean)
        rate = self.rate[rows]
        seen = np.isfinite(rate)
        if seen.size and seen.all():
            return (
                rate.mean(axis=0),
                np.full(rate.shape[1], float(len(rate))),
                rate.var(axis=0),
            )
        count = np.where(seen.any(axis=0), seen.sum(axis=0), np.nan)
        mean = np.where(seen, rate, 0).sum(axis=0) / count
        return mean, count, np.sum(np.where(seen, rate - mean, 0) ** 2, axis=0) / count


@dataclasses.dataclass(frozen=True)
class Sources:
    """What a page of a fit is made from; `cells` are the responses, or None."""

    fit: Calibration
    ranked: RankedSubjects
    cells: PageCells | None
    audit: Audit | None
    texts: Mapping[str, str] | None
    order: np.ndarray


def labels(names: Iterable[Any], limit: int = LABEL) -> list[str]:
    r"""Returns names that can be shown: printable, short, each different.

    >>> labels(["a\x1b[1m", "", "b" * 200, "b" * 200], 9)
    ['a[1m', '(no name)', 'bbbb…bbbb', 'bb…bb (2)']
    """
    out: list[str] = []
    used: dict[str, int] = {}
    for name in names:
        text = plain = short(str(name), limit)
        while text in used:
            used[plain] += 1
            number = f" ({used[plain]})"
            # Figures have room for so many letters.
            text = short(plain, max(limit - len(number), 3)) + number
        used[text] = 1
        out.append(text)
    return out


def labels_of_benchmarks(table: Any) -> list[str]:
    """The benchmark of each item of a table as text; "" without one."""
    names = ["" if x is None else str(x) for x in table["benchmark"].to_pylist()]
    distinct = sorted({*names} - {""})
    short = dict(zip(distinct, labels(distinct), strict=True))
    return [short.get(name, "") for name in names]


def whole(values: Any, scale: int = 1000) -> list[int | None]:
    """Returns numbers in units of 1 / scale, None where there is none.

    >>> whole([0.1234, float("nan")])
    [123, None]
    """
    array = np.asarray(values, float)
    # Larger ones have no use on a page, and would cost room.
    finite = np.abs(array) < 1e6
    rounded = np.rint(np.where(finite, array, 0) * scale)
    pairs = zip(rounded.astype(np.int64).tolist(), finite.tolist(), strict=True)
    return [number if there else None for number, there in pairs]


def front_coded(names: Sequence[str]) -> str:
    r"""Returns names, one a line, each after a digit: letters that it begins with too.

    The letters are those of the name before it, up to the highest digit.

    >>> front_coded(["task/1", "task/2"])
    '0task/1\n52'
    """
    lines, before = [], ""
    for name in names:
        shared, most = 0, min(len(name), len(before), len(DIGITS) - 1)
        # The script counts UTF-16 units, of which letters beyond that plane have two.
        while shared < most and name[shared] == before[shared] <= "\uffff":
            shared += 1
        lines.append(DIGITS[shared] + name[shared:])
        before = name
    return "\n".join(lines)


def hashes(names: Sequence[str]) -> list[Any] | None:
    """Returns names that are hashes as their length and their digits, else None.

    Two digits hold three hexadecimal ones, of which the last may be padded with 0.

    >>> hashes(["000ff012", "abcdef98"])
    [8, '00oU3jX;i3U2']
    >>> hashes(["task/1"]) is None
    True
    """
    width = len(names[0]) if names else 0
    if any(len(x) != width or not _HASH.fullmatch(x) for x in names) or not width:
        return None
    room, pairs = -width % 3, [a + b for a in DIGITS for b in DIGITS]
    coded = (f"{name}{'0' * room}" for name in names)
    text = "".join(
        pairs[int(x[k : k + 3], 16)] for x in coded for k in range(0, width, 3)
    )
    return [width, text]


def two_digits(shares: np.ndarray) -> list[str]:
    """Returns a text for each row of shares in [0, 1], two digits for each cell."""
    finite = np.isfinite(shares)
    level = np.rint(np.clip(np.where(finite, shares, 0), 0, 1) * LEVELS).astype(int)
    level = np.where(finite, level, LEVELS + 1)
    pairs = np.array([a + b for a in DIGITS for b in DIGITS])
    return ["".join(row) for row in pairs[level]]


def packed(rate: np.ndarray) -> list[str]:
    """Returns a text for each row of cells 0, 1 and NaN, a digit for four cells.

    >>> packed(np.array([[1.0, 0.0, np.nan, 1.0, 1.0], [np.nan] * 5]))
    ['k1', ']2']
    """
    cells = np.where(np.isfinite(rate), rate, 2).astype(int)
    room = -cells.shape[1] % 4
    cells = np.pad(cells, ((0, 0), (0, room))).reshape(len(cells), -1, 4)
    digits = np.array(list(DIGITS))[cells @ np.array([1, 3, 9, 27])]
    return ["".join(row) for row in digits]


def column(table: Any, name: str) -> np.ndarray:
    """A column of an Arrow table as floats; NaN where there is no number or column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    from irtjax.plots import style

    return style.column(table, name)


def cells_of(fit: Calibration, data: ResponseTable | None) -> PageCells | None:
    """The responses in the order of a fit; None if they are not on its scale.

    Raises:
        ValueError: If the responses have no subject or no item of the fit.
    """
    if data is None:
        return None
    data = aligned(data, fit.reversed_scores, fit.item_names.tolist())
    rows = places_of(data.subjects, np.asarray(fit.subject_names))
    columns = places_of(data.items, np.asarray(fit.item_names))
    for places, what in ((rows, "subject"), (columns, "item")):
        if not (places >= 0).any():
            raise ValueError(
                f"no {what} of the fit is in the responses: give the data that were"
                " fitted"
            )
    refuse_other_contents(data.item_contents, fit.item_contents, "the fit")
    if data.sparse is not None:
        return _sparse_cells_of(fit, data.sparse, rows, columns)
    rate = in_unit_range(fit.options, data, fit.item_names, fit.benchmarks)
    rate = rate.astype(float)
    exposure = data.observed if data.trials is None else data.trials
    # Each of these passes over all cells takes a fifth of a second at 26 million.
    if data.trials is not None:
        rate /= np.maximum(data.trials, 1)
    rate = unit_responses(fit.model, rate)
    if exposure is not None:
        rate[exposure <= 0] = np.nan
    same = [np.array_equal(x, np.arange(len(x))) for x in (rows, columns)]
    if not all(same) or rate.shape != (len(rows), len(columns)):
        rate = rate[np.ix_(rows, columns)]
        rate[rows < 0], rate[:, columns < 0] = np.nan, np.nan
    missing = np.isnan(rate)
    if missing.all():
        return None
    low, high = np.nanmin(rate), np.nanmax(rate)
    if low < 0 or high > 1:
        return None
    return PageCells(rate, bool((missing | (rate == 0) | (rate == 1)).all()))


def _sparse_cells_of(
    fit: Calibration, cells: SparseCells, rows: np.ndarray, columns: np.ndarray
) -> PageCells | None:
    """`cells_of` for responses that have observed cells alone, of the fitted names."""
    if fit.model.family.num_categories != 2 or min(rows.min(), columns.min()) < 0:
        return None
    same = np.array_equal(columns, np.arange(cells.num_items))
    cells = cells.select(rows, None if same else columns)
    binary = bool(np.isin(cells.value, (0, 1)).all())
    return PageCells(cells, True) if binary else None


def no_cells_note(data: ResponseTable) -> str:
    """Why a page has no responses, though `cells_of` was given data."""
    if data.sparse is None:
        return "the page has no responses: those given are not on the scale of the fit"
    return (
        "the page has no responses: where few are observed, they must be right or wrong"
        " and of all subjects and items of the fit"
    )


def response_rows(
    cells: PageCells | None, order: np.ndarray, ability: np.ndarray | None = None
) -> dict[str, Any] | None:
    """Responses of the first subjects of an order, as many as there is room for.

    Where there is no room for all, also means of groups of all of them by `ability`,
    `[subjects]` in that order: the first subjects are no sample.
    """
    if cells is None:
        return None
    width = max(cells.rate.shape[1], 1)
    room = MOST_CELLS // (width if cells.binary else 8 * width)
    if room < 2:
        return None
    rate = cells.of_subjects(order[:room])
    text = packed(rate) if cells.binary else two_digits(rate)
    content: dict[str, Any] = {"packed": cells.binary, "rows": text}
    if ability is not None and room < order.size:
        content["groups"] = _groups(cells, order, ability)
    return content


def _groups(cells: PageCells, order: np.ndarray, ability: np.ndarray) -> dict[str, Any]:
    """Means and their standard errors by item, of groups of neighbouring ability."""
    finite = np.flatnonzero(np.isfinite(ability))
    finite = finite[np.argsort(ability[finite], kind="stable")]
    parts = [x for x in np.array_split(finite, GROUPS) if x.size]
    means, errors = [], []
    for part in parts:
        mean, count, variance = cells.moments(order[part])
        means.append(mean)
        errors.append(np.sqrt(np.maximum(variance, LEAST_VARIANCE) / count))
    theta = [round(float(ability[part].mean()), 4) for part in parts]
    mean, error = (two_digits(np.stack(x, axis=1)) for x in (means, errors))
    return {"theta": theta, "mean": mean, "error": error}


def shown_items(flags: Sequence[str], most: int = MOST_ITEMS) -> np.ndarray:
    """The places of items in a page: all, or flagged ones and a sample of the others.

    >>> shown_items(["", "x", "", "", ""], 3).tolist()
    [0, 1, 4]
    """
    flagged = np.array([bool(flag) for flag in flags], bool)
    if flagged.size <= most:
        return np.arange(flagged.size)
    first = np.flatnonzero(flagged)[:most]
    others = np.flatnonzero(~flagged)
    spread = np.linspace(0, others.size - 1, most - first.size).round().astype(int)
    return np.sort(np.r_[first, others[spread]])


def curve_data(
    model: Any, items: Any, places: np.ndarray, ends: tuple[float, float]
) -> dict[str, Any] | None:
    """Item response functions for the script; None for models of several abilities."""
    if model.family.ability_shape:
        return None
    chosen = type(items)(*(np.asarray(x)[places] for x in items))
    closed = _closed_form(model, chosen)
    if closed is not None:
        return closed
    from irtjax.inference.expected import response_table_jit

    room = CURVE_CHARACTERS // (2 * max(len(places), 1))
    grid = np.linspace(*ends, int(np.clip(room, FEWEST, MOST_POINTS)))
    records = type(items)(*(np.asarray(x) for x in items))
    table = np.asarray(response_table_jit(model.family, records, grid))[:, places]
    return {"ends": list(ends), "rows": two_digits(unit_responses(model, table.T))}


def factor_curves(
    model: Any, items: Any, places: np.ndarray, names: Any
) -> dict[str, Any] | None:
    """Expected responses over each factor, the others at 0, for the script.

    Binary responses have a formula, P = F(a_k theta_k + d). Others have a table for
    each item and factor, as long as there is room.

    Args:
        model: A factor model.
        items: Item records.
        places: `[shown]` places of the items in the page.
        names: `[factors]` names.

    Returns:
        `names`, and `link`, `a` and `d` of a formula or `rows` of a table; None where
        there is no room.
    """
    from irtjax.inference.expected import response_table_jit

    slope = np.asarray(items.discrimination, float)
    count, size = slope.shape
    shown = labels(names)[:MOST_FACTORS]
    head: dict[str, Any] = {"names": shown, "left": size - len(shown)}
    few = np.linspace(0, count - 1, 16).round().astype(int)
    records = type(items)(*(np.asarray(x) for x in items))
    some = type(items)(*(x[few] for x in records))
    axes = np.eye(size)[: len(shown)]
    middle = np.asarray(records.intercept, float)
    if model.family.num_categories == 2 and middle.ndim == 1:
        theta = np.concatenate([axes * x for x in (-2.0, 0.5, 2.0)])
        wanted = np.asarray(response_table_jit(model.family, some, theta))
        for name, link in LINKS.items():
            if np.allclose(link(theta @ slope[few].T + middle[few]), wanted, atol=1e-5):
                rows = [whole(row[: len(shown)]) for row in slope[places]]
                return {**head, "link": name, "a": rows, "d": whole(middle[places])}
    points = CURVE_CHARACTERS // (2 * max(len(places) * len(shown), 1))
    if points < FEWEST:
        return None
    grid = np.linspace(*FACTOR_ENDS, min(points, MOST_POINTS))
    tables = [
        np.asarray(response_table_jit(model.family, records, grid[:, None] * axis))
        for axis in axes
    ]
    units = [unit_responses(model, table[:, places].T) for table in tables]
    by_factor = [two_digits(table) for table in units]
    return {**head, "rows": [list(row) for row in zip(*by_factor, strict=True)]}


def _closed_form(model: Any, items: Any) -> dict[str, Any] | None:
    """Parameters of P = c + (u - c) F(a theta + d), checked against the family.

    None where no F of `LINKS` gives what the family computes.
    """
    from irtjax.inference.expected import response_table_jit

    slope, middle = (
        np.asarray(getattr(items, name, np.zeros((1, 2))), float)
        for name in ("discrimination", "intercept")
    )
    if model.family.num_categories != 2 or slope.ndim != 1 or middle.ndim != 1:
        return None
    low = np.asarray(getattr(items, "lower_asymptote", np.zeros_like(slope)), float)
    high = np.asarray(getattr(items, "upper_asymptote", np.ones_like(slope)), float)
    # A few items, always of the same number, so that one program serves every page.
    few = np.linspace(0, len(slope) - 1, 16).round().astype(int)
    records = type(items)(*(np.asarray(x)[few] for x in items))
    theta = np.linspace(-3, 3, 7)
    wanted = np.asarray(response_table_jit(model.family, records, theta))
    for name, link in LINKS.items():
        share = link(theta[:, None] * slope[few] + middle[few])
        if np.allclose(low[few] + (high - low)[few] * share, wanted, atol=1e-5):
            # The slopes are the discriminations of the items.
            form = {"link": name, "d": whole(middle)}
            if low.any():
                form["c"] = whole(low)
            if (high < 1).any():
                form["u"] = whole(high)
            return form
    return None


def item_data(
    table: Any, places: np.ndarray, flags: Sequence[str], names: list[str]
) -> dict[str, Any]:
    """Columns of the items of a page; `table` has the columns of `items.csv`."""
    shown = [names[k] for k in places]
    coded, short = front_coded(shown), hashes(shown)
    content: dict[str, Any] = {
        "names": coded if short is None or len(short[1]) > len(coded) else short
    }
    benchmarks = ["" if x is None else x for x in table["benchmark"].to_pylist()]
    distinct, codes = np.unique(np.array(benchmarks)[places], return_inverse=True)
    if len(distinct) > 1 or distinct[0]:
        # A digit each where they are few: these codes are long and repeat themselves.
        few = len(distinct) <= len(DIGITS)
        text = "".join(DIGITS[k] for k in codes) if few else codes.tolist()
        content |= {"benchmarks": labels(distinct), "benchmark": text}
    # Discriminations are part of formulas; difficulties are shown with two digits.
    scales = {"discrimination": 1000, "difficulty": 100, "accuracy": 1000}
    for name, scale in scales.items():
        content[name] = whole(column(table, name)[places], scale)
        error = column(table, f"{name}_se")[places]
        if np.isfinite(error).any():
            content[f"{name}_se"] = whole(error, 100)
    observed = np.asarray(table["observed"])[places].tolist()
    values = sorted({*observed})
    content["observed"] = observed[0] if len(values) == 1 else observed
    if 1 < len(values) <= len(DIGITS):
        digit = dict(zip(values, DIGITS, strict=False))
        codes = "".join(digit[x] for x in observed)
        content["observed"] = {"values": values, "codes": codes}
    content["flags"] = {
        str(k): flags[place] for k, place in enumerate(places) if flags[place]
    }
    return content


def subject_data(
    rows: list[dict[str, Any]],
    shared: np.ndarray | None = None,
    scale: np.ndarray | None = None,
    by_group: np.ndarray | None = None,
) -> dict[str, Any]:
    """Columns of the subjects, best first.

    Args:
        rows: Those of the ranking.
        shared: `[subjects, rank]` loadings of errors that subjects share.
        scale: `[subjects]` loadings on the error of the scale (`ranking.compare`).
        by_group: `[subjects, groups]` abilities on each group of items.
    """
    content: dict[str, Any] = {"names": labels(row["subject"] for row in rows)}
    kinds = "ability ability_se lower upper probability_best".split()
    kinds += [f"{of}{end}" for of in _SCORES for end in ("", "_lower", "_upper")]
    for name in kinds:
        values = [row.get(name) for row in rows]
        if any(value is not None for value in values):
            fine = FINE if name in _FINE else 1000
            content[name] = whole([np.nan if x is None else x for x in values], fine)
    for name in ("rank", "rank_lower", "rank_upper", "first_group", "last_group"):
        content[name] = [row[name] for row in rows]
    content["observed"] = [row.get("observed") for row in rows]
    flags = {str(k): x for k, row in enumerate(rows) if (x := row.get("flags"))}
    content["flags"] = flags
    # Differences are computed from these: errors have four digits or more.
    errors = [row["ability_se"] for row in rows if row["ability_se"]]
    middle = float(np.median(errors)) if errors else 1.0
    unit = content["scale_of_exact"] = 10 ** int(
        np.clip(np.ceil(4 - np.log10(middle)), 4, 9)
    )
    for name in ("ability", "ability_se"):
        content[f"exact_{name}"] = whole([row[name] for row in rows], unit)
    if shared is not None:
        content["shared"] = [whole(row, unit) for row in shared]
        if scale is not None:
            content["scale"] = whole(scale, unit)
    if by_group is not None:
        content["by_group"] = [whole(row) for row in by_group]
    return content


#: Scores of a subject that have an interval.
_SCORES = ("expected_score", "accuracy")
#: What the table shows with two or three digits, so that these are rounded once.
_FINE = {
    "lower",
    "upper",
    *(f"expected_score{end}" for end in ("", "_lower", "_upper")),
}


def text_rooms(count: int) -> tuple[int, int]:
    """Letters of texts of items to read and of others, in a page of so many items."""
    return ROOMS if count <= LARGE else LARGE_ROOMS


def thirds(cells: PageCells | None, order: np.ndarray) -> np.ndarray | None:
    """Mean responses of the weakest and the strongest third of subjects, `[2, items]`.

    `order` has the subjects, best first. NaN where nobody of a third responded.
    """
    size = order.size // 3
    if cells is None or not size:
        return None
    return np.stack([cells.means(part) for part in (order[-size:], order[:size])])


def texts_of(
    texts: Mapping[str, str] | None, names: Any, chosen: Iterable[int], most: int
) -> dict[int, str]:
    """Texts of items by place, shortened to `most` letters, line breaks kept."""
    shortened = {}
    for place in chosen if texts else ():
        text = texts.get(str(names[place])) if texts else None
        if text:
            # The head of a long text first: a megabyte need not be cleaned.
            head = text[: 2 * most]
            lines = (visible(line) for line in head.splitlines())
            clean = "\n".join(lines).strip()
            cut = len(clean) > most or len(text) > len(head)
            shortened[place] = clean[:most] + "…" * cut
    return shortened

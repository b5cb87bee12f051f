"""MATH-500 by size, date and level (4.2 and 4.3 of the paper).

Dates of models and levels of items are in files of the caller: the shared data have
neither. `--dates FILE` has the columns `subject` (the name in the responses, or that
without its prompt) and `date` (2024, 2024-09 or 2024-09-19). `--levels FILE` has the
columns `level` (1 to 5) and `subject` (of the item, such as Geometry), and `item`;
without that its rows are the items in their order. Both are CSV, JSON lines or Parquet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

import irtjax
from experiments.cbmm.designs import SHARED, simulated
from experiments.cbmm.figures_1_to_3 import TIERS, abilities, save
from experiments.cbmm.figures_1_to_3 import levels as boxes_of_levels
from experiments.cbmm.real import Row, rho
from experiments.cbmm.simulations import Scale

#: Endings of names that state the prompt.
PROMPTS = ("_zero_shot", "_one_shot")


def billions(name: str) -> float | None:
    """Billions of parameters in a model's name: all of them, where several are named.

    >>> billions("qwen_qwen3_30b_a3b_instruct"), billions("phi_4_mini")
    (30.0, None)
    """
    found = re.findall(r"(?:^|[_-])(\d+(?:\.\d+)?)b(?=[_-]|$)", name.lower())
    return max(map(float, found)) if found else None


def responses(scale: Scale) -> irtjax.ResponseTable:
    """Responses of models with two prompts to MATH-500, or a simulated stand-in."""
    path = SHARED / "lart/accuracy_math500.parquet"
    if not path.is_file():
        return irtjax.ResponseTable.from_arrays(
            simulated(scale.most, scale.most, 0).values,
            subjects=[f"model_{k + 1}b_zero_shot" for k in range(scale.most)],
        )
    import pandas as pd

    frame = pd.read_parquet(path)
    return irtjax.ResponseTable.from_arrays(
        frame.to_numpy(), subjects=frame.index.tolist(), items=frame.columns.tolist()
    )


def jonckheere(level, value) -> tuple[float, float]:
    """Jonckheere and Terpstra's statistic and p-value: do values rise with the level?

    The number of pairs of a lower and a higher level in which the value is higher too,
    ties half, and its one-sided p-value by the normal approximation with ties
    (Kendall's test of a rank correlation with tied levels is the same).

    >>> jonckheere([1, 1, 2, 2, 3, 3], [1, 2, 3, 5, 4, 6])[0]
    11.0
    """
    level, value = np.asarray(level), np.asarray(value, float)
    lower = level[:, None] < level
    apart = value - value[:, None]
    count = float(np.sum(lower * ((apart > 0) + 0.5 * (apart == 0))))
    found: Any = kendalltau(level, value, alternative="greater", method="asymptotic")
    return count, float(found.pvalue)


def read_table(path: Path, needed: tuple[str, ...]) -> Any:
    """The columns of a CSV, JSON lines or Parquet file, at least those needed."""
    import pandas as pd

    if path.suffix == ".parquet":
        frame = pd.read_parquet(path)
    elif path.suffix in (".jsonl", ".json"):
        frame = pd.read_json(path, lines=True, dtype=False)
    else:
        frame = pd.read_csv(path, dtype=str)
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise ValueError(f"{path}: no column {lacking[0]!r}; it needs {needed}")
    return frame


def years(text: str) -> float:
    """A date as a number of years, in the middle of its month or year.

    >>> years("2024"), round(years("2024-09"), 3), round(years("2024-09-19"), 3)
    (2024.5, 2024.708, 2024.717)
    """
    found = re.fullmatch(r"(\d{4})(?:-(\d{2}))?(?:-(\d{2}))?", text.strip())
    if not found:
        raise ValueError(f"date {text!r}: write 2024, 2024-09 or 2024-09-19")
    year, month, day = (None if x is None else int(x) for x in found.groups())
    if month is None:
        return year + 0.5
    return year + (month - 1 + (0.5 if day is None else (day - 0.5) / 31)) / 12


def dates_of(path: Path, names: list[str]) -> np.ndarray:
    """Release dates `[subjects]` in years; NaN of models that are not in the file."""
    frame = read_table(path, ("subject", "date"))
    known = dict(zip(frame["subject"].astype(str), frame["date"], strict=True))
    found = np.full(len(names), np.nan)
    for k, name in enumerate(names):
        base = name
        for ending in PROMPTS:
            base = base.removesuffix(ending)
        text = known.get(name, known.get(base))
        if isinstance(text, str) and text.strip():
            found[k] = years(text)
    if not np.isfinite(found).any():
        raise ValueError(f"{path}: no subject of it is one of the responses")
    return found


def levels_of(path: Path, items: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Levels (0 of items that are not in the file) and subjects of the items."""
    frame = read_table(path, ("level", "subject"))
    if "item" in frame.columns:
        order = frame["item"].astype(str).tolist()
    elif len(frame) == len(items):
        order = items
    else:
        raise ValueError(
            f"{path}: {len(frame)} rows without a column 'item', and {len(items)} items"
        )
    level, subject = np.zeros(len(items), int), np.full(len(items), "", object)
    place = {name: k for k, name in enumerate(items)}
    for name, own, kind in zip(order, frame["level"], frame["subject"], strict=True):
        if name in place:
            # "Level 5" of MATH itself, or a number.
            digits = re.findall(r"\d+", str(own))
            if len(digits) != 1:
                raise ValueError(f"{path}: level {own!r} of {name} is not a number")
            level[place[name]], subject[place[name]] = int(digits[0]), str(kind)
    if not level.any():
        raise ValueError(f"{path}: no item of it is one of the responses")
    return level, subject


def by_date(ability, size, date) -> list[Row]:
    """Ability and release date, of all models and of each tier."""
    rows = []
    for tier, low, high in (("all", -np.inf, np.inf), *TIERS):
        mine = np.isfinite(date)
        mine &= (size >= low) & (size < high) if tier != "all" else True
        if mine.sum() > 2:
            slope = np.polyfit(date[mine], ability[mine], 1)[0]
            rows += [
                {"quantity": f"Spearman of ability and date, {tier}",
                 "models": int(mine.sum()), "value": rho(ability[mine], date[mine])},
                {"quantity": f"ability a year, {tier}", "models": int(mine.sum()),
                 "value": float(slope)},
            ]  # fmt: skip
    return rows


def by_level(slope, intercept, mean: float, level, subject) -> list[Row]:
    """Difficulty and level of the items, over all subjects and in each.

    Difficulty is the logit of a wrong response at the mean ability, -(d + a m), which
    does not depend on the location of ability, and -d / a of items with a > 0. The
    paper takes -d, which does.
    """
    measures = {
        "logit of wrong at mean ability": (-(intercept + slope * mean), level > 0),
        "difficulty -d / a": (
            -intercept / np.where(slope > 0, slope, 1),
            (level > 0) & (slope > 0),
        ),
    }
    rows = []
    for name, (value, known) in measures.items():
        for kind in ("all", *sorted(set(subject[known]))):
            mine = known & ((subject == kind) | (kind == "all"))
            there = sorted(set(level[mine].tolist()))
            if len(there) < 2 or mine.sum() < 3:
                continue
            medians = [float(np.median(value[mine & (level == x)])) for x in there]
            rows.append(
                {"quantity": name, "subject": kind, "items": int(mine.sum())}
                | {f"level {x}": y for x, y in zip(there, medians, strict=True)}
                | {
                    "spearman": rho(level[mine], value[mine]),
                    "jonckheere_p": jonckheere(level[mine], value[mine])[1],
                    # Levels whose median item is easier than that of the level below.
                    "falls": sum(np.diff(medians) < 0),
                }
            )
    return rows


def math500(
    scale: Scale,
    out: Path | None = None,
    dates: Path | None = None,
    levels: Path | None = None,
) -> list[Row]:
    """Ability on MATH-500 by size, prompt and date; difficulty by level of the item."""
    table = responses(scale)
    fit = irtjax.fit(table, "2pl", "em", standard_errors="none")
    ability = fit.abilities.table["ability"].to_numpy()
    names = fit.subject_names.tolist()
    size = np.array([billions(name) or np.nan for name in names])
    known = np.isfinite(size)
    rows: list[Row] = [
        {"quantity": "Spearman of ability and size", "models": int(known.sum()),
         "value": rho(ability[known], size[known])}
    ]  # fmt: skip
    for tier, low, high in TIERS:
        mine = known & (size >= low) & (size < high)
        if mine.any():
            value = float(np.median(ability[mine]))
            rows.append({"quantity": f"median ability, {tier}", "value": value,
                         "models": int(mine.sum())})  # fmt: skip
    place = {name: k for k, name in enumerate(names)}
    pairs = [
        (k, place[other])
        for name, k in place.items()
        if name.endswith("zero_shot")
        and (other := name.replace("zero_shot", "one_shot")) in place
    ]
    if len(pairs) > 2:
        zero, one = ability[np.array(pairs)].T
        rows.append({"quantity": "Spearman of the two prompts", "models": len(pairs),
                     "value": rho(zero, one)})  # fmt: skip
        rows.append({"quantity": "mean gain of one shot", "models": len(pairs),
                     "value": float(np.mean(one - zero))})  # fmt: skip
    large = np.flatnonzero(known & (size >= 20))
    for k in large:
        if "yi" in re.split(r"[_-]", names[k].lower()):
            rank = 1 + int(np.sum(ability[large] > ability[k]))
            rows.append({"quantity": f"place of {names[k]} among the large",
                         "models": len(large), "value": rank})  # fmt: skip
    date = None if dates is None else dates_of(dates, names)
    if date is not None:
        rows += by_date(ability, size, date)
    if levels is not None:
        slope, intercept = (np.asarray(x, float) for x in fit.parameters.items[:2])
        known = levels_of(levels, table.items.tolist())
        rows += by_level(slope, intercept, float(ability.mean()), *known)
        if out is not None:
            difficulty = -(intercept + slope * ability.mean())
            save(boxes_of_levels(difficulty, *known), out / "math500_levels.png")
    if out is not None:
        save(abilities(ability, names, size, date, pairs), out / "math500.png")
    return rows

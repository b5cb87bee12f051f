"""Fits with any names and of any size, for tests of `report.html`; none is fitted."""

import dataclasses
import hashlib

import numpy as np
import pyarrow as pa

import irtjax
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from tests.small_fits import small_fit, small_table

#: Names that could end a script, steer a display, or fill a page.
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=\"document.title='owned'\">",
    "\x1b[31mred\x1b[0m \u202egnp.exe",
    "שלום עולם",
    "line\u2028separator\u0000&amp;\"'`{{ 7 * 7 }}",
    "\u200b\u200b",
    "x" * 1_000_000,
    "y" * 1_000_000,
)


def renamed(fit, subjects, items):
    """A fit and its table with other names."""
    old, table = fit.subject_names.tolist(), small_table()
    new = dict(zip(old, subjects, strict=True))
    abilities = [new[x] for x in fit.abilities.table["subject"].to_pylist()]
    ability_table = fit.abilities.table.set_column(0, "subject", pa.array(abilities))
    item_table = fit.items.table.set_column(0, "item", pa.array(items))
    changed = {
        "abilities": AbilityTable(ability_table),
        "items": ItemTable(item_table),
    }
    # Of objects: a matrix of letters as wide as the longest name would fill the memory.
    subjects, items = np.array(subjects, object), np.array(items, object)
    return (
        dataclasses.replace(fit, **changed, subject_names=subjects, item_names=items),
        dataclasses.replace(table, subjects=subjects, items=items),
    )


def hostile_fit():
    """The small fit with hostile names of subjects and items."""
    fit = small_fit(errors=False)
    subjects, items = (
        [str(x) for x in names] for names in (fit.subject_names, fit.item_names)
    )
    subjects[: len(HOSTILE)] = HOSTILE
    items[: len(HOSTILE)] = HOSTILE
    return renamed(fit, subjects, items)


def large_fit(num_subjects: int, num_items: int, seed: int = 0, hashed: bool = False):
    """A fit of any size and its responses: the small one's rows, with changed names."""
    fit, random = small_fit(errors=False), np.random.default_rng(seed)
    who = np.arange(num_subjects) % len(fit.subject_names)
    which = np.arange(num_items) % len(fit.item_names)
    subjects = [f"vendor-{k % 7}/model-{k}-instruct" for k in range(num_subjects)]
    items = [f"mmlu_college_subject_{k % 57}/{k}" for k in range(num_items)]
    benchmarks = [name.split("/")[0] for name in items]
    if hashed:
        items = [hashlib.md5(name.encode()).hexdigest() for name in items]
    ability = np.sort(random.normal(size=num_subjects))[::-1]
    abilities = fit.abilities.table.take(pa.array(who))
    rank = np.arange(1, num_subjects + 1)
    for name, values in {
        "subject": subjects,
        "ability": ability,
        "lower": ability - 0.3,
        "upper": ability + 0.3,
        "rank": rank,
        "rank_lower": np.maximum(rank - 2, 1),
        "rank_upper": np.minimum(rank + 2, num_subjects),
    }.items():
        place = abilities.column_names.index(name)
        abilities = abilities.set_column(place, name, pa.array(values))
    slope, intercept = (
        random.lognormal(0, 0.3, num_items),
        random.normal(size=num_items),
    )
    table = fit.items.table.take(pa.array(which))
    columns = {"item": items, "benchmark": benchmarks, "flags": [""] * num_items}
    columns |= {"discrimination": slope, "intercept": intercept}
    columns |= {"difficulty": -intercept / slope, "accuracy": random.random(num_items)}
    columns |= {"discrimination_se": slope / 7, "difficulty_se": slope / 9}
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    records = fit.parameters.items
    records = type(records)(*(np.asarray(x)[which] for x in records))
    records = records._replace(discrimination=slope, intercept=intercept)
    shared = random.normal(size=(num_subjects, 16)) / 20
    large = dataclasses.replace(
        fit,
        subject_names=np.array(subjects),
        item_names=np.array(items),
        benchmarks=np.array(benchmarks),
        items=ItemTable(table),
        abilities=AbilityTable(abilities),
        parameters=fit.parameters._replace(items=records),
        ability_shared=shared,
        ability_scale=shared[:, 0],
    )
    right = random.random((num_subjects, num_items)) < 0.6
    return large, irtjax.ResponseTable.from_arrays(
        right, subjects=subjects, items=items
    )

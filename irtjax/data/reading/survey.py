"""What logs offer to read, and the choices that are open."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.reading.choose import choose, missing_choices, rows_by_code
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Records


class Offer(NamedTuple):
    """Responses of one benchmark, metric and filter.

    Attributes:
        benchmark: Its name, "" where the input has none.
        metric: Its name, "" where the input has none.
        filter: Name of the answer filter, "" where the input has none.
        subjects: Number of subjects.
        items: Number of items.
        epochs: Most responses of a subject to an item.
        binary: Whether all scores are 0 or 1.
        numeric: Whether all are numbers; text and objects cannot be read.
    """

    benchmark: str
    metric: str
    filter: str
    subjects: int
    items: int
    epochs: int
    binary: bool
    numeric: bool = True


def survey(records: Records) -> list[Offer]:
    """What each benchmark offers, in order of appearance."""
    columns = [
        None if x is None else x.compact()
        for x in (records.benchmark, records.metric, records.filter)
    ]
    code = np.zeros(len(records), np.int64)
    for column in columns:
        if column is not None:
            code = code * len(column.labels) + column.codes
    offers = []
    for _, rows in rows_by_code(code):
        benchmark, metric, filter = (
            "" if x is None else x.text(rows[0]) for x in columns
        )
        subject, item = records.subject.codes[rows], records.item.codes[rows]
        runs = np.zeros(len(rows)) if records.run is None else records.run.codes[rows]
        # Runs are chosen from; within one the responses of a cell are its epochs.
        cell = np.stack([subject, item, runs])
        epochs = int(np.unique(cell, axis=1, return_counts=True)[1].max())
        scores = records.response[rows]
        observed = scores[~np.isnan(scores)]
        size = len(np.unique(subject)), len(np.unique(item))
        binary = bool(np.isin(observed, (0.0, 1.0)).all())
        numeric = (benchmark, metric) not in records.unscored
        offers.append(Offer(benchmark, metric, filter, *size, epochs, binary, numeric))
    return offers


def open_choices(records: Records, options: ReadOptions) -> dict[str, Any]:
    """Options that leave nothing to choose: metrics, filters, and `trials`.

    Returns:
        By name of the option its value; empty where nothing is open.
    """
    choices: dict[str, Any] = missing_choices(records, options)
    chosen, _ = choose(records, dataclasses.replace(options, **choices))
    if options.trials == "error":
        cell = np.stack([chosen.subject.codes, chosen.item.codes])
        observed = ~np.isnan(chosen.response) | (options.missing_as == "wrong")
        if np.unique(cell[:, observed], axis=1).shape[1] < observed.sum():
            choices["trials"] = "auto"
    return choices


def taken(
    records: Records, options: ReadOptions, offers: list[Offer]
) -> dict[str, dict[str, str] | str]:
    """The metrics and filters that are read where a benchmark has several.

    Returns:
        Values of the options `metric` and `filter`: by benchmark, or one name where it
        is that of all benchmarks with several.
    """
    chosen, _ = choose(records, options)
    choices: dict[str, dict[str, str] | str] = {}
    for option in ("metric", "filter"):
        labels = {offer.benchmark: set[str]() for offer in offers}
        for offer in offers:
            labels[offer.benchmark].add(getattr(offer, option))
        several = [name for name, names in labels.items() if len(names) > 1]
        named = {
            offer.benchmark: getattr(offer, option)
            for offer in survey(chosen)
            if offer.benchmark in several and getattr(offer, option)
        }
        if named:
            one = len(set(named.values())) == 1 and len(labels) == len(named)
            choices[option] = next(iter(named.values())) if one else named
    return choices

"""How much repeated responses to an item agree beyond ability."""

from __future__ import annotations

from irtjax.calibration.calibration import Calibration
from irtjax.data.arrays import places_of
from irtjax.data.item_texts import refuse_other_contents
from irtjax.data.table import ResponseTable
from irtjax.numerics.dispersion import Intraclass, intraclass
from irtjax.prediction.responses import predict


def response_icc(fit: Calibration, table: ResponseTable) -> Intraclass:
    r"""Estimates the intraclass correlation of responses from counts of trials.

    It maximises the beta-binomial likelihood of the counts, given the chances that the
    fit predicts (`irtjax.predict`; AIMS 2.6.3): of two responses of a subject to an
    item, the correlation given ability. What the fit does not explain of a cell counts
    as agreement, too. R responses to an item are worth R / (1 + (R - 1) icc)
    independent ones.

    Args:
        fit: A calibration of right and wrong responses.
        table: Responses with counts of trials; subjects and items that the fit does
            not have are left out.

    Returns:
        `icc` with its `standard_error`, and `num_cells`, the cells with two trials.

    Raises:
        ValueError: If there are no cells with two trials, or responses have other
            values than right and wrong.

    >>> import irtjax
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.beta(0.5, 0.5, (30, 20))  # of which the correlation is 0.5
    >>> counts = rng.binomial(8, chance)
    >>> table = irtjax.ResponseTable.from_arrays(counts, trials=np.full((30, 20), 8))
    >>> correlation = response_icc(irtjax.fit(table, "rasch"), table)
    >>> abs(correlation.icc - 0.5) < 3 * correlation.standard_error
    True
    """
    if fit.model.family.num_categories != 2:
        raise ValueError(
            f"response_icc needs right and wrong responses, and a {fit.model.name}"
            " model has others"
        )
    rows = places_of(fit.subject_names, table.subjects) >= 0
    columns = places_of(fit.item_names, table.items) >= 0
    if not (rows.any() and columns.any()):
        raise ValueError(
            "response_icc needs responses of subjects and items of the fit: give an icc"
        )
    refuse_other_contents(table.item_contents, fit.item_contents, "the fit")
    table = table.select(subjects=rows, items=columns)
    icc = None
    if table.trials is not None:
        chance = predict(
            fit, subject_names=table.subjects, item_names=table.items
        ).expected
        icc = intraclass(chance, table.values, table.trials)
    if icc is None:
        raise ValueError(
            "response_icc needs items answered twice or more: read the file with"
            " trials='counts'"
        )
    return icc

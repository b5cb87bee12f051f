"""The part of a problem that models response lengths (LaRT)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxtyping import Array, Float

from irtjax.likelihood.problem import Problem
from irtjax.models.lengths import LengthParameters, Lengths, LengthSummary


class LengthPart(NamedTuple):
    """What response lengths contribute at their parameters.

    The constant is added to each subject's marginal log-likelihood with the evidence.
    """

    model: Lengths
    parameters: LengthParameters
    summary: LengthSummary
    constant: Float[Array, " subjects"]


def with_lengths(
    problem: Problem, lengths: LengthParameters | None
) -> tuple[Problem, LengthPart | None]:
    """The problem with the evidence of its response lengths; as it is without any."""
    model, data = problem.model.lengths, problem.data
    if model is None or lengths is None:
        return problem, None
    summary = model.summary(lengths, data)
    evidence, constant = model.evidence(lengths, summary)
    if data.evidence is not None:
        evidence = evidence + data.evidence
    data = dataclasses.replace(data, evidence=evidence)
    problem = dataclasses.replace(problem, data=data)
    return problem, LengthPart(model, lengths, summary, constant)

"""Covariance of items, scores of subjects, and the information of items."""

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
    from irtjax.inference.covariance import (
        KINDS,
        LOST,
        Covariance,
        check_kind,
        item_covariance,
    )
    from irtjax.inference.expected import ExpectedScores, expected_scores
    from irtjax.inference.group_scores import (
        GroupScores,
        errors_over_covariances,
        moves_of_prior,
        score_groups,
    )
    from irtjax.inference.length_errors import (
        LengthCovariance,
        SpeedError,
        evidence_moves,
        length_covariance,
        speed_error,
    )
    from irtjax.inference.result import METHODS, ScoreFlag, Scores
    from irtjax.inference.scores import score, score_on_nodes

__all__ = [
    "Covariance",
    "ExpectedScores",
    "GroupScores",
    "KINDS",
    "LOST",
    "LengthCovariance",
    "METHODS",
    "ScoreFlag",
    "Scores",
    "SpeedError",
    "check_kind",
    "errors_over_covariances",
    "evidence_moves",
    "expected_scores",
    "item_covariance",
    "length_covariance",
    "moves_of_prior",
    "score",
    "score_groups",
    "score_on_nodes",
    "speed_error",
]

__getattr__ = loader(
    __name__,
    {
        "irtjax.inference.covariance": "KINDS LOST Covariance check_kind"
        " item_covariance",
        "irtjax.inference.expected": "ExpectedScores expected_scores",
        "irtjax.inference.group_scores": "GroupScores errors_over_covariances"
        " moves_of_prior score_groups",
        "irtjax.inference.length_errors": "LengthCovariance SpeedError"
        " evidence_moves length_covariance speed_error",
        "irtjax.inference.result": "METHODS ScoreFlag Scores",
        "irtjax.inference.scores": "score score_on_nodes",
    },
)

"""Covariance of items, scores of subjects, and the information of items."""

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
    "score",
    "score_groups",
    "score_on_nodes",
    "speed_error",
]

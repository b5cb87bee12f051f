"""Scores: the ability of each subject, with items known."""

from irtjax.scoring.driver import score, score_on_nodes
from irtjax.scoring.expected import ExpectedScores, expected_scores
from irtjax.scoring.groups import GroupScores, errors_over_covariances, score_groups
from irtjax.scoring.result import METHODS, ScoreFlag, Scores

__all__ = [
    "METHODS",
    "ExpectedScores",
    "GroupScores",
    "ScoreFlag",
    "Scores",
    "score",
    "errors_over_covariances",
    "expected_scores",
    "score_groups",
    "score_on_nodes",
]

"""Scores: the ability of each subject, with items known."""

from irtjax.scoring.driver import score, score_on_nodes
from irtjax.scoring.result import METHODS, ScoreFlag, Scores

__all__ = ["METHODS", "ScoreFlag", "Scores", "score", "score_on_nodes"]

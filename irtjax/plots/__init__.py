"""Figures of a calibration or of tests: functions that take one and return a Figure.

They use Figure objects and no global state of matplotlib, so they are safe in threads,
notebooks and on machines without a screen.
"""

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
    from irtjax.plots.abilities import plot_abilities as plot_abilities
    from irtjax.plots.abilities import plot_ranked as plot_ranked
    from irtjax.plots.adaptive import plot_adaptive as plot_adaptive
    from irtjax.plots.adaptive import plot_trajectory as plot_trajectory
    from irtjax.plots.audit import (
        plot_difficulty_discrimination as plot_difficulty_discrimination,
    )
    from irtjax.plots.audit import plot_flagged_items as plot_flagged_items
    from irtjax.plots.audit import plot_item_properties as plot_item_properties
    from irtjax.plots.changes import plot_rank_changes as plot_rank_changes
    from irtjax.plots.clusters import plot_clusters as plot_clusters
    from irtjax.plots.correlates import plot_correlates as plot_correlates
    from irtjax.plots.curves import plot_item_information as plot_item_information
    from irtjax.plots.curves import (
        plot_item_response_functions as plot_item_response_functions,
    )
    from irtjax.plots.curves import plot_test_information as plot_test_information
    from irtjax.plots.dif import plot_dif as plot_dif
    from irtjax.plots.expected_score import plot_test_score as plot_test_score
    from irtjax.plots.filtering import plot_filter as plot_filter
    from irtjax.plots.flow import plot_rank_flow as plot_rank_flow
    from irtjax.plots.generalisation import plot_generalisation as plot_generalisation
    from irtjax.plots.history import plot_history as plot_history
    from irtjax.plots.lengths import plot_latency as plot_latency
    from irtjax.plots.loadings import plot_biplot as plot_biplot
    from irtjax.plots.loadings import plot_dimensions as plot_dimensions
    from irtjax.plots.loadings import plot_structure as plot_structure
    from irtjax.plots.model_scores import plot_model_scores as plot_model_scores
    from irtjax.plots.multilevel import (
        plot_abilities_by_group as plot_abilities_by_group,
    )
    from irtjax.plots.multilevel import plot_correlations as plot_correlations
    from irtjax.plots.multilevel import plot_profiles as plot_profiles
    from irtjax.plots.parameters import plot_item_parameters as plot_item_parameters
    from irtjax.plots.rasch import plot_rasch as plot_rasch
    from irtjax.plots.response_matrix import (
        plot_response_matrix as plot_response_matrix,
    )
    from irtjax.plots.semantic import plot_semantic_space as plot_semantic_space
    from irtjax.plots.shrink import plot_subset_errors as plot_subset_errors
    from irtjax.plots.sources import plot_sources as plot_sources
    from irtjax.plots.stability import plot_rank_ribbons as plot_rank_ribbons
    from irtjax.plots.style import save_figure as save_figure
    from irtjax.plots.traces import plot_trace as plot_trace
    from irtjax.plots.wins import plot_wins as plot_wins
    from irtjax.plots.wright import plot_wright_map as plot_wright_map

__all__ = [
    "plot_abilities",
    "plot_abilities_by_group",
    "plot_adaptive",
    "plot_biplot",
    "plot_clusters",
    "plot_correlates",
    "plot_correlations",
    "plot_dif",
    "plot_difficulty_discrimination",
    "plot_dimensions",
    "plot_filter",
    "plot_flagged_items",
    "plot_generalisation",
    "plot_history",
    "plot_item_information",
    "plot_item_parameters",
    "plot_item_properties",
    "plot_item_response_functions",
    "plot_latency",
    "plot_model_scores",
    "plot_profiles",
    "plot_rank_changes",
    "plot_rank_flow",
    "plot_rank_ribbons",
    "plot_ranked",
    "plot_rasch",
    "plot_response_matrix",
    "plot_semantic_space",
    "plot_sources",
    "plot_structure",
    "plot_subset_errors",
    "plot_test_information",
    "plot_test_score",
    "plot_trace",
    "plot_trajectory",
    "plot_wins",
    "plot_wright_map",
    "save_figure",
]

__getattr__ = loader(
    __name__,
    {
        "irtjax.plots.abilities": "plot_abilities plot_ranked",
        "irtjax.plots.adaptive": "plot_adaptive plot_trajectory",
        "irtjax.plots.audit": "plot_difficulty_discrimination plot_flagged_items"
        " plot_item_properties",
        "irtjax.plots.changes": "plot_rank_changes",
        "irtjax.plots.clusters": "plot_clusters",
        "irtjax.plots.correlates": "plot_correlates",
        "irtjax.plots.curves": "plot_item_information plot_item_response_functions"
        " plot_test_information",
        "irtjax.plots.dif": "plot_dif",
        "irtjax.plots.filtering": "plot_filter",
        "irtjax.plots.flow": "plot_rank_flow",
        "irtjax.plots.generalisation": "plot_generalisation",
        "irtjax.plots.history": "plot_history",
        "irtjax.plots.lengths": "plot_latency",
        "irtjax.plots.loadings": "plot_biplot plot_dimensions plot_structure",
        "irtjax.plots.model_scores": "plot_model_scores",
        "irtjax.plots.multilevel": "plot_abilities_by_group plot_correlations"
        " plot_profiles",
        "irtjax.plots.parameters": "plot_item_parameters",
        "irtjax.plots.rasch": "plot_rasch",
        "irtjax.plots.response_matrix": "plot_response_matrix",
        "irtjax.plots.semantic": "plot_semantic_space",
        "irtjax.plots.shrink": "plot_subset_errors",
        "irtjax.plots.sources": "plot_sources",
        "irtjax.plots.stability": "plot_rank_ribbons",
        "irtjax.plots.style": "save_figure",
        "irtjax.plots.expected_score": "plot_test_score",
        "irtjax.plots.traces": "plot_trace",
        "irtjax.plots.wins": "plot_wins",
        "irtjax.plots.wright": "plot_wright_map",
    },
)

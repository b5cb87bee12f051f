"""Figures of a calibration or of tests: functions that take one and return a Figure.

They use Figure objects and no global state of matplotlib, so they are safe in threads,
notebooks and on machines without a screen.
"""

from irtjax.plots.abilities import plot_abilities, plot_ranked
from irtjax.plots.adaptive import plot_adaptive, plot_trajectory
from irtjax.plots.audit import (
    plot_difficulty_discrimination,
    plot_flagged_items,
    plot_item_properties,
)
from irtjax.plots.changes import plot_rank_changes
from irtjax.plots.clusters import plot_clusters
from irtjax.plots.curves import (
    plot_item_information,
    plot_item_response_functions,
    plot_test_information,
)
from irtjax.plots.flow import plot_rank_flow
from irtjax.plots.history import plot_history
from irtjax.plots.lengths import plot_latency
from irtjax.plots.loadings import plot_biplot, plot_dimensions, plot_structure
from irtjax.plots.multilevel import (
    plot_abilities_by_group,
    plot_correlations,
    plot_profiles,
)
from irtjax.plots.parameters import plot_item_parameters
from irtjax.plots.shrink import plot_subset_errors
from irtjax.plots.sources import plot_sources
from irtjax.plots.stability import plot_rank_ribbons
from irtjax.plots.style import save_figure
from irtjax.plots.wins import plot_wins
from irtjax.plots.wright import plot_wright_map

__all__ = [
    "plot_abilities",
    "plot_abilities_by_group",
    "plot_adaptive",
    "plot_biplot",
    "plot_clusters",
    "plot_correlations",
    "plot_difficulty_discrimination",
    "plot_dimensions",
    "plot_flagged_items",
    "plot_history",
    "plot_item_information",
    "plot_item_parameters",
    "plot_item_properties",
    "plot_item_response_functions",
    "plot_latency",
    "plot_profiles",
    "plot_rank_changes",
    "plot_rank_flow",
    "plot_rank_ribbons",
    "plot_ranked",
    "plot_sources",
    "plot_structure",
    "plot_subset_errors",
    "plot_test_information",
    "plot_trajectory",
    "plot_wins",
    "plot_wright_map",
    "save_figure",
]

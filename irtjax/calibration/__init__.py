"""The labelled result of a fit: tables, flags, ranks, scores, comparisons."""

"""The steps from a path to a labelled table."""

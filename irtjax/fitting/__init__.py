"""Fits: from a table of responses to a calibration."""

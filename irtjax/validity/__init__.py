"""Whether the measurement is sound: fit, guessing, dependence, missing responses."""

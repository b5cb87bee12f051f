"""Whether the measurement is sound: fit of items, guessing, local dependence."""

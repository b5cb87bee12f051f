"""Neural estimators: twin networks (PSN-IRT) and amortised variational inference."""

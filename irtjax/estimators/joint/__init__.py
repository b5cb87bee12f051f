"""Joint maximum likelihood: majorisation-minimisation and gradient methods."""

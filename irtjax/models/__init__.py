"""Response models: families, priors, the catalogue of named models, simulation."""

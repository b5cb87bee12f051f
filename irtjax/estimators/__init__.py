"""Problems, the driver, and the estimators: EM, MM and gradient methods."""

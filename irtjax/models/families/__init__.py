"""Response families, one file each: log p(y | ability, item)."""

"""Nothing here is for Python: `columns` uses it."""

"""Used by other native modules only: nothing here for Python."""

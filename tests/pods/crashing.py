"""A handler that cannot be loaded."""

raise RuntimeError("this handler cannot be loaded")

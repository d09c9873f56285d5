"""Writes docs/reference/ from the source, so that no page can say what the source does not."""

"""The documentation, executed: every page is followed from top to bottom, as a reader would."""

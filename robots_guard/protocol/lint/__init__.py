"""Lint: find the lines of a robots.txt that may not do what their author meant, and show how each
dialect reads them. No I/O."""

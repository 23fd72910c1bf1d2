"""Decisions: values in, values out. No I/O, no clock: `now` is an argument."""

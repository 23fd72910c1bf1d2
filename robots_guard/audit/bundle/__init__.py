"""Bundles: records of the audit log with all that is needed to check them without the log."""

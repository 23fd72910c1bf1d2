"""The audit trail: what a record is, where it is written, how it is read back."""

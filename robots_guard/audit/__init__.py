"""The audit log: its records, and how they are written, read and shown."""

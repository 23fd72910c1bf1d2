"""Showing the audit log: figures, the chart, the report, and exports to other formats."""

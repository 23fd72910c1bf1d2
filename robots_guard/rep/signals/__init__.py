"""Signals: what a site says of the use of its content, beside Allow and Disallow."""

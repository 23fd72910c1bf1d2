"""Signals: what a site says about the use of its content, in addition to Allow and Disallow."""

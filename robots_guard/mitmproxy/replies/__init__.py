"""The proxy's own responses: to refused and deferred requests, and on its status page."""

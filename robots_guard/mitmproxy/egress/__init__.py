"""Traffic that leaves the proxy besides judged requests: uninspected TLS, and its own robots.txt fetches."""

"""Traffic that leaves the proxy besides judged requests: connections, tunnels, and its own robots.txt fetches."""

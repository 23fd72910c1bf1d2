"""The guard drives a check over the ports and keeps the policies, turns and counters it needs."""

"""The parts of benchmarks/soak.py: judging origins, restarted programs, faults, and the check of
the log.
"""

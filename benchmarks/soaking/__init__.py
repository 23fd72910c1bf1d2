"""The parts of benchmarks/soak.py: origins that judge, programs that are started again, faults, and the log's check."""

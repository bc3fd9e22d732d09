"""Robustness benchmarks: making them, reading them, scoring on them, and the tables."""

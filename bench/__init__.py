"""Benchmarks: pytest-benchmark suites (`bench_*.py`) and the sustained harness."""

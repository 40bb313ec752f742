"""Benchmarks behind `vamp bench`: figures beside limits. No test waits for them."""

"""Micro-benchmarks and correctness runs over named convolution problems."""

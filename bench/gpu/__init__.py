"""A GPU for the benchmarks: its memory, clock, wires and state by the driver, and by torch."""

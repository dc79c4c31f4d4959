"""Measure a machine, fit the performance model, simulate plans and validate predictions."""

"""Who else computes a problem."""

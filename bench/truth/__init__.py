"""True elements of results, computed by themselves: what all who compute a problem are held to."""

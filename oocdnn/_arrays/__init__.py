"""Arrays of NumPy, CuPy and torch as the core reads them: addresses, new memory, pins."""

"""The core library through cffi, and calls as plain values: the lowest layer of the package."""

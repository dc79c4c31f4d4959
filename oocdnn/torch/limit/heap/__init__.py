"""Bytes that PyTorch's caching allocator reserves for a step, by simulation of its rules."""

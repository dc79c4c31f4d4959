"""Training steps within a limit of device memory, as `oocdnn.network` plans them.

Not part of the public interface yet: `session.memory_limit` runs on one GPU, with the policies
keep, swap and rebuild.
"""

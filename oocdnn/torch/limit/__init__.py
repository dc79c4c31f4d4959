"""Training steps within a limit of device memory, as `oocdnn.network` plans them.

`session.memory_limit`, which is public as `oocdnn.torch.memory_limit`, trains on one GPU. A plan
has the policies keep, swap, rebuild and squeeze.
"""

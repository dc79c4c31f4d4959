"""The backend `oocdnn` of torch.compile."""

from oocdnn.torch.compiled.partition import plans

__all__ = ["plans"]

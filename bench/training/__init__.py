"""Networks trained within limits, beside PyTorch's other ways to train in less memory."""

"""Lock a PyTorch/CUDA environment, say what a difference means, rebuild it, prove it."""

__version__ = "0.1.0"

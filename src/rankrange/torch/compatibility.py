"""Private handles of PyTorch: the only module that asks for them. Each has a fallback for versions without it."""

from __future__ import annotations

from typing import Any

import torch

# Whether a functorch transform (vmap, grad) is active; custom kernels then stand aside.
transforms_active: Any = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
# The handle of the current stream of a CUDA device, without making an object of it; None if there is none.
raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)

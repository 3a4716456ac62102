"""Private functions of PyTorch. Only this module uses them, each with a fallback for versions without it."""

from __future__ import annotations

from typing import Any

import torch

# Whether a functorch transform (vmap, grad) is active; custom kernels are not used then.
transforms_active: Any = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
# The raw handle of the current stream of a CUDA device; None if this function does not exist.
raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)

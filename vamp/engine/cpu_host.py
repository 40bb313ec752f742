"""What the CPU build of vLLM 0.26.0 needs on some hosts, with VAMP or without."""

from __future__ import annotations

import os

ENVIRONMENT = {"TORCH_COMPILE_DISABLE": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
"""Set for CPU servers, unless the user did. The CPU server runs eagerly, yet vLLM's small helpers are compiled at the
first request: 111 s of a start instead of 1 s. oneDNN must leave AMX alone for `work_around_amx`."""


def work_around_amx() -> None:
    """Keep this process off AMX, which would kill it.

    On processors with AMX, vLLM's MoE and linear attention kernels die of an illegal instruction at the first forward:
    seen for both tiny models of this project (Xeon with AMX, in a virtual machine). Call it in the worker before the
    model is loaded; plain vLLM under `vamp serve` gets it too.
    """
    import torch

    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", ENVIRONMENT["ONEDNN_MAX_CPU_ISA"])
    torch.cpu._is_amx_tile_supported = lambda: False

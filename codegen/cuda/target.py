"""What the CUDA printer must know of a device."""

from __future__ import annotations

from dataclasses import dataclass

from redfuser.extract.gpu import Gpu


@dataclass(frozen=True)
class CudaTarget:
    """A GPU as the printer sees it; `arch` is written like "sm_80" or "sm_90a"."""

    gpu: Gpu

    @staticmethod
    def of(name: str) -> CudaTarget:
        """By the name of a device ("h100") or of an architecture ("sm_90a").

        Raises
        ------
        ValueError
            for a name that is neither.
        """
        return CudaTarget(Gpu.of(name))

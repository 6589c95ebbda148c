"""Predict the time of a fused cascade on a device: the slowest of its resources bounds it (a roofline).

    t(resource) = what the work takes of it / its peak rate
    predicted   = start + max over resources of t

Williams, Waterman and Patterson 2009, with one roof per class of instruction. A prediction is a bound from below for
perfectly overlapped execution: it ranks forms and names what limits them, it does not replace a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redfuser.derivation.fusion import FusedCascade
from redfuser.extract.device import Device
from redfuser.extract.work import Work, work
from redfuser.ir.dtypes import numpy_dtype

ARITHMETIC, MATRIX, MEMORY, CACHE = "arithmetic", "matrix units", "memory", "last cache"


@dataclass(frozen=True)
class Prediction:
    """Seconds per resource for one call, and what follows from them."""

    device: str
    times: Mapping[str, float]
    start: float

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        return max(self.times, key=lambda name: (self.times[name], name))

    @property
    def seconds(self) -> float:
        """Predicted time of a call."""
        return self.start + max(self.times.values())

    @property
    def effort(self) -> float:
        """Time with nothing overlapped: ranks forms that the same resource bounds."""
        return self.start + sum(self.times.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"device": self.device, "seconds": self.seconds, "bound": self.bound, "times": dict(self.times)}

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {duration(t)}" for name, t in sorted(self.times.items(), key=lambda x: -x[1]) if t)
        return f"{self.device}: {duration(self.seconds)}, bounded by {self.bound} ({parts})"


def work_on(device: Device, fused: FusedCascade, sizes: Mapping[str, int], dtype: str = "float32") -> Work:
    """The work on a device: rows that fit into half of a unit's fast memory stay there and correct nothing."""
    lanes = device.lanes // numpy_dtype(dtype).itemsize
    streamed = work(fused, sizes, dtype, lanes=lanes)
    on_chip = streamed.row <= device.chip / 2
    return work(fused, sizes, dtype, lanes=lanes, corrects=False) if on_chip else streamed


def predict(w: Work, device: Device, dtype: str = "float32", operands: str | None = None) -> Prediction:
    """The prediction for a device.

    Parameters
    ----------
    dtype
        dtype of the arithmetic.
    operands
        dtype of the operands of matrix products, where it is not that of the arithmetic.
    """
    rate = device.rate(dtype) * 1e9
    matrix = device.matrix.get(operands or dtype)
    plain = {k: n for k, n in w.operations.items() if k != "matmul" or matrix is None}
    times = {ARITHMETIC: sum(n * device.slots[k] for k, n in plain.items()) / rate}
    if matrix is not None:
        times[MATRIX] = w.operations["matmul"] / (matrix * 1e9)
    for name, (own, taken) in device.own.items():
        times[name] = sum(w.operations[k] * n for k, n in taken.items()) / (own * 1e9)
    times[MEMORY] = memory_bytes(w, device) / (device.dram * 1e9)
    times[CACHE] = (w.read + w.written + _read_again(w, device)) / (device.cache * 1e9)
    return Prediction(device.name, times, device.start_us * 1e-6)


def memory_bytes(w: Work, device: Device) -> float:
    """Bytes of a call that come from memory or go there."""
    from_cache = w.read <= device.cache_size / 2
    return w.read + w.written + (0.0 if from_cache else _read_again(w, device))


def _read_again(w: Work, device: Device) -> float:
    """Bytes that sweeps after the first read, where a row does not stay on chip."""
    return 0.0 if w.row <= device.chip / 2 else w.read * (w.sweeps - 1)


def ridge(device: Device, dtype: str = "float32", operands: str | None = None) -> float:
    """Flop per byte of memory from which on the multiply-adds of a device take longer than its memory; parameters as
    for `predict`."""
    peak = device.matrix.get(operands or dtype, device.rate(dtype))
    return 2 * peak / device.dram


def duration(seconds: float) -> str:
    """A time in words."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError

"""What a device raises besides ``InputError``."""

from __future__ import annotations


class DeviceError(RuntimeError):
    """A kernel found something wrong while it ran. Raised by the next ``synchronize``; the device works on."""


class CaptureError(RuntimeError):
    """Something that cannot be part of a graph happened inside a capture, which ends; the device works on."""

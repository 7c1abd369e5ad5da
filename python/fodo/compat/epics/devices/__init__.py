"""Devices of some record types."""

from __future__ import annotations

from typing import Any

from ..device import Device

__all__ = ["ai", "ao", "bi", "bo"]

_ANALOG = (
    *("VAL", "EGU", "HOPR", "LOPR", "PREC", "NAME", "DESC", "DTYP", "LINR", "RVAL", "ROFF", "EGUF", "EGUL", "AOFF"),
    *("ASLO", "ESLO", "EOFF", "HIHI", "LOLO", "HIGH", "LOW", "HHSV", "LLSV", "HSV", "LSV", "HYST"),
)
_BINARY = ("ZNAM", "ONAM", "RVAL", "VAL", "NAME", "DESC", "DTYP")


class _Record(Device):
    attrs: tuple[str, ...] = ()

    def __init__(self, prefix: str, **kwargs: Any) -> None:
        super().__init__(prefix.removesuffix("."), delim=".", attrs=self.attrs, **kwargs)


class ai(_Record):  # noqa: N801
    """An analog input."""

    attrs = (*_ANALOG, "INP", "SMOO")


class ao(_Record):  # noqa: N801
    """An analog output."""

    attrs = (*_ANALOG, "OUT", "OMSL", "DOL", "OIF", "DRVH", "DRVL", "OROC", "OVAL")


class bi(_Record):  # noqa: N801
    """A binary input."""

    attrs = (*_BINARY, "INP")


class bo(_Record):  # noqa: N801
    """A binary output."""

    attrs = (*_BINARY, "OUT", "DOL", "OMSL", "HIGH")

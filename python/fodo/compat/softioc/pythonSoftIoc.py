"""The class of records, under the name that programs import."""

from .device import ProcessDeviceSupportCore as RecordWrapper

__all__ = ["RecordWrapper"]

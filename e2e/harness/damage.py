"""Damages the files of a stopped server on purpose: flipped bits, a newer format version."""

import os
import struct

CONTROL_FILE = "control"
CONTROL_SLOT_BYTES = 4096
VERSION_AT = 8
CHECKSUM_AT = CONTROL_SLOT_BYTES - 4


def crc32c(data):
    """Returns Castagnoli's CRC. It is computed bit by bit, which is slow and simple."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def files_of(directory):
    """Returns all regular files below a directory."""
    for folder, _, names in os.walk(directory):
        for name in names:
            yield os.path.join(folder, name)


def flip_bit(path, at, bit=3):
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def find(directory, needle, wanted):
    """Returns the first (path, offset) of `needle` in a file whose name `wanted` accepts."""
    for path in sorted(files_of(directory)):
        if wanted(os.path.basename(path)):
            with open(path, "rb") as file:
                at = file.read().find(needle)
            if at >= 0:
                return path, at
    raise AssertionError(f"{needle!r} is in no file of {directory}")


def set_format_version(directory, version):
    """Writes a format version into both slots of the control file, with a valid checksum."""
    path = os.path.join(directory, CONTROL_FILE)
    with open(path, "r+b") as file:
        for slot in range(2):
            file.seek(slot * CONTROL_SLOT_BYTES)
            raw = bytearray(file.read(CONTROL_SLOT_BYTES))
            if len(raw) < CONTROL_SLOT_BYTES or not any(raw):
                continue
            struct.pack_into("<I", raw, VERSION_AT, version)
            struct.pack_into("<I", raw, CHECKSUM_AT, crc32c(raw[:CHECKSUM_AT]))
            file.seek(slot * CONTROL_SLOT_BYTES)
            file.write(raw)

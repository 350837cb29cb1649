"""Runs one statement over the wire, by the simple or the extended protocol, and collects all messages of the
server about it.

The simple protocol asks for text, the extended one for binary results, so that both encodings of every type
are seen. This module does not know the correct answers, or which server it talks to.
"""

import re
import struct
from dataclasses import dataclass, field

from . import wire

COPY_CHUNK_BYTES = 65536


@dataclass
class Outcome:
    """The results of one statement: columns as (name, type OID), rows of raw bytes, command tags, the first
    error."""

    columns: list = None
    rows: list = field(default_factory=list)
    tags: list = field(default_factory=list)
    error: dict = None
    status: str = "I"
    parameters: list = None

    @property
    def sqlstate(self):
        return self.error.get("C", "") if self.error else None

    @property
    def message(self):
        return self.error.get("M", "") if self.error else None


class Session(wire.Connection):
    """A connection whose statements return an Outcome. An error of a statement is part of the Outcome. Only
    the loss of the connection raises an exception."""

    def simple(self, sql, copy_in=None):
        self.send(wire.message(b"Q", wire.cstring(sql)))
        return self._gather(copy_in, b"")

    def extended(self, sql, parameters=(), copy_in=None, binary=True):
        """Returns Parse, Describe and Bind of the unnamed statement. By default its result columns are in
        binary."""
        parse = wire.message(b"P", b"\0" + wire.cstring(sql) + struct.pack("!h", 0))
        describe = wire.message(b"D", b"S\0") if parameters else b""
        run = wire.message(b"D", b"P\0") + wire.message(b"E", b"\0" + struct.pack("!i", 0))
        # A server may ignore a Sync before COPY's data or not, so it is sent after the data.
        sync, copies = wire.message(b"S"), re.match(r"\s*copy\b.*\bfrom\s+stdin\b", sql, re.I | re.S)
        self.send(parse + describe + bind(parameters, binary) + run + (wire.message(b"H") if copies else sync))
        return self._gather(copy_in, sync if copies else b"")

    def _gather(self, copy_in, sync):
        """Reads to ReadyForQuery, and answers a COPY FROM STDIN with `copy_in`. Sends `sync` after the data
        or after the end of the statement."""
        outcome = Outcome()
        while True:
            kind, body = self.receive()
            if kind == b"G":
                self.send(copy_data(copy_in) + sync)
                sync = b""
            elif kind == b"Z":
                outcome.status = body.decode()
                return outcome
            else:
                take(outcome, kind, body)
            if sync and kind in b"CE":
                self.send(sync)
                sync = b""


def bind(parameters, binary):
    body = b"\0\0" + struct.pack("!hh", 0, len(parameters))
    for value in parameters:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value.encode())) + value.encode()
    return wire.message(b"B", body + (struct.pack("!hh", 1, 1) if binary else struct.pack("!h", 0)))


def copy_data(lines):
    """Returns the CopyData messages for some lines of text, and CopyDone. If there are no lines, the client
    cancels the COPY."""
    if lines is None:
        return wire.message(b"f", wire.cstring("no data was prepared"))
    raw = "".join(f"{line}\n" for line in lines).encode()
    pieces = [raw[at : at + COPY_CHUNK_BYTES] for at in range(0, len(raw), COPY_CHUNK_BYTES)]
    return b"".join(wire.message(b"d", piece) for piece in pieces) + wire.message(b"c")


def take(outcome, kind, body):
    """Adds one message to the outcome."""
    if kind == b"T":
        outcome.columns = columns(body)
    elif kind == b"t":
        (count,) = struct.unpack("!h", body[:2])
        outcome.parameters = list(struct.unpack(f"!{count}I", body[2:]))
    elif kind == b"D":
        outcome.rows.append(raw_row(body))
    elif kind == b"d":
        outcome.rows.append([body.rstrip(b"\n")])
    elif kind == b"C":
        outcome.tags.append(body.rstrip(b"\0").decode())
    elif kind == b"I":
        outcome.tags.append("(empty query)")
    elif kind == b"E" and outcome.error is None:
        outcome.error = wire.error_fields(body)
        if outcome.error.get("S") == "FATAL":
            raise wire.ConnectionLost(f"{outcome.sqlstate} {outcome.message}")


def columns(body):
    """Returns (name, type OID) of each column of a RowDescription."""
    (count,) = struct.unpack("!h", body[:2])
    at, out = 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        (oid,) = struct.unpack("!I", body[end + 7 : end + 11])
        out.append((body[at:end].decode(), oid))
        at = end + 19
    return out


def raw_row(body):
    (count,) = struct.unpack("!h", body[:2])
    at, row = 2, []
    for _ in range(count):
        (length,) = struct.unpack("!i", body[at : at + 4])
        at += 4
        row.append(None if length < 0 else body[at : at + length])
        at += max(length, 0)
    return row

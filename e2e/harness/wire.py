"""A small client for PostgreSQL's wire protocol, with the standard library only, for tests that must see
every message.

The client speaks protocol 3.0 without TLS, uses text formats only, and proves passwords by SCRAM-SHA-256.
This module does not know which server it talks to.
"""

import socket
import struct

from . import scram


class ServerError(Exception):
    """An ErrorResponse. `fields` maps the one-letter field codes to their texts."""

    def __init__(self, fields):
        self.fields = fields
        self.sqlstate = fields.get("C", "")
        super().__init__(f"{self.sqlstate} {fields.get('M', '')}")


class ConnectionLost(Exception):
    """The server has closed the connection, or cannot be reached."""


def message(kind, body=b""):
    """Returns one message with its length. `kind` is b"" for start-up packets."""
    return kind + struct.pack("!i", len(body) + 4) + body


def cstring(text):
    return text.encode() + b"\0"


class Connection:
    """One session. Not thread-safe."""

    def __init__(self, port, user="postgres", database="postgres", host="127.0.0.1", timeout_s=60, password=None, settings=None):
        self.proof = scram.Client(password) if password is not None else None
        try:
            self.sock = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.parameters = {}
        self.key = None
        self.status = b"I"
        pairs = b"".join(cstring(text) for pair in {"user": user, "database": database, **(settings or {})}.items() for text in pair)
        self.send(message(b"", struct.pack("!i", 196608) + pairs + b"\0"))
        self._until_ready()

    def send(self, raw):
        try:
            self.sock.sendall(raw)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def receive(self):
        """Returns the next message as (kind, body)."""
        header = self._exactly(5)
        (length,) = struct.unpack("!i", header[1:])
        return header[:1], self._exactly(length - 4)

    def _exactly(self, count):
        while len(self.buffer) < count:
            try:
                piece = self.sock.recv(65536)
            except OSError as error:
                raise ConnectionLost(str(error)) from error
            if not piece:
                raise ConnectionLost("the server closed the connection")
            self.buffer += piece
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _until_ready(self):
        """Reads to ReadyForQuery. Returns (rows, tags), and raises the first error."""
        rows, tags, failure = [], [], None
        while True:
            kind, body = self.receive()
            if kind == b"D":
                rows.append(data_row(body))
            elif kind == b"C":
                tags.append(body.rstrip(b"\0").decode())
            elif kind == b"E":
                failure = failure or ServerError(error_fields(body))
                # The server stops, or it is still starting.
                if failure.sqlstate in {"57P01", "57P03"}:
                    raise ConnectionLost(str(failure)) from failure
                if failure.fields.get("S") == "FATAL":
                    raise failure
            elif kind == b"S":
                name, value, _ = body.decode().split("\0")
                self.parameters[name] = value
            elif kind == b"K":
                self.key = struct.unpack("!ii", body)
            elif kind == b"R":
                self._authenticate(body)
            elif kind == b"Z":
                self.status = body
                if failure:
                    raise failure
                return rows, tags

    def _authenticate(self, body):
        (step,) = struct.unpack("!i", body[:4])
        if step != 0 and not self.proof:
            raise ConnectionLost("the server asks for a password")
        if step == 10:
            first = self.proof.first()
            self.send(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
        elif step == 11:
            self.send(message(b"p", self.proof.last(body[4:])))

    def query(self, sql):
        """Runs a text by the simple protocol. Returns all rows of all statements, as lists of text or
        None."""
        self.send(message(b"Q", cstring(sql)))
        return self._until_ready()[0]

    def tags(self, sql):
        """Runs a text by the simple protocol. Returns the command tags."""
        self.send(message(b"Q", cstring(sql)))
        return self._until_ready()[1]

    def scalar(self, sql):
        """Returns the first column of the first row, as text."""
        return self.query(sql)[0][0]

    def execute(self, sql, *parameters):
        """Runs the unnamed statement by the extended protocol, with text parameters."""
        self.send(extended(sql, parameters) + message(b"S"))
        return self._until_ready()[0]

    def close(self):
        try:
            self.sock.sendall(message(b"X"))
        except OSError:
            pass
        self.sock.close()


def extended(sql, parameters):
    """Returns the messages Parse, Bind, Describe and Execute of the unnamed statement, without Sync."""
    bind = b"\0\0" + struct.pack("!hh", 0, len(parameters))
    for value in parameters:
        text = None if value is None else str(value).encode()
        bind += struct.pack("!i", -1) if text is None else struct.pack("!i", len(text)) + text
    bind += struct.pack("!h", 0)
    parse = b"\0" + cstring(sql) + struct.pack("!h", 0)
    return message(b"P", parse) + message(b"B", bind) + message(b"D", b"P\0") + message(b"E", b"\0" + struct.pack("!i", 0))


def data_row(body):
    (count,) = struct.unpack("!h", body[:2])
    at, row = 2, []
    for _ in range(count):
        (length,) = struct.unpack("!i", body[at : at + 4])
        at += 4
        if length < 0:
            row.append(None)
        else:
            row.append(body[at : at + length].decode())
            at += length
    return row


def error_fields(body):
    fields = {}
    for field in body.split(b"\0"):
        if field:
            fields.setdefault(chr(field[0]), field[1:].decode(errors="replace"))
    return fields

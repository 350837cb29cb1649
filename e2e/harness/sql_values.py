"""Makes a few unusual and extreme values of each type: as literals of a statement, as rows, and as parameters
in text and binary.

This module does not know statements or servers.
"""

import datetime
import struct

from .sql_tree import Literal

OIDS = {
    "boolean": 16, "bytea": 17, "bigint": 20, "smallint": 21, "integer": 23, "text": 25, "json": 114, "real": 700, "double precision": 701,
    "character(3)": 1042, "character varying(5)": 1043, "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184, "interval": 1186,
    "numeric": 1700, "numeric(8,2)": 1700, "uuid": 2950, "integer[]": 1007, "text[]": 1009, "numeric[]": 1231, "date[]": 1182, "boolean[]": 1000,
    "bigint[]": 1016, "timestamp[]": 1115, "double precision[]": 1022,
}  # fmt: skip
FLOATS = {700: "!f", 701: "!d"}
ARRAYS = {"integer": "integer[]", "text": "text[]", "numeric": "numeric[]", "date": "date[]", "boolean": "boolean[]", "bigint": "bigint[]"}
ELEMENTS = {array: element for element, array in ARRAYS.items()}
STRINGS = ("text", "character varying(5)", "character(3)")
INTEGERS = ("smallint", "integer", "bigint")
UNORDERED = ("json",)
# The types of columns, and how often each is chosen. Expressions use fewer names for the same types.
COLUMN_TYPES = {
    "integer": 12, "bigint": 4, "smallint": 3, "text": 8, "character varying(5)": 2, "character(3)": 2, "boolean": 5, "double precision": 3,
    "real": 2, "numeric(8,2)": 3, "numeric": 2, "date": 3, "timestamp": 3, "timestamptz": 2, "time": 2, "interval": 2, "uuid": 1, "bytea": 1,
    "json": 1, "integer[]": 2, "text[]": 1,
}  # fmt: skip

COMMON = {
    "boolean": ["true", "false"],
    "smallint": ["0", "1", "2", "3", "-1", "5"],
    "integer": ["0", "1", "2", "3", "-1", "5", "10", "20"],
    "bigint": ["0", "1", "2", "3", "-1", "100"],
    "real": ["0", "1", "1.5", "-2.25", "3"],
    "double precision": ["0", "1", "1.5", "-2.25", "3", "0.5"],
    "numeric": ["0", "1", "1.5", "-2.25", "3", "100.01"],
    "numeric(8,2)": ["0.00", "1.00", "1.50", "-2.25", "3.00"],
    "text": ["a", "b", "ab", "A", "", "abc", "1", "x_y", "a b"],
    "character varying(5)": ["a", "b", "ab", "A", "", "abc", "a "],
    "character(3)": ["a", "b", "ab", "A", "", "abc"],
    "bytea": ["\\x", "\\x00", "\\x61", "\\x6162", "\\xff"],
    "date": ["2024-02-29", "2023-12-31", "2024-01-01", "2000-01-01", "1999-07-04"],
    "time": ["00:00:00", "12:30:00", "23:59:59.5", "01:02:03.000004"],
    "timestamp": ["2024-02-29 12:00:00", "2023-12-31 23:59:59.999999", "2024-01-01 00:00:00", "2000-01-01 18:00:00"],
    "timestamptz": ["2024-07-01 12:00:00+00", "2024-03-10 07:30:00+00", "2023-12-31 23:00:00+00", "2024-11-03 05:30:00+00"],
    "interval": ["1 day", "02:03:04", "1 mon", "-3 days", "1 year 2 mons 3 days 04:05:06.7", "00:00:01.6"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "json": ["{}", "[]", "1", "null", '{"a": 1, "b": [1, 2, {"c": null}]}', '[1, "a", null, true]', '"x"', '{"a": "b", "a": 2}', '{"k":1.50}'],
    "integer[]": ["{}", "{1}", "{1,2,3}", "{NULL,1}", "{3,2,2}"],
    "text[]": ["{}", "{a}", '{a,b,NULL}', '{"a b","",x}'],
    "numeric[]": ["{1.5,2}", "{}"],
    "date[]": ["{2024-01-01}", "{2024-02-29,NULL}"],
    "boolean[]": ["{t,f}", "{NULL}"],
    "bigint[]": ["{1,2}", "{}"],
}  # fmt: skip
EXTREME = {
    "smallint": ["32767", "-32768"],
    "integer": ["2147483647", "-2147483648"],
    "bigint": ["9223372036854775807", "-9223372036854775808"],
    "real": ["NaN", "Infinity", "-Infinity", "1e30"],
    "double precision": ["NaN", "Infinity", "-Infinity", "1e-300", "9007199254740993"],
    "numeric": ["NaN", "Infinity", "-Infinity", "123456789012345678901234567890.123456789", "0.000000000000000001", "-99999999999999999999"],
    "numeric(8,2)": ["999999.99", "-999999.99", "NaN"],
    "text": ["ä", "😀", "Straße", "a%", "a\\b", "'", "2024-01-31", "-1.5", "tRue", " a ", "a\nb", "éa" * 20],
    "character varying(5)": ["äöü", "😀"],
    "character(3)": ["ä", "  a"],
    "bytea": ["\\x00ff00ff", "\\x27"],
    "date": ["infinity", "-infinity", "0001-01-01", "9999-12-31", "0044-03-15 BC"],
    "time": ["24:00:00"],
    "timestamp": ["infinity", "-infinity", "0001-01-01 00:00:00 BC", "9999-12-31 23:59:59.999999"],
    "timestamptz": ["infinity", "-infinity", "1900-01-01 00:00:00+00"],
    "interval": ["178000000 years", "-00:00:00.000001", "1 mon -1 day", "30 days", "24:00:00"],
    "json": ['{"a":"\\u00e4"}', "[[[]]]", '{"":0}', '"\\ud83d\\ude00"', ' {"a" :1 } ', '{"a":"\\ud800"}', '{"a":"\\u0000"}'],
    "integer[]": ["[1:2]={1,2}", "{2147483647}"],
    "text[]": ['{"{}",NULL,"NULL"}', "{ä}"],
}  # fmt: skip


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def text_of(type, value, bare=False):
    """Returns a constant as a statement has it. With `bare`, it has no type if PostgreSQL needs none."""
    if value is None:
        return "NULL" if bare else f"NULL::{type}"
    if type == "boolean":
        return value
    if type == "integer" and -(2**31) < int(value) < 2**31:
        return value if value[0] != "-" else f"({value})"
    if bare and type == "text":
        return quoted(value)
    return f"{quoted(value)}::{type}"


def null(type):
    return Literal(type, None, text_of(type, None))


def plain_value(type):
    value = COMMON[type][1 if len(COMMON[type]) > 1 else 0]
    return Literal(type, value, text_of(type, value))


class Values:
    """Draws random values. `extremes` is the share of extreme values."""

    def __init__(self, chance, extremes=0.03, nulls=0.15):
        self.chance, self.extremes, self.nulls = chance, extremes, nulls

    def value(self, type, null_too=True):
        """Returns the text of a value, or None for NULL."""
        roll = self.chance.random()
        if null_too and roll < self.nulls:
            return None
        if roll > 1 - self.extremes and type in EXTREME:
            return self.chance.choice(EXTREME[type])
        return self.chance.choice(COMMON[type])

    def literal(self, type, null_too=True, fixed=False):
        value = self.value(type, null_too and self.chance.random() < 0.4)
        return Literal(type, value, text_of(type, value, bare=self.chance.random() < 0.06), fixed)


EPOCH = datetime.datetime(2000, 1, 1)
WIDTHS = {21: "!h", 23: "!i", 20: "!q", 700: "!f", 701: "!d"}


def binary(type, value):
    """Returns the binary form of a parameter, or None if the text is sent."""
    oid = OIDS[type]
    try:
        if oid in WIDTHS:
            return struct.pack(WIDTHS[oid], float(value) if oid in FLOATS else int(value))
        if oid == 16:
            return b"\1" if value == "true" else b"\0"
        if oid == 17:
            return bytes.fromhex(value[2:])
        if oid in (25, 1043, 114):
            return value.encode()
        if oid == 2950:
            return bytes.fromhex(value.replace("-", ""))
        if oid == 1082:
            return struct.pack("!i", (datetime.datetime.fromisoformat(value) - EPOCH).days)
        if oid in (1114, 1184):
            moment = datetime.datetime.fromisoformat(value.replace("+00", ""))
            return struct.pack("!q", (moment - EPOCH) // datetime.timedelta(microseconds=1))
        if oid in (1007, 1016):
            return binary_array(23 if oid == 1007 else 20, value)
    except (ValueError, struct.error, OverflowError):
        pass
    return None


def binary_array(element, value):
    items = value.strip("{}").split(",") if value != "{}" else []
    if "[" in value:
        return None
    head = struct.pack("!iiI", 1 if items else 0, int("NULL" in items), element) + (struct.pack("!ii", len(items), 1) if items else b"")
    body = b""
    for item in items:
        raw = b"" if item == "NULL" else struct.pack(WIDTHS[element], int(item))
        body += struct.pack("!i", -1 if item == "NULL" else len(raw)) + raw
    return head + body

"""Compares the answers of two servers, and says how they differ.

Rows are compared as a multiset, and in order where columns decide one. Floating-point numbers may differ in
their last digits. This module does not know which answer is correct, or why an answer is wrong.
"""

import math
import re
import struct
from dataclasses import dataclass

from .sql_values import FLOATS, OIDS

ARRAYS = {oid for type, oid in OIDS.items() if type.endswith("[]")}
TOLERANCES = {"!f": 1e-5, "!d": 1e-12}
"""By how much, relatively, real and double precision may differ: sums depend on the order of the rows in their last digits."""

NO_FAULTS = ("refused", "slow", "refusals", "lenient")
"""Refused by name; over its time; another error where PostgreSQL has one too; an answer where PostgreSQL takes the statement for wrong."""


@dataclass
class Difference:
    """One statement on which Varve and PostgreSQL differ."""

    kind: str
    text: str
    states: tuple = ()
    equal_values: bool = False
    """Rows differ in nothing but how equal values look."""

    def sort(self):
        """Returns a text that differences with the same cause have in common."""
        return self.kind, self.states, message_kind(self.text) if self.kind in ("error", "internal", "refused", "lost", "no error", "refusals", "lenient") else ""

    def is_fault(self):
        return self.kind not in NO_FAULTS


def compare(ours, peer, ordered=(), binary=False):
    """Returns how `ours` differs from `peer`, or None. Each of the two is an Outcome, or a text that says how
    the connection was lost."""
    if isinstance(ours, str):
        return Difference("slow" if "timed out" in ours else "lost", ours)
    if isinstance(peer, str):
        return None
    if ours.sqlstate == "XX000":
        return Difference("internal", f"XX000 {ours.message}")
    if "57014" in (ours.sqlstate, peer.sqlstate):
        return Difference("slow", ours.message or f"PostgreSQL: {peer.message}")
    if ours.sqlstate == "0A000" and peer.sqlstate != "0A000":
        return Difference("refused", ours.message) if not (peer.sqlstate or "").startswith("42") else None
    if ours.sqlstate != peer.sqlstate:
        return errors_differ(ours, peer)
    if peer.error:
        return None
    if ours.columns != peer.columns:
        return Difference("columns", f"{ours.columns} where PostgreSQL has {peer.columns}")
    if ours.parameters != peer.parameters:
        return Difference("parameters", f"types {ours.parameters} where PostgreSQL has {peer.parameters}")
    if not same_rows(ours.rows, peer.rows, peer.columns, ordered, binary):
        text = f"{len(ours.rows)} rows that differ from PostgreSQL's {len(peer.rows)}"
        return Difference("rows", text, equal_values=not binary and equal_values(ours, peer))
    if ours.tags != peer.tags:
        return Difference("tag", f"{ours.tags} where PostgreSQL has {peer.tags}")
    return None


def errors_differ(ours, peer):
    states = ours.sqlstate, peer.sqlstate
    if peer.sqlstate == "0A000":
        return None
    if not ours.error:
        kind = "lenient" if peer.sqlstate.startswith("42") else "no error"
        return Difference(kind, f"an answer where PostgreSQL has {peer.sqlstate} {peer.message}", states)
    if not peer.error:
        return Difference("error", f"{ours.sqlstate} {ours.message}", states)
    kind = "refusals" if peer.sqlstate.startswith("42") else "sqlstate"
    return Difference(kind, f"{ours.sqlstate} {ours.message} where PostgreSQL has {peer.sqlstate} {peer.message}", states)


def same_rows(ours, peer, columns, ordered, binary):
    if ours == peer:
        return True
    if len(ours) != len(peer):
        return False
    if binary and any(oid in ARRAYS for _, oid in columns or []):
        ours, peer = (without_flags(rows, columns) for rows in (ours, peer))
        if ours == peer:
            return True
    forms = [FLOATS.get(oid) for _, oid in columns or []]
    if any(forms):
        ours, peer = (numbered(rows, forms, binary) for rows in (ours, peer))
    tolerances = [TOLERANCES.get(form) for form in forms]
    if not same_multiset(ours, peer, tolerances):
        return False
    # Equal values with different texts, such as 0 and 0.0, may be in any order.
    places = [at - 1 for at in ordered if at <= len(forms) and columns[at - 1][1] not in EQUALS]
    kept = [tolerances[at] for at in places]
    return not places or all(same_row([a[at] for at in places], [b[at] for at in places], kept) for a, b in zip(ours, peer))


def equal_values(ours, peer):
    """Returns whether two outcomes in text differ only in the form of equal values, such as the numerics 0
    and 0.000, or the intervals 1 mon and 30 days."""
    same_types = ours.columns == peer.columns and len(ours.rows) == len(peer.rows)
    return same_types and same_multiset(*(with_equals(each) for each in (ours, peer)), [None] * len(ours.columns))


def with_equals(outcome):
    """Returns the rows with one text for equal numerics and for equal intervals."""
    forms = [EQUALS.get(oid) for _, oid in outcome.columns]
    return [[form(value.decode()) if form and value is not None else value for value, form in zip(row, forms)] for row in outcome.rows]


def least_digits(number):
    return number.rstrip("0").rstrip(".") if "." in number else number


def length(interval):
    """Returns an interval's length in microseconds, with months of 30 days. Intervals are compared by this
    length."""
    length_us = sum(int(count) * DAYS[unit] * 86_400_000_000 for count, unit in re.findall(r"(-?\d+) (year|mon|day)", interval))
    clock = re.search(r"(-?)(\d+):(\d+):(\d+)\.?(\d*)$", interval)
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups()
        clock_us = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(f"{fraction:0<6}")
        length_us += -clock_us if sign else clock_us
    return str(length_us)


DAYS = {"year": 360, "mon": 30, "day": 1}
EQUALS = {OIDS["numeric"]: least_digits, OIDS["interval"]: length}


def without_flags(rows, columns):
    """Returns the rows without the flag of binary arrays that says whether they have NULLs. An array slice of
    PostgreSQL may have this flag and no NULLs."""
    flagless = lambda value: value[:4] + bytes(4) + value[8:]  # noqa: E731
    return [[flagless(value) if oid in ARRAYS and value is not None else value for value, (_, oid) in zip(row, columns)] for row in rows]


def numbered(rows, forms, binary):
    """Returns the rows with floating-point numbers as numbers."""
    return [[number(value, form, binary) if form and value is not None else value for value, form in zip(row, forms)] for row in rows]


def number(value, form, binary):
    if binary:
        return struct.unpack(form, value)[0] if len(value) == struct.calcsize(form) else value
    return float(value)


def same_multiset(ours, peer, tolerances):
    left, right = (sorted(rows, key=sort_key) for rows in (ours, peer))
    return all(same_row(a, b, tolerances) for a, b in zip(left, right))


def sort_key(row):
    """Returns a sort key with floating-point numbers at the end and rounded, so that a last digit does not
    decide the order."""
    return [repr(value) for value in row if not isinstance(value, float)], [f"{value:.9g}" for value in row if isinstance(value, float)]


def same_row(ours, peer, tolerances):
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and same_number(a, b, tolerance))
        for a, b, tolerance in zip(ours, peer, tolerances)
    )


def same_number(a, b, tolerance):
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)


def message_kind(text):
    """Returns a message without its numbers and names, to distinguish kinds of errors."""
    return re.sub(r"[\d.]+", "N", re.sub(r"\"[^\"]*\"|'[^']*'", '"x"', text))[:160]


def shown(outcome, rows_max=6, binary=False):
    """Returns an outcome as a few lines of text."""
    if isinstance(outcome, str):
        return outcome
    if outcome.error:
        return f"{outcome.sqlstate} {outcome.message}"
    rows = [" | ".join("NULL" if value is None else repr(value)[2:-1] for value in row) for row in outcome.rows[:rows_max]]
    more = [f"... {len(outcome.rows)} rows"] if len(outcome.rows) > rows_max else []
    return "; ".join([*outcome.tags, *rows, *more])

"""Compares the rows of a TPC-H query with those of another database."""

from decimal import Decimal, InvalidOperation

DIGITS = Decimal("1e-9")  # for values that the other database computes in double precision


def difference(rows, answer):
    """Returns the difference as a text, or None if there is none. `exact` of the answer is one flag for all
    columns, or a list with one flag for each column."""
    wanted, exact = answer["rows"], answer["exact"]
    if len(rows) != len(wanted):
        return f"{len(rows)} rows, not {len(wanted)}"
    for at, (row, peer) in enumerate(zip(rows, wanted), 1):
        for column, (value, other) in enumerate(zip(row, peer)):
            is_exact = exact if isinstance(exact, bool) else exact[column]
            if not same(value, other, is_exact, strict=exact is True):
                return f"row {at}, column {column + 1}: {value!r}, not {other!r}"
    return None


def same(value, other, is_exact, strict):
    if value is None or other is None:
        return value is other
    if strict or value == other:
        return value == other
    # DuckDB has no char(n) with blanks.
    if value.rstrip(" ") == other.rstrip(" "):
        return True
    try:
        ours, theirs = Decimal(value), Decimal(other)
    except InvalidOperation:
        return False
    return ours == theirs if is_exact else abs(ours - theirs) <= DIGITS * abs(theirs)

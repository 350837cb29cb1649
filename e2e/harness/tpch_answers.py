"""Compares the rows of a TPC-H query with those of a peer."""

from decimal import Decimal, InvalidOperation

DIGITS = Decimal("1e-9")  # of what a peer computes in double precision


def difference(rows, answer):
    """What differs, as a text; None if nothing does. `exact` of the answer is one truth for all columns or one for each."""
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

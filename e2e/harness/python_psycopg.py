"""Runs psycopg 3 against a server: types in both directions, pipelines, COPY, cursors, transactions.
e2e/tools calls this program with the port."""

import datetime
import decimal
import os
import sys
import uuid

import psycopg
from psycopg.rows import dict_row, namedtuple_row

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import steps  # noqa: E402

VALUES = (
    1, True, 2**40, 1.5, decimal.Decimal("12.340"), "text ä", b"\x00\xff", datetime.date(2024, 2, 29), datetime.time(12, 34, 56),
    datetime.datetime(2024, 2, 29, 12, 0, 0, 5), datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc), datetime.timedelta(days=1, seconds=5),
    uuid.UUID(int=7),
)
TYPES = "i int, b boolean, l bigint, f float8, n numeric(10,3), t text, y bytea, d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid"
PLACES = ", ".join(["%s"] * len(VALUES))


def tables(connection):
    """psycopg: tables"""
    connection.execute("DROP TABLE IF EXISTS kinds, numbers")
    connection.execute("CREATE TABLE numbers (id int PRIMARY KEY, v text)")
    connection.commit()
    connection.execute(f"CREATE TABLE kinds ({TYPES})")
    connection.commit()


def values(connection):
    """psycopg: values of every type go in and come back, as text and as binary"""
    for binary in (False, True):
        cursor = connection.cursor(binary=binary)
        cursor.execute("DELETE FROM kinds")
        cursor.execute(f"INSERT INTO kinds VALUES ({PLACES})", VALUES)
        row = cursor.execute("SELECT * FROM kinds").fetchone()
        assert row == VALUES, f"binary {binary}: {row}"
    connection.commit()


def nulls_and_lists(connection):
    """psycopg: NULL, lists, = ANY, json"""
    row = connection.execute("SELECT %s::int, %s::int[], %s::text[]", (None, [1, None, 3], ["a", "b,c", None])).fetchone()
    assert row == (None, [1, None, 3], ["a", "b,c", None]), row
    connection.execute("INSERT INTO numbers VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    rows = connection.execute("SELECT id FROM numbers WHERE id = ANY(%s) ORDER BY id", ([1, 3],)).fetchall()
    assert rows == [(1,), (3,)], rows
    assert connection.execute("SELECT '{\"a\": [1]}'::json").fetchone() == ({"a": [1]},)
    connection.rollback()


def batches(connection):
    """psycopg: executemany, with and without RETURNING"""
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO numbers VALUES (%s, %s)", [(i, f"v{i}") for i in range(1000)])
    assert cursor.rowcount == 1000, cursor.rowcount
    cursor.executemany("UPDATE numbers SET v = %s WHERE id = %s RETURNING id", [("x", 1), ("y", 2)], returning=True)
    found = []
    while True:
        found += cursor.fetchall()
        if not cursor.nextset():
            break
    assert found == [(1,), (2,)], found
    connection.commit()


def pipeline(connection):
    """psycopg: a pipeline, and one with an error in it"""
    with connection.pipeline():
        cursors = [connection.execute("SELECT v FROM numbers WHERE id = %s", (i,)) for i in range(100, 200)]
    assert [cursor.fetchone()[0] for cursor in cursors] == [f"v{i}" for i in range(100, 200)]
    connection.commit()
    try:
        with connection.pipeline() as line:
            connection.execute("INSERT INTO numbers VALUES (5000, 'a')")
            connection.execute("INSERT INTO numbers VALUES (1, 'again')")
            connection.execute("INSERT INTO numbers VALUES (5001, 'b')")
            line.sync()
    except psycopg.errors.UniqueViolation as error:
        assert error.diag.constraint_name == "numbers_pkey", error.diag.constraint_name
    else:
        raise AssertionError("no error")
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM numbers WHERE id >= 5000").fetchone() == (0,)
    connection.commit()


def copy_in(connection):
    """psycopg: COPY FROM STDIN as text, rows and binary"""
    cursor = connection.cursor()
    with cursor.copy("COPY numbers FROM STDIN") as copy:
        copy.write("10001\tten thousand\n10002\t\\N\n")
    with cursor.copy("COPY numbers (id, v) FROM STDIN") as copy:
        for i in range(10003, 11000):
            copy.write_row((i, None if i % 7 == 0 else f"row\t{i}\n"))
    with cursor.copy("COPY numbers FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["int4", "text"])
        for i in range(11000, 11010):
            copy.write_row((i, f"binary {i}"))
    assert cursor.execute("SELECT count(*), max(v) FROM numbers WHERE id >= 11000").fetchone() == (10, "binary 11009")
    assert cursor.execute("SELECT v FROM numbers WHERE id = 10004").fetchone() == ("row\t10004\n",)
    connection.commit()


def copy_out(connection):
    """psycopg: COPY TO STDOUT as text, rows and binary"""
    cursor = connection.cursor()
    with cursor.copy("COPY (SELECT id, v FROM numbers WHERE id < 3 ORDER BY id) TO STDOUT") as copy:
        assert b"".join(copy) == b"0\tv0\n1\tx\n2\ty\n"
    with cursor.copy("COPY (SELECT id, v FROM numbers WHERE id > 10000 ORDER BY id LIMIT 2) TO STDOUT") as copy:
        copy.set_types(["int4", "text"])
        assert list(copy.rows()) == [(10001, "ten thousand"), (10002, None)]
    with cursor.copy("COPY (SELECT id, v FROM numbers WHERE id < 2 ORDER BY id) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["int4", "text"])
        assert list(copy.rows()) == [(0, "v0"), (1, "x")]
    connection.commit()


def copy_fails(connection):
    """psycopg: a COPY that fails leaves the connection usable"""
    try:
        with connection.cursor().copy("COPY numbers FROM STDIN") as copy:
            copy.write("x\ty\n")
    except psycopg.errors.InvalidTextRepresentation:
        connection.rollback()
    else:
        raise AssertionError("no error")
    assert connection.execute("SELECT 1").fetchone() == (1,)
    connection.commit()


def server_cursor(connection):
    """psycopg: server-side cursors: fetch, scroll, iterate, WITH HOLD"""
    with connection.cursor(name="walking", scrollable=True) as cursor:
        cursor.execute("SELECT id FROM numbers WHERE id < 1000 ORDER BY id")
        assert cursor.fetchone() == (0,)
        assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
        cursor.scroll(10)
        assert cursor.fetchone() == (14,)
        cursor.scroll(0, mode="absolute")
        assert len(cursor.fetchall()) == 1000
    with connection.cursor(name="iterated") as cursor:
        cursor.itersize = 100
        cursor.execute("SELECT id FROM numbers WHERE id < %s ORDER BY id", (500,))
        assert sum(row[0] for row in cursor) == 499 * 250
    held = connection.cursor(name="held", withhold=True)
    held.execute("SELECT id FROM numbers ORDER BY id LIMIT 5")
    connection.commit()
    assert held.fetchall() == [(i,) for i in range(5)]
    held.close()
    connection.commit()


def rows_and_names(connection):
    """psycopg: row factories and column descriptions"""
    row = connection.cursor(row_factory=dict_row).execute("SELECT id, v AS named FROM numbers WHERE id = 1").fetchone()
    assert row == {"id": 1, "named": "x"}, row
    row = connection.cursor(row_factory=namedtuple_row).execute("SELECT count(*) AS n FROM numbers").fetchone()
    assert row.n >= 1000
    cursor = connection.execute("SELECT id, v, 1.5::numeric(6,2) AS n FROM numbers LIMIT 0")
    described = [(column.name, column.type_display) for column in cursor.description]
    assert described == [("id", "int4"), ("v", "text"), ("n", "numeric(6,2)")], described
    connection.commit()


def prepared(connection):
    """psycopg: statements that are prepared after five uses, across a changed table"""
    for i in range(12):
        assert connection.execute("SELECT id FROM numbers WHERE id = %s", (i,)).fetchone() == (i,)
    connection.execute("SELECT 1", prepare=True)
    connection.commit()
    connection.execute("ALTER TABLE numbers ADD COLUMN w int")
    connection.commit()
    assert connection.execute("SELECT id FROM numbers WHERE id = %s", (3,)).fetchone() == (3,)
    connection.commit()


def transactions(connection):
    """psycopg: nested transactions, isolation levels, read only"""
    with connection.transaction():
        connection.execute("INSERT INTO numbers (id) VALUES (20000)")
        try:
            with connection.transaction():
                connection.execute("INSERT INTO numbers (id) VALUES (20000)")
        except psycopg.errors.UniqueViolation:
            pass
    assert connection.execute("SELECT count(*) FROM numbers WHERE id = 20000").fetchone() == (1,)
    connection.commit()
    for level in (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE, None):
        connection.isolation_level = level
        connection.execute("SELECT count(*) FROM numbers")
        connection.commit()
    connection.read_only = True
    try:
        connection.execute("DELETE FROM numbers")
    except psycopg.errors.ReadOnlySqlTransaction:
        connection.rollback()
    else:
        raise AssertionError("no error")
    connection.read_only = None


def main():
    with psycopg.connect(f"host=127.0.0.1 port={sys.argv[1]} user=postgres dbname=postgres") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.commit()
        steps.run(
            [tables, values, nulls_and_lists, batches, pipeline, copy_in, copy_out, copy_fails, server_cursor, rows_and_names, prepared, transactions],
            Guarded(connection),
        )


class Guarded:
    """A connection that starts each step outside of a failed transaction, so that one failure costs one step."""

    def __init__(self, connection):
        object.__setattr__(self, "_connection", connection)

    def __getattr__(self, name):
        connection = self._connection
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR and name != "rollback":
            connection.rollback()
        return getattr(connection, name)

    def __setattr__(self, name, value):
        setattr(self._connection, name, value)


if __name__ == "__main__":
    main()

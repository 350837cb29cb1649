"""The building blocks of isolation cases: a statement that may have to wait, an error that must come, the
value of a row."""

import threading

from . import wire

BLOCKED_S = 0.3
READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED"
REPEATABLE_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ"
SERIALIZABLE = "BEGIN ISOLATION LEVEL SERIALIZABLE"


class Pending:
    """A statement that runs in the background, because it may have to wait."""

    def __init__(self, session, sql):
        self.rows = self.error = None
        self.sql = sql
        self.thread = threading.Thread(target=self._run, args=(session, sql), daemon=True)
        self.thread.start()

    def _run(self, session, sql):
        try:
            self.rows = session.query(sql)
        except (wire.ServerError, wire.ConnectionLost) as error:
            self.error = error

    def waits(self):
        self.thread.join(BLOCKED_S)
        assert self.thread.is_alive(), f"{self.sql!r} did not wait: {self.rows or self.error}"
        return self

    def result(self):
        self.thread.join(20)
        assert not self.thread.is_alive(), f"{self.sql!r} hangs"
        if self.error:
            raise self.error
        return self.rows

    def fails(self, sqlstate):
        try:
            rows = self.result()
        except wire.ServerError as error:
            assert error.sqlstate == sqlstate, f"{self.sql!r}: {error}, not {sqlstate}"
            return str(error)
        raise AssertionError(f"{self.sql!r} gave {rows}, not {sqlstate}")


def fails(session, sql, sqlstate):
    return Pending(session, sql).fails(sqlstate)


def value(session, row=1):
    return int(session.scalar(f"SELECT v FROM t WHERE id = {row}"))

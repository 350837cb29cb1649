"""Cases for tables whose transactions are serial in a partition (decision 0117): which statements wait, which
rows they see, and what is refused.

Each case gets three sessions and the table t (id, v) with the rows (1, 10) and (2, 20). PostgreSQL's tables do not pass them.
"""

from . import wire
from .isolation_steps import READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, Pending, fails, value

LEVELS = [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE]


def a_reader_waits_for_a_writer(a, b, _c):
    for step, level in enumerate(LEVELS, 1):
        a.query("BEGIN")
        a.query("UPDATE t SET v = v + 1 WHERE id = 1")
        b.query(level)
        waiting = Pending(b, "SELECT v FROM t WHERE id = 1").waits()
        a.query("COMMIT")
        assert waiting.result() == [[str(10 + step)]]
        b.query("COMMIT")


def a_writer_waits_for_a_reader(a, b, _c):
    for step, level in enumerate(LEVELS, 1):
        a.query(level)
        before = value(a)
        waiting = Pending(b, "UPDATE t SET v = v + 1 WHERE id = 1").waits()
        assert value(a) == before
        a.query("COMMIT")
        waiting.result()
        assert value(a) == 10 + step


def no_change_is_lost_at_any_level(a, b, _c):
    """A change that waited sees the change before it, at each isolation level."""
    for level in LEVELS:
        a.query(level)
        b.query(level)
        a.query("UPDATE t SET v = v + 1 WHERE id = 1")
        waiting = Pending(b, "UPDATE t SET v = v + 1 WHERE id = 1").waits()
        a.query("COMMIT")
        waiting.result()
        b.query("COMMIT")
    assert value(a) == 16


def no_level_allows_write_skew(a, b, _c):
    for level in LEVELS:
        a.query("UPDATE t SET v = 10 * id")
        a.query(level)
        b.query(level)
        assert a.scalar("SELECT sum(v) FROM t") == "30"
        waiting = Pending(b, "SELECT sum(v) FROM t").waits()
        a.query("UPDATE t SET v = 0 WHERE id = 1")
        a.query("COMMIT")
        assert waiting.result() == [["20"]]
        b.query("COMMIT")


def no_level_has_phantoms(a, b, _c):
    for step, level in enumerate(LEVELS):
        a.query(level)
        assert a.scalar("SELECT count(*) FROM t") == str(2 + step)
        waiting = Pending(b, f"INSERT INTO t VALUES ({10 + step}, 0)").waits()
        assert a.scalar("SELECT count(*) FROM t") == str(2 + step)
        a.query("COMMIT")
        waiting.result()


def a_rollback_lets_the_next_one_go_on(a, b, c):
    a.query("BEGIN; UPDATE t SET v = 99")
    first = Pending(b, "UPDATE t SET v = v + 1 WHERE id = 1").waits()
    second = Pending(c, "SELECT v FROM t WHERE id = 1").waits()
    a.query("ROLLBACK")
    first.result()
    assert second.result() == [["11"]], "the queue has the order of arrival"


def partitions_of_two_engines_deadlock_once(a, b, _c):
    """Two partitions, locked in opposite orders: the second table is of another engine."""
    a.query("DROP TABLE IF EXISTS other")
    mine = a.scalar("SELECT amname FROM pg_class c JOIN pg_am m ON m.oid = c.relam WHERE c.relname = 't'")
    a.query(f"CREATE TABLE other (id int PRIMARY KEY, v int) USING {'inplace' if mine != 'inplace' else 'log'}")
    a.query("INSERT INTO other VALUES (1, 1)")
    a.query("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1")
    b.query("BEGIN; UPDATE other SET v = v + 1")
    first = Pending(a, "SELECT v FROM other").waits()
    second = Pending(b, "SELECT v FROM t WHERE id = 1")
    first.thread.join(20)
    second.thread.join(20)
    errors = [each.error for each in (first, second) if each.error]
    assert len(errors) == 1 and errors[0].sqlstate == "40P01", f"{errors}"
    victim, survivor = (a, b) if first.error else (b, a)
    victim.query("ROLLBACK")
    survivor.query("COMMIT")
    assert [value(a), int(a.scalar("SELECT v FROM other"))] in ([11, 1], [10, 2])
    a.query("DROP TABLE other")
    return str(errors[0])


def pages_and_a_partition_are_not_changed_together(a, b, _c):
    a.query("DROP TABLE IF EXISTS pages; CREATE TABLE pages (id int PRIMARY KEY) USING heap")
    a.query("BEGIN; INSERT INTO pages VALUES (1)")
    said = fails(a, "UPDATE t SET v = 0", "0A000")
    a.query("ROLLBACK")
    a.query("BEGIN; UPDATE t SET v = 0")
    fails(a, "INSERT INTO pages VALUES (1)", "0A000")
    a.query("ROLLBACK")
    assert value(b) == 10 and b.query("SELECT * FROM pages") == []
    a.query("BEGIN; UPDATE t SET v = 11 WHERE id = 1 AND NOT EXISTS (SELECT FROM pages); COMMIT")
    assert value(b) == 11
    a.query("DROP TABLE pages")
    return said


def a_savepoint_keeps_the_lock(a, b, _c):
    a.query("BEGIN; SAVEPOINT s; UPDATE t SET v = 0 WHERE id = 1; ROLLBACK TO s")
    waiting = Pending(b, "SELECT v FROM t WHERE id = 1").waits()
    a.query("UPDATE t SET v = v + 5 WHERE id = 1; COMMIT")
    assert waiting.result() == [["15"]]


def a_failed_transaction_gives_its_lock_back(a, b, _c):
    a.query("BEGIN; UPDATE t SET v = 0 WHERE id = 1")
    fails(a, "INSERT INTO t VALUES (1, 1)", "23505")
    waiting = Pending(b, "SELECT v FROM t WHERE id = 1")
    a.query("ROLLBACK")
    assert waiting.result() == [["10"]]


def nowait_does_not_wait(a, b, _c):
    a.query("BEGIN; SELECT v FROM t")
    try:
        b.query("BEGIN; LOCK TABLE t NOWAIT")
    except wire.ServerError as error:
        assert error.sqlstate == "55P03", error
    b.query("ROLLBACK")
    said = fails(b, "SELECT v FROM t WHERE id = 2 FOR UPDATE NOWAIT", "55P03")
    assert b.query("SELECT v FROM t FOR UPDATE SKIP LOCKED") == []
    a.query("COMMIT")
    assert b.query("SELECT v FROM t ORDER BY id FOR UPDATE SKIP LOCKED") == [["10"], ["20"]]
    return said


CASES = [
    a_reader_waits_for_a_writer,
    a_writer_waits_for_a_reader,
    no_change_is_lost_at_any_level,
    no_level_allows_write_skew,
    no_level_has_phantoms,
    a_rollback_lets_the_next_one_go_on,
    partitions_of_two_engines_deadlock_once,
    pages_and_a_partition_are_not_changed_together,
    a_savepoint_keeps_the_lock,
    a_failed_transaction_gives_its_lock_back,
    nowait_does_not_wait,
]
SHARED = [
    "read_committed_loses_no_increment",
    "read_committed_looks_again_after_a_wait",
    "a_locked_table_is_waited_for",
    "lock_time_out",
    "unique_key_waits_for_its_first_writer",
    "savepoints",
    "failed_statement_changes_nothing",
    "cancel_ends_a_wait",
    "lost_connection_frees_its_locks",
    "ddl_is_transactional",
]
"""Cases of e2e/isolation that these tables pass as they are."""

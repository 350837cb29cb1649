"""Runs psql, pgbench and sysbench on tables of the memory-oriented engines, for e2e/tools.

pgbench and sysbench have no option for the engine, so this module makes their tables. `pgbench -i` fills
pgbench's tables.
"""

import re
import subprocess

from . import engines, load

SCHEMA = """\
CREATE TABLE things (id serial PRIMARY KEY, code varchar(10) NOT NULL UNIQUE, n numeric(8,2) DEFAULT 1.5, at timestamptz, CONSTRAINT n_positive CHECK (n > 0)){using};
CREATE INDEX things_at ON things (at, id);
CREATE TABLE rows_alone (a int, b text NOT NULL){using};
INSERT INTO things (code, n) SELECT 'c' || g, g FROM generate_series(1, 500) g;
COMMENT ON COLUMN things.code IS 'what it is called';
"""
# Only the name of the access method and sizes differ in psql's output.
SHOWN = ["\\d things", "\\d+ things", "\\d+ rows_alone", "\\dt", "\\dt+", "\\di", "\\di+", "\\d things_at", "\\d+ things_pkey", "\\dp things"]
PGBENCH = """\
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)) USING {engine};
CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84)) USING {engine} WITH (fillfactor = 100);
CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84)) USING {engine} WITH (fillfactor = 100);
CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88)) USING {engine} WITH (fillfactor = 100);
"""
SYSBENCH = """\
CREATE TABLE sbtest{n} (id serial PRIMARY KEY, k int NOT NULL DEFAULT 0, c char(120) NOT NULL DEFAULT '', pad char(60) NOT NULL DEFAULT '') USING {engine};
CREATE INDEX k_{n} ON sbtest{n} (k);
INSERT INTO sbtest{n} (k, c, pad) SELECT g * 7919 % 2000 + 1, repeat(md5(g::text), 3), md5(g::text) FROM generate_series(1, 2000) g;
"""
BALANCES = """\
SELECT (SELECT sum(bbalance) FROM pgbench_branches) = coalesce(sum(delta), 0), (SELECT sum(tbalance) FROM pgbench_tellers) = coalesce(sum(delta), 0),
    (SELECT sum(abalance) FROM pgbench_accounts) = coalesce(sum(delta), 0), count(*) FROM pgbench_history;
"""


def shown(target, command, engine=None):
    """Returns psql's output, with the name of PostgreSQL's access method and without sizes."""
    done = subprocess.run(["psql", "-X", "-q", "-c", command], capture_output=True, text=True, env=load.environment(target), timeout=60)
    assert not re.search(r"ERROR|FATAL|WARNING", done.stderr), done.stderr
    text = re.sub(r"\d+ (bytes|kB|MB)", "SIZE", done.stdout + done.stderr)
    text = re.sub(r"\| varve\b", "| postgres", text)
    if engine:
        text = re.sub(rf"\b{engine}\b", "heap", text)
    # The width of a column follows its longest value.
    return re.sub(r"-+", "-", re.sub(r" +", " ", text))


def same_as_peer(target, peer, command, engine):
    ours, theirs = shown(target, command, engine), shown(peer, command)
    assert ours == theirs, f"it shows\n{ours}\nand on PostgreSQL\n{theirs}"


def run_psql(tally, target, peer, engine):
    for each, using in ((target, f" USING {engine}"), (peer, "")):
        tally.step(f"{engine}: psql: a schema on {each.name}", lambda each=each, using=using: load.psql(each, SCHEMA.format(using=using)) and None)
    for command in SHOWN:
        tally.step(f"{engine}: psql: {command}", lambda command=command: same_as_peer(target, peer, command, engine))
    for each in (target, peer):
        tally.step(f"{engine}: psql: drop on {each.name}", lambda each=each: load.psql(each, "DROP TABLE things, rows_alone;") and None)


def run_pgbench(tally, target, engine, options):
    def initialise():
        load.psql(target, PGBENCH.format(engine=engine))
        said = load.pgbench_init(target, 1, "gvp")
        assert "error" not in said.lower(), said

    if tally.step(f"{engine}: pgbench -i -I gvp", initialise):
        for script, protocol in (("tpcb-like", "prepared"), ("tpcb-like", "simple"), ("simple-update", "extended"), ("select-only", "prepared")):
            run = lambda script=script, protocol=protocol: f"{load.pgbench(target, script, options.seconds, 4, protocol)['tps']:.0f} tps"  # noqa: E731
            tally.step(f"{engine}: pgbench -b {script} -M {protocol}", run)
            if (script, protocol) == ("tpcb-like", "prepared"):
                # The next run empties the history.
                tally.step(f"{engine}: pgbench: the balances agree", lambda: balances(target))
    tally.step(f"{engine}: pgbench: drop", lambda: load.psql(target, "DROP TABLE pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers;") and None)


def balances(target):
    *agree, count = load.psql(target, BALANCES, "-At").strip().split("|")
    assert agree == ["t", "t", "t"], f"branches, tellers, accounts beside the history: {agree}"
    return f"{count} rows of history"


def run_sysbench(tally, target, engine, options):
    def prepare():
        for n in (1, 2):
            load.psql(target, SYSBENCH.format(n=n, engine=engine))

    if tally.step(f"{engine}: sysbench: its tables", prepare):
        for script in ("oltp_point_select", "oltp_read_write", "oltp_read_only", "oltp_insert"):
            tally.step(f"{engine}: sysbench {script}", lambda script=script: sysbench(target, script, options))
        tally.step(f"{engine}: sysbench: the tables are of the engine", lambda: of_engine(target, engine))
    tally.step(f"{engine}: sysbench cleanup", lambda: load.sysbench_cleanup(target, 2) and None)


def sysbench(target, script, options):
    result = load.sysbench(target, script, options.seconds, 2, 2000, 4)
    return f"{result['tps']:.0f} tps, {result['errors']} restarts"


def of_engine(target, engine):
    sql = "SELECT DISTINCT amname FROM pg_class c JOIN pg_am m ON m.oid = c.relam WHERE relname ~ '^sbtest'  AND relkind = 'r';"
    found = load.psql(target, sql, "-At").split()
    assert found == [engine], f"{found}"


def run_databases(tally, target, engine):
    """Drops a database with its tables, and checks that the server ends cleanly. This is the last step of the
    group."""

    def fill():
        load.psql(target, "CREATE DATABASE apart;")
        load.psql(target, f"CREATE TABLE t (id int PRIMARY KEY, v int) USING {engine}; CREATE INDEX ON t (v); INSERT INTO t VALUES (1, 1);", "-d", "apart")

    tally.step(f"{engine}: a database with a table", fill)
    tally.step(f"{engine}: the database is dropped", lambda: load.psql(target, "DROP DATABASE apart WITH (FORCE);") and None)


def run(tally, target, peer, options):
    for engine in engines.chosen(options.engine or "all"):
        run_psql(tally, target, peer, engine)
        run_pgbench(tally, target, engine, options)
        run_sysbench(tally, target, engine, options)
        run_databases(tally, target, engine)

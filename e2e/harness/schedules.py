"""Runs random transactions of several sessions on tables whose transactions are serial, and judges them with
PostgreSQL.

A schedule says which session sends its next statement. If a session waits, it sends its following statements
as soon as it can. PostgreSQL then runs the same transactions one after the other. There must be an order of
them in which each statement has the same answer, and the tables have the same rows at the end. Transactions
with an error of concurrency (`EXPECTED`) must have changed nothing: PostgreSQL does not run them.

This module does not know which locks a server takes.
"""

import itertools
import queue
import threading
import time
from dataclasses import dataclass, field

from . import engines, wire

WAITS_S = 0.05
HANGS_S = 30
ORDERS_MAX = 720
TABLES = ("s0", "s1")
SESSIONS = 3
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
EXPECTED = {"40P01": "deadlock", "40001": "serialization", "0A000": "refused by the engine"}


@dataclass
class Txn:
    """A transaction: its statements with their answers, and the time of the first answer."""

    statements: list
    answers: list = field(default_factory=list)
    began: float = 0.0
    failure: str = ""


class Maker:
    """Makes random transactions."""

    def __init__(self, chance):
        self.chance = chance

    def setup(self):
        for name in TABLES:
            yield f"DROP TABLE IF EXISTS {name}"
            yield f"CREATE TABLE {name} (id int PRIMARY KEY, v int, k text UNIQUE)"
            yield f"INSERT INTO {name} VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, NULL), (5, 50, NULL)"

    def txn(self):
        body = [self.statement() for _ in range(self.chance.choice([1, 1, 2, 3, 4]))]
        if len(body) == 1 and self.chance.random() < 0.7:
            return Txn(body)
        for _ in range(self.chance.choice([0, 0, 1])):
            at = self.chance.randrange(len(body))
            body[at:at] = ["SAVEPOINT s"]
            body.append(self.chance.choice(["ROLLBACK TO s", "RELEASE s"]))
        end = self.chance.choice(["COMMIT"] * 4 + ["ROLLBACK"])
        return Txn([f"BEGIN ISOLATION LEVEL {self.chance.choice(LEVELS)}", *body, end])

    def statement(self):
        table, key, other = self.chance.choice(TABLES), self.chance.randrange(1, 7), self.chance.randrange(1, 7)
        lock = self.chance.choice(["", "", " FOR UPDATE", " FOR SHARE"])
        word = self.chance.choice("abcdef")
        return self.chance.choice([
            f"SELECT * FROM {table} ORDER BY id",
            f"SELECT v, k FROM {table} WHERE id = {key}{lock}",
            f"SELECT id FROM {table} WHERE k = '{word}'{lock}",
            f"SELECT count(*), sum(v) FROM {table} WHERE v > {key * 10}",
            f"SELECT count(*), max(x.v + y.v) FROM {TABLES[0]} x JOIN {TABLES[1]} y USING (id)",
            f"INSERT INTO {table} VALUES ({key}, {other}, NULL) ON CONFLICT DO NOTHING",
            f"INSERT INTO {table} VALUES ({key}, {other}, '{word}') ON CONFLICT (id) DO UPDATE SET v = {table}.v + excluded.v RETURNING *",
            f"INSERT INTO {table} SELECT id + 10, v, NULL FROM {table} WHERE id = {key} RETURNING id, v",
            f"UPDATE {table} SET v = v + {other} WHERE id = {key} RETURNING *",
            f"UPDATE {table} SET v = v * 2 WHERE v < {other * 10}",
            f"UPDATE {table} SET v = (SELECT sum(v) FROM {self.chance.choice(TABLES)}) WHERE id = {key}",
            f"UPDATE {table} SET k = '{word}' WHERE id = {key}",
            f"DELETE FROM {table} WHERE id = {key} RETURNING v",
        ])  # fmt: skip


class Player(threading.Thread):
    """A session that runs its transactions. It sends one statement each time the schedule permits it."""

    def __init__(self, connection, txns):
        super().__init__(daemon=True)
        self.connection, self.txns = connection, txns
        self.leave, self.failure = queue.Queue(), None
        self.sent = self.done = 0

    def statements(self):
        return sum(len(txn.statements) for txn in self.txns)

    def run(self):
        try:
            for txn in self.txns:
                self.play(txn)
        except Exception as error:  # noqa: BLE001  the schedule reports it
            self.failure = error

    def play(self, txn):
        for number, sql in enumerate(txn.statements):
            self.leave.get()
            if txn.failure:
                # The rest of a transaction that the server has ended.
                answer = answer_to(self.connection, "ROLLBACK") if number + 1 == len(txn.statements) else None
            else:
                answer = answer_to(self.connection, sql)
                txn.answers.append(answer)
                if not sql.startswith(("BEGIN", "SAVEPOINT")):
                    txn.began = txn.began or time.monotonic()
                if isinstance(answer, str) and answer[:5] in EXPECTED:
                    txn.failure = answer
            self.done += 1

    def send_one(self):
        self.sent += 1
        self.leave.put(None)

    def is_idle(self):
        return self.done == self.sent or not self.is_alive()


def answer_to(connection, sql):
    """Returns the rows, or the SQLSTATE and the message of an error."""
    try:
        return connection.query(sql)
    except wire.ServerError as error:
        return f"{error.sqlstate} {error.fields.get('M', '')}"


def comparable(answer):
    """Returns an answer in the form in which it is compared: of an error, only the SQLSTATE."""
    return answer[:5] if isinstance(answer, str) else answer


def play(target, maker, chance):
    """Plays a random schedule. Returns the transactions of each session and the rows at the end."""
    admin = target.connect(timeout_s=HANGS_S)
    for sql in maker.setup():
        admin.query(target.adapt(sql))
    players = [Player(target.connect(timeout_s=HANGS_S), [maker.txn() for _ in range(chance.choice([1, 2, 3]))]) for _ in range(SESSIONS)]
    turns = [player for player in players for _ in range(player.statements())]
    chance.shuffle(turns)
    for player in players:
        player.start()
    for player in turns:
        player.send_one()
        until = time.monotonic() + WAITS_S
        while not player.is_idle() and time.monotonic() < until:
            time.sleep(0.001)
    for player in players:
        player.join(HANGS_S)
        assert not player.is_alive(), f"a session hangs: {[txn.statements for txn in player.txns]}"
        if player.failure:
            raise player.failure
        player.connection.close()
    rows = [admin.query(f"SELECT * FROM {name} ORDER BY id") for name in TABLES]
    admin.close()
    return [player.txns for player in players], rows


def orders(sessions):
    """Returns orders of all transactions: first the order of their answers, then other orders that keep the
    order of each session."""
    kept = [[txn for txn in txns if not txn.failure] for txns in sessions]
    numbers = [number for number, txns in enumerate(kept) for _ in txns]
    yield sorted((txn for txns in kept for txn in txns), key=lambda txn: txn.began)
    seen = set()
    for order in itertools.permutations(numbers):
        if order not in seen:
            seen.add(order)
            left = [iter(txns) for txns in kept]
            yield [next(left[number]) for number in order]


def explains(peer, maker, order, rows):
    """Returns whether PostgreSQL gives the same answers if the transactions run in this order."""
    for sql in maker.setup():
        peer.query(sql)
    for txn in order:
        for sql, answer in zip(txn.statements, txn.answers):
            if comparable(answer_to(peer, sql)) != comparable(answer):
                if peer.status != b"I":
                    peer.query("ROLLBACK")
                return False
    return [peer.query(f"SELECT * FROM {name} ORDER BY id") for name in TABLES] == rows


def unknown_refusals(sessions):
    failures = [txn.failure for txns in sessions for txn in txns]
    return [text for text in failures if text[:5] == "0A000" and not engines.refusal("0A000", text[6:])]


def judge(target, peer, chance):
    """Plays one schedule on both servers. Returns None if an order of the transactions explains the answers,
    or else a text that shows the schedule. Also returns the numbers of errors by SQLSTATE."""
    maker = Maker(chance)
    sessions, rows = play(target, maker, chance)
    failures = [txn.failure[:5] for txns in sessions for txn in txns if txn.failure]
    refused = unknown_refusals(sessions)
    if refused:
        return f"refused without a known reason: {refused}", failures
    tried = itertools.islice(orders(sessions), ORDERS_MAX)
    if any(explains(peer, maker, order, rows) for order in tried):
        return None, failures
    shown = [
        f"session {number}: {sql}; -- {answer}"
        for number, txns in enumerate(sessions)
        for txn in txns
        for sql, answer in itertools.zip_longest(txn.statements, txn.answers)
    ]
    return "\n    ".join(["no order of the transactions explains the answers", *shown, f"rows at the end: {rows}"]), failures

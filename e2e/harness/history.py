"""The actions and the reads of the clients in a list-append run, and the text form that planted histories
use.

A list has each value at most once and grows only at its end. So one read of the list shows the order of all
earlier writes (Kingsbury and Alvaro, "Elle", 2020).

Text form, one history:

    == a name
    final: yes                      the last transaction's reads are of everything that is left (default no)
    rc: G1a                         what must be found at READ COMMITTED, `none` for nothing
    rr: G1a internal                and at REPEATABLE READ
    ser: G2                         and at SERIALIZABLE (default: what rr says)
    A ok @1-4: a x 1; r x 1,2; u y 3   a = append, r = read (`-` is the empty list), u = append that was rolled back to a savepoint
    B fail: a x 2                   ok, fail (known not to have happened) or info (the answer to its commit was lost)

Times are those of the first request and of the last answer. Without times, real-time order is not checked.
"""

from dataclasses import dataclass, field

OK, FAIL, INFO = "ok", "fail", "info"
APPEND, READ, UNDONE = "a", "r", "u"


@dataclass
class Op:
    """One step. `value` is the appended value, or the tuple that was read. `at` is the time at which the step
    was sent."""

    kind: str
    key: str
    value: object
    at: float | None = None


@dataclass
class Txn:
    name: str
    status: str = INFO
    ops: list = field(default_factory=list)
    began: float | None = None
    ended: float | None = None

    def __str__(self):
        return f"{self.name} {self.status}: " + "; ".join(show(op) for op in self.ops)


def show(op):
    value = ",".join(map(str, op.value)) or "-" if op.kind == READ else op.value
    return f"{op.kind} {op.key} {value}"


def parse_op(text, at):
    kind, key, value = text.split()
    if kind == READ:
        return Op(kind, key, () if value == "-" else tuple(int(item) for item in value.split(",")), at)
    return Op(kind, key, int(value), at)


def parse_txn(line):
    head, _, body = line.partition(":")
    name, status, *times = head.split()
    began, ended = map(float, times[0][1:].split("-")) if times else (None, None)
    ops = [parse_op(text, began) for text in body.split(";") if text.strip()]
    return Txn(name, status, ops, began, ended)


@dataclass
class Planted:
    """A history that is known to be correct or to have anomalies."""

    name: str
    expected: dict
    txns: list
    final: bool = False


def parse_planted(text):
    """Returns each history of a file."""
    found = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("=="):
            found.append(Planted(line[2:].strip(), {}, []))
        elif line.startswith("final:"):
            found[-1].final = line.split()[1] == "yes"
        elif line.startswith(("rc:", "rr:", "ser:")):
            level, _, names = line.partition(":")
            found[-1].expected[level] = set(names.split()) - {"none"}
            if level == "rr":
                found[-1].expected.setdefault("ser", found[-1].expected["rr"])
        elif line:
            found[-1].txns.append(parse_txn(line))
    return found

"""Finds anomalies that an isolation level forbids in a history of list appends (Elle's method).

The longest list of a key has the order of the key's versions. From this order follow the dependencies between
committed transactions: ww (b appended right after a), wr (b read a version that a made), and rw (a read the
version that b's append replaced). A cycle of dependencies is an anomaly. Its name follows from the kinds of
its edges (Adya 1999; for snapshot isolation also Cerone and Gotsman 2016):

- G0 only ww; G1c ww and wr; G-single one rw among others; G-nonadjacent several rw, no two in a row. Two rw in a row are write skew,
  which snapshot isolation allows: G2, named at SERIALIZABLE only, and only where there is no cycle of another name.

Some anomalies need no cycle: a value that is twice in a list, that no transaction appended, or that is lost;
a transaction of which only a part is there; lists of one key that are not prefixes of each other; a read of a
value that was rolled back (G1a) or was not the last append of its transaction (G1b); a transaction that does
not see its own changes; a read that misses a commit that was acknowledged before the read was sent; two
appends that are based on the same version (lost update).

This module does not know where a history comes from.
"""

import bisect
from collections import defaultdict, deque

from .history import APPEND, FAIL, INFO, OK, READ, UNDONE

READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = "rc", "rr", "ser"
SNAPSHOT_ONLY = {"lost-update", "G-single", "G-nonadjacent", "non-repeatable"}
WW, WR, RW = "ww", "wr", "rw"
# The most edges of one knot from which a shortest cycle is searched.
TRIED_MAX = 50


def check(txns, level, final=False):
    """Returns a dict from the name of an anomaly to sentences about its occurrences. With `final`, the last
    transaction read all lists at the end."""
    checker = Checker(txns, level, final)
    checker.run()
    return dict(checker.found)


def lost_updates(txns):
    """Returns the number of versions on which more than one append is based. At READ COMMITTED, this number
    shows whether the clients used the same keys at the same time."""
    checker = Checker(txns, REPEATABLE_READ, False)
    checker.committed = [txn for txn in txns if txn.status == OK]
    checker.check_lost_updates()
    return len(checker.found["lost-update"])


def write_skews(txns):
    """Returns the number of knots (groups of transactions with a cycle of dependencies) that only
    SERIALIZABLE forbids. In a history at REPEATABLE READ, this number shows whether the clients used the same
    keys at the same time."""
    return len(check(txns, SERIALIZABLE).get("G2", ()))


class Checker:
    def __init__(self, txns, level, final):
        self.txns, self.level, self.final = txns, level, final
        self.found = defaultdict(list)
        self.appender = {}  # (key, value) -> (txn, op kind, is the txn's last append to the key)
        self.reads = defaultdict(list)  # key -> (txn, list that other transactions can have left)
        self.order = {}  # key -> longest list
        self.committed = []

    def report(self, name, sentence):
        if self.level != READ_COMMITTED or name not in SNAPSHOT_ONLY:
            self.found[name].append(sentence)

    def run(self):
        self.index_appends()
        for txn in self.txns:
            self.check_txn(txn)
        self.order_versions()
        self.decide_commits()
        self.check_reads()
        self.check_lost()
        self.check_stale()
        self.check_lost_updates()
        self.check_cycles()

    def index_appends(self):
        for txn in self.txns:
            last = {}
            for op in txn.ops:
                if op.kind == READ:
                    continue
                assert (op.key, op.value) not in self.appender, f"the history appends {op.value} to {op.key} twice"
                self.appender[op.key, op.value] = (txn, op.kind, True)
                if op.kind == APPEND:
                    if op.key in last:
                        self.appender[op.key, last[op.key]] = (txn, APPEND, False)
                    last[op.key] = op.value

    def check_txn(self, txn):
        """Checks a transaction by itself. Stores for each read which values of other transactions it
        shows."""
        own, others = defaultdict(tuple), {}
        for op in txn.ops:
            if op.kind == APPEND:
                own[op.key] += (op.value,)
            elif op.kind == READ:
                others[op.key] = self.check_own(txn, op, own[op.key], others.get(op.key))

    def check_own(self, txn, op, mine, before):
        cut = len(op.value) - len(mine)
        if mine and (cut < 0 or op.value[cut:] != mine):
            self.report("internal", f"{txn} reads {op.key} without its own appends at the end")
            cut = next((at for at, value in enumerate(op.value) if value in mine), len(op.value))
        seen = op.value[:cut]
        undone = [value for value in seen if self.appender.get((op.key, value), (None,))[0] is txn]
        if undone:
            self.report("internal", f"{txn} reads {undone} of its own in {op.key}, which it has not appended or has undone")
        if before is not None and seen != before:
            if seen[: len(before)] != before:
                self.report("internal", f"{txn} reads {op.key} again and older or other")
            else:
                self.report("non-repeatable", f"{txn} reads {op.key} again and newer")
        self.reads[op.key].append((txn, op, seen))
        return seen

    def order_versions(self):
        for key, reads in self.reads.items():
            longest = max((seen for _, _, seen in reads), key=len, default=())
            whole = [op.value for txn, op, _ in reads if txn.status == OK]
            self.order[key] = max([longest, *whole], key=len)
        for key, reads in self.reads.items():
            order = self.order[key]
            for txn, op, seen in reads:
                for version in {seen, op.value} if txn.status == OK else {seen}:
                    if order[: len(version)] != version:
                        self.report("incompatible-order", f"{key} is {list(order)}, but {txn} saw {list(version)}")
            if len(set(order)) != len(order):
                twice = sorted({value for value in order if order.count(value) > 1})
                self.report("duplicate", f"{key} holds {twice} more than once")

    def decide_commits(self):
        """Decides which transactions are committed: those that were acknowledged, and those with an unknown
        result of which a read saw a value."""
        entries = (self.appender.get((key, value)) for key, order in self.order.items() for value in order)
        seen = {id(entry[0]) for entry in entries if entry and entry[1] == APPEND}
        self.committed = [txn for txn in self.txns if txn.status == OK or (txn.status == INFO and id(txn) in seen)]

    def check_reads(self):
        """Checks each value that was read: a transaction wrote it, did not roll it back, and all its other
        values are there, too."""
        told = set()
        for key, reads in self.reads.items():
            for txn, op, seen in reads:
                for value in seen:
                    if (key, value) not in told:
                        self.check_value(key, value, txn, told)
                if seen and op.value:
                    self.check_intermediate(key, seen[-1], txn)

    def check_value(self, key, value, reader, told):
        writer, kind, _ = self.appender.get((key, value), (None, None, None))
        if writer is None:
            self.report("never-written", f"{reader} reads {value} in {key}, which nobody appended")
        elif writer is not reader and (writer.status == FAIL or kind == UNDONE):
            self.report("G1a", f"{reader} reads {value} in {key}, which was rolled back: {writer}")
        else:
            return
        told.add((key, value))

    def check_intermediate(self, key, value, reader):
        writer, kind, is_last = self.appender.get((key, value), (reader, None, True))
        if writer is not reader and kind == APPEND and not is_last:
            self.report("G1b", f"{reader} reads {key} up to {value}, in the middle of {writer}")

    def check_lost(self):
        if not self.final:
            return
        left = {op.key: set(op.value) for op in self.txns[-1].ops}
        for txn in self.txns[:-1]:
            appends = [op for op in txn.ops if op.kind == APPEND]
            missing = [op for op in appends if op.value not in left.get(op.key, ())]
            if missing and txn.status == OK:
                self.report("lost-append", f"acknowledged, but {[f'{op.value} in {op.key}' for op in missing]} is gone: {txn}")
            elif missing and txn.status == INFO and len(missing) < len(appends):
                self.report("half-there", f"{[f'{op.value} in {op.key}' for op in missing]} is missing, the rest is there: {txn}")

    def check_stale(self):
        """Checks that a read shows all commits that were acknowledged before its snapshot was requested."""
        promised = self.acknowledged()
        for key, reads in self.reads.items():
            times, values = promised.get(key, ((), ()))
            places = {value: at for at, value in enumerate(self.order[key])}
            needed, highest = [], -1
            for value in values:
                highest = max(highest, places.get(value, -1))
                needed.append(highest)
            for txn, op, seen in reads:
                since = self.snapshot_asked_at(txn, op)
                count = bisect.bisect_left(times, since) if since is not None else 0
                if count and needed[count - 1] >= len(seen):
                    self.report("stale-read", f"{key} held {self.order[key][needed[count - 1]]} before {txn} asked, who does not see it")

    def snapshot_asked_at(self, txn, op):
        return op.at if self.level == READ_COMMITTED or not txn.ops else txn.ops[0].at

    def acknowledged(self):
        """Returns {key: (times, values)} of acknowledged appends, by time."""
        appends = defaultdict(list)
        for txn in self.txns:
            if txn.status == OK and txn.ended is not None:
                for op in txn.ops:
                    if op.kind == APPEND:
                        appends[op.key].append((txn.ended, op.value))
        return {key: tuple(zip(*sorted(pairs))) for key, pairs in appends.items()}

    def check_lost_updates(self):
        based = defaultdict(list)
        for txn in self.committed:
            base = {}
            for op in txn.ops:
                if op.kind == READ:
                    base.setdefault(op.key, op.value)
                elif op.kind == APPEND and base.get(op.key) is not None:
                    based[op.key, base[op.key]].append(txn)
                    base[op.key] = None
                elif op.kind == APPEND:
                    base[op.key] = None
        for (key, version), txns in based.items():
            if len(txns) > 1:
                self.report("lost-update", f"based on the same {key} = {list(version)}: " + " and ".join(map(str, txns)))

    def check_cycles(self):
        graph = Graph(self.committed, self.order, self.appender)
        for name, cycle in graph.anomalies(self.level):
            self.report(name, graph.tell(cycle))


class Graph:
    """Dependencies between committed transactions."""

    def __init__(self, committed, order, appender):
        self.names = [str(txn) for txn in committed]
        self.edges = [defaultdict(set) for _ in committed]  # from -> to -> kinds
        number = {id(txn): at for at, txn in enumerate(committed)}
        self.writers, self.places = {}, {}
        for key, versions in order.items():
            entries = (appender.get((key, value), (None, None)) for value in versions)
            self.writers[key] = [number.get(id(entry[0])) if entry[1] == APPEND else None for entry in entries]
            self.places[key] = {value: at for at, value in enumerate(versions)}
            for one, other in zip(self.writers[key], self.writers[key][1:]):
                self.add(one, other, WW)
        for reader, txn in enumerate(committed):
            for op in txn.ops:
                if op.kind == READ:
                    self.add_read(reader, op)

    def add(self, one, other, kind):
        if one is not None and other is not None and one != other:
            self.edges[one][other].add(kind)

    def add_read(self, reader, op):
        writers = self.writers[op.key]
        at = self.places[op.key].get(op.value[-1]) if op.value else -1
        if at is None:
            return
        if at >= 0:
            self.add(writers[at], reader, WR)
        if at + 1 < len(writers):
            self.add(reader, writers[at + 1], RW)

    def anomalies(self, level):
        """Returns (name, cycle) for one short cycle of each kind in each knot of the graph."""
        named = set()
        for name, cycle in self.named_cycles(level):
            named.update(cycle)
            yield name, cycle
        if level == SERIALIZABLE:
            for knot in knots(len(self.edges), lambda node: self.steps(node, {WW, WR, RW})):
                if not knot & named:
                    yield "G2", self.any_cycle(knot)

    def named_cycles(self, level):
        yield from self.dependencies("G0", {WW}, WW)
        yield from self.dependencies("G1c", {WW, WR}, WR)
        if level != READ_COMMITTED:
            for knot in knots(len(self.edges), self.starts):
                yield from self.snapshot_cycle(knot)

    def any_cycle(self, knot):
        closing = list(self.edges_of(knot, RW))[:TRIED_MAX]
        best = shortest(self.path(other, one, {WW, WR, RW}) for one, other in closing if other in knot) or sorted(knot)
        return [best[-1], *best]

    def dependencies(self, name, kinds, must):
        for knot in knots(len(self.edges), lambda node: self.steps(node, kinds)):
            closing = self.edges_of(knot, must)
            ways = (self.path(other, one, kinds) for one, other in closing if other in knot)
            best = shortest(ways)
            if best:
                yield name, [best[-1], *best]

    def snapshot_cycle(self, knot):
        closing = list(self.edges_of(knot, RW))
        tried = closing[:TRIED_MAX]
        best = shortest(self.path(other, one, {WW, WR}) for one, other in tried)
        if best:
            yield "G-single", [best[-1], *best]
            return
        best = shortest(self.path_nonadjacent(other, one) for one, other in tried)
        if best or len(closing) > TRIED_MAX:  # otherwise a circle without rw, which has been named
            best = best or sorted(knot)
            yield "G-nonadjacent", [best[-1], *best]

    def starts(self, node):
        """Returns the transactions whose snapshot is not before that of `node`. A path leads to them over ww
        or wr, or over rw and then one of these. Under snapshot isolation such paths form no circle."""
        yield from self.steps(node, {WW, WR})
        for middle in self.steps(node, {RW}):
            yield from self.steps(middle, {WW, WR})

    def edges_of(self, knot, kind):
        return ((one, other) for one in sorted(knot) for other in self.steps(one, {kind}))

    def path(self, start, goal, kinds):
        """Returns a shortest path over edges of these kinds, or None."""
        return search(start, lambda node: node == goal, lambda node: self.steps(node, kinds), lambda node: node)

    def path_nonadjacent(self, start, goal):
        """Does the same as `path` over all edges, but with no two rw edges in a row, and with no rw edge at
        the beginning or at the end. An rw edge then closes the cycle. States are (node, whether an rw edge
        led to it)."""

        def steps(state):
            node, by_rw = state
            yield from ((other, False) for other in self.steps(node, {WW, WR}))
            if not by_rw:
                yield from ((other, True) for other in self.steps(node, {RW}))

        return search((start, True), lambda state: state == (goal, False), steps, lambda state: state[0])

    def steps(self, node, kinds):
        return (other for other, has in self.edges[node].items() if has & kinds)

    def tell(self, cycle):
        pairs = zip(cycle, cycle[1:])
        arrows = [f"{self.names[one]}  -{'/'.join(sorted(self.edges[one][other])) or '...'}->  " for one, other in pairs]
        return "".join(arrows) + self.names[cycle[-1]]


def knots(count, steps):
    """Returns the strongly connected components that have a cycle (Tarjan, without recursion)."""
    index, low, stack, on_stack, looped, found = {}, {}, [], set(), set(), []
    for root in range(count):
        work = [] if root in index else [(root, None)]
        while work:
            node, rest = work.pop()
            if rest is None:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
                rest = iter(list(steps(node)))
            for other in rest:
                if other == node:
                    looped.add(node)
                elif other not in index:
                    work += [(node, rest), (other, None)]
                    break
                elif other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                if low[node] == index[node]:
                    knot = set()
                    while node not in knot:
                        knot.add(stack.pop())
                    on_stack -= knot
                    found += [knot] if len(knot) > 1 or knot & looped else []
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
    return found


def shortest(ways):
    return min((way for way in ways if way), key=len, default=None)


def search(start, is_goal, steps, name):
    """Searches breadth first. Returns the names along a shortest path, with both ends."""
    came, queue = {start: None}, deque([start])
    while queue:
        state = queue.popleft()
        if is_goal(state):
            way = []
            while state is not None:
                way.append(name(state))
                state = came[state]
            return way[::-1]
        for following in steps(state):
            if following not in came:
                came[following] = state
                queue.append(following)
    return None

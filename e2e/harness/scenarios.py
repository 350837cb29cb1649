"""Plays scenario files, which have sessions, named steps, and orders of steps. The output says of each step
whether it waits, what it returns, and which other steps can continue after it.

The format is that of PostgreSQL's isolation tests, so these tests can be played, too:

    setup { SQL }
    teardown { SQL }
    session NAME
    setup { SQL }
    step NAME { SQL }
    permutation STEP STEP(AWAITED, ...) ...

If the name of a step is followed by other steps in parentheses, the step is complete only when these steps
are complete, too. If the file has no permutation, all steps are played in the order of the file.
"""

import itertools
import re
import threading
import time

from . import wire

# The time after which a step without an answer counts as waiting. A step that can continue answers within
# this time.
WAITS_S = 0.3
SETTLED_S = 0.15
HANGS_S = 30

TOKEN = re.compile(r'\s+|#[^\n]*|"([^"]*)"|\{([^}]*)\}|([(),*])|([^\s"{}(),*#]+)')


class Scenario:
    """The contents of a scenario file."""

    def __init__(self, text):
        self.setup, self.teardown, self.sessions, self.permutations = [], [], {}, []
        self.steps = {}
        tokens = [kind for kind in map(_token, TOKEN.finditer(text)) if kind]
        at, current = 0, None
        while at < len(tokens):
            _, word = tokens[at]
            at += 1
            if word in ("setup", "teardown"):
                _, sql = tokens[at]
                at += 1
                (getattr(self, word) if current is None else self.sessions[current][word]).append(sql)
            elif word == "session":
                _, current = tokens[at]
                at += 1
                self.sessions[current] = {"setup": [], "teardown": []}
            elif word == "step":
                (_, name), (_, sql) = tokens[at : at + 2]
                at += 2
                self.steps[name] = (current, sql.strip())
            elif word == "permutation":
                order, at = _order(tokens, at)
                self.permutations.append(order)
            else:
                raise ValueError(f"{word!r} begins nothing")
        if not self.permutations:
            self.permutations = [[(name, []) for name in order] for order in self._interleavings()]

    def _interleavings(self):
        of_session = {}
        for name, (session, _) in self.steps.items():
            of_session.setdefault(session, []).append(name)
        numbers = [number for number, names in enumerate(of_session.values()) for _ in names]
        for order in sorted(set(itertools.permutations(numbers))):
            left = [iter(names) for names in of_session.values()]
            yield [next(left[number]) for number in order]


def _token(match):
    quoted, body, mark, word = match.groups()
    if quoted is not None or word is not None:
        return ("word", quoted if quoted is not None else word)
    if body is not None:
        return ("body", body)
    return ("mark", mark) if mark else None


def _order(tokens, at):
    """Returns the steps of a permutation. Each step has the list of steps that must be complete before it is
    complete."""
    order = []
    while at < len(tokens) and not (tokens[at][0] == "word" and tokens[at][1] in ("permutation", "session", "step", "setup", "teardown")):
        kind, word = tokens[at]
        at += 1
        if kind == "word":
            order.append((word, []))
            continue
        while tokens[at] != ("mark", ")"):  # after the opening parenthesis
            if tokens[at][0] == "word":
                order[-1][1].append(tokens[at][1])
            at += 1
        at += 1
    return order, at


class _Running:
    """A step that has been sent."""

    def __init__(self, name, connection, sql):
        self.name, self.outcome = name, None
        self.thread = threading.Thread(target=self._run, args=(connection, sql), daemon=True)
        self.thread.start()

    def _run(self, connection, sql):
        try:
            self.outcome = shown(connection.query(sql))
        except wire.ServerError as error:
            self.outcome = f"ERROR {error}"
        except wire.ConnectionLost as error:
            self.outcome = f"LOST {error}"

    def is_over(self, within_s):
        self.thread.join(within_s)
        return not self.thread.is_alive()


def shown(rows):
    return " ".join("|".join("" if field is None else field for field in row) for row in rows)


def play(target, scenario, order):
    """Returns the output lines of one permutation."""
    admin = target.connect(timeout_s=HANGS_S)
    for sql in scenario.setup:
        admin.query(sql)
    sessions = {name: target.connect(timeout_s=HANGS_S) for name in scenario.sessions}
    try:
        return _play(sessions, scenario, order)
    finally:
        for session in sessions.values():
            session.close()
        _retry(lambda: [admin.query(sql) for sql in scenario.teardown])
        admin.close()


def _retry(call):
    """Tries again, because a session that was just closed may still hold its locks."""
    for _ in range(100):
        try:
            return call()
        except wire.ServerError:
            time.sleep(0.05)
    return call()


def _play(sessions, scenario, order):
    lines, waiting = [], {}
    for name, parts in scenario.sessions.items():
        for sql in parts["setup"]:
            sessions[name].query(sql)
    for step, awaited in order:
        session, sql = scenario.steps[step]
        if session in waiting:
            _let_end(waiting, session, lines)
        running = _Running(step, sessions[session], sql)
        if running.is_over(WAITS_S):
            lines.append(f"{step}: {running.outcome}")
        else:
            lines.append(f"{step} waits")
            waiting[session] = running
        for name in awaited:
            if name in scenario.steps:
                _let_end(waiting, scenario.steps[name][0], lines)
        _collect(waiting, lines)
    for session in list(waiting):
        _let_end(waiting, session, lines)
    return lines


def _let_end(waiting, session, lines):
    running = waiting.get(session)
    if running:
        assert running.is_over(HANGS_S), f"step {running.name} hangs after {lines}"
        _collect(waiting, lines)


def _collect(waiting, lines):
    """Records the complete steps in the order of their names, because several steps may become complete at
    once."""
    until = time.monotonic() + SETTLED_S
    over = []
    while waiting and time.monotonic() < until:
        for session, running in list(waiting.items()):
            if running.is_over(0):
                del waiting[session]
                over.append(f"{running.name} goes on: {running.outcome}")
                until = time.monotonic() + SETTLED_S
        time.sleep(0.005)
    lines.extend(sorted(over))

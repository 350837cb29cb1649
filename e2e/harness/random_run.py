"""Runs random statements from one seed: makes data sets, sends the statements to both servers, counts, and
reports differences.

This module does not know how statements are made or answers compared.
"""

import collections
import random
import re
import time

from . import answers, engines, server, sql_checks
from .judge import Case, Judge, Side, chosen_forms, root_of
from .sql_changes import Changes
from .sql_datasets import Datasets
from .sql_expressions import Expressions
from .sql_queries import Queries
from .sql_tree import FROM, literals, walk
from .sql_values import Values

STATEMENTS_PER_DATASET = 120
CONSTANT_KEYS = re.compile(r"(rollup|cube|grouping sets) \((?![^;]*?\b[a-z]+\d+\.)")
"""Grouping sets behind which no column is named: PostgreSQL 15 takes a constant key for the same in all sets, also a column of a subquery
that it finds to be constant."""
MODES = {"simple": 40, "extended": 20, "text": 18, "binary": 22}
"""By the simple protocol; by the extended one without parameters; with parameters in text, in binary."""


class QuickPostgres(server.Postgres):
    """PostgreSQL without durability, because only its answers count. Its locale orders by code points, as
    Varve does."""

    locale = "C.UTF-8"

    def settings(self):
        quick = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off", "jit": "off"}
        return {**super().settings(), **quick}


class QuickVarve(server.Varve):
    """Varve with the settings of a run."""


JOIN_METHODS = ["block_nested_loops", "sort_merge", "grace_hash", "hybrid_hash"]
WORK_MEM_LEAST = "64kB"
"""The least work_mem. Joins keep to it; sorts and groupings take at least 4 MB."""


def forced(options):
    """Returns the settings of Varve's session."""
    given = {"join_method": options.join_method, "work_mem": options.work_mem, "smart_scan": "on" if options.smart else None}
    return [(name, value) for name, value in given.items() if value]


class Run:
    """A run with the statements of one seed."""

    def __init__(self, ours, peer, options):
        self.options = options
        self.chance = random.Random(options.seed)
        self.mixing = random.Random(f"{options.seed} mixed")
        schema = "q" if ours is not peer else "q_ours"
        self.judge = Judge(Side(ours, schema, engine=ours.engine, settings=forced(options), layout=options.layout), Side(peer))
        self.features = collections.Counter()
        self.counts = collections.Counter()
        self.refused = collections.Counter()
        self.refused_example = {}
        self.unsettled = collections.Counter()
        self.kinds = collections.Counter()
        self.mixed = collections.Counter()
        self.faults = []
        self.began = time.monotonic()

    def over(self):
        if self.counts["statements"] >= self.options.queries or len(self.faults) >= self.options.faults:
            return True
        return bool(self.options.seconds) and time.monotonic() - self.began > self.options.seconds

    def go(self):
        number = 0
        while not self.over():
            number += 1
            self.one_dataset(random.Random(f"{self.options.seed} {number}"))

    def one_dataset(self, chance):
        values = Values(chance)
        dataset = Datasets(chance, values).make()
        if self.options.mixed:
            self.judge.ours.layout = self.mixing.choice([None, "mixed", "pax", "pax"])
        x = Expressions(chance, values, set())
        queries = Queries(chance, x, [table.relation() for table in dataset.tables])
        Datasets(chance, values).add_views(dataset, queries)
        for sql, outcome in self.judge.load(dataset):
            self.note_refused_setup(sql, outcome)
        if not dataset.tables:
            return
        self.counts["data sets"] += 1
        queries.relations = dataset.relations()
        changes = Changes(chance, x, queries, dataset.tables)
        for number in range(STATEMENTS_PER_DATASET):
            if self.over():
                return
            if self.options.smart and number % 5 == 0:
                # A smart device reads only pages of the data file.
                self.judge.ours.run("checkpoint")
            x.features = set()
            x.risky = chance.random() < 0.15
            if chance.random() < 0.06:
                self.check_itself(chance, queries, x)
                continue
            case = self.case(chance, queries, changes)
            case.features = x.features
            if case.forms and not case.changed and chance.random() < 0.5:
                x.note("executed again")
                sent = [each for each in literals(case.root) if id(each) in case.forms]
                case.again = [{id(each): values.value(each.type) for each in sent} for _ in range(chance.choice([1, 2]))]
            self.one_case(case)

    def case(self, chance, queries, changes):
        mode = chance.choices(list(MODES), list(MODES.values()))[0]
        made, changed = [], []
        if chance.random() < 0.2:
            for _ in range(chance.choice([1, 1, 1, 2, 3])):
                change, name = changes.statement()
                made.append(change)
                changed.append(name)
            if chance.random() < 0.3:
                made.append(queries.statement(1))
        else:
            made.append(queries.statement(chance.choice([1, 1, 2, 2, 3])))
        root = root_of([each.node for each in made])
        case = Case(root, [each.ordered for each in made], mode, sorted(set(changed)))
        if self.options.mixed:
            case.settings = self.settings_of_case()
        if mode in ("text", "binary"):
            case.forms = chosen_forms(root, chance, 0.5)
        return case

    def settings_of_case(self):
        """Returns settings for the join method and for the memory: only one of them, both, or none."""
        method = self.mixing.choice([*JOIN_METHODS, *JOIN_METHODS, "auto"])
        given = {"join_method": method, "work_mem": WORK_MEM_LEAST}
        kept = self.mixing.choice([["join_method", "work_mem"], ["join_method", "work_mem"], ["join_method"], ["work_mem"], []])
        settings = {name: given[name] for name in kept}
        layout = self.judge.ours.layout
        self.mixed[f"on {layout} tables" if layout else "on row tables"] += 1
        self.mixed[f"by {settings.get('join_method', 'auto')}"] += 1
        self.mixed[f"with work_mem {settings.get('work_mem', 'as it is')}"] += 1
        self.mixed["with all at once"] += bool(layout) and len(settings) == 2
        return settings

    def one_case(self, case):
        found, (ours, _) = self.judge.run(case)
        self.counts["statements"] += len(case.statements())
        if found is None:
            self.note_alike(case, ours)
            return
        self.judged(case, found)

    def note_alike(self, case, outcome):
        if outcome.error:
            self.counts["errors alike"] += 1
            self.counts[f"  {outcome.sqlstate}"] += 1
            return
        self.features.update(case.features)
        if outcome.rows:
            self.counts["with rows"] += 1

    def judged(self, case, found):
        if found.kind == "refused" and self.judge.refused_by_engine(case, found):
            found = answers.Difference("refused by the engine", found.text)
        if not found.is_fault():
            kind = f"{found.kind}: {answers.message_kind(found.text)}"
            self.refused[kind] += 1
            self.refused_example.setdefault(kind, case.text())
            return
        if found.kind not in ("lost", "internal"):
            if not self.judge.settled(case) or self.order_of_errors(case, found):
                self.unsettled[found.kind] += 1
                return
        self.kinds[found.kind] += 1
        if found.kind != "rows":
            self.kinds[found.sort()] += 1
            if self.kinds[found.sort()] > 1:
                return
        self.fault(case, found)

    def order_of_errors(self, case, found):
        return found.kind in ("no error", "sqlstate") and self.judge.planned_error(case)

    def fault(self, case, found):
        """Makes the case small, and stores it if no other case is like it."""
        last, script = self.judge.reduce(case, found, self.options.shrink)
        chosen = self.free_choice(last, script)
        if chosen:
            self.unsettled[chosen] += 1
            return
        if evaluated_elsewhere(case, last):
            kind = f"evaluation: {answers.message_kind(last.text)}"
            self.refused[kind] += 1
            self.refused_example.setdefault(kind, script)
            return
        shape = (last.kind, shape_of(case.text()))
        self.counts["faults found"] += 1
        if shape not in [each[0] for each in self.faults]:
            self.faults.append((shape, last, script, self.counts["statements"]))
            print(f"--- {last.kind} at statement {self.counts['statements']} of seed {self.options.seed}: {last.text}\n{script}\n", flush=True)

    def free_choice(self, found, script):
        """Returns why PostgreSQL is free in its choice of rows: it chooses by estimates, or against its own
        manual. Returns None if only one answer is correct."""
        # INTERSECT returns the values of the side that the planner estimates to be smaller. Grouping sets
        # return the values of any row of a group.
        if found.kind == "rows" and found.equal_values and re.search(r" intersect |(rollup|cube|grouping sets) \(", script):
            return "equal values"
        if found.kind == "rows" and CONSTANT_KEYS.search(script):
            return "constant keys"
        return None

    def note_refused_setup(self, sql, outcome):
        said = answers.shown(outcome)
        # There are special reasons to refuse views, and PostgreSQL refuses some of them, too.
        unknown = not isinstance(outcome, str) and outcome.sqlstate == "0A000" and not sql.startswith("create view")
        unknown = unknown and self.judge.ours.engine and not engines.refusal("0A000", outcome.message)
        if isinstance(outcome, str) or outcome.sqlstate != "0A000" or unknown:
            self.counts[f"  setup: {answers.message_kind(said)}"] += 1
            if isinstance(outcome, str) or outcome.sqlstate == "XX000" or unknown:
                self.faults.append((("setup", sql), answers.Difference("internal", said), sql, self.counts["statements"]))
                print(f"--- setup: {said}\n{sql}\n", flush=True)
        else:
            kind = f"refused: {answers.message_kind(outcome.message)}"
            self.refused[kind] += 1
            self.refused_example.setdefault(kind, sql)

    def check_itself(self, chance, queries, x):
        """Runs TLP or NoREC on Varve alone."""
        pair = sql_checks.pair(chance, queries, x)
        self.counts["checks without a peer"] += 1
        whole, parts = (self.judge.ours.run(text) for text in pair)
        for outcome, text in zip((whole, parts), pair):
            if isinstance(outcome, str) or outcome.sqlstate == "XX000":
                self.broken_check(answers.Difference("internal", answers.shown(outcome)), [text])
                return
        if whole.error or parts.error:
            return
        if not answers.same_rows(whole.rows, parts.rows, whole.columns, (), False) and self.is_partition(pair):
            self.broken_check(answers.Difference("partial", f"{answers.shown(whole)} against {answers.shown(parts)}"), pair)

    def is_partition(self, pair):
        """Returns whether PostgreSQL gives the same answer for both queries. An aggregate in a subquery may
        belong to the outer query, and then makes a single row of it."""
        whole, parts = (self.judge.peer.run(text) for text in pair)
        known = not isinstance(whole, str) and not isinstance(parts, str) and not whole.error and not parts.error
        return not known or answers.same_rows(whole.rows, parts.rows, whole.columns, (), False)

    def broken_check(self, found, texts):
        self.kinds[found.kind] += 1
        script = "\n".join(f"{each};" for each in [*self.judge.dataset.statements(), *texts])
        self.faults.append(((found.kind, shape_of(texts[0])), found, script, self.counts["statements"]))
        print(f"--- {found.kind} at statement {self.counts['statements']} of seed {self.options.seed}: {found.text}\n{script}\n", flush=True)

    def report(self, seconds):
        sums = collections.Counter()
        for kind, count in self.refused.items():
            sums[kind.partition(":")[0]] += count
        if self.options.features:
            for feature, count in sorted(self.features.items(), key=lambda each: -each[1]):
                print(f"    {count:7} {feature}")
            for name, count in sorted(self.counts.items()):
                print(f"    {count:7} {name}")
        for kind, count in self.refused.most_common():
            print(f"    {count:5} {kind}\n          {self.refused_example[kind][:300]!r}")
        if self.mixed:
            print("    cases " + ", ".join(f"{name}: {count}" for name, count in sorted(self.mixed.items())))
        print(
            f"e2e/random-queries: {self.counts['statements']} statements over {self.counts['data sets']} data sets in {seconds:.0f} s, "
            f"{self.counts['with rows']} with rows, {self.counts['errors alike']} errors alike, {len(self.features)} features, "
            f"{self.counts['checks without a peer']} checks without a peer; {sums['refused']} refused by name, {sums['slow']} over their time, "
            f"{sums['refusals']} refused with another error, {sums['lenient']} taken where PostgreSQL refuses, "
            f"{sums['evaluation']} computed by one of them only, "
            f"{sum(self.unsettled.values())} where PostgreSQL may choose; {len(self.faults)} faults (seed {self.options.seed})"
        )
        return 1 if self.faults else 0


def evaluated_elsewhere(case, difference):
    """Returns whether an error of data is explained by the order in which a server computes values. If only
    one server has the error, in a statement that reads rows even when it is small, this server computed a
    value that the other one did not need. If both servers have an error, but not the same one, they computed
    in another order, for example the values of a constraint."""
    states = [state for state in difference.states if state]
    classes = ("21", "22", "23") if difference.kind == "sqlstate" else ("21", "22")
    of_data = difference.kind in ("error", "no error", "sqlstate") and all(state[:2] in classes for state in states)
    return of_data and (bool(case.changed) or any(node.kind == FROM for node in walk(case.root)))


def shape_of(text):
    """Returns a statement without its names and constants."""
    return re.sub(r"\s+", " ", re.sub(r"'[^']*'|\b\d[\d.]*\b", "N", re.sub(r"\b([a-z]{1,2})\d+\b", r"\1", text)))

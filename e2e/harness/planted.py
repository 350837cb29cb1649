"""Plants faults in the program. Random statements must find each of them.

Each fault is a call `planted("...")` in crates/sql or crates/query. The environment variable VARVE_PLANTED
switches one fault on, in builds with debug assertions. A difference counts as found only if the same program
without the fault does not have it.
"""

import os
import shutil
import time

from . import answers
from .judge import Side
from .random_run import QuickVarve, Run

NAMES = [
    "query: the last condition of a join is dropped",
    "query: a left join is an inner one",
    "sql: any condition reduces an outer join",
    "query: a comparison with a constant NULL is false",
    "query: a column is read from its neighbour",
    "query: LIMIT takes one row more",
    "query: DISTINCT is lost",
    "query: UNION keeps what is equal",
    "query: NOT IN forgets NULLs",
    "query: an aggregate of nothing has no row",
    "query: FILTER is lost",
    "query: HAVING is lost",
    "query: a frame ends before the row's equals",
    "sql: an upper bound of an index is left out",
    "sql: ON CONFLICT DO UPDATE forgets its WHERE",
]


class PlantedRun(Run):
    """A run that ends at the first difference that the program without the fault does not have."""

    def __init__(self, ours, peer, clean, options):
        super().__init__(ours, peer, options)
        self.clean = Side(clean)
        self.held = None
        self.found = None

    def over(self):
        return self.found is not None or super().over()

    def loaded(self):
        """Returns whether the program without the fault has the current data set."""
        if self.held is not self.judge.dataset:
            self.held = None if self.clean.load(self.judge.dataset.statements()) else self.judge.dataset
        return self.held is not None

    def judged(self, case, found):
        if not found.is_fault() or not self.loaded():
            return
        planted, self.judge.ours = self.judge.ours, self.clean
        try:
            without, _ = self.judge.run(case)
        finally:
            self.judge.ours = planted
        if without is None and (found.kind in ("lost", "internal") or self.judge.settled(case)):
            self.found = (self.counts["statements"], found, case)

    def broken_check(self, found, texts):
        if not self.loaded():
            return
        whole, parts = (self.clean.run(text) for text in texts) if len(texts) == 2 else (None, None)
        if whole and not whole.error and not parts.error and answers.same_rows(whole.rows, parts.rows, whole.columns, (), False):
            self.found = (self.counts["statements"], found, None)


def hunt(peer, base, options):
    """Searches for each planted fault, and prints after how many statements it was found. Returns the exit
    code."""
    missed = []
    clean = QuickVarve(os.path.join(base, "clean"), 64)
    with clean:
        clean.start()
        clean.add_postgres()
        for number, name in enumerate(NAMES):
            began = time.monotonic()
            ours = QuickVarve(os.path.join(base, f"planted-{number}"), 64)
            with ours:
                os.environ["VARVE_PLANTED"] = name
                try:
                    ours.start()
                finally:
                    del os.environ["VARVE_PLANTED"]
                ours.add_postgres()
                run = PlantedRun(ours, peer, clean, options)
                run.go()
            shutil.rmtree(ours.directory, ignore_errors=True)
            seconds = time.monotonic() - began
            if run.found is None:
                missed.append(name)
                print(f"MISSED  {name}: {run.counts['statements']} statements in {seconds:.0f} s", flush=True)
            else:
                count, difference, _ = run.found
                print(f"found   {name}: after {count} statements ({difference.kind}), {seconds:.0f} s", flush=True)
    print(f"e2e/random-queries: {len(NAMES) - len(missed)} of {len(NAMES)} planted faults found (seed {options.seed})")
    return 1 if missed else 0

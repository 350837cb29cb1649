"""Runs named steps, prints one line for each, and remembers which failed."""

from . import load, wire


class Tally:
    """The results of all steps of a script."""

    def __init__(self):
        self.failures = []
        self.count = 0

    def step(self, name, act):
        """Runs `act`, and prints its result after the name. Returns whether the step passed."""
        self.count += 1
        try:
            said = act()
        except (load.LoadFailed, AssertionError, RuntimeError, wire.ServerError, wire.ConnectionLost) as error:
            self.failures.append(name)
            print(f"FAILED  {name}: {error}", flush=True)
            return False
        print(f"ok      {name}{f': {said}' if said else ''}", flush=True)
        return True

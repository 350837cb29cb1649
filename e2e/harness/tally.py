"""Runs named steps, prints one line for each, and remembers which failed."""

from . import load, wire


class Tally:
    """What all steps of a script came to."""

    def __init__(self):
        self.failures = []
        self.count = 0

    def step(self, name, act):
        """Runs `act`; what it returns is printed beside the name. Returns whether it passed."""
        self.count += 1
        try:
            said = act()
        except (load.LoadFailed, AssertionError, RuntimeError, wire.ServerError, wire.ConnectionLost) as error:
            self.failures.append(name)
            print(f"FAILED  {name}: {error}", flush=True)
            return False
        print(f"ok      {name}{f': {said}' if said else ''}", flush=True)
        return True

"""Runs the steps of the programs e2e/harness/python_*: catches the error of each step, prints its result, and
sets the exit code."""

import sys
import traceback


def run(steps, *arguments):
    """Calls each step. Exits with 1 if one failed. The result of a step is printed after ` = `, and is
    compared with PostgreSQL's."""
    failed = 0
    for step in steps:
        try:
            said = step(*arguments)
        except Exception as error:  # noqa: BLE001  any error of any library fails the step
            failed += 1
            place = traceback.extract_tb(error.__traceback__)
            line = next((frame.lineno for frame in reversed(place) if frame.filename == sys.argv[0]), "?")
            print(f"FAILED  {step.__doc__} (line {line}): {type(error).__name__}: {str(error).strip()[:600]}", flush=True)
        else:
            shown = "" if said is None else " = " + str(said).replace("\n", " ")
            print(f"ok      {step.__doc__}{shown}", flush=True)
    sys.exit(1 if failed else 0)

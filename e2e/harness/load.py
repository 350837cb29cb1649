"""Runs pgbench and sysbench against a server and reads their figures.

Raises LoadFailed with the tool's message if the tool reports any error.
"""

import os
import re
import subprocess


class LoadFailed(Exception):
    pass


def environment(server):
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**keep, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}


def psql(server, sql, *options):
    """Runs SQL through psql with ON_ERROR_STOP. Returns the standard output."""
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *options]
    done = subprocess.run(command, input=sql, capture_output=True, text=True, env=environment(server), timeout=600)
    if done.returncode != 0:
        raise LoadFailed(f"psql ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def start_pgbench(server, *options):
    """Starts pgbench. Returns the running process."""
    return subprocess.Popen(
        ["pgbench", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(server)
    )


def finish(process, what, timeout_s):
    """Waits for a tool. Returns its output, or raises an exception with the end of the output."""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        output, _ = process.communicate()
        raise LoadFailed(f"{what} hangs: no end after {timeout_s} s\n{output[-3000:]}") from error
    if process.returncode != 0:
        raise LoadFailed(f"{what} ended with {process.returncode}:\n{output[-3000:]}")
    return output


def pgbench_init(server, scale, steps="dtgvp"):
    return finish(start_pgbench(server, "-i", "-q", "-s", str(scale), "-I", steps), f"pgbench -i -I {steps}", 1800)


def pgbench(server, script, seconds, clients=16, protocol="prepared", extra=()):
    """Runs pgbench once. Returns {tps, latency_ms, failed}."""
    options = ["-b", script, "-c", str(clients), "-j", "2", "-T", str(seconds), "-M", protocol, *extra]
    what = f"pgbench -b {script} -M {protocol}"
    output = finish(start_pgbench(server, *options), what, seconds + 120)
    if re.search(r"^pgbench: error", output, re.M) or re.search(r"ERROR:", output):
        raise LoadFailed(f"{what}:\n{output[-3000:]}")
    failed = re.search(r"number of failed transactions: (\d+)", output)
    if failed and int(failed.group(1)) > 0:
        raise LoadFailed(f"{what}: {failed.group(0)}")
    tps = re.search(r"^tps = ([\d.]+)", output, re.M)
    latency = re.search(r"latency average = ([\d.]+) ms", output)
    if not tps:
        raise LoadFailed(f"{what}: no figure in\n{output[-3000:]}")
    return {"tps": float(tps.group(1)), "latency_ms": float(latency.group(1)) if latency else None}


def start_sysbench(server, script, command, *options):
    """Starts sysbench. Returns the running process."""
    return subprocess.Popen(
        ["sysbench", script, *server.sysbench_options(), *options, command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def sysbench_prepare(server, tables, rows, threads=2, script="oltp_read_write"):
    options = [f"--tables={tables}", f"--table-size={rows}", f"--threads={threads}"]
    output = finish(start_sysbench(server, script, "prepare", *options), f"sysbench {script} prepare", 1800)
    if "FATAL" in output:
        raise LoadFailed(f"sysbench {script} prepare:\n{output[-3000:]}")
    return output


def sysbench_cleanup(server, tables, script="oltp_read_write"):
    return finish(start_sysbench(server, script, "cleanup", f"--tables={tables}"), f"sysbench {script} cleanup", 600)


def sysbench(server, script, seconds, tables, rows, threads=16, ps_mode="auto", extra=()):
    """Runs sysbench once. Returns {tps, queries_per_s, latency_ms, p95_ms, errors}.

    `errors` counts transactions that sysbench restarts by design: two sessions that delete and insert one key
    (23505), and deadlock victims.
    """
    options = [f"--tables={tables}", f"--table-size={rows}", f"--threads={threads}", f"--time={seconds}", f"--db-ps-mode={ps_mode}"]
    what = f"sysbench {script} --db-ps-mode={ps_mode}"
    output = finish(start_sysbench(server, script, "run", *options, *extra), what, seconds + 120)
    if "FATAL" in output:
        raise LoadFailed(f"{what}:\n{output[-3000:]}")
    result = read_sysbench(output)
    if result is None:
        raise LoadFailed(f"{what}: no figure in\n{output[-3000:]}")
    return result


def read_sysbench(output):
    transactions = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", output)
    queries = re.search(r"queries:\s+\d+\s+\(([\d.]+) per sec", output)
    errors = re.search(r"ignored errors:\s+(\d+)", output)
    average = re.search(r"avg:\s+([\d.]+)", output)
    p95 = re.search(r"95th percentile:\s+([\d.]+)", output)
    if not (transactions and queries and errors and average and p95):
        return None
    return {
        "tps": float(transactions.group(2)),
        "queries_per_s": float(queries.group(1)),
        "latency_ms": float(average.group(1)),
        "p95_ms": float(p95.group(1)),
        "errors": int(errors.group(1)),
    }

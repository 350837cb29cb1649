"""Tools that no Debian package holds: Python packages in an environment of their own, Go programs built through Go's proxy.

They are made once, below `VARVE_TOOLS` (target/e2e-tools), with the versions that stand here and in e2e/requirements.txt.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys

from . import load, server

REQUIREMENTS = os.path.join(server.ROOT, "e2e", "requirements.txt")
GO_TOOLS = {
    "go-tpc": ("github.com/pingcap/go-tpc@v1.0.12", "github.com/pingcap/go-tpc/cmd/go-tpc"),
    "go-ycsb": ("github.com/pingcap/go-ycsb@v1.0.1", "github.com/pingcap/go-ycsb/cmd/go-ycsb"),
}


def folder():
    made = os.environ.get("VARVE_TOOLS", os.path.join(server.ROOT, "target", "e2e-tools"))
    os.makedirs(made, exist_ok=True)
    return made


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise load.LoadFailed(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def python():
    """The interpreter of an environment that holds e2e/requirements.txt."""
    with open(REQUIREMENTS, "rb") as file:
        version = hashlib.sha256(file.read()).hexdigest()[:12]
    made = os.path.join(folder(), f"python-{version}")
    if not os.path.exists(os.path.join(made, "complete")):
        shutil.rmtree(made, ignore_errors=True)
        run([sys.executable, "-m", "venv", made])
        run([os.path.join(made, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS])
        open(os.path.join(made, "complete"), "w").close()
    return os.path.join(made, "bin", "python")


def go_tool(name):
    """The path of a Go program, built when it isn't there."""
    module, package = GO_TOOLS[name]
    made = os.path.join(folder(), re.sub(r"[^\w.-]", "-", module.rsplit("/", 1)[1]))
    program = os.path.join(made, name)
    if not os.path.exists(program):
        if not shutil.which("go"):
            raise load.LoadFailed(f"{name} is built with Go, and go was not found: install it from https://go.dev/dl")
        os.makedirs(made, exist_ok=True)
        if not os.path.exists(os.path.join(made, "go.mod")):
            run(["go", "mod", "init", "built"], cwd=made)
        run(["go", "get", module], cwd=made)
        run(["go", "build", "-mod=mod", "-o", name, package], cwd=made)
    return program


def start_go_tpc(target, *arguments):
    """go-tpc as a running process."""
    return subprocess.Popen([go_tool("go-tpc"), *arguments, *target.go_tpc_options()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def go_tpc(target, *arguments, timeout_s=900):
    """Runs go-tpc to its end; raises when it reports any error."""
    what = f"go-tpc {' '.join(arguments)}"
    said = load.finish(start_go_tpc(target, *arguments), what, timeout_s)
    errors = [line for line in said.splitlines() if re.search(r"_ERR\b|\berror\b|failed|panic|pq:", line, re.I) and not re.search(r"errors?: 0\b", line)]
    if errors:
        raise load.LoadFailed(f"{what}: {len(errors)} lines of errors\n" + "\n".join(errors[:10]))
    return said


def tpm(said):
    found = re.search(r"tpmC: ([\d.]+)", said)
    return float(found.group(1)) if found else None


def new_order_ms(said):
    """The average of a new order, in ms."""
    found = re.findall(r"NEW_ORDER - .*?Avg\(ms\): ([\d.]+)", said)
    return float(found[-1]) if found else 0.0


def go_ycsb(target, command, workload, *properties, timeout_s=600):
    """Runs go-ycsb load or run with one of its standard workloads; raises when it counts an error."""
    connection = ["pg.host=127.0.0.1", f"pg.port={target.port}", "pg.user=postgres", "pg.db=postgres", "pg.sslmode=disable"]
    options = [part for each in [*connection, *properties] for part in ("-p", each)]
    what = f"go-ycsb {command} {workload}"
    process = subprocess.Popen(
        [go_tool("go-ycsb"), command, "pg", "-P", workload_file(workload), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = load.finish(process, what, timeout_s)
    errors = [line for line in said.splitlines() if re.search(r"_ERROR|\berror\b|panic|pq:", line, re.I)]
    if errors:
        raise load.LoadFailed(f"{what}:\n" + "\n".join(errors[:10]))
    return said


def workload_file(workload):
    """The workload as YCSB's own files have it, written out because Go's proxy delivers a module's code read-only and elsewhere."""
    path = os.path.join(folder(), f"workload{workload}")
    with open(path, "w") as file:
        file.write("\n".join(["workload=core", "readallfields=true", *YCSB[workload]]) + "\n")
    return path


YCSB = {
    "a": ["readproportion=0.5", "updateproportion=0.5", "requestdistribution=zipfian"],
    "b": ["readproportion=0.95", "updateproportion=0.05", "requestdistribution=zipfian"],
    "c": ["readproportion=1", "updateproportion=0", "requestdistribution=zipfian"],
    "d": ["readproportion=0.95", "updateproportion=0", "insertproportion=0.05", "requestdistribution=latest"],
    "e": ["readproportion=0", "updateproportion=0", "scanproportion=0.95", "insertproportion=0.05", "requestdistribution=zipfian", "maxscanlength=100", "scanlengthdistribution=uniform"],
    "f": ["readproportion=0.5", "updateproportion=0", "readmodifywriteproportion=0.5", "requestdistribution=zipfian"],
}

"""Gets tools for which there is no Debian package: Python's packages in environments of their own, Go's tools
built through its proxy, Node's from npm, and Java's from Maven Central.

The tools are made once, below `VARVE_TOOLS` (target/e2e-tools). Their versions are in this file, in
e2e/requirements*.txt and in e2e/tool-programs.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys

from . import load, server

REQUIREMENTS = os.path.join(server.ROOT, "e2e", "requirements.txt")
REQUIREMENTS_TOOLS = os.path.join(server.ROOT, "e2e", "requirements-tools.txt")
PROGRAMS = os.path.join(server.ROOT, "e2e", "tool-programs")
GOLANG_MIGRATE = ["github.com/golang-migrate/migrate/v4@v4.18.3", "github.com/lib/pq@v1.10.9"]
# How each framework is started: the language, and the program.
FRAMEWORKS = {
    "django": ("python", "python_django.py"),
    "asyncpg": ("python", "python_asyncpg.py"),
    "pgcli": ("python", "python_pgcli.py"),
    "sequelize": ("node", "sequelize.js"),
    "node-pg-migrate": ("node", "node-pg-migrate.mjs"),
    "golang-migrate": ("go", "golang-migrate"),
    "hibernate": ("java", "Hibernate"),
    "liquibase": ("java", "Liquibase"),
    "pgjdbc": ("java", "Metadata"),
    "sqlx": ("rust", "sqlx"),
}
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


def made_of(kind, sources, make):
    """Returns a folder that `make` fills once for these versions of these files."""
    digest = hashlib.sha256()
    for source in sources:
        with open(source, "rb") as file:
            digest.update(file.read())
    made = os.path.join(folder(), f"{kind}-{digest.hexdigest()[:12]}")
    if not os.path.exists(os.path.join(made, "complete")):
        shutil.rmtree(made, ignore_errors=True)
        os.makedirs(made)
        make(made)
        open(os.path.join(made, "complete"), "w").close()
    return made


def python(requirements=REQUIREMENTS):
    """Returns the interpreter of an environment with the packages of e2e/requirements.txt, or of another such
    file."""

    def make(made):
        run([sys.executable, "-m", "venv", made])
        run([os.path.join(made, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "-r", requirements])

    return os.path.join(made_of("python", [requirements], make), "bin", "python")


def needed(program, where):
    if not shutil.which(program):
        raise load.LoadFailed(f"{program} was not found: install it from {where}")


def node(program):
    """Returns a folder with our programs and the packages that they import."""
    needed("npm", "https://nodejs.org")
    names = ["package.json", "steps.js", program]

    def make(made):
        for name in names:
            shutil.copy(os.path.join(PROGRAMS, name), made)
        run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=made)

    return ["node", os.path.join(made_of("node", [os.path.join(PROGRAMS, name) for name in names], make), program)]


def go_program(name):
    """Builds a Go program of ours."""
    needed("go", "https://go.dev/dl")
    source = os.path.join(PROGRAMS, name, "main.go")

    def make(made):
        shutil.copy(source, made)
        run(["go", "mod", "init", "built"], cwd=made)
        run(["go", "get", *GOLANG_MIGRATE], cwd=made)
        run(["go", "mod", "tidy"], cwd=made)
        run(["go", "build", "-o", name], cwd=made)

    return [os.path.join(made_of(name, [source], make), name)]


def java(name):
    """Compiles a Java class of ours with its libraries."""
    needed("mvn", "https://maven.apache.org")
    sources = [os.path.join(PROGRAMS, each) for each in sorted(os.listdir(PROGRAMS)) if each.endswith(".java")]
    project = os.path.join(PROGRAMS, "pom.xml")

    def make(made):
        shutil.copy(project, made)
        run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={made}/lib"], cwd=made)
        run(["javac", "-nowarn", "-cp", f"{made}/lib/*", "-d", f"{made}/classes", *sources])

    made = made_of("java", [project, *sources], make)
    return ["java", "-cp", f"{made}/lib/*:{made}/classes", name]


def rust_program(name):
    """Builds a Rust program of ours outside of the workspace."""
    needed("cargo", "https://rustup.rs")
    project = os.path.join(PROGRAMS, name)
    sources = [os.path.join(project, "Cargo.toml"), os.path.join(project, "src", "main.rs")]

    def make(made):
        shutil.copytree(project, made, dirs_exist_ok=True)
        run(["cargo", "build", "--quiet", "--target-dir", os.path.join(made, "target")], cwd=made)
        shutil.copy(os.path.join(made, "target", "debug", f"e2e-{name}"), made)
        shutil.rmtree(os.path.join(made, "target"))

    return [os.path.join(made_of(name, sources, make), f"e2e-{name}")]


def framework(name):
    """Returns the command that runs the program for a framework. The port and a folder must be appended."""
    language, program = FRAMEWORKS[name]
    if language == "python":
        return [python(REQUIREMENTS_TOOLS), os.path.join(os.path.dirname(os.path.abspath(__file__)), program)]
    return {"node": node, "go": go_program, "java": java, "rust": rust_program}[language](program)


def go_tool(name):
    """Returns the path of a Go program, which is built if it does not exist."""
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
    """Starts go-tpc. Returns the running process."""
    return subprocess.Popen([go_tool("go-tpc"), *arguments, *target.go_tpc_options()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def go_tpc(target, *arguments, timeout_s=900):
    """Runs go-tpc to its end. Raises an exception if it reports any error."""
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
    """Returns the average time of a new order, in ms."""
    found = re.findall(r"NEW_ORDER - .*?Avg\(ms\): ([\d.]+)", said)
    return float(found[-1]) if found else 0.0


def go_ycsb(target, command, workload, *properties, timeout_s=600):
    """Runs go-ycsb load or run with one of its standard workloads. Raises an exception if it counts an
    error."""
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
    """Writes the workload as YCSB's files have it. Go's proxy delivers a module's files read-only and in
    another place."""
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

//! The long help texts.

/// `varve --help`
pub const LONG: &str = "\
Varve is a transactional SQL database. It speaks the PostgreSQL protocol, so psql, pgbench, sysbench \
and the PostgreSQL drivers talk to it; and it can be linked into a Rust program.

Try it:

    varve serve ./data                                   # makes ./data if it is missing
    psql -h 127.0.0.1 -p 5433 -U postgres postgres       # in another terminal
    postgres=> create table item (id int primary key, name text);
    postgres=> insert into item values (1, 'lamp');
    postgres=> select * from item;

Stop the server with Ctrl-C; what was committed is there again at the next start, however it stops.
What survives a loss of power: SHOW durability.

`varve help COMMAND` explains a command.";

/// `varve help serve`
pub const SERVE: &str = concat!(
    "\
Serves the database in a directory until it gets SIGINT (Ctrl-C) or SIGTERM. A directory that is \
missing or empty becomes a new database first. On start it prints what it found about the devices, \
the settings in force, and, once clients can connect, `listening on ADDRESS:PORT`.

Stopping ends all sessions, rolls back what wasn't committed, and writes a checkpoint. Clients get \
57P01: with a running statement in its place, busy ones as the answer to their next query, idle ones \
unasked. A second signal ends the process at once; then the next start recovers from the log.

Who may connect: any user name, from this machine only, unless `authentication` and `listen` say \
otherwise. The database is named postgres.

Settings come from varve.toml in the data directory, or from the file given with --config. What ALTER \
SYSTEM SET has changed is in varve.auto.toml of the data directory and goes before it; pg_settings shows \
the settings of category Varve, and which of them wait for the next start. All of it is optional; this \
is a whole file:

",
    include_str!("../config/settings.toml"),
    "
Examples:

    varve serve                                 # ./varve-data, port 5433
    varve serve /srv/db --pool 4GiB
    varve serve /srv/db --listen 127.0.0.1:0    # any free port
    varve serve /srv/db --config my.toml"
);

/// `varve help init`
pub const INIT: &str = "\
Makes a new, empty database in a directory that is missing or empty. `varve serve` does the same when \
it has to; use init to prepare a directory with a page size or devices of its own, to give the first \
role, varve, its password, or to be told when there is something in it already. A varve.toml in the \
directory is used.

Examples:

    varve init /srv/db
    varve init /srv/db --config my.toml
    varve init /srv/db --password-file secret.txt    # for authentication = \"scram-sha-256\"";

/// `varve help sql`
pub const SQL: &str = "\
A shell on the database in a directory, without a server: statements and commands at a terminal, from -c, \
from files or from standard input. An empty directory becomes a new database first, as does one that is \
missing if --create is given or none was named; a name that is missing otherwise is taken for a mistake. One process at a time can have a database open: where a server runs, use psql.

At a terminal there are a history (~/.varve_history) and completion of names (tab). Statements end with a \
semicolon and may have many lines; Ctrl-C cancels the one that runs. \\? shows the commands: \\d and its \
relatives ask the catalog, \\copy loads a file and says how far it is.

Results go to standard output, everything else to standard error. A text of -c is sent whole: several \
statements in it are one transaction. A script ends at its first error.

Exit codes: 0 everything ran, 1 a statement failed or the database did not open, 2 wrong usage, \
130 Ctrl-C between two statements of a script.

Examples:

    varve sql                                              # ./varve-data, at the terminal
    varve sql /srv/db --create -f schema.sql               # a new database
    varve sql /srv/db -c 'select count(*) from item'
    varve sql /srv/db --format json -c 'select * from item' > item.json
    varve sql /srv/db -f data.sql -f more.sql
    varve sql /srv/db -c \"\\copy item from 'item.csv' with (format csv)\"";

/// `varve help check`
pub const CHECK: &str = "\
Reads every page in use, tree, row, index entry and allocation of a database and compares them with \
each other. Prints what it read and the first damages it found, each with its place. Ends with 0 if \
everything is sound and with 1 if not. What nothing refers to isn't read: free pages, the log before \
the checkpoint, and the older copy of the control page.

The database must not be in use. If it wasn't stopped cleanly, it is recovered first, as `varve \
serve` would do.

Example:

    varve check /srv/db";

/// `varve help nvm`
pub const NVM: &str = "\
Persistent memory of a database that is stopped. With a section [nvm] its redo log, its newest pages, or \
the copies that doublewrite makes lie in a region, the file nvm.varve of a device; and the database needs \
that file as it needs its others. So a start whose configuration says something else is refused.

`varve nvm status` says what is in the region, whether the database was shut down cleanly, and what the \
next start makes of the configuration.

`varve nvm drain` is the way out: it opens the database as it is, whatever the configuration says, \
recovers it if it has to, brings all pages home, ends a log in the region, and removes the file. A crash \
meanwhile loses nothing; run it again. Afterwards the configuration decides anew: without [nvm] and with \
another [protection] kind everything lies in files; with [nvm], of any size, the next start makes a new \
region. Where the database has no region, drain recovers it and shuts it down cleanly: after that a log in \
files can move to persistent memory.

Examples:

    varve nvm status /srv/db
    varve nvm drain /srv/db
    varve nvm drain /srv/db --region /mnt/pmem    # [nvm] and its device are gone from varve.toml";

/// `varve help bench`
pub const BENCH: &str = "\
Runs workloads against a server (Varve or PostgreSQL) or in this process, and prints rates and \
latencies with the settings they belong to.

Examples:

    varve bench run oltp_point_select --threads 16
    varve bench run tpcc --warehouses 4 --check
    varve bench run tpcb --server \"host=127.0.0.1 port=5433 user=postgres\"
    varve bench points
    varve bench commits";

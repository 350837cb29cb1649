//! `varve serve` with a real client: stop, restart, kill, and the state of the files afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use postgres::{Client, NoTls};

/// A server process on any free port.
pub struct Served {
    process: Child,
    out: BufReader<ChildStdout>,
    port: u16,
    pub said: String,
}

impl Served {
    pub fn start(directory: &Path) -> Served {
        let mut process = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["serve", directory.to_str().unwrap(), "--listen", "127.0.0.1:0", "--pool", "16MiB"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut said = String::new();
        let port = loop {
            let mut line = String::new();
            if out.read_line(&mut line).unwrap() == 0 {
                let mut error = String::new();
                process.stderr.take().unwrap().read_to_string(&mut error).unwrap();
                panic!("varve serve ended: {error}");
            }
            if let Some(address) = line.strip_prefix("listening on 127.0.0.1:") {
                break address.trim().parse().unwrap();
            }
            said += &line;
        };
        Served { process, out, port, said }
    }

    pub fn connect(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=anyone dbname=postgres", self.port);
        Client::connect(&config, NoTls).unwrap()
    }

    /// Returns the address of the server as a URL.
    pub fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    fn connect_as(&self, user: &str, password: &str) -> Result<Client, postgres::Error> {
        let config = format!(
            "host=127.0.0.1 port={} user={user} dbname=postgres password='{}'",
            self.port,
            password.replace('\'', "\\'")
        );
        Client::connect(&config, NoTls)
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        // The test uses the shell's built-in `kill`, because a minimal Debian has no program of this name.
        assert!(
            Command::new("sh").args(["-c", "kill \"$0\" \"$1\"", signal, &pid]).status().unwrap().success()
        );
    }

    /// Stops the server by a signal. Returns the exit code and the rest of the output.
    pub fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let mut last_words = String::new();
        self.out.read_to_string(&mut last_words).unwrap();
        (self.process.wait().unwrap().code(), last_words)
    }
}

pub fn check(directory: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["check", directory.to_str().unwrap(), "--pool", "16MiB"])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn names(client: &mut Client) -> Vec<String> {
    let rows = client.query("select name from item order by id", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn what_was_committed_outlives_stop_and_kill() {
    let directory = tempfile::tempdir().unwrap();
    let first = Served::start(directory.path());
    assert!(first.said.contains("(new)"), "{}", first.said);
    assert!(first.said.contains("direct I/O"), "{}", first.said);
    let mut client = first.connect();
    client.batch_execute("create table item (id integer primary key, name text not null)").unwrap();
    client.execute("insert into item values ($1, $2)", &[&1, &"lamp"]).unwrap();
    let mut open = client.transaction().unwrap();
    open.execute("insert into item values (2, 'never committed')", &[]).unwrap();
    assert_eq!(
        first.stop("-TERM"),
        (Some(0), "stopping: ending sessions, writing a checkpoint\nstopped\n".into())
    );
    drop(open);

    let second = Served::start(directory.path());
    assert!(!second.said.contains("(new)"), "{}", second.said);
    let mut client = second.connect();
    assert_eq!(names(&mut client), ["lamp"]);
    client.execute("insert into item values ($1, $2)", &[&3, &"chair"]).unwrap();
    second.stop("-KILL");

    let third = Served::start(directory.path());
    assert_eq!(names(&mut third.connect()), ["lamp", "chair"]);
    assert_eq!(third.stop("-INT").0, Some(0));
    let (code, text) = check(directory.path());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no damage found"), "{text}");
}

#[test]
fn a_running_database_is_not_opened_twice() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (code, text) = check(directory.path());
    assert_eq!(code, Some(1));
    let expect = format!("is in use by another process (number {})", served.process.id());
    assert!(text.contains(&expect), "{text}");
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn there_is_one_database_and_any_user() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.connect().batch_execute("select 1").unwrap();
    let other = format!("host=127.0.0.1 port={} user=anyone dbname=other", served.port);
    let error = Client::connect(&other, NoTls).err().unwrap();
    let told = error.as_db_error().unwrap();
    assert_eq!((told.code().code(), told.message()), ("3D000", "database \"other\" does not exist"));
    assert_eq!(served.stop("-TERM").0, Some(0));
}

/// A new user found: in a new database that asks for passwords no role had one, and no message said so.
#[test]
fn a_server_says_that_nobody_can_log_in() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    std::fs::write(directory.path().join("varve.toml"), "[server]\nauthentication = \"scram-sha-256\"\n")
        .unwrap();
    let served = Served::start(directory.path());
    let told = format!("varve sql {path} -c \"ALTER ROLE postgres PASSWORD '...'\"");
    assert!(served.said.contains("nobody can log in") && served.said.contains(&told), "{}", served.said);
    assert!(served.said.contains("-U postgres postgres"), "{}", served.said);
    assert_eq!(served.stop("-TERM").0, Some(0));
    let statement = "ALTER ROLE postgres PASSWORD 'a'";
    let sql =
        Command::new(env!("CARGO_BIN_EXE_varve")).args(["sql", path, "-c", statement]).output().unwrap();
    assert!(sql.status.success(), "{sql:?}");
    let served = Served::start(directory.path());
    assert!(!served.said.contains("nobody can log in"), "{}", served.said);
    served.connect_as("postgres", "a").unwrap().batch_execute("select 1").unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn the_first_password_comes_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(place("my.toml"), "[server]\nauthentication = \"scram-sha-256\"\n").unwrap();
    std::fs::write(place("secret"), "it's me\nnot this\n").unwrap();
    std::fs::write(place("blank"), "\n").unwrap();
    let init = |file: &str| {
        let (db, config, file) = (place("db"), place("my.toml"), place(file));
        let arguments = ["init", &db, "--config", &config, "--password-file", &file];
        let done = Command::new(env!("CARGO_BIN_EXE_varve")).args(arguments).output().unwrap();
        (done.status.code(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
    };
    let (code, said) = init("blank");
    assert!(code == Some(1) && said.contains("is empty"), "{said}");
    let (code, said) = init("secret");
    assert!(code == Some(0) && !said.contains("nobody"), "{said}");
    std::fs::copy(place("my.toml"), place("db/varve.toml")).unwrap();
    let served = Served::start(&directory.path().join("db"));
    served.connect_as("postgres", "it's me").unwrap().batch_execute("select 1").unwrap();
    assert!(served.connect_as("postgres", "not this").is_err());
    assert_eq!(served.stop("-TERM").0, Some(0));
}

/// Returns some settings of the process, with `*` after those that wait for the next start.
fn settings(client: &mut Client) -> String {
    let sql =
        "select name || '=' || setting || case when pending_restart then '*' else '' end from pg_settings
        where name in ('pool_page_writers', 'log_capacity', 'query_temporary', 'pool_size') order by name";
    let rows = client.query(sql, &[]).unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join(" ")
}

/// Found earlier: SHOW returned the configured protection instead of the protection in force.
#[test]
fn settings_show_what_is_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let protection = |client: &mut Client| -> String {
        let sql =
            "select setting || ' ' || pending_restart || ' ' || vartype || ' ' || array_length(enumvals, 1)
                   from pg_settings where name = 'protection_kind'";
        let of_settings: String = client.query_one(sql, &[]).unwrap().get(0);
        let sql = "select medium from varve_durability where part = 'protection'";
        of_settings + ", " + client.query_one(sql, &[]).unwrap().get(0)
    };
    let place = |text: &str| std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    let mut served = Served::start(directory.path());
    let mut client = served.connect();
    assert_eq!(protection(&mut client), "doublewrite false enum 6, doublewrite");
    client.batch_execute("alter system set pool_size = '33MiB'").unwrap();
    let sql =
        "select setting || ' ' || pending_restart || ' ' || source from pg_settings where name = 'pool_size'";
    assert_eq!(client.query_one(sql, &[]).unwrap().get::<_, String>(0), "16 MiB false command line");
    client.batch_execute("create table t (a integer); insert into t values (1)").unwrap();
    served.process.kill().unwrap();
    served.process.wait().unwrap();
    place("[protection]\nkind = 'full-page-log'");
    let served = Served::start(directory.path());
    let mut client = served.connect();
    assert_eq!(protection(&mut client), "doublewrite true enum 6, doublewrite");
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(directory.path());
    assert_eq!(protection(&mut served.connect()), "full-page-log false enum 6, full-page-log");
    assert_eq!(served.stop("-TERM").0, Some(0));
    let packed = tempfile::tempdir().unwrap();
    let text = "[home]\nlayout = 'packed'\n[protection]\nkind = 'atomic-write'";
    std::fs::write(packed.path().join("varve.toml"), text).unwrap();
    let served = Served::start(packed.path());
    assert!(served.said.contains("protection atomic-write changes nothing"), "{}", served.said);
    let none = "none false enum 6, none: the layout packed writes no page over another one";
    assert_eq!(protection(&mut served.connect()), none);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

/// The fill changes on line and outlives the server; extents are as long as when the database was made.
#[test]
fn what_packed_files_take_is_set() {
    let directory = tempfile::tempdir().unwrap();
    let place = |packed: &str| {
        let text = format!("[home]\nlayout = 'packed'\n[packed]\n{packed}\n");
        std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    };
    let fill = |client: &mut Client| -> String {
        let sql = "select setting || ' ' || vartype || ' ' || pending_restart || ' ' || source || ' ' || boot_val \
                   from pg_settings where name = 'packed_fill'";
        client.query_one(sql, &[]).unwrap().get(0)
    };
    place("extent = '256KiB'");
    let served = Served::start(directory.path());
    assert!(!served.said.contains("packed.extent"), "{}", served.said);
    let mut client = served.connect();
    assert_eq!(fill(&mut client), "60 integer false default 60");
    client.batch_execute("alter system set packed_fill = 85").unwrap();
    assert_eq!(fill(&mut client), "85 integer false configuration file 60");
    for (statement, code, told) in [
        ("packed_fill = 91", "22023", "packed.fill must be between 50 and 90"),
        ("packed_extent = '1MiB'", "42704", "unrecognized configuration parameter \"packed_extent\""),
    ] {
        let error = client.batch_execute(&format!("alter system set {statement}")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.message()), (code, told), "{statement}");
        let in_file = error.hint().is_some_and(|hint| hint.contains("varve.toml"));
        assert_eq!(in_file, code == "42704", "{error}");
    }
    client.batch_execute("create table item (id integer); insert into item values (1); checkpoint").unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    place("extent = '1MiB'\nfill = 70");
    let served = Served::start(directory.path());
    let said =
        "warning: packed.extent is 1 MiB, and extents of this database stay as they were made: 256 KiB";
    assert!(served.said.contains(said), "{}", served.said);
    let mut client = served.connect();
    assert_eq!(fill(&mut client), "85 integer false configuration file 60");
    client.batch_execute("alter system reset packed_fill").unwrap();
    assert_eq!(fill(&mut client), "70 integer false configuration file 60");
    assert_eq!(served.stop("-TERM").0, Some(0));
    // An extent of this length has no room for four pages.
    let other = tempfile::tempdir().unwrap();
    let text = "[pool]\npage_size = '64KiB'\n[home]\nlayout = 'packed'\n[packed]\nextent = '128KiB'\n";
    std::fs::write(other.path().join("varve.toml"), text).unwrap();
    let place = other.path().to_str().unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_varve")).args(["serve", place]).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("extents of 131072 bytes: they must be"), "{told}");
}

#[test]
fn altered_settings_outlive_the_server() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("varve.toml"), "[pool]\npage_writers = 2\n").unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    // The flag sets 16 MiB and overrides the files.
    let first = "log_capacity=1 GiB pool_page_writers=2 pool_size=16 MiB query_temporary=unlimited";
    assert_eq!(settings(&mut client), first);
    for statement in [
        "alter system set pool_page_writers = 3",
        "alter system set log_capacity = '512MiB'",
        "alter system set temp_file_limit = '1GiB'",
    ] {
        client.batch_execute(statement).unwrap();
    }
    let after = "log_capacity=1 GiB* pool_page_writers=2* pool_size=16 MiB query_temporary=1 GiB";
    assert_eq!(settings(&mut client), after);
    let limit: String = served.connect().query_one("show temp_file_limit", &[]).unwrap().get(0);
    assert_eq!(limit, "1GB");
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(directory.path());
    let said = "varve.auto.toml (ALTER SYSTEM) says: log_capacity, pool_page_writers, query_temporary";
    assert!(served.said.contains(said), "{}", served.said);
    let mut client = served.connect();
    let next = "log_capacity=512 MiB pool_page_writers=3 pool_size=16 MiB query_temporary=1 GiB";
    assert_eq!(settings(&mut client), next);
    client.batch_execute("alter system reset all").unwrap();
    let reset = "log_capacity=512 MiB* pool_page_writers=3* pool_size=16 MiB query_temporary=unlimited";
    assert_eq!(settings(&mut client), reset);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn what_the_next_start_would_refuse_is_not_altered() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    client.batch_execute("alter system set log_capacity = '512MiB'").unwrap();
    let before = settings(&mut client);
    let unknown = |name: &str| format!("unrecognized configuration parameter \"{name}\"");
    for (statement, code, told) in [
        ("pool_page_writers = 0", "22023", "pool.page_writers must be between 1 and 64".to_owned()),
        (
            "pool_page_writers = 'x'",
            "22023",
            "invalid value for parameter \"pool_page_writers\": \"x\"".to_owned(),
        ),
        (
            "log_capacity = '3MiB'",
            "22023",
            "log.capacity must hold at least two segments of 64 MiB".to_owned(),
        ),
        ("pool_size = '900TiB'", "22023", "pool.size must be between 1 MiB and 1 TiB".to_owned()),
        ("pool_sise = '1GiB'", "42704", unknown("pool_sise")),
        ("log_segment = '32MiB'", "55P02", "parameter \"log_segment\" cannot be changed".to_owned()),
        ("server_listen = '0.0.0.0:1'", "42704", unknown("server_listen")),
    ] {
        let error = client.batch_execute(&format!("alter system set {statement}")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.message()), (code, &*told), "{statement}");
    }
    assert_eq!(settings(&mut client), before);
    assert_eq!(served.stop("-TERM").0, Some(0));
    // A mistake in varve.auto.toml is reported like one in varve.toml, with its line.
    std::fs::write(directory.path().join("varve.auto.toml"), "[pool]\nsize = 1\n").unwrap();
    let place = directory.path().to_str().unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_varve")).args(["serve", place]).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("varve.auto.toml, line 2: pool.size must be between"), "{told}");
}

/// Found by a new user: a changed segment length was ignored without a message, and pg_settings showed it.
#[test]
fn files_of_a_log_keep_their_length_and_it_is_said() {
    let directory = tempfile::tempdir().unwrap();
    drop(Served::start(directory.path()).stop("-TERM"));
    std::fs::write(directory.path().join("varve.toml"), "[log]\nsegment = '16MiB'\ncapacity = '256MiB'\n")
        .unwrap();
    let served = Served::start(directory.path());
    let said =
        "warning: log.segment is 16 MiB, and files of this database's log stay as long as they are: 64 MiB";
    assert!(served.said.contains(said), "{}", served.said);
    let sql = "select setting || ' ' || pending_restart from pg_settings where name = 'log_segment'";
    let shown: String = served.connect().query_one(sql, &[]).unwrap().get(0);
    assert_eq!(shown, "64 MiB false");
    assert_eq!(served.stop("-TERM").0, Some(0));
}

/// Found earlier: a start ignored such a file without a message, and the next ALTER SYSTEM overwrote it.
#[test]
fn altered_settings_that_cannot_be_read_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("varve.auto.toml");
    let place = directory.path().to_str().unwrap();
    for text in ["[pool\nsize=", "[foo]\n", "[nvm]\n"] {
        std::fs::write(&file, text).unwrap();
        // If the server starts after all, `timeout` ends it with exit code 124.
        let refused = Command::new("timeout")
            .args(["10", env!("CARGO_BIN_EXE_varve"), "serve", place, "--listen", "127.0.0.1:0"])
            .output()
            .unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(
            refused.status.code() == Some(1) && told.contains("varve.auto.toml, line 1"),
            "{text}: {told}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}

/// Persistent memory has only the copies of doublewrite, or it has pages while the log is in files.
#[test]
fn pages_and_copies_lie_in_persistent_memory() {
    for kind in ["nvm-dwb", "nvm"] {
        let directory = tempfile::tempdir().unwrap();
        let text = format!("[nvm]\ndevice = 'main'\nsize = '4MiB'\n[protection]\nkind = '{kind}'\n");
        std::fs::write(directory.path().join("varve.toml"), text).unwrap();
        let served = Served::start(directory.path());
        assert!(served.said.contains(&format!("protection {kind},")), "{}", served.said);
        let made = "create table item (id integer, name text); insert into item values (1, 'a'); checkpoint";
        served.connect().batch_execute(made).unwrap();
        let row = served.connect().query_one("select log_bytes, size_bytes from varve_nvm", &[]).unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (0, 4 << 20), "{kind}");
        assert_eq!(served.stop("-KILL").0, None);
        let served = Served::start(directory.path());
        assert_eq!(names(&mut served.connect()), ["a"], "{kind}");
        let drain = || {
            let place = directory.path().to_str().unwrap();
            Command::new(env!("CARGO_BIN_EXE_varve")).args(["nvm", "drain", place]).output().unwrap()
        };
        let refused = drain();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(1) && told.contains("is in use by another process"), "{told}");
        assert_eq!(served.stop("-KILL").0, None);
        let told = String::from_utf8(drain().stdout).unwrap();
        assert!(told.contains("recovered") && told.contains("needs no persistent memory"), "{kind}: {told}");
        std::fs::write(directory.path().join("varve.toml"), "").unwrap();
        let served = Served::start(directory.path());
        assert_eq!(names(&mut served.connect()), ["a"], "{kind}");
        assert_eq!(served.stop("-TERM").0, Some(0));
        assert_eq!(check(directory.path()).0, Some(0), "{kind}");
    }
}

/// Found earlier: ALTER SYSTEM accepted a protection that the next start of this database would refuse.
#[test]
fn a_protection_that_the_database_cannot_have_is_not_altered() {
    let directory = tempfile::tempdir().unwrap();
    let place = |text: &str| std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    place(
        "[nvm]\ndevice = 'main'\nsize = '4MiB'\nlog = '512KiB'\n[pool]\npage_size = '4KiB'\n[protection]\nkind = 'nvm'\n",
    );
    drop(Served::start(directory.path()).stop("-TERM"));
    // Found earlier: this check used another page size, and reported that the log was too small.
    place("[nvm]\ndevice = 'main'\nsize = '4MiB'\nlog = '512KiB'\n[protection]\nkind = 'nvm'\n");
    let served = Served::start(directory.path());
    let mut client = served.connect();
    for kind in ["doublewrite", "nvm-dwb", "none", "full-page-log"] {
        let error =
            client.batch_execute(&format!("alter system set protection_kind = '{kind}'")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(
            error.code().code() == "22023" && error.message().contains("varve nvm drain"),
            "{kind}: {error}"
        );
    }
    for on_line in [
        "nvm_high_water = 90",
        "nvm_low_water = 10",
        "nvm_idle_flush = off",
        "home_compression = 'lz4'",
        "home_trim = off",
    ] {
        client.batch_execute(&format!("alter system set {on_line}")).unwrap();
    }
    let sql = "select string_agg(name || '=' || setting || case when pending_restart then '*' else '' end, ' ' order by name) \
               from pg_settings where name like 'nvm_%' or name in ('home_compression', 'home_trim')";
    let shown: String = client.query_one(sql, &[]).unwrap().get(0);
    assert_eq!(
        shown,
        "home_compression=lz4 home_trim=off nvm_default_access_method=heap nvm_flush_workers=2 nvm_high_water=90 \
         nvm_idle_flush=off nvm_low_water=10 nvm_partitions=1 nvm_tables=0 B"
    );
    let error = client.batch_execute("alter system set nvm_low_water = 95").unwrap_err();
    assert_eq!(error.as_db_error().unwrap().message(), "nvm.high_water must be above low_water, which is 95");
    client.batch_execute("create table item (id integer, name text); insert into item values (1, repeat('a', 5000)); checkpoint").unwrap();
    let counted = "select slots = free_slots + dirty_slots + clean_slots + doomed_slots from varve_nvm";
    assert!(client.query_one(counted, &[]).unwrap().get::<_, bool>(0));
    client.batch_execute("alter system reset nvm_high_water").unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(directory.path());
    let said =
        "varve.auto.toml (ALTER SYSTEM) says: home_compression, home_trim, nvm_idle_flush, nvm_low_water";
    assert!(served.said.contains(said), "{}", served.said);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn a_cache_on_flash_is_configured_and_changed_on_line() {
    let directory = tempfile::tempdir().unwrap();
    let place = |text: &str| std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    place("[pool]\nsize = '1MiB'\n[flash]\ndevice = 'main'\nsize = '64MiB'\n");
    let served = Served::start(directory.path());
    let mut client = served.connect();
    client.batch_execute("create table item (id integer primary key, name text); insert into item select n, repeat('a', 900) from generate_series(1, 24000) n").unwrap();
    // The rows have more bytes than the pool of these tests.
    let sum = "select sum(id + length(name)) from item";
    let read = |client: &mut postgres::Client| {
        for id in (1..=24_000).step_by(16) {
            client.query(&format!("select name from item where id = {id}"), &[]).unwrap();
        }
        client.query_one(sum, &[]).unwrap().get::<_, i64>(0)
    };
    let expected = 24_000 * 24_001 / 2 + 24_000 * 900;
    let counter = |client: &mut postgres::Client, name: &str| {
        let rows = client.simple_query("show varve.levels").unwrap();
        let found = rows.iter().find_map(|row| match row {
            postgres::SimpleQueryMessage::Row(row)
                if row.get(0) == Some("flash") && row.get(2) == Some(name) =>
            {
                row.get(3).map(|value| value.parse::<u64>().unwrap())
            }
            _ => None,
        });
        found.unwrap()
    };
    // Threads write the queue, so the number of pages of one round that are on flash varies.
    for _ in 0..20 {
        assert_eq!(read(&mut client), expected);
        if counter(&mut client, "read_hits") > 0 {
            break;
        }
    }
    assert!(counter(&mut client, "read_hits") > 0);
    client.batch_execute("alter system set flash_design = 'off'").unwrap();
    assert_eq!(counter(&mut client, "clean"), 0);
    let error = client.batch_execute("alter system set flash_design = 'lazy'").unwrap_err();
    let message = error.as_db_error().unwrap().message().to_owned();
    assert_eq!(
        message,
        "flash.design = \"lazy\" is unknown; choose one of: off, clean-write, dual-write, lazy-cleaning, temperature-aware, rotating, \
         exclusive, inclusive"
    );
    for design in ["lazy-cleaning", "temperature-aware", "rotating", "exclusive", "inclusive"] {
        client.batch_execute(&format!("alter system set flash_design = '{design}'")).unwrap();
        assert_eq!(read(&mut client), expected, "{design}");
    }
    client.batch_execute("alter system reset flash_design").unwrap();
    assert_eq!(read(&mut client), expected);
    drop(served.stop("-KILL"));
    // First the file of the cache is removed, and then the section of the configuration.
    std::fs::remove_file(directory.path().join("flash.varve")).unwrap();
    let served = Served::start(directory.path());
    assert_eq!(read(&mut served.connect()), expected);
    assert_eq!(served.stop("-TERM").0, Some(0));
    place("[pool]\nsize = '1MiB'\n");
    let served = Served::start(directory.path());
    let mut client = served.connect();
    assert_eq!(read(&mut client), expected);
    let error = client.batch_execute("alter system set flash_design = 'off'").unwrap_err();
    let message = error.as_db_error().unwrap().message().to_owned();
    assert!(message.contains("flash.device is missing"), "{message}");
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn how_a_cache_on_flash_is_cleaned_is_configured() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[flash]\ndevice = 'main'\nsize = '4MiB'\ndesign = 'lazy-cleaning'\ndirty_limit = 30\n";
    std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    let shown = |client: &mut postgres::Client| {
        let sql = "select string_agg(name || '=' || setting || case when pending_restart then '*' else '' end, ' ' order by name) \
                   from pg_settings where name like 'flash_%'";
        client.query_one(sql, &[]).unwrap().get::<_, String>(0)
    };
    let served = Served::start(directory.path());
    let mut client = served.connect();
    assert_eq!(
        shown(&mut client),
        "flash_clean_order=last-use flash_daily_writes=unlimited flash_design=lazy-cleaning flash_dirty_limit=30 flash_fill=aggressive flash_restart=lazy-verification flash_scans=read-ahead flash_size=4 MiB"
    );
    for (wrong, expected) in [
        ("flash_dirty_limit = 0", "flash.dirty_limit must be between 1 and 95"),
        ("flash_dirty_limit = 96", "flash.dirty_limit must be between 1 and 95"),
        ("flash_daily_writes = '1kB'", "flash.daily_writes must be between 1 MiB and 1024 TiB"),
        (
            "flash_clean_order = 'lru'",
            "flash.clean_order = \"lru\" is unknown; choose one of: last-use, recovery-lsn",
        ),
    ] {
        let error = client.batch_execute(&format!("alter system set {wrong}")).unwrap_err();
        assert_eq!(error.as_db_error().unwrap().message(), expected);
    }
    client.batch_execute("alter system set flash_dirty_limit = 95").unwrap();
    client.batch_execute("alter system set flash_clean_order = 'recovery-lsn'").unwrap();
    client.batch_execute("alter system set flash_daily_writes = '40GiB'").unwrap();
    assert_eq!(
        shown(&mut client),
        "flash_clean_order=last-use* flash_daily_writes=40 GiB flash_design=lazy-cleaning flash_dirty_limit=95 flash_fill=aggressive flash_restart=lazy-verification flash_scans=read-ahead flash_size=4 MiB"
    );
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(directory.path());
    let mut client = served.connect();
    assert_eq!(
        shown(&mut client),
        "flash_clean_order=recovery-lsn flash_daily_writes=40 GiB flash_design=lazy-cleaning flash_dirty_limit=95 flash_fill=aggressive flash_restart=lazy-verification flash_scans=read-ahead flash_size=4 MiB"
    );
    client.batch_execute("alter system reset flash_dirty_limit").unwrap();
    client.batch_execute("alter system set flash_size = '8MiB'").unwrap();
    // A size for which the drive has no room is refused, and later changes still work.
    let refused = client.batch_execute("alter system set flash_size = '65TiB'").unwrap_err();
    assert!(
        refused.as_db_error().unwrap().message().starts_with("flash.size must be between"),
        "{refused:?}"
    );
    let refused = client.batch_execute("alter system set flash_size = '2TiB'").unwrap_err();
    assert_eq!(refused.code(), Some(&postgres::error::SqlState::DISK_FULL), "{refused}");
    client.batch_execute("alter system set flash_daily_writes = '41GiB'").unwrap();
    assert!(
        shown(&mut client).contains("flash_dirty_limit=30 ")
            && shown(&mut client).ends_with("flash_size=8 MiB")
    );
    assert_eq!(served.stop("-TERM").0, Some(0));
}

/// The lost cache had the only copies of changed pages: the database stops. The next start has all commits.
#[test]
fn a_lost_cache_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[flash]\ndevice = 'main'\nsize = '64MiB'\ndesign = 'lazy-cleaning'\ndirty_limit = 95\n";
    std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    let mut served = Served::start(directory.path());
    let mut client = served.connect();
    // The rows have more bytes than the pool of these tests.
    let rows = "insert into item select n, repeat('a', 900) from generate_series(1, 24000) n";
    client.batch_execute("create table item (id integer primary key, name text)").unwrap();
    client.batch_execute(rows).unwrap();
    // The file is damaged at once, because an idle database writes its changed pages to the data files.
    let file = std::fs::OpenOptions::new().write(true).open(directory.path().join("flash.varve")).unwrap();
    file.set_len(4096).unwrap();
    let sum = "select sum(id + length(name)) from item";
    let changes_nothing = "update item set name = name where id = 1";
    let is_stopped = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        client.query_one(sum, &[]).is_err() || client.batch_execute(changes_nothing).is_err()
    });
    assert!(is_stopped, "home lacked something");
    drop(client);
    let mut errors = served.process.stderr.take().unwrap();
    served.stop("-TERM");
    let mut told = String::new();
    errors.read_to_string(&mut told).unwrap();
    let is_said =
        |line: &str| line.contains("WARNING:  the flash cache on ") && line.contains("is lost with ");
    assert!(told.lines().any(is_said), "{told}");
    let served = Served::start(directory.path());
    let mut client = served.connect();
    let expected = 24_000_i64 * 24_001 / 2 + 24_000 * 900;
    assert_eq!(client.query_one(sum, &[]).unwrap().get::<_, i64>(0), expected);
    let counted = "select count(*) > 0 from varve_levels
                   where level = 'flash' and counter in ('read_hits_leaf', 'read_misses_leaf') and value > 0";
    assert!(client.query_one(counted, &[]).unwrap().get::<_, bool>(0));
    assert_eq!(served.stop("-TERM").0, Some(0));
}

/// A start needs each drive but the cache's. When the drive of the cache is back, the cache is used again.
#[test]
fn a_cache_whose_drive_is_missing_is_done_without() {
    let directory = tempfile::tempdir().unwrap();
    let fast = directory.path().join("fast");
    let text = |more: &str| {
        format!("[devices.fast]\npath = 'fast'\n[flash]\ndevice = 'fast'\nsize = '4MiB'\n{more}")
    };
    let place = |more: &str| std::fs::write(directory.path().join("varve.toml"), text(more)).unwrap();
    // Returns whether there is a cache, and the output on stderr.
    let serve = |sql: &str| {
        let mut served = Served::start(directory.path());
        let has_cache = served.said.contains("flash cache: 4 MiB on fast");
        let mut client = served.connect();
        client.batch_execute(sql).unwrap();
        assert_eq!(names(&mut client), ["lamp"]);
        drop(client);
        let mut errors = served.process.stderr.take().unwrap();
        assert_eq!(served.stop("-TERM").0, Some(0));
        let mut told = String::new();
        errors.read_to_string(&mut told).unwrap();
        (has_cache, told)
    };
    let is_told = |(has_cache, told): (bool, String), why: &str| {
        let begin = "WARNING:  there is no flash cache until the next start: The device \"fast\" (space: flash) has the ";
        let is_right = told.contains(begin) && told.contains(fast.to_str().unwrap()) && told.contains(why);
        assert!(!has_cache && is_right && told.lines().count() == 1, "{told}");
    };
    let nothing = (true, String::new());
    place("");
    // The same holds for a new database.
    let made = "create table item (id integer primary key, name text); insert into item values (1, 'lamp')";
    is_told(serve(made), "doesn't exist");
    std::fs::create_dir(&fast).unwrap();
    assert_eq!(serve(""), nothing);
    std::fs::remove_dir_all(&fast).unwrap();
    is_told(serve("alter system set flash_design = 'clean-write'"), "doesn't exist");
    std::fs::write(&fast, "").unwrap();
    is_told(serve(""), "is no directory");
    std::fs::remove_file(&fast).unwrap();
    assert_eq!(check(directory.path()).0, Some(0), "nobody needs it");
    place("[spaces]\ntemporary = 'fast'\n");
    let (code, told) = check(directory.path());
    let expected = "The device \"fast\" (space: temporary, flash) has the directory";
    assert!(code == Some(1) && told.contains(expected), "{told}");
    place("");
    std::fs::create_dir(&fast).unwrap();
    assert_eq!(serve(""), nothing);
}

/// Found by a new user: the error blamed the configuration, and the advised command failed, too.
#[test]
fn a_missing_region_is_not_the_fault_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[nvm]\ndevice = 'main'\nsize = '4MiB'\n[protection]\nkind = 'nvm'\n";
    std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    drop(Served::start(directory.path()).stop("-KILL"));
    std::fs::remove_file(directory.path().join("nvm.varve")).unwrap();
    let place = directory.path().to_str().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_varve")).args(["nvm", "status", place]).output().unwrap();
    let said = String::from_utf8(status.stdout).unwrap();
    assert!(said.contains("is missing") && said.contains("it is not known whether the"), "{said}");
    assert!(!said.contains("says something else"), "{said}");
}

/// Found earlier: settings of ALTER SYSTEM about persistent memory made `varve nvm drain` and starts fail.
#[test]
fn what_was_altered_does_not_bar_the_way_out_of_persistent_memory() {
    let directory = tempfile::tempdir().unwrap();
    let place = |text: &str| std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    place("[nvm]\ndevice = 'main'\nsize = '4MiB'\n[protection]\nkind = 'nvm'\n");
    let served = Served::start(directory.path());
    for statement in [
        "create table item (id integer, name text); insert into item values (1, 'a')",
        "alter system set nvm_high_water = 85",
        "alter system set protection_kind = 'nvm'",
        "alter system set pool_page_writers = 2",
    ] {
        served.connect().batch_execute(statement).unwrap();
    }
    assert_eq!(served.stop("-TERM").0, Some(0));
    place("");
    let run = |arguments: &[&str]| {
        let place = directory.path().to_str().unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_varve")).args(arguments).arg(place).output().unwrap();
        let [said, told] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
        (done.status.code(), said, told)
    };
    let (code, said, told) = run(&["nvm", "status"]);
    assert!(code == Some(0) && said.contains("the newest pages"), "{said}{told}");
    assert!(told.contains("nvm_high_water is left out") && !told.contains("nvm.size"), "{told}");
    let (code, said, told) = run(&["nvm", "drain"]);
    assert!(code == Some(0) && said.contains("needs no persistent memory"), "{said}{told}");
    let served = Served::start(directory.path());
    assert!(served.said.contains("protection doublewrite,"), "{}", served.said);
    assert!(served.said.contains("(ALTER SYSTEM) says: pool_page_writers\n"), "{}", served.said);
    assert_eq!(names(&mut served.connect()), ["a"]);
    assert_eq!(served.stop("-TERM").0, Some(0));
    // A wrong setting that does not depend on others is still an error, but `varve nvm drain` works.
    std::fs::write(directory.path().join("varve.auto.toml"), "[pool]\nsize = 1\n").unwrap();
    assert_eq!(run(&["serve"]).0, Some(1));
    assert_eq!(run(&["nvm", "drain"]).0, Some(0));
}

/// A server that is killed before a clean stop starts again with the old protection.
#[test]
fn full_page_log_waits_for_a_clean_stop() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served.connect().batch_execute("alter system set protection_kind = 'full-page-log'").unwrap();
    assert_eq!(served.stop("-KILL").0, None);
    let served = Served::start(directory.path());
    assert!(served.said.contains("protection doublewrite,"), "{}", served.said);
    assert!(
        served.said.contains("warning: protection full-page-log begins behind a shutdown"),
        "{}",
        served.said
    );
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(directory.path());
    assert!(served.said.contains("protection full-page-log,"), "{}", served.said);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn the_log_lies_in_persistent_memory() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[nvm]\ndevice = 'main'\nsize = '8MiB'\nlog = '4MiB'\nemulate = 'pcm'\n";
    std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    let served = Served::start(directory.path());
    let place = directory.path().join("nvm.varve");
    let said = |part: &str| assert!(served.said.contains(part), "{}", served.said);
    said(&format!("nvm: 8 MiB in {}: ", place.display()));
    said(" with the times of pcm, ");
    said(", log of 4 MiB\n");
    let mut client = served.connect();
    client
        .batch_execute("create table item (id integer, name text); insert into item values (1, 'a')")
        .unwrap();
    // Arulraj 2015, table 1: a cell lasts 10^10 writes, a bit takes 2 pJ. A cache line has 512 bits.
    let cell = "select cell_endurance_writes, modelled_write_joules / written_back_lines from varve_nvm";
    let cell = client.query_one(cell, &[]).unwrap();
    let (endurance, joules): (i64, f64) = (cell.get(0), cell.get(1));
    assert!(endurance == 10_000_000_000 && (joules - 1.024e-9).abs() < 1e-15, "{endurance}, {joules}");
    assert_eq!(served.stop("-KILL").0, None);
    let served = Served::start(directory.path());
    assert_eq!(names(&mut served.connect()), ["a"]);
    assert_eq!(served.stop("-TERM").0, Some(0));
    assert_eq!(check(directory.path()).0, Some(0));
    std::fs::rename(directory.path().join("nvm.varve"), directory.path().join("away.varve")).unwrap();
    let (code, told) = check(directory.path());
    assert!(
        code == Some(1) && told.contains("nvm.varve is missing, and has the log of the database"),
        "{told}"
    );
}

/// Another session ends this session. The test uses all layers.
#[test]
fn a_session_is_ended_by_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut victim, mut other) = (served.connect(), served.connect());
    let number: i32 = victim.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    victim.batch_execute("create table t (n integer)").unwrap();
    victim.batch_execute("begin; insert into t values (1)").unwrap();
    let ended: bool = other.query_one("select pg_terminate_backend($1, 10000)", &[&number]).unwrap().get(0);
    assert!(ended);
    let error = victim.batch_execute("commit").unwrap_err();
    let told = error.as_db_error().is_some_and(|error| error.code().code() == "57P01");
    assert!(told || error.is_closed(), "{error}");
    assert_eq!(other.query("select * from t", &[]).unwrap().len(), 0);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn clients_are_told_of_the_stop() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    client.batch_execute("create table t (n integer)").unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    let error = client.batch_execute("select 1").unwrap_err();
    let told = error.as_db_error().is_some_and(|error| error.code().code() == "57P01");
    assert!(told || error.is_closed(), "{error}");
}

/// Found earlier: a cross join below an aggregate did not stop, so the server ended without a checkpoint.
#[test]
fn a_stop_ends_a_join_of_many_rows() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    let fill = "create table n (id int primary key); insert into n select generate_series(1, 10000)";
    client.batch_execute(fill).unwrap();
    let busy = std::thread::spawn(move || client.batch_execute("select count(*) from n a, n b, n c"));
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(!busy.is_finished());
    let last_words = "stopping: ending sessions, writing a checkpoint\nstopped\n";
    assert_eq!(served.stop("-TERM"), (Some(0), last_words.into()));
    assert!(busy.join().unwrap().is_err());
}

#[test]
fn damage_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    served
        .connect()
        .batch_execute("create table t (n integer primary key); insert into t values (1), (2)")
        .unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    let file = directory.path().join("data.varve");
    let mut bytes = std::fs::read(&file).unwrap();
    // One bit in the middle of each page that is not empty is changed.
    for page in bytes.chunks_mut(8192).filter(|page| page.iter().any(|byte| *byte != 0)) {
        page[4000] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    let (code, text) = check(directory.path());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("damage") && text.contains("page"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

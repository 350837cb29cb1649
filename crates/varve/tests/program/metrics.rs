//! The endpoint of metrics over a real socket: the text for Prometheus, the live page, and wrong requests.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postgres::{Client, NoTls};

struct Served {
    process: Child,
    port: u16,
    metrics: String,
}

impl Served {
    fn start(directory: &Path, settings: &str) -> Served {
        std::fs::write(directory.join("varve.toml"), settings).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["serve", directory.to_str().unwrap(), "--listen", "127.0.0.1:0", "--pool", "16MiB"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut metrics = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            if let Some(rest) = line.strip_prefix("metrics on http://") {
                metrics = rest.split('/').next().unwrap().to_owned();
            }
            line.strip_prefix("listening on 127.0.0.1:")?.parse().ok()
        });
        Served { process, port: port.unwrap(), metrics }
    }

    fn connect(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        Client::connect(&config, NoTls).unwrap()
    }

    /// Sends bytes, and returns all bytes of the answer.
    fn send(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Returns the status line, the headers and the body of an answer to GET.
    fn get(&self, path: &str, host: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = self.send(request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        (head.to_owned(), body.to_owned())
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let (head, body) = self.get("/metrics", "127.0.0.1");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text; version=1.0.0"),
            "{head}"
        );
        checked(&body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Checks each line of the text format, and returns the samples. A metric has HELP, TYPE and UNIT before its
/// samples, its name ends with its unit, and the sample of a counter with `_total`.
fn checked(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut described: BTreeMap<&str, (bool, Option<&str>, Option<&str>)> = BTreeMap::new();
    let mut current = "";
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# ") {
            let (kind, rest) = rest.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            current = name;
            let entry = described.entry(name).or_default();
            match kind {
                "HELP" => entry.0 = !value.trim_end_matches('.').is_empty(),
                "TYPE" => entry.1 = Some(value),
                "UNIT" => entry.2 = Some(value),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let bare = name.split('{').next().unwrap();
        let (has_help, kind, unit) = described[current];
        let (kind, unit) = (kind.unwrap(), unit.unwrap_or_else(|| panic!("no unit: {line}")));
        assert!(has_help, "no help: {line}");
        let expect = if kind == "counter" { format!("{current}_total") } else { current.to_owned() };
        assert_eq!(bare, expect, "{line}");
        assert!(current.starts_with("varve_") && current.ends_with(&format!("_{unit}")), "{line}");
        assert!(["counter", "gauge"].contains(&kind), "{line}");
        if let Some(labels) = name.strip_prefix(bare).filter(|labels| !labels.is_empty()) {
            let inside = labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap();
            for label in inside.split("\",") {
                let (key, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
                let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
                assert!(
                    key.chars().all(is_name) && !value.trim_end_matches('"').contains(['"', '\n']),
                    "{line}"
                );
            }
        }
        let number: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(number >= 0.0 && number.is_finite(), "{line}");
        assert!(samples.insert(name.to_owned(), number).is_none(), "twice: {line}");
    }
    samples
}

const SETTINGS: &str = "[metrics]\nlisten = '127.0.0.1:0'\n[devices.main]\nendurance = '600TB'\n";

#[test]
fn each_line_of_the_metrics_is_right_and_counters_grow() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), SETTINGS);
    let mut client = served.connect();
    client.batch_execute("create table t (id int primary key, v text)").unwrap();
    client.batch_execute("insert into t select n, 'x' from generate_series(1, 100) n").unwrap();
    let before = served.metrics();
    for id in 0..20 {
        client.batch_execute(&format!("update t set v = 'y' where id = {id}")).unwrap();
    }
    let after = served.metrics();
    let grown = |name: &str| after[name] - before[name];
    assert!(grown("varve_ended_transactions_total{outcome=\"commit\"}") >= 19.0);
    assert!(grown("varve_run_statements_total") >= 20.0, "statements are counted with the endpoint");
    assert!(grown("varve_log_flushes_total") > 0.0 && grown("varve_log_appended_bytes_total") > 0.0);
    assert!(grown("varve_level_hit_pages_total{level=\"pool\"}") > 0.0);
    let place = directory.path().canonicalize().unwrap();
    let device = |what: &str| format!("{what}{{device=\"{}\"", place.display());
    assert!(after.contains_key(&(device("varve_device_free_bytes") + "}")), "{after:?}");
    assert_eq!(
        after[&(device("varve_device_rated_write_bytes") + "}")],
        600.0 * f64::from(1 << 20) * f64::from(1 << 20)
    );
    let is_p99 =
        |name: &str| name.starts_with(&device("varve_device_latency_seconds")) && name.contains("0.99");
    assert!(after.keys().any(|name| is_p99(name)), "{after:?}");
    assert_eq!(after["varve_open_sessions{state=\"idle\"}"], 1.0);
    // The dashboard asks only for metrics that are there.
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../dashboards/varve.json")).unwrap();
    let sent: Vec<&str> = after.keys().map(|name| name.split('{').next().unwrap()).collect();
    let expressions = dashboard["panels"].as_array().unwrap().iter();
    let expressions = expressions.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut asked = 0;
    for expression in expressions.map(|target| target["expr"].as_str().unwrap()) {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| word.starts_with("varve_")) {
            assert!(sent.contains(&metric), "{metric} of the dashboard is not sent");
            asked += 1;
        }
    }
    assert!(asked > 30, "{asked}");
    for (name, value) in &after {
        let earlier = before.get(name).copied().unwrap_or(0.0);
        assert!(!name.split('{').next().unwrap().ends_with("_total") || *value >= earlier, "{name} shrinks");
    }
}

#[test]
fn connections_without_a_request_do_not_lock_out_others_and_counters_never_fall() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), SETTINGS);
    let mut client = served.connect();
    client.batch_execute("select 1; select 2").unwrap();
    let before = served.metrics();
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&served.metrics).unwrap()).collect();
    client.batch_execute("select pg_stat_statements_reset()").unwrap();
    let began = std::time::Instant::now();
    let after = served.metrics();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    drop(silent);
    for counter in
        ["varve_run_statements_total", "varve_statement_seconds_total", "varve_statement_rows_total"]
    {
        assert!(after[counter] >= before[counter], "{counter}: {} and {}", before[counter], after[counter]);
    }
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_its_figures_have_the_waits() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), SETTINGS);
    let (head, page) = served.get("/", "localhost");
    assert!(head.contains("content-type: text/html") && head.contains("default-src 'none'"), "{head}");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains(" src="), "a link");
    let (mut one, mut two) = (served.connect(), served.connect());
    one.batch_execute("create table t (id int primary key, v int); insert into t values (1, 1)").unwrap();
    one.batch_execute("begin; update t set v = 2").unwrap();
    let pid: i32 = one.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let waiter = std::thread::spawn(move || two.batch_execute("update t set v = 3"));
    let figures = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let (head, body) = served.get("/figures.json", "127.0.0.1:9187");
        assert!(head.contains("content-type: application/json"), "{head}");
        let figures: serde_json::Value = serde_json::from_str(&body).unwrap();
        let waits = |session: &serde_json::Value| session["blocked_by"] == serde_json::json!([pid]);
        figures["sessions"].as_array().unwrap().iter().any(waits).then_some(figures)
    });
    one.batch_execute("commit").unwrap();
    waiter.join().unwrap().unwrap();
    let figures = figures.unwrap();
    let has = |list: &str, key: &str, value: &str| {
        figures[list].as_array().unwrap().iter().any(|one| one[key].as_str().unwrap().contains(value))
    };
    assert!(has("levels", "level", "pool") && has("levels", "level", "home"), "{figures}");
    assert!(has("statements", "query", "update t set v = $1"), "{figures}");
    assert!(has("tables", "table", "postgres.public.t"), "{figures}");
    assert_eq!(figures["transactions"]["locks_awaited"], 1);
    // The page uses no figure that is not there.
    for field in
        ["levels", "devices", "log", "transactions", "sessions", "statements", "tables", "lost_messages"]
    {
        assert!(page.contains(&format!(".{field}")) && figures.get(field).is_some(), "{field}");
    }
}

#[test]
fn wrong_requests_are_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), SETTINGS);
    assert!(served.get("/nothing", "localhost").0.starts_with("HTTP/1.1 404"));
    // A name of another site that leads here gets metrics, and no statements.
    assert!(served.get("/figures.json", "evil.example").0.starts_with("HTTP/1.1 403"));
    assert!(served.get("/", "evil.example:80").0.starts_with("HTTP/1.1 403"));
    assert!(served.get("/metrics", "evil.example").0.starts_with("HTTP/1.1 200"));
    let post = served.send(
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    );
    assert!(post.starts_with("HTTP/1.1 405") && post.to_lowercase().contains("allow: get, head"), "{post}");
    let head = served.send(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    for wrong in [
        b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 1 << 20]].concat(),
        vec![0; 4096],
    ] {
        let answer = served.send(&wrong);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // Clients that say nothing are dropped, and do not keep others out for long.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&served.metrics).unwrap()).collect();
    assert!(served.get("/metrics", "localhost").0.starts_with("HTTP/1.1 200"));
    drop(silent);
    served.connect().batch_execute("select 1").unwrap();
}

#[test]
fn without_the_setting_there_is_no_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), "");
    assert_eq!(served.metrics, "");
    let on: bool =
        served.connect().query_one("select count(*) > 0 from pg_stat_statements", &[]).unwrap().get(0);
    assert!(!on, "statements are not counted");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("varve.toml"), format!("[metrics]\nlisten = '{address}'\n"))
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["serve", directory.path().to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains(&format!("can't listen on {address}")), "{told}");
}

//! Tests of `varve sql`: scripts, commands, formats, loading, errors, Ctrl-C, exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Exit code, standard output, standard error.
type Done = (Option<i32>, String, String);

fn start(directory: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["sql", directory.to_str().unwrap(), "--pool", "8MiB"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> Done {
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// Runs the shell with `input` on standard input.
fn run(directory: &Path, arguments: &[&str], input: &str) -> Done {
    let mut child = start(directory, arguments);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    finish(child)
}

fn check(directory: &Path, arguments: &[&str], input: &str, expect: (i32, &str, &str)) {
    let (code, out, err) = run(directory, arguments, input);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (Some(expect.0), expect.1, expect.2),
        "{arguments:?} {input}"
    );
}

#[test]
fn a_script_shows_tables_and_tags() {
    let home = tempfile::tempdir().unwrap();
    let script = "create table item (id int primary key, name text); -- a comment;\n\
                  insert into item\n  values (1, 'lamp; old'), (2, null), (30, E'two\\nlines');\n\
                  select * from item order by id;\n\
                  select 1 as one where false;\n\
                  update item set name = 'x' where id = 2 returning id\n";
    let expect = "CREATE TABLE\nINSERT 0 3\n \
                  id |   name    \n----+-----------\n  1 | lamp; old\n  2 | \n 30 | two      +\n    | lines\n(3 rows)\n\n \
                  one \n-----\n(0 rows)\n\n \
                  id \n----\n  2\n(1 row)\n\nUPDATE 1\n";
    check(home.path(), &[], script, (0, expect, ""));
    check(
        home.path(),
        &["-c", "select count(*) from item"],
        "",
        (0, " count \n-------\n     3\n(1 row)\n\n", ""),
    );
}

#[test]
fn csv_and_json_hold_rows_only() {
    let home = tempfile::tempdir().unwrap();
    let values = "select 1 as a, 'x,\"y\"' as b, null as c, '' as d, true as e, 1.50 as f, 'nan'::float8 as g, '{\"k\": [1]}'::json as h";
    check(
        home.path(),
        &["--format", "csv", "-c", values],
        "",
        (0, "a,b,c,d,e,f,g,h\n1,\"x,\"\"y\"\"\",,\"\",t,1.50,NaN,\"{\"\"k\"\": [1]}\"\n", ""),
    );
    let row =
        r#" {"a": 1, "b": "x,\"y\"", "c": null, "d": "", "e": true, "f": 1.50, "g": "NaN", "h": {"k": [1]}}"#;
    check(home.path(), &["--format", "json", "-c", values], "", (0, &format!("[\n{row}\n]\n"), ""));
    check(home.path(), &["--format", "json", "-c", "select 1 where false"], "", (0, "[]\n", ""));
    check(home.path(), &["--format", "csv", "-c", "create table t (a int)"], "", (0, "", ""));
}

#[test]
fn an_error_is_marked_and_ends_a_script() {
    let home = tempfile::tempdir().unwrap();
    let script = "select 1 as a;\nselect a,\n  nothing from\n  (select 1 as a) x;\nselect 2;\n";
    let expect = "ERROR:  42703: column \"nothing\" does not exist\nLINE 2:   nothing from\n          ^\n";
    check(home.path(), &[], script, (1, " a \n---\n 1\n(1 row)\n\n", expect));
    let file = home.path().with_extension("sql");
    std::fs::write(&file, script).unwrap();
    assert_eq!(run(home.path(), &["-f", file.to_str().unwrap()], "").0, Some(1));
    std::fs::remove_file(&file).unwrap();
    let (code, _, err) = run(home.path(), &["-f", "missing.sql"], "");
    assert_eq!(code, Some(1));
    assert!(err.starts_with("varve: missing.sql cannot be read: "), "{err}");
    assert_eq!(run(home.path(), &["--format", "xml"], "").0, Some(2));
    // Several statements of one -c are one transaction.
    let (code, _, err) = run(home.path(), &["-c", "create table t (a int); insert into t values ('x')"], "");
    assert_eq!(code, Some(1));
    assert!(err.contains("22P02"), "{err}");
    assert!(run(home.path(), &["-c", "select * from t"], "").2.contains("42P01"));
}

#[test]
fn commands_ask_the_catalog() {
    let home = tempfile::tempdir().unwrap();
    let schema = "create table dept (id int primary key, name text not null default 'x', check (id > 0));\n\
                  create table emp (id bigint generated always as identity primary key, dept int references dept);\n\
                  create index on emp (dept);\ncreate view v as select name from dept;\n";
    assert_eq!(run(home.path(), &[], schema).0, Some(0));
    let (code, out, err) = run(home.path(), &["-c", "\\d"], "");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        " public | dept       | table    | ",
        " public | v          | view     | ",
        " public | emp_id_seq | sequence | ",
    ] {
        assert!(out.contains(line), "{line} is not in\n{out}");
    }
    let (code, out, err) = run(home.path(), &[], "\\d dept\n\\d v\n\\d emp\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        " name   | text    | not null | 'x'\n",
        "CREATE UNIQUE INDEX dept_pkey ON public.dept USING btree (id)",
        "CHECK ((id > 0))",
        "Referenced by",
        "FOREIGN KEY (dept) REFERENCES dept(id)",
        "generated always as identity",
    ] {
        assert!(out.contains(line), "{line} is not in\n{out}");
    }
    for command in ["\\dt", "\\di", "\\dv", "\\ds", "\\dn", "\\du", "\\?", "\\timing"] {
        assert_eq!(run(home.path(), &["-c", command], "").0, Some(0), "{command}");
    }
    let (code, _, err) = run(home.path(), &["-c", "\\d nothing"], "");
    assert_eq!(code, Some(1));
    assert!(err.starts_with("ERROR:  42P01: relation \"nothing\" does not exist"), "{err}");
    check(
        home.path(),
        &["-c", "\\nope"],
        "",
        (1, "", "varve: \\nope is no command; \\? shows those that there are\n"),
    );
}

#[test]
fn files_and_lines_are_loaded() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().with_extension("csv");
    let lines: String = (0..100_000).map(|n| format!("{n},\"row {n}\"\n")).collect();
    std::fs::write(&data, lines).unwrap();
    let load = format!("\\copy t from '{}' with (format csv)\n", data.display());
    let script = format!("create table t (a int, b text);\n{load}select count(*), max(b) from t;\n");
    let expect = "CREATE TABLE\nCOPY 100000\n count  |    max    \n--------+-----------\n 100000 | row 99999\n(1 row)\n\n";
    check(home.path(), &[], &script, (0, expect, ""));
    std::fs::remove_file(&data).unwrap();
    let inline =
        "copy t (a, b) from stdin;\n-1\tone\n-2\t\\N\n\\.\nselect b from t where a < 0 order by a;\n";
    check(home.path(), &[], inline, (0, "COPY 2\n  b  \n-----\n \n one\n(2 rows)\n\n", ""));
    // If a COPY fails, its data must not run as statements.
    let (code, out, err) = run(home.path(), &[], "copy t from stdin;\nx\ty\n1\tz\n\\.\nselect 1;\n");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("ERROR:  22P02") && err.contains("CONTEXT:  COPY t, line 1"), "{err}");
    let saved = home.path().with_extension("txt");
    let save = format!(
        "\\copy (select a, b from t where a < 2 order by a) to '{}' with (format csv)",
        saved.display()
    );
    check(home.path(), &["-c", &save], "", (0, "COPY 4\n", ""));
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), "-2,\n-1,one\n0,row 0\n1,row 1\n");
    std::fs::remove_file(&saved).unwrap();
    check(home.path(), &["-c", "copy (select 1, null) to stdout"], "", (0, "1\t\\N\n", ""));
    let (code, _, err) = run(home.path(), &["-c", "\\copy t from 'missing.csv'"], "");
    assert_eq!(code, Some(1));
    assert!(err.starts_with("varve: missing.csv cannot be read: "), "{err}");
}

/// Found earlier: carriage returns before a line feed were lost, in data and in literals.
#[test]
fn carriage_returns_arrive() {
    let home = tempfile::tempdir().unwrap();
    let script = "create table t (a text);\r\ncopy t from stdin csv;\n\"x\r\ny\"\n\\.\n\
                  insert into t values ('p\r\nq');\r\nselect a, length(a) from t order by a;\r\n";
    let expect = "a,length\n\"p\r\nq\",4\n\"x\r\ny\",4\n";
    check(home.path(), &["--format", "csv"], script, (0, expect, ""));
    // A line may end with a carriage return and a line feed, and COPY data need not be text.
    let lines = "copy t from stdin;\r\none\r\ntwo\r\n\\.\r\nselect count(*), max(length(a)) from t;\r\n";
    check(home.path(), &["--format", "csv"], lines, (0, "count,max\n4,4\n", ""));
    let mut child = start(home.path(), &["-c", "\\copy t from stdin"]);
    child.stdin.take().unwrap().write_all(b"caf\xe9").unwrap();
    let (code, _, err) = finish(child);
    assert_eq!((code, err.contains("22021")), (Some(1), true), "{err}");
}

#[test]
fn copy_finds_its_file_and_leaves_it_until_it_writes() {
    let home = tempfile::tempdir().unwrap();
    let saved = home.path().with_extension("it's.txt");
    std::fs::write(&saved, "kept").unwrap();
    let name = saved.display().to_string().replace('\'', "''");
    let (code, _, err) = run(home.path(), &["-c", &format!("\\copy nothing to '{name}'")], "");
    assert_eq!((code, err.contains("42P01")), (Some(1), true), "{err}");
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), "kept");
    let save = format!("\\copy (select ')' from generate_series(1, 2))\tto '{name}'");
    check(home.path(), &["-c", &save], "", (0, "COPY 2\n", ""));
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), ")\n)\n");
    std::fs::remove_file(&saved).unwrap();
    let (code, _, err) = run(home.path(), &["-c", "\\copy (select 1) to '/nowhere/x'"], "");
    assert_eq!(code, Some(1));
    assert!(err.contains("/nowhere/x cannot be written: "), "{err}");
    check(home.path(), &["-c", "\\copy (select 1) to stdout"], "", (0, "1\n", ""));
}

#[test]
fn a_file_that_leaves_goes_back_to_the_one_before() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().with_extension("sql");
    std::fs::write(&file, "select 1 as a;\n\\q\nselect 2;\n").unwrap();
    let script = format!("\\i {}\nselect 3 as a;\n", file.display());
    check(home.path(), &["--format", "csv"], &script, (0, "a\n1\na\n3\n", ""));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn tables_without_columns_and_with_controls() {
    let home = tempfile::tempdir().unwrap();
    check(home.path(), &["-c", "select from generate_series(1, 3000)"], "", (0, "--\n(3000 rows)\n\n", ""));
    let control = r"select E'\x1b[2J\r' as a, E'1\t2' as b";
    check(
        home.path(),
        &["-c", control],
        "",
        (0, "     a     |     b     \n-----------+-----------\n \\x1B[2J\\r | 1       2\n(1 row)\n\n", ""),
    );
}

#[test]
fn a_second_process_is_told_who_is_first() {
    let home = tempfile::tempdir().unwrap();
    let mut first = start(home.path(), &["-c", "select 'ready'", "-c", "select pg_sleep(20)"]);
    wait_for_output(&mut first);
    let (code, _, err) = run(home.path(), &["-c", "select 1"], "");
    assert_eq!(code, Some(1));
    assert!(err.contains("another process"), "{err}");
    interrupt(&first);
    assert_eq!(finish(first).0, Some(1));
}

#[test]
fn ctrl_c_cancels_the_statement() {
    let home = tempfile::tempdir().unwrap();
    let mut child =
        start(home.path(), &["-c", "select 'ready'", "-c", "select pg_sleep(20)", "-c", "select 1"]);
    wait_for_output(&mut child);
    let began = Instant::now();
    interrupt(&child);
    let (code, out, err) = finish(child);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(err, "ERROR:  57014: canceling statement due to user request\n");
    check(home.path(), &["--format", "csv", "-c", "select 7 as a"], "", (0, "a\n7\n", ""));
}

/// Waits for the first result. Then the next statement is running, or will run soon.
fn wait_for_output(child: &mut Child) {
    use std::io::Read;
    let mut seen = String::new();
    let out = child.stdout.as_mut().unwrap();
    while !seen.ends_with("(1 row)\n\n") {
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        seen.push(char::from(byte[0]));
    }
    std::thread::sleep(Duration::from_millis(500));
}

fn interrupt(child: &Child) {
    let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

//! The shell's commands, which begin with a backslash. They show objects of the catalog, load files, or
//! change settings of the shell.
//!
//! Invariants
//! 1. A command that shows objects sends a query on the system catalog. Any client could send the same query.

use std::path::PathBuf;

use super::output::Format;
use super::split::Scan;

/// A command of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Statements whose results are shown, each below a heading.
    Ask(Vec<(&'static str, String)>),
    /// Loads a file: the COPY statement, and the file.
    Load(String, PathBuf),
    /// Saves rows to a file: the COPY statement, and the file.
    Save(String, PathBuf),
    /// An ordinary statement.
    Statement(String),
    /// Runs the statements of a file.
    Include(PathBuf),
    /// Sets the format of results.
    Format(Format),
    /// Switches the display of the time of statements on or off.
    Timing,
    /// Shows help.
    Help,
    /// Ends the shell.
    Quit,
}

/// `\?`
pub const HELP: &str = "\
\\d                     tables, views and sequences
\\d NAME                columns, indexes and constraints of a table; columns and query of a view
\\dt \\dv \\di \\ds \\dn \\du  tables, views, indexes, sequences, schemas, roles
\\copy TABLE from 'FILE' [with (OPTIONS)]   load a file
\\copy TABLE|(QUERY) to 'FILE' [with (OPTIONS)]   save rows
\\i FILE                run the statements of a file
\\format table|csv|json how results are shown
\\timing                say how long each statement takes, or stop saying it
\\q                     leave (so does Ctrl-D)

A statement ends with a semicolon and may have many lines. Ctrl-C gives up what was begun and cancels what runs.
";

/// Reads a line that begins with a backslash. The error describes the mistake.
pub fn read(line: &str) -> Result<Command, String> {
    let line = line.trim().trim_end_matches(';').trim_end();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "\\?" | "\\h" | "\\help" => Ok(Command::Help),
        "\\q" | "\\quit" => Ok(Command::Quit),
        "\\timing" => Ok(Command::Timing),
        "\\i" if !rest.is_empty() => Ok(Command::Include(unquoted(rest).into())),
        "\\i" => Err("\\i needs the name of a file".to_owned()),
        "\\format" => match <Format as clap::ValueEnum>::from_str(rest, true) {
            Ok(format) => Ok(Command::Format(format)),
            Err(_) => Err("\\format needs table, csv or json".to_owned()),
        },
        "\\copy" => copy(rest),
        "\\d" if !rest.is_empty() => Ok(Command::Ask(describe(rest))),
        "\\d" => Ok(list(&["r", "p", "v", "S"])),
        "\\dt" => Ok(list(&["r", "p"])),
        "\\dv" => Ok(list(&["v"])),
        "\\di" => Ok(list(&["i", "I"])),
        "\\ds" => Ok(list(&["S"])),
        "\\dn" => Ok(Command::Ask(vec![("", SCHEMAS.to_owned())])),
        "\\du" | "\\dg" => Ok(Command::Ask(vec![("", ROLES.to_owned())])),
        _ => Err(format!("{word} is no command; \\? shows those that there are")),
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(text)
}

/// Reads `TABLE [(COLUMNS)] from 'FILE' [OPTIONS]`, or the same with `to`. Before `to`, a query in
/// parentheses may replace the table. The name of the file is in quotes or has no blanks. STDIN and STDOUT
/// without quotes mean the same as in COPY.
fn copy(text: &str) -> Result<Command, String> {
    let usage = || "write \\copy TABLE from 'FILE' [with (OPTIONS)], or to 'FILE'".to_owned();
    let (at, word) = direction(text).ok_or_else(usage)?;
    let (what, rest) = (text[..at].trim(), text[at + word.len()..].trim_start());
    let (file, options) = file_name(rest).ok_or_else(usage)?;
    let options = options.trim();
    let is_quoted = rest.starts_with('\'');
    if file.is_empty() || what.is_empty() {
        return Err(usage());
    }
    if !is_quoted && file.eq_ignore_ascii_case("program") {
        return Err("\\copy runs no programs: pipe their output into varve sql".to_owned());
    }
    let stream = if word == "from" { "STDIN" } else { "STDOUT" };
    let sql = format!("COPY {what} {word} {stream} {options}");
    Ok(match word {
        _ if !is_quoted && file.eq_ignore_ascii_case(stream) => Command::Statement(sql),
        "from" => Command::Load(sql, file.into()),
        _ => Command::Save(sql, file.into()),
    })
}

/// Returns the position of the first `from` or `to` outside of quotes, comments and parentheses, and the
/// word.
fn direction(text: &str) -> Option<(usize, &'static str)> {
    let (mut scan, mut is_free) = (Scan::default(), false);
    while let Some(plain) = scan.next(text) {
        let found = ["from", "to"].into_iter().find(|word| {
            let rest = &text.as_bytes()[plain.at..];
            let (begin, behind) = rest.split_at(word.len().min(rest.len()));
            begin.eq_ignore_ascii_case(word.as_bytes()) && behind.first().is_some_and(u8::is_ascii_whitespace)
        });
        if let Some(word) = found.filter(|_| is_free && plain.depth == 0) {
            return Some((plain.at, word));
        }
        is_free = plain.byte.is_ascii_whitespace() || matches!(plain.byte, b')' | b'"');
    }
    None
}

/// Returns the name of a file at the beginning of a text, and the rest of the text. Two quotes within quotes
/// are one.
fn file_name(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('\'') else {
        let (file, options) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        return Some((file.to_owned(), options));
    };
    let mut file = String::new();
    loop {
        let (part, behind) = rest.split_once('\'')?;
        file.push_str(part);
        match behind.strip_prefix('\'') {
            Some(more) => (file, rest) = (file + "'", more),
            None => return Some((file, behind)),
        }
    }
}

const SCHEMAS: &str = "SELECT nspname AS \"Name\", pg_get_userbyid(nspowner) AS \"Owner\" FROM pg_namespace \
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY 1";

const ROLES: &str = "SELECT rolname AS \"Name\", rolsuper AS \"Superuser\", rolcanlogin AS \"May log in\", \
    rolcreaterole AS \"Makes roles\" FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1";

fn list(kinds: &[&str]) -> Command {
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
    let sql = format!(
        "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", \
         CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' \
         WHEN 'i' THEN 'index' WHEN 'I' THEN 'partitioned index' WHEN 'S' THEN 'sequence' END AS \"Type\", \
         pg_get_userbyid(c.relowner) AS \"Owner\" \
         FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ({}) AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' \
         AND n.nspname <> 'information_schema' ORDER BY 1, 2",
        kinds.join(",")
    );
    Command::Ask(vec![("", sql)])
}

/// Returns the statements of `\d NAME`.
fn describe(name: &str) -> Vec<(&'static str, String)> {
    let table = format!("'{}'::regclass", name.replace('\'', "''"));
    let ask = |heading, sql: String| (heading, sql);
    vec![
        ask(
            "",
            format!(
                "SELECT a.attname AS \"Column\", format_type(a.atttypid, a.atttypmod) AS \"Type\", \
                 CASE WHEN a.attnotnull THEN 'not null' ELSE '' END AS \"Nullable\", \
                 CASE a.attidentity WHEN 'a' THEN 'generated always as identity' \
                 WHEN 'd' THEN 'generated by default as identity' \
                 ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), '') END AS \"Default\" \
                 FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
                 WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
            ),
        ),
        ask(
            "Indexes",
            format!(
                "SELECT pg_get_indexdef(indexrelid) AS \"Index\" FROM pg_index WHERE indrelid = {table} ORDER BY 1"
            ),
        ),
        ask(
            "Constraints",
            format!(
                "SELECT conname AS \"Name\", pg_get_constraintdef(oid) AS \"Constraint\" FROM pg_constraint \
                 WHERE conrelid = {table} AND contype IN ('c', 'f') ORDER BY 1"
            ),
        ),
        ask(
            "Referenced by",
            format!(
                "SELECT conrelid::regclass AS \"Table\", conname AS \"Name\", pg_get_constraintdef(oid) AS \"Constraint\" \
                 FROM pg_constraint WHERE confrelid = {table} AND contype = 'f' ORDER BY 1, 2"
            ),
        ),
        ask(
            "Partitions",
            format!(
                "SELECT c.relname AS \"Name\", pg_get_expr(c.relpartbound, c.oid) AS \"Bound\" FROM pg_inherits i \
                 JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = {table} ORDER BY 1"
            ),
        ),
        ask(
            "Query",
            format!(
                "SELECT pg_get_viewdef(oid) AS \"View\" FROM pg_class WHERE oid = {table} AND relkind = 'v'"
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_copy_are_found() {
        let check = |text: &str, sql: &str, file: &str| {
            assert_eq!(read(text), Ok(Command::Load(sql.to_owned(), file.into())), "{text}");
        };
        check("\\copy t from 'a b.csv' with (format csv)", "COPY t from STDIN with (format csv)", "a b.csv");
        check("\\copy s.t (a, b) FROM /tmp/x.txt;", "COPY s.t (a, b) from STDIN ", "/tmp/x.txt");
        check("\\copy t\tfrom\t'it''s.csv'", "COPY t from STDIN ", "it's.csv");
        check("\\copy t from 'stdin'", "COPY t from STDIN ", "stdin");
        let save = |text: &str, sql: &str, file: &str| {
            assert_eq!(read(text), Ok(Command::Save(sql.to_owned(), file.into())), "{text}");
        };
        save("\\copy (select a from t) to 'x' csv", "COPY (select a from t) to STDOUT csv", "x");
        save("\\copy (select ')' from t) to 'x'", "COPY (select ')' from t) to STDOUT ", "x");
        save("\\copy (select 1 /* ) */ from t)TO y", "COPY (select 1 /* ) */ from t) to STDOUT ", "y");
        check("\\copy \"my to t\" from x", "COPY \"my to t\" from STDIN ", "x");
        let here = Command::Statement("COPY t from STDIN csv".to_owned());
        assert_eq!(read("\\copy t from stdin csv"), Ok(here));
        for wrong in [
            "\\copy t",
            "\\copy t from",
            "\\copy t from 'x",
            "\\copy (select a from t)",
            "\\copy t from program 'x'",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_command_is_said() {
        assert_eq!(read("\\nope x"), Err("\\nope is no command; \\? shows those that there are".to_owned()));
        assert_eq!(read("\\format CSV"), Ok(Command::Format(Format::Csv)));
        assert!(read("\\format xml").is_err());
    }
}

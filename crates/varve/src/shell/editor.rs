//! Reads lines from a terminal, with editing, history, and completion of names.
//!
//! Invariants
//! 1. Names for completion are read from the catalog when the user needs them, in a separate session.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Context, Editor, Helper, Highlighter, Hinter, Validator};
use varve_engine::Datum;
use varve_sql::{Session, SessionParams, Sink, SqlDatabase, SqlError};

use super::input::{Lines, Next};

/// The most lines in the history.
const HISTORY_LINES: usize = 2000;
/// The file of the history, in the home directory.
const HISTORY_FILE: &str = ".varve_history";

/// Words with which statements and their parts begin.
const WORDS: &[&str] = &[
    "ALTER TABLE",
    "ANALYZE",
    "AND",
    "AS",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CASE",
    "CHECK",
    "COMMIT",
    "COPY",
    "CREATE INDEX",
    "CREATE TABLE",
    "CREATE VIEW",
    "DEFAULT",
    "DELETE FROM",
    "DISTINCT",
    "DROP TABLE",
    "EXISTS",
    "EXPLAIN",
    "FOREIGN KEY",
    "FROM",
    "GRANT",
    "GROUP BY",
    "HAVING",
    "INSERT INTO",
    "INTO",
    "IS NULL",
    "JOIN",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "NOT NULL",
    "ON",
    "ORDER BY",
    "PRIMARY KEY",
    "REFERENCES",
    "RETURNING",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "SHOW",
    "TABLE",
    "TRUNCATE",
    "UNION",
    "UNIQUE",
    "UPDATE",
    "VALUES",
    "WHERE",
    "WITH",
];
/// The least OID of an object outside the system catalog.
const OBJECTS_FIRST: u32 = 16_384;
const COMMANDS: &[&str] = &[
    "\\?", "\\copy", "\\d", "\\di", "\\dn", "\\ds", "\\dt", "\\du", "\\dv", "\\format", "\\i", "\\q",
    "\\timing",
];

/// A terminal.
pub struct Terminal {
    editor: Editor<Names, FileHistory>,
    history: Option<PathBuf>,
}

impl Terminal {
    /// Returns the terminal of this process. Names are read from the database.
    pub fn open(database: &Arc<SqlDatabase>, user: &str) -> io::Result<Terminal> {
        let config =
            Config::builder().max_history_size(HISTORY_LINES).map_err(lost)?.auto_add_history(true).build();
        let mut editor: Editor<Names, FileHistory> = Editor::with_config(config).map_err(lost)?;
        editor.set_helper(Some(Names { database: database.clone(), user: user.to_owned() }));
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        if let Some(file) = &history {
            // Before the first use of the shell, the file does not exist.
            let _ = editor.load_history(file);
        }
        Ok(Terminal { editor, history })
    }

    fn read(&mut self, prompt: &str) -> io::Result<Next> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Next::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Next::Interrupted),
            Err(ReadlineError::Eof) => Ok(Next::End),
            Err(error) => Err(lost(error)),
        }
    }
}

impl Lines for Terminal {
    fn next_line(&mut self, goes_on: bool) -> io::Result<Next> {
        self.read(if goes_on { "   -> " } else { "varve> " })
    }

    fn next_data(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.read(">> ")? {
            Next::Line(line) => Ok(Some((line + "\n").into_bytes())),
            Next::End => Ok(None),
            Next::Interrupted => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn is_typed(&self) -> bool {
        true
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(file) = &self.history {
            // If the home directory can't be written, there is no history.
            let _ = self.editor.append_history(file);
        }
    }
}

fn lost(error: ReadlineError) -> io::Error {
    io::Error::other(error)
}

/// Completes words and names.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Names {
    database: Arc<SqlDatabase>,
    user: String,
}

impl Completer for Names {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\\' | '?');
        let begin =
            line[..at].char_indices().rev().take_while(|(_, c)| is_part(*c)).last().map_or(at, |(i, _)| i);
        let word = &line[begin..at];
        if word.starts_with('\\') {
            let fits = COMMANDS.iter().filter(|command| command.starts_with(word));
            return Ok((begin, fits.map(|command| (*command).to_owned()).collect()));
        }
        Ok((begin, self.fitting(word)))
    }
}

impl Names {
    /// Returns the names of the catalog and the words that begin with `word`.
    fn fitting(&self, word: &str) -> Vec<String> {
        let mut found = self.of_catalog(word).unwrap_or_default();
        let upper = word.to_ascii_uppercase();
        let is_upper = !word.is_empty() && word == upper;
        let words = WORDS.iter().filter(|known| !word.is_empty() && known.starts_with(&upper));
        found.extend(words.map(|known| if is_upper { (*known).to_owned() } else { known.to_lowercase() }));
        found
    }

    /// Returns names of tables and columns. Names of the system catalog are included only if the user has
    /// typed their prefix.
    fn of_catalog(&self, word: &str) -> Result<Vec<String>, SqlError> {
        let params = SessionParams {
            user: self.user.clone(),
            database: "postgres".to_owned(),
            ..SessionParams::default()
        };
        let mut session = Session::new(self.database.clone(), params)?;
        let pattern = word.replace(['\\', '\''], "").replace('_', "\\_");
        let is_system = word.starts_with("pg_");
        let schemas = if is_system { "''" } else { "'pg_catalog', 'information_schema'" };
        let first = if is_system { 0 } else { OBJECTS_FIRST };
        let mut gathered = Gathered::default();
        session.simple(
            &format!(
                "SELECT quote_ident(relname) FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'S') \
                 AND relnamespace::regnamespace::text NOT IN ({schemas}) AND relname LIKE '{pattern}%' ORDER BY 1"
            ),
            &mut gathered,
        )?;
        session.simple(
            &format!(
                "SELECT DISTINCT quote_ident(attname) FROM pg_attribute WHERE attnum > 0 AND attrelid >= {first} \
                 AND attname LIKE '{pattern}%' ORDER BY 1"
            ),
            &mut gathered,
        )?;
        Ok(gathered.0)
    }
}

/// The first column of a result.
#[derive(Default)]
struct Gathered(Vec<String>);

impl Sink for Gathered {
    fn row(&mut self, row: &[Datum<'_>]) -> Result<(), SqlError> {
        if let Some(Datum::Text(name)) = row.first() {
            self.0.push((*name).to_owned());
        }
        Ok(())
    }
}

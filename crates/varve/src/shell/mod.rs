//! The shell: runs statements and commands from a terminal or from a script. The database is opened in the
//! shell's own process.
//!
//! ```text
//! run -> each line -- begins with a backslash, no statement begun --> command -> ask, load, include ...
//!                  -- else --> Splitter -- a whole statement --> statement -> Session::simple -> Results
//! ```
//!
//! Invariants
//! 1. A script ends at its first error. At a terminal, the shell continues after an error.
//! 2. Results are written to standard output, everything else to standard error.

mod commands;
mod editor;
mod input;
mod load;
mod output;
mod split;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use varve_engine::Datum;
use varve_sql::{
    CancelToken, Column, CommandTag, CopyShape, Session, SessionParams, Severity, Sink, SqlDatabase,
    SqlError, TimeForms,
};

use commands::Command;
use editor::Terminal;
use input::{FileLines, Lines, Next, TextLines};
use load::{CopyDestination, Data, FileData};
pub use output::Format;
use output::Printer;
use split::Splitter;

/// The most levels of files that include each other.
const INCLUDE_DEPTH_MAX: u32 = 16;
/// Exit code after Ctrl-C if no statement runs.
const INTERRUPTED: i32 = 130;

/// The input of the shell.
pub enum Work {
    /// Statements or commands, one after the other.
    Texts(Vec<String>),
    /// Files.
    Files(Vec<PathBuf>),
    /// Standard input: a terminal or a script.
    StandardInput,
}

/// The error of a shell that ended early. The shell has printed the reason.
#[derive(Debug)]
pub struct Failed;

/// What happens after a line.
enum Then {
    GoOn,
    Leave,
}

/// The shell: a session, and its input and output.
pub struct Shell {
    session: Session,
    database: Arc<SqlDatabase>,
    user: String,
    format: Format,
    has_timing: bool,
    /// Whether no statement is running. Ctrl-C cancels a running statement.
    is_idle: Arc<AtomicBool>,
    include_depth: u32,
}

impl Shell {
    /// Opens a session of this user. From then on, Ctrl-C cancels a running statement.
    pub fn open(database: &Arc<SqlDatabase>, user: &str, format: Format) -> Result<Shell, SqlError> {
        let params = SessionParams {
            user: user.to_owned(),
            database: "postgres".to_owned(),
            ..SessionParams::default()
        };
        let session = Session::new(database.clone(), params)?;
        let is_idle = Arc::new(AtomicBool::new(true));
        catch_interrupts(session.cancel_token(), &is_idle)
            .map_err(|error| SqlError::internal(format!("Ctrl-C cannot be caught: {error}")))?;
        let (database, user) = (database.clone(), user.to_owned());
        Ok(Shell { session, database, user, format, has_timing: false, is_idle, include_depth: 0 })
    }

    /// Does the work.
    pub fn run(&mut self, work: Work) -> Result<(), Failed> {
        match work {
            Work::Texts(texts) => texts.iter().try_for_each(|text| self.text(text)),
            Work::Files(files) => files.iter().try_for_each(|file| self.file(file).map(|_| ())),
            Work::StandardInput if io::stdin().is_terminal() => self.terminal(),
            Work::StandardInput => self.lines(&mut FileLines::standard_input(), true).map(|_| ()),
        }
    }

    /// Runs a text as a whole, so that several statements in it are one transaction.
    fn text(&mut self, text: &str) -> Result<(), Failed> {
        if text.trim_start().starts_with('\\') {
            return self.lines(&mut TextLines::new(text), true).map(|_| ());
        }
        self.statement(text, Data::Lines(&mut FileLines::standard_input()))
    }

    fn file(&mut self, path: &Path) -> Result<Then, Failed> {
        let mut lines = FileLines::open(path).map_err(|error| cannot_read(path, &error))?;
        self.lines(&mut lines, true)
    }

    fn terminal(&mut self) -> Result<(), Failed> {
        say(&format!(
            "varve {}. A statement ends with a semicolon; \\? shows the commands.",
            env!("CARGO_PKG_VERSION")
        ));
        let terminal = Terminal::open(&self.database, &self.user);
        let mut terminal =
            terminal.map_err(|error| failed(&format!("the terminal cannot be used: {error}")))?;
        self.lines(&mut terminal, false).map(|_| ())
    }

    /// Runs line after line. A script ends at the first error.
    fn lines(&mut self, lines: &mut dyn Lines, is_script: bool) -> Result<Then, Failed> {
        let mut splitter = Splitter::default();
        loop {
            let next = lines.next_line(!splitter.is_empty());
            let done = match next.map_err(|error| failed(&format!("the input cannot be read: {error}")))? {
                Next::Line(line) => self.line(&line, &mut splitter, lines, is_script),
                Next::Interrupted => {
                    splitter.rest();
                    Ok(Then::GoOn)
                }
                Next::End => return self.last(&mut splitter, lines).map(|()| Then::GoOn),
            };
            match done {
                Ok(Then::GoOn) => {}
                Ok(Then::Leave) => return Ok(Then::Leave),
                Err(Failed) if is_script => return Err(Failed),
                Err(Failed) => {}
            }
        }
    }

    fn line(
        &mut self,
        line: &str,
        splitter: &mut Splitter,
        lines: &mut dyn Lines,
        is_script: bool,
    ) -> Result<Then, Failed> {
        if splitter.is_empty() && line.trim_start().starts_with('\\') {
            splitter.rest();
            return self.command(line, lines);
        }
        splitter.push(line);
        let mut done = Ok(Then::GoOn);
        while let Some(statement) = splitter.next() {
            if self.statement(&statement, Data::Lines(lines)).is_err() {
                done = Err(Failed);
            }
            if is_script && done.is_err() {
                break;
            }
        }
        done
    }

    /// Runs the last statement of the input, which needs no semicolon.
    fn last(&mut self, splitter: &mut Splitter, lines: &mut dyn Lines) -> Result<(), Failed> {
        if splitter.is_empty() {
            return Ok(());
        }
        self.statement(&splitter.rest(), Data::Lines(lines))
    }

    fn command(&mut self, line: &str, lines: &mut dyn Lines) -> Result<Then, Failed> {
        match commands::read(line).map_err(|why| failed(&why))? {
            Command::Ask(questions) => self.ask(&questions)?,
            Command::Load(sql, file) => {
                let data = FileData::open(&file).map_err(|error| cannot_read(&file, &error))?;
                self.statement(&sql, Data::File(data))?;
            }
            Command::Save(sql, file) => self.run_statement(&sql, None, CopyDestination::Named(file))?,
            Command::Statement(sql) => self.statement(&sql, Data::Lines(lines))?,
            Command::Include(file) => self.include(&file)?,
            Command::Format(format) => self.format = format,
            Command::Timing => {
                self.has_timing = !self.has_timing;
                say(if self.has_timing { "Timing is on." } else { "Timing is off." });
            }
            Command::Help => say(commands::HELP.trim_end()),
            Command::Quit => return Ok(Then::Leave),
        }
        Ok(Then::GoOn)
    }

    /// Runs the statements of a file. `\\q` ends the file.
    fn include(&mut self, file: &Path) -> Result<(), Failed> {
        if self.include_depth == INCLUDE_DEPTH_MAX {
            return Err(failed(&format!("\\i {}: files include each other too deeply", file.display())));
        }
        self.include_depth += 1;
        let done = self.file(file);
        self.include_depth -= 1;
        done.map(|_| ())
    }

    /// Runs queries on the catalog. If a heading is given and the result is empty, both are left out.
    fn ask(&mut self, questions: &[(&'static str, String)]) -> Result<(), Failed> {
        for (heading, sql) in questions {
            let mut results = Results::new(self.format, self.session.forms().clone(), None, false);
            results.heading = Some(*heading).filter(|heading| !heading.is_empty());
            let done = self.simple(sql, &mut results);
            results.finish(done).map_err(|error| report(&error, sql))?;
        }
        Ok(())
    }

    fn statement(&mut self, sql: &str, data: Data<'_>) -> Result<(), Failed> {
        self.run_statement(sql, Some(data), CopyDestination::StandardOutput)
    }

    fn run_statement(
        &mut self,
        sql: &str,
        data: Option<Data<'_>>,
        target: CopyDestination,
    ) -> Result<(), Failed> {
        let began = Instant::now();
        let forms = self.session.forms().clone();
        let mut results = Results::new(self.format, forms, data, self.format == Format::Table);
        results.target = target;
        let done = self.simple(sql, &mut results);
        let done = results.finish(done);
        if self.has_timing {
            say(&format!("Time: {:.3} ms", began.elapsed().as_secs_f64() * 1000.0));
        }
        done.map_err(|error| report(&error, sql))
    }

    /// Runs a text in the session. Ctrl-C cancels only this text.
    fn simple(&mut self, sql: &str, results: &mut Results<'_>) -> Result<(), SqlError> {
        self.is_idle.store(false, Ordering::Relaxed);
        let done = self.session.simple(sql, results);
        self.is_idle.store(true, Ordering::Relaxed);
        done
    }
}

/// Makes Ctrl-C cancel the running statement. If none runs, Ctrl-C ends the process, which loses no committed
/// data.
fn catch_interrupts(token: CancelToken, is_idle: &Arc<AtomicBool>) -> io::Result<()> {
    signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED, is_idle.clone())?;
    let mut signals = Signals::new([SIGINT])?;
    let name = "interrupts".to_owned();
    let cancel = move || signals.forever().for_each(|_| token.cancel());
    std::thread::Builder::new().name(name).spawn(cancel).map(|_| ())
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn failed(why: &str) -> Failed {
    say(&format!("varve: {why}"));
    Failed
}

fn cannot_read(path: &Path, error: &io::Error) -> Failed {
    failed(&format!("{} cannot be read: {error}", path.display()))
}

/// Reports an error of a statement, with the line and a mark below the position.
fn report(error: &SqlError, sql: &str) -> Failed {
    let mut text = format!("ERROR:  {}: {}", error.sqlstate, error.message);
    if let Some(mark) = error.position.and_then(|position| marked(sql, position as usize)) {
        text += &format!("\n{mark}");
    }
    for (name, part) in [("DETAIL", &error.detail), ("HINT", &error.hint), ("CONTEXT", &error.context)] {
        if let Some(part) = part {
            text += &format!("\n{name}:  {part}");
        }
    }
    say(&text);
    Failed
}

/// Returns the line of a position (characters from 1), and a mark below it.
fn marked(sql: &str, position: usize) -> Option<String> {
    let mut left = position.checked_sub(1)?;
    for (number, line) in sql.split('\n').enumerate() {
        let length = line.chars().count();
        if left <= length {
            let head = format!("LINE {}: ", number + 1);
            let before: String = line.chars().take(left).collect();
            let room = head.len() + unicode_width::UnicodeWidthStr::width(before.replace('\t', " ").as_str());
            return Some(format!("{head}{}\n{:room$}^", line.replace('\t', " "), ""));
        }
        left -= length + 1;
    }
    None
}

/// The sink of one call.
struct Results<'d> {
    out: BufWriter<io::Stdout>,
    printer: Printer,
    forms: TimeForms,
    data: Option<Data<'d>>,
    /// The destination of COPY TO STDOUT.
    target: CopyDestination,
    /// Whether rows of a COPY were written to standard output. Then no tag is printed.
    has_copied: bool,
    /// Whether tags of statements without rows are shown.
    has_tags: bool,
    has_columns: bool,
    heading: Option<&'static str>,
    waiting: Option<Vec<Column>>,
}

impl<'d> Results<'d> {
    fn new(format: Format, forms: TimeForms, data: Option<Data<'d>>, has_tags: bool) -> Results<'d> {
        let out = BufWriter::new(io::stdout());
        Results {
            out,
            printer: Printer::new(format),
            forms,
            data,
            target: CopyDestination::StandardOutput,
            has_copied: false,
            has_tags,
            has_columns: false,
            heading: None,
            waiting: None,
        }
    }

    /// Prints the heading of a result when its first row arrives.
    fn begin_waiting(&mut self) -> io::Result<()> {
        let Some(columns) = self.waiting.take() else { return Ok(()) };
        if self.has_tags || self.heading.is_some() {
            writeln!(self.out, "{}", self.heading.unwrap_or_default())?;
        }
        self.has_columns = true;
        self.printer.begin(&columns, &mut self.out)
    }

    fn finish(mut self, done: Result<(), SqlError>) -> Result<(), SqlError> {
        if done.is_err() && self.has_columns {
            let _ = self.printer.abandon(&mut self.out);
        }
        let flushed = self.out.flush().and_then(|()| self.target.flush()).map_err(unwritable);
        done.and(flushed)
    }
}

/// Returns an error for binary format on standard input or output.
fn refuse_binary(shape: CopyShape, is_stream: bool) -> Result<(), SqlError> {
    if !shape.is_binary || !is_stream {
        return Ok(());
    }
    Err(SqlError::unsupported("COPY in binary format between lines of text")
        .with_hint("Use \\copy with a file."))
}

fn unwritable(error: io::Error) -> SqlError {
    SqlError::new(varve_sql::SqlState("58030"), format!("the result cannot be written: {error}"))
}

impl Sink for Results<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<(), SqlError> {
        if self.heading.is_some() {
            self.waiting = Some(columns.to_vec());
            return Ok(());
        }
        self.has_columns = true;
        self.printer.begin(columns, &mut self.out).map_err(unwritable)
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<(), SqlError> {
        self.begin_waiting().map_err(unwritable)?;
        self.printer.row(row, &self.forms, &mut self.out).map_err(unwritable)
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<(), SqlError> {
        let had_columns = std::mem::take(&mut self.has_columns);
        if had_columns {
            self.printer.end(&mut self.out).map_err(unwritable)?;
        }
        let is_query = matches!(tag, CommandTag::Select(_) | CommandTag::Plain("SHOW" | "EXPLAIN"));
        if self.has_tags && !(is_query && had_columns) && !std::mem::take(&mut self.has_copied) {
            writeln!(self.out, "{tag}").map_err(unwritable)?;
        }
        Ok(())
    }

    fn empty(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        let word = match severity {
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
        };
        say(&format!("{word}:  {}", notice.message));
    }

    fn copy_out(&mut self, shape: CopyShape) -> Result<(), SqlError> {
        self.has_copied = matches!(self.target, CopyDestination::StandardOutput);
        refuse_binary(shape, self.has_copied)?;
        self.target.create()
    }

    fn copy_data(&mut self, piece: &[u8]) -> Result<(), SqlError> {
        let written = match &mut self.target {
            CopyDestination::File(file) => file.write_all(piece),
            // A named file is already created when the first data arrives.
            CopyDestination::StandardOutput | CopyDestination::Named(_) => self.out.write_all(piece),
        };
        written.map_err(unwritable)
    }

    fn copy_done(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn copy_in(
        &mut self,
        shape: CopyShape,
        feed: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        refuse_binary(shape, !matches!(self.data, Some(Data::File(_))))?;
        match &mut self.data {
            Some(data) => data.feed(feed),
            None => Err(SqlError::unsupported("COPY FROM STDIN here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_below_the_place() {
        assert_eq!(marked("select x", 8).unwrap(), "LINE 1: select x\n               ^");
        assert_eq!(marked("select\n  é, x", 13).unwrap(), "LINE 2:   é, x\n             ^");
        assert_eq!(marked("select", 7).unwrap(), "LINE 1: select\n              ^");
        assert_eq!(marked("select", 99), None);
    }
}

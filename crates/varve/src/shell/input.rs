//! The source of the shell's statements: a file, standard input, or a terminal.
//!
//! Invariants
//! 1. Lines reach the shell without a change, with one exception: a line of a statement loses its line feed.
//!    A line of COPY data keeps it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;

/// A source of lines.
pub trait Lines {
    /// Reads the next line, without its line feed. `goes_on` says that the line continues a statement.
    fn next_line(&mut self, goes_on: bool) -> io::Result<Next>;

    /// Reads the next line of the data of a COPY, with its line feed. Ctrl-C is an error of kind
    /// `Interrupted`.
    fn next_data(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Returns whether a person types these lines.
    fn is_typed(&self) -> bool;
}

/// The result of reading a line.
pub enum Next {
    /// A line.
    Line(String),
    /// Ctrl-C. The statement that was begun is dropped.
    Interrupted,
    /// The end of the input.
    End,
}

/// Lines of a file or of standard input.
pub struct FileLines {
    /// `None` means standard input, which has its own buffer.
    file: Option<BufReader<File>>,
}

impl FileLines {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> io::Result<FileLines> {
        if path.as_os_str() == "-" {
            return Ok(FileLines::standard_input());
        }
        Ok(FileLines { file: Some(BufReader::new(File::open(path)?)) })
    }

    /// Reads lines from standard input.
    pub fn standard_input() -> FileLines {
        FileLines { file: None }
    }
}

impl Lines for FileLines {
    fn next_line(&mut self, _: bool) -> io::Result<Next> {
        let Some(mut line) = self.next_data()? else { return Ok(Next::End) };
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "a statement is not UTF-8");
        String::from_utf8(line).map(Next::Line).map_err(invalid)
    }

    fn next_data(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let count = match &mut self.file {
            Some(file) => file.read_until(b'\n', &mut line)?,
            None => io::stdin().lock().read_until(b'\n', &mut line)?,
        };
        Ok(Some(line).filter(|_| count > 0))
    }

    fn is_typed(&self) -> bool {
        self.file.is_none() && io::stdin().is_terminal()
    }
}

/// The lines of a text. COPY data is read from standard input.
pub struct TextLines<'t> {
    lines: std::str::Split<'t, char>,
    data: FileLines,
}

impl TextLines<'_> {
    /// Returns the lines of this text.
    pub fn new(text: &str) -> TextLines<'_> {
        TextLines { lines: text.split('\n'), data: FileLines::standard_input() }
    }
}

impl Lines for TextLines<'_> {
    fn next_line(&mut self, _: bool) -> io::Result<Next> {
        Ok(self.lines.next().map_or(Next::End, |line| Next::Line(line.to_owned())))
    }

    fn next_data(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.data.next_data()
    }

    fn is_typed(&self) -> bool {
        self.data.is_typed()
    }
}

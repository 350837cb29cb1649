//! Where statements come from: a file, standard input, or somebody at a terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Gives lines.
pub trait Lines {
    /// The next line, without its end; `None` at the end of the input. `goes_on` says that a statement has begun.
    fn next_line(&mut self, goes_on: bool) -> io::Result<Next>;

    /// The next line of the data of a COPY.
    fn next_data(&mut self) -> io::Result<Option<String>>;
}

/// What came from an input.
pub enum Next {
    /// A line.
    Line(String),
    /// Ctrl-C: what was begun is given up.
    Interrupted,
    /// Nothing more comes.
    End,
}

/// Lines of a file or of standard input.
pub struct FileLines {
    reader: Box<dyn BufRead>,
}

impl FileLines {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> io::Result<FileLines> {
        Ok(match path.as_os_str() == "-" {
            true => FileLines::standard_input(),
            false => FileLines { reader: Box::new(BufReader::new(File::open(path)?)) },
        })
    }

    /// Standard input.
    pub fn standard_input() -> FileLines {
        FileLines { reader: Box::new(BufReader::new(io::stdin())) }
    }
}

impl Lines for FileLines {
    fn next_line(&mut self, _: bool) -> io::Result<Next> {
        Ok(self.next_data()?.map_or(Next::End, Next::Line))
    }

    fn next_data(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let length = line.trim_end_matches(['\n', '\r']).len();
        line.truncate(length);
        Ok(Some(line))
    }
}

/// A text that is all there.
pub struct TextLines<'t>(pub std::str::Lines<'t>);

impl Lines for TextLines<'_> {
    fn next_line(&mut self, _: bool) -> io::Result<Next> {
        Ok(self.0.next().map_or(Next::End, |line| Next::Line(line.to_owned())))
    }

    fn next_data(&mut self) -> io::Result<Option<String>> {
        Ok(self.0.next().map(str::to_owned))
    }
}

//! Lines from somebody at a terminal.

use std::io::{self, Write};

use super::input::{FileLines, Lines, Next};

/// A terminal.
pub struct Terminal(FileLines);

impl Terminal {
    /// The terminal of this process.
    pub fn open() -> Terminal {
        Terminal(FileLines::standard_input())
    }

    fn ask(prompt: &str) -> io::Result<()> {
        let mut out = io::stderr();
        out.write_all(prompt.as_bytes())?;
        out.flush()
    }
}

impl Lines for Terminal {
    fn next_line(&mut self, goes_on: bool) -> io::Result<Next> {
        Terminal::ask(if goes_on { "   -> " } else { "varve> " })?;
        self.0.next_line(goes_on)
    }

    fn next_data(&mut self) -> io::Result<Option<String>> {
        Terminal::ask(">> ")?;
        self.0.next_data()
    }
}

//! Prints tables for people. A column is as wide as its widest cell. Text is left-aligned, figures
//! right-aligned.

use std::fmt::Write;

/// Lines of cells below a head.
#[derive(Debug, Clone)]
pub struct TextTable {
    lines: Vec<Vec<String>>,
}

impl TextTable {
    /// An empty one.
    pub fn headed(head: &[&str]) -> Self {
        Self { lines: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// One more line, of as many cells as the head.
    pub fn push(&mut self, line: Vec<String>) {
        assert_eq!(line.len(), self.lines[0].len(), "a line has a cell for each column");
        self.lines.push(line);
    }
}

impl std::fmt::Display for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.lines[0].len();
        let width = |at: usize| self.lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in &self.lines {
            let mut text = String::new();
            for (cell, width) in line.iter().zip(&widths) {
                let is_figure = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let _ = if is_figure {
                    write!(text, "{cell:>width$}  ")
                } else {
                    write!(text, "{cell:width$}  ")
                };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::headed(&["variant", "tps", "verdict"]);
        table.push(vec!["none".into(), "12".into(), "reproduced".into()]);
        table.push(vec!["doublewrite".into(), "1234".into(), "".into()]);
        let expected = "variant      tps   verdict\nnone           12  reproduced\ndoublewrite  1234\n";
        assert_eq!(table.to_string(), expected);
    }
}

//! Prints tables for people. A column is as wide as its widest cell. Text is left-aligned, figures
//! right-aligned. Documents get the same tables in Markdown.

use std::fmt::Write;

/// A table of text cells. The first line is the head.
#[derive(Debug, Clone)]
pub struct TextTable {
    lines: Vec<Vec<String>>,
}

impl TextTable {
    /// Returns a table with this head and no other lines.
    pub fn headed(head: &[&str]) -> Self {
        Self { lines: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Appends a line. It must have as many cells as the head.
    pub fn push(&mut self, line: Vec<String>) {
        assert_eq!(line.len(), self.lines[0].len(), "a line has a cell for each column");
        self.lines.push(line);
    }
}

/// Returns whether a cell is a figure.
fn is_figure(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

impl TextTable {
    /// Returns whether the table has only a head.
    pub fn is_empty(&self) -> bool {
        self.lines.len() <= 1
    }

    /// Returns the table in Markdown. Columns whose first cell is a figure are right-aligned.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "/")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let (head, rest) = self.lines.split_at(1);
        let align = |cell: &String| if is_figure(cell) { "---:" } else { "---" }.to_owned();
        let aligned: Vec<String> =
            rest.first().map_or_else(Vec::new, |first| first.iter().map(align).collect());
        let mut text: String = head.iter().map(|cells| line(cells)).collect();
        text.push_str(&line(&aligned));
        text.extend(rest.iter().map(|cells| line(cells)));
        text
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
                let _ = if is_figure(cell) {
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
        let expected = "| variant | tps | verdict |\n| --- | ---: | --- |\n| none | 12 | reproduced |\n\
                        | doublewrite | 1234 |  |\n";
        assert_eq!(table.markdown(), expected);
    }
}

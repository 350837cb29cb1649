//! The table of all figures: medians with the lowest and the highest round.
//!
//! Invariants
//! 1. Figures with durable commits and figures with groups are in different rows.
//!
//! This module does not know how figures are taken.

use std::fmt;

use crate::database::Kind;
use crate::workload::{MIXES, Mix};

/// The results of a database under a mix in one round.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Transactions a second by wall time.
    pub per_second: f64,
    /// Microseconds of the processor for a transaction, of all threads.
    pub cpu_us: f64,
}

struct Point {
    name: &'static str,
    durable_by: &'static str,
    group: usize,
    mix: Mix,
    figure: Figure,
}

/// All figures so far.
pub struct Report {
    group: usize,
    points: Vec<Point>,
    /// Load averages of the machine, over a minute each.
    loads: Vec<f64>,
}

impl Report {
    /// Returns an empty report, for groups of this many transactions.
    pub fn new(group: usize) -> Report {
        Report { group, points: Vec::new(), loads: Vec::new() }
    }

    /// Adds a figure. Figures of groups are left out if groups are no faster in this database.
    pub fn push(&mut self, kind: &Kind, mix: Mix, group: usize, figure: Figure) {
        let durable_by = if group == 1 { Some(kind.durable_by) } else { kind.group_by };
        if let Some(durable_by) = durable_by {
            self.points.push(Point { name: kind.name, durable_by, group, mix, figure });
        }
    }

    /// Records the load average of the machine.
    pub fn note_load(&mut self) {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: Option<f64> = text.split(' ').next().and_then(|first| first.parse().ok());
        self.loads.extend(load);
    }

    /// Returns the rows of the table: each database by itself, then in groups.
    fn rows(&self) -> Vec<&Point> {
        let mut rows: Vec<&Point> = Vec::new();
        for group in [1, self.group] {
            for point in self.points.iter().filter(|point| point.group == group) {
                if !rows.iter().any(|row| row.name == point.name && row.group == group) {
                    rows.push(point);
                }
            }
        }
        // A round begins with another database, so the first round has the order of the list.
        rows
    }

    fn cell(&self, row: &Point, mix: Mix) -> String {
        let is_of_cell =
            |point: &&Point| point.name == row.name && point.group == row.group && point.mix == mix;
        let figures: Vec<Figure> = self.points.iter().filter(is_of_cell).map(|point| point.figure).collect();
        if figures.is_empty() {
            return "-".to_owned();
        }
        let rate = Spread::of(figures.iter().map(|figure| figure.per_second / 1000.0));
        let cpu = Spread::of(figures.iter().map(|figure| figure.cpu_us));
        format!("{} [{}..{}] {:.2} us", shown(rate.median), shown(rate.least), shown(rate.most), cpu.median)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = Spread::of(self.loads.iter().copied());
        writeln!(
            out,
            "A cell has thousands of transactions a second (median [lowest..highest round]) and microseconds of\n\
             the processor for a transaction (median, all threads). Load average of the machine: {:.1}\n\
             [{:.1}..{:.1}].\n",
            load.median, load.least, load.most
        )?;
        let mixes: Vec<String> = MIXES.iter().map(Mix::to_string).collect();
        writeln!(out, "| database | durable by | group | {} |", mixes.join(" | "))?;
        writeln!(out, "|---|---|---:|{}", "---:|".repeat(mixes.len()))?;
        for row in self.rows() {
            let cells: Vec<String> = MIXES.iter().map(|mix| self.cell(row, *mix)).collect();
            writeln!(out, "| {} | {} | {} | {} |", row.name, row.durable_by, row.group, cells.join(" | "))?;
        }
        Ok(())
    }
}

/// The median, the lowest and the highest value.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |number: usize| sorted.get(number).copied().unwrap_or(f64::NAN);
        Spread { median: at(sorted.len() / 2), least: at(0), most: at(sorted.len().saturating_sub(1)) }
    }
}

/// Shows a figure with three digits, or with all digits before the point.
fn shown(figure: f64) -> String {
    match figure {
        figure if figure < 10.0 => format!("{figure:.2}"),
        figure if figure < 100.0 => format!("{figure:.1}"),
        figure => format!("{figure:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_median_of_its_own_points() {
        let kind = crate::lmdb::KIND;
        let mut report = Report::new(64);
        for (group, per_second) in [(1, 3e3), (1, 1e3), (1, 2e3), (64, 9e3)] {
            report.push(&kind, MIXES[1], group, Figure { per_second, cpu_us: 5.0 });
        }
        let rows = report.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(report.cell(rows[0], MIXES[1]), "2.00 [1.00..3.00] 5.00 us");
        assert_eq!(report.cell(rows[1], MIXES[1]), "9.00 [9.00..9.00] 5.00 us");
        assert_eq!(report.cell(rows[0], MIXES[2]), "-");
    }
}

//! Computes the expected cost and rows of steps, which EXPLAIN shows. The formulas and their constants are
//! those of PostgreSQL (costsize.c), without its corrections for caches. The unit of a cost is arbitrary.
//! With the default settings it is the time to read a page in sequence.
//!
//! This module does not know plans or tables.

/// The assumed number of groups if the distinct values of a key are unknown, as in PostgreSQL.
pub const GROUPS: f64 = 200.0;

/// What a step is expected to cost and to return, in one loop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// The cost to the first row, with the steps below.
    pub startup: f64,
    /// The cost to the end, with the steps below.
    pub total: f64,
    /// The number of rows that the step returns.
    pub rows: f64,
    /// The average size of a returned row, in bytes.
    pub width: u32,
}

/// The expected work of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ScanWork {
    /// Pages that are read in sequence.
    pub sequential_pages: f64,
    /// Pages that are read at random.
    pub random_pages: f64,
    /// Entries of a secondary index that are read.
    pub entries: f64,
    /// Rows that are read.
    pub rows: f64,
    /// Searches from the root of an index.
    pub searches: f64,
    /// The number of rows of the table.
    pub table_rows: f64,
    /// Operators in the condition on each row.
    pub operators: f64,
}

/// The costs of single operations, from the session's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// `seq_page_cost`
    pub sequential_page: f64,
    /// `random_page_cost`
    pub random_page: f64,
    /// `cpu_tuple_cost`
    pub row: f64,
    /// `cpu_index_tuple_cost`
    pub entry: f64,
    /// `cpu_operator_cost`
    pub operator: f64,
}

impl Estimate {
    /// The same estimate for rows of this size, in bytes.
    pub fn with_width(self, width: u32) -> Estimate {
        Estimate { width, ..self }
    }
}

/// The estimates have the width of the steps below, or 0 without such a step. [`Estimate::with_width`] sets
/// another one.
impl Rates {
    /// A step that computes its rows from nothing.
    pub fn made(&self, rows: f64) -> Estimate {
        Estimate { total: rows * self.row, rows, ..Estimate::default() }
    }

    /// A scan that returns `rows` rows.
    pub fn scan(&self, work: &ScanWork, rows: f64) -> Estimate {
        // A search compares keys in each node of its path.
        let startup = work.searches.min(1.0) * work.table_rows.max(1.0).log2().ceil() * self.operator;
        let more_searches = (work.searches - 1.0).max(0.0) * work.table_rows.max(1.0).log2() * self.operator;
        let pages = work.sequential_pages * self.sequential_page + work.random_pages * self.random_page;
        let processor = work.entries * self.entry + work.rows * (self.row + work.operators * self.operator);
        Estimate { startup, total: startup + more_searches + pages + processor, rows, width: 0 }
    }

    /// A step that evaluates `operators` operators for each row of the step below, and returns `rows` rows.
    pub fn filter(&self, below: Estimate, operators: f64, rows: f64) -> Estimate {
        let total = below.total + below.rows * operators * self.operator;
        Estimate { total, rows, ..below }
    }

    /// Estimates a sort of all rows of the step below.
    pub fn sort(&self, below: Estimate) -> Estimate {
        let comparisons = below.rows * below.rows.max(2.0).log2();
        let startup = below.total + 2.0 * self.operator * comparisons;
        Estimate { startup, total: startup + self.operator * below.rows, ..below }
    }

    /// Aggregates of `groups` groups. `operators` counts the keys and the aggregates.
    pub fn group(&self, below: Estimate, operators: f64, groups: f64) -> Estimate {
        let startup = below.total + below.rows * operators * self.operator;
        Estimate { startup, total: startup + groups * self.row, rows: groups, ..below }
    }

    /// Estimates a step that returns the first `rows` rows of the step below.
    pub fn limit(&self, below: Estimate, rows: f64) -> Estimate {
        let part = (rows / below.rows.max(1.0)).min(1.0);
        // If no part of the rows is read, an infinite cost counts as 0.
        let behind = if part > 0.0 { (below.total - below.startup) * part } else { 0.0 };
        Estimate { total: below.startup + behind, rows: rows.min(below.rows), ..below }
    }

    /// Runs the inner step once for each row of the outer step. `operators` are evaluated for each pair.
    pub fn nested_loop(&self, outer: Estimate, inner: Estimate, operators: f64, rows: f64) -> Estimate {
        let pairs = outer.rows * inner.rows * operators * self.operator;
        let total = outer.total + outer.rows.max(1.0) * inner.total + pairs + rows * self.row;
        let width = outer.width + inner.width;
        Estimate { startup: outer.startup + inner.startup, total, rows, width }
    }

    /// A hash join. `keys` is the number of columns that are compared.
    pub fn hash_join(&self, build: Estimate, probe: Estimate, keys: f64, rows: f64) -> Estimate {
        let startup = build.total + build.rows * (keys * self.operator + self.row) + probe.startup;
        let hashes = probe.rows * keys * self.operator;
        let total = startup + (probe.total - probe.startup) + hashes + rows * self.row;
        Estimate { startup, total, rows, width: build.width + probe.width }
    }

    /// A merge join of two sorted inputs.
    pub fn merge_join(&self, left: Estimate, right: Estimate, keys: f64, rows: f64) -> Estimate {
        let compared = (left.rows + right.rows) * keys * self.operator;
        let total = left.total + right.total + compared + rows * self.row;
        let width = left.width + right.width;
        Estimate { startup: left.startup + right.startup, total, rows, width }
    }

    /// Estimates a step that returns the rows of one input after the other.
    pub fn append(&self, inputs: impl IntoIterator<Item = Estimate>) -> Estimate {
        let mut out = Estimate::default();
        for (n, input) in inputs.into_iter().enumerate() {
            out.startup = if n == 0 { input.startup } else { out.startup };
            out.total += input.total;
            out.rows += input.rows;
            out.width = out.width.max(input.width);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates =
        Rates { sequential_page: 1.0, random_page: 4.0, row: 0.01, entry: 0.005, operator: 0.0025 };

    /// The expected figures are those of PostgreSQL's manual for a table of 358 pages and 10,000 rows ("Using
    /// EXPLAIN").
    #[test]
    fn a_whole_scan_costs_what_postgresql_computes() {
        let work =
            ScanWork { sequential_pages: 358.0, rows: 10_000.0, table_rows: 10_000.0, ..ScanWork::default() };
        assert_eq!(RATES.scan(&work, 10_000.0).total, 458.0);
        let filtered = ScanWork { operators: 1.0, ..work };
        assert_eq!(RATES.scan(&filtered, 7_000.0).total, 483.0);
    }

    #[test]
    fn a_limit_costs_its_part() {
        let below = Estimate { startup: 10.0, total: 110.0, rows: 100.0, width: 4 };
        let limited = RATES.limit(below, 10.0);
        assert_eq!((limited.startup, limited.total, limited.rows), (10.0, 20.0, 10.0));
        assert_eq!(RATES.limit(below, 1000.0), below);
        let endless = Estimate { total: f64::INFINITY, ..below };
        assert_eq!(RATES.limit(endless, 0.0).total, 10.0);
    }

    #[test]
    fn the_inner_step_of_a_nested_loop_counts_for_each_outer_row() {
        let outer = Estimate { startup: 1.0, total: 5.0, rows: 10.0, width: 4 };
        let inner = Estimate { startup: 0.5, total: 2.0, rows: 1.0, width: 4 };
        let joined = RATES.nested_loop(outer, inner, 0.0, 10.0);
        assert_eq!((joined.startup, joined.total, joined.width), (1.5, 5.0 + 20.0 + 0.1, 8));
    }
}

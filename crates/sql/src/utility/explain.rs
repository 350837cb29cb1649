//! Converts EXPLAIN and its options from the tree of PostgreSQL's parser.
//!
//! This module does not know plans.

use pg_query::protobuf::{ExplainStmt, ScanToken, Token};

use super::Utility;
use super::node::{self, Opt, Source, behind_parenthesis};
use crate::error::{Result, SqlError, SqlState};

/// The format in which a plan is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines.
    #[default]
    Text,
    /// One value of type json.
    Json,
    /// One value of type xml.
    Xml,
    /// One text.
    Yaml,
}

/// The options of EXPLAIN.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// ANALYZE: the statement runs, and the measurements of each step are shown.
    pub analyze: bool,
    /// VERBOSE: more details of each step are shown.
    pub verbose: bool,
    /// BUFFERS: the used pages are shown.
    pub buffers: bool,
    /// SETTINGS: settings of the planner that the session has changed are shown.
    pub settings: bool,
    /// FORMAT
    pub format: Format,
    /// COSTS OFF: the estimates of each step are not shown.
    without_costs: bool,
    /// TIMING, if it is written.
    timing: Option<bool>,
    /// SUMMARY, if it is written.
    summary: Option<bool>,
}

impl Options {
    /// Returns whether the time of each step is measured.
    pub fn shows_timing(&self) -> bool {
        self.timing.unwrap_or(self.analyze)
    }

    /// Returns whether the estimated costs and rows of each step are shown.
    pub fn shows_costs(&self) -> bool {
        !self.without_costs
    }

    /// Returns whether planning and execution time are shown.
    pub fn shows_summary(&self) -> bool {
        self.summary.unwrap_or(self.analyze)
    }
}

/// EXPLAIN of a statement.
#[derive(Debug, Clone)]
pub struct Explain {
    /// The options.
    pub options: Options,
    /// The statement.
    pub text: String,
    /// The number of characters before the statement.
    pub before: u32,
}

/// Converts EXPLAIN.
pub(super) fn explain(source: Source<'_>, e: &ExplainStmt) -> Result<Utility> {
    let mut options = Options::default();
    for given in node::options(&e.options)? {
        option(source, given, &mut options)?;
    }
    if options.timing == Some(true) && !options.analyze {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "EXPLAIN option TIMING requires ANALYZE",
        ));
    }
    let tokens = source.tokens()?;
    let (text, before) = source.rest(&tokens, behind_options(&tokens))?;
    Ok(Utility::Explain(Box::new(Explain { options, text: text.to_owned(), before })))
}

/// Returns the index of the first token of the explained statement.
fn behind_options(tokens: &[ScanToken]) -> usize {
    let is = |n: usize, wanted: &[Token]| tokens.get(n).is_some_and(|t| wanted.contains(&t.token()));
    let starts_query = [Token::Select, Token::Values, Token::With, Token::Table, Token::Ascii40];
    if is(1, &[Token::Ascii40]) && !is(2, &starts_query) {
        return behind_parenthesis(tokens, 1);
    }
    let mut first = 1 + usize::from(is(1, &[Token::Analyze, Token::Analyse]));
    first += usize::from(is(first, &[Token::Verbose]));
    first
}

fn option(source: Source<'_>, given: Opt<'_>, options: &mut Options) -> Result<()> {
    match given.name() {
        "analyze" => options.analyze = given.flag()?,
        "verbose" => options.verbose = given.flag()?,
        "buffers" => options.buffers = given.flag()?,
        "timing" => options.timing = Some(given.flag()?),
        "summary" => options.summary = Some(given.flag()?),
        "settings" => options.settings = given.flag()?,
        "costs" => options.without_costs = !given.flag()?,
        "wal" if given.flag()? => return Err(SqlError::unsupported("EXPLAIN (WAL)")),
        "wal" => {}
        "format" => options.format = format(source, given)?,
        name => {
            let message = format!("unrecognized EXPLAIN option \"{name}\"");
            return Err(node::syntax(message).at(given.position(source)));
        }
    }
    Ok(())
}

fn format(source: Source<'_>, given: Opt<'_>) -> Result<Format> {
    let value = given.needed_text()?;
    match value.as_str() {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        "xml" => Ok(Format::Xml),
        "yaml" => Ok(Format::Yaml),
        _ => {
            let message = format!("unrecognized value for EXPLAIN option \"format\": \"{value}\"");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).at(given.position(source)))
        }
    }
}

/// Shifts the position of an error in the inner statement to its position in the whole text.
pub fn shifted(e: SqlError, before: u32) -> SqlError {
    SqlError { position: e.position.map(|p| p + before), ..e }
}

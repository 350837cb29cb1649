//! Converts VACUUM and ANALYZE from the tree of PostgreSQL's parser.
//!
//! `session::maintain` runs them.

use crate::ast;
use pg_query::NodeEnum;
use pg_query::protobuf::{Node, VacuumRelation, VacuumStmt};

use super::Utility;
use super::node::{self, Opt, Source};
use crate::error::{Result, SqlError, SqlState};

/// VACUUM or ANALYZE.
#[derive(Debug, Clone)]
pub struct Maintain {
    /// Whether the command is VACUUM. Otherwise it is ANALYZE.
    pub is_vacuum: bool,
    /// Whether rows are counted.
    pub analyzes: bool,
    /// FULL: tables are copied into new trees.
    pub rewrites: bool,
    /// The named tables, each with its columns if the command names some. An empty list means all tables.
    pub tables: Vec<(ast::ObjectName, Vec<ast::Ident>)>,
}

const FLAGS: &[&str] = &[
    "verbose",
    "skip_locked",
    "full",
    "freeze",
    "analyze",
    "disable_page_skipping",
    "process_toast",
    "truncate",
];
const FLAGS_OF_ANALYZE: usize = 2;
const PARALLEL_AND_FULL: &str = "VACUUM FULL cannot be performed in parallel";
const SKIPPING_AND_FULL: &str = "VACUUM option DISABLE_PAGE_SKIPPING cannot be used with FULL";

/// Converts VACUUM and ANALYZE.
pub(super) fn maintain(source: Source<'_>, v: &VacuumStmt) -> Result<Utility> {
    let is_vacuum = v.is_vacuumcmd;
    let (mut analyzes, mut rewrites) = (!is_vacuum, false);
    let mut not_with_full = None;
    for given in node::options(&v.options)? {
        if !option(source, given, is_vacuum)? {
            continue;
        }
        match given.name() {
            "analyze" => analyzes = true,
            "full" => rewrites = true,
            "parallel" => not_with_full = Some(PARALLEL_AND_FULL),
            "disable_page_skipping" => not_with_full = not_with_full.or(Some(SKIPPING_AND_FULL)),
            _ => {}
        }
    }
    if let Some(message) = not_with_full.filter(|_| rewrites) {
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let tables: Vec<_> = v.rels.iter().map(table).collect::<Result<_>>()?;
    if tables.iter().any(|(_, columns)| !columns.is_empty()) && !analyzes {
        let message = "ANALYZE option must be specified when a column list is provided";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    Ok(Utility::Maintain(Box::new(Maintain { is_vacuum, analyzes, rewrites, tables })))
}

fn table(node: &Node) -> Result<(ast::ObjectName, Vec<ast::Ident>)> {
    match &node.node {
        Some(NodeEnum::VacuumRelation(VacuumRelation { relation: Some(name), va_cols, .. })) => {
            Ok((node::relation(name), node::columns(va_cols)?))
        }
        other => Err(node::unexpected("a table", other.as_ref())),
    }
}

/// Returns whether an option is on. Options other than ANALYZE and FULL control how PostgreSQL's vacuum
/// works, so they have no effect.
fn option(source: Source<'_>, given: Opt<'_>, is_vacuum: bool) -> Result<bool> {
    let known = if is_vacuum { FLAGS } else { &FLAGS[..FLAGS_OF_ANALYZE] };
    if known.contains(&given.name()) {
        return given.flag();
    }
    let position = given.position(source);
    match given.name() {
        "index_cleanup" if is_vacuum => {
            let is_auto = given.text().is_some_and(|text| text.eq_ignore_ascii_case("auto"));
            if !is_auto {
                given.flag()?;
            }
            Ok(false)
        }
        "parallel" if is_vacuum => {
            if given.value().is_none() {
                let message = "parallel option requires a value between 0 and 1024";
                return Err(node::syntax(message).at(position));
            }
            let workers = given.number().ok_or_else(|| node::syntax("parallel requires an integer value"))?;
            if !(0..=1024).contains(&workers) {
                let message = "parallel workers for vacuum must be between 0 and 1024";
                return Err(node::syntax(message).at(position));
            }
            Ok(workers > 0)
        }
        name => {
            let command = if is_vacuum { "VACUUM" } else { "ANALYZE" };
            let message = format!("unrecognized {command} option \"{name}\"");
            Err(node::syntax(message).at(position))
        }
    }
}

//! WITH: named queries, bound where they are used.
//!
//! Invariants
//! 1. The body of a named query sees the named queries before it, and the queries around its WITH; not those around the place
//!    where it is used.
//! 2. Every named query is bound at least once, used or not, so that its errors are told.
//!
//! Does not know: how rows of a query in FROM are read. A query that is used twice is bound, and run, twice.

use std::rc::Rc;

use sqlparser::ast;

use super::{Binder, alias_of, fold};
use crate::error::{Result, SqlError, SqlState};

/// A named query.
#[derive(Debug, Clone)]
pub(super) struct Named {
    /// The name.
    pub(super) name: String,
    /// Names for its columns, from the first on.
    pub(super) columns: Vec<String>,
    /// What it is.
    pub(super) query: Rc<ast::Query>,
    /// How many queries were around its WITH.
    levels: usize,
    /// Its body is being bound under WITH RECURSIVE: the name means itself.
    open: bool,
}

impl Binder<'_> {
    /// Runs `bind` with the named queries of a WITH in reach.
    pub(super) fn with_named<T>(
        &mut self,
        with: &ast::With,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.named.len();
        let bound = self.name_queries(with, before).and_then(|()| bind(self));
        self.named.truncate(before);
        bound
    }

    fn name_queries(&mut self, with: &ast::With, before: usize) -> Result<()> {
        for cte in &with.cte_tables {
            let ast::Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
            if from.is_some() || alias.at.is_some() {
                return Err(SqlError::unsupported("this form of WITH"));
            }
            let name = alias_of(&alias.name)?;
            if self.named[before..].iter().any(|n| n.name == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(
                    SqlError::new(SqlState::DUPLICATE_ALIAS, message).at(self.span_at(alias.name.span))
                );
            }
            let columns = alias.columns.iter().map(|c| fold(&c.name)).collect();
            let query = Rc::new(query.as_ref().clone());
            let named = Named { name, columns, query, levels: self.levels.len(), open: with.recursive };
            self.named.push(named);
            let place = self.named.len() - 1;
            self.named_body(place)?;
            self.named[place].open = false;
        }
        Ok(())
    }

    /// The place of the query that a name means.
    pub(super) fn find_named(&self, name: &str) -> Option<usize> {
        self.named.iter().rposition(|n| n.name == name)
    }

    /// Binds the body of a named query.
    pub(super) fn named_body(&mut self, place: usize) -> Result<super::query::BoundQuery> {
        let Named { name, columns, query, levels, open } = self.named[place].clone();
        // Under RECURSIVE the name means the query itself while its body is bound.
        let seen = if open { place + 1 } else { place };
        if open && self.recursing.contains(&place) {
            return Err(SqlError::unsupported(format!("WITH RECURSIVE where \"{name}\" reads itself")));
        }
        let later = self.named.split_off(seen);
        let hidden: Vec<bool> = self.levels[levels..].iter().map(|l| l.hidden).collect();
        self.levels[levels..].iter_mut().for_each(|l| l.hidden = true);
        self.recursing.push(place);
        let bound = self.deeper(|b| b.inner_query(&query));
        self.recursing.pop();
        self.levels[levels..].iter_mut().zip(hidden).for_each(|(l, h)| l.hidden = h);
        self.named.extend(later);
        let bound = bound?;
        if columns.len() > bound.columns.len() {
            let message = format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                bound.columns.len(),
                columns.len()
            );
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        Ok(bound)
    }
}

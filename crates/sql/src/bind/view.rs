//! Binds views. CREATE VIEW stores the text of the query, and a view in FROM is this text, bound again.
//!
//! Invariants
//! 1. When a view is created, the names in its query are qualified (`meaning`). So columns that its tables
//!    get later change nothing.
//! 2. A view has the columns that it had when it was created. If its text now returns other columns, reading
//!    the view is an error.
//!
//! This module does not know how rows are read.

use varve_engine::{NewView, ObjectId, SequenceDef, TableDef, Use, ViewColumn, ViewDef};

use super::bound::BoundQuery;
use super::meanings::{Extent, Meanings};
use super::relations::check_alias;
use super::scope::Relation;
use super::{Binder, limits};
use crate::ast::{self, CreateView, Ident, SetExpr, Statement, StorageOption};
use crate::error::{Result, SqlError, SqlState};
use crate::names::{fold, object_name};
use crate::oid;
use crate::parse::view_option::security_invoker;
use crate::parse::{self, Parsed, Token};
use crate::plan::{Select, Source};
use crate::rights::{Kind, Need, Object};
use crate::sink::Column;
use crate::system::names::quoted;
use crate::ty::Typed;

/// A bound CREATE VIEW.
pub struct ViewSpec {
    /// The view to create.
    pub view: NewView,
    /// OR REPLACE
    pub or_replace: bool,
    /// The tables that the view reads. They are locked while the view is created.
    pub tables: Vec<std::sync::Arc<TableDef>>,
}

impl Binder<'_> {
    /// Binds CREATE VIEW.
    pub fn create_view(&mut self, v: &CreateView) -> Result<ViewSpec> {
        let (schema, name) = object_name(&v.name)?;
        if !self.catalog.has_schema(&schema) {
            return Err(crate::names::cannot_create(&schema, &name).at(self.at(&v.name)));
        }
        // A stored text is bound with the search path `public`. If the session has the same path, no path is
        // set.
        self.path = self.path.filter(|path| path.number() != 0);
        let bound = self.viewed(&v.query)?;
        if bound.select.lock.is_some() {
            return Err(SqlError::unsupported("a view that locks the rows it shows"));
        }
        if self.uses.only {
            return Err(SqlError::unsupported("ONLY in a view"));
        }
        if !self.params.is_empty() {
            let message = "there is no parameter $1";
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
        }
        let columns = view_columns(&bound, &v.columns)?;
        limits::columns(columns.len())?;
        let text = self.kept_query(v, &bound, &columns)?;
        let uses = self.uses(&text)?;
        let tables = std::mem::take(&mut self.uses.tables);
        let security_invoker = options_of(&v.options)?;
        let view = NewView { schema, name, columns, text, uses, security_invoker };
        Ok(ViewSpec { view, or_replace: v.or_replace, tables })
    }

    /// Binds a query like a query in FROM.
    fn viewed(&mut self, query: &ast::Query) -> Result<BoundQuery> {
        let was_in_from = std::mem::replace(&mut self.in_from, true);
        let bound = self.deeper(|b| b.query(query));
        self.in_from = was_in_from;
        bound
    }

    fn reread(&mut self, text: &str) -> Result<BoundQuery> {
        let query = query_of(text)?;
        let mut inner = Binder::of_kept(self.catalog, text)?;
        inner.depth = self.depth;
        inner.uses.through = self.uses.through;
        let bound = inner.viewed(&query);
        self.reads_world |= inner.reads_world;
        let new = inner.uses.needs.into_iter().filter(|need| !self.uses.needs.contains(need));
        let new: Vec<Need> = new.collect();
        self.uses.needs.extend(new);
        bound
    }

    /// Returns the text of the query for the catalog. It is the first of several candidates that binds to the
    /// same query again.
    fn kept_query(&mut self, v: &CreateView, bound: &BoundQuery, columns: &[ViewColumn]) -> Result<String> {
        let mut inner = Binder::new(self.catalog, &v.text, &[])?;
        (inner.path, inner.depth) = (self.path, self.depth);
        inner.meanings = Some(Meanings::default());
        let query = query_of(&v.text)?;
        inner.viewed(&query)?;
        let meanings = inner.meanings.take().unwrap_or_default();
        let mut named = meanings.clone();
        ordered_by_number(&query, bound, &mut named);
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let is_named = bound.columns.iter().map(|c| &*c.name).eq(names.iter().copied());
        for extent in [Extent::All, Extent::Relations] {
            if !is_named
                && let Some(text) = parse::named_outputs(&named.written_out(&v.text, extent)?, &names)?
            {
                let again = self.reread(&text);
                if again
                    .is_ok_and(|again| is_same(&again.select, &bound.select) && has_columns(&again, columns))
                {
                    return Ok(text);
                }
            }
            let text = meanings.written_out(&v.text, extent)?;
            if !is_named {
                let text = around(&text, &names);
                let again = self.reread(&text);
                if again.is_ok_and(|again| {
                    is_around(&again.select, &bound.select) && has_columns(&again, columns)
                }) {
                    return Ok(text);
                }
            }
            let again = self.reread(&text);
            if again
                .is_ok_and(|again| again.columns == bound.columns && is_same(&again.select, &bound.select))
            {
                return Ok(text);
            }
        }
        Err(SqlError::unsupported(format!("the query {}", v.text))
            .with_hint("Varve cannot keep this query as text; write it in another way."))
    }

    /// Binds a view in FROM.
    pub(super) fn view(
        &mut self,
        view: &ViewDef,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Source, Relation)> {
        self.uses.views.push(view.id);
        self.need_relation(Object::new(view.id, Kind::View, &view.name), &view.schema);
        let through = (view.security_invoker != Some(true)).then_some(view.id);
        let around = std::mem::replace(&mut self.uses.through, through);
        let shown = self.shown_view(view, alias);
        self.uses.through = around;
        shown
    }

    /// Binds a sequence in FROM. It is one row with the state of the sequence.
    pub(super) fn sequence(
        &mut self,
        sequence: &SequenceDef,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Source, Relation)> {
        self.uses.sequence = true;
        let id = sequence.id.0;
        let text = format!(
            "SELECT pg_catalog.varve_sequence_value({id}::oid) AS last_value, \
             pg_catalog.varve_sequence_log_count({id}::oid) AS log_cnt, \
             pg_catalog.varve_sequence_is_called({id}::oid) AS is_called"
        );
        let columns = [("last_value", oid::INT8), ("log_cnt", oid::INT8), ("is_called", oid::BOOL)];
        let column = |(name, type_id): (&str, u32)| ViewColumn { name: name.into(), type_id, modifier: -1 };
        let (schema, name) = (sequence.schema.clone(), sequence.name.clone());
        let columns = columns.into_iter().map(column).collect();
        let view = ViewDef {
            id: sequence.id.into(),
            database: sequence.database,
            schema,
            name,
            columns,
            text,
            uses: Vec::new(),
            security_invoker: None,
        };
        self.shown_view(&view, alias)
    }

    fn shown_view(&mut self, view: &ViewDef, alias: Option<&ast::TableAlias>) -> Result<(Source, Relation)> {
        let bound = self.deeper(|b| b.reread(&view.text))?;
        let same = |(c, now): (&ViewColumn, &Column)| c.type_id == now.type_oid && c.modifier == now.typmod;
        if bound.columns.len() != view.columns.len() || !view.columns.iter().zip(&bound.columns).all(same) {
            let message = format!("view \"{}\" no longer has the columns that it was made with", view.name);
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Drop the view and create it again."));
        }
        let types = bound.select.outputs.iter().map(|o| o.t);
        let named = view.columns.iter().map(|c| c.name.clone()).zip(types);
        let mut columns: Vec<(String, Typed)> = named.collect();
        let (mut name, mut hidden) = (view.name.clone(), None);
        if let Some(alias) = alias {
            check_alias(alias, columns.len())?;
            hidden = Some(std::mem::replace(&mut name, fold(&alias.name)));
            for (column, renamed) in columns.iter_mut().zip(&alias.columns) {
                column.0 = fold(renamed);
            }
        }
        let relation = Relation { alias: name, hidden, columns, ..Relation::unnamed() };
        Ok((Source::Query(Box::new(bound.select)), relation.showing(view.id.0)))
    }

    /// Returns the objects and columns that the query uses. A column counts as used if a word of the text is
    /// its name. So the list may have too many columns, but never too few. If the query renames columns
    /// (`t AS x(p)`), all columns count as used.
    fn uses(&mut self, text: &str) -> Result<Vec<Use>> {
        let tokens = parse::tokens(text)?;
        let all = parse::names_columns(text)?;
        let words: Vec<String> = tokens.iter().filter_map(Token::name).collect();
        let stars = tokens.windows(2).any(|pair| pair[1].is("*") && begins_item(&pair[0]));
        let natural = words.iter().any(|w| w == "natural");
        let named = |names: &mut dyn Iterator<Item = &str>| {
            let used = |(_, name): &(usize, &str)| all || stars || natural || words.iter().any(|w| w == name);
            names.enumerate().filter(used).map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let mut uses: Vec<Use> = Vec::new();
        for table in &self.uses.tables {
            let columns = named(&mut table.columns.iter().map(|c| c.name.as_str()));
            uses.push(Use { object: table.id.into(), columns });
        }
        for id in &self.uses.views {
            if let Some(view) = self.catalog.view_by_id(*id) {
                let columns = named(&mut view.columns.iter().map(|c| c.name.as_str()));
                uses.push(Use { object: *id, columns });
            }
        }
        let mut seen: Vec<ObjectId> = Vec::new();
        uses.retain(|used| {
            let is_new = !seen.contains(&used.object);
            seen.push(used.object);
            is_new
        });
        Ok(uses)
    }
}

/// Returns the options of CREATE VIEW.
fn options_of(options: &[StorageOption]) -> Result<Option<bool>> {
    let mut found = None;
    for option in options {
        found = Some(security_invoker(&option.name, option.value.as_deref())?);
    }
    Ok(found)
}

/// Returns whether two bound queries are the same.
fn is_same(again: &Select, bound: &Select) -> bool {
    // The Debug form shows everything in a bound query, and a bound query has no positions in the text.
    format!("{again:?}") == format!("{bound:?}")
}

/// Returns whether `again` is the query `bound` inside another query.
fn is_around(again: &Select, bound: &Select) -> bool {
    matches!(&again.source, Source::Query(inner) if is_same(inner, bound))
}

fn has_columns(again: &BoundQuery, columns: &[ViewColumn]) -> bool {
    let same = |(now, c): (&Column, &ViewColumn)| {
        (&*now.name, now.type_oid, now.typmod) == (c.name.as_str(), c.type_id, c.modifier)
    };
    again.columns.len() == columns.len() && again.columns.iter().zip(columns).all(same)
}

/// Records the number of each output whose name is in ORDER BY or DISTINCT ON. The outputs get other names,
/// so the new text must use numbers.
fn ordered_by_number(query: &ast::Query, bound: &BoundQuery, meanings: &mut Meanings) {
    let mut order: Vec<&ast::Expr> = query.order_by.iter().map(|item| &item.expr).collect();
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Query(inner) => {
                order.extend(inner.order_by.iter().map(|item| &item.expr));
                body = &inner.body;
            }
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Select(select) => {
                if let Some(ast::Distinct::On(on)) = &select.distinct {
                    order.extend(on);
                }
                break;
            }
            SetExpr::Values(_) => break,
        }
    }
    for item in order {
        if let ast::Expr::Identifier(name) = item
            && let Some(output) = bound.columns.iter().position(|c| *c.name == name.value)
        {
            meanings.note_output(name, output);
        }
    }
}

/// Puts the query into an outer query that gives names to its columns.
fn around(text: &str, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let columns: Vec<String> = names.iter().map(|name| format!("q.{name}")).collect();
    format!("SELECT {} FROM ({text}) q({})", columns.join(", "), names.join(", "))
}

fn no_query(text: &str) -> SqlError {
    SqlError::internal(format!("the text of a view is no query: {text}"))
}

/// Parses a text that is a query.
fn query_of(text: &str) -> Result<ast::Query> {
    match parse::statement(text)? {
        Parsed::Sql(statement) => match *statement {
            Statement::Query(query) => Ok(query),
            _ => Err(no_query(text)),
        },
        _ => Err(no_query(text)),
    }
}

/// Returns whether a star after this token stands for columns. Otherwise it is a multiplication.
fn begins_item(before: &Token<'_>) -> bool {
    [",", ".", ")"].iter().any(|symbol| before.is(symbol))
        || ["select", "distinct", "all"].iter().any(|word| before.is_word(word))
}

/// Returns the view's columns. The first columns have the names that CREATE VIEW lists, the others have the
/// names of the query's columns.
fn view_columns(bound: &BoundQuery, given: &[Ident]) -> Result<Vec<ViewColumn>> {
    if given.len() > bound.columns.len() {
        let message = "CREATE VIEW specifies more column names than columns";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let mut columns: Vec<ViewColumn> = Vec::with_capacity(bound.columns.len());
    for (at, column) in bound.columns.iter().enumerate() {
        let name = given.get(at).map_or_else(|| column.name.to_string(), fold);
        if columns.iter().any(|c| c.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        columns.push(ViewColumn { name, type_id: column.type_oid, modifier: column.typmod });
    }
    Ok(columns)
}

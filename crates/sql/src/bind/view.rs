//! Views: CREATE VIEW as text that is kept, and a view in FROM as that text, bound again.
//!
//! Invariants
//! 1. The stars of the outer select lists are written out when the view is made: later columns of its tables don't show.
//! 2. A view shows the columns that it had when it was made; if its text gives others by now, reading it is an error.
//!
//! Does not know: how rows are read.

use sqlparser::ast::{
    self, Expr as Ast, Ident, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
};
use sqlparser::tokenizer::{Token, TokenWithSpan};
use varve_engine::{NewView, ObjectId, SequenceDef, TableDef, Use, ViewColumn, ViewDef};

use super::from::check_alias;
use super::query::BoundQuery;
use super::scope::Relation;
use super::{Binder, clauses_ddl, clipped, fold, object_name};
use crate::error::{Result, SqlError, SqlState};
use crate::oid;
use crate::parse::{self, Parsed};
use crate::plan::{Select, Source};
use crate::rights::{Kind, Need, Object};
use crate::sink::Column;
use crate::system::names::quoted;
use crate::ty::Typed;

/// CREATE VIEW, understood.
pub struct ViewSpec {
    /// The view.
    pub view: NewView,
    /// OR REPLACE
    pub or_replace: bool,
    /// Tables that it reads, to be held while it is made.
    pub tables: Vec<std::sync::Arc<TableDef>>,
}

impl Binder<'_> {
    /// CREATE VIEW
    pub fn create_view(&mut self, v: &ast::CreateView) -> Result<ViewSpec> {
        clauses_ddl::check_create_view(v)?;
        let (schema, name) = object_name(&v.name)?;
        if !self.catalog.has_schema(&schema) {
            return Err(super::ddl::no_schema(&schema).at(self.at(&v.name)));
        }
        let mut query = (*v.query).clone();
        // The path of `public` is that of the text.
        self.path = self.path.filter(|path| path.number() != 0);
        let bound = self.viewed(&query)?;
        if bound.select.lock.is_some() {
            return Err(SqlError::unsupported("a view that locks the rows it shows"));
        }
        if self.met_only {
            return Err(SqlError::unsupported("ONLY in a view"));
        }
        if !self.params.is_empty() {
            let message = "there is no parameter $1";
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
        }
        self.write_out_query(&mut query)?;
        let columns = view_columns(&bound, &v.columns)?;
        let text = self.with_schemas(query.to_string())?;
        let again = self.reread(&text)?;
        let same = without_places(&again.select) == without_places(&bound.select);
        if again.columns != bound.columns || !same {
            return Err(SqlError::unsupported(format!("the query {text}"))
                .with_hint("Varve cannot keep this query as text; write it in another way."));
        }
        let uses = self.uses(&text)?;
        let tables = std::mem::take(&mut self.met_tables);
        let security_invoker = options_of(&v.options)?;
        let view = NewView { schema, name, columns, text, uses, security_invoker };
        Ok(ViewSpec { view, or_replace: v.or_replace, tables })
    }

    /// Binds a query as one in FROM is bound.
    fn viewed(&mut self, query: &ast::Query) -> Result<BoundQuery> {
        let was_in_from = std::mem::replace(&mut self.in_from, true);
        let bound = self.deeper(|b| b.query(query));
        self.in_from = was_in_from;
        bound
    }

    fn reread(&mut self, text: &str) -> Result<BoundQuery> {
        let Parsed::Sql(statement) = parse::statement(text)? else { return Err(no_query(text)) };
        let Statement::Query(query) = *statement else { return Err(no_query(text)) };
        let mut inner = Binder::new(self.catalog, text, &[])?;
        inner.depth = self.depth;
        inner.through = self.through;
        let bound = inner.viewed(&query);
        self.reads_world |= inner.reads_world;
        let new = inner.needs.into_iter().filter(|need| !self.needs.contains(need));
        let new: Vec<Need> = new.collect();
        self.needs.extend(new);
        bound
    }

    /// The text with their schemas before the names that the path has found: whoever reads the view may have another path.
    fn with_schemas(&mut self, text: String) -> Result<String> {
        let Some(path) = self.path.filter(|path| path.number() != 0) else { return Ok(text) };
        let Parsed::Sql(statement) = parse::statement(&text)? else { return Err(no_query(&text)) };
        let Statement::Query(query) = *statement else { return Err(no_query(&text)) };
        let mut inner = Binder::new(self.catalog, &text, &[])?.along(path);
        inner.depth = self.depth;
        inner.viewed(&query)?;
        let mut found: Vec<(u64, String)> = Vec::new();
        for (place, schema) in &inner.found_by_path {
            let at = inner.position(*place).ok_or_else(|| no_query(&text))?;
            found.push((u64::from(at), schema.clone()));
        }
        found.sort();
        found.dedup();
        let mut found = found.into_iter().peekable();
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.chars().enumerate() {
            // Positions count from 1.
            while let Some((_, schema)) = found.next_if(|(place, _)| *place == at as u64 + 1) {
                out.push_str(&quoted(&schema));
                out.push('.');
            }
            out.push(c);
        }
        Ok(out)
    }

    /// A view in FROM.
    pub(super) fn view(
        &mut self,
        view: &ViewDef,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Source, Relation)> {
        self.met_views.push(view.id);
        self.need_relation(Object::new(view.id, Kind::View, &view.name), &view.schema);
        let through = (view.security_invoker != Some(true)).then_some(view.id);
        let around = std::mem::replace(&mut self.through, through);
        let shown = self.shown_view(view, alias);
        self.through = around;
        shown
    }

    /// A sequence in FROM: one row that says where it stands.
    pub(super) fn sequence(
        &mut self,
        sequence: &SequenceDef,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Source, Relation)> {
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
                column.0 = fold(&renamed.name);
            }
        }
        let relation = Relation { alias: name, hidden, columns, ..Relation::unnamed() };
        Ok((Source::Query(Box::new(bound.select)), relation.showing(view.id.0)))
    }

    /// The same of a query with its WITH.
    fn write_out_query(&mut self, query: &mut ast::Query) -> Result<()> {
        match query.with.clone() {
            Some(with) => self.with_named(&with, |b| b.write_out_stars(&mut query.body)),
            None => self.write_out_stars(&mut query.body),
        }
    }

    /// Writes out `*` and `t.*` of the select lists that make the view's columns.
    fn write_out_stars(&mut self, body: &mut SetExpr) -> Result<()> {
        match body {
            SetExpr::Query(query) => self.write_out_query(query),
            SetExpr::SetOperation { left, right, .. } => {
                self.write_out_stars(left)?;
                self.write_out_stars(right)
            }
            SetExpr::Select(select) => {
                let is_star =
                    |i: &SelectItem| matches!(i, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
                if select.projection.iter().any(is_star) {
                    let relations = self.from(&select.from)?.relations;
                    let items = std::mem::take(&mut select.projection);
                    select.projection = items.into_iter().flat_map(|i| written_out(i, &relations)).collect();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What the query names. A column counts as used if a word of the text is its name: too many, never too few. Where columns
    /// are given other names (`t AS x(p)`), all are.
    fn uses(&mut self, text: &str) -> Result<Vec<Use>> {
        let tokens = parse::tokens(text)?;
        let all = has_column_aliases(&tokens);
        let words: Vec<String> = tokens.iter().filter_map(|t| word(&t.token)).collect();
        let solid: Vec<&Token> = tokens.iter().map(|t| &t.token).filter(|t| !parse::is_blank(t)).collect();
        let stars = solid.windows(2).any(|pair| *pair[1] == Token::Mul && begins_item(pair[0]));
        let natural = words.iter().any(|w| w == "natural");
        let named = |names: &mut dyn Iterator<Item = &str>| {
            let used = |(_, name): &(usize, &str)| all || stars || natural || words.iter().any(|w| w == name);
            names.enumerate().filter(used).map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let mut uses: Vec<Use> = Vec::new();
        for table in &self.met_tables {
            let columns = named(&mut table.columns.iter().map(|c| c.name.as_str()));
            uses.push(Use { object: table.id.into(), columns });
        }
        for id in &self.met_views {
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

/// The options of CREATE VIEW.
fn options_of(options: &ast::CreateTableOptions) -> Result<Option<bool>> {
    let listed = match options {
        ast::CreateTableOptions::None => return Ok(None),
        ast::CreateTableOptions::With(listed) => listed,
        _ => return Err(SqlError::unsupported("this form of a view's options")),
    };
    let mut found = None;
    for option in listed {
        found = Some(match option {
            ast::SqlOption::Ident(name) => security_invoker(&fold(name), None)?,
            ast::SqlOption::KeyValue { key, value } => {
                let value = match value {
                    Ast::Value(v) => v.value.clone().into_string().unwrap_or_else(|| v.value.to_string()),
                    other => other.to_string(),
                };
                security_invoker(&fold(key), Some(&value))?
            }
            other => return Err(SqlError::unsupported(format!("the option {other} of a view"))),
        });
    }
    Ok(found)
}

/// The value of a view's option, which has to be `security_invoker`: the only one there is.
pub fn security_invoker(name: &str, value: Option<&str>) -> Result<bool> {
    match name {
        "security_invoker" => {}
        "security_barrier" | "check_option" => {
            return Err(SqlError::unsupported(format!("the option {name} of a view")));
        }
        other => {
            let message = format!("unrecognized parameter \"{other}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    }
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "on" | "yes" | "1" | "t" | "y") => Ok(true),
        Some("false" | "off" | "no" | "0" | "f" | "n") => Ok(false),
        Some(_) => {
            let given = value.unwrap_or_default();
            let message = format!("invalid value for boolean option \"{name}\": {given}");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Whether an alias in the printed text of a query names columns, as `t AS x (p)` does: a word, a blank and a parenthesis.
/// Calls are printed without the blank; of other words, those that can't be aliases are told apart.
fn has_column_aliases(tokens: &[TokenWithSpan]) -> bool {
    const NO_ALIASES: &[&str] = &[
        "all",
        "and",
        "any",
        "array",
        "as",
        "between",
        "by",
        "case",
        "cast",
        "distinct",
        "else",
        "except",
        "exists",
        "filter",
        "from",
        "group",
        "having",
        "ilike",
        "in",
        "intersect",
        "join",
        "lateral",
        "like",
        "limit",
        "materialized",
        "not",
        "offset",
        "on",
        "or",
        "order",
        "over",
        "partition",
        "row",
        "select",
        "similar",
        "some",
        "then",
        "to",
        "union",
        "using",
        "values",
        "when",
        "where",
        "within",
    ];
    tokens.windows(3).any(|three| match &three[0].token {
        Token::Word(w) if parse::is_blank(&three[1].token) && three[2].token == Token::LParen => {
            w.quote_style.is_some() || !NO_ALIASES.contains(&w.value.to_ascii_lowercase().as_str())
        }
        _ => false,
    })
}

/// The Debug form of a bound query, in which there is everything but the places that its syntax trees (of aggregates) stood at.
fn without_places(select: &Select) -> String {
    let shown = format!("{select:?}");
    let mut parts = shown.split("Location(");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    out
}

fn no_query(text: &str) -> SqlError {
    SqlError::internal(format!("the text of a view is no query: {text}"))
}

fn word(token: &Token) -> Option<String> {
    match token {
        Token::Word(w) if w.quote_style.is_some() => Some(clipped(w.value.clone())),
        Token::Word(w) => Some(clipped(w.value.to_ascii_lowercase())),
        _ => None,
    }
}

/// Whether a star behind this token stands for columns, and is no product.
fn begins_item(before: &Token) -> bool {
    match before {
        Token::Comma | Token::Period => true,
        Token::Word(w) if w.quote_style.is_none() => {
            matches!(w.value.to_ascii_lowercase().as_str(), "select" | "distinct" | "all")
        }
        _ => false,
    }
}

fn written_out(item: SelectItem, relations: &[Relation]) -> Vec<SelectItem> {
    let of = match &item {
        SelectItem::Wildcard(_) => None,
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            name.0.last().and_then(|p| p.as_ident()).map(fold)
        }
        _ => return vec![item],
    };
    let meant = relations.iter().filter(|r| of.as_ref().is_none_or(|of| *of == r.alias));
    let column = |r: &Relation, name: &str| {
        SelectItem::UnnamedExpr(Ast::CompoundIdentifier(vec![ident(&r.alias), ident(name)]))
    };
    meant.flat_map(|r| r.columns.iter().map(|(name, _)| column(r, name))).collect()
}

fn ident(name: &str) -> Ident {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && sqlparser::keywords::ALL_KEYWORDS.binary_search(&name.to_ascii_uppercase().as_str()).is_err();
    if plain { Ident::new(name) } else { Ident::with_quote('"', name) }
}

/// The view's columns: names given in front, then those of the query.
fn view_columns(bound: &BoundQuery, given: &[ast::ViewColumnDef]) -> Result<Vec<ViewColumn>> {
    if given.len() > bound.columns.len() {
        let message = "CREATE VIEW specifies more column names than columns";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let mut columns: Vec<ViewColumn> = Vec::with_capacity(bound.columns.len());
    for (at, column) in bound.columns.iter().enumerate() {
        let name = given.get(at).map_or_else(|| column.name.to_string(), |c| fold(&c.name));
        if columns.iter().any(|c| c.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        columns.push(ViewColumn { name, type_id: column.type_oid, modifier: column.typmod });
    }
    Ok(columns)
}

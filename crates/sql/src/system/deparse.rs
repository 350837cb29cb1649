//! A view's query as PostgreSQL lays it out: columns with their tables' names, each on a line of its own.
//!
//! Does not know: queries with WITH, set operations, subqueries and the like: they are shown as they are kept.

use sqlparser::ast::{
    self, Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, JoinConstraint,
    JoinOperator, LimitClause, OrderByKind, SelectItem, SetExpr, Statement, TableFactor,
};
use varve_engine::{Catalog, ViewDef};

use super::names::quoted;
use crate::bind::{fold, object_name, output_name};
use crate::parse::{self, Parsed};
use crate::path::Path;

/// A table or view in FROM: its name there, and its columns.
struct Known {
    name: String,
    columns: Vec<String>,
}

/// The query of a view; `None` if it is of a form that is not laid out.
pub fn view_query(catalog: &Catalog, view: &ViewDef, path: &Path) -> Option<String> {
    parse::on_deep_stack(&view.text, || laid_out(catalog, view, path))
}

fn laid_out(catalog: &Catalog, view: &ViewDef, path: &Path) -> Option<String> {
    let Parsed::Sql(statement) = parse::statement(&view.text).ok()? else { return None };
    let Statement::Query(query) = *statement else { return None };
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.with.is_none()
        && select.distinct.is_none()
        && select.named_window.is_empty()
        && query.locks.is_empty()
        && query.fetch.is_none();
    if !is_plain || select.projection.len() != view.columns.len() {
        return None;
    }
    let (from, known) = from((catalog, path), &select.from)?;
    let names = view.columns.iter().map(|column| column.name.as_str());
    let items = select.projection.iter().zip(names).map(|(item, name)| output(item, name, &known));
    let mut out = format!(" SELECT {}{from}", items.collect::<Option<Vec<_>>>()?.join(",\n    "));
    if let Some(condition) = &select.selection {
        out += &format!("\n  WHERE {}", shown(condition, &known)?);
    }
    match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() => {
            if !keys.is_empty() {
                out += &format!("\n  GROUP BY {}", list(keys, &known)?);
            }
        }
        _ => return None,
    }
    if let Some(condition) = &select.having {
        out += &format!("\n HAVING {}", shown(condition, &known)?);
    }
    out += &order(&query, &select.projection, &known)?;
    out += &limit(&query)?;
    Some(out)
}

fn from(catalog: (&Catalog, &Path), items: &[ast::TableWithJoins]) -> Option<(String, Vec<Known>)> {
    let (mut known, mut out) = (Vec::new(), Vec::new());
    for item in items {
        let mut text = table(catalog, &item.relation, &mut known)?;
        let mut joins = Vec::new();
        for join in &item.joins {
            joins.push((&join.join_operator, table(catalog, &join.relation, &mut known)?));
        }
        for (operator, joined) in joins {
            text += &join_text(operator, &joined, &known)?;
        }
        out.push(text);
    }
    let text = if out.is_empty() { String::new() } else { format!("\n   FROM {}", out.join(",\n    ")) };
    Some((text, known))
}

fn table((catalog, path): (&Catalog, &Path), factor: &TableFactor, known: &mut Vec<Known>) -> Option<String> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let (schema, last) = object_name(name).ok()?;
    let columns = match catalog.table(&schema, &last) {
        Some(table) => table.columns.iter().map(|column| column.name.clone()).collect(),
        None => catalog.view(&schema, &last)?.columns.iter().map(|column| column.name.clone()).collect(),
    };
    let shown = path.shown(catalog, &schema, &last);
    let (name, text) = match alias {
        None => (last, shown),
        Some(alias) if alias.columns.is_empty() => {
            let alias = fold(&alias.name);
            let text = format!("{shown} {}", quoted(&alias));
            (alias, text)
        }
        Some(_) => return None,
    };
    known.push(Known { name, columns });
    Some(text)
}

fn join_text(operator: &JoinOperator, joined: &str, known: &[Known]) -> Option<String> {
    let (word, constraint) = match operator {
        JoinOperator::Join(c) | JoinOperator::Inner(c) => ("JOIN", c),
        JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => ("LEFT JOIN", c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => ("RIGHT JOIN", c),
        JoinOperator::FullOuter(c) => ("FULL JOIN", c),
        JoinOperator::CrossJoin(c) => ("CROSS JOIN", c),
        _ => return None,
    };
    Some(match constraint {
        JoinConstraint::On(condition) => format!("\n     {word} {joined} ON {}", shown(condition, known)?),
        JoinConstraint::None => format!("\n     {word} {joined}"),
        // A column of USING belongs to no table.
        JoinConstraint::Using(_) | JoinConstraint::Natural => return None,
    })
}

/// One output; what is no column always says its name.
fn output(item: &SelectItem, name: &str, known: &[Known]) -> Option<String> {
    let (SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) = item else { return None };
    let own = match e {
        Ast::Identifier(column) => Some(fold(column)),
        Ast::CompoundIdentifier(parts) => parts.last().map(fold),
        _ => None,
    };
    let text = shown(e, known)?;
    Some(if own.as_deref() == Some(name) { text } else { format!("{text} AS {}", quoted(name)) })
}

fn list(items: &[Ast], known: &[Known]) -> Option<String> {
    Some(items.iter().map(|e| shown(e, known)).collect::<Option<Vec<_>>>()?.join(", "))
}

/// ORDER BY. The name of an output means the output, whatever column there is of the same name.
fn order(query: &ast::Query, outputs: &[SelectItem], known: &[Known]) -> Option<String> {
    let Some(order) = &query.order_by else { return Some(String::new()) };
    let OrderByKind::Expressions(items) = &order.kind else { return None };
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        let direction = match &item.options.sort {
            None | Some(ast::OrderBySort::Asc) => "",
            Some(ast::OrderBySort::Desc) => " DESC",
            Some(ast::OrderBySort::Using(_)) => return None,
        };
        let named = match &item.expr {
            Ast::Identifier(name) => outputs.iter().find_map(|output| of_name(output, &fold(name))),
            _ => None,
        };
        let mut key = named.unwrap_or(&item.expr);
        while let Ast::Nested(inner) = key {
            key = inner;
        }
        // A number would be a position.
        if item.options.nulls_first.is_some() || matches!(key, Ast::Value(_)) {
            return None;
        }
        let text = shown(key, known)?;
        let is_column = matches!(key, Ast::Identifier(_) | Ast::CompoundIdentifier(_));
        out.push(if is_column { format!("{text}{direction}") } else { format!("({text}){direction}") });
    }
    Some(format!("\n  ORDER BY {}", out.join(", ")))
}

/// The expression of an output if the query, not the view, gives it this name.
fn of_name<'a>(output: &'a SelectItem, name: &str) -> Option<&'a Ast> {
    match output {
        SelectItem::ExprWithAlias { expr, alias } if fold(alias) == name => Some(expr),
        SelectItem::UnnamedExpr(e) if output_name(e) == name => Some(e),
        _ => None,
    }
}

fn limit(query: &ast::Query) -> Option<String> {
    match &query.limit_clause {
        None => Some(String::new()),
        Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by })
            if limit_by.is_empty() =>
        {
            Some(format!("\n LIMIT {limit}"))
        }
        Some(_) => None,
    }
}

fn shown(e: &Ast, known: &[Known]) -> Option<String> {
    let mut e = e.clone();
    qualify(&mut e, known)?;
    Some(e.to_string())
}

/// Writes the table's name before each column; `None` for what is not known here.
fn qualify(e: &mut Ast, known: &[Known]) -> Option<()> {
    match e {
        Ast::Identifier(column) => {
            let name = fold(column);
            let mut holders = known.iter().filter(|table| table.columns.contains(&name));
            let (holder, None) = (holders.next()?, holders.next()) else { return None };
            *e = Ast::CompoundIdentifier(vec![ident(&holder.name), ident(&name)]);
        }
        Ast::CompoundIdentifier(parts) => {
            let [.., table, column] = parts.as_slice() else { return None };
            let (table, column) = (fold(table), fold(column));
            known.iter().find(|known| known.name == table && known.columns.contains(&column))?;
            *e = Ast::CompoundIdentifier(vec![ident(&table), ident(&column)]);
        }
        Ast::Value(_) | Ast::TypedString(_) | Ast::Interval(_) => {}
        Ast::Nested(inner)
        | Ast::UnaryOp { expr: inner, .. }
        | Ast::IsNull(inner)
        | Ast::IsNotNull(inner)
        | Ast::IsTrue(inner)
        | Ast::IsNotTrue(inner)
        | Ast::IsFalse(inner)
        | Ast::IsNotFalse(inner)
        | Ast::Cast { expr: inner, .. }
        | Ast::Extract { expr: inner, .. } => qualify(inner, known)?,
        Ast::BinaryOp { left, right, .. } => {
            qualify(left, known)?;
            qualify(right, known)?;
        }
        Ast::Between { expr, low, high, .. } => {
            [expr, low, high].into_iter().try_for_each(|e| qualify(e, known))?;
        }
        Ast::InList { expr, list, .. } => {
            qualify(expr, known)?;
            list.iter_mut().try_for_each(|e| qualify(e, known))?;
        }
        Ast::Like { expr, pattern, .. } => {
            qualify(expr, known)?;
            qualify(pattern, known)?;
        }
        Ast::Case { operand, conditions, else_result, .. } => {
            let ends = operand.iter_mut().chain(else_result.iter_mut());
            ends.map(|e| &mut **e).try_for_each(|e| qualify(e, known))?;
            for when in conditions {
                qualify(&mut when.condition, known)?;
                qualify(&mut when.result, known)?;
            }
        }
        Ast::Function(f) => arguments(f, known)?,
        _ => return None,
    }
    Some(())
}

fn arguments(f: &mut ast::Function, known: &[Known]) -> Option<()> {
    if f.over.is_some() || f.filter.is_some() {
        return None;
    }
    match &mut f.args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(_) => return None,
        FunctionArguments::List(list) => {
            if !list.clauses.is_empty() {
                return None;
            }
            for argument in &mut list.args {
                match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => qualify(e, known)?,
                    FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => {}
                    _ => return None,
                }
            }
        }
    }
    Some(())
}

fn ident(name: &str) -> Ident {
    match quoted(name) == name {
        true => Ident::new(name),
        false => Ident::with_quote('"', name),
    }
}

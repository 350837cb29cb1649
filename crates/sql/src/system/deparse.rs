//! Writes a view's query in PostgreSQL's layout: one column per line, with its table's name.
//!
//! A query with WITH, set operations, subqueries or similar clauses is shown with the text that the catalog
//! stores.

use varve_engine::{Catalog, ViewDef};

use super::names::quoted;
use super::show::type_name;
use crate::ast::{
    self, BinaryOperator, Direction, Expr as Ast, FunctionArg, GroupItem, JoinConstraint, JoinOperator,
    SelectItem, SetExpr, Statement, TableFactor, UnaryOperator, Value,
};
use crate::names::{fold, object_name};
use crate::output_name::output_name;
use crate::parse::{self, Parsed};
use crate::path::Path;

/// A table or view in FROM: its name (or alias), and its columns.
struct Known {
    name: String,
    columns: Vec<String>,
}

/// Returns the query of a view in PostgreSQL's layout, or `None` for a form that is not supported here.
pub fn view_query(catalog: &Catalog, view: &ViewDef, path: &Path) -> Option<String> {
    parse::on_deep_stack(&view.text, || laid_out(catalog, view, path))
}

fn laid_out(catalog: &Catalog, view: &ViewDef, path: &Path) -> Option<String> {
    let Parsed::Sql(statement) = parse::statement(&view.text).ok()? else { return None };
    let Statement::Query(query) = *statement else { return None };
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.with.is_none()
        && select.distinct.is_none()
        && select.named_windows.is_empty()
        && query.locks.is_empty()
        && !query.with_ties;
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
    if !select.group_by.is_empty() {
        let keys = select.group_by.iter().map(|item| match item {
            GroupItem::Expr(key) => shown(key, &known),
            _ => None,
        });
        out += &format!("\n  GROUP BY {}", keys.collect::<Option<Vec<_>>>()?.join(", "));
    }
    if let Some(condition) = &select.having {
        out += &format!("\n HAVING {}", shown(condition, &known)?);
    }
    out += &order(&query, &select.projection, &known)?;
    out += &limit(&query, &known)?;
    Some(out)
}

fn from(catalog: (&Catalog, &Path), items: &[ast::TableWithJoins]) -> Option<(String, Vec<Known>)> {
    let (mut known, mut out) = (Vec::new(), Vec::new());
    for item in items {
        let mut text = table(catalog, &item.relation, &mut known)?;
        let mut joins = Vec::new();
        for join in &item.joins {
            joins.push((&join.operator, table(catalog, &join.relation, &mut known)?));
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
    let TableFactor::Table(ast::Table { name, only: false, alias }) = factor else { return None };
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
        JoinOperator::Inner(c) => ("JOIN", c),
        JoinOperator::LeftOuter(c) => ("LEFT JOIN", c),
        JoinOperator::RightOuter(c) => ("RIGHT JOIN", c),
        JoinOperator::FullOuter(c) => ("FULL JOIN", c),
        JoinOperator::Cross => return Some(format!("\n     CROSS JOIN {joined}")),
    };
    Some(match constraint {
        JoinConstraint::On(condition) => format!("\n     {word} {joined} ON {}", shown(condition, known)?),
        // A column of USING belongs to no table.
        JoinConstraint::Using(_) | JoinConstraint::Natural => return None,
    })
}

/// Returns the text of one output. An output that is not a plain column always has AS with its name.
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

/// Returns the text of ORDER BY. The name of an output means this output, even if there is a column of the
/// same name.
fn order(query: &ast::Query, outputs: &[SelectItem], known: &[Known]) -> Option<String> {
    if query.order_by.is_empty() {
        return Some(String::new());
    }
    let mut out = Vec::with_capacity(query.order_by.len());
    for item in &query.order_by {
        let direction = match item.direction {
            Direction::Ascending => "",
            Direction::Descending => " DESC",
            Direction::Using => return None,
        };
        let named = match &item.expr {
            Ast::Identifier(name) => outputs.iter().find_map(|output| of_name(output, &fold(name))),
            Ast::Value(constant) => of_number(outputs, &constant.value),
            _ => None,
        };
        let mut key = named.unwrap_or(&item.expr);
        while let Ast::Nested(inner) = key {
            key = inner;
        }
        // A number as a key would mean a position.
        if item.nulls_first.is_some() || matches!(key, Ast::Value(_)) {
            return None;
        }
        let text = shown(key, known)?;
        let is_column = matches!(key, Ast::Identifier(_) | Ast::CompoundIdentifier(_));
        out.push(if is_column { format!("{text}{direction}") } else { format!("({text}){direction}") });
    }
    Some(format!("\n  ORDER BY {}", out.join(", ")))
}

/// Returns the expression of an output, if the query (and not the view) gives it this name.
fn of_name<'a>(output: &'a SelectItem, name: &str) -> Option<&'a Ast> {
    match output {
        SelectItem::ExprWithAlias { expr, alias } if fold(alias) == name => Some(expr),
        SelectItem::UnnamedExpr(e) if output_name(e) == name => Some(e),
        _ => None,
    }
}

/// Returns the expression of the output of this number.
fn of_number<'a>(outputs: &'a [SelectItem], number: &Value) -> Option<&'a Ast> {
    let Value::Number(digits) = number else { return None };
    let place = digits.parse::<usize>().ok()?.checked_sub(1)?;
    match outputs.get(place)? {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => Some(e),
        _ => None,
    }
}

fn limit(query: &ast::Query, known: &[Known]) -> Option<String> {
    match (&query.limit, &query.offset) {
        (None, None) => Some(String::new()),
        (Some(limit), None) => Some(format!("\n LIMIT {}", shown(limit, known)?)),
        _ => None,
    }
}

/// The precedence of an expression. An expression that is not an operation has the highest precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Or,
    And,
    Not,
    Is,
    Comparison,
    Between,
    Other,
    Sum,
    Product,
    Power,
    Sign,
    Single,
}

impl Rank {
    fn of(e: &Ast) -> Rank {
        use BinaryOperator as Op;
        match e {
            Ast::Nested(inner) => Rank::of(inner),
            Ast::BinaryOp { op, .. } => match op {
                Op::Or => Rank::Or,
                Op::And => Rank::And,
                Op::Plus | Op::Minus => Rank::Sum,
                Op::Multiply | Op::Divide | Op::Modulo => Rank::Product,
                Op::Power => Rank::Power,
                op if op.is_comparison() => Rank::Comparison,
                _ => Rank::Other,
            },
            Ast::UnaryOp { op: UnaryOperator::Not, .. } => Rank::Not,
            Ast::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, .. } => Rank::Sign,
            Ast::UnaryOp { .. } => Rank::Other,
            Ast::IsNull(_) | Ast::IsNotNull(_) => Rank::Is,
            Ast::IsTrue(_) | Ast::IsNotTrue(_) | Ast::IsFalse(_) | Ast::IsNotFalse(_) => Rank::Is,
            Ast::Between { .. } | Ast::InList { .. } | Ast::Like { .. } => Rank::Between,
            _ => Rank::Single,
        }
    }
}

/// Returns the text of an expression, with the table's name before each column. Returns `None` for an unknown
/// form.
fn shown(e: &Ast, known: &[Known]) -> Option<String> {
    let negation = |negated: bool| if negated { "NOT " } else { "" };
    let is = |inner: &Ast, words: &str| Some(format!("{} {words}", above(Rank::Is, inner, known)?));
    Some(match e {
        Ast::Nested(inner) => shown(inner, known)?,
        Ast::Identifier(_) | Ast::CompoundIdentifier(_) => column(e, known)?,
        Ast::Value(constant) => literal(&constant.value),
        Ast::UnaryOp { op: UnaryOperator::Not, expr } => {
            format!("NOT {}", above(Rank::And, expr, known)?)
        }
        Ast::UnaryOp { op, expr } => format!("{op}{}", above(Rank::Sign, expr, known)?),
        Ast::IsNull(inner) => is(inner, "IS NULL")?,
        Ast::IsNotNull(inner) => is(inner, "IS NOT NULL")?,
        Ast::IsTrue(inner) => is(inner, "IS TRUE")?,
        Ast::IsNotTrue(inner) => is(inner, "IS NOT TRUE")?,
        Ast::IsFalse(inner) => is(inner, "IS FALSE")?,
        Ast::IsNotFalse(inner) => is(inner, "IS NOT FALSE")?,
        Ast::BinaryOp { left, op, right } => operation(e, left, op, right, known)?,
        Ast::Between { expr, negated, symmetric: false, low, high } => {
            let [expr, low, high] = [expr, low, high].map(|e| above(Rank::Between, e, known));
            format!("{} {}BETWEEN {} AND {}", expr?, negation(*negated), low?, high?)
        }
        Ast::InList { expr, list, negated } => {
            let items = list.iter().map(|item| shown(item, known)).collect::<Option<Vec<_>>>()?.join(", ");
            format!("{} {}IN ({items})", above(Rank::Between, expr, known)?, negation(*negated))
        }
        Ast::Like { expr, negated, fold_case: false, pattern, escape: None } => {
            let [expr, pattern] = [expr, pattern].map(|e| above(Rank::Between, e, known));
            format!("{} {}LIKE {}", expr?, negation(*negated), pattern?)
        }
        Ast::Cast { expr, data_type } => {
            let t = crate::ty::of_ast(data_type).ok()?;
            format!("{}::{}", above(Rank::Sign, expr, known)?, type_name(t.ty.oid(), t.typmod))
        }
        Ast::Extract { field, expr } => format!("EXTRACT({field} FROM {})", shown(expr, known)?),
        Ast::Case(case) => case_shown(case, known)?,
        Ast::Function(f) => call(f, known)?,
        Ast::ValueFunction(f) if f.precision.is_none() => f.name.to_uppercase(),
        _ => return None,
    })
}

/// Returns the text of an operand, in parentheses unless its precedence is higher than `rank`.
fn above(rank: Rank, e: &Ast, known: &[Known]) -> Option<String> {
    let text = shown(e, known)?;
    Some(if Rank::of(e) > rank { text } else { format!("({text})") })
}

fn operation(whole: &Ast, left: &Ast, op: &BinaryOperator, right: &Ast, known: &[Known]) -> Option<String> {
    if matches!(op, BinaryOperator::Qualified(_)) {
        return None;
    }
    let rank = Rank::of(whole);
    // All operators except comparisons associate to the left.
    let left = match Rank::of(left) == rank && rank != Rank::Comparison {
        true => shown(left, known)?,
        false => above(rank, left, known)?,
    };
    Some(format!("{left} {op} {}", above(rank, right, known)?))
}

fn column(e: &Ast, known: &[Known]) -> Option<String> {
    let (holder, name) = match e {
        Ast::Identifier(column) => {
            let mut holders = known.iter().filter(|table| table.columns.contains(&column.value));
            let (holder, None) = (holders.next()?, holders.next()) else { return None };
            (holder, &column.value)
        }
        Ast::CompoundIdentifier(parts) => {
            let [.., table, column] = parts.as_slice() else { return None };
            let is_it = |known: &&Known| known.name == table.value && known.columns.contains(&column.value);
            (known.iter().find(is_it)?, &column.value)
        }
        _ => return None,
    };
    Some(format!("{}.{}", quoted(&holder.name), quoted(name)))
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Boolean(b) => b.to_string(),
        Value::Number(digits) => digits.clone(),
        Value::Text(text) => string(text),
    }
}

fn string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn case_shown(case: &ast::Case, known: &[Known]) -> Option<String> {
    let mut out = "CASE".to_owned();
    if let Some(operand) = &case.operand {
        out += &format!(" {}", shown(operand, known)?);
    }
    for branch in &case.branches {
        let (condition, result) = (shown(&branch.condition, known)?, shown(&branch.result, known)?);
        out += &format!(" WHEN {condition} THEN {result}");
    }
    if let Some(otherwise) = &case.otherwise {
        out += &format!(" ELSE {}", shown(otherwise, known)?);
    }
    Some(out + " END")
}

fn call(f: &ast::Function, known: &[Known]) -> Option<String> {
    let ast::Function { name, distinct, args, order_by, within_group, filter, over } = f;
    if over.is_some() || filter.is_some() || !order_by.is_empty() || !within_group.is_empty() {
        return None;
    }
    let args = args.iter().map(|argument| match argument {
        FunctionArg::Expr(e) => shown(e, known),
        FunctionArg::Star => Some("*".to_owned()),
        FunctionArg::Named(..) | FunctionArg::TableStar(_) => None,
    });
    let args = args.collect::<Option<Vec<_>>>()?.join(", ");
    let name = match name.0.as_slice() {
        [name] if matches!(name.value.as_str(), "coalesce" | "greatest" | "least" | "nullif") => {
            name.value.to_uppercase()
        }
        parts => parts.iter().map(|part| quoted(&part.value)).collect::<Vec<_>>().join("."),
    };
    Some(format!("{name}({}{args})", if *distinct { "DISTINCT " } else { "" }))
}

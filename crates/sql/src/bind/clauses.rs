//! Clauses that the parser knows and Varve does not run: refused by name, never ignored.
//!
//! Invariants
//! 1. Every function here takes a node of the syntax tree apart without `..`, so that a field which a new parser adds does not
//!    compile until somebody has decided about it.
//!
//! Does not know: what the clauses that are run mean.

use sqlparser::ast::{self, SetExpr, TableFactor};

use crate::error::{Result, SqlError, SqlState};

/// 0A000 for the first clause that is there.
pub(super) fn refuse(clauses: &[(bool, &str)]) -> Result<()> {
    match clauses.iter().find(|(there, _)| *there) {
        Some((_, name)) => Err(SqlError::unsupported(name)),
        None => Ok(()),
    }
}

/// Whether a query is its body and nothing else.
pub(super) fn is_bare(q: &ast::Query) -> bool {
    check_query(q).is_ok()
        && q.with.is_none()
        && q.order_by.is_none()
        && q.limit_clause.is_none()
        && q.fetch.is_none()
        && q.locks.is_empty()
}

/// Clauses around a query's body.
pub fn check_query(q: &ast::Query) -> Result<()> {
    let ast::Query {
        with: _,
        body: _,
        order_by: _,
        limit_clause: _,
        fetch: _,
        locks: _,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = q;
    refuse(&[
        (for_clause.is_some(), "FOR XML, JSON or BROWSE"),
        (settings.is_some(), "SETTINGS"),
        (format_clause.is_some(), "FORMAT"),
        (!pipe_operators.is_empty(), "|>"),
    ])
}

/// `(inner) ORDER BY ... LIMIT ... FOR UPDATE`: PostgreSQL reads the clauses as the inner query's own, and so do we.
pub(super) fn without_parentheses(outer: &ast::Query, inner: &ast::Query) -> Result<ast::Query> {
    check_query(inner)?;
    let twice = |there: bool, clause: &str| match there {
        true => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("multiple {clause} clauses not allowed"))),
        false => Ok(()),
    };
    let limited = |q: &ast::Query| q.limit_clause.is_some() || q.fetch.is_some();
    twice(outer.order_by.is_some() && inner.order_by.is_some(), "ORDER BY")?;
    twice(limited(outer) && limited(inner), "LIMIT")?;
    let mut merged = inner.clone();
    merged.order_by = merged.order_by.or_else(|| outer.order_by.clone());
    merged.limit_clause = merged.limit_clause.or_else(|| outer.limit_clause.clone());
    merged.fetch = merged.fetch.or_else(|| outer.fetch.clone());
    merged.locks.extend(outer.locks.iter().cloned());
    if let SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) = merged.body.as_ref() {
        return Err(SqlError::unsupported("a statement that changes rows in parentheses"));
    }
    Ok(merged)
}

/// Clauses of SELECT.
pub(super) fn check_select(s: &ast::Select) -> Result<()> {
    let ast::Select {
        select_token: _,
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = s;
    refuse(&[
        (into.is_some(), "SELECT INTO"),
        (select_modifiers.is_some(), "a modifier of SELECT"),
        (top.is_some(), "TOP"),
        (exclude.is_some(), "EXCLUDE"),
        (!lateral_views.is_empty(), "LATERAL VIEW"),
        (prewhere.is_some(), "PREWHERE"),
        (!connect_by.is_empty(), "CONNECT BY"),
        (!cluster_by.is_empty(), "CLUSTER BY"),
        (!distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!sort_by.is_empty(), "SORT BY"),
        (qualify.is_some(), "QUALIFY"),
        (value_table_mode.is_some(), "SELECT AS VALUE or STRUCT"),
        (!matches!(flavor, ast::SelectFlavor::Standard), "FROM before SELECT"),
    ])
}

/// What may follow `*` in a select list.
pub(super) fn check_star(options: &ast::WildcardAdditionalOptions) -> Result<()> {
    let ast::WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    refuse(&[
        (opt_ilike.is_some(), "* ILIKE"),
        (opt_exclude.is_some(), "* EXCLUDE"),
        (opt_except.is_some(), "* EXCEPT"),
        (opt_replace.is_some(), "* REPLACE"),
        (opt_rename.is_some(), "* RENAME"),
        (opt_alias.is_some(), "an alias of *"),
    ])
}

/// VALUES.
pub(super) fn check_values(v: &ast::Values) -> Result<()> {
    let ast::Values { explicit_row, value_keyword, rows: _ } = v;
    refuse(&[(*explicit_row, "VALUES ROW"), (*value_keyword, "VALUE for VALUES")])
}

/// A table in FROM, UPDATE or DELETE; other kinds of relation are refused elsewhere.
pub(super) fn check_table(t: &TableFactor) -> Result<()> {
    let TableFactor::Table {
        name: _,
        alias: _,
        args,
        with_hints,
        version,
        with_ordinality,
        partitions: _,
        json_path,
        sample,
        index_hints,
    } = t
    else {
        return Ok(());
    };
    refuse(&[
        (!with_hints.is_empty(), "WITH hints of a table"),
        (version.is_some(), "a version of a table"),
        (*with_ordinality && args.is_none(), "WITH ORDINALITY of a table"),
        (json_path.is_some(), "a path behind a table"),
        (sample.is_some(), "TABLESAMPLE"),
        (!index_hints.is_empty(), "an index hint"),
    ])
}

/// Clauses of INSERT.
pub(super) fn check_insert(i: &ast::Insert) -> Result<()> {
    let ast::Insert {
        insert_token: _,
        optimizer_hints: _,
        or,
        ignore,
        into,
        table: _,
        table_alias: _,
        columns: _,
        overwrite,
        source: _,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword,
        on: _,
        returning: _,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = i;
    let several = multi_table_insert_type.is_some()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty()
        || multi_table_else_clause.is_some();
    refuse(&[
        (or.is_some(), "INSERT OR"),
        (*ignore, "INSERT IGNORE"),
        (!*into, "INSERT without INTO"),
        (*overwrite, "INSERT OVERWRITE"),
        (!assignments.is_empty(), "INSERT ... SET"),
        (partitioned.is_some(), "PARTITION of INSERT"),
        (!after_columns.is_empty(), "columns behind PARTITION"),
        (*has_table_keyword, "INSERT INTO TABLE"),
        (output.is_some(), "OUTPUT"),
        (*replace_into, "REPLACE"),
        (priority.is_some(), "a priority of INSERT"),
        (insert_alias.is_some(), "an alias of the new row"),
        (settings.is_some(), "SETTINGS"),
        (format_clause.is_some(), "FORMAT"),
        (several, "INSERT into several tables"),
    ])
}

/// Clauses of UPDATE.
pub(super) fn check_update(u: &ast::Update) -> Result<()> {
    let ast::Update {
        update_token: _,
        optimizer_hints: _,
        table: _,
        assignments: _,
        from: _,
        selection: _,
        returning: _,
        output,
        or,
        order_by,
        limit,
    } = u;
    refuse(&[
        (output.is_some(), "OUTPUT"),
        (or.is_some(), "UPDATE OR"),
        (!order_by.is_empty(), "UPDATE with ORDER BY"),
        (limit.is_some(), "UPDATE with LIMIT"),
    ])
}

/// Clauses of DELETE.
pub(super) fn check_delete(d: &ast::Delete) -> Result<()> {
    let ast::Delete {
        delete_token: _,
        optimizer_hints: _,
        tables,
        from,
        using: _,
        selection: _,
        returning: _,
        output,
        order_by,
        limit,
    } = d;
    refuse(&[
        (!tables.is_empty(), "DELETE of several tables"),
        (matches!(from, ast::FromTable::WithoutKeyword(_)), "DELETE without FROM"),
        (output.is_some(), "OUTPUT"),
        (!order_by.is_empty(), "DELETE with ORDER BY"),
        (limit.is_some(), "DELETE with LIMIT"),
    ])
}

/// Clauses of a call.
pub(super) fn check_call(f: &ast::Function) -> Result<()> {
    let ast::Function {
        name: _,
        uses_odbc_syntax,
        parameters,
        args,
        within_group: _,
        filter: _,
        null_treatment,
        over: _,
    } = f;
    let parametrised = !matches!(parameters, ast::FunctionArguments::None);
    let is_order = |c: &ast::FunctionArgumentClause| matches!(c, ast::FunctionArgumentClause::OrderBy(_));
    let clauses = matches!(args, ast::FunctionArguments::List(l) if !l.clauses.iter().all(is_order));
    refuse(&[
        (null_treatment.is_some(), "IGNORE NULLS"),
        (clauses, "a clause in a call"),
        (*uses_odbc_syntax, "{fn}"),
        (parametrised, "a call with parameters before its arguments"),
    ])
}

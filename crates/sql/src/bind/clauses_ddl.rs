//! Clauses of definitions that the parser knows and Varve does not run: refused by name, never ignored. The rule of `clauses`
//! holds here, too: no node of the syntax tree is taken apart with `..`.
//!
//! Does not know: what the clauses that are run mean.

use sqlparser::ast;

use super::clauses::refuse;
use crate::error::Result;

/// Clauses of CREATE TABLE; its options are checked where they are read.
#[rustfmt::skip]
pub fn check_create_table(t: &ast::CreateTable) -> Result<()> {
    let ast::CreateTable {
        or_replace, temporary, unlogged: _, external, dynamic, global, if_not_exists: _, transient, volatile,
        iceberg, snapshot, name: _, columns: _, constraints: _, hive_distribution, hive_formats, table_options: _,
        file_format, location, query, without_rowid, like, clone, version, comment, on_commit, on_cluster,
        primary_key, order_by, partition_by: _, cluster_by, clustered_by, inherits, partition_of: _, for_values: _, strict,
        copy_grants, enable_schema_evolution, change_tracking, data_retention_time_in_days,
        max_data_extension_time_in_days, default_ddl_collation, with_aggregation_policy, with_row_access_policy,
        with_storage_lifecycle_policy, with_tags, external_volume, with_connection, base_location, catalog,
        catalog_sync, storage_serialization_policy, target_lag, warehouse, refresh_mode, initialize, require_user,
        diststyle, distkey, sortkey, backup, multiset, fallback, with_data,
    } = t;
    let warehouse_clause = *copy_grants || enable_schema_evolution.is_some() || change_tracking.is_some() ||
        data_retention_time_in_days.is_some() || max_data_extension_time_in_days.is_some() ||
        default_ddl_collation.is_some() || with_aggregation_policy.is_some() || with_row_access_policy.is_some() ||
        with_storage_lifecycle_policy.is_some() || with_tags.is_some() || external_volume.is_some() ||
        with_connection.is_some() || base_location.is_some() || catalog.is_some() || catalog_sync.is_some() ||
        storage_serialization_policy.is_some() || target_lag.is_some() || warehouse.is_some() ||
        refresh_mode.is_some() || initialize.is_some() || *require_user || diststyle.is_some() || distkey.is_some()
        || sortkey.is_some() || backup.is_some() || multiset.is_some() || fallback.is_some() || with_data.is_some();
    refuse(&[
        (*or_replace, "OR REPLACE"),
        (*temporary, "a temporary table"),
        (*external, "an external table"),
        (*dynamic, "a dynamic table"),
        (global.is_some(), "GLOBAL or LOCAL"),
        (*transient, "a transient table"),
        (*volatile, "a volatile table"),
        (*iceberg, "an iceberg table"),
        (*snapshot, "a snapshot table"),
        (hive_formats.is_some(), "a file format"),
        (file_format.is_some(), "a file format"),
        (location.is_some(), "LOCATION"),
        (query.is_some(), "CREATE TABLE AS"),
        (*without_rowid, "WITHOUT ROWID"),
        (like.is_some(), "CREATE TABLE LIKE"),
        (clone.is_some(), "CLONE"),
        (version.is_some(), "a version of a table"),
        (comment.is_some(), "COMMENT"),
        (on_commit.is_some(), "ON COMMIT"),
        (on_cluster.is_some(), "ON CLUSTER"),
        (primary_key.is_some(), "PRIMARY KEY behind the columns"),
        (order_by.is_some(), "ORDER BY"),
        (cluster_by.is_some(), "CLUSTER BY"),
        (clustered_by.is_some(), "CLUSTERED BY"),
        (inherits.is_some(), "INHERITS"),
        (*strict, "STRICT"),
        (!matches!(hive_distribution, ast::HiveDistributionStyle::NONE), "a distribution of a table"),
        (warehouse_clause, "a clause of data warehouses"),
    ])
}

/// Clauses of CREATE TABLE ... PARTITION OF.
pub(super) fn check_create_part(t: &ast::CreateTable) -> Result<()> {
    check_create_table(t)?;
    let own = !t.columns.is_empty() || !t.constraints.is_empty();
    refuse(&[
        (own, "a column or constraint of a partition alone"),
        (t.partition_by.is_some(), "a partition that is partitioned"),
    ])
}

/// Clauses of CREATE VIEW.
pub(super) fn check_create_view(v: &ast::CreateView) -> Result<()> {
    let ast::CreateView {
        or_alter,
        or_replace: _,
        materialized,
        secure,
        name: _,
        name_before_not_exists,
        columns,
        query: _,
        options: _,
        cluster_by,
        comment,
        with_no_schema_binding,
        if_not_exists,
        temporary,
        copy_grants,
        to,
        params,
    } = v;
    let typed = columns.iter().any(|c| c.data_type.is_some() || c.options.is_some());
    refuse(&[
        (*or_alter, "OR ALTER"),
        (*materialized, "a materialized view"),
        (*secure, "a secure view"),
        (*name_before_not_exists || *if_not_exists, "IF NOT EXISTS of a view"),
        (typed, "a type or an option of a view's column"),
        (!cluster_by.is_empty(), "CLUSTER BY"),
        (comment.is_some(), "COMMENT"),
        (*with_no_schema_binding, "WITH NO SCHEMA BINDING"),
        (*temporary, "a temporary view"),
        (*copy_grants, "COPY GRANTS"),
        (to.is_some(), "TO of a view"),
        (params.is_some(), "a parameter of a view"),
    ])
}

/// Clauses of CREATE INDEX. CONCURRENTLY is how PostgreSQL builds it, not what it is.
pub(super) fn check_create_index(i: &ast::CreateIndex) -> Result<()> {
    let ast::CreateIndex {
        name: _,
        table_name: _,
        using,
        columns,
        unique: _,
        concurrently: _,
        r#async,
        if_not_exists: _,
        include,
        nulls_distinct,
        with,
        predicate: _,
        index_options,
        alter_options,
    } = i;
    let tuning = |e: &ast::Expr| {
        let text = e.to_string().to_lowercase();
        let name = text.split('=').next().unwrap_or_default().trim();
        matches!(name, "fillfactor" | "deduplicate_items")
    };
    let filled = columns.iter().any(|c| c.column.with_fill.is_some());
    refuse(&[
        (!include.is_empty(), "INCLUDE"),
        (*nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
        (!matches!(using, None | Some(ast::IndexType::BTree)), "an index method other than btree"),
        (*r#async, "CREATE INDEX ASYNC"),
        (!with.iter().all(tuning), "this option of an index"),
        (!index_options.is_empty(), "an option of an index"),
        (!alter_options.is_empty(), "ALGORITHM or LOCK of an index"),
        (filled, "WITH FILL of an index"),
    ])
}

/// UNIQUE as a constraint.
pub(super) fn check_unique(u: &ast::UniqueConstraint) -> Result<()> {
    let ast::UniqueConstraint {
        name: _,
        index_name,
        index_type_display: _,
        index_type,
        columns: _,
        include,
        index_options,
        characteristics,
        nulls_distinct,
    } = u;
    refuse(&[(matches!(nulls_distinct, ast::NullsDistinctOption::NotDistinct), "NULLS NOT DISTINCT")])?;
    check_key(index_name.is_some(), index_type.is_some(), !include.is_empty(), index_options)?;
    check_characteristics(characteristics.as_ref())
}

/// PRIMARY KEY.
pub(super) fn check_primary_key(k: &ast::PrimaryKeyConstraint) -> Result<()> {
    let ast::PrimaryKeyConstraint {
        name: _,
        index_name,
        index_type,
        columns: _,
        include,
        index_options,
        characteristics,
    } = k;
    check_key(index_name.is_some(), index_type.is_some(), !include.is_empty(), index_options)?;
    check_characteristics(characteristics.as_ref())
}

fn check_key(named: bool, typed: bool, includes: bool, options: &[ast::IndexOption]) -> Result<()> {
    refuse(&[
        (includes, "INCLUDE"),
        (named, "a name of the index beside the constraint's"),
        (typed, "an index method of a constraint"),
        (!options.is_empty(), "an option of a constraint's index"),
    ])
}

fn check_characteristics(c: Option<&ast::ConstraintCharacteristics>) -> Result<()> {
    let Some(ast::ConstraintCharacteristics { deferrable, initially, enforced }) = c else { return Ok(()) };
    let deferred = *initially == Some(ast::DeferrableInitial::Deferred);
    refuse(&[
        (*deferrable == Some(true) || deferred, "a deferrable constraint"),
        (*enforced == Some(false), "NOT ENFORCED"),
    ])
}

/// FOREIGN KEY.
pub(super) fn check_foreign_key(c: &ast::ForeignKeyConstraint) -> Result<()> {
    let ast::ForeignKeyConstraint {
        name: _,
        index_name,
        columns: _,
        foreign_table: _,
        referred_columns: _,
        on_delete: _,
        on_update: _,
        match_kind,
        characteristics,
    } = c;
    let enforced = characteristics.as_ref().is_none_or(|c| c.enforced != Some(false));
    refuse(&[
        (index_name.is_some(), "a name of the index beside the constraint's"),
        (*match_kind == Some(ast::ConstraintReferenceMatchKind::Partial), "MATCH PARTIAL"),
        (!enforced, "NOT ENFORCED"),
    ])
}

/// CHECK.
pub(super) fn check_check(c: &ast::CheckConstraint) -> Result<()> {
    let ast::CheckConstraint { name: _, expr: _, no_inherit, enforced } = c;
    refuse(&[(*no_inherit, "NO INHERIT"), (*enforced == Some(false), "NOT ENFORCED")])
}

/// ALTER TABLE.
pub fn check_alter_table(a: &ast::AlterTable) -> Result<()> {
    let ast::AlterTable {
        name: _,
        if_exists: _,
        only: _,
        operations: _,
        location,
        on_cluster,
        table_type,
        end_token: _,
    } = a;
    refuse(&[
        (location.is_some(), "LOCATION"),
        (on_cluster.is_some(), "ON CLUSTER"),
        (table_type.is_some(), "this kind of table"),
    ])
}

//! `varve import`: the steps from a server of PostgreSQL to a database of Varve.
//!
//! ```text
//! read the definitions -> try them in the target -> report -> open connections -> make tables -> copy rows
//!     -> set sequences -> make keys, indexes, foreign keys, views -> compare numbers of rows
//! ```
//!
//! Invariants
//! 1. Nothing is changed in the target before the report was printed, and all connections are open.
//! 2. The source is only read, in one snapshot.
//! 3. The result is `Ok` only if all rows and all objects that the report promises are there.

use std::collections::{HashMap, HashSet};

use super::definitions::{self, Item, Phase, Shape, TypedColumn};
use super::dump::set_sequence;
use super::link::{EndPoint, Link};
use super::load::{Copy, Loaded, Route, connections, load, number_of};
use super::read::{Scope, read};
use super::schema::{Column, Schema, Table};
use super::trial::{Chosen, Report, attempt, count};
use super::{TransferError, foreign};

/// The most names that one message lists.
const NAMES_MAX: usize = 5;

/// What to import.
#[derive(Debug, Clone)]
pub struct Order {
    /// Which objects.
    pub scope: Scope,
    /// The number of tables that are copied at a time.
    pub jobs: usize,
    /// Whether to stop after the report.
    pub reports_only: bool,
}

/// Runs an import. `tell` gets lines of progress, `say` the report and the result.
pub fn import(
    source: &EndPoint,
    target: &EndPoint,
    order: &Order,
    tell: &(dyn Fn(&str) + Sync),
    say: &dyn Fn(&str),
) -> Result<(), TransferError> {
    let mut from = source.connect()?;
    let of_source = |error: super::StatementError| error.of(source.name());
    from.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").map_err(of_source)?;
    let schema = read(&mut *from, &order.scope)?;
    check_scope(&schema, source, &order.scope)?;
    let mut into = target.connect()?;
    if !order.reports_only {
        check_absent(&mut *into, target, &schema)?;
    }
    let mut report = Report::default();
    let schema = without_empty(schema, &mut report);
    let columns = columns_of(&mut *from, &schema, &mut report)?;
    let items = items_of(&schema, &columns);
    let chosen = attempt(&mut *into, &items, &mut report)?;
    foreign::report(&mut *from, &order.scope, &mut report)?;
    note_inheritance(&schema, &mut report);
    note_collations(&schema, &mut report);
    say(report.text().trim_end());
    if order.reports_only {
        return Ok(());
    }
    let copies = copies_of(&mut *from, &schema, &columns, &chosen)?;
    let exported = from.rows("SELECT pg_export_snapshot()").ok();
    let snapshot = exported.and_then(|rows| rows.first()?.first().cloned().flatten());
    if snapshot.is_none() {
        tell("the source exports no snapshots, so one table is copied after the other");
        // The error has ended the transaction. Without a shared snapshot, a new one is as good.
        from.run("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").map_err(of_source)?;
    }
    let sets = sequence_values(&mut *from, &schema, &chosen)?;
    // All connections are open before something is made. So a refused connection changes nothing.
    let sources = connections(from, snapshot.as_deref(), source, order.jobs)?;
    let routes = sources.into_iter().map(|source| Ok(Route { source, target: target.connect()? }));
    let routes = routes.collect::<Result<Vec<_>, TransferError>>()?;
    make(&mut *into, &chosen)?;
    // From here on, the import speaks of the tables that were made.
    let loaded = load(routes, copies, tell);
    check_loaded(&loaded)?;
    finish(&mut *into, &chosen, &sets, tell)?;
    compare(&mut *into, &loaded)?;
    let rows: u64 = loaded.iter().filter_map(|table| table.rows.as_ref().ok()).map(|(_, taken)| taken).sum();
    say(&format!(
        "imported {} with {}; the numbers of rows are those of the source; {} changed, {} left out (see the report)",
        count(loaded.len(), "table"),
        count(rows as usize, "row"),
        count(report.changed.len(), "object"),
        count(report.left_out.len(), "object"),
    ));
    Ok(())
}

/// Returns an error if a named schema does not exist.
fn check_scope(schema: &Schema, source: &EndPoint, scope: &Scope) -> Result<(), TransferError> {
    for name in &scope.schemas {
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        if !schema.schemas.iter().any(|known| known == name || *known == quoted) {
            return Err(TransferError::Absent {
                source_name: source.name().to_owned(),
                what: "schema",
                name: name.clone(),
            });
        }
    }
    Ok(())
}

/// Returns an error if the target has a relation with the name of one of the source.
fn check_absent(into: &mut dyn Link, target: &EndPoint, schema: &Schema) -> Result<(), TransferError> {
    let sql = "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";
    let rows = into.rows(sql).map_err(|error| error.of(target.name()))?;
    let present: HashSet<String> = rows.iter().filter_map(|row| row.first().cloned().flatten()).collect();
    let tables = schema.tables.iter().map(|table| &table.name);
    let names = tables
        .chain(
            schema.tables.iter().flat_map(|table| table.partitions.iter().map(|partition| &partition.name)),
        )
        .chain(schema.sequences.iter().map(|sequence| &sequence.name))
        .chain(schema.views.iter().map(|view| &view.name));
    let mut found: Vec<&str> = names.filter(|name| present.contains(*name)).map(String::as_str).collect();
    if found.is_empty() {
        return Ok(());
    }
    let more = found.len().saturating_sub(NAMES_MAX);
    found.truncate(NAMES_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(TransferError::Present {
        target: target.name().to_owned(),
        names: format!("{}{rest}", found.join(", ")),
    })
}

/// The columns of all tables with their types in Varve, by the OID of the table.
type Columns<'s> = HashMap<&'s str, Vec<TypedColumn<'s>>>;

fn columns_of<'s>(
    from: &mut dyn Link,
    schema: &'s Schema,
    report: &mut Report,
) -> Result<Columns<'s>, TransferError> {
    let labels = labels(from)?;
    let labels_of = |column: &Column| match column.type_facts.kind.as_str() {
        "e" => labels.get(&column.type_facts.oid).cloned().unwrap_or_default(),
        _ => Vec::new(),
    };
    let mut columns = HashMap::new();
    for table in &schema.tables {
        let flat = several_dimensions(from, table)?;
        let typed = definitions::typed(table, &|column| flat.contains(&column.name), &labels_of);
        for typed in &typed {
            if let Some(change) = &typed.made.change {
                report.change(format!("column {}.{}", table.name, typed.column.name), change);
            }
        }
        columns.insert(table.oid.as_str(), typed);
    }
    Ok(columns)
}

/// Returns the labels of all enums by the OID of the type.
fn labels(from: &mut dyn Link) -> Result<HashMap<String, Vec<String>>, TransferError> {
    let sql = "SELECT e.enumtypid, e.enumlabel FROM pg_enum e ORDER BY e.enumtypid, e.enumsortorder";
    let mut labels: HashMap<String, Vec<String>> = HashMap::new();
    for row in from.rows(sql).map_err(|error| error.of("reading labels of enums from the catalog"))? {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        labels.entry(cells.next().unwrap_or_default()).or_default().extend(cells.next());
    }
    Ok(labels)
}

/// Returns the names of the columns whose data has arrays of several dimensions. A column's type does not say
/// that, so the rows are read.
fn several_dimensions(from: &mut dyn Link, table: &Table) -> Result<HashSet<String>, TransferError> {
    let arrays: Vec<&Column> =
        table.columns.iter().filter(|column| column.type_facts.element.is_some()).collect();
    if arrays.is_empty() {
        return Ok(HashSet::new());
    }
    let tests: Vec<String> = arrays
        .iter()
        .map(|column| format!("coalesce(max(array_ndims({})) > 1, false)", column.name))
        .collect();
    let sql = format!("SELECT {} FROM {}", tests.join(", "), table.name);
    let rows =
        from.rows(&sql).map_err(|error| error.of(format!("reading arrays of table {}", table.name)))?;
    let found = arrays.iter().zip(rows.first().into_iter().flatten());
    Ok(found.filter(|(_, is)| is.as_deref() == Some("t")).map(|(column, _)| column.name.clone()).collect())
}

/// Returns all items in the order in which they are made.
fn items_of(schema: &Schema, columns: &Columns<'_>) -> Vec<Item> {
    let mut items: Vec<Item> =
        schema.schemas.iter().filter_map(|name| definitions::create_schema(name)).collect();
    items.extend(schema.sequences.iter().filter_map(definitions::create_sequence));
    let typed = |table: &Table| columns.get(table.oid.as_str()).map(Vec::as_slice).unwrap_or_default();
    for table in &schema.tables {
        items.push(definitions::table_item(table, typed(table), schema));
        items.extend(definitions::rules_of(table, typed(table)));
    }
    items.extend(schema.sequences.iter().filter_map(|sequence| definitions::own_sequence(sequence, schema)));
    items.extend(schema.tables.iter().flat_map(definitions::keys_of));
    items.extend(schema.tables.iter().flat_map(definitions::foreign_keys_of));
    items.extend(schema.views.iter().map(definitions::create_view));
    items.extend(definitions::comments(schema));
    items
}

/// Leaves out tables without columns: COPY has no form for their rows.
fn without_empty(mut schema: Schema, report: &mut Report) -> Schema {
    schema.tables.retain(|table| {
        if table.columns.is_empty() {
            report.leave_out(format!("table {}", table.name), "it has no columns");
        }
        !table.columns.is_empty()
    });
    schema
}

fn note_inheritance(schema: &Schema, report: &mut Report) {
    for table in schema.tables.iter().filter(|table| !table.inherits.is_empty()) {
        report.change(
            format!("table {}", table.name),
            format!(
                "INHERITS is left out: it has all columns, but {} shows only its own rows",
                table.inherits.join(", ")
            ),
        );
    }
}

fn note_collations(schema: &Schema, report: &mut Report) {
    for table in &schema.tables {
        for column in &table.columns {
            if let Some(collation) = column.collation.as_ref().filter(|name| *name != "\"C\"") {
                report.change(
                    format!("column {}.{}", table.name, column.name),
                    format!("COLLATE {collation} is left out: texts are sorted by their bytes"),
                );
            }
        }
    }
}

/// Makes the objects that come before the rows, all or none.
fn make(into: &mut dyn Link, chosen: &[Chosen]) -> Result<(), TransferError> {
    let failed = |error: super::StatementError, what: &str| {
        TransferError::Incomplete(format!("{what}: {error}. Nothing was imported."))
    };
    into.run("BEGIN").map_err(|error| failed(error, "BEGIN"))?;
    for item in chosen.iter().filter(|item| item.phase == Phase::Before) {
        if let Err(error) = into.run(&item.choice.sql) {
            let _ = into.run("ROLLBACK");
            return Err(failed(error, &item.what));
        }
    }
    into.run("COMMIT").map_err(|error| failed(error, "COMMIT"))
}

/// Returns the copies of all tables that are made.
fn copies_of(
    from: &mut dyn Link,
    schema: &Schema,
    columns: &Columns<'_>,
    chosen: &[Chosen],
) -> Result<Vec<Copy>, TransferError> {
    let sizes = "SELECT c.oid, pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0) \
         FROM pg_class c WHERE c.relkind = 'r'";
    let sizes = from.rows(sizes).map_err(|error| error.of("reading sizes of tables"))?;
    let sizes: HashMap<String, u64> = sizes
        .into_iter()
        .filter_map(|row| Some((row.first()?.clone()?, row.get(1)?.as_ref()?.parse().ok()?)))
        .collect();
    let shapes: HashMap<&str, Shape> =
        chosen.iter().map(|item| (item.what.as_str(), item.choice.shape)).collect();
    let copies = schema.tables.iter().filter_map(|table| {
        let shape = shapes.get(format!("table {}", table.name).as_str())?;
        let typed = columns.get(table.oid.as_str())?;
        let stored = typed.iter().filter(|typed| !(typed.column.is_generated && shape.is_generated));
        let (names, selects): (Vec<&str>, Vec<&str>) =
            stored.map(|typed| (typed.column.name.as_str(), typed.made.select.as_str())).unzip();
        // Heirs of a table are copied as tables of their own.
        let only = if table.partition_key.is_some() { "" } else { "ONLY " };
        let rows = format!("{only}{}", table.name);
        Some(Copy {
            table: table.name.clone(),
            from: format!("COPY (SELECT {} FROM {rows}) TO STDOUT", selects.join(", ")),
            into: format!("COPY {} ({}) FROM STDIN", table.name, names.join(", ")),
            counted: format!("SELECT count(*) FROM {rows}"),
            size_bytes: sizes.get(&table.oid).copied().unwrap_or(u64::MAX >> 1),
        })
    });
    Ok(copies.collect())
}

/// Returns the statements that set the sequences that are made.
fn sequence_values(
    from: &mut dyn Link,
    schema: &Schema,
    chosen: &[Chosen],
) -> Result<Vec<(String, String)>, TransferError> {
    let made: HashSet<&str> = chosen.iter().map(|item| item.what.as_str()).collect();
    let mut sets = Vec::new();
    for sequence in &schema.sequences {
        let is_made = match sequence.owner.as_ref().filter(|owner| owner.is_identity) {
            None => made.contains(format!("sequence {}", sequence.name).as_str()),
            Some(owner) => schema.tables.iter().any(|table| {
                table.oid == owner.table && made.contains(format!("table {}", table.name).as_str())
            }),
        };
        if is_made {
            sets.push((format!("sequence {}", sequence.name), set_sequence(from, &sequence.name)?));
        }
    }
    Ok(sets)
}

/// Returns an error if a table was not loaded as a whole.
fn check_loaded(loaded: &[Loaded]) -> Result<(), TransferError> {
    let mut failed = Vec::new();
    let mut whole = Vec::new();
    for table in loaded {
        match &table.rows {
            Ok((counted, taken)) if counted == taken => {
                whole.push(format!("  loaded      {}: {}", table.table, count(*taken as usize, "row")));
            }
            Ok((counted, taken)) => failed.push(format!(
                "  not loaded  {}: the source has {counted} rows, but the target took {taken}",
                table.table
            )),
            Err(why) => failed.push(format!("  not loaded  {}: {why}", table.table)),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(TransferError::Incomplete(format!(
        "The import is not complete: {} of {} could not be loaded. No index, foreign key, view or value of a sequence was made. \
         Remove what is there, correct the cause, and import again.\n{}\n{}",
        failed.len(),
        count(loaded.len(), "table"),
        failed.join("\n"),
        whole.join("\n")
    )))
}

/// Sets the sequences and makes the objects that follow the rows. An error of one does not stop the others.
fn finish(
    into: &mut dyn Link,
    chosen: &[Chosen],
    sets: &[(String, String)],
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), TransferError> {
    let later = chosen.iter().filter(|item| item.phase == Phase::After);
    let later = later.map(|item| (item.what.as_str(), item.choice.sql.as_str()));
    let steps: Vec<(&str, &str)> =
        sets.iter().map(|(what, sql)| (what.as_str(), sql.as_str())).chain(later).collect();
    tell(&format!("making {} after the rows", count(steps.len(), "object")));
    let mut failed = Vec::new();
    for (what, sql) in &steps {
        if let Err(error) = into.run(sql) {
            tell(&format!("{what}: {error}"));
            failed.push(format!("  failed  {what}: {error}"));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(TransferError::Incomplete(format!(
        "The import is not complete: all rows are loaded, but {} of {} failed. Correct the cause, and make these objects by hand.\n{}",
        failed.len(),
        count(steps.len(), "later step"),
        failed.join("\n")
    )))
}

/// Compares the numbers of rows in the target with those of the source's snapshot.
fn compare(into: &mut dyn Link, loaded: &[Loaded]) -> Result<(), TransferError> {
    let mut differences = Vec::new();
    for table in loaded {
        let sql = format!("SELECT count(*) FROM {}", table.table);
        let rows = into.rows(&sql).map_err(|error| error.of(format!("counting rows of {}", table.table)))?;
        let (found, wanted) = (number_of(&rows), table.rows.as_ref().map_or(0, |(counted, _)| *counted));
        if found != wanted {
            differences.push(format!("  {}: the source has {wanted} rows, the target {found}", table.table));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(TransferError::Incomplete(format!(
        "The import is not complete: numbers of rows differ.\n{}",
        differences.join("\n")
    )))
}

//! Reads the definitions of a database from its system catalog.
//!
//! The queries run on PostgreSQL 13 to 17 and on Varve. They need an empty search path, so that the server
//! writes all names with their schemas.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::TransferError;
use super::link::{Link, TextRow};
use super::schema::{
    Column, Comment, Constraint, Index, Partition, Schema, Sequence, SequenceOwner, Table, TypeFacts, View,
};

/// Which objects are read.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Names of schemas, not quoted. Empty means all.
    pub schemas: Vec<String>,
    /// Names of tables, quoted and qualified, or not qualified. Empty means all.
    pub tables: Vec<String>,
}

impl Scope {
    /// Returns the condition on `n`, the `pg_namespace` of an object.
    pub fn condition(&self) -> String {
        let own = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'".to_owned();
        if self.schemas.is_empty() {
            return own;
        }
        let names: Vec<String> = self.schemas.iter().map(|name| literal(name)).collect();
        format!("{own} AND n.nspname IN ({})", names.join(", "))
    }
}

/// Returns a text as a literal of SQL.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// The condition that an object of `pg_class` (`c`) belongs to no extension.
const NO_EXTENSION: &str = "NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_class'::regclass \
     AND e.objid = c.oid AND e.deptype = 'e')";

/// Returns a column of a row; NULL is an empty text.
fn cell(row: &TextRow, number: usize) -> String {
    some(row, number).unwrap_or_default()
}

fn some(row: &TextRow, number: usize) -> Option<String> {
    row.get(number).cloned().flatten()
}

fn is_true(row: &TextRow, number: usize) -> bool {
    row.get(number).is_some_and(|value| value.as_deref() == Some("t"))
}

/// Reads the definitions.
pub fn read(link: &mut dyn Link, scope: &Scope) -> Result<Schema, TransferError> {
    let mut reader = Reader { link, condition: scope.condition() };
    let mut schema = Schema { schemas: reader.schemas()?, ..Schema::default() };
    schema.tables = reader.tables()?;
    let by_oid: HashMap<String, usize> =
        schema.tables.iter().enumerate().map(|(number, table)| (table.oid.clone(), number)).collect();
    reader.columns(&mut schema.tables, &by_oid)?;
    reader.constraints(&mut schema.tables, &by_oid)?;
    reader.indexes(&mut schema.tables, &by_oid)?;
    schema.sequences = reader.sequences()?;
    schema.views = reader.views()?;
    schema.comments = reader.comments()?;
    keep_tables(&mut schema, &scope.tables);
    Ok(schema)
}

/// Keeps only the named tables and their sequences, if any are named.
fn keep_tables(schema: &mut Schema, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let is_named = |table: &Table| {
        names.iter().any(|name| table.name == *name || table.name.ends_with(&format!(".{name}")))
    };
    schema.tables.retain(is_named);
    let kept: BTreeSet<&str> = schema.tables.iter().map(|table| table.oid.as_str()).collect();
    schema
        .sequences
        .retain(|sequence| sequence.owner.as_ref().is_some_and(|owner| kept.contains(owner.table.as_str())));
    schema.views.clear();
    schema.comments.retain(|comment| {
        schema.tables.iter().any(|table| {
            comment.on == format!("TABLE {}", table.name)
                || comment.on.starts_with(&format!("COLUMN {}.", table.name))
        })
    });
    let used: BTreeSet<&str> =
        schema.tables.iter().filter_map(|table| Some(table.name.split_once('.')?.0)).collect();
    schema.schemas.retain(|name| used.contains(name.as_str()));
}

struct Reader<'l> {
    link: &'l mut dyn Link,
    condition: String,
}

impl Reader<'_> {
    fn ask(&mut self, what: &'static str, sql: &str) -> Result<Vec<TextRow>, TransferError> {
        self.link.rows(sql).map_err(|error| error.of(format!("reading {what} from the catalog")))
    }

    fn schemas(&mut self) -> Result<Vec<String>, TransferError> {
        let sql =
            format!("SELECT quote_ident(n.nspname) FROM pg_namespace n WHERE {} ORDER BY 1", self.condition);
        Ok(self.ask("schemas", &sql)?.iter().map(|row| cell(row, 0)).collect())
    }

    fn tables(&mut self) -> Result<Vec<Table>, TransferError> {
        let sql = format!(
            "SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relpersistence, c.relispartition, \
                 pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), array_to_string(c.reloptions, chr(1)), \
                 am.amname, quote_ident(ts.spcname) \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am am ON am.oid = c.relam \
                 LEFT JOIN pg_tablespace ts ON ts.oid = c.reltablespace \
             WHERE c.relkind IN ('r', 'p') AND {} AND {NO_EXTENSION} ORDER BY n.nspname, c.relname",
            self.condition
        );
        let rows = self.ask("tables", &sql)?;
        let parents = self.parents()?;
        let names: HashMap<String, String> = rows.iter().map(|row| (cell(row, 0), cell(row, 1))).collect();
        let mut tables = Vec::new();
        let mut partitions: BTreeMap<String, Vec<Partition>> = BTreeMap::new();
        for row in &rows {
            let oid = cell(row, 0);
            if is_true(row, 3) {
                let root = root_of(&oid, &parents);
                let partition = Partition { name: cell(row, 1), bound: cell(row, 5), key: some(row, 4) };
                partitions.entry(root).or_default().push(partition);
                continue;
            }
            let above = parents.get(&oid).map(Vec::as_slice).unwrap_or_default();
            let inherits = above.iter().filter_map(|parent| names.get(parent).cloned()).collect();
            tables.push(table_of(row, inherits));
        }
        for table in &mut tables {
            table.partitions = partitions.remove(&table.oid).unwrap_or_default();
            // A DEFAULT partition is made last, because it may not have rows of the others.
            table.partitions.sort_by_key(|partition| partition.bound == "DEFAULT");
            let is_parent = |above: &Vec<String>| above.contains(&table.oid);
            table.has_heirs = table.partition_key.is_none() && parents.values().any(is_parent);
        }
        Ok(tables)
    }

    /// Returns the tables above each table.
    fn parents(&mut self) -> Result<BTreeMap<String, Vec<String>>, TransferError> {
        let sql = "SELECT i.inhrelid, i.inhparent FROM pg_inherits i ORDER BY i.inhrelid, i.inhseqno";
        let mut parents: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in &self.ask("inheritance", sql)? {
            parents.entry(cell(row, 0)).or_default().push(cell(row, 1));
        }
        Ok(parents)
    }

    fn columns(
        &mut self,
        tables: &mut [Table],
        by_oid: &HashMap<String, usize>,
    ) -> Result<(), TransferError> {
        let sql = format!(
            "SELECT a.attrelid, a.attnum, quote_ident(a.attname), format_type(a.atttypid, a.atttypmod), t.oid, t.typtype, \
                 t.typname, et.typname, et.typtype, format_type(t.typbasetype, t.typtypmod), bt.typname, be.typname, \
                 a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, quote_ident(co.collname) \
             FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
                 JOIN pg_type t ON t.oid = a.atttypid \
                 LEFT JOIN pg_type et ON et.oid = t.typelem AND t.typcategory = 'A' \
                 LEFT JOIN pg_type bt ON bt.oid = t.typbasetype \
                 LEFT JOIN pg_type be ON be.oid = bt.typelem AND bt.typcategory = 'A' \
                 LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
                 LEFT JOIN pg_collation co ON co.oid = a.attcollation AND co.collname <> 'default' \
             WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND {} ORDER BY a.attrelid, a.attnum",
            self.condition
        );
        for row in &self.ask("columns", &sql)? {
            if let Some(table) = by_oid.get(&cell(row, 0)).and_then(|number| tables.get_mut(*number)) {
                table.columns.push(column_of(row));
            }
        }
        Ok(())
    }

    fn constraints(
        &mut self,
        tables: &mut [Table],
        by_oid: &HashMap<String, usize>,
    ) -> Result<(), TransferError> {
        let sql = format!(
            "SELECT co.conrelid, quote_ident(co.conname), co.contype, pg_get_constraintdef(co.oid) \
             FROM pg_constraint co JOIN pg_namespace n ON n.oid = co.connamespace \
             WHERE co.conrelid <> 0 AND {} AND co.conparentid = 0 ORDER BY co.conrelid, co.conname",
            self.condition
        );
        for row in &self.ask("constraints", &sql)? {
            let Some(table) = by_oid.get(&cell(row, 0)).and_then(|number| tables.get_mut(*number)) else {
                continue;
            };
            let constraint = Constraint { name: cell(row, 1), definition: cell(row, 3) };
            match cell(row, 2).as_str() {
                "p" => table.primary_key = Some(constraint),
                "c" => table.checks.push(constraint),
                "f" => table.foreign_keys.push(constraint),
                "u" | "x" => table.unique.push(constraint),
                // Triggers of constraints are listed with the triggers; NOT NULL is with its column.
                _ => {}
            }
        }
        Ok(())
    }

    fn indexes(
        &mut self,
        tables: &mut [Table],
        by_oid: &HashMap<String, usize>,
    ) -> Result<(), TransferError> {
        let sql = format!(
            "SELECT x.indrelid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), pg_get_indexdef(x.indexrelid) \
             FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
                 LEFT JOIN pg_constraint co ON co.conindid = x.indexrelid AND co.contype IN ('p', 'u', 'x') \
             WHERE co.oid IS NULL AND {} ORDER BY n.nspname, c.relname",
            self.condition
        );
        for row in &self.ask("indexes", &sql)? {
            // Indexes of partitions come with the index of the partitioned table.
            if let Some(table) = by_oid.get(&cell(row, 0)).and_then(|number| tables.get_mut(*number)) {
                // A dump of the partitioned table alone would have an index without its partitions.
                let definition = cell(row, 2).replacen(" ON ONLY ", " ON ", 1);
                table.indexes.push(Index { name: cell(row, 1), definition });
            }
        }
        Ok(())
    }

    fn sequences(&mut self) -> Result<Vec<Sequence>, TransferError> {
        let sql = format!(
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), format_type(s.seqtypid, NULL), s.seqstart, \
                 s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle, d.deptype, d.refobjid, d.refobjsubid \
             FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
                 LEFT JOIN pg_depend d ON d.objid = c.oid AND d.classid = 'pg_class'::regclass \
                     AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') \
             WHERE {} AND {NO_EXTENSION} ORDER BY n.nspname, c.relname",
            self.condition
        );
        let rows = self.ask("sequences", &sql)?;
        Ok(rows.iter().map(sequence_of).collect())
    }

    fn views(&mut self) -> Result<Vec<View>, TransferError> {
        let sql = format!(
            "SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), pg_get_viewdef(c.oid), \
                 array_to_string(c.reloptions, chr(1)) \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind = 'v' AND {} AND {NO_EXTENSION} ORDER BY c.oid",
            self.condition
        );
        let rows = self.ask("views", &sql)?;
        let columns = format!(
            "SELECT a.attrelid, quote_ident(a.attname) \
             FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind = 'v' AND a.attnum > 0 AND {} ORDER BY a.attrelid, a.attnum",
            self.condition
        );
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        for row in &self.ask("columns of views", &columns)? {
            names.entry(cell(row, 0)).or_default().push(cell(row, 1));
        }
        let views = rows.iter().map(|row| View {
            name: cell(row, 1),
            columns: names.remove(&cell(row, 0)).unwrap_or_default(),
            query: cell(row, 2).trim().trim_end_matches(';').to_owned(),
            options: options_of(row, 3),
        });
        let views: Vec<View> = views.collect();
        Ok(in_order(views, &self.uses_of_views()?))
    }

    /// Returns which relations each view reads.
    fn uses_of_views(&mut self) -> Result<Vec<(String, String)>, TransferError> {
        let sql = "SELECT quote_ident(view_schema) || '.' || quote_ident(view_name), \
                 quote_ident(table_schema) || '.' || quote_ident(table_name) FROM information_schema.view_table_usage";
        Ok(self.ask("uses of views", sql)?.iter().map(|row| (cell(row, 0), cell(row, 1))).collect())
    }

    fn comments(&mut self) -> Result<Vec<Comment>, TransferError> {
        let sql = format!(
            "SELECT 'SCHEMA ' || quote_ident(n.nspname), quote_literal(d.description) \
             FROM pg_description d JOIN pg_namespace n ON n.oid = d.objoid AND d.classoid = 'pg_namespace'::regclass \
             WHERE {0} AND n.nspname <> 'public' \
             UNION ALL \
             SELECT CASE c.relkind WHEN 'v' THEN 'VIEW ' WHEN 'S' THEN 'SEQUENCE ' WHEN 'i' THEN 'INDEX ' \
                     WHEN 'I' THEN 'INDEX ' ELSE 'TABLE ' END || quote_ident(n.nspname) || '.' || quote_ident(c.relname), \
                 quote_literal(d.description) \
             FROM pg_description d JOIN pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass \
                 JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE d.objsubid = 0 AND c.relkind IN ('r', 'p', 'v', 'S', 'i', 'I') AND {0} \
             UNION ALL \
             SELECT 'COLUMN ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) || '.' || quote_ident(a.attname), \
                 quote_literal(d.description) \
             FROM pg_description d JOIN pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass \
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid \
                 JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE d.objsubid > 0 AND c.relkind IN ('r', 'p', 'v') AND {0} \
             UNION ALL \
             SELECT 'CONSTRAINT ' || quote_ident(co.conname) || ' ON ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname), \
                 quote_literal(d.description) \
             FROM pg_description d JOIN pg_constraint co ON co.oid = d.objoid AND d.classoid = 'pg_constraint'::regclass \
                 JOIN pg_class c ON c.oid = co.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE {0} \
             ORDER BY 1",
            self.condition
        );
        let rows = self.ask("comments", &sql)?;
        Ok(rows.iter().map(|row| Comment { on: cell(row, 0), literal: cell(row, 1) }).collect())
    }
}

/// Returns the table to which a partition, or a partition of a partition, belongs.
fn root_of(oid: &str, parents: &BTreeMap<String, Vec<String>>) -> String {
    let mut root = oid;
    // A table is not above itself, so this ends.
    while let Some(above) = parents.get(root).and_then(|above| above.first()) {
        root = above;
    }
    root.to_owned()
}

fn options_of(row: &TextRow, number: usize) -> Vec<String> {
    let list = cell(row, number);
    list.split('\u{1}')
        .filter(|option| !option.is_empty())
        .map(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            format!("{name} = {}", literal(value))
        })
        .collect()
}

fn table_of(row: &TextRow, inherits: Vec<String>) -> Table {
    Table {
        oid: cell(row, 0),
        name: cell(row, 1),
        is_unlogged: cell(row, 2) == "u",
        partition_key: some(row, 4),
        partitions: Vec::new(),
        inherits,
        has_heirs: false,
        options: options_of(row, 6),
        method: some(row, 7).filter(|method| method != "heap"),
        tablespace: some(row, 8),
        columns: Vec::new(),
        primary_key: None,
        checks: Vec::new(),
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        indexes: Vec::new(),
    }
}

fn column_of(row: &TextRow) -> Column {
    let type_facts = TypeFacts {
        oid: cell(row, 4),
        kind: cell(row, 5),
        name: cell(row, 6),
        element: some(row, 7),
        element_kind: some(row, 8),
        base: some(row, 9).filter(|base| base != "-"),
        base_name: some(row, 10),
        base_element: some(row, 11),
    };
    Column {
        number: cell(row, 1),
        name: cell(row, 2),
        declared: cell(row, 3),
        type_facts,
        is_not_null: is_true(row, 12),
        default: some(row, 13),
        identity: cell(row, 14).chars().next(),
        is_generated: !cell(row, 15).is_empty(),
        collation: some(row, 16),
    }
}

fn sequence_of(row: &TextRow) -> Sequence {
    let [start, increment, least, greatest, cache] = [2, 3, 4, 5, 6].map(|number| cell(row, number));
    let cycle = if is_true(row, 7) { " CYCLE" } else { "" };
    let owner = some(row, 8).map(|kind| SequenceOwner {
        table: cell(row, 9),
        column: cell(row, 10),
        is_identity: kind == "i",
    });
    Sequence {
        name: cell(row, 0),
        number_type: cell(row, 1),
        options: format!(
            "START WITH {start} INCREMENT BY {increment} MINVALUE {least} MAXVALUE {greatest} CACHE {cache}{cycle}"
        ),
        owner,
    }
}

/// Sorts views, so that each one comes after those that it reads.
fn in_order(mut left: Vec<View>, uses: &[(String, String)]) -> Vec<View> {
    let mut sorted: Vec<View> = Vec::new();
    while !left.is_empty() {
        let waits = |view: &View| {
            left.iter().any(|other| {
                other.name != view.name && uses.contains(&(view.name.clone(), other.name.clone()))
            })
        };
        // Views cannot read each other in a circle; if the catalog says so, the first one goes on.
        let next = left.iter().position(|view| !waits(view)).unwrap_or(0);
        sorted.push(left.remove(next));
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_follow_those_that_they_read() {
        let view = |name: &str| View {
            name: name.to_owned(),
            columns: Vec::new(),
            query: String::new(),
            options: Vec::new(),
        };
        let uses = [("a", "b"), ("b", "c"), ("c", "t")].map(|(by, of)| (by.to_owned(), of.to_owned()));
        let sorted = in_order(vec![view("a"), view("b"), view("c")], &uses);
        let names: Vec<&str> = sorted.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(names, ["c", "b", "a"]);
    }

    #[test]
    fn a_literal_is_quoted() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b'"), "E'a\\\\b'''");
    }
}

//! Finds rows by the values of some columns, by an index if there is one.

use varve_engine::{ColumnType, Datum, Reader, RowRef, ScanIndex, Table, TableDef, Value};

use crate::bind::foreign::same_columns;
use crate::error::{Result, SqlError};

/// The rows of a table that have these values in these columns.
pub(super) struct Sought<'t> {
    table: &'t TableDef,
    columns: &'t [usize],
    /// The values, in the types of the columns.
    values: Vec<Value>,
}

impl<'t> Sought<'t> {
    /// Converts the values to the types of the columns. Returns `None` if a value is out of the range of its
    /// column's type. Then there is no such row.
    pub(super) fn of(table: &'t TableDef, columns: &'t [usize], values: &[Value]) -> Option<Sought<'t>> {
        let fitted = columns.iter().zip(values).map(|(c, v)| fit_integer(v, table.columns[*c].column_type));
        Some(Sought { table, columns, values: fitted.collect::<Option<_>>()? })
    }

    pub(super) fn is(&self, row: &RowRef<'_>) -> bool {
        self.columns.iter().zip(&self.values).all(|(c, v)| equal(&row.get(*c), &v.as_datum()))
    }

    fn packed(&self, order: &[usize]) -> Vec<u8> {
        let mut packed = Vec::new();
        for column in order {
            if let Some(at) = self.columns.iter().position(|c| c == column) {
                self.table.push_key(&mut packed, *column, &self.values[at].as_datum());
            }
        }
        packed
    }

    /// Finds the key of the row in a reader's view, if the columns are a unique key.
    pub(super) fn find(&self, reader: &mut Reader, opened: &Table) -> Result<Option<Vec<u8>>> {
        if same_columns(self.table.key_columns(), self.columns) {
            let row_key = self.packed(self.table.key_columns());
            return Ok(reader.get(opened, &row_key, &mut |_| ())?.then_some(row_key));
        }
        let index = self.table.plain_indexes().find(|i| i.unique && same_columns(&i.columns, self.columns));
        let Some(index) = index else { return Err(SqlError::internal("a foreign key to no unique key")) };
        let mut found = None;
        let packed = self.packed(&index.columns);
        reader.get_by_unique(opened, index.id, &packed, &mut |key, _| found = Some(key.to_vec()))?;
        Ok(found)
    }

    /// Returns the index that begins with the columns, and the prefix of its keys with the values. If there
    /// is no such index, returns the primary key and an empty prefix, which means the whole table.
    pub(super) fn path(&self) -> (ScanIndex, Vec<u8>) {
        let begins =
            |of: &[usize]| of.get(..self.columns.len()).is_some_and(|b| same_columns(b, self.columns));
        let own = self.table.key_columns();
        if begins(own) {
            return (ScanIndex::Primary, self.packed(&own[..self.columns.len()]));
        }
        match self.table.plain_indexes().find(|i| begins(&i.columns)) {
            Some(i) => (ScanIndex::Secondary(i.id), self.packed(&i.columns[..self.columns.len()])),
            None => (ScanIndex::Primary, Vec::new()),
        }
    }
}

/// Converts an integer to another integer type. Returns `None` if it is out of range. Other values stay as
/// they are.
pub(super) fn fit_integer(value: &Value, t: ColumnType) -> Option<Value> {
    let Some(n) = value.as_datum().as_integer() else { return Some(value.clone()) };
    Some(match t {
        ColumnType::Int2 => Value::Int2(i16::try_from(n).ok()?),
        ColumnType::Int4 => Value::Int4(i32::try_from(n).ok()?),
        _ => Value::Int8(n),
    })
}

/// Returns whether two values are equal, and neither is NULL.
pub(super) fn equal(a: &Datum<'_>, b: &Datum<'_>) -> bool {
    !a.is_null() && !b.is_null() && a.order(b).is_eq()
}

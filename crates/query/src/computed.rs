//! Makes expressions of `varve-sql` available to the library DataFusion, as its scalar functions. The
//! arguments of such a function are the columns that the expression reads.
//!
//! Invariants
//! 1. DataFusion knows only three things about an expression: its columns, its type, and whether it is
//!    volatile. So DataFusion can move the expression, but cannot change it.
//! 2. Some values are known only while a query or a run of a subquery executes. An expression with such a
//!    value fails if DataFusion evaluates it during planning. DataFusion then leaves the expression
//!    unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{ArrayRef, BinaryViewBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr as Logical, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use varve_engine::Datum;
use varve_sql::general::{Around, Expr, SqlError, Ty, push_key};

use crate::budget::{Account, datum_bytes};
use crate::cells::{Cells, CellsBuilder, data_type, is_native};
use crate::constants;
use crate::error::wrapped;
use crate::identity::{Identity, compared_by_identity};
use crate::vector;

/// An expression. Its slots are the arguments of the function.
#[derive(Debug)]
pub struct Computed {
    id: Identity,
    expr: Expr,
    arguments: Vec<Ty>,
    result: Ty,
    around: Arc<Around>,
    /// A flag. If it is given, the expression has no value until the flag is true.
    begun: Option<Arc<AtomicBool>>,
    signature: Signature,
    /// Whether the values of a batch may be computed column by column.
    by_columns: bool,
    /// Whether the expression has constant parts. They are computed once for each batch.
    has_parts: bool,
}

impl Computed {
    /// Returns the call that computes `expr` from `arguments`. If `begun` is given, the value can differ in
    /// each execution and in each run of a subquery. `begun` is true as soon as an execution has begun.
    pub fn call(
        expr: Expr,
        result: Ty,
        arguments: Vec<(Logical, Ty)>,
        begun: Option<Arc<AtomicBool>>,
        around: &Arc<Around>,
    ) -> Logical {
        let (columns, types): (Vec<Logical>, Vec<Ty>) = arguments.into_iter().unzip();
        // DataFusion would compute an expression without columns once for the plan.
        let varies = begun.is_some() && columns.is_empty();
        let volatility = if varies { Volatility::Volatile } else { volatility(&expr) };
        let computed = Computed {
            id: Identity::next(),
            by_columns: volatility != Volatility::Volatile
                && !types.is_empty()
                && (vector::suits(&expr) || constants::has_parts(&expr)),
            signature: signature(&types, volatility),
            has_parts: constants::has_parts(&expr),
            expr,
            arguments: types,
            result,
            around: around.clone(),
            begun,
        };
        ScalarUDF::new_from_impl(computed).call(columns)
    }

    /// Returns the expression over slots.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Computes all values column by column. Returns `None` if the expression does not allow it.
    fn by_columns(&self, expr: &Expr, arrays: &[ArrayRef]) -> Result<Option<ArrayRef>> {
        if !self.by_columns || self.has_parts && !vector::suits(expr) {
            return Ok(None);
        }
        self.around.check_cancel().map_err(wrapped)?;
        let rows = vector::Rows {
            slots: arrays.iter().zip(self.arguments.iter().copied()).collect(),
            rows: arrays.first().map_or(0, |array| array.len()),
            param: &|n| self.around.param(n),
        };
        Ok(vector::evaluate(expr, self.result, &rows))
    }
}

fn signature(types: &[Ty], volatility: Volatility) -> Signature {
    Signature::exact(types.iter().map(|t| data_type(*t)).collect(), volatility)
}

fn volatility(expr: &Expr) -> Volatility {
    let mut volatile = false;
    expr.walk(&mut |e| volatile |= matches!(e, Expr::Call(f, _) if f.volatile));
    if volatile { Volatility::Volatile } else { Volatility::Immutable }
}

compared_by_identity!(Computed);

impl ScalarUDFImpl for Computed {
    fn name(&self) -> &str {
        "expression"
    }

    fn schema_name(&self, _: &[Logical]) -> Result<String> {
        Ok(format!("expression {}", self.id))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.result))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.begun.as_ref().is_some_and(|begun| !begun.load(Ordering::Relaxed)) {
            return Err(wrapped(SqlError::internal("a value of an execution that has not begun")));
        }
        let arrays = ColumnarValue::values_to_arrays(&call.args)?;
        let of_run = self.has_parts.then(|| constants::of_run(&self.expr, &self.around));
        let expr = of_run.as_ref().unwrap_or(&self.expr);
        if let Some(array) = self.by_columns(expr, &arrays)? {
            return returned(array, &call.args);
        }
        let columns: Vec<Cells<'_>> =
            self.arguments.iter().zip(&arrays).map(|(t, array)| Cells::of(*t, array)).collect();
        // A volatile expression is evaluated for each row, even if there is no argument that tells the number
        // of rows.
        let is_volatile = self.signature.volatility == Volatility::Volatile;
        let rows = if is_volatile { call.number_rows } else { arrays.first().map_or(1, |a| a.len()) };
        let (mut out, mut memory) = (CellsBuilder::new(self.result), Account::default());
        let at = |column: usize, n: usize| if arrays[column].len() == 1 { 0 } else { n };
        self.around
            .evaluate(
                expr,
                rows,
                columns.len(),
                |n, column| columns[column].get(at(column, n)),
                |v| {
                    memory.grow(datum_bytes(&v))?;
                    out.push(v);
                    Ok(())
                },
            )
            .map_err(wrapped)?;
        if is_volatile {
            return Ok(ColumnarValue::Array(out.finish()));
        }
        returned(out.finish(), &call.args)
    }
}

/// Returns an array, or a scalar if no argument was an array.
fn returned(array: ArrayRef, arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    if arguments.iter().any(|a| matches!(a, ColumnarValue::Array(_))) {
        return Ok(ColumnarValue::Array(array));
    }
    datafusion::common::ScalarValue::try_from_array(&array, 0).map(ColumnarValue::Scalar)
}

/// Makes bytes of a value. The bytes compare as the value does, and NULL stays NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct KeyOf {
    ty: Ty,
    signature: Signature,
}

/// Returns the expression that DataFusion compares for a value of this type: the value itself, or its key.
pub fn comparable(value: Logical, ty: Ty) -> Logical {
    if is_native(ty) {
        return value;
    }
    let key = KeyOf { ty, signature: signature(&[ty], Volatility::Immutable) };
    ScalarUDF::new_from_impl(key).call(vec![value])
}

/// Returns whether the call makes a key of its argument.
pub fn is_key(call: &ScalarFunction) -> bool {
    call.func.inner().downcast_ref::<KeyOf>().is_some()
}

impl ScalarUDFImpl for KeyOf {
    fn name(&self) -> &str {
        "key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::BinaryView)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&call.args)?;
        let values = Cells::of(self.ty, &arrays[0]);
        let (mut out, mut key) = (BinaryViewBuilder::new(), Vec::new());
        for n in 0..arrays[0].len() {
            let value = values.get(n);
            if value.is_null() {
                out.append_null();
                continue;
            }
            key.clear();
            push_key(&mut key, &value);
            out.append_value(&key);
        }
        returned(Arc::new(out.finish()), &call.args)
    }
}

/// Makes bytes of several values. The order of the bytes is that of rows with ORDER BY these values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderOf {
    types: Vec<Ty>,
    directions: Vec<Direction>,
    signature: Signature,
}

/// The direction in which ORDER BY sorts a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Direction {
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

/// Returns an expression for the sort key of a row, if rows are ordered by these values.
pub fn order_of(values: Vec<(Logical, Ty, Direction)>) -> Logical {
    let types: Vec<Ty> = values.iter().map(|(_, t, _)| *t).collect();
    let directions = values.iter().map(|(_, _, d)| *d).collect();
    let signature = signature(&types, Volatility::Immutable);
    let order = OrderOf { types, directions, signature };
    ScalarUDF::new_from_impl(order).call(values.into_iter().map(|(e, ..)| e).collect())
}

impl ScalarUDFImpl for OrderOf {
    fn name(&self) -> &str {
        "order"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::BinaryView)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&call.args)?;
        let columns: Vec<Cells<'_>> = self.types.iter().zip(&arrays).map(|(t, a)| Cells::of(*t, a)).collect();
        let rows = arrays.first().map_or(call.number_rows, |a| a.len());
        let (mut out, mut key) = (BinaryViewBuilder::new(), Vec::new());
        for n in 0..rows {
            key.clear();
            for (column, direction) in columns.iter().zip(&self.directions) {
                push_directed(&mut key, &column.get(n), *direction);
            }
            out.append_value(&key);
        }
        returned(Arc::new(out.finish()), &call.args)
    }
}

/// Appends a byte that sorts NULL before or after the other values, and then the key of the value. For DESC
/// the bytes of the key are inverted. This reverses the order, because no key is the beginning of another
/// key.
fn push_directed(out: &mut Vec<u8>, value: &Datum<'_>, direction: Direction) {
    if value.is_null() {
        out.push(if direction.nulls_first { 0 } else { 2 });
        return;
    }
    out.push(1);
    let begin = out.len();
    push_key(out, value);
    if direction.descending {
        out[begin..].iter_mut().for_each(|b| *b = !*b);
    }
}

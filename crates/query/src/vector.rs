//! Evaluates expressions for a whole batch of rows, one column at a time: comparisons, logic, LIKE, CASE, and
//! arithmetic of integers and numeric.
//!
//! Invariants
//! 1. The results are the same as those of `eval::Expr`, which evaluates row by row. The result is `None` if
//!    a value could cause an error such as an overflow, has no fast method here, or needs more than a machine
//!    word. The caller then evaluates row by row. So this module may compute a branch of CASE even for rows
//!    that do not take the branch.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int16Array, Int32Array, Int64Array, Scalar, StringViewArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::kernels::{boolean, cmp};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, Int16Type, Int32Type, Int64Type};
use varve_engine::{DAY_US, Value, lifted};
use varve_sql::general::{ArithOp, Class, CmpOp, Expr, Like, Ty, Typed, like_matches};

use crate::numbers::{Numbers, Scale};

/// Dates of up to this number of days are far inside the range of timestamps, and are not infinite.
pub const DAYS_MAX: u64 = 10_000_000;
/// The number of digits after the decimal point up to which PostgreSQL does not round a product.
const PRODUCT_SCALE_MAX: u16 = 1000;

/// A list of this length or longer is put into a hash set.
const HASHED_MIN: usize = 16;

/// The values of an expression for the rows of a batch.
#[derive(Clone)]
enum Vector {
    Bool(BooleanArray),
    Int(Ints),
    Number(Numbers),
    Text(StringViewArray),
    /// One value for all rows, which is not NULL.
    One(Value),
}

/// Integers, dates or timestamps.
#[derive(Clone)]
struct Ints {
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
}

/// Returns whether the kinds of operations in the expression have a fast method here.
pub fn suits(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Slot(_) | Expr::Param(_) | Expr::Const(_) => true,
        Expr::And(items) | Expr::Or(items) => items.iter().all(suits),
        Expr::Not(inner) | Expr::IsNull(inner, _) => suits(inner),
        Expr::Compare(_, sides) => suits(&sides.0) && suits(&sides.1),
        Expr::InList(operand, list, _) => suits(operand) && list.iter().all(|e| matches!(e, Expr::Const(_))),
        Expr::Like(like) => suits(&like.subject) && matches!(like.pattern, Expr::Const(_)) && !like.fold_case,
        Expr::Case(branches, otherwise) => {
            branches.iter().all(|(condition, result)| suits(condition) && suits(result)) && suits(otherwise)
        }
        Expr::Arith(op, class, sides) => {
            let is_plain = matches!(op, ArithOp::Add | ArithOp::Subtract | ArithOp::Multiply);
            let is_known = matches!(class, Class::Int2 | Class::Int4 | Class::Int8 | Class::Numeric);
            is_plain && is_known && suits(&sides.0) && suits(&sides.1)
        }
        Expr::Cast(inner, from, to, _) => is_known_cast(*from, *to) && suits(inner),
        _ => false,
    }
}

fn is_known_cast(from: Ty, to: Typed) -> bool {
    match to.ty {
        Ty::Numeric => from.is_integer() && to == Typed::plain(Ty::Numeric),
        Ty::Int8 => from.is_integer(),
        Ty::Int4 => matches!(from, Ty::Int2 | Ty::Int4),
        Ty::Timestamp => from == Ty::Date && to == Typed::plain(Ty::Timestamp),
        _ => false,
    }
}

/// The columns that an expression reads, and the parameters.
pub struct Rows<'a> {
    /// The arrays of the slots, and their types. Each array has one value for each row.
    pub slots: Vec<(&'a ArrayRef, Ty)>,
    /// The number of rows.
    pub rows: usize,
    /// Returns the value of a parameter.
    pub param: &'a dyn Fn(usize) -> Value,
}

/// Returns the values of the expression, which have the type `result`.
pub fn evaluate(expr: &Expr, result: Ty, rows: &Rows<'_>) -> Option<ArrayRef> {
    if rows.slots.iter().any(|(array, _)| array.len() != rows.rows) {
        return None;
    }
    rows.vector(expr)?.array(result)
}

impl Rows<'_> {
    fn vector(&self, expr: &Expr) -> Option<Vector> {
        match expr {
            Expr::Column(n) | Expr::Slot(n) => self.slot(*n),
            Expr::Param(n) => one((self.param)(*n)),
            Expr::Const(value) => one(value.clone()),
            Expr::And(items) => self.junction(items, boolean::and_kleene),
            Expr::Or(items) => self.junction(items, boolean::or_kleene),
            Expr::Not(inner) => Some(Vector::Bool(boolean::not(&self.bools(inner)?).ok()?)),
            Expr::IsNull(inner, negated) => Some(Vector::Bool(self.is_null(&self.vector(inner)?, *negated))),
            Expr::Compare(op, sides) => self.compare(*op, self.vector(&sides.0)?, self.vector(&sides.1)?),
            Expr::InList(operand, list, negated) => self.in_list(operand, list, *negated),
            Expr::Like(like) => self.like(like),
            Expr::Case(branches, otherwise) => self.case(branches, otherwise),
            Expr::Arith(op, class, sides) => {
                self.arithmetic(*op, *class, self.vector(&sides.0)?, self.vector(&sides.1)?)
            }
            Expr::Cast(inner, _, to, _) => self.cast(self.vector(inner)?, to.ty),
            _ => None,
        }
    }

    fn slot(&self, n: usize) -> Option<Vector> {
        let (array, ty) = self.slots.get(n)?;
        Some(match ty {
            Ty::Bool => Vector::Bool(array.as_boolean().clone()),
            Ty::Int2 => Vector::Int(ints::<Int16Type>(array)),
            Ty::Int4 | Ty::Date => Vector::Int(ints::<Int32Type>(array)),
            Ty::Int8 | Ty::Timestamp | Ty::TimestampTz => Vector::Int(ints::<Int64Type>(array)),
            Ty::Numeric => Vector::Number(Numbers::of(array.as_binary_view())?),
            Ty::Text | Ty::Varchar | Ty::Char => Vector::Text(array.as_string_view().clone()),
            _ => return None,
        })
    }

    fn bools(&self, expr: &Expr) -> Option<BooleanArray> {
        match self.vector(expr)? {
            Vector::Bool(array) => Some(array),
            Vector::One(Value::Bool(b)) => Some(BooleanArray::from(vec![b; self.rows])),
            _ => None,
        }
    }

    /// Returns the vector as integers, dates or timestamps. A single value is repeated for all rows.
    fn ints(&self, vector: Vector) -> Option<Ints> {
        let value = match vector {
            Vector::Int(ints) => return Some(ints),
            Vector::One(Value::Int2(v)) => i64::from(v),
            Vector::One(Value::Int4(v) | Value::Date(v)) => i64::from(v),
            Vector::One(Value::Int8(v) | Value::Timestamp(v) | Value::TimestampTz(v)) => v,
            _ => return None,
        };
        Some(Ints { values: vec![value; self.rows].into(), nulls: None })
    }

    fn numbers(&self, vector: Vector) -> Option<Numbers> {
        match vector {
            Vector::Number(numbers) => Some(numbers),
            Vector::One(Value::Numeric(n)) => {
                let (value, scale) = n.as_ref().to_unscaled()?;
                let values = vec![value; self.rows].into();
                Some(Numbers { values, scale: Scale::Same(scale), nulls: None })
            }
            _ => None,
        }
    }

    fn is_null(&self, vector: &Vector, negated: bool) -> BooleanArray {
        let nulls = match vector {
            Vector::Bool(array) => array.nulls(),
            Vector::Int(ints) => ints.nulls.as_ref(),
            Vector::Number(numbers) => numbers.nulls.as_ref(),
            Vector::Text(array) => array.nulls(),
            Vector::One(_) => None,
        };
        let valid = match nulls {
            Some(nulls) => nulls.inner().clone(),
            None => BooleanBuffer::new_set(self.rows),
        };
        BooleanArray::new(if negated { valid } else { !&valid }, None)
    }

    fn junction(&self, items: &[Expr], join: Junction) -> Option<Vector> {
        let (first, others) = items.split_first()?;
        let mut whole = self.bools(first)?;
        for item in others {
            whole = join(&whole, &self.bools(item)?).ok()?;
        }
        Some(Vector::Bool(whole))
    }

    fn compare(&self, op: CmpOp, left: Vector, right: Vector) -> Option<Vector> {
        Some(Vector::Bool(match (left, right) {
            (Vector::Text(a), Vector::Text(b)) => texts(op, &a, &b)?,
            (Vector::Text(a), Vector::One(Value::Text(b))) => texts(op, &a, &scalar(&b))?,
            (Vector::One(Value::Text(a)), Vector::Text(b)) => texts(op.mirrored(), &b, &scalar(&a))?,
            (a @ Vector::Number(_), b) | (a, b @ Vector::Number(_)) => {
                compared_numbers(op, &self.numbers(a)?, &self.numbers(b)?)?
            }
            (a @ Vector::Int(_), b) | (a, b @ Vector::Int(_)) => {
                let (a, b) = (self.ints(a)?, self.ints(b)?);
                let nulls = NullBuffer::union(a.nulls.as_ref(), b.nulls.as_ref());
                BooleanArray::new(held(op, &a.values, &b.values), nulls)
            }
            _ => return None,
        }))
    }

    fn in_list(&self, operand: &Expr, list: &[Expr], negated: bool) -> Option<Vector> {
        let operand = self.vector(operand)?;
        if list.len() >= HASHED_MIN {
            return members(&operand, list, negated);
        }
        let mut whole: Option<BooleanArray> = None;
        for item in list {
            let Vector::Bool(equal) = self.compare(CmpOp::Eq, operand.clone(), self.vector(item)?)? else {
                return None;
            };
            whole = Some(match whole {
                Some(whole) => boolean::or_kleene(&whole, &equal).ok()?,
                None => equal,
            });
        }
        let whole = whole?;
        Some(Vector::Bool(if negated { boolean::not(&whole).ok()? } else { whole }))
    }

    fn like(&self, like: &Like) -> Option<Vector> {
        let (Vector::Text(subjects), Expr::Const(Value::Text(pattern))) =
            (self.vector(&like.subject)?, &like.pattern)
        else {
            return None;
        };
        let mut failed = false;
        let found = BooleanBuffer::collect_bool(subjects.len(), |n| {
            let found = like_matches(subjects.value(n), pattern, like.escape);
            failed |= found.is_err();
            found.is_ok_and(|found| found != like.negated)
        });
        (!failed).then(|| Vector::Bool(BooleanArray::new(found, subjects.nulls().cloned())))
    }

    fn case(&self, branches: &[(Expr, Expr)], otherwise: &Expr) -> Option<Vector> {
        let conditions: Vec<BooleanArray> =
            branches.iter().map(|(condition, _)| self.bools(condition)).collect::<Option<_>>()?;
        let results = branches.iter().map(|(_, result)| result).chain([otherwise]);
        let results: Vec<Vector> = results.map(|e| self.vector(e)).collect::<Option<_>>()?;
        let taken = |n: usize| {
            let holds = |c: &BooleanArray| c.is_valid(n) && c.value(n);
            conditions.iter().position(holds).unwrap_or(conditions.len())
        };
        let is_numeric = |v: &Vector| matches!(v, Vector::Number(_) | Vector::One(Value::Numeric(_)));
        if results.iter().all(is_numeric) {
            let results: Vec<Numbers> =
                results.into_iter().map(|v| self.numbers(v)).collect::<Option<_>>()?;
            return Some(Vector::Number(chosen_numbers(self.rows, &results, taken)));
        }
        let results: Vec<Ints> = results.into_iter().map(|v| self.ints(v)).collect::<Option<_>>()?;
        let taken: Vec<usize> = (0..self.rows).map(taken).collect();
        let values = taken.iter().enumerate().map(|(n, branch)| results[*branch].values[n]).collect();
        let nulls = results.iter().map(|r| r.nulls.as_ref()).collect::<Vec<_>>();
        Some(Vector::Int(Ints { values, nulls: chosen_nulls(&taken, &nulls) }))
    }

    fn arithmetic(&self, op: ArithOp, class: Class, left: Vector, right: Vector) -> Option<Vector> {
        if class == Class::Numeric {
            return added_numbers(op, &self.numbers(left)?, &self.numbers(right)?).map(Vector::Number);
        }
        let (a, b) = (self.ints(left)?, self.ints(right)?);
        let values = computed(op, &a.values, &b.values)?;
        let fits = match class {
            Class::Int2 => values.iter().all(|v| i16::try_from(*v).is_ok()),
            Class::Int4 => values.iter().all(|v| i32::try_from(*v).is_ok()),
            _ => true,
        };
        let nulls = NullBuffer::union(a.nulls.as_ref(), b.nulls.as_ref());
        fits.then_some(Vector::Int(Ints { values, nulls }))
    }

    fn cast(&self, vector: Vector, to: Ty) -> Option<Vector> {
        let Ints { values, nulls } = self.ints(vector)?;
        match to {
            Ty::Numeric => Some(Vector::Number(Numbers { values, scale: Scale::Same(0), nulls })),
            Ty::Timestamp => {
                let is_near = values.iter().all(|day| day.unsigned_abs() <= DAYS_MAX);
                let values =
                    if is_near { values.iter().map(|day| day * DAY_US).collect() } else { return None };
                Some(Vector::Int(Ints { values, nulls }))
            }
            _ => Some(Vector::Int(Ints { values, nulls })),
        }
    }
}

/// Returns which values are in a list of constants without NULLs. Returns `None` for types without a fast
/// method.
fn members(operand: &Vector, list: &[Expr], negated: bool) -> Option<Vector> {
    let (found, nulls) = match operand {
        Vector::Int(ints) => {
            let word = |item: &Expr| match item {
                Expr::Const(value) => value.as_datum().as_integer(),
                _ => None,
            };
            let words: HashSet<i64> = list.iter().map(word).collect::<Option<_>>()?;
            let holds = |n: usize| words.contains(&ints.values[n]) != negated;
            (BooleanBuffer::collect_bool(ints.values.len(), holds), ints.nulls.clone())
        }
        Vector::Text(texts) => {
            let text = |item| match item {
                &Expr::Const(Value::Text(ref text)) => Some(text.as_str()),
                _ => None,
            };
            let known: HashSet<&str> = list.iter().map(text).collect::<Option<_>>()?;
            let holds = |n: usize| known.contains(texts.value(n)) != negated;
            (BooleanBuffer::collect_bool(texts.len(), holds), texts.nulls().cloned())
        }
        _ => return None,
    };
    Some(Vector::Bool(BooleanArray::new(found, nulls)))
}

type Junction =
    fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, datafusion::arrow::error::ArrowError>;

fn one(value: Value) -> Option<Vector> {
    (!value.is_null()).then_some(Vector::One(value))
}

fn scalar(text: &str) -> Scalar<StringViewArray> {
    Scalar::new(StringViewArray::from_iter_values([text]))
}

fn ints<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &ArrayRef) -> Ints {
    let array = array.as_primitive::<T>();
    let values = array.values().iter().map(|v| (*v).into()).collect();
    Ints { values, nulls: array.nulls().cloned() }
}

/// Compares texts by their bytes, as Arrow does.
fn texts(
    op: CmpOp,
    left: &StringViewArray,
    right: &dyn datafusion::arrow::array::Datum,
) -> Option<BooleanArray> {
    let compare = match op {
        CmpOp::Eq => cmp::eq,
        CmpOp::Ne => cmp::neq,
        CmpOp::Lt => cmp::lt,
        CmpOp::Le => cmp::lt_eq,
        CmpOp::Gt => cmp::gt,
        CmpOp::Ge => cmp::gt_eq,
    };
    compare(left, right).ok()
}

fn held<T: Ord + Copy>(op: CmpOp, a: &[T], b: &[T]) -> BooleanBuffer {
    let len = a.len();
    match op {
        CmpOp::Eq => BooleanBuffer::collect_bool(len, |n| a[n] == b[n]),
        CmpOp::Ne => BooleanBuffer::collect_bool(len, |n| a[n] != b[n]),
        CmpOp::Lt => BooleanBuffer::collect_bool(len, |n| a[n] < b[n]),
        CmpOp::Le => BooleanBuffer::collect_bool(len, |n| a[n] <= b[n]),
        CmpOp::Gt => BooleanBuffer::collect_bool(len, |n| a[n] > b[n]),
        CmpOp::Ge => BooleanBuffer::collect_bool(len, |n| a[n] >= b[n]),
    }
}

fn compared_numbers(op: CmpOp, a: &Numbers, b: &Numbers) -> Option<BooleanArray> {
    let (Scale::Same(s), Scale::Same(t)) = (&a.scale, &b.scale) else { return None };
    let nulls = NullBuffer::union(a.nulls.as_ref(), b.nulls.as_ref());
    if s == t {
        return Some(BooleanArray::new(held(op, &a.values, &b.values), nulls));
    }
    let scale = *s.max(t);
    let wide = |numbers: &Numbers, by: u16| -> Option<Vec<i128>> {
        numbers.values.iter().map(|v| lifted(*v, by)).collect()
    };
    let (a, b) = (wide(a, scale - s)?, wide(b, scale - t)?);
    Some(BooleanArray::new(held(op, &a, &b), nulls))
}

/// Computes `a op b` for each row. Returns `None` if a result overflows.
fn computed(op: ArithOp, a: &[i64], b: &[i64]) -> Option<ScalarBuffer<i64>> {
    let mut overflowed = false;
    let mut note = |(value, over): (i64, bool)| {
        overflowed |= over;
        value
    };
    let pairs = a.iter().zip(b);
    let values: ScalarBuffer<i64> = match op {
        ArithOp::Add => pairs.map(|(a, b)| note(a.overflowing_add(*b))).collect(),
        ArithOp::Subtract => pairs.map(|(a, b)| note(a.overflowing_sub(*b))).collect(),
        ArithOp::Multiply => pairs.map(|(a, b)| note(a.overflowing_mul(*b))).collect(),
        _ => return None,
    };
    (!overflowed).then_some(values)
}

fn added_numbers(op: ArithOp, a: &Numbers, b: &Numbers) -> Option<Numbers> {
    let (Scale::Same(s), Scale::Same(t)) = (&a.scale, &b.scale) else { return None };
    let nulls = NullBuffer::union(a.nulls.as_ref(), b.nulls.as_ref());
    let (values, scale) = match op {
        ArithOp::Multiply => (computed(op, &a.values, &b.values)?, s.checked_add(*t)?),
        _ => {
            let scale = *s.max(t);
            (computed(op, &raised(&a.values, scale - s)?, &raised(&b.values, scale - t)?)?, scale)
        }
    };
    (scale <= PRODUCT_SCALE_MAX).then_some(Numbers { values, scale: Scale::Same(scale), nulls })
}

/// Returns the same values with `by` more digits after the decimal point.
fn raised(values: &ScalarBuffer<i64>, by: u16) -> Option<ScalarBuffer<i64>> {
    if by == 0 {
        return Some(values.clone());
    }
    let power = 10i64.checked_pow(u32::from(by))?;
    computed(ArithOp::Multiply, values, &vec![power; values.len()])
}

fn chosen_numbers(rows: usize, results: &[Numbers], taken: impl Fn(usize) -> usize) -> Numbers {
    let scale_of = |branch: &Numbers, n: usize| match &branch.scale {
        Scale::Same(scale) => *scale,
        Scale::Each(scales) => scales[n],
    };
    let taken: Vec<usize> = (0..rows).map(taken).collect();
    let rows = || taken.iter().enumerate().map(|(n, branch)| (n, &results[*branch]));
    let values = rows().map(|(n, branch)| branch.values[n]).collect();
    let scales: Arc<[u16]> = rows().map(|(n, branch)| scale_of(branch, n)).collect();
    let scale = match scales.first() {
        Some(first) if scales.iter().all(|scale| scale == first) => Scale::Same(*first),
        None => Scale::Same(0),
        _ => Scale::Each(scales),
    };
    let nulls = results.iter().map(|r| r.nulls.as_ref()).collect::<Vec<_>>();
    Numbers { values, scale, nulls: chosen_nulls(&taken, &nulls) }
}

fn chosen_nulls(taken: &[usize], nulls: &[Option<&NullBuffer>]) -> Option<NullBuffer> {
    if nulls.iter().all(Option::is_none) {
        return None;
    }
    let is_valid = |n: usize| nulls[taken[n]].is_none_or(|nulls| nulls.is_valid(n));
    Some(NullBuffer::new(BooleanBuffer::collect_bool(taken.len(), is_valid)))
}

impl Vector {
    /// Returns the values as an array of this type. Returns `None` if the values have another type.
    fn array(self, ty: Ty) -> Option<ArrayRef> {
        Some(match (self, ty) {
            (Vector::Bool(array), Ty::Bool) => Arc::new(array),
            (Vector::Number(numbers), Ty::Numeric) => numbers.array().ok()?,
            (Vector::Text(array), Ty::Text | Ty::Varchar | Ty::Char) => Arc::new(array),
            (Vector::Int(ints), Ty::Int2) => {
                let values = ints.values.iter().map(|v| *v as i16).collect();
                Arc::new(Int16Array::new(values, ints.nulls))
            }
            (Vector::Int(ints), Ty::Int4 | Ty::Date) => {
                let values = ints.values.iter().map(|v| *v as i32).collect();
                Arc::new(Int32Array::new(values, ints.nulls))
            }
            (Vector::Int(ints), Ty::Int8 | Ty::Timestamp | Ty::TimestampTz) => {
                Arc::new(Int64Array::new(ints.values, ints.nulls))
            }
            _ => return None,
        })
    }
}

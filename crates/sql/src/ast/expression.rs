//! Syntax tree of expressions.

use super::{
    BinaryOperator, Ident, ObjectName, OrderByExpr, Query, TextPosition, TypeName, UnaryOperator, WindowSpec,
};

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A column without its table's name.
    Identifier(Ident),
    /// A column with names before it: that of its table, and perhaps that of the table's schema.
    CompoundIdentifier(Vec<Ident>),
    /// A constant.
    Value(Constant),
    /// `$1`
    Parameter(usize, TextPosition),
    /// DEFAULT
    Default(TextPosition),
    /// Parentheses. When the binder splits an operation, it does not enter them.
    Nested(Box<Expr>),
    /// An operator before its operand.
    UnaryOp {
        /// The operator.
        op: UnaryOperator,
        /// Its operand.
        expr: Box<Expr>,
    },
    /// An operator between its operands.
    BinaryOp {
        /// The operand before it.
        left: Box<Expr>,
        /// The operator.
        op: BinaryOperator,
        /// The operand after it.
        right: Box<Expr>,
    },
    /// IS NULL
    IsNull(Box<Expr>),
    /// IS NOT NULL
    IsNotNull(Box<Expr>),
    /// IS TRUE
    IsTrue(Box<Expr>),
    /// IS NOT TRUE
    IsNotTrue(Box<Expr>),
    /// IS FALSE
    IsFalse(Box<Expr>),
    /// IS NOT FALSE
    IsNotFalse(Box<Expr>),
    /// IS UNKNOWN
    IsUnknown(Box<Expr>),
    /// IS NOT UNKNOWN
    IsNotUnknown(Box<Expr>),
    /// IS DISTINCT FROM
    IsDistinctFrom(Box<Expr>, Box<Expr>),
    /// IS NOT DISTINCT FROM
    IsNotDistinctFrom(Box<Expr>, Box<Expr>),
    /// `expr [NOT] IN (list)`
    InList {
        /// The searched value.
        expr: Box<Expr>,
        /// The list in which the value is searched.
        list: Vec<Expr>,
        /// NOT
        negated: bool,
    },
    /// `expr [NOT] IN (SELECT ...)`
    InSubquery {
        /// The searched value.
        expr: Box<Expr>,
        /// The query in whose rows the value is searched.
        subquery: Box<Query>,
        /// NOT
        negated: bool,
    },
    /// `expr [NOT] BETWEEN [SYMMETRIC] low AND high`
    Between {
        /// The compared value.
        expr: Box<Expr>,
        /// NOT
        negated: bool,
        /// SYMMETRIC: the bounds may be in either order.
        symmetric: bool,
        /// The first bound.
        low: Box<Expr>,
        /// The second bound.
        high: Box<Expr>,
    },
    /// `expr [NOT] LIKE pattern`, `expr [NOT] ILIKE pattern`
    Like {
        /// The string that is matched.
        expr: Box<Expr>,
        /// NOT
        negated: bool,
        /// ILIKE: upper and lower case are the same.
        fold_case: bool,
        /// The pattern.
        pattern: Box<Expr>,
        /// ESCAPE
        escape: Option<Box<Expr>>,
    },
    /// `expr [NOT] SIMILAR TO pattern`
    SimilarTo {
        /// The string that is matched.
        expr: Box<Expr>,
        /// NOT
        negated: bool,
        /// The pattern.
        pattern: Box<Expr>,
        /// ESCAPE
        escape: Option<Box<Expr>>,
    },
    /// `left op ANY (right)`, of a subquery or an array
    AnyOp {
        /// The compared value.
        left: Box<Expr>,
        /// The operator.
        compare_op: BinaryOperator,
        /// The array or subquery with which it is compared.
        right: Box<Expr>,
    },
    /// `left op ALL (right)`, of a subquery or an array
    AllOp {
        /// The compared value.
        left: Box<Expr>,
        /// The operator.
        compare_op: BinaryOperator,
        /// The array or subquery with which it is compared.
        right: Box<Expr>,
    },
    /// `expr::type`, CAST
    Cast {
        /// The value.
        expr: Box<Expr>,
        /// The type of the result.
        data_type: TypeName,
    },
    /// COLLATE
    Collate {
        /// The string.
        expr: Box<Expr>,
        /// The collation.
        collation: ObjectName,
    },
    /// `timestamp AT TIME ZONE time_zone`
    AtTimeZone {
        /// The time.
        timestamp: Box<Expr>,
        /// The zone.
        time_zone: Box<Expr>,
    },
    /// `extract(field FROM expr)`
    Extract {
        /// The field, as in the text.
        field: String,
        /// The time.
        expr: Box<Expr>,
    },
    /// `position(expr IN in)`
    Position {
        /// The searched value.
        expr: Box<Expr>,
        /// The value in which it is searched.
        r#in: Box<Expr>,
    },
    /// `substring(expr FROM from FOR for)`, `substr(expr, from, for)`
    Substring {
        /// The string.
        expr: Box<Expr>,
        /// The start of the part.
        from: Option<Box<Expr>>,
        /// The length of the part.
        r#for: Option<Box<Expr>>,
        /// Whether it is written as `substr`.
        shorthand: bool,
    },
    /// `trim(LEADING what FROM expr)`
    Trim {
        /// The string.
        expr: Box<Expr>,
        /// The ends that are trimmed.
        side: TrimSide,
        /// The characters that are removed. The default is blanks.
        what: Option<Box<Expr>>,
    },
    /// `overlay(expr PLACING what FROM from FOR for)`
    Overlay {
        /// The string.
        expr: Box<Expr>,
        /// The new part.
        what: Box<Expr>,
        /// The position of the new part.
        from: Box<Expr>,
        /// The number of characters that it replaces.
        r#for: Option<Box<Expr>>,
    },
    /// A call of a function.
    Function(Function),
    /// Functions that are called without parentheses, such as `CURRENT_DATE`.
    ValueFunction(ValueFunction),
    /// CASE
    Case(Case),
    /// `[NOT] EXISTS (SELECT ...)`
    Exists {
        /// The query.
        subquery: Box<Query>,
        /// NOT
        negated: bool,
    },
    /// `(SELECT ...)` as a value
    Subquery(Box<Query>),
    /// `ARRAY(SELECT ...)`
    ArraySubquery(Box<Query>, TextPosition),
    /// `ARRAY[a, b]`
    Array(Vec<Expr>),
    /// `(a, b)`
    Tuple(Vec<Expr>),
    /// `ROW(a, b)`
    Row(Vec<Expr>, TextPosition),
    /// Fields and elements of a value: `(a).b[1]`.
    Indirection {
        /// The value.
        root: Box<Expr>,
        /// The fields and elements, one after the other.
        links: Vec<Link>,
    },
}

impl Expr {
    /// NULL without a position in a text.
    pub const NULL: Expr = Expr::Value(Constant { value: Value::Null, at: TextPosition::NONE });

    /// Returns a number without a position in a text.
    pub fn number(digits: impl Into<String>) -> Expr {
        Expr::Value(Constant { value: Value::Number(digits.into()), at: TextPosition::NONE })
    }

    /// Returns the expression without the parentheses around it.
    pub fn unnested(&self) -> &Expr {
        match self {
            Expr::Nested(inner) => inner.unnested(),
            other => other,
        }
    }
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// The value.
    pub value: Value,
    /// The position of its beginning.
    pub at: TextPosition,
}

/// The value of a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// NULL
    Null,
    /// TRUE, FALSE
    Boolean(bool),
    /// A number in decimal digits.
    Number(String),
    /// A string, without quotes and escapes.
    Text(String),
}

/// The ends at which TRIM removes characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimSide {
    /// BOTH
    Both,
    /// LEADING
    Leading,
    /// TRAILING
    Trailing,
}

impl TrimSide {
    /// Returns the function with this effect.
    pub fn function(self) -> &'static str {
        match self {
            TrimSide::Both => "btrim",
            TrimSide::Leading => "ltrim",
            TrimSide::Trailing => "rtrim",
        }
    }
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The function.
    pub name: ObjectName,
    /// DISTINCT before the arguments.
    pub distinct: bool,
    /// The arguments.
    pub args: Vec<FunctionArg>,
    /// ORDER BY after the arguments.
    pub order_by: Vec<OrderByExpr>,
    /// WITHIN GROUP (ORDER BY ...)
    pub within_group: Vec<OrderByExpr>,
    /// FILTER (WHERE ...)
    pub filter: Option<Box<Expr>>,
    /// OVER
    pub over: Option<Box<Over>>,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum FunctionArg {
    /// A value.
    Expr(Expr),
    /// A value for the argument with this name.
    Named(Ident, Expr),
    /// `*`
    Star,
    /// `table.*`
    TableStar(ObjectName),
}

/// The window after OVER.
#[derive(Debug, Clone, PartialEq)]
pub enum Over {
    /// The name of a window.
    Name(Ident),
    /// The definition of the window.
    Spec(WindowSpec),
}

/// A function that is called by a word, without parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueFunction {
    /// The word in lower case.
    pub name: &'static str,
    /// The digits of the seconds.
    pub precision: Option<i32>,
    /// The position of its beginning.
    pub at: TextPosition,
}

/// CASE.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The value that is compared with the values after WHEN. Without this value, conditions follow WHEN.
    pub operand: Option<Box<Expr>>,
    /// WHEN and THEN.
    pub branches: Vec<CaseWhen>,
    /// ELSE
    pub otherwise: Option<Box<Expr>>,
    /// The position of its beginning.
    pub at: TextPosition,
}

/// A branch of CASE.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseWhen {
    /// WHEN
    pub condition: Expr,
    /// THEN
    pub result: Expr,
}

/// A field or element of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// `.field`
    Field(Ident),
    /// `[index]`
    Index(Expr),
    /// `[lower:upper]`
    Slice(Option<Expr>, Option<Expr>),
}

//! Prints a CHECK condition as PostgreSQL does, with the casts that PostgreSQL's analysis adds, and with its
//! parentheses.
//!
//! Source: PostgreSQL 15, `ruleutils.c` (`get_rule_expr`, `isSimpleNode`, `get_const_expr`). The types of
//! operands follow PostgreSQL's manual, 10.2.
//!
//! For an unknown form the result is `None`, and the caller shows the stored text.

use varve_engine::{Catalog, TableDef, Value};

use super::names::quoted;
use super::show::type_name;
use crate::ast::{
    BinaryOperator, Expr as Ast, Function, FunctionArg, Ident, UnaryOperator, Value as Literal,
};
use crate::names::fold;
use crate::parse;
use crate::time::Reading;
use crate::ty::{Ty, Typed};

/// An expression over a table that the catalog keeps as text.
#[derive(Clone, Copy)]
pub struct KeptExpression<'e> {
    /// The catalog that has the expression.
    pub catalog: &'e Catalog,
    /// The table whose columns the expression reads.
    pub table: &'e TableDef,
    /// The stored text of the expression.
    pub text: &'e str,
    /// Finds the meaning of parts of the expression.
    pub meaning_of: MeaningOf,
}

/// Finds the meaning of a part of a stored expression. The binder implements it, because the binder is in a
/// higher layer. Returns `None` if the part cannot be bound.
pub type MeaningOf = fn(&KeptExpression<'_>, &Ast) -> Option<Meaning>;

/// The binder's result for an expression.
#[derive(Debug)]
pub struct Meaning {
    /// The type of the expression.
    pub t: Typed,
    /// Its value, if it is a constant.
    pub constant: Option<Value>,
    /// Whether the expression reads columns of the table.
    pub reads_columns: bool,
    /// The types of the arguments, if the expression calls a function with a fixed number of arguments.
    pub argument_types: Option<&'static [Ty]>,
}

impl KeptExpression<'_> {
    /// Returns a condition as PostgreSQL prints it. It has all parentheses, or with `pretty` only the
    /// necessary ones.
    pub fn printed_condition(self, pretty: bool) -> Option<String> {
        parse::on_deep_stack(self.text, || {
            let e = parse::expression(self.text).ok()?;
            Printer { kept: self, pretty }.boolean(&e).map(|shown| shown.text)
        })
    }

    /// Returns an expression as PostgreSQL prints it.
    pub fn printed(self, pretty: bool) -> Option<String> {
        parse::on_deep_stack(self.text, || {
            let e = parse::expression(self.text).ok()?;
            let shown = Printer { kept: self, pretty }.any(&e)?;
            match shown.ty {
                Ty::Unknown => Some(format!("{}::text", shown.text)),
                _ => Some(shown.text),
            }
        })
    }
}

/// Returns whether a text is a call of a function. The definition of an index shows a call without
/// parentheses around it.
pub fn is_call(text: &str) -> bool {
    matches!(
        parse::expression(text),
        Ok(Ast::Function(_)
            | Ast::ValueFunction(_)
            | Ast::Extract { .. }
            | Ast::Substring { .. }
            | Ast::Trim { .. }
            | Ast::Position { .. }
            | Ast::Overlay { .. })
    )
}

/// The form of an expression, which decides whether it needs parentheses within another expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The expression never needs parentheses.
    Simple,
    /// The precedence of its operator decides.
    Arithmetic(Precedence),
    /// Another operator.
    Operator,
    /// IS NULL, IS DISTINCT FROM and similar tests.
    Test,
    And,
    Or,
    Not,
    /// = ANY (...)
    AnyOf,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Sum,
    Product,
}

/// The place of an expression within another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// An operand of an operator. The flag is true for the left operand.
    Operand(Form, bool),
    /// A list of arguments or elements.
    List,
    /// A test such as IS NULL, a cast, or = ANY.
    Other,
}

/// The longest operand of BETWEEN, in bytes, that is printed like PostgreSQL does it. A condition with a
/// longer operand is shown with its stored text.
const SUBJECT_BYTES_MAX: usize = 1000;

/// A printed expression.
#[derive(Clone)]
struct Shown {
    text: String,
    form: Form,
    /// `Unknown` for a string or NULL that gets its type from the expression around it. Then `text` is its
    /// SQL literal.
    ty: Ty,
}

impl Shown {
    fn simple(text: String, ty: Ty) -> Self {
        Self { text, form: Form::Simple, ty }
    }
}

struct Printer<'e> {
    kept: KeptExpression<'e>,
    pretty: bool,
}

impl Printer<'_> {
    fn meaning(&self, e: &Ast) -> Option<Meaning> {
        (self.kept.meaning_of)(&self.kept, e)
    }

    fn ty(&self, e: &Ast) -> Option<Ty> {
        self.meaning(e).map(|meaning| meaning.t.ty)
    }

    /// Returns the text of an operation with its operands.
    fn joined(&self, form: Form, text: String) -> Shown {
        let text = if self.pretty { text } else { format!("({text})") };
        Shown { text, form, ty: Ty::Bool }
    }

    fn within(&self, shown: Shown, within: Within) -> String {
        if !self.pretty || stands_alone(shown.form, within) {
            shown.text
        } else {
            format!("({})", shown.text)
        }
    }

    fn boolean(&self, e: &Ast) -> Option<Shown> {
        let shown = self.any(e)?;
        (shown.ty == Ty::Bool).then_some(shown)
    }

    fn any(&self, e: &Ast) -> Option<Shown> {
        match e {
            Ast::Nested(inner) => self.any(inner),
            Ast::Identifier(column) => self.column(e, column),
            Ast::CompoundIdentifier(parts) => self.column(e, parts.last()?),
            Ast::Value(constant) => self.literal(e, &constant.value),
            Ast::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                self.chain(left, op, right)
            }
            Ast::BinaryOp { left, op, right } => self.operator(e, left, op, right),
            Ast::UnaryOp { op: UnaryOperator::Not, expr } => Some(self.not(self.boolean(expr)?)),
            Ast::UnaryOp { op, expr } => self.signed(e, op, expr),
            Ast::IsNull(inner) => self.test(inner, "IS NULL"),
            Ast::IsNotNull(inner) => self.test(inner, "IS NOT NULL"),
            Ast::IsTrue(inner) => self.test(inner, "IS TRUE"),
            Ast::IsNotTrue(inner) => self.test(inner, "IS NOT TRUE"),
            Ast::IsFalse(inner) => self.test(inner, "IS FALSE"),
            Ast::IsNotFalse(inner) => self.test(inner, "IS NOT FALSE"),
            Ast::IsDistinctFrom(left, right) => self.distinct(left, right),
            Ast::IsNotDistinctFrom(left, right) => Some(self.not(self.distinct(left, right)?)),
            Ast::Between { expr, negated, symmetric: false, low, high } => {
                self.between(expr, *negated, low, high)
            }
            Ast::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Ast::AnyOp { left, compare_op, right, .. } => self.of_array(left, compare_op, "ANY", right),
            Ast::AllOp { left, compare_op, right } => self.of_array(left, compare_op, "ALL", right),
            Ast::Like { expr, negated, fold_case, pattern, escape: None } => {
                let symbol = match (negated, fold_case) {
                    (false, false) => "~~",
                    (true, false) => "!~~",
                    (false, true) => "~~*",
                    (true, true) => "!~~*",
                };
                self.matching(expr, symbol, pattern)
            }
            Ast::Cast { expr, .. } => self.cast_as_written(e, expr),
            Ast::Extract { field, expr, .. } => {
                let operand = self.any(expr).filter(|operand| operand.ty != Ty::Unknown)?;
                let operand = self.within(operand, Within::List);
                let field = field.to_lowercase();
                Some(Shown::simple(format!("EXTRACT({field} FROM {operand})"), self.ty(e)?))
            }
            Ast::Function(f) => self.call(e, f),
            Ast::ValueFunction(f) if f.precision.is_none() => {
                let is_known = matches!(f.name, "current_date" | "current_timestamp" | "localtimestamp");
                is_known.then_some(Shown::simple(f.name.to_uppercase(), self.ty(e)?))
            }
            _ => None,
        }
    }

    fn column(&self, e: &Ast, name: &Ident) -> Option<Shown> {
        Some(Shown::simple(quoted(&fold(name)), self.ty(e)?))
    }

    fn literal(&self, e: &Ast, value: &Literal) -> Option<Shown> {
        match value {
            Literal::Text(text) => Some(Shown::simple(simple_quoted(text), Ty::Unknown)),
            Literal::Null => Some(Shown::simple("NULL".to_owned(), Ty::Unknown)),
            Literal::Number(_) | Literal::Boolean(_) => self.constant(self.meaning(e)?),
        }
    }

    fn constant(&self, meaning: Meaning) -> Option<Shown> {
        let ty = meaning.t.ty;
        Some(Shown::simple(constant(&meaning.constant?, ty)?, ty))
    }

    /// Prints AND or OR, with the chain of the same operator on its left side.
    fn chain(&self, left: &Ast, op: &BinaryOperator, right: &Ast) -> Option<Shown> {
        let (mut first, mut behind) = (left, vec![right]);
        loop {
            match first {
                Ast::Nested(inner) => first = inner,
                Ast::BinaryOp { left, op: inner, right } if inner == op => {
                    behind.push(right);
                    first = left;
                }
                _ => break,
            }
        }
        let items = std::iter::once(first).chain(behind.into_iter().rev());
        let items = items.map(|e| self.boolean(e)).collect::<Option<Vec<_>>>()?;
        Some(self.all_of(if *op == BinaryOperator::And { Form::And } else { Form::Or }, items))
    }

    fn all_of(&self, form: Form, items: Vec<Shown>) -> Shown {
        let items = items.into_iter().map(|item| self.within(item, Within::Operand(form, false)));
        let word = if form == Form::And { " AND " } else { " OR " };
        self.joined(form, items.collect::<Vec<_>>().join(word))
    }

    fn not(&self, operand: Shown) -> Shown {
        let operand = self.within(operand, Within::Operand(Form::Not, false));
        self.joined(Form::Not, format!("NOT {operand}"))
    }

    fn operator(&self, e: &Ast, left: &Ast, op: &BinaryOperator, right: &Ast) -> Option<Shown> {
        use BinaryOperator as Op;
        let form = match op {
            Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq => {
                return self.comparison(self.any(left)?, op_symbol(op)?, self.any(right)?);
            }
            Op::RegexMatch | Op::RegexIMatch | Op::RegexNotMatch | Op::RegexNotIMatch => {
                return self.matching(left, op_symbol(op)?, right);
            }
            Op::Plus | Op::Minus => Form::Arithmetic(Precedence::Sum),
            Op::Multiply | Op::Divide | Op::Modulo => Form::Arithmetic(Precedence::Product),
            Op::Concat => Form::Operator,
            _ => return None,
        };
        let (left, right) = (self.any(left)?, self.any(right)?);
        let (to_left, to_right) = match form {
            Form::Operator => (strings(left.ty)?, strings(right.ty)?),
            _ => summands(left.ty, right.ty)?,
        };
        let shown =
            self.two(self.as_type(left, to_left)?, form, op_symbol(op)?, self.as_type(right, to_right)?);
        Some(Shown { ty: self.ty(e)?, ..shown })
    }

    fn two(&self, left: Shown, form: Form, symbol: &str, right: Shown) -> Shown {
        let left = self.within(left, Within::Operand(form, true));
        let right = self.within(right, Within::Operand(form, false));
        self.joined(form, format!("{left} {symbol} {right}"))
    }

    fn comparison(&self, left: Shown, symbol: &str, right: Shown) -> Option<Shown> {
        let (to_left, to_right) = compared(left.ty, right.ty)?;
        let (left, right) = (self.as_type(left, to_left)?, self.as_type(right, to_right)?);
        Some(self.two(left, Form::Operator, symbol, right))
    }

    fn distinct(&self, left: &Ast, right: &Ast) -> Option<Shown> {
        let (left, right) = (self.any(left)?, self.any(right)?);
        let (to_left, to_right) = compared(left.ty, right.ty)?;
        let left = self.within(self.as_type(left, to_left)?, Within::Other);
        let right = self.within(self.as_type(right, to_right)?, Within::Other);
        Some(self.joined(Form::Test, format!("{left} IS DISTINCT FROM {right}")))
    }

    fn test(&self, inner: &Ast, words: &str) -> Option<Shown> {
        let shown = self.any(inner)?;
        if shown.ty == Ty::Unknown {
            return None;
        }
        Some(self.joined(Form::Test, format!("{} {words}", self.within(shown, Within::Other))))
    }

    /// Prints LIKE and regular expressions. Their operands are texts. A char(n) operand is not cast.
    fn matching(&self, subject: &Ast, symbol: &str, pattern: &Ast) -> Option<Shown> {
        let (subject, pattern) = (self.any(subject)?, self.any(pattern)?);
        let to = if subject.ty == Ty::Char { Ty::Char } else { strings(subject.ty)? };
        let (to_pattern, subject) = (strings(pattern.ty)?, self.as_type(subject, to)?);
        Some(self.two(subject, Form::Operator, symbol, self.as_type(pattern, to_pattern)?))
    }

    fn between(&self, e: &Ast, negated: bool, low: &Ast, high: &Ast) -> Option<Shown> {
        let (form, above, below) = if negated { (Form::Or, "<", ">") } else { (Form::And, ">=", "<=") };
        // The operand is printed twice. With nested BETWEENs the text would double with each level, so its
        // length is limited.
        let subject = self.any(e)?;
        if subject.text.len() > SUBJECT_BYTES_MAX {
            return None;
        }
        let low = self.comparison(subject.clone(), above, self.any(low)?)?;
        let high = self.comparison(subject, below, self.any(high)?)?;
        Some(self.all_of(form, vec![low, high]))
    }

    fn in_list(&self, e: &Ast, list: &[Ast], negated: bool) -> Option<Shown> {
        let (symbol, word) = if negated { ("<>", "ALL") } else { ("=", "ANY") };
        let subject = self.any(e)?;
        if let [only] = list {
            return self.comparison(subject, symbol, self.any(only)?);
        }
        let items = list.iter().map(|e| self.item(e)).collect::<Option<Vec<_>>>()?;
        let element = items.iter().try_fold(subject.ty, |ty, item| wider(ty, item.ty))?;
        let array = self.array(items, element)?;
        // For a varchar before IN the whole array is cast. In other cases the elements are cast.
        let array = if element == Ty::Varchar { self.cast(array, "text[]") } else { array };
        self.quantified(subject, symbol, word, array, if element == Ty::Varchar { Ty::Text } else { element })
    }

    /// Prints an item of IN that reads no column. PostgreSQL makes an array of such items.
    fn item(&self, e: &Ast) -> Option<Shown> {
        if self.meaning(e)?.reads_columns { None } else { self.any(e) }
    }

    fn of_array(&self, left: &Ast, op: &BinaryOperator, word: &str, array: &Ast) -> Option<Shown> {
        let subject = self.any(left)?;
        let (elements, is_cast) = match array {
            Ast::Nested(inner) => return self.of_array(left, op, word, inner),
            Ast::Array(items) => (items, false),
            Ast::Cast { expr, .. } => match (&**expr, self.meaning(array)?.t.ty.element()) {
                (Ast::Array(items), Some(Ty::Text)) => (items, true),
                (Ast::Nested(inner), Some(Ty::Text)) => match &**inner {
                    Ast::Array(items) => (items, true),
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        };
        let items = elements.iter().map(|e| self.any(e)).collect::<Option<Vec<_>>>()?;
        let element = items.iter().try_fold(Ty::Unknown, |ty, item| wider(ty, item.ty))?;
        let element = if element == Ty::Unknown { Ty::Text } else { element };
        let array = self.array(items, element)?;
        let (array, element) = match is_cast && element != Ty::Text {
            true => (self.cast(array, "text[]"), Ty::Text),
            false => (array, element),
        };
        self.quantified(subject, op_symbol(op)?, word, array, element)
    }

    fn array(&self, items: Vec<Shown>, element: Ty) -> Option<Shown> {
        let items =
            items.into_iter().map(|item| Some(self.within(self.as_type(item, element)?, Within::List)));
        let items = items.collect::<Option<Vec<_>>>()?;
        Some(Shown::simple(format!("ARRAY[{}]", items.join(", ")), Ty::Unknown))
    }

    fn quantified(
        &self,
        subject: Shown,
        symbol: &str,
        word: &str,
        array: Shown,
        element: Ty,
    ) -> Option<Shown> {
        let (to_subject, to_element) = compared(subject.ty, element)?;
        if to_element != element {
            return None;
        }
        let subject = self.within(self.as_type(subject, to_subject)?, Within::Other);
        let array = self.within(array, Within::Other);
        Some(self.joined(Form::AnyOf, format!("{subject} {symbol} {word} ({array})")))
    }

    /// Prints a sign and its operand. The sign of a number literal is part of the literal.
    fn signed(&self, e: &Ast, op: &UnaryOperator, operand: &Ast) -> Option<Shown> {
        let symbol = match op {
            UnaryOperator::Minus => "-",
            UnaryOperator::Plus => "+",
            _ => return None,
        };
        if let (UnaryOperator::Minus, Ast::Value(constant)) = (op, operand)
            && let Literal::Number(digits) = &constant.value
        {
            let (ty, digits) = (self.ty(e)?, digits.trim_start_matches('-'));
            return self.read_as(&format!("'-{digits}'"), ty);
        }
        let operand = self.any(operand)?;
        if !operand.ty.is_number() {
            return None;
        }
        let operand = self.within(operand, Within::Operand(Form::Operator, false));
        Some(Shown { ty: self.ty(e)?, ..self.joined(Form::Operator, format!("{symbol} {operand}")) })
    }

    /// Returns a literal as a value of this type.
    fn read_as(&self, literal: &str, ty: Ty) -> Option<Shown> {
        if literal == "NULL" {
            return Some(Shown::simple(format!("NULL::{}", type_name(ty.oid(), -1)), ty));
        }
        let text = format!("{literal}::{}", type_name(ty.oid(), -1));
        match ty {
            // A string stays as it is and only gets a type.
            Ty::Text | Ty::Varchar | Ty::Char => return Some(Shown::simple(text, ty)),
            // These literals are read here and not by the binder, because there are words such as 'now'.
            Ty::Date | Ty::Timestamp | Ty::Time => {
                let raw = literal.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'");
                let value = crate::text::parse_as(&raw, ty.oid(), &Reading::plain()).ok()?;
                return Some(Shown::simple(constant(&value, ty)?, ty));
            }
            _ => {}
        }
        self.constant(self.meaning(&parse::expression(&text).ok()?)?)
    }

    /// Returns the operand, cast to this type if necessary.
    fn as_type(&self, shown: Shown, ty: Ty) -> Option<Shown> {
        match shown.ty {
            same if same == ty => Some(shown),
            Ty::Unknown => self.read_as(&shown.text, ty),
            _ => Some(Shown { ty, ..self.cast_to(shown, ty, -1) }),
        }
    }

    fn cast_to(&self, shown: Shown, ty: Ty, typmod: i32) -> Shown {
        // A cast between numbers, between times, or from char(n) is a call of a function in PostgreSQL, so it
        // needs no parentheses. Other casts have the form of their operand.
        let is_string = |ty| matches!(ty, Ty::Text | Ty::Varchar);
        let is_call = !is_string(ty) && !is_string(shown.ty) || shown.ty == Ty::Char;
        let form = if is_call { Form::Simple } else { shown.form };
        Shown { form, ty, ..self.cast(shown, &type_name(ty.oid(), typmod)) }
    }

    fn cast(&self, shown: Shown, name: &str) -> Shown {
        let operand =
            if self.pretty { self.within(shown, Within::Other) } else { format!("({})", shown.text) };
        Shown::simple(format!("{operand}::{name}"), Ty::Unknown)
    }

    fn cast_as_written(&self, e: &Ast, operand: &Ast) -> Option<Shown> {
        let meaning = self.meaning(e)?;
        let (operand, t) = (self.any(operand)?, meaning.t);
        match operand.ty {
            Ty::Unknown if t.typmod < 0 => self.read_as(&operand.text, t.ty),
            Ty::Unknown => None,
            same if same == t.ty && t.typmod < 0 => Some(operand),
            _ => Some(self.cast_to(operand, t.ty, t.typmod)),
        }
    }

    fn call(&self, e: &Ast, f: &Function) -> Option<Shown> {
        let meaning = self.meaning(e)?;
        let name = f.name.last();
        let arguments = f.args.iter().map(|argument| match argument {
            FunctionArg::Expr(e) => self.any(e),
            _ => None,
        });
        let arguments = arguments.collect::<Option<Vec<_>>>()?;
        let is_common = matches!(name, "coalesce" | "greatest" | "least");
        let types: Vec<Ty> = match meaning.argument_types {
            _ if is_common => vec![meaning.t.ty; arguments.len()],
            _ if name == "nullif" => {
                let [left, right] = arguments.as_slice() else { return None };
                let (left, right) = compared(left.ty, right.ty)?;
                vec![left, right]
            }
            Some(types) if types.len() == arguments.len() => {
                // For char(n), PostgreSQL has overloads that are not known here.
                if arguments.iter().any(|a| a.ty == Ty::Char) {
                    return None;
                }
                types.to_vec()
            }
            _ => return None,
        };
        let shown = arguments.into_iter().zip(types).map(|(argument, ty)| {
            let ty = if ty == Ty::Unknown { argument.ty } else { ty };
            Some(self.within(self.as_type(argument, ty).filter(|a| a.ty != Ty::Unknown)?, Within::List))
        });
        let shown = shown.collect::<Option<Vec<_>>>()?.join(", ");
        let is_upper = is_common || name == "nullif";
        let name = if is_upper { name.to_uppercase() } else { quoted(name) };
        Some(Shown::simple(format!("{name}({shown})"), meaning.t.ty))
    }
}

fn stands_alone(form: Form, within: Within) -> bool {
    match (form, within) {
        (Form::Simple, _) => true,
        (Form::AnyOf, _) => false,
        (_, Within::List) => true,
        (Form::Arithmetic(mine), Within::Operand(Form::Arithmetic(around), is_left)) => {
            mine > around || mine == around && is_left
        }
        (Form::Arithmetic(_) | Form::Operator | Form::Test, Within::Operand(around, _)) => {
            matches!(around, Form::And | Form::Or | Form::Not)
        }
        (Form::And | Form::Not, Within::Operand(around, _)) => matches!(around, Form::And | Form::Or),
        (Form::Or, Within::Operand(around, _)) => around == Form::Or,
        (_, Within::Other) => false,
    }
}

/// Returns the symbol of an operator that is printed with its operands' types.
fn op_symbol(op: &BinaryOperator) -> Option<&str> {
    use BinaryOperator as Op;
    let is_printed = op.is_comparison()
        || matches!(op, Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo | Op::Concat)
        || matches!(op, Op::RegexMatch | Op::RegexIMatch | Op::RegexNotMatch | Op::RegexNotIMatch);
    is_printed.then(|| op.symbol())
}

/// Returns the types to which a comparison casts operands of these types.
fn compared(left: Ty, right: Ty) -> Option<(Ty, Ty)> {
    let is_time = |ty| matches!(ty, Ty::Date | Ty::Timestamp | Ty::TimestampTz);
    Some(match (left, right) {
        (Ty::Unknown, Ty::Unknown) => return None,
        (Ty::Unknown, known) | (known, Ty::Unknown) => {
            let known = if known == Ty::Varchar { Ty::Text } else { known };
            (known, known)
        }
        (Ty::Varchar | Ty::Text, Ty::Varchar | Ty::Text) | (Ty::Char, Ty::Text) | (Ty::Text, Ty::Char) => {
            (Ty::Text, Ty::Text)
        }
        (a, b) if a == b || is_time(a) && is_time(b) => (a, b),
        (a, b) => numbers(a, b)?,
    })
}

/// Returns the types to which an arithmetic operator casts operands of these types.
fn summands(left: Ty, right: Ty) -> Option<(Ty, Ty)> {
    let is_time = |ty| matches!(ty, Ty::Date | Ty::Timestamp | Ty::TimestampTz);
    Some(match (left, right) {
        (Ty::Unknown, number) | (number, Ty::Unknown) if number.is_number() => (number, number),
        (Ty::Date, Ty::Int4) | (Ty::Int4, Ty::Date) | (Ty::Interval, Ty::Interval) => (left, right),
        (time, Ty::Interval) | (Ty::Interval, time) if is_time(time) => (left, right),
        (a, b) if a == b && is_time(a) => (a, b),
        (a, b) => numbers(a, b)?,
    })
}

fn numbers(a: Ty, b: Ty) -> Option<(Ty, Ty)> {
    let is_float = |ty| matches!(ty, Ty::Float4 | Ty::Float8);
    if !a.is_number() || !b.is_number() {
        return None;
    }
    Some(match (is_float(a), is_float(b)) {
        (true, true) => (a, b),
        (true, false) => (a, Ty::Float8),
        (false, true) => (Ty::Float8, b),
        _ if a == Ty::Numeric || b == Ty::Numeric => (Ty::Numeric, Ty::Numeric),
        _ => (a, b),
    })
}

/// Returns the element type of an array that has elements of both types.
fn wider(a: Ty, b: Ty) -> Option<Ty> {
    const NUMBERS: [Ty; 6] = [Ty::Int2, Ty::Int4, Ty::Int8, Ty::Numeric, Ty::Float4, Ty::Float8];
    let rank = |ty| NUMBERS.iter().position(|number| *number == ty);
    match (a, b) {
        (Ty::Unknown, known) | (known, Ty::Unknown) => Some(known),
        (a, b) if a == b => Some(a),
        (a, b) => NUMBERS.get(rank(a)?.max(rank(b)?)).copied(),
    }
}

/// Returns the type of a string as an operand of an operator on texts, or `None` for other types.
fn strings(ty: Ty) -> Option<Ty> {
    matches!(ty, Ty::Unknown | Ty::Text | Ty::Varchar | Ty::Char).then_some(Ty::Text)
}

fn simple_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Prints a constant. Its type is added if the literal alone would have another type.
fn constant(value: &Value, ty: Ty) -> Option<String> {
    let mut text = Vec::new();
    crate::text::write_text(value.as_datum(), &mut text);
    let text = String::from_utf8(text).ok()?;
    let is_plain = match ty {
        Ty::Int4 => !text.starts_with('-'),
        Ty::Numeric => text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.'),
        Ty::Bool => {
            return Some(if matches!(value, Value::Bool(true)) { "true" } else { "false" }.to_owned());
        }
        // The text of these values depends on the session.
        Ty::TimestampTz => return None,
        _ => false,
    };
    if is_plain { Some(text) } else { Some(format!("{}::{}", simple_quoted(&text), type_name(ty.oid(), -1))) }
}

//! Expressions.
//!
//! Invariants
//! 1. An operand that the binder would take apart with the operator around it stands in parentheses.
//!
//! Does not know: queries; what names mean.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AConst, AExpr, AExprKind, AIndirection, BoolExprType, BoolTestType, CaseExpr, CoercionForm, ColumnRef,
    Node, NullTestType, RowExpr, SqlValueFunction, SqlValueFunctionOp, SubLink, SubLinkType, TypeCast,
    a_const::Val,
};
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, DateTimeField, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Interval, ObjectName, Subscript,
    UnaryOperator, Value,
};

use super::place::{Reader, kind, strings};
use super::types::modifiers;
use crate::bind::named_operator;
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// An expression that must be there.
    pub(super) fn expr(&self, node: Option<&Node>) -> Result<Expr> {
        match kind(node)? {
            NodeEnum::AConst(c) => self.constant(c),
            NodeEnum::ColumnRef(c) => self.column(c),
            NodeEnum::ParamRef(p) => {
                Ok(Expr::Value(Value::Placeholder(format!("${}", p.number)).with_span(self.span(p.location))))
            }
            NodeEnum::AExpr(e) => self.operation(e),
            NodeEnum::BoolExpr(e) => self.boolean(e.boolop(), &e.args),
            NodeEnum::FuncCall(f) => self.call(f),
            NodeEnum::TypeCast(c) => self.cast(c),
            NodeEnum::SubLink(s) => self.sublink(s, false),
            NodeEnum::CaseExpr(c) => self.case(c),
            NodeEnum::NullTest(t) => {
                let inner = self.boxed(t.arg.as_deref())?;
                Ok(match t.nulltesttype() {
                    NullTestType::IsNotNull => Expr::IsNotNull(inner),
                    _ => Expr::IsNull(inner),
                })
            }
            other => self.rare(other),
        }
    }

    fn rare(&self, node: &NodeEnum) -> Result<Expr> {
        match node {
            NodeEnum::BooleanTest(t) => {
                let inner = self.boxed(t.arg.as_deref())?;
                Ok(match t.booltesttype() {
                    BoolTestType::IsTrue => Expr::IsTrue(inner),
                    BoolTestType::IsNotTrue => Expr::IsNotTrue(inner),
                    BoolTestType::IsFalse => Expr::IsFalse(inner),
                    BoolTestType::IsNotFalse => Expr::IsNotFalse(inner),
                    BoolTestType::IsNotUnknown => Expr::IsNotUnknown(inner),
                    _ => Expr::IsUnknown(inner),
                })
            }
            NodeEnum::CoalesceExpr(c) => Ok(self.named_call("coalesce", self.exprs(&c.args)?, c.location)),
            NodeEnum::MinMaxExpr(m) => {
                let name = if m.op() == pg_query::protobuf::MinMaxOp::IsLeast { "least" } else { "greatest" };
                Ok(self.named_call(name, self.exprs(&m.args)?, m.location))
            }
            NodeEnum::SqlvalueFunction(f) => self.value_function(f),
            NodeEnum::AArrayExpr(a) => Ok(Expr::Array(Array { elem: self.exprs(&a.elements)?, named: true })),
            NodeEnum::RowExpr(r) => self.row(r),
            NodeEnum::AIndirection(i) => self.indirection(i),
            NodeEnum::CollateClause(c) => Ok(Expr::Collate {
                expr: self.boxed(c.arg.as_deref())?,
                collation: self.name_of(&c.collname, c.location)?,
            }),
            NodeEnum::GroupingFunc(g) => Ok(self.named_call("grouping", self.exprs(&g.args)?, g.location)),
            NodeEnum::SetToDefault(d) => {
                let ident = Ident { quote_style: None, ..self.ident("default", d.location) };
                Ok(Expr::Identifier(ident))
            }
            other => Err(SqlError::unsupported(feature(other))),
        }
    }

    pub(super) fn boxed(&self, node: Option<&Node>) -> Result<Box<Expr>> {
        self.expr(node).map(Box::new)
    }

    pub(super) fn exprs(&self, list: &[Node]) -> Result<Vec<Expr>> {
        list.iter().map(|node| self.expr(Some(node))).collect()
    }

    pub(super) fn maybe(&self, node: Option<&Node>) -> Result<Option<Expr>> {
        node.map(|node| self.expr(Some(node))).transpose()
    }

    fn constant(&self, c: &AConst) -> Result<Expr> {
        let value = match &c.val {
            None => Value::Null,
            Some(Val::Boolval(b)) => Value::Boolean(b.boolval),
            Some(Val::Ival(n)) => Value::Number(n.ival.to_string(), false),
            Some(Val::Fval(n)) => Value::Number(decimal(&n.fval)?, false),
            Some(Val::Sval(s)) => Value::SingleQuotedString(s.sval.clone()),
            Some(Val::Bsval(b)) => match b.bsval.split_at_checked(1) {
                Some(("x" | "X", digits)) => Value::HexStringLiteral(digits.to_owned()),
                Some((_, digits)) => Value::SingleQuotedByteStringLiteral(digits.to_owned()),
                None => return Err(SqlError::unsupported("a bit string")),
            },
        };
        Ok(Expr::Value(value.with_span(self.span(c.location))))
    }

    fn column(&self, c: &ColumnRef) -> Result<Expr> {
        if c.fields.iter().any(|f| matches!(f.node, Some(NodeEnum::AStar(_)))) {
            return Err(SqlError::unsupported("a whole row as a value"));
        }
        let mut parts: Vec<Ident> =
            strings(&c.fields)?.iter().map(|name| self.ident(name, c.location)).collect();
        Ok(match (parts.len(), parts.pop()) {
            (1, Some(only)) => Expr::Identifier(only),
            (_, last) => Expr::CompoundIdentifier(parts.into_iter().chain(last).collect()),
        })
    }

    fn operation(&self, e: &AExpr) -> Result<Expr> {
        let (left, right) = (e.lexpr.as_deref(), e.rexpr.as_deref());
        match e.kind() {
            AExprKind::AexprOp => self.plain_operation(e),
            AExprKind::AexprOpAny => Ok(Expr::AnyOp {
                left: self.boxed(left)?,
                compare_op: operator(&e.name)?,
                right: self.boxed(right)?,
                is_some: false,
            }),
            AExprKind::AexprOpAll => Ok(Expr::AllOp {
                left: self.boxed(left)?,
                compare_op: operator(&e.name)?,
                right: self.boxed(right)?,
            }),
            AExprKind::AexprDistinct => Ok(Expr::IsDistinctFrom(self.boxed(left)?, self.boxed(right)?)),
            AExprKind::AexprNotDistinct => Ok(Expr::IsNotDistinctFrom(self.boxed(left)?, self.boxed(right)?)),
            AExprKind::AexprNullif => {
                Ok(self.named_call("nullif", vec![self.expr(left)?, self.expr(right)?], e.location))
            }
            AExprKind::AexprIn => {
                let NodeEnum::List(list) = kind(right)? else {
                    return Err(SqlError::unsupported("this form of IN"));
                };
                let negated = strings(&e.name)? == ["<>"];
                Ok(Expr::InList { expr: self.boxed(left)?, list: self.exprs(&list.items)?, negated })
            }
            AExprKind::AexprLike | AExprKind::AexprIlike | AExprKind::AexprSimilar => self.matching(e),
            _ => self.between(e),
        }
    }

    fn plain_operation(&self, e: &AExpr) -> Result<Expr> {
        let right = self.expr(e.rexpr.as_deref())?;
        let Some(left) = e.lexpr.as_deref() else {
            let op = match strings(&e.name)?.last().copied().unwrap_or_default() {
                "-" => UnaryOperator::Minus,
                "+" => UnaryOperator::Plus,
                "~" => UnaryOperator::BitwiseNot,
                "@" => UnaryOperator::PGAbs,
                "|/" => UnaryOperator::PGSquareRoot,
                "||/" => UnaryOperator::PGCubeRoot,
                "!!" => UnaryOperator::PGPrefixFactorial,
                "@@" => UnaryOperator::DoubleAt,
                other => {
                    return Err(SqlError::unsupported(format!("the operator {other} before its operand")));
                }
            };
            return Ok(Expr::UnaryOp { op, expr: Box::new(grouped(right)) });
        };
        let (left, op) = (self.expr(Some(left))?, operator(&e.name)?);
        Ok(Expr::BinaryOp { left: Box::new(grouped(left)), op, right: Box::new(grouped(right)) })
    }

    fn boolean(&self, op: BoolExprType, args: &[Node]) -> Result<Expr> {
        let op = match op {
            BoolExprType::OrExpr => BinaryOperator::Or,
            BoolExprType::NotExpr => return self.negated(args.first()),
            _ => BinaryOperator::And,
        };
        let mut items = self.exprs(args)?.into_iter();
        let first = items.next().ok_or_else(|| SqlError::internal("a chain of conditions without any"))?;
        let join =
            |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
        Ok(items.fold(first, join))
    }

    fn negated(&self, node: Option<&Node>) -> Result<Expr> {
        if let NodeEnum::SubLink(s) = kind(node)? {
            let is_in = s.sub_link_type() == SubLinkType::AnySublink && s.oper_name.is_empty();
            if is_in || s.sub_link_type() == SubLinkType::ExistsSublink {
                return self.sublink(s, true);
            }
        }
        Ok(Expr::UnaryOp { op: UnaryOperator::Not, expr: self.boxed(node)? })
    }

    fn matching(&self, e: &AExpr) -> Result<Expr> {
        let negated = strings(&e.name)?.iter().any(|name| name.starts_with('!'));
        let (mut pattern, mut escape) = (e.rexpr.as_deref(), None);
        if let NodeEnum::FuncCall(f) = kind(pattern)?
            && let Some("like_escape" | "similar_to_escape") = strings(&f.funcname)?.last().copied()
        {
            (pattern, escape) = (f.args.first(), f.args.get(1));
        }
        let (expr, pattern) = (self.boxed(e.lexpr.as_deref())?, self.boxed(pattern)?);
        let escape_char = self.maybe(escape)?.map(Box::new);
        Ok(match e.kind() {
            AExprKind::AexprLike => Expr::Like { negated, any: false, expr, pattern, escape_char },
            AExprKind::AexprIlike => Expr::ILike { negated, any: false, expr, pattern, escape_char },
            _ => Expr::SimilarTo { negated, expr, pattern, escape_char },
        })
    }

    fn between(&self, e: &AExpr) -> Result<Expr> {
        let kind_of = e.kind();
        let NodeEnum::List(bounds) = kind(e.rexpr.as_deref())? else {
            return Err(SqlError::unsupported("this operator"));
        };
        let low = self.expr(bounds.items.first())?;
        let symmetric = matches!(kind_of, AExprKind::AexprBetweenSym | AExprKind::AexprNotBetweenSym);
        let low = if symmetric { self.named_call("symmetric", vec![low], e.location) } else { low };
        Ok(Expr::Between {
            expr: self.boxed(e.lexpr.as_deref())?,
            negated: matches!(kind_of, AExprKind::AexprNotBetween | AExprKind::AexprNotBetweenSym),
            low: Box::new(low),
            high: self.boxed(bounds.items.get(1))?,
        })
    }

    fn sublink(&self, s: &SubLink, negated: bool) -> Result<Expr> {
        let subquery = Box::new(self.subquery(s.subselect.as_deref())?);
        let left = || self.boxed(s.testexpr.as_deref());
        match s.sub_link_type() {
            SubLinkType::ExistsSublink => Ok(Expr::Exists { subquery, negated }),
            SubLinkType::ExprSublink => Ok(Expr::Subquery(subquery)),
            SubLinkType::ArraySublink => Ok(Expr::Function(Function {
                args: FunctionArguments::Subquery(subquery),
                ..self.function(ObjectName::from(vec![Ident {
                    quote_style: None,
                    ..self.ident("array", s.location)
                }]))
            })),
            SubLinkType::AnySublink if s.oper_name.is_empty() => {
                Ok(Expr::InSubquery { expr: left()?, subquery, negated })
            }
            SubLinkType::AnySublink => Ok(Expr::AnyOp {
                left: left()?,
                compare_op: operator(&s.oper_name)?,
                right: Box::new(Expr::Subquery(subquery)),
                is_some: false,
            }),
            SubLinkType::AllSublink => Ok(Expr::AllOp {
                left: left()?,
                compare_op: operator(&s.oper_name)?,
                right: Box::new(Expr::Subquery(subquery)),
            }),
            _ => Err(SqlError::unsupported("this form of subquery")),
        }
    }

    fn case(&self, c: &CaseExpr) -> Result<Expr> {
        let mut conditions = Vec::with_capacity(c.args.len());
        for arm in &c.args {
            let NodeEnum::CaseWhen(when) = kind(Some(arm))? else {
                return Err(SqlError::internal("an arm of CASE is none"));
            };
            conditions.push(CaseWhen {
                condition: self.expr(when.expr.as_deref())?,
                result: self.expr(when.result.as_deref())?,
            });
        }
        let token = AttachedToken(sqlparser::tokenizer::TokenWithSpan {
            token: sqlparser::tokenizer::Token::EOF,
            span: self.span(c.location),
        });
        Ok(Expr::Case {
            case_token: token,
            end_token: AttachedToken::empty(),
            operand: self.maybe(c.arg.as_deref())?.map(Box::new),
            conditions,
            else_result: self.maybe(c.defresult.as_deref())?.map(Box::new),
        })
    }

    fn row(&self, r: &RowExpr) -> Result<Expr> {
        let items = self.exprs(&r.args)?;
        match r.row_format() {
            CoercionForm::CoerceImplicitCast => Ok(Expr::Tuple(items)),
            _ => {
                let Expr::Function(mut f) = self.named_call("row", items, r.location) else {
                    return Err(SqlError::internal("a call that is none"));
                };
                f.name = ObjectName::from(vec![Ident { quote_style: None, ..self.ident("row", r.location) }]);
                Ok(Expr::Function(f))
            }
        }
    }

    fn cast(&self, c: &TypeCast) -> Result<Expr> {
        let Some(name) = &c.type_name else { return Err(SqlError::internal("a cast without a type")) };
        let arg = self.boxed(c.arg.as_deref())?;
        let is_text = matches!(&*arg, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)));
        let is_interval = strings(&name.names)? == ["pg_catalog", "interval"] && name.array_bounds.is_empty();
        if is_text
            && is_interval
            && let Some(leading_field) = field_of(&modifiers(&name.typmods)?)
        {
            return Ok(Expr::Interval(Interval {
                value: arg,
                leading_field: Some(leading_field),
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            }));
        }
        Ok(Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: arg,
            data_type: self.data_type(name)?,
            format: None,
        })
    }

    fn value_function(&self, f: &SqlValueFunction) -> Result<Expr> {
        use SqlValueFunctionOp as Op;
        let name = match f.op() {
            Op::SvfopCurrentDate => "current_date",
            Op::SvfopCurrentTime | Op::SvfopCurrentTimeN => "current_time",
            Op::SvfopCurrentTimestamp | Op::SvfopCurrentTimestampN => "current_timestamp",
            Op::SvfopLocaltime | Op::SvfopLocaltimeN => "localtime",
            Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN => "localtimestamp",
            Op::SvfopCurrentRole => "current_role",
            Op::SvfopCurrentUser => "current_user",
            Op::SvfopUser => "user",
            Op::SvfopSessionUser => "session_user",
            Op::SvfopCurrentCatalog => "current_catalog",
            _ => "current_schema",
        };
        let ident = Ident { quote_style: None, ..self.ident(name, f.location) };
        let args = match f.typmod {
            ..0 => FunctionArguments::None,
            digits => list_of(vec![Expr::value(Value::Number(digits.to_string(), false))]),
        };
        Ok(Expr::Function(Function { args, ..self.function(ObjectName::from(vec![ident])) }))
    }

    fn indirection(&self, i: &AIndirection) -> Result<Expr> {
        let mut access_chain = Vec::with_capacity(i.indirection.len());
        for link in &i.indirection {
            access_chain.push(match kind(Some(link))? {
                NodeEnum::String(s) => AccessExpr::Dot(Expr::Identifier(self.ident(&s.sval, -1))),
                NodeEnum::AIndices(n) if n.is_slice => AccessExpr::Subscript(Subscript::Slice {
                    lower_bound: self.maybe(n.lidx.as_deref())?,
                    upper_bound: self.maybe(n.uidx.as_deref())?,
                    stride: None,
                }),
                NodeEnum::AIndices(n) => {
                    AccessExpr::Subscript(Subscript::Index { index: self.expr(n.uidx.as_deref())? })
                }
                _ => return Err(SqlError::unsupported("all fields of a row")),
            });
        }
        Ok(Expr::CompoundFieldAccess { root: self.boxed(i.arg.as_deref())?, access_chain })
    }

    /// A call of a function that the grammar names.
    pub(super) fn named_call(&self, name: &str, args: Vec<Expr>, at: i32) -> Expr {
        let ident = Ident { quote_style: None, ..self.ident(name, at) };
        Expr::Function(Function { args: list_of(args), ..self.function(ObjectName::from(vec![ident])) })
    }

    /// A call without anything.
    pub(super) fn function(&self, name: ObjectName) -> Function {
        Function {
            name,
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: FunctionArguments::None,
            filter: None,
            null_treatment: None,
            over: None,
            within_group: Vec::new(),
        }
    }
}

pub(super) fn list_of(args: Vec<Expr>) -> FunctionArguments {
    let unnamed = |e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e));
    let args = args.into_iter().map(unnamed).collect();
    FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() })
}

/// An operand in parentheses, if it is an operation itself: what the grammar has put together is not taken apart again.
fn grouped(e: Expr) -> Expr {
    match e {
        Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. } => e,
        Expr::BinaryOp { ref op, .. } if binds_apart(op) => Expr::Nested(Box::new(e)),
        other => other,
    }
}

/// Operators whose operands the binder looks at: comparisons, which do not associate, and powers, before which it reads a sign.
fn binds_apart(op: &BinaryOperator) -> bool {
    crate::bind::comparison(op).is_some() || *op == BinaryOperator::PGExp
}

/// A number in plain digits.
fn decimal(text: &str) -> Result<String> {
    let bare = text.replace('_', "");
    let radix = |digits: &str, radix| {
        u128::from_str_radix(digits, radix)
            .map(|n| n.to_string())
            .map_err(|_| SqlError::unsupported("a number this long"))
    };
    match bare.trim_start_matches('-').get(..2) {
        Some("0x" | "0X") => radix(&bare.trim_start_matches('-')[2..], 16),
        Some("0o" | "0O") => radix(&bare.trim_start_matches('-')[2..], 8),
        Some("0b" | "0B") => radix(&bare.trim_start_matches('-')[2..], 2),
        _ => return Ok(bare),
    }
    .map(|digits| if bare.starts_with('-') { format!("-{digits}") } else { digits })
}

/// The operator of a name.
pub(super) fn operator(name: &[Node]) -> Result<BinaryOperator> {
    let words = strings(name)?;
    let [symbol] = words.as_slice() else {
        return Ok(BinaryOperator::PGCustomBinaryOperator(words.iter().map(ToString::to_string).collect()));
    };
    let word = [(*symbol).to_owned()];
    Ok(named_operator(&word).unwrap_or_else(|| match *symbol {
        "&" => BinaryOperator::BitwiseAnd,
        "|" => BinaryOperator::BitwiseOr,
        "#" => BinaryOperator::PGBitwiseXor,
        "<<" => BinaryOperator::PGBitwiseShiftLeft,
        ">>" => BinaryOperator::PGBitwiseShiftRight,
        "^" => BinaryOperator::PGExp,
        "^@" => BinaryOperator::PGStartsWith,
        "&&" => BinaryOperator::PGOverlap,
        "->" => BinaryOperator::Arrow,
        "->>" => BinaryOperator::LongArrow,
        "#>" => BinaryOperator::HashArrow,
        "#>>" => BinaryOperator::HashLongArrow,
        "@>" => BinaryOperator::AtArrow,
        "<@" => BinaryOperator::ArrowAt,
        "?" => BinaryOperator::Question,
        "?|" => BinaryOperator::QuestionPipe,
        "?&" => BinaryOperator::QuestionAnd,
        "@@" => BinaryOperator::AtAt,
        "@?" => BinaryOperator::AtQuestion,
        "#-" => BinaryOperator::HashMinus,
        other => BinaryOperator::Custom(other.to_owned()),
    }))
}

/// The one field that an interval's modifier names.
fn field_of(numbers: &[i64]) -> Option<DateTimeField> {
    let [mask] = numbers else { return None };
    Some(match mask {
        2 => DateTimeField::Month,
        4 => DateTimeField::Year,
        8 => DateTimeField::Day,
        1024 => DateTimeField::Hour,
        2048 => DateTimeField::Minute,
        4096 => DateTimeField::Second,
        _ => return None,
    })
}

/// What is refused, in its own words.
fn feature(node: &NodeEnum) -> &'static str {
    match node {
        NodeEnum::CurrentOfExpr(_) => "WHERE CURRENT OF",
        NodeEnum::XmlExpr(_) | NodeEnum::XmlSerialize(_) => "XML",
        NodeEnum::NamedArgExpr(_) => "a named argument",
        NodeEnum::JsonObjectConstructor(_) => "JSON_OBJECT",
        NodeEnum::JsonArrayConstructor(_) | NodeEnum::JsonArrayQueryConstructor(_) => "JSON_ARRAY",
        NodeEnum::JsonObjectAgg(_) => "JSON_OBJECTAGG",
        NodeEnum::JsonArrayAgg(_) => "JSON_ARRAYAGG",
        NodeEnum::JsonIsPredicate(_) => "IS JSON",
        NodeEnum::JsonFuncExpr(_) | NodeEnum::JsonParseExpr(_) | NodeEnum::JsonScalarExpr(_) => {
            "this function of json"
        }
        NodeEnum::MergeSupportFunc(_) => "MERGE",
        _ => "this expression",
    }
}

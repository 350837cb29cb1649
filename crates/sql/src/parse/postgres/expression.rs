//! Converts expressions from the tree of PostgreSQL's parser to the syntax tree of `crate::ast`.
//!
//! Invariants
//! 1. An operand gets parentheses if the binder would otherwise combine it with the operator in another way.
//!
//! This module does not know queries or what names mean.

use super::place::{Reader, kind, strings};
use crate::ast::{
    BinaryOperator, Case, CaseWhen, Constant, Expr, Function, FunctionArg, Ident, Link, ObjectName,
    UnaryOperator, Value, ValueFunction,
};
use crate::error::{Result, SqlError};
use pg_query::NodeEnum;
use pg_query::protobuf::{
    AConst, AExpr, AExprKind, AIndirection, BoolExprType, BoolTestType, CaseExpr, CoercionForm, ColumnRef,
    Node, NullTestType, RowExpr, SqlValueFunction, SqlValueFunctionOp, SubLink, SubLinkType, TypeCast,
    a_const::Val,
};

impl Reader<'_> {
    /// Converts an expression. A missing expression is an error.
    pub(super) fn expr(&self, node: Option<&Node>) -> Result<Expr> {
        match kind(node)? {
            NodeEnum::AConst(c) => self.constant(c),
            NodeEnum::ColumnRef(c) => self.column(c),
            NodeEnum::ParamRef(p) => {
                let number = usize::try_from(p.number).unwrap_or_default();
                Ok(Expr::Parameter(number, self.place(p.location)))
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
            NodeEnum::SqlvalueFunction(f) => Ok(Expr::ValueFunction(self.value_function(f))),
            NodeEnum::AArrayExpr(a) => Ok(Expr::Array(self.exprs(&a.elements)?)),
            NodeEnum::RowExpr(r) => self.row(r),
            NodeEnum::AIndirection(i) => self.indirection(i),
            NodeEnum::CollateClause(c) => Ok(Expr::Collate {
                expr: self.boxed(c.arg.as_deref())?,
                collation: self.name_of(&c.collname, c.location)?,
            }),
            NodeEnum::GroupingFunc(g) => Ok(self.named_call("grouping", self.exprs(&g.args)?, g.location)),
            NodeEnum::SetToDefault(d) => Ok(Expr::Default(self.place(d.location))),
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
            Some(Val::Ival(n)) => Value::Number(n.ival.to_string()),
            Some(Val::Fval(n)) => Value::Number(decimal(&n.fval)?),
            Some(Val::Sval(s)) => Value::Text(s.sval.clone()),
            Some(Val::Bsval(_)) => {
                return Err(SqlError::unsupported("a bit string").at(self.place(c.location).position()));
            }
        };
        Ok(Expr::Value(Constant { value, at: self.place(c.location) }))
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
                "@" => UnaryOperator::Abs,
                "|/" => UnaryOperator::SquareRoot,
                "||/" => UnaryOperator::CubeRoot,
                "@@" => UnaryOperator::Center,
                "!!" => UnaryOperator::Factorial,
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
        let escape = self.maybe(escape)?.map(Box::new);
        Ok(match e.kind() {
            AExprKind::AexprLike => Expr::Like { expr, negated, fold_case: false, pattern, escape },
            AExprKind::AexprIlike => Expr::Like { expr, negated, fold_case: true, pattern, escape },
            _ => Expr::SimilarTo { expr, negated, pattern, escape },
        })
    }

    fn between(&self, e: &AExpr) -> Result<Expr> {
        let kind_of = e.kind();
        let NodeEnum::List(bounds) = kind(e.rexpr.as_deref())? else {
            return Err(SqlError::unsupported("this operator"));
        };
        Ok(Expr::Between {
            expr: self.boxed(e.lexpr.as_deref())?,
            negated: matches!(kind_of, AExprKind::AexprNotBetween | AExprKind::AexprNotBetweenSym),
            symmetric: matches!(kind_of, AExprKind::AexprBetweenSym | AExprKind::AexprNotBetweenSym),
            low: self.boxed(bounds.items.first())?,
            high: self.boxed(bounds.items.get(1))?,
        })
    }

    fn sublink(&self, s: &SubLink, negated: bool) -> Result<Expr> {
        let subquery = Box::new(self.subquery(s.subselect.as_deref())?);
        let left = || self.boxed(s.testexpr.as_deref());
        match s.sub_link_type() {
            SubLinkType::ExistsSublink => Ok(Expr::Exists { subquery, negated }),
            SubLinkType::ExprSublink => Ok(Expr::Subquery(subquery)),
            SubLinkType::ArraySublink => Ok(Expr::ArraySubquery(subquery, self.place(s.location))),
            SubLinkType::AnySublink if s.oper_name.is_empty() => {
                Ok(Expr::InSubquery { expr: left()?, subquery, negated })
            }
            SubLinkType::AnySublink => Ok(Expr::AnyOp {
                left: left()?,
                compare_op: operator(&s.oper_name)?,
                right: Box::new(Expr::Subquery(subquery)),
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
        let mut branches = Vec::with_capacity(c.args.len());
        for arm in &c.args {
            let NodeEnum::CaseWhen(when) = kind(Some(arm))? else {
                return Err(SqlError::internal("an arm of CASE is none"));
            };
            branches.push(CaseWhen {
                condition: self.expr(when.expr.as_deref())?,
                result: self.expr(when.result.as_deref())?,
            });
        }
        Ok(Expr::Case(Case {
            operand: self.maybe(c.arg.as_deref())?.map(Box::new),
            branches,
            otherwise: self.maybe(c.defresult.as_deref())?.map(Box::new),
            at: self.place(c.location),
        }))
    }

    fn row(&self, r: &RowExpr) -> Result<Expr> {
        let items = self.exprs(&r.args)?;
        Ok(match r.row_format() {
            CoercionForm::CoerceImplicitCast => Expr::Tuple(items),
            _ => Expr::Row(items, self.place(r.location)),
        })
    }

    fn cast(&self, c: &TypeCast) -> Result<Expr> {
        let Some(name) = &c.type_name else { return Err(SqlError::internal("a cast without a type")) };
        let arg = self.boxed(c.arg.as_deref())?;
        Ok(Expr::Cast { expr: arg, data_type: self.type_name(name)? })
    }

    /// Converts a function that is called by a keyword, such as CURRENT_DATE.
    pub(super) fn value_function(&self, f: &SqlValueFunction) -> ValueFunction {
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
        ValueFunction { name, precision: (f.typmod >= 0).then_some(f.typmod), at: self.place(f.location) }
    }

    fn indirection(&self, i: &AIndirection) -> Result<Expr> {
        let mut links = Vec::with_capacity(i.indirection.len());
        for link in &i.indirection {
            links.push(match kind(Some(link))? {
                NodeEnum::String(s) => Link::Field(self.ident(&s.sval, -1)),
                NodeEnum::AIndices(n) if n.is_slice => {
                    Link::Slice(self.maybe(n.lidx.as_deref())?, self.maybe(n.uidx.as_deref())?)
                }
                NodeEnum::AIndices(n) => Link::Index(self.expr(n.uidx.as_deref())?),
                _ => return Err(SqlError::unsupported("all fields of a row")),
            });
        }
        Ok(Expr::Indirection { root: self.boxed(i.arg.as_deref())?, links })
    }

    /// Makes a call of a function for a construct of the grammar.
    pub(super) fn named_call(&self, name: &str, args: Vec<Expr>, at: i32) -> Expr {
        let args = args.into_iter().map(FunctionArg::Expr).collect();
        Expr::Function(Function { args, ..function(self.ident(name, at).into()) })
    }
}

/// Returns a call without arguments and clauses.
pub(super) fn function(name: ObjectName) -> Function {
    Function {
        name,
        distinct: false,
        args: Vec::new(),
        order_by: Vec::new(),
        within_group: Vec::new(),
        filter: None,
        over: None,
    }
}

/// Puts an operand into parentheses if it is an operation itself. So the binder keeps the structure that the
/// grammar has found.
fn grouped(e: Expr) -> Expr {
    match e {
        Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. } => e,
        Expr::BinaryOp { ref op, .. } if binds_apart(op) => Expr::Nested(Box::new(e)),
        other => other,
    }
}

/// Returns whether the binder examines the form of the operator's operands. It does so for comparisons, which
/// do not associate, and for powers, where a sign before the operator matters.
fn binds_apart(op: &BinaryOperator) -> bool {
    op.is_comparison() || *op == BinaryOperator::Power
}

/// Returns a number in plain digits.
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

/// Returns the operator with this name.
pub(super) fn operator(name: &[Node]) -> Result<BinaryOperator> {
    Ok(match strings(name)?.as_slice() {
        [symbol] | ["pg_catalog", symbol] => BinaryOperator::of(symbol),
        parts => BinaryOperator::Qualified(parts.iter().map(ToString::to_string).collect()),
    })
}

/// Returns the SQL words for an unsupported node.
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

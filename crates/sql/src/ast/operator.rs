//! Operators in the syntax tree.

/// An operator between two operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BinaryOperator {
    /// AND
    And,
    /// OR
    Or,
    /// `=`
    Eq,
    /// `<>`
    NotEq,
    /// `<`
    Lt,
    /// `<=`
    LtEq,
    /// `>`
    Gt,
    /// `>=`
    GtEq,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
    /// `^`
    Power,
    /// `||`
    Concat,
    /// `&`
    BitwiseAnd,
    /// `|`
    BitwiseOr,
    /// `#`
    BitwiseXor,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `~`
    RegexMatch,
    /// `~*`
    RegexIMatch,
    /// `!~`
    RegexNotMatch,
    /// `!~*`
    RegexNotIMatch,
    /// `~~`
    LikeMatch,
    /// `!~~`
    NotLikeMatch,
    /// `~~*`
    ILikeMatch,
    /// `!~~*`
    NotILikeMatch,
    /// `^@`
    StartsWith,
    /// `&&`
    Overlap,
    /// `@>`
    Contains,
    /// `<@`
    ContainedBy,
    /// `->`
    Arrow,
    /// `->>`
    LongArrow,
    /// `#>`
    HashArrow,
    /// `#>>`
    HashLongArrow,
    /// An operator that Varve does not have.
    Other(String),
    /// `OPERATOR(schema.name)`, of a schema other than `pg_catalog`.
    Qualified(Vec<String>),
}

/// Operators and their symbols.
const SYMBOLS: [(&str, BinaryOperator); 34] = [
    ("=", BinaryOperator::Eq),
    ("<>", BinaryOperator::NotEq),
    ("<", BinaryOperator::Lt),
    ("<=", BinaryOperator::LtEq),
    (">", BinaryOperator::Gt),
    (">=", BinaryOperator::GtEq),
    ("+", BinaryOperator::Plus),
    ("-", BinaryOperator::Minus),
    ("*", BinaryOperator::Multiply),
    ("/", BinaryOperator::Divide),
    ("%", BinaryOperator::Modulo),
    ("^", BinaryOperator::Power),
    ("||", BinaryOperator::Concat),
    ("&", BinaryOperator::BitwiseAnd),
    ("|", BinaryOperator::BitwiseOr),
    ("#", BinaryOperator::BitwiseXor),
    ("<<", BinaryOperator::ShiftLeft),
    (">>", BinaryOperator::ShiftRight),
    ("~", BinaryOperator::RegexMatch),
    ("~*", BinaryOperator::RegexIMatch),
    ("!~", BinaryOperator::RegexNotMatch),
    ("!~*", BinaryOperator::RegexNotIMatch),
    ("~~", BinaryOperator::LikeMatch),
    ("!~~", BinaryOperator::NotLikeMatch),
    ("~~*", BinaryOperator::ILikeMatch),
    ("!~~*", BinaryOperator::NotILikeMatch),
    ("^@", BinaryOperator::StartsWith),
    ("&&", BinaryOperator::Overlap),
    ("@>", BinaryOperator::Contains),
    ("<@", BinaryOperator::ContainedBy),
    ("->", BinaryOperator::Arrow),
    ("->>", BinaryOperator::LongArrow),
    ("#>", BinaryOperator::HashArrow),
    ("#>>", BinaryOperator::HashLongArrow),
];

impl BinaryOperator {
    /// Returns the operator with this symbol.
    pub fn of(symbol: &str) -> BinaryOperator {
        match SYMBOLS.iter().find(|(own, _)| *own == symbol) {
            Some((_, operator)) => operator.clone(),
            None => BinaryOperator::Other(symbol.to_owned()),
        }
    }

    /// Returns the symbol in a text.
    pub fn symbol(&self) -> &str {
        match self {
            BinaryOperator::And => "AND",
            BinaryOperator::Or => "OR",
            BinaryOperator::Other(symbol) => symbol,
            BinaryOperator::Qualified(parts) => parts.last().map_or("", String::as_str),
            other => SYMBOLS.iter().find(|(_, own)| own == other).map_or("", |(symbol, _)| symbol),
        }
    }

    /// Returns whether it is a comparison such as `=`. Comparisons cannot be chained.
    pub fn is_comparison(&self) -> bool {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        matches!(self, Eq | NotEq | Lt | LtEq | Gt | GtEq)
    }
}

impl std::fmt::Display for BinaryOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.symbol())
    }
}

/// An operator before its operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnaryOperator {
    /// NOT
    Not,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `~`
    BitwiseNot,
    /// `@`
    Abs,
    /// `|/`
    SquareRoot,
    /// `||/`
    CubeRoot,
    /// `@@`
    Center,
    /// `!!`, which PostgreSQL does not have any more
    Factorial,
}

impl std::fmt::Display for UnaryOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UnaryOperator::Not => "NOT",
            UnaryOperator::Plus => "+",
            UnaryOperator::Minus => "-",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::Abs => "@",
            UnaryOperator::SquareRoot => "|/",
            UnaryOperator::CubeRoot => "||/",
            UnaryOperator::Center => "@@",
            UnaryOperator::Factorial => "!!",
        })
    }
}

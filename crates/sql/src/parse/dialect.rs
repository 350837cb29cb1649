//! The parser's dialect of PostgreSQL, with operators as tight as PostgreSQL's are.
//!
//! Invariants
//! 1. But for `get_next_precedence` and `parse_prefix` it is `PostgreSqlDialect`: what that one overrides is handed on.
//!
//! Does not know: what operators mean.

use std::any::TypeId;

use sqlparser::ast::{Expr, UnaryOperator};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// PostgreSQL's dialect.
#[derive(Debug)]
pub(super) struct VarveDialect;

const BASE: PostgreSqlDialect = PostgreSqlDialect {};

macro_rules! handed_on {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            BASE.$method()
        })*
    };
}

impl Dialect for VarveDialect {
    /// The parser asks for PostgreSQL by its type.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    /// An operator without a rank of its own stands between BETWEEN and `+`, in front of its operand too: `~ 1 + 1` is
    /// `~ (1 + 1)` (manual, 4.1.6). The parser has `~ 1 + 1` as `(~ 1) + 1`.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let op = match parser.peek_token_ref().token {
            Token::Tilde => UnaryOperator::BitwiseNot,
            Token::AtSign => UnaryOperator::PGAbs,
            Token::PGSquareRoot => UnaryOperator::PGSquareRoot,
            Token::PGCubeRoot => UnaryOperator::PGCubeRoot,
            Token::DoubleExclamationMark => UnaryOperator::PGPrefixFactorial,
            _ => return None,
        };
        parser.advance_token();
        let operand = parser.parse_subexpr(self.prec_value(Precedence::PgOther));
        Some(operand.map(|operand| Expr::UnaryOp { op, expr: Box::new(operand) }))
    }

    /// Matching by `~` and its relatives is such an operator as well; the parser has them beside `=`.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match parser.peek_token_ref().token {
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk => Some(Ok(self.prec_value(Precedence::PgOther))),
            _ => BASE.get_next_precedence(parser),
        }
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        BASE.prec_value(precedence)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        BASE.is_delimited_identifier_start(c)
    }

    fn is_identifier_start(&self, c: char) -> bool {
        BASE.is_identifier_start(c)
    }

    fn is_identifier_part(&self, c: char) -> bool {
        BASE.is_identifier_part(c)
    }

    fn is_custom_operator_part(&self, c: char) -> bool {
        BASE.is_custom_operator_part(c)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        BASE.is_reserved_for_identifier(keyword)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        BASE.is_table_alias(keyword, parser)
    }

    handed_on!(
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_aliased_function_args,
        supports_alter_column_type_using,
        supports_alter_user_as_alter_role,
        supports_array_typedef_with_brackets,
        supports_bitwise_shift_operators,
        supports_comma_separated_trim,
        supports_comment_on,
        supports_comment_optimizer_hint,
        supports_create_index_with_clause,
        supports_create_table_like_parenthesized,
        supports_empty_projections,
        supports_exclude_constraint,
        supports_explain_with_utility_options,
        supports_factorial_operator,
        supports_filter_during_aggregation,
        supports_geometric_types,
        supports_group_by_expr,
        supports_insert_table_alias,
        supports_interval_options,
        supports_left_associative_joins_without_parens,
        supports_listen_notify,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_named_fn_args_with_expr_name,
        supports_nested_comments,
        supports_notnull_operator,
        supports_numeric_literal_underscores,
        supports_order_by_using_operator,
        supports_select_wildcard_with_alias,
        supports_set_names,
        supports_string_escape_constant,
        supports_unicode_string_literal,
        supports_xml_expressions,
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    /// Whoever takes a newer parser and forgets what its dialect has overridden since finds out here.
    #[test]
    fn statements_without_its_operators_are_read_as_by_the_dialect_of_the_parser() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut read = 0;
        for file in std::fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "slt") {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let of_case = |line: &&str| line.starts_with("> ") && !line.contains(['~', '@', '|', '!']);
            for statement in text.lines().filter(of_case).map(|line| &line[2..]) {
                let by = |dialect: &dyn Dialect| Parser::parse_sql(dialect, statement);
                assert_eq!(by(&VarveDialect), by(&BASE), "{statement}");
                read += 1;
            }
        }
        assert!(read > 1000, "only {read} statements");
    }
}

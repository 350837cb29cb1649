//! Converts names of types from the tree of PostgreSQL's parser to the syntax tree of `crate::ast`.
//!
//! This module does not know which types exist (`ty`).

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, TypeName, a_const::Val};

use super::place::Reader;
use crate::ast;
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// Converts a type as a cast writes it.
    pub(super) fn type_name(&self, t: &TypeName) -> Result<ast::TypeName> {
        if t.setof {
            return Err(SqlError::unsupported("SETOF"));
        }
        if t.pct_type {
            return Err(SqlError::unsupported("%TYPE"));
        }
        Ok(ast::TypeName {
            name: self.name_of(&t.names, t.location)?,
            modifiers: modifiers(&t.typmods)?,
            is_array: !t.array_bounds.is_empty(),
        })
    }
}

/// Returns the numbers in parentheses after a type.
pub fn modifiers(list: &[Node]) -> Result<Vec<i64>> {
    let number = |node: &Node| match &node.node {
        Some(NodeEnum::AConst(c)) => match &c.val {
            Some(Val::Ival(n)) => Ok(i64::from(n.ival)),
            Some(Val::Fval(text)) => text.fval.parse().map_err(|_| refused()),
            _ => Err(refused()),
        },
        _ => Err(refused()),
    };
    list.iter().map(number).collect()
}

fn refused() -> SqlError {
    SqlError::unsupported("this modifier of a type")
}

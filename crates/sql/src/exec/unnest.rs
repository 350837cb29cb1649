//! `unnest` in FROM.

use varve_engine::Datum;

use crate::error::Result;
use crate::eval::{Cx, Input};
use crate::plan::Unnest;

impl Unnest {
    /// Returns the rows of the function. Their values are in the arena.
    pub fn rows<'a>(&self, cx: &Cx<'a>) -> Result<Vec<Vec<Datum<'a>>>> {
        let mut columns: Vec<Vec<Datum<'a>>> = Vec::with_capacity(self.arrays.len());
        for array in &self.arrays {
            columns.push(match array.eval(&Input::None, cx)? {
                Datum::Array(array) => {
                    let kept = |element| cx.env.check_cancel().map(|()| cx.keep(element));
                    array.iter().map(kept).collect::<Result<_>>()?
                }
                _ => Vec::new(),
            });
        }
        let row = |n: usize| {
            let elements = columns.iter().map(|c| c.get(n).copied().unwrap_or(Datum::Null));
            let row = elements.chain(self.numbered.then_some(Datum::Int8(n as i64 + 1))).collect();
            cx.env.check_cancel().map(|()| row)
        };
        (0..columns.iter().map(Vec::len).max().unwrap_or(0)).map(row).collect()
    }
}

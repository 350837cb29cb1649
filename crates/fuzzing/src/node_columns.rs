//! Applies the same changes to a leaf by columns and to a sorted map, and compares the two. The module
//! `node_model` does the same for a leaf by rows.
//!
//! The input begins with the number of columns (u8) and the width of each one (u8, 0 is variable). Steps
//! follow. A step has its kind (u8), the length of the key, and the key. A value has a seed (u8) for its
//! fixed columns, and then the length of each variable column (u8).

use varve_engine::node::STAMP_BYTES;
use varve_engine::redo::NodeOp;
use varve_engine::row::ROW_LAYOUT;

use crate::input::Input;
use crate::node_model::{Model, Pair};

const COLUMNS_MAX: u8 = 12;
const WIDTH_MAX: u8 = 16;
const VALUE_BYTES_MAX: u8 = 100;

/// Checks that the leaf has the same entries as the map, and that redo gives the same bytes.
pub fn node_columns(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let count = 1 + input.byte() % COLUMNS_MAX;
    let widths: Vec<u8> = (0..count).map(|_| input.byte() % (WIDTH_MAX + 1)).collect();
    let (mut pair, mut model) = (Pair::new(true, &widths), Model::new());
    while !input.is_empty() {
        let what = input.byte();
        let key = input.piece();
        match what % 8 {
            0 => assert_eq!(pair.remove(key), model.remove(key).is_some()),
            1 => pair.search(key, &model),
            2 if !model.is_empty() => pair.split(key, &mut model),
            3 => pair.apply(&NodeOp::Rebuild { prefix_bytes: pair.node().prefix().len() }),
            kind => {
                let value = if kind == 4 { vec![what; STAMP_BYTES + 9] } else { row(&mut input, &widths) };
                if pair.put(key, &value) {
                    model.insert(key.to_vec(), value);
                }
            }
        }
    }
    pair.check(&model);
}

/// Returns a stamp and an encoded row.
fn row(input: &mut Input<'_>, widths: &[u8]) -> Vec<u8> {
    let seed = input.byte();
    let fixed_bytes: usize = widths.iter().map(|width| usize::from(*width)).sum();
    let mut value = vec![seed; STAMP_BYTES];
    value.push(ROW_LAYOUT);
    value.resize(value.len() + widths.len().div_ceil(8) + fixed_bytes, seed);
    let variable: Vec<usize> = widths
        .iter()
        .filter(|width| **width == 0)
        .map(|_| usize::from(input.byte() % VALUE_BYTES_MAX))
        .collect();
    let mut end = value.len() - STAMP_BYTES + 2 * variable.len();
    for bytes in variable {
        end += bytes;
        value.extend_from_slice(&(end as u16).to_le_bytes());
    }
    value.resize(STAMP_BYTES + end, seed);
    value
}

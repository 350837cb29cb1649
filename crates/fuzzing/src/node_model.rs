//! Applies the same changes to a tree node and to a sorted map, and compares the two. Each change is also
//! redone from its log record on a second page.
//!
//! The input begins with a byte that chooses a clustered tree. Steps follow. A step has its kind (u8), the
//! length of the key, the key, and the length of the value (u8).

use std::collections::BTreeMap;

use varve_engine::node::edit::{self, Frame};
use varve_engine::node::{self, NodeRef, STAMP_BYTES, common_prefix_bytes};
use varve_engine::redo::{self, NodeOp, Payload};

use crate::input::{Input, PAGE_BYTES};

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Checks that the node has the same entries as the map, and that redo gives the same bytes.
pub fn node_model(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let stamped = input.byte() & 1 == 0;
    let mut pair = Pair::new(stamped, &[]);
    let mut model = Model::new();
    while !input.is_empty() {
        let what = input.byte();
        let key = input.piece();
        match what % 8 {
            0 => assert_eq!(pair.remove(key), model.remove(key).is_some()),
            1 => pair.search(key, &model),
            2 if !model.is_empty() => pair.split(key, &mut model),
            _ => {
                let value = value(stamped, usize::from(input.byte()));
                if pair.put(key, &value) {
                    model.insert(key.to_vec(), value);
                }
            }
        }
    }
    pair.check(&model);
}

fn value(stamped: bool, bytes: usize) -> Vec<u8> {
    if stamped { vec![bytes as u8; STAMP_BYTES + bytes] } else { vec![bytes as u8] }
}

/// A page, and one that is changed only by decoded operations.
pub(crate) struct Pair {
    page: Vec<u8>,
    redone: Vec<u8>,
}

impl Pair {
    /// Returns an empty leaf; by columns if there are `widths`.
    pub(crate) fn new(stamped: bool, widths: &[u8]) -> Self {
        let mut pair = Self { page: vec![0xAA; PAGE_BYTES], redone: vec![0xAA; PAGE_BYTES] };
        pair.apply(&NodeOp::Build { frame: Frame { stamped, widths, ..Frame::EMPTY }, entries: &[] });
        pair
    }

    pub(crate) fn apply(&mut self, op: &NodeOp<'_>) {
        let mut payload = Payload::new();
        let code = redo::encode(op, &mut payload);
        assert_eq!(redo::change(&mut self.page, op), Some(()), "{op:?} fits");
        let decoded = redo::decode(code, &payload);
        assert_eq!(decoded, Some(*op));
        let redone = decoded.and_then(|op| redo::change(&mut self.redone, &op));
        assert_eq!(redone, Some(()), "{op:?} fits again");
    }

    pub(crate) fn node(&self) -> NodeRef<'_> {
        NodeRef::new(&self.page)
    }

    /// Returns the prefix that the node could have with this key.
    fn shared(&self, key: &[u8]) -> usize {
        let node = self.node();
        if node.is_empty() {
            return 0;
        }
        let (first, last) = (node.key(0), node.key(node.len() - 1));
        let common = common_prefix_bytes(&first, &last).min(common_prefix_bytes(&first, key));
        common.min(node::prefix_bytes_max(PAGE_BYTES))
    }

    /// Inserts or replaces an entry if there is enough space, with a rebuild as in the tree.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let node = self.node();
        let outside = key < node.lower_fence() || node.upper_fence().is_some_and(|fence| key >= fence);
        if outside {
            return false;
        }
        let found = node.search(key);
        let fits = key.starts_with(node.prefix())
            && match found.exact {
                true => edit::can_replace_by(node, found.slot, value),
                false => edit::has_gap(node, key.len() - node.prefix().len(), value.len()),
            };
        if !fits {
            let shared = self.shared(key);
            let needed = node::entry_bytes(key.len() - shared, value.len()) as isize;
            if edit::free_after_rebuild(self.node(), shared) < needed {
                return false;
            }
            self.apply(&NodeOp::Rebuild { prefix_bytes: shared });
        }
        let skip = self.node().prefix().len();
        match found.exact {
            true => self.apply(&NodeOp::Replace { slot: found.slot, value }),
            false => self.apply(&NodeOp::Insert { slot: found.slot, suffix: &key[skip..], value }),
        }
        true
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let found = self.node().search(key);
        if found.exact {
            self.apply(&NodeOp::Remove { slot: found.slot });
        }
        found.exact
    }

    pub(crate) fn search(&self, key: &[u8], model: &Model) {
        let below = model.range(..key.to_vec()).count();
        let found = self.node().search(key);
        assert_eq!((found.slot, found.exact), (below, model.contains_key(key)));
    }

    /// Keeps the entries below `key`. The new fence is the key of the first removed entry.
    pub(crate) fn split(&mut self, key: &[u8], model: &mut Model) {
        let upper = model.range(key.to_vec()..).next().map(|(key, _)| key.clone());
        let Some(upper) = upper.filter(|upper| !upper.is_empty()) else { return };
        let keep = model.range(..upper.clone()).count();
        let fixed = upper.len() + self.node().lower_fence().len();
        if self.node().free_bytes() < fixed || upper.len() > node::key_bytes_max(PAGE_BYTES) {
            return;
        }
        self.apply(&NodeOp::KeepLeft { keep, right: 9, upper: &upper });
        drop(model.split_off(&upper));
    }

    pub(crate) fn check(&self, model: &Model) {
        assert_eq!(node::check::damage(&self.page), None);
        assert!(self.page == self.redone, "redo gives other bytes");
        let node = self.node();
        assert_eq!(node.len(), model.len());
        for (index, (key, value)) in model.iter().enumerate() {
            assert_eq!(&node.key(index), key);
            assert_eq!(node.whole_value(index), *value);
        }
    }
}

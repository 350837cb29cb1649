//! A node behaves like a sorted map, keeps its invariants, and redo of its operations gives the same bytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use varve_engine::node::edit::{self, Frame};
use varve_engine::node::{self, NodeRef, check, common_prefix_bytes, split};
use varve_engine::redo::{self, NodeOp, Payload};

const EMPTY: Frame<'static> = Frame {
    level: 0,
    stamped: true,
    right: 0,
    leftmost: 0,
    newest_txn: 0,
    lower: &[],
    upper: &[],
    prefix: &[],
    widths: &[],
};

/// A page and a copy that is changed only by decoded operations.
struct Pair {
    page: Vec<u8>,
    redone: Vec<u8>,
}

impl Pair {
    fn new(page_bytes: usize) -> Self {
        let mut pair = Self { page: vec![0xAA; page_bytes], redone: vec![0xAA; page_bytes] };
        pair.apply(&NodeOp::Build { frame: EMPTY, entries: &[] });
        pair
    }

    fn apply(&mut self, op: &NodeOp<'_>) {
        let mut payload = Payload::new();
        let code = redo::encode(op, &mut payload);
        redo::change(&mut self.page, op).expect("the operation fits");
        let decoded = redo::decode(code, &payload).expect("the payload decodes");
        assert_eq!(decoded, *op);
        redo::change(&mut self.redone, &decoded).unwrap();
    }

    fn node(&self) -> NodeRef<'_> {
        NodeRef::new(&self.page)
    }

    /// Inserts or replaces an entry if there is room, and rebuilds the node if the tree would do so.
    fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let node = self.node();
        let found = node.search(key);
        let shared = if node.is_empty() {
            0
        } else {
            let common = common_prefix_bytes(&node.key(0), &node.key(node.len() - 1));
            common.min(common_prefix_bytes(&node.key(0), key)).min(node::prefix_bytes_max(self.page.len()))
        };
        let fits_now = key.starts_with(node.prefix())
            && if found.exact {
                edit::can_replace(node, found.slot, value.len())
            } else {
                edit::has_gap(node, key.len() - node.prefix().len(), value.len())
            };
        if !fits_now {
            let need = node::entry_bytes(key.len() - shared, value.len()) as isize;
            if edit::free_after_rebuild(node, shared) < need {
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

    fn remove(&mut self, key: &[u8]) -> bool {
        let found = self.node().search(key);
        if found.exact {
            self.apply(&NodeOp::Remove { slot: found.slot });
        }
        found.exact
    }

    fn check(&self, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
        assert_eq!(check::damage(&self.page), None);
        assert_eq!(self.page, self.redone);
        let node = self.node();
        assert_eq!(node.len(), model.len());
        for (index, (key, value)) in model.iter().enumerate() {
            assert_eq!(&node.key(index), key);
            assert_eq!(node.value(index), &value[..]);
            assert_eq!(node.search(key), node::KeyPosition { slot: index, exact: true });
        }
    }
}

fn stamped_value(filler: &[u8]) -> Vec<u8> {
    [&[0; node::STAMP_BYTES], filler].concat()
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0u16..600).prop_map(|n| [&[1, 0x80, 0, 0, 0, 0, 0][..], &n.to_be_bytes()].concat()),
        (0u16..600).prop_map(|n| [&[1, 0x80, 0, 0, 0, 0, 0][..], &n.to_be_bytes()].concat()),
        prop::collection::vec(0u8..3, 0..8),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Search(Vec<u8>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let filler = prop::collection::vec(any::<u8>(), 0..120);
    prop_oneof![
        5 => (any_key(), filler).prop_map(|(key, filler)| Step::Put(key, stamped_value(&filler))),
        2 => any_key().prop_map(Step::Remove),
        1 => any_key().prop_map(Step::Search),
    ]
}

fn page_bytes() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![4096usize, 8192, 65536])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn behaves_like_a_map(bytes in page_bytes(), steps in prop::collection::vec(any_step(), 1..200)) {
        let mut pair = Pair::new(bytes);
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    if pair.put(&key, &value) {
                        model.insert(key, value);
                    } else {
                        prop_assert!(pair.node().live_bytes() > bytes / 3, "refused though nearly empty");
                    }
                }
                Step::Remove(key) => prop_assert_eq!(pair.remove(&key), model.remove(&key).is_some()),
                Step::Search(key) => {
                    let below = model.range(..key.clone()).count();
                    let found = pair.node().search(&key);
                    prop_assert_eq!(found.slot, below);
                    prop_assert_eq!(found.exact, model.contains_key(&key));
                }
            }
        }
        pair.check(&model);
    }

    #[test]
    fn a_cut_gives_two_sound_halves(
        bytes in page_bytes(),
        steps in prop::collection::vec((any_key(), prop::collection::vec(any::<u8>(), 0..120)), 3..400),
        wanted in any_key(),
        value_bytes in 15usize..500,
    ) {
        let mut pair = Pair::new(bytes);
        for (key, filler) in steps {
            pair.put(&key, &stamped_value(&filler));
        }
        let before: Vec<_> = (0..pair.node().len()).map(|i| (pair.node().key(i), pair.node().value(i).to_vec())).collect();
        let Some(cut) = split::cut_leaf(pair.node(), &wanted, value_bytes) else {
            prop_assert!(before.len() <= 1);
            return Ok(());
        };
        let mut right = Pair::new(bytes);
        let prefix = edit::best_prefix(pair.node(), cut.keep..before.len());
        let mut entries = Vec::new();
        for (key, value) in &before[cut.keep..] {
            redo::push_entry(&mut entries, &key[prefix.len()..], value);
        }
        let frame = Frame { lower: &cut.separator, prefix: &prefix, ..EMPTY };
        right.apply(&NodeOp::Build { frame, entries: &entries });
        pair.apply(&NodeOp::KeepLeft { keep: cut.keep, right: 9, upper: &cut.separator });
        prop_assert_eq!(pair.node().right(), 9);
        pair.check(&before[..cut.keep].iter().cloned().collect());
        right.check(&before[cut.keep..].iter().cloned().collect());
    }

    #[test]
    fn damage_is_found_or_harmless(
        steps in prop::collection::vec((any_key(), prop::collection::vec(any::<u8>(), 0..120)), 3..60),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut pair = Pair::new(4096);
        for (key, filler) in steps {
            pair.put(&key, &stamped_value(&filler));
        }
        let at = 32 + at.index(4096 - 32);
        pair.page[at] ^= flip;
        // The check must not panic. It must notice each change in the slots and in these bytes of the header.
        let damage = check::damage(&pair.page);
        let slots_end = 72 + pair.node().len() * 8;
        if (72..slots_end).contains(&at) || (34..40).contains(&at) {
            prop_assert!(damage.is_some(), "byte {} changed unnoticed", at);
        }
    }

    #[test]
    fn redo_on_a_damaged_page_is_refused_or_harmless(
        runs in prop::collection::vec((32usize..200, prop::collection::vec(any::<u8>(), 1..24)), 0..6),
        ops in prop::collection::vec((16u8..26, prop::collection::vec(any::<u8>(), 0..40)), 1..6),
    ) {
        let mut page = vec![0; 4096];
        for (at, bytes) in runs {
            page[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        for (code, payload) in ops {
            if let Some(op) = redo::decode(code, &payload) {
                let _ = redo::change(&mut page, &op);
            }
        }
    }

    #[test]
    fn malformed_payloads_are_refused(
        code in 16u8..64,
        payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut pair = Pair::new(4096);
        pair.put(b"a", &stamped_value(b"x"));
        if let Some(op) = redo::decode(code, &payload) {
            let _ = redo::change(&mut pair.page, &op);
        }
    }
}

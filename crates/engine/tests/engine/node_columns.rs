//! A leaf by columns behaves like a sorted map, its columns have the values of its rows, redo gives the same
//! bytes, and damage is found or harmless.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use varve_engine::node::edit::{self, Frame};
use varve_engine::node::{self, NodeRef, STAMP_BYTES, Stamp, check, columns_max, split};
use varve_engine::redo::{self, NodeOp, Payload};

use crate::common::{Random, any_row, int_key};

const PAGE_BYTES: usize = 8192;
const WIDTHS: &[u8] = &[4, 0, 8, 1, 0, 16, 0, 2, 8];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A page and a copy that is changed only by decoded operations.
struct Leaf {
    page: Vec<u8>,
    redone: Vec<u8>,
}

impl Leaf {
    fn new(widths: &[u8]) -> Self {
        let mut leaf = Self { page: vec![0xAA; PAGE_BYTES], redone: vec![0xAA; PAGE_BYTES] };
        leaf.apply(&NodeOp::Build { frame: Frame { stamped: true, widths, ..Frame::EMPTY }, entries: &[] });
        leaf
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

    /// Inserts or replaces an entry, with a rebuild if that is needed and enough. Returns false if not.
    fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let found = self.node().search(key);
        let skip = self.node().prefix().len();
        let prefix_bytes = if key.starts_with(self.node().prefix()) { skip } else { 0 };
        let fits = |node: NodeRef<'_>| match found.exact {
            true => edit::can_replace_by(node, found.slot, value),
            false => prefix_bytes == skip && edit::has_gap(node, key.len() - skip, value.len()),
        };
        if !fits(self.node()) {
            let needed = node::entry_bytes(key.len() - prefix_bytes, value.len()) as isize;
            if edit::free_after_rebuild(self.node(), prefix_bytes) < needed {
                return false;
            }
            self.apply(&NodeOp::Rebuild { prefix_bytes });
        }
        let suffix = &key[self.node().prefix().len()..];
        match found.exact {
            true => self.apply(&NodeOp::Replace { slot: found.slot, value }),
            false => self.apply(&NodeOp::Insert { slot: found.slot, suffix, value }),
        }
        true
    }

    fn check(&self, model: &Model) {
        assert_eq!(check::damage(&self.page), None);
        assert!(self.page == self.redone, "redo gives other bytes");
        assert_eq!(entries_of(self.node()), model.clone().into_iter().collect::<Vec<_>>());
    }
}

/// Returns all entries, read in both ways.
fn entries_of(node: NodeRef<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut spare = vec![7];
    let read = |index: usize| {
        let (entry, value) = (node.entry(index), node.whole_value(index));
        assert_eq!(entry.payload(&mut spare), &value[STAMP_BYTES..]);
        assert_eq!(node.entry_bytes(index), node::entry_bytes(node.suffix(index).len(), value.len()));
        (entry.key(), value)
    };
    (0..node.len()).map(read).collect()
}

/// Returns the bytes of a column's value in an encoded row.
fn column_of<'r>(widths: &[u8], row: &'r [u8], column: usize) -> &'r [u8] {
    let head = 1 + widths.len().div_ceil(8);
    let width_of = |column: usize| usize::from(widths[column]);
    let width = width_of(column);
    if width > 0 {
        let at = head + (0..column).map(width_of).sum::<usize>();
        return &row[at..at + width];
    }
    let ends_at = head + (0..widths.len()).map(width_of).sum::<usize>();
    let variable = |until: usize| (0..until).filter(|column| width_of(*column) == 0).count();
    let end = |which: usize| {
        let at = ends_at + 2 * which;
        usize::from(u16::from_le_bytes([row[at], row[at + 1]]))
    };
    let start = match variable(column) {
        0 => ends_at + 2 * variable(widths.len()),
        which => end(which - 1),
    };
    &row[start..end(variable(column))]
}

/// Checks that the columns have the values of each row of the model that is in them. Returns the number of
/// these rows.
fn check_columns(node: NodeRef<'_>, model: &Model) -> usize {
    let columns = node.columns().unwrap();
    let mut found = 0;
    for (index, value) in model.values().enumerate() {
        let Some(number) = node.row_number(index) else { continue };
        let row = &value[STAMP_BYTES..];
        found += 1;
        for column in 0..columns.count() {
            let expected = column_of(WIDTHS, row, column);
            let width = usize::from(WIDTHS[column]);
            let got = match width {
                0 => columns.variable(column, number),
                _ => &columns.fixed(column)[number * width..][..width],
            };
            assert_eq!(got, expected, "column {column} of entry {index}");
            assert_eq!(columns.is_null(column, number), row[1 + column / 8] & (1 << (column % 8)) != 0);
        }
    }
    found
}

/// Returns a stamp, and in most cases a row after it.
fn any_value(random: &mut Random) -> Vec<u8> {
    let payload = match random.below(12) {
        0 => {
            let len = random.below(60);
            random.bytes(len)
        }
        // An overflow pointer.
        1 => [&[0x21][..], &random.bytes(8)].concat(),
        _ => any_row(random, WIDTHS, 400).unwrap(),
    };
    [&random.bytes(STAMP_BYTES)[..], &payload].concat()
}

fn any_key(random: &mut Random) -> Vec<u8> {
    if random.below(8) == 0 {
        let len = random.below(30);
        return random.bytes(len);
    }
    int_key(random.below(200) as i64)
}

/// Returns a leaf after random changes, and the entries that it should have.
fn changed(random: &mut Random, steps: usize) -> (Leaf, Model) {
    let (mut leaf, mut model) = (Leaf::new(WIDTHS), Model::new());
    for _ in 0..steps {
        let (key, value) = (any_key(random), any_value(random));
        match random.below(16) {
            0..=2 => {
                let found = leaf.node().search(&key);
                assert_eq!(found.exact, model.remove(&key).is_some());
                if found.exact {
                    leaf.apply(&NodeOp::Remove { slot: found.slot });
                }
            }
            3 => rebuild(&mut leaf),
            4 if !model.is_empty() => {
                let slot = random.below(model.len());
                let stamp = Stamp { txn: random.next() >> 16, roll: random.next(), flags: 1 };
                leaf.apply(&NodeOp::Stamp { slot, stamp });
                let (_, value) = model.iter_mut().nth(slot).unwrap();
                *value = leaf.node().whole_value(slot);
                assert_eq!(leaf.node().entry(slot).stamp(), stamp);
            }
            5 | 6 if !model.is_empty() => overwrite(&mut leaf, &mut model, random),
            _ if leaf.put(&key, &value) => drop(model.insert(key, value)),
            _ => assert!(leaf.node().live_bytes() > PAGE_BYTES / 2, "refused though half empty"),
        }
    }
    (leaf, model)
}

fn rebuild(leaf: &mut Leaf) {
    let count = leaf.node().len();
    let prefix_bytes = edit::best_prefix(leaf.node(), 0..count).len();
    if edit::can_rebuild(leaf.node(), prefix_bytes) {
        leaf.apply(&NodeOp::Rebuild { prefix_bytes });
    }
}

/// Changes the fixed columns of a row. This never moves a row out of the columns.
fn overwrite(leaf: &mut Leaf, model: &mut Model, random: &mut Random) {
    let slot = random.below(model.len());
    let number = leaf.node().row_number(slot);
    let (_, value) = model.iter_mut().nth(slot).unwrap();
    if value.len() > STAMP_BYTES + 10 && value[STAMP_BYTES] == 1 && number.is_some() {
        value[STAMP_BYTES + 3..STAMP_BYTES + 7].copy_from_slice(&random.bytes(4));
        value[0] = 9;
        let (gap, garbage) = (leaf.node().gap_bytes(), leaf.node().garbage_bytes());
        leaf.apply(&NodeOp::Replace { slot, value });
        assert_eq!(leaf.node().row_number(slot), number);
        assert_eq!((leaf.node().gap_bytes(), leaf.node().garbage_bytes()), (gap, garbage));
    }
}

#[test]
fn behaves_like_a_map() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (mut leaf, model) = changed(&mut random, 20 + seed as usize);
        leaf.check(&model);
        check_columns(leaf.node(), &model);
        rebuild(&mut leaf);
        leaf.check(&model);
        let in_columns = check_columns(leaf.node(), &model);
        let rows = model.values().filter(|value| value.get(STAMP_BYTES) == Some(&1)).count();
        assert!(in_columns + 3 >= rows, "{in_columns} of {rows} rows are in columns");
        assert!(leaf.node().garbage_bytes() == 0 || !edit::can_rebuild(leaf.node(), 0));
    }
}

#[test]
fn a_cut_gives_two_sound_halves() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (mut leaf, model) = changed(&mut random, 150);
        let (key, value) = (any_key(&mut random), any_value(&mut random));
        let Some(cut) = split::cut_leaf(leaf.node(), &key, value.len()) else { continue };
        let before: Vec<_> = model.into_iter().collect();
        let mut right = Leaf::new(WIDTHS);
        let prefix = edit::best_prefix(leaf.node(), cut.keep..before.len());
        let entries = redo::entries(leaf.node(), cut.keep..before.len(), prefix.len());
        let frame = Frame {
            stamped: true,
            lower: &cut.separator,
            prefix: &prefix,
            widths: leaf.node().widths(),
            ..Frame::EMPTY
        };
        right.apply(&NodeOp::Build { frame, entries: &entries });
        leaf.apply(&NodeOp::KeepLeft { keep: cut.keep, right: 9, upper: &cut.separator });
        leaf.check(&before[..cut.keep].iter().cloned().collect());
        right.check(&before[cut.keep..].iter().cloned().collect());
    }
}

/// A full leaf with the longest fences and entries and the most columns can still be split.
#[test]
fn the_directory_leaves_space_for_splits() {
    let widths = vec![0; columns_max(PAGE_BYTES)];
    let fence_bytes = node::key_bytes_max(PAGE_BYTES);
    let (lower, upper) = (vec![5; fence_bytes], vec![6; fence_bytes]);
    let mut leaf = Leaf::new(&widths);
    let frame = Frame { stamped: true, lower: &lower, upper: &upper, widths: &widths, ..Frame::EMPTY };
    leaf.apply(&NodeOp::Build { frame, entries: &[] });
    let value_bytes = node::entry_bytes_max(PAGE_BYTES) - 10 - 2;
    let value = vec![0x21; value_bytes];
    assert!(leaf.put(&[5, 9], &value), "the longest entry fits");
    assert!(split::cut_leaf(leaf.node(), &[5, 8], value_bytes).is_some());
    assert!(split::cut_leaf(leaf.node(), &[6, 0], value_bytes).is_some());
}

#[test]
fn damage_is_found_or_harmless() {
    for seed in 0..2 {
        let mut random = Random::new(seed);
        let (leaf, _) = changed(&mut random, 120);
        for at in 32..PAGE_BYTES {
            let mut page = leaf.page.clone();
            page[at] ^= 1 << random.below(8);
            if check::damage(&page).is_none() {
                let _ = entries_of(NodeRef::new(&page));
            }
            change_at_random(&mut random, &mut page);
        }
    }
}

/// Redo on a damaged page is refused or harmless.
fn change_at_random(random: &mut Random, page: &mut [u8]) {
    let slot = random.below(40);
    let value = any_value(random);
    let op = match random.below(5) {
        0 => NodeOp::Insert { slot, suffix: b"suffix", value: &value },
        1 => NodeOp::Remove { slot },
        2 => NodeOp::Replace { slot, value: &value },
        3 => NodeOp::Stamp { slot, stamp: Stamp::default() },
        _ => NodeOp::Rebuild { prefix_bytes: 0 },
    };
    let _ = redo::change(page, &op);
    let _ = check::damage(page);
}

/// Returns a root leaf with four rows of the same length in its columns.
fn four_rows() -> Leaf {
    let mut random = Random::new(5);
    let value = [&[0; STAMP_BYTES][..], &any_row(&mut random, WIDTHS, 400).unwrap()].concat();
    let mut leaf = Leaf::new(WIDTHS);
    (0..4).for_each(|key| assert!(leaf.put(&int_key(key), &value)));
    leaf.apply(&NodeOp::Rebuild { prefix_bytes: 0 });
    assert_eq!((leaf.node().columns().unwrap().rows(), leaf.node().prefix().len()), (4, 0));
    leaf
}

fn u16_at(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
}

#[test]
fn redo_refuses_a_leaf_by_columns_without_columns() {
    let leaf = four_rows();
    let value = leaf.node().whole_value(2);
    for count in [0, columns_max(PAGE_BYTES) as u16 + 1, u16::MAX] {
        for op in [
            NodeOp::Insert { slot: 0, suffix: b"a", value: &value },
            NodeOp::Replace { slot: 2, value: &value },
            NodeOp::Replace { slot: 2, value: &value[..STAMP_BYTES] },
            NodeOp::Remove { slot: 2 },
            NodeOp::Stamp { slot: 2, stamp: Stamp::default() },
            NodeOp::Flags { slot: 2, flags: 1, txn: 1 },
            NodeOp::Rebuild { prefix_bytes: 0 },
            NodeOp::KeepLeft { keep: 2, right: 9, upper: b"z" },
        ] {
            let mut page = leaf.page.clone();
            assert_eq!(redo::change(&mut page, &op), Some(()), "{op:?} fits the sound leaf");
            let mut page = leaf.page.clone();
            page[62..64].copy_from_slice(&count.to_le_bytes());
            assert_eq!(redo::change(&mut page, &op), None, "{count} columns: {op:?}");
            assert!(check::damage(&page).is_some());
        }
    }
}

/// One minipage overlaps the ends of another column, so redo would read the new values as ends.
#[test]
fn redo_refuses_minipages_that_overlap() {
    let mut leaf = four_rows();
    let starts_at = PAGE_BYTES - 2 * WIDTHS.len();
    let [number, ends] = [2, u16_at(&leaf.page, starts_at + 2)];
    assert_eq!(leaf.node().row_number(number), Some(number));
    let mut value = leaf.node().whole_value(number);
    let column = STAMP_BYTES + 1 + WIDTHS.len().div_ceil(8);
    value[column..column + 4].fill(0xFF);
    let replace = NodeOp::Replace { slot: number, value: &value };
    assert_eq!(redo::change(&mut leaf.page.clone(), &replace), Some(()));
    // Value 2 of column 0 now lies over end 1 of column 1, where value 2 of column 1 begins.
    let start = ends + 2 * (number - 1) - 4 * number;
    leaf.page[starts_at..starts_at + 2].copy_from_slice(&(start as u16).to_le_bytes());
    assert_eq!(redo::change(&mut leaf.page, &replace), None);
}

#[test]
fn any_bytes_are_refused_or_read() {
    let mut random = Random::new(77);
    let mut sound = 0;
    for _ in 0..6000 {
        let (mut leaf, _) = changed_few(&mut random);
        for _ in 0..random.below(4) {
            let at = match random.below(3) {
                0 => 32 + random.below(80),
                1 => PAGE_BYTES - 1 - random.below(300),
                _ => 32 + random.below(PAGE_BYTES - 32),
            };
            leaf[at] = random.next() as u8;
        }
        if check::damage(&leaf).is_none() {
            let _ = entries_of(NodeRef::new(&leaf));
            sound += 1;
        }
        change_at_random(&mut random, &mut leaf);
    }
    assert!(sound > 300, "only {sound} pages were sound");
}

/// Returns a small leaf with rows in columns.
fn changed_few(random: &mut Random) -> (Vec<u8>, usize) {
    let mut leaf = Leaf::new(WIDTHS);
    let count = 1 + random.below(5);
    for key in 0..count {
        let value = any_value(random);
        leaf.put(&int_key(key as i64), &value);
    }
    rebuild(&mut leaf);
    (leaf.page, count)
}

#[test]
fn a_build_that_does_not_fit_is_refused() {
    let frame = Frame { stamped: true, widths: WIDTHS, ..Frame::EMPTY };
    let mut page = vec![0; PAGE_BYTES];
    let mut entries = Vec::new();
    redo::push_entry(&mut entries, b"k", &[0; STAMP_BYTES - 1]);
    assert_eq!(redo::change(&mut page, &NodeOp::Build { frame, entries: &entries }), None, "no stamp");
    let many = vec![4; columns_max(PAGE_BYTES) + 1];
    let wide = Frame { widths: &many, ..frame };
    assert_eq!(redo::change(&mut page, &NodeOp::Build { frame: wide, entries: &[] }), None, "columns");
    let inner = Frame { level: 1, ..frame };
    assert_eq!(redo::change(&mut page, &NodeOp::Build { frame: inner, entries: &[] }), None, "level");
    entries.clear();
    (0..9).for_each(|_| redo::push_entry(&mut entries, b"k", &[0; 1000]));
    assert_eq!(redo::change(&mut page, &NodeOp::Build { frame, entries: &entries }), None, "space");
}

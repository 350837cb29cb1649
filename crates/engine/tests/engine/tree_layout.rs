//! Snapshot tests of the stored bytes of trees: nodes, redo payloads, overflow pages. Databases depend on
//! these bytes, so a change needs a new format version.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::new_pager;
use varve_engine::node::Stamp;
use varve_engine::node::edit::Frame;
use varve_engine::overflow;
use varve_engine::redo::{self, NodeOp, Payload};
use varve_engine::tree::{Tree, TreeKind};
use varve_pager::{Access, SpaceId};

const FRAME: Frame<'static> = Frame {
    level: 0,
    stamped: true,
    right: 0x0A0B_0C0D,
    leftmost: 0,
    newest_txn: 0x1122,
    lower: b"ka",
    upper: b"kz",
    prefix: b"k",
    widths: &[],
};

fn payload_of(op: &NodeOp<'_>) -> (u8, Vec<u8>) {
    let mut payload = Payload::new();
    let code = redo::encode(op, &mut payload);
    (code, payload.to_vec())
}

#[test]
fn node() {
    let mut page = vec![0xEE; 4096];
    let mut entries = Vec::new();
    redo::push_entry(&mut entries, b"b", &[7; 15]);
    redo::push_entry(&mut entries, b"cdefg", &[8; 16]);
    redo::change(&mut page, &NodeOp::Build { frame: FRAME, entries: &entries }).unwrap();
    redo::change(
        &mut page,
        &NodeOp::Stamp { slot: 0, stamp: Stamp { txn: 0x0605_0403_0201, roll: 9, flags: 1 } },
    );
    assert!(page[..32].iter().all(|byte| *byte == 0xEE), "the pager's header is not the node's");
    // Level, flags (stamped, prefix implied), slots, heap start, garbage, right, leftmost.
    assert_eq!(page[32..36], [0, 3, 2, 0]);
    assert_eq!(page[36..48], [0xD2, 0x0F, 0, 0, 0, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A]);
    // Leftmost, lengths of prefix, lower and upper fence, last insert, run, reserved, newest transaction.
    assert_eq!(page[48..64], [0, 0, 0, 0, 1, 0, 2, 0, 2, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(page[64..72], [0x22, 0x11, 0, 0, 0, 0, 0, 0]);
    // Slots: head (a number), offset, suffix length.
    assert_eq!(page[72..80], [0, 0, 0, b'b', 0xE9, 0x0F, 1, 0]);
    assert_eq!(page[80..88], [b'f', b'e', b'd', b'c', 0xD2, 0x0F, 5, 0]);
    assert!(page[88..0xFD2].iter().all(|byte| *byte == 0));
    let tail = [
        &[16, 0][..],
        b"cdefg",
        &[8; 16],
        &[15, 0],
        b"b",
        &[1, 1, 2, 3, 4, 5, 6, 9, 0, 0, 0, 0, 0, 0, 0],
        b"k",
        b"ka",
        b"kz",
    ];
    assert_eq!(page[0xFD2..], tail.concat());
}

#[test]
fn leaf_by_columns() {
    let mut page = vec![0xEE; 4096];
    let mut entries = Vec::new();
    let row = [1, 0, 1, 2, 3, 4, 10, 0, b'h', b'i'];
    redo::push_entry(&mut entries, b"b", &[&[7; 15][..], &row].concat());
    redo::push_entry(&mut entries, b"c", &[&[8; 15][..], &[0x21]].concat());
    let frame = Frame { widths: &[4, 0], ..FRAME };
    redo::change(&mut page, &NodeOp::Build { frame, entries: &entries }).unwrap();
    // Level, flags (stamped, prefix implied, by columns), slots, heap start.
    assert_eq!(page[32..38], [0, 7, 2, 0, 0xC2, 0x0F]);
    // The number of columns.
    assert_eq!(page[62..64], [2, 0]);
    assert_eq!(page[72..80], [0, 0, 0, b'b', 0xD5, 0x0F, 1, 0]);
    assert_eq!(page[80..88], [0, 0, 0, b'c', 0xC2, 0x0F, 1, 0]);
    let tail = [
        &[16, 0][..],
        b"c",
        &[8; 15],
        &[0x21],
        // An entry whose row has the number 0 in the columns.
        &[0, 0x80],
        b"b",
        &[7; 15],
        // Head and NULL bits, the fixed column, the end of the variable value, and the value.
        &[1, 0],
        &[1, 2, 3, 4],
        &[2, 0, b'h', b'i'],
        // The directory: start of the heads, number of rows, widths, starts.
        &[0xE7, 0x0F, 1, 0, 4, 0, 0xE9, 0x0F, 0xED, 0x0F],
        b"k",
        b"ka",
        b"kz",
    ];
    assert_eq!(page[0xFC2..], tail.concat());
    let (code, payload) = payload_of(&NodeOp::Build { frame, entries: b"..." });
    assert_eq!((code, &payload[..5], payload.ends_with(b"kakzk...")), (25, &[2, 0, 4, 0, 0][..], true));
}

#[test]
fn redo_payloads() {
    let stamp = Stamp { txn: 0x0102, roll: 0x0304, flags: 5 };
    let cases: [(NodeOp<'_>, u8, &[u8]); 8] = [
        (NodeOp::Insert { slot: 3, suffix: b"ab", value: b"v" }, 17, &[3, 0, 2, 0, b'a', b'b', b'v']),
        (NodeOp::Replace { slot: 258, value: b"v" }, 18, &[2, 1, b'v']),
        (NodeOp::Remove { slot: 1 }, 19, &[1, 0]),
        (NodeOp::Stamp { slot: 1, stamp }, 20, &[1, 0, 5, 2, 1, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]),
        (NodeOp::Flags { slot: 1, flags: 1, txn: 7 }, 21, &[1, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0]),
        (NodeOp::Rebuild { prefix_bytes: 4 }, 22, &[4, 0]),
        (NodeOp::KeepLeft { keep: 2, right: 9, upper: b"u" }, 23, &[2, 0, 9, 0, 0, 0, b'u']),
        (NodeOp::Newest { txn: 7 }, 24, &[7, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (op, code, payload) in cases {
        assert_eq!(payload_of(&op), (code, payload.to_vec()), "{op:?}");
    }
    let (code, payload) = payload_of(&NodeOp::Build { frame: FRAME, entries: b"..." });
    let fixed = [0, 1, 0x0D, 0x0C, 0x0B, 0x0A, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 1, 0];
    assert_eq!((code, payload), (16, [&fixed[..], b"kakzk..."].concat()));
}

#[test]
fn overflow_page_and_stub() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    let mut mtr = pager.begin().unwrap();
    let first = overflow::begin(&mut mtr, &tree).unwrap();
    mtr.commit();
    let pointer = overflow::fill(&pager, &tree, first, &[5; 4057]).unwrap();
    let no = first.no().0.to_le_bytes();
    assert_eq!(pointer, [&[0x21, 0xD9, 0x0F, 0, 0][..], &no].concat());
    let page = pager.fix_s(first, Access::Random).unwrap();
    assert_eq!(page[36..40], [0xD8, 0x0F, 0, 0]);
    assert!(page[40..].iter().all(|byte| *byte == 5));
    let next = u32::from_le_bytes(page[32..36].try_into().unwrap());
    assert_ne!(next, 0);
}

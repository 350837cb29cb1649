//! Fuzzes chains of overflow pages, which store a large value outside its leaf. The chain's pages have any
//! links and lengths. The leaf has an overflow pointer, which holds the length and the first page of the
//! chain.
//!
//! The input has these fields, in this order:
//!
//! | field | bytes |
//! |---|---|
//! | for each of four chain pages: next page, in the chain or any other; length | 1, 2 |
//! | length of the overflow pointer | 1 |
//! | if that is not 0: the overflow pointer | as many |
//! | if that is 0: length of the value, first page of the chain | 4, 1 |

use std::cell::OnceCell;

use varve_device::MemoryDirectory;
use varve_engine::overflow;
use varve_engine::redo::EngineRedo;
use varve_engine::tree::{Checker, Tree, TreeKind};
use varve_pager::{PageId, Pager, PagerConfig, SpaceId};

use crate::input::{Input, PAGE_BYTES};

const CHAIN_PAGES: usize = 4;
const NEXT: usize = 32;

struct ChainDatabase {
    pager: Pager,
    tree: Tree,
    pages: Vec<PageId>,
}

thread_local! {
    static PLACE: OnceCell<ChainDatabase> = const { OnceCell::new() };
}

/// Checks that a chain is reported as damaged, or has exactly as many bytes as its overflow pointer says.
pub fn overflow(bytes: &[u8]) {
    PLACE.with(|place| run(place.get_or_init(ChainDatabase::new), Input::new(bytes)));
}

fn run(place: &ChainDatabase, mut input: Input<'_>) {
    let mut mtr = place.pager.begin().expect("memory has room");
    let held: Vec<_> = place.pages.iter().map(|id| mtr.x(*id).expect("the page is there")).collect();
    for page in held {
        let next = place.number(input.byte());
        let length = u32::from(input.u16());
        let length = if length == 0xFFFF { u32::MAX } else { length };
        mtr.write(page, NEXT, &[next.to_le_bytes(), length.to_le_bytes()].concat());
    }
    mtr.commit();
    let pointer = pointer(place, &mut input);
    let mut out = Vec::new();
    let read = overflow::read(&place.pager, &place.tree, &pointer, &mut out);
    if read.is_ok() {
        assert_eq!(out.len(), overflow::payload_bytes(&pointer));
    }
    let mut checker = Checker::new();
    overflow::check(&place.pager, &place.tree, &pointer, &mut checker);
    assert!(
        read.is_ok() || !checker.damages().is_empty(),
        "the check overlooks what reading finds: {read:?}"
    );
    place.pager.checkpoint().expect("memory has room");
}

fn pointer(place: &ChainDatabase, input: &mut Input<'_>) -> Vec<u8> {
    let mut pointer = input.piece().to_vec();
    if pointer.is_empty() {
        pointer = vec![0x21];
        pointer.extend_from_slice(&input.u32().to_le_bytes());
        pointer.extend_from_slice(&place.number(input.byte()).to_le_bytes());
    }
    pointer[0] |= 0x20;
    pointer
}

impl ChainDatabase {
    fn new() -> ChainDatabase {
        let mut config = PagerConfig::new(MemoryDirectory::new());
        config.page_size = PAGE_BYTES;
        config.pool_bytes = 256 * PAGE_BYTES;
        config.log_segment_bytes = 1 << 20;
        config.log_capacity_bytes = 8 << 20;
        config.background = false;
        let pager = Pager::open(config, std::sync::Arc::new(EngineRedo)).expect("a pager in memory opens");
        let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).expect("memory has room");
        let pages = (0..CHAIN_PAGES).map(|_| begin(&pager, &tree)).collect();
        ChainDatabase { pager, tree, pages }
    }

    /// Returns a page number: a page of the chain, none, or another page.
    fn number(&self, which: u8) -> u32 {
        match which {
            0 => 0,
            250.. => u32::MAX - u32::from(which),
            200.. => u32::from(which),
            _ => self.pages[usize::from(which) % CHAIN_PAGES].no().0,
        }
    }
}

fn begin(pager: &Pager, tree: &Tree) -> PageId {
    pager.reserve(SpaceId::DATA, 1).expect("memory has room");
    let mut mtr = pager.begin().expect("memory has room");
    let first = overflow::begin(&mut mtr, tree).expect("memory has room");
    mtr.commit();
    first
}

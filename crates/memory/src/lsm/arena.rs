//! An arena: the chunks of a MemTable or of a run in the region. Bytes in an arena are taken one after the
//! other, and the whole arena is freed at once.
//!
//! A pointer to the first page leads to the whole arena. A page is a chunk of 4096 bytes:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | pointer to the next page; 0 = none |
//! | 8 | 8 | first page: end of the used part: bits 32..64 number of the chunk, bits 0..32 bytes in it |
//! | 16 | 8 | first page: pointer to the Bloom filter; 0 = none |
//! | 24 | 8 | first page: bytes of the Bloom filter |
//! | 32 | 8 | first page, run: pointer to the root node |
//! | 40 | 8 | first page: bytes of the entries |
//! | 48 | 8 | first page: number of keys |
//! | 56 | 8 | first page: number of tombstones |
//! | 64 | 96 | first page, MemTable: the first node of each level of the skip list |
//! | 160 | 32 | zeros |
//! | 192 | 8 each | 488 pointers to chunks; 0 after the last chunk |
//!
//! Invariants
//! 1. In a durable arena, a chunk is activated and listed in one publication. A freed chunk is removed from
//!    the list in one publication, too. So a crash loses no chunk.
//! 2. A volatile arena consists of reserved chunks, which a crash makes free. It is never written back.
//!
//! This module does not know what is stored in an arena.

use super::media::damaged;
use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer, Word};
use crate::publish::Step;
use crate::space::Space;
use crate::store_error::StoreResult;

/// The size of a page, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
const NEXT_AT: u64 = 0;
const USED_AT: u64 = 8;
const FACTS_AT: u64 = 16;
const CHUNKS_AT: usize = 192;
const PAGE_CHUNKS: usize = (PAGE_BYTES - CHUNKS_AT) / 8;
/// The size of the first chunks of an arena, in bytes.
const SMALL_CHUNK_BYTES: usize = 16_384;
/// The number of chunks with [`SMALL_CHUNK_BYTES`].
const SMALL_CHUNKS: usize = 16;
/// The number of bytes of all later chunks: a segment.
const LARGE_CHUNK_BYTES: usize = 65_536;
/// The number of chunks that one publication frees.
const FREED_AT_ONCE: usize = 7;

/// Whether a crash keeps an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A crash loses the arena.
    Volatile,
    /// The arena survives a crash, because its stores are written back.
    Durable,
}

/// The fields of the first page that describe a run or an immutable MemTable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ArenaFacts {
    pub(crate) filter: Pointer,
    pub(crate) filter_bytes: u64,
    pub(crate) root: u64,
    pub(crate) entry_bytes: u64,
    pub(crate) keys: u64,
    pub(crate) tombstones: u64,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    at: Pointer,
    len_bytes: usize,
}

impl Chunk {
    /// Returns whether this many bytes fit after the first `used` bytes.
    fn has_room(&self, used: usize, len_bytes: usize) -> bool {
        self.len_bytes - used.min(self.len_bytes) >= len_bytes
    }
}

/// The end of the used part of an arena. The arena can be reset to an earlier position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    chunk: usize,
    used: usize,
}

/// An arena.
pub(crate) struct Arena {
    owner: Owner,
    durability: Durability,
    pages: Vec<Pointer>,
    chunks: Vec<Chunk>,
    position: Position,
}

/// Reserves a page and fills it with zeros. A later fence of the caller makes them durable.
pub(crate) fn new_page(space: &Space, owner: Owner) -> StoreResult<Pointer> {
    let page = space.allocator().allocate(owner, PAGE_BYTES as u64)?;
    space.store_back(page, 0, &[0; PAGE_BYTES])?;
    Ok(page)
}

/// Reads the describing fields of the first page of an arena.
pub(crate) fn facts(space: &Space, page: Pointer) -> StoreResult<ArenaFacts> {
    let mut bytes = [0; 48];
    space.read(page, FACTS_AT, &mut bytes)?;
    Ok(ArenaFacts {
        filter: Pointer::from_u64(get_u64(&bytes, 0)),
        filter_bytes: get_u64(&bytes, 8),
        root: get_u64(&bytes, 16),
        entry_bytes: get_u64(&bytes, 24),
        keys: get_u64(&bytes, 32),
        tombstones: get_u64(&bytes, 40),
    })
}

/// Stores the describing fields in the first page. A later fence of the caller makes them durable.
pub(crate) fn store_facts(space: &Space, page: Pointer, facts: &ArenaFacts) -> StoreResult<()> {
    let words = [
        facts.filter.to_u64(),
        facts.filter_bytes,
        facts.root,
        facts.entry_bytes,
        facts.keys,
        facts.tombstones,
    ];
    space.store_back(page, FACTS_AT, words.map(u64::to_le_bytes).as_flattened())
}

impl Arena {
    /// Returns an arena without chunks, whose first page is new.
    pub(crate) fn new(owner: Owner, durability: Durability, page: Pointer) -> Arena {
        let position = Position { chunk: 0, used: 0 };
        Arena { owner, durability, pages: vec![page], chunks: Vec::new(), position }
    }

    /// Returns a new volatile arena for the same owner.
    ///
    /// Errors: the region is full.
    pub(crate) fn fresh(&self, space: &Space) -> StoreResult<Arena> {
        Ok(Arena::new(self.owner, Durability::Volatile, new_page(space, self.owner)?))
    }

    /// Reads the list of chunks of a durable arena. The time depends on the length of the list.
    pub(crate) fn read(space: &Space, owner: Owner, page: Pointer) -> StoreResult<Arena> {
        let mut arena = Arena::new(owner, Durability::Durable, page);
        let used = space.load(space.word(page, USED_AT)?);
        let mut page = page;
        loop {
            let mut bytes = [0; PAGE_BYTES];
            space.read(page, 0, &mut bytes)?;
            let pointers = (0..PAGE_CHUNKS).map(|number| get_u64(&bytes, CHUNKS_AT + 8 * number));
            for at in pointers.take_while(|pointer| *pointer != 0).map(Pointer::from_u64) {
                arena.chunks.push(Chunk { at, len_bytes: space.allocator().len_bytes(at)? as usize });
            }
            page = Pointer::from_u64(get_u64(&bytes, NEXT_AT as usize));
            if page.is_none() {
                break;
            }
            if arena.pages.contains(&page) {
                return Err(damaged("the pages of an arena", page.to_u64()));
            }
            arena.pages.push(page);
        }
        arena.position = Position { chunk: (used >> 32) as usize, used: used as u32 as usize };
        Ok(arena)
    }

    /// Returns the first page.
    pub(crate) fn page(&self) -> Pointer {
        self.pages.first().copied().unwrap_or_default()
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Returns the number of bytes of the used part.
    pub(crate) fn used_bytes(&self) -> u64 {
        let full = self.chunks.iter().take(self.position.chunk).map(|chunk| chunk.len_bytes).sum::<usize>();
        (full + self.position.used) as u64
    }

    /// Gives the bytes back that were taken after a position. Nothing may lead to these bytes any more.
    pub(crate) fn reset(&mut self, position: Position) {
        self.position = position;
    }

    /// Stores the end of the used part. A later fence of the caller makes it durable.
    pub(crate) fn store_position(&self, space: &Space) -> StoreResult<()> {
        let word = space.word(self.page(), USED_AT)?;
        space.store_word(word, (self.position.chunk as u64) << 32 | self.position.used as u64);
        Ok(())
    }

    /// Makes sure that the next [`Arena::take`] of this many bytes succeeds.
    ///
    /// Errors: the region is full. Then nothing has changed.
    pub(crate) fn reserve(&mut self, space: &Space, len_bytes: usize) -> StoreResult<()> {
        let chunk = self.chunks.get(self.position.chunk);
        if chunk.is_some_and(|chunk| chunk.has_room(self.position.used, len_bytes)) {
            return Ok(());
        }
        let chunk = match self.next_with_room(len_bytes) {
            Some(number) => number,
            None => self.add_chunk(space, len_bytes)?,
        };
        self.position = Position { chunk, used: 0 };
        Ok(())
    }

    /// Returns whether the next [`Arena::take`] of this many bytes needs no new chunk.
    pub(crate) fn has_room(&self, len_bytes: usize) -> bool {
        let chunk = self.chunks.get(self.position.chunk);
        chunk.is_some_and(|chunk| chunk.has_room(self.position.used, len_bytes))
            || self.next_with_room(len_bytes).is_some()
    }

    /// Returns the next empty chunk that has this many bytes.
    fn next_with_room(&self, len_bytes: usize) -> Option<usize> {
        let behind = self.chunks.iter().enumerate().skip(self.position.chunk + 1);
        behind.filter(|(_, chunk)| chunk.has_room(0, len_bytes)).map(|(number, _)| number).next()
    }

    fn add_chunk(&mut self, space: &Space, len_bytes: usize) -> StoreResult<usize> {
        let usual = if self.chunks.len() < SMALL_CHUNKS { SMALL_CHUNK_BYTES } else { LARGE_CHUNK_BYTES };
        let at = space.allocator().allocate(self.owner, len_bytes.max(usual) as u64)?;
        let listed = match self.durability {
            Durability::Volatile => Ok(()),
            Durability::Durable => self.list(space, at),
        };
        if let Err(error) = listed {
            space.give_up(at)?;
            return Err(error);
        }
        self.chunks.push(Chunk { at, len_bytes: space.allocator().len_bytes(at)? as usize });
        Ok(self.chunks.len() - 1)
    }

    /// Activates a chunk, and lists it in the last page, or in a new page if the last one is full.
    fn list(&mut self, space: &Space, chunk: Pointer) -> StoreResult<()> {
        let number = self.chunks.len();
        if let Some(page) = self.pages.get(number / PAGE_CHUNKS) {
            let word = space.word(*page, slot_at(number))?;
            let steps = [Step::Activate(chunk), Step::Store { word, value: chunk.to_u64() }];
            return Ok(space.allocator().publish(&steps)?);
        }
        let page = new_page(space, self.owner)?;
        let linked = self.link_page(space, page, chunk);
        match linked {
            Ok(()) => self.pages.push(page),
            Err(_) => space.give_up(page)?,
        }
        linked
    }

    fn link_page(&self, space: &Space, page: Pointer, chunk: Pointer) -> StoreResult<()> {
        space.store_back(page, CHUNKS_AT as u64, &chunk.to_u64().to_le_bytes())?;
        space.fence();
        let last = self.pages.last().copied().unwrap_or_default();
        let link = Step::Store { word: space.word(last, NEXT_AT)?, value: page.to_u64() };
        Ok(space.allocator().publish(&[Step::Activate(chunk), Step::Activate(page), link])?)
    }

    /// Takes this many bytes, aligned to a word.
    ///
    /// Errors: the region is full, and the room was not reserved.
    pub(crate) fn take(&mut self, space: &Space, len_bytes: usize) -> StoreResult<Pointer> {
        let len_bytes = len_bytes.next_multiple_of(8);
        self.reserve(space, len_bytes)?;
        let no_chunk = damaged("an arena without chunks", self.page().to_u64());
        let chunk = self.chunks.get(self.position.chunk).ok_or(no_chunk)?;
        let at = Pointer::from_u64(chunk.at.to_u64() + self.position.used as u64);
        self.position.used += len_bytes;
        Ok(at)
    }

    /// Stores bytes, and begins to write them back in a durable arena.
    #[inline]
    pub(crate) fn store(&self, space: &Space, at: Pointer, bytes: &[u8]) -> StoreResult<()> {
        match self.durability {
            Durability::Volatile => space.store(at, 0, bytes),
            Durability::Durable => space.store_back(at, 0, bytes),
        }
    }

    /// Does the same as [`Arena::store`], for a word.
    #[inline]
    pub(crate) fn store_word(&self, space: &Space, word: Word, value: u64) -> StoreResult<()> {
        self.store(space, Pointer::from_u64(word.offset()), &value.to_le_bytes())
    }

    /// Adds all chunks of the arena to `chunks`.
    pub(crate) fn add_chunks(&self, chunks: &mut Vec<Pointer>) {
        chunks.extend_from_slice(&self.pages);
        chunks.extend(self.chunks.iter().map(|chunk| chunk.at));
    }

    /// Frees a volatile arena.
    pub(crate) fn give_up(&self, space: &Space) -> StoreResult<()> {
        let mut chunks = Vec::with_capacity(self.pages.len() + self.chunks.len());
        self.add_chunks(&mut chunks);
        Ok(space.allocator().free_all(&chunks)?)
    }

    /// Frees some chunks of a durable arena that is not used any more. Returns whether only the first page is
    /// left.
    pub(crate) fn free_some(&mut self, space: &Space) -> StoreResult<bool> {
        let kept = self.chunks.len().saturating_sub(FREED_AT_ONCE);
        // One call frees only chunks of the last page that lists any. A page that lists none any more is
        // freed, too.
        let page = self.chunks.len().saturating_sub(1) / PAGE_CHUNKS;
        let kept = kept.max(page * PAGE_CHUNKS);
        let mut steps = Vec::with_capacity(2 * FREED_AT_ONCE);
        let at = self.pages.get(page).copied().unwrap_or_default();
        for (number, chunk) in self.chunks.iter().enumerate().skip(kept) {
            steps.push(Step::Free(chunk.at));
            steps.push(Step::Store { word: space.word(at, slot_at(number))?, value: 0 });
        }
        if !steps.is_empty() {
            space.allocator().publish(&steps)?;
            self.chunks.truncate(kept);
        }
        if self.pages.len() > 1
            && self.chunks.len() <= (self.pages.len() - 1) * PAGE_CHUNKS
            && let [.., before, last] = self.pages[..]
        {
            let word = space.word(before, NEXT_AT)?;
            space.allocator().publish(&[Step::Free(last), Step::Store { word, value: 0 }])?;
            self.pages.pop();
        }
        Ok(self.chunks.is_empty() && self.pages.len() == 1)
    }
}

fn slot_at(chunk: usize) -> u64 {
    (CHUNKS_AT + 8 * (chunk % PAGE_CHUNKS)) as u64
}

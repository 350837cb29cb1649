//! The file with the page map of a packed space. The map says where each page of the space is. The file has
//! two equal heads, and two places for each map page. A checkpoint writes map pages to the places that are
//! not in use, and then the heads make these places valid.
//!
//! ```text
//!    changed map pages --> their unused places --flush--> one head, durable --> the other head, durable
//!                                                              ^ from here on the new places are valid
//! ```
//!
//! Invariants
//! 1. The only valid copy of a head or map page is never overwritten. If a write is torn, the earlier copy is
//!    still there.
//! 2. The valid place of a map page is the newest one whose checkpoint is not newer than the head's.
//!    [`Head::versions`] is a sum over these versions. If the valid place can't be read, the sum differs, and
//!    the older place is not used instead. A checkpoint that failed leaves map pages with a higher checkpoint
//!    number. These map pages are dirty after a start, so the next checkpoint, which has the same number,
//!    overwrites them.
//! 3. A checkpoint writes every map page that did not exist at the previous checkpoint.
//! 4. A head with a right checksum was written whole. If it has impossible values, or belongs to another
//!    space, the database does not open.
//! 5. A head is written to both blocks before the next head is written to either. So one unreadable block
//!    loses nothing. If the device was full at the second write, the head is in only one block until there is
//!    space. A head whose write was refused may still be on the device. It is overwritten before the map
//!    pages that it names.
//! 6. The file gets the space for the map entries of new pages before the space grows by these pages.
//!
//! This module does not know slots or the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space, WriteOp, planted};

use super::Identity;
use super::format::{BLOCK_BYTES, BlockDamage, Head, MapPage, PLACES, Shape, map_page_of, version_mark};
use super::page_map::PageMap;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageNo, SpaceId};
use crate::base::lsn::Lsn;
use crate::home::files;

/// Blocks before the first map page.
const HEADS: u64 = 2;
/// The number of map pages that are read together.
const TOGETHER: u32 = 128;
/// The largest number of damaged map pages that an error names.
const NAMED_MAX: usize = 8;

/// The contents of a checkpoint of the map.
pub(crate) struct Checkpoint {
    /// The map pages that differ from the previous checkpoint, and all new ones.
    pub(crate) pages: Vec<MapPage>,
    /// Number of map pages after this checkpoint.
    pub(crate) map_pages: u32,
    /// The position at which reading the log has to begin.
    pub(crate) log_from: Lsn,
    /// End of the log at this moment.
    pub(crate) after: Lsn,
}

/// The valid version of a map page.
#[derive(Debug, Clone, Copy)]
struct CurrentCopy {
    /// The index of the valid place, 0 or 1.
    place: u8,
    /// The checkpoint that wrote it.
    checkpoint: u64,
}

struct State {
    head: Head,
    /// A block that certainly has the head.
    block: u64,
    /// Whether the other block certainly has the head, too.
    is_in_both: bool,
    turns: Vec<CurrentCopy>,
}

/// The open file.
pub(crate) struct MapFile {
    file: Arc<dyn BlockFile>,
    location: String,
    state: Mutex<State>,
}

/// Returns the name of the map's file of a space.
pub(crate) fn file_name(space: SpaceId) -> String {
    format!("{}.map.varve", space.name())
}

fn device_space(space: SpaceId) -> Space {
    if space == SpaceId::ROLLBACK { Space::Rollback } else { Space::Data }
}

/// Returns the byte offset of a place of a map page.
fn place_of(number: u32, turn: u8) -> u64 {
    (HEADS + 2 * u64::from(number) + u64::from(turn)) * BLOCK_BYTES as u64
}

/// Returns the length of a file with `map_pages` map pages.
fn len_bytes_for(map_pages: u32) -> u64 {
    place_of(map_pages, 0)
}

fn versions(turns: &[CurrentCopy]) -> u64 {
    let marks = (0..).zip(turns).map(|(number, turn)| version_mark(number, turn.checkpoint));
    marks.fold(0, u64::wrapping_add)
}

impl MapFile {
    /// Makes the file of an empty space. Its content is durable on return, but its name is not.
    pub(crate) fn create(directory: &dyn Directory, shape: Shape) -> Result<MapFile> {
        let name = file_name(shape.space);
        let file = directory.open(&name, OpenHow::or_create(device_space(shape.space)))?;
        file.set_len(0)?;
        file.set_len(len_bytes_for(0))?;
        let head = Head::new(shape);
        let state = State { head, block: 0, is_in_both: true, turns: Vec::new() };
        let location = format!("{}/{name}", directory.location());
        let made = MapFile { file, location, state: Mutex::new(state) };
        (0..HEADS).try_for_each(|block| made.write_block(block, &head))?;
        made.file.flush()?;
        Ok(made)
    }

    /// Opens the file of a space.
    pub(crate) fn open(directory: &dyn Directory, who: &Identity) -> Result<MapFile> {
        let name = file_name(who.space);
        let location = format!("{}/{name}", directory.location());
        let file = files::open_existing(who.space, directory, &name)?;
        let mut bytes = AlignedBuf::new(HEADS as usize * BLOCK_BYTES);
        if file.len_bytes()? >= bytes.len() as u64 {
            file.read_at(0, &mut bytes, Purpose::Mapping)?;
        }
        // A killed process may have left its last write in caches of the system.
        file.flush()?;
        let mut heads = Vec::with_capacity(HEADS as usize);
        for (block, bytes) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            match Head::decode(bytes).and_then(|head| is_of(head, who)) {
                Ok(head) => heads.push((head, block)),
                Err(BlockDamage::Checksum) => {}
                Err(damage) => return Err(refused(&location, damage)),
            }
        }
        let newest = heads.iter().max_by_key(|(head, _)| head.sequence).copied();
        let (head, block) = newest.ok_or_else(|| PagerError::Corrupt {
            what: format!("{location} is no map of pages (neither of its two heads can be read): restore it from a backup"),
        })?;
        let is_in_both = heads.len() == HEADS as usize && heads.iter().all(|(other, _)| *other == head);
        let state = State { head, block, is_in_both, turns: Vec::new() };
        Ok(MapFile { file, location, state: Mutex::new(state) })
    }

    /// Returns the head as it is on the device.
    pub(crate) fn head(&self) -> Head {
        self.state.lock().head
    }

    /// Reads the map of the last complete checkpoint. Also returns the map pages that a failed checkpoint has
    /// written. The map may have pages beyond the space's length. The log then says that they were cut off,
    /// or that they were written before the space grew.
    pub(crate) fn load(&self) -> Result<(PageMap, BTreeSet<u32>)> {
        let mut state = self.state.lock();
        let (map, mut stale, mut unsure) = (PageMap::new(), BTreeSet::new(), Vec::new());
        let head = state.head;
        state.turns = Vec::with_capacity(head.map_pages as usize);
        for first in (0..head.map_pages).step_by(TOGETHER as usize) {
            let count = TOGETHER.min(head.map_pages - first);
            let bytes = self.read_pairs(first, count)?;
            for (number, pair) in (first..).zip(bytes.chunks_exact(2 * BLOCK_BYTES)) {
                let chosen = self.choose(&head, number, pair)?;
                state.turns.push(chosen.turn);
                stale.extend(chosen.is_stale.then_some(number));
                unsure.extend(chosen.damage.map(|damage| (number, damage)));
                enter(&map, &chosen.page);
            }
        }
        match versions(&state.turns) == head.versions {
            true => Ok((map, stale)),
            false => Err(self.too_old(&head, &unsure)),
        }
    }

    /// Reads both places of some map pages. The file may end before a place that was never written, or inside
    /// a place whose write a crash interrupted. The missing bytes are zeros, as if the file were longer.
    fn read_pairs(&self, first: u32, count: u32) -> Result<AlignedBuf> {
        let mut bytes = AlignedBuf::new(2 * count as usize * BLOCK_BYTES);
        let offset = place_of(first, 0);
        let sector_bytes = u64::from(self.file.sector_bytes());
        let there_bytes = self.file.len_bytes()?.saturating_sub(offset) / sector_bytes * sector_bytes;
        let there_bytes = usize::try_from(there_bytes).unwrap_or(usize::MAX).min(bytes.len());
        if there_bytes > 0 {
            self.file.read_at(offset, &mut bytes[..there_bytes], Purpose::Mapping)?;
        }
        Ok(bytes)
    }

    /// Returns the newest version of a map page that is not newer than the head's checkpoint. The sum over
    /// the versions of all map pages shows whether they are the valid ones.
    fn choose(&self, head: &Head, number: u32, pair: &[u8]) -> Result<Chosen> {
        let (mut best, mut is_stale, mut damage): (Option<(u8, MapPage)>, _, _) = (None, false, None);
        for (place, block) in (0..).zip(pair.chunks_exact(BLOCK_BYTES)) {
            match MapPage::decode(block, number, &head.shape) {
                Ok(page) if page.checkpoint > head.checkpoint => is_stale = true,
                Ok(page) if best.as_ref().is_none_or(|(_, best)| best.checkpoint < page.checkpoint) => {
                    best = Some((place, page));
                }
                Ok(_) => {}
                Err(found) => damage = Some(found),
            }
        }
        let Some((place, page)) = best else {
            let why = damage.map_or_else(|| "both are too new".into(), |damage| damage.to_string());
            let what = format!(
                "page {number} of the map in {} is damaged in both of its places ({why}): restore it from a backup",
                self.location
            );
            return Err(PagerError::Corrupt { what });
        };
        // A block of zeros was never written, so it is no damage.
        let other = pair.chunks_exact(BLOCK_BYTES).nth(1 - usize::from(place));
        let damage = damage.filter(|_| other.is_some_and(|block| block.iter().any(|byte| *byte != 0)));
        Ok(Chosen { turn: CurrentCopy { place, checkpoint: page.checkpoint }, page, is_stale, damage })
    }

    /// Returns the error for a head that names other versions of map pages than the ones that were found. The
    /// outdated pages are among those of which one block cannot be read.
    fn too_old(&self, head: &Head, unsure: &[(u32, BlockDamage)]) -> PagerError {
        let named: Vec<String> =
            unsure.iter().take(NAMED_MAX).map(|(number, damage)| format!("{number} ({damage})")).collect();
        let which = match named.is_empty() {
            true => "which one, nothing says".to_owned(),
            false => format!("one of the two places cannot be read of page {}", named.join(", ")),
        };
        let what = format!(
            "a page of the map in {} is damaged, and what is left of it is older than checkpoint {} of the map ({which}): \
             restore it from a backup",
            self.location, head.checkpoint
        );
        PagerError::Corrupt { what }
    }

    /// Writes a checkpoint, which is durable on return. On failure the previous checkpoint stays valid.
    pub(crate) fn checkpoint(&self, next: &Checkpoint) -> Result<()> {
        let (turns, number) = self.write_pages(next)?;
        let mut state = self.state.lock();
        let head = Head {
            checkpoint: number,
            log_from: next.log_from,
            after: next.after,
            map_pages: next.map_pages,
            versions: versions(&turns),
            ..state.head
        };
        self.write_head(&mut state, head)?;
        state.turns = turns;
        Ok(())
    }

    /// Writes the map pages durably to the places that are not valid. Returns the versions that will be
    /// valid, and the checkpoint's number.
    fn write_pages(&self, next: &Checkpoint) -> Result<(Vec<CurrentCopy>, u64)> {
        let (head, mut turns) = {
            let mut state = self.state.lock();
            // If the write of a head was refused, the head may be on the device all the same, and name the
            // places that are overwritten here.
            self.settle_heads(&mut state)?;
            self.reserve(next.map_pages)?;
            (state.head, state.turns.clone())
        };
        assert!(next.map_pages as usize >= turns.len(), "the map of a space never has fewer pages");
        let written: BTreeSet<u32> = next.pages.iter().map(|page| page.number).collect();
        let fresh = turns.len() as u32..next.map_pages;
        assert!(fresh.clone().all(|number| written.contains(&number)), "a new map page is not written");
        let number = head.checkpoint + 1;
        turns.resize(next.map_pages as usize, CurrentCopy { place: 1, checkpoint: number });
        for chunk in next.pages.chunks(TOGETHER as usize) {
            let mut bytes = AlignedBuf::new(chunk.len() * BLOCK_BYTES);
            let mut ops = Vec::with_capacity(chunk.len());
            for (page, block) in chunk.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
                assert_eq!(page.checkpoint, number, "a map page of another checkpoint");
                page.encode(&head.shape, block);
                let turn = &mut turns[page.number as usize];
                turn.checkpoint = number;
                if !planted("packed: map pages are written to their valid place") {
                    turn.place = 1 - turn.place;
                }
                let (why, durability) = (Purpose::Mapping, Durability::Later);
                ops.push(WriteOp { offset: place_of(page.number, turn.place), buf: block, why, durability });
            }
            self.file.write_batch(&ops)?;
        }
        if !planted("packed: the head names its pages before they are flushed") {
            self.file.flush()?;
        }
        Ok((turns, number))
    }

    /// Returns the number of the next checkpoint.
    pub(crate) fn next_checkpoint(&self) -> u64 {
        self.state.lock().head.checkpoint + 1
    }

    /// Writes another length of the space durably, after space for its map was reserved. On failure the old
    /// length stays valid.
    pub(crate) fn resize(&self, pages: u32) -> Result<()> {
        let mut state = self.state.lock();
        self.reserve(pages.checked_sub(1).map_or(0, |last| map_page_of(PageNo(last)) + 1))?;
        let head = Head { pages, ..state.head };
        self.write_head(&mut state, head)
    }

    /// Makes the file long enough for `map_pages` map pages. The caller holds the lock of the state. The file
    /// does not become shorter when a space is cut, because the map keeps its length.
    fn reserve(&self, map_pages: u32) -> Result<()> {
        if self.file.len_bytes()? < len_bytes_for(map_pages) {
            self.file.set_len(len_bytes_for(map_pages))?;
        }
        Ok(())
    }

    /// Is called after a start, when files may be written. If the two blocks differ, writes the head to both
    /// of them. They differ if the last write of the head was interrupted, or one block can't be read.
    pub(crate) fn mend_heads(&self) -> Result<()> {
        self.settle_heads(&mut self.state.lock())
    }

    /// Writes the valid head to both blocks, unless both certainly have it.
    fn settle_heads(&self, state: &mut State) -> Result<()> {
        if state.is_in_both {
            return Ok(());
        }
        // A refused head may be on the device all the same, with the next sequence number. So this head gets
        // the number after that.
        let head = Head { sequence: state.head.sequence + 2, ..state.head };
        self.put_head(state, head)
    }

    /// Writes the next head.
    fn write_head(&self, state: &mut State, head: Head) -> Result<()> {
        self.settle_heads(state)?;
        let head = Head { sequence: state.head.sequence + 1, ..head };
        self.put_head(state, head)
    }

    /// Writes a head to both blocks, first to the block that may lack the valid head.
    fn put_head(&self, state: &mut State, head: Head) -> Result<()> {
        let (before, block) = (state.block, 1 - state.block);
        state.is_in_both = false;
        self.write_block(block, &head)?;
        (state.head, state.block) = (head, block);
        match self.write_block(before, &head) {
            // The head is valid, because it is durable in one block. The next write begins with the other
            // block.
            Err(error) if error.is_no_space() => Ok(()),
            written => written.map(|()| state.is_in_both = true),
        }
    }

    fn write_block(&self, block: u64, head: &Head) -> Result<()> {
        let bytes = AlignedBuf::copy_of(&head.encode());
        self.file.write_at(block * BLOCK_BYTES as u64, &bytes, Purpose::Mapping, Durability::Now)?;
        Ok(())
    }
}

/// The chosen version of a map page.
struct Chosen {
    turn: CurrentCopy,
    page: MapPage,
    /// Whether a failed checkpoint has written the other place.
    is_stale: bool,
    /// The reason why the other place can't be read. Either a crash tore its write, or it had the valid
    /// version.
    damage: Option<BlockDamage>,
}

fn is_of(head: Head, who: &Identity) -> std::result::Result<Head, BlockDamage> {
    let shape = head.shape;
    let is_same =
        (shape.database, shape.space, shape.page_size as usize) == (who.database, who.space, who.page_size);
    if is_same { Ok(head) } else { Err(BlockDamage::Foreign) }
}

fn refused(location: &str, damage: BlockDamage) -> PagerError {
    match damage {
        BlockDamage::Version(_) | BlockDamage::Foreign => {
            PagerError::Incompatible { what: format!("{location} cannot be used: {damage}") }
        }
        damage => PagerError::Corrupt {
            what: format!("{location} is damaged: {damage} under a right checksum: restore it from a backup"),
        },
    }
}

/// Enters the places of a map page into the map.
fn enter(map: &PageMap, page: &MapPage) {
    let first = u64::from(page.number) * u64::from(PLACES);
    let pages = (first..).map_while(|no| u32::try_from(no).ok());
    for (no, place) in pages.zip(&page.places) {
        map.swap(PageNo(no), *place);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use varve_device::{
        ErrorKind, Fate, Fault, Faulty, MemoryDirectory, Operation, RecordLog, Recorder, Rule, Timeline, When,
    };

    use super::super::unit_run::UnitRun;
    use super::*;

    const SHAPE: Shape =
        Shape { page_size: 4096, extent_bytes: 64 << 10, database: 77, space: SpaceId::DATA };

    const WHO: Identity = Identity { space: SpaceId::DATA, database: 77, page_size: 4096 };

    type Model = BTreeMap<u32, UnitRun>;

    fn place(address: u64) -> Option<UnitRun> {
        UnitRun::new(address, 3)
    }

    fn contents(map: &PageMap) -> Model {
        map.each().map(|(no, place)| (no.0, place)).collect()
    }

    /// Writes a checkpoint with these map pages of the model.
    fn checkpoint(file: &MapFile, model: &Model, numbers: &BTreeSet<u32>, round: u64) -> Result<()> {
        let before = file.head().map_pages;
        let map_pages = numbers.last().map_or(0, |last| last + 1).max(before);
        let pages = numbers.iter().copied().chain(before..map_pages).collect::<BTreeSet<u32>>();
        let page = |number: u32| MapPage {
            number,
            checkpoint: file.next_checkpoint(),
            places: (0..PLACES).map(|at| model.get(&(number * PLACES + at)).copied()).collect(),
        };
        file.checkpoint(&Checkpoint {
            pages: pages.into_iter().map(page).collect(),
            map_pages,
            log_from: Lsn::new(round * 100),
            after: Lsn::new(round * 100 + 7),
        })
    }

    /// Changes the places of pages in the model. Returns the map pages that differ.
    fn change(model: &mut Model, round: u64) -> BTreeSet<u32> {
        let changed = [(round as u32 % 3) * PLACES + 5, (round as u32 / 2) * PLACES];
        for (at, no) in changed.iter().enumerate() {
            match round % 5 {
                4 => drop(model.remove(no)),
                _ => model.extend(place(round * 8 + 100 * at as u64).map(|place| (*no, place))),
            }
        }
        changed.iter().map(|no| no / PLACES).collect()
    }

    #[test]
    fn checkpoints_come_back() {
        let directory = MemoryDirectory::new();
        let file = MapFile::create(&*directory, SHAPE).unwrap();
        let mut model = Model::new();
        for round in 1..20 {
            let numbers = change(&mut model, round);
            checkpoint(&file, &model, &numbers, round).unwrap();
            file.resize(round as u32).unwrap();
            let again = MapFile::open(&*directory, &WHO).unwrap();
            let (map, stale) = again.load().unwrap();
            assert_eq!((contents(&map), stale), (model.clone(), BTreeSet::new()));
            let head = again.head();
            assert_eq!((head.pages, head.checkpoint), (round as u32, round));
            assert_eq!((head.log_from.get(), head.after.get()), (round * 100, round * 100 + 7));
        }
    }

    fn fate(cut: u64, seed: usize, at: usize) -> Fate {
        match (seed + at) % 4 {
            0 => Fate::Absent,
            1 => Fate::Torn { unit_bytes: 512, seed: cut + at as u64 },
            2 => Fate::Garbage { seed: cut + at as u64 },
            _ => Fate::Present,
        }
    }

    /// With any subset of the writes in flight, the map after a crash is that of the last finished
    /// checkpoint, or of the unfinished one. The next checkpoint repairs what the unfinished one left.
    #[test]
    fn a_crash_finds_one_checkpoint_whole() {
        let inner = MemoryDirectory::new();
        drop(MapFile::create(&*inner, SHAPE).unwrap());
        let log = RecordLog::new();
        let file = MapFile::open(&*Recorder::wrap(inner, log.clone()), &WHO).unwrap();
        let mut models = vec![Model::new()];
        for round in 1..9 {
            let mut model = models.last().cloned().unwrap();
            let numbers = change(&mut model, round);
            checkpoint(&file, &model, &numbers, round).unwrap();
            models.push(model);
            log.mark(round);
            file.resize(round as u32).unwrap();
        }
        let mut timeline = Timeline::new(log.recording());
        for cut in 0..=timeline.end() {
            timeline.advance(cut);
            let newest = timeline.marks().last().copied().unwrap_or(0);
            for seed in 0..4 {
                let fates: Vec<Fate> = (0..timeline.pending().len()).map(|at| fate(cut, seed, at)).collect();
                let directory = timeline.image(&fates).remove(0);
                let found = MapFile::open(&*directory, &WHO).unwrap();
                let round = found.head().checkpoint;
                assert!((newest..=newest + 1).contains(&round), "cut {cut}: {round} after {newest}");
                let (map, mut numbers) = found.load().unwrap();
                let mut model = models[round as usize].clone();
                assert_eq!(contents(&map), model, "cut {cut}, seed {seed}");
                numbers.append(&mut change(&mut model, 20 + round));
                checkpoint(&found, &model, &numbers, round + 1).unwrap();
                let again = MapFile::open(&*directory, &WHO).unwrap();
                assert_eq!(contents(&again.load().unwrap().0), model, "cut {cut}, seed {seed}, again");
            }
        }
    }

    fn spoil(directory: &MemoryDirectory, offset: u64) {
        let file = directory.open("data.map.varve", OpenHow::existing(Space::Data)).unwrap();
        let rubbish = AlignedBuf::copy_of(&[0xAB; 512]);
        file.write_at(offset, &rubbish, Purpose::Mapping, Durability::Now).unwrap();
    }

    fn loaded(directory: &MemoryDirectory) -> Result<(Head, Model)> {
        let file = MapFile::open(directory, &WHO)?;
        let (map, _) = file.load()?;
        Ok((file.head(), contents(&map)))
    }

    fn with_bad_sector(directory: &MemoryDirectory, offset: u64) -> Arc<MemoryDirectory> {
        let copy = MemoryDirectory::from_images(directory.images());
        spoil(&copy, offset);
        copy
    }

    /// Found by review: if a map page or the length of the space could not be read, an older one was used
    /// silently.
    #[test]
    fn a_bad_sector_costs_nothing_or_is_said() {
        let directory = MemoryDirectory::new();
        let file = MapFile::create(&*directory, SHAPE).unwrap();
        let mut model = Model::new();
        let (mut unharmed, mut said) = (0, 0);
        for round in 1..12 {
            let numbers = change(&mut model, round);
            checkpoint(&file, &model, &numbers, round).unwrap();
            file.resize(1000 * round as u32).unwrap();
            let expected = (file.head(), model.clone());
            for offset in (0..file.file.len_bytes().unwrap()).step_by(512) {
                match loaded(&with_bad_sector(&directory, offset)) {
                    Ok(found) => {
                        assert_eq!(found, expected, "byte {offset}, round {round}");
                        unharmed += 1;
                    }
                    Err(error) => {
                        let (number, error) = ((offset / 8192).wrapping_sub(1), error.to_string());
                        assert!(offset >= place_of(0, 0), "a head is in two places: {error}");
                        assert!(error.contains(&format!("page {number} ")), "byte {offset}: {error}");
                        said += 1;
                    }
                }
            }
        }
        assert!(unharmed > said && said > 100, "{unharmed} and {said}");
    }

    /// A device may report an error for a write, and have the written bytes all the same.
    #[test]
    fn what_a_refused_head_names_is_not_written_over() {
        let directory = MemoryDirectory::new();
        drop(MapFile::create(&*directory, SHAPE).unwrap());
        let device = Faulty::wrap(directory.clone());
        let file = MapFile::open(&*device, &WHO).unwrap();
        let before: Model = [(1, place(8).unwrap())].into();
        let after: Model = [(1, place(16).unwrap())].into();
        checkpoint(&file, &before, &[0].into(), 1).unwrap();
        // This head will be refused.
        let twin_directory = MemoryDirectory::from_images(directory.images());
        let twin = MapFile::open(&*twin_directory, &WHO).unwrap();
        twin.load().unwrap();
        checkpoint(&twin, &after, &[0].into(), 2).unwrap();
        let arm = |when, fault| {
            device.arm(Rule { operation: Some(Operation::Write), space: None, when, fault });
        };
        arm(When::From(2), Fault::Fails(ErrorKind::NoSpace));
        assert!(checkpoint(&file, &after, &[0].into(), 2).unwrap_err().is_no_space());
        let block = 1 - file.state.lock().block;
        let bytes = AlignedBuf::copy_of(&twin.head().encode());
        let raw = directory.open("data.map.varve", OpenHow::existing(Space::Data)).unwrap();
        raw.write_at(block * BLOCK_BYTES as u64, &bytes, Purpose::Mapping, Durability::Now).unwrap();
        assert_eq!(loaded(&directory).unwrap().1, after, "it is there");
        // The next attempt is interrupted while it writes the map page.
        device.disarm();
        arm(When::Nth(3), Fault::Short);
        assert!(checkpoint(&file, &after, &[0].into(), 2).is_err());
        assert_eq!(loaded(&directory).unwrap().1, before);
        device.disarm();
        checkpoint(&file, &after, &[0].into(), 2).unwrap();
        assert_eq!(loaded(&directory).unwrap(), (file.head(), after));
    }

    /// Found by review: on a full device the space grew, but its map could not, and then no change was
    /// possible.
    #[test]
    fn a_space_is_not_longer_than_its_map_has_room_for() {
        let directory = MemoryDirectory::new();
        let device = Faulty::wrap(directory.clone());
        let file = MapFile::create(&*device, SHAPE).unwrap();
        file.resize(3 * PLACES).unwrap();
        assert_eq!(file.file.len_bytes().unwrap(), place_of(3, 0));
        let (operation, fault) = (Some(Operation::SetLen), Fault::Fails(ErrorKind::NoSpace));
        device.arm(Rule { operation, space: None, when: When::From(1), fault });
        assert!(file.resize(3 * PLACES + 1).unwrap_err().is_no_space());
        assert_eq!(loaded(&directory).unwrap().0.pages, 3 * PLACES);
        let model: Model = [(3 * PLACES - 1, place(8).unwrap())].into();
        checkpoint(&file, &model, &[2].into(), 1).unwrap();
        file.resize(1).unwrap();
        assert_eq!(loaded(&directory).unwrap(), (file.head(), model));
    }

    /// After a crash or a bad sector only one block has the head. After a start both have it again.
    #[test]
    fn a_head_that_is_in_one_block_is_written_to_the_other() {
        let directory = MemoryDirectory::new();
        let file = MapFile::create(&*directory, SHAPE).unwrap();
        file.resize(77).unwrap();
        for block in 0..HEADS {
            let copy = with_bad_sector(&directory, block * BLOCK_BYTES as u64);
            let again = MapFile::open(&*copy, &WHO).unwrap();
            again.mend_heads().unwrap();
            let other = with_bad_sector(&copy, (1 - block) * BLOCK_BYTES as u64);
            assert_eq!(loaded(&other).unwrap().0.pages, 77, "block {block}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let directory = MemoryDirectory::new();
        let file = MapFile::create(&*directory, SHAPE).unwrap();
        let model: Model = [(1, place(8).unwrap()), (PLACES + 1, place(16).unwrap())].into();
        for round in 1..3 {
            checkpoint(&file, &model, &[0, 1].into(), round).unwrap();
        }
        let open = || loaded(&directory).map(|_| ()).unwrap_err().to_string();
        spoil(&directory, place_of(1, 1));
        assert!(open().contains("cannot be read of page 1 (its checksum"), "{}", open());
        spoil(&directory, place_of(1, 0));
        assert!(open().contains("page 1 of the map in") && open().contains("data.map.varve"), "{}", open());
        let other = Identity { database: 78, ..WHO };
        let error = MapFile::open(&*directory, &other).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("belongs to another database"), "{error}");
        spoil(&directory, 0);
        assert!(MapFile::open(&*directory, &WHO).is_ok(), "one of two heads is enough");
        spoil(&directory, 4096);
        let error = MapFile::open(&*directory, &WHO).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("neither of its two heads"), "{error}");
    }
}

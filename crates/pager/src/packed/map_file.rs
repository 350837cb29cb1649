//! The map's file of a packed space: two heads written in turn, two places for each map page.
//!
//! ```text
//!    write (other places) --flush--> head with the new checkpoint (durable): now the other places are the ones that count
//! ```
//!
//! Invariants
//! 1. The only valid copy of anything is never written over: a torn head or map page leaves the one before.
//! 2. A map page counts if its checkpoint is at most the head's, the newest such place first. What a checkpoint wrote that
//!    came to nothing has a higher number: such pages are dirty after a start, so the next checkpoint, which has that
//!    number again, writes over them.
//! 3. A checkpoint writes every map page that is new with it.
//! 4. A head under a right checksum was written whole: if it says what cannot be, or is another space's, nothing is opened.
//!
//! What it does not know: slots, the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space, WriteOp, planted};

use super::Identity;
use super::format::{BLOCK_BYTES, BlockDamage, Head, MapPage, PLACES, Shape};
use super::page_map::PageMap;
use crate::error::{PagerError, Result};
use crate::ids::{PageNo, SpaceId};
use crate::lsn::Lsn;

/// Blocks before the first map page.
const HEADS: u64 = 2;
/// Map pages that are read together.
const TOGETHER: u32 = 128;

/// What a checkpoint of the map says.
pub(crate) struct Checkpoint {
    /// The map pages that differ from the checkpoint before, and all new ones.
    pub(crate) pages: Vec<MapPage>,
    /// Map pages there are.
    pub(crate) map_pages: u32,
    /// Where reading the log has to begin.
    pub(crate) log_from: Lsn,
    /// End of the log at this moment.
    pub(crate) after: Lsn,
}

/// Which of the two places of each map page counts.
type Turns = Vec<u8>;

struct State {
    head: Head,
    turns: Turns,
}

/// The open file.
pub(crate) struct MapFile {
    file: Arc<dyn BlockFile>,
    location: String,
    state: Mutex<State>,
}

/// Name of the map's file of a space.
pub(crate) fn file_name(space: SpaceId) -> String {
    format!("{}.map.varve", space.name())
}

fn device_space(space: SpaceId) -> Space {
    if space == SpaceId::ROLLBACK { Space::Rollback } else { Space::Data }
}

/// Byte offset of a place of a map page.
fn place_of(number: u32, turn: u8) -> u64 {
    (HEADS + 2 * u64::from(number) + u64::from(turn)) * BLOCK_BYTES as u64
}

impl MapFile {
    /// Makes the file of an empty space. Durable on return but for its name.
    pub(crate) fn create(directory: &dyn Directory, shape: Shape) -> Result<MapFile> {
        let name = file_name(shape.space);
        let file = directory.open(&name, OpenHow::or_create(device_space(shape.space)))?;
        file.set_len(0)?;
        file.set_len(HEADS * BLOCK_BYTES as u64)?;
        let made = MapFile {
            file,
            location: format!("{}/{name}", directory.location()),
            state: Mutex::new(State { head: Head::new(shape), turns: Vec::new() }),
        };
        made.write_head(&made.head())?;
        made.file.flush()?;
        Ok(made)
    }

    /// Opens the file of a space.
    pub(crate) fn open(directory: &dyn Directory, who: &Identity) -> Result<MapFile> {
        let name = file_name(who.space);
        let location = format!("{}/{name}", directory.location());
        let file = directory.open(&name, OpenHow::existing(device_space(who.space)))?;
        let mut bytes = AlignedBuf::new(HEADS as usize * BLOCK_BYTES);
        if file.len_bytes()? >= bytes.len() as u64 {
            file.read_at(0, &mut bytes, Purpose::Mapping)?;
        }
        // A killed process may have left its last write in caches; the next write goes over the other head.
        file.flush()?;
        let mut newest: Option<Head> = None;
        for block in bytes.chunks_exact(BLOCK_BYTES) {
            match Head::decode(block).and_then(|head| is_of(head, who)) {
                Ok(head) if newest.is_none_or(|best| best.sequence < head.sequence) => newest = Some(head),
                Ok(_) | Err(BlockDamage::Checksum) => {}
                Err(damage) => return Err(refused(&location, damage)),
            }
        }
        let head = newest.ok_or_else(|| PagerError::Corrupt {
            what: format!("{location} is no map of pages (neither of its two heads can be read): restore it from a backup"),
        })?;
        Ok(MapFile { file, location, state: Mutex::new(State { head, turns: Vec::new() }) })
    }

    /// The head as it is on the device.
    pub(crate) fn head(&self) -> Head {
        self.state.lock().head
    }

    /// Reads the map of the last complete checkpoint, and which map pages a checkpoint that came to nothing has touched.
    /// Pages beyond the space's length are there: a note in the log says that they mean nothing (a cut), or that they were
    /// written before the space got longer (growth).
    pub(crate) fn load(&self) -> Result<(PageMap, BTreeSet<u32>)> {
        let mut state = self.state.lock();
        let (map, mut stale) = (PageMap::new(), BTreeSet::new());
        let head = state.head;
        state.turns = Vec::with_capacity(head.map_pages as usize);
        for first in (0..head.map_pages).step_by(TOGETHER as usize) {
            let count = TOGETHER.min(head.map_pages - first);
            let bytes = self.read_pairs(first, count)?;
            for (number, pair) in (first..).zip(bytes.chunks_exact(2 * BLOCK_BYTES)) {
                let (turn, page, is_stale) = self.choose(&head, number, pair)?;
                state.turns.push(turn);
                stale.extend(is_stale.then_some(number));
                enter(&map, &page);
            }
        }
        Ok((map, stale))
    }

    /// Reads both places of some map pages. The file may end before a place that was never written, or within one whose
    /// write a crash cut short: zeros are what it gets when it becomes longer.
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

    /// The place that counts, and whether the other one was written by a checkpoint that came to nothing.
    fn choose(&self, head: &Head, number: u32, pair: &[u8]) -> Result<(u8, MapPage, bool)> {
        let (mut best, mut is_stale, mut reason): (Option<(u8, MapPage)>, _, _) = (None, false, None);
        for (turn, block) in (0..).zip(pair.chunks_exact(BLOCK_BYTES)) {
            match MapPage::decode(block, number, &head.shape) {
                Ok(page) if page.checkpoint > head.checkpoint => is_stale = true,
                Ok(page) if best.as_ref().is_none_or(|(_, best)| best.checkpoint < page.checkpoint) => {
                    best = Some((turn, page));
                }
                Ok(_) => {}
                Err(damage) => reason = Some(damage),
            }
        }
        let Some((turn, page)) = best else {
            let why = reason.map_or_else(|| "both are too new".into(), |damage| damage.to_string());
            let what = format!(
                "page {number} of the map in {} is damaged in both of its places ({why}): restore it from a backup",
                self.location
            );
            return Err(PagerError::Corrupt { what });
        };
        Ok((turn, page, is_stale))
    }

    /// Writes a checkpoint; durable on return. On failure the one before stays in force.
    pub(crate) fn checkpoint(&self, next: &Checkpoint) -> Result<()> {
        let (turns, number) = self.write_pages(next)?;
        let mut state = self.state.lock();
        let head = Head {
            checkpoint: number,
            log_from: next.log_from,
            after: next.after,
            map_pages: next.map_pages,
            sequence: state.head.sequence + 1,
            ..state.head
        };
        self.write_head(&head)?;
        *state = State { head, turns };
        Ok(())
    }

    /// Writes the map pages to their other places, durably; gives the places that will count and the checkpoint's number.
    fn write_pages(&self, next: &Checkpoint) -> Result<(Turns, u64)> {
        let (head, mut turns) = {
            let state = self.state.lock();
            (state.head, state.turns.clone())
        };
        assert!(next.map_pages as usize >= turns.len(), "the map of a space never has fewer pages");
        let written: BTreeSet<u32> = next.pages.iter().map(|page| page.number).collect();
        let fresh = turns.len() as u32..next.map_pages;
        assert!(fresh.clone().all(|number| written.contains(&number)), "a new map page is not written");
        turns.resize(next.map_pages as usize, 1);
        let number = head.checkpoint + 1;
        for chunk in next.pages.chunks(TOGETHER as usize) {
            let mut bytes = AlignedBuf::new(chunk.len() * BLOCK_BYTES);
            let mut ops = Vec::with_capacity(chunk.len());
            for (page, block) in chunk.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
                assert_eq!(page.checkpoint, number, "a map page of another checkpoint");
                page.encode(&head.shape, block);
                let turn = &mut turns[page.number as usize];
                if !planted("packed: map pages are written to their valid place") {
                    *turn = 1 - *turn;
                }
                let (why, durability) = (Purpose::Mapping, Durability::Later);
                ops.push(WriteOp { offset: place_of(page.number, *turn), buf: block, why, durability });
            }
            self.file.write_batch(&ops)?;
        }
        if !planted("packed: the head names its pages before they are flushed") {
            self.file.flush()?;
        }
        Ok((turns, number))
    }

    /// Number of the next checkpoint.
    pub(crate) fn next_checkpoint(&self) -> u64 {
        self.state.lock().head.checkpoint + 1
    }

    /// Notes another length of the space, durably. On failure the one before stays in force.
    pub(crate) fn resize(&self, pages: u32) -> Result<()> {
        let mut state = self.state.lock();
        let head = Head { pages, sequence: state.head.sequence + 1, ..state.head };
        self.write_head(&head)?;
        state.head = head;
        Ok(())
    }

    fn write_head(&self, head: &Head) -> Result<()> {
        let block = AlignedBuf::copy_of(&head.encode());
        let turn = head.sequence % HEADS;
        self.file.write_at(turn * BLOCK_BYTES as u64, &block, Purpose::Mapping, Durability::Now)?;
        Ok(())
    }
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

    use varve_device::{Fate, MemoryDirectory, RecordLog, Recorder, Timeline};

    use super::super::place::Place;
    use super::*;

    const SHAPE: Shape =
        Shape { page_size: 4096, extent_bytes: 64 << 10, database: 77, space: SpaceId::DATA };

    const WHO: Identity = Identity { space: SpaceId::DATA, database: 77, page_size: 4096 };

    type Model = BTreeMap<u32, Place>;

    fn place(address: u64) -> Option<Place> {
        Place::new(address, 3)
    }

    fn contents(map: &PageMap) -> Model {
        map.each().map(|(no, place)| (no.0, place)).collect()
    }

    /// A checkpoint that writes these map pages as the model has them.
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

    /// Changes a page of three map pages in turn, and one of the last map page, which moves on.
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

    /// Whatever was in flight: the map is that of the last checkpoint that returned, or of the one that did not; and the
    /// next checkpoint makes good what that one left behind.
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

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let directory = MemoryDirectory::new();
        let file = MapFile::create(&*directory, SHAPE).unwrap();
        let model: Model = [(1, place(8).unwrap()), (PLACES + 1, place(16).unwrap())].into();
        for round in 1..3 {
            checkpoint(&file, &model, &[0, 1].into(), round).unwrap();
        }
        spoil(&directory, place_of(1, 0));
        let open = || MapFile::open(&*directory, &WHO).and_then(|file| file.load().map(|(map, _)| map));
        assert_eq!(contents(&open().unwrap()).len(), 2, "one of two places is enough");
        spoil(&directory, place_of(1, 1));
        let error = open().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("page 1 of the map in") && error.contains("data.map.varve"), "{error}");
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

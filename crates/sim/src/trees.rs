//! The workload `trees`: inserts into a B+tree and removals from it, which split and merge pages.
//!
//! A commit is the mini-transaction of one insert or removal here. It is acknowledged when the log is durable
//! up to the end of this mini-transaction. Splits and merges are separate mini-transactions that do not
//! change the contents.
//!
//! Invariants
//! 1. After a recovery the tree's pages are exactly the pages of its segment. No page is leaked, and no page
//!    is used twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_engine::node::Stamp;
use varve_engine::redo::EngineRedo;
use varve_engine::row::ROW_LAYOUT;
use varve_engine::tree::{Checker, Put, Tree, TreeKind};
use varve_pager::page::PAGE_HEADER_BYTES;
use varve_pager::{Access, Lsn, PageId, PageNo, Pager, SpaceId};

use crate::devices::Devices;
use crate::model::hash_bytes;
use crate::pages::{PAGE_BYTES, resize, small_config};
use crate::parts::Part;
use crate::search::{Recovered, Subject, Workbench};

/// The workload on trees, with the smallest pool.
pub struct Trees {
    /// The number of inserts and removals.
    pub commits: usize,
    /// The configuration, which does not change.
    pub part: Part,
    /// The page size in bytes.
    pub page_bytes: usize,
    /// The widths of the columns of the leaves; 0 means variable. The list is empty if the leaves are stored
    /// by rows.
    pub widths: &'static [u8],
}

/// After a recovery, the workload makes 1, 2, 4, ... more commits.
const COMMITS_AFTER_BITS: u64 = 8;

impl Trees {
    /// Returns a workload with this number of inserts and removals.
    pub fn new(commits: usize) -> Trees {
        Trees { commits, part: Part::Doublewrite, page_bytes: PAGE_BYTES, widths: &[] }
    }

    /// Makes the same workload as `new`, with leaves by columns.
    pub fn by_columns(commits: usize) -> Trees {
        Trees { widths: &[8, 0, 4, 0], ..Trees::new(commits) }
    }

    fn open(&self, devices: &Devices) -> Result<Pager, String> {
        let mut config = small_config(devices);
        resize(&mut config, self.page_bytes);
        self.part.configure(&mut config, devices);
        Pager::open(config, Arc::new(EngineRedo)).map_err(text)
    }

    /// Runs steps until there are this many commits.
    fn steps(
        &self,
        pager: &Pager,
        tree: Tree,
        bench: &mut Workbench,
        contents: Contents,
        commits: usize,
    ) -> Done {
        let Contents { entries: model, digest } = contents;
        let entry_factor = (self.page_bytes / PAGE_BYTES) as u64;
        let widths = self.widths;
        let mut worker =
            Worker { pager, tree, bench, model, digest, last: None, growing: true, entry_factor, widths };
        while worker.bench.history.digests().len() <= commits {
            worker.step()?;
        }
        worker.acknowledge()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

type Done = Result<(), String>;

fn hash(key: &[u8], payload: &[u8]) -> u64 {
    hash_bytes(hash_bytes(3, key), payload)
}

/// Stores the address of the tree in the root page.
fn note_place(pager: &Pager, tree: &Tree) -> Done {
    let mut mtr = pager.begin().map_err(text)?;
    let root = mtr.x(PageId::ROOT).map_err(text)?;
    let place = [tree.root().no().0.to_le_bytes(), tree.owner().to_le_bytes()].concat();
    mtr.write(root, PAGE_HEADER_BYTES, &place);
    mtr.commit();
    Ok(())
}

fn find_tree(pager: &Pager) -> Result<Option<Tree>, String> {
    let page = pager.fix_s(PageId::ROOT, Access::Random).map_err(text)?;
    let number = |at: usize| {
        page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let (root, owner) = (number(PAGE_HEADER_BYTES), number(PAGE_HEADER_BYTES + 4));
    let id = PageId::new(SpaceId::DATA, PageNo(root));
    Ok((root != 0).then(|| Tree::open(id, owner, TreeKind::Clustered)))
}

struct Worker<'a> {
    pager: &'a Pager,
    tree: Tree,
    bench: &'a mut Workbench,
    model: BTreeMap<Vec<u8>, u64>,
    digest: u64,
    last: Option<(usize, Lsn)>,
    /// Whether the tree grows now. Phases of growing and shrinking alternate.
    growing: bool,
    /// Entries are larger in larger pages, so that splits are as frequent.
    entry_factor: u64,
    widths: &'static [u8],
}

impl Worker<'_> {
    fn step(&mut self) -> Done {
        if self.model.len() > 400 {
            self.growing = false;
        } else if self.model.len() < 20 {
            self.growing = true;
        }
        match self.bench.rng.below(24) {
            0 => self.pager.tick_write(1 + self.bench.rng.below(20) as usize).map(|_| ()).map_err(text),
            1 if self.bench.rng.one_in(3) => self.pager.checkpoint().map_err(text),
            2..=4 => self.acknowledge(),
            dice if (dice < 20) == self.growing => self.put(),
            _ => self.remove(),
        }
    }

    fn acknowledge(&mut self) -> Done {
        if let Some((number, lsn)) = self.last {
            self.pager.flush_log(lsn).map_err(text)?;
            self.bench.history.acknowledge(number);
            self.last = None;
        }
        Ok(())
    }

    /// Returns a random key. Keys share prefixes, and have different lengths.
    fn some_key(&mut self) -> Vec<u8> {
        let group = self.bench.rng.below(5);
        let number = self.bench.rng.below(400);
        let tail = "x".repeat(self.bench.rng.below(3) as usize * 20);
        format!("group-{group}-of-keys/{number:06}{tail}").into_bytes()
    }

    fn put(&mut self) -> Done {
        let key = self.some_key();
        let len = self.entry_factor * if self.bench.rng.one_in(10) { 900 } else { 150 };
        let mut payload: Vec<u8> =
            (0..self.bench.rng.below(len)).map(|_| self.bench.rng.draw() as u8).collect();
        if !self.widths.is_empty() {
            payload = row(self.widths, &payload);
        }
        loop {
            let mut mtr = self.pager.begin().map_err(text)?;
            let mut at = self.tree.locate_x(self.pager, &mut mtr, &key).map_err(text)?;
            match self.tree.put(&mut mtr, &mut at, &key, Stamp::default(), &payload) {
                Put::Done => return self.commit(mtr, key, Some(hash_of(&payload))),
                Put::NeedsRoom => drop(mtr),
            }
            self.tree.make_room(self.pager, &key, payload.len()).map_err(text)?;
        }
    }

    /// Removes the first key after a random one.
    fn remove(&mut self) -> Done {
        let from = self.some_key();
        let Some(key) = self.model.range(from..).next().map(|(key, _)| key.clone()) else { return Ok(()) };
        let mut mtr = self.pager.begin().map_err(text)?;
        let mut at = self.tree.locate_x(self.pager, &mut mtr, &key).map_err(text)?;
        if !at.found {
            return Err("a key of the model is not in the tree".into());
        }
        self.tree.remove(&mut mtr, &mut at);
        let underfull = self.tree.is_underfull(&mtr, &at);
        self.commit(mtr, key.clone(), None)?;
        if underfull { self.tree.tidy(self.pager, &key).map_err(text) } else { Ok(()) }
    }

    fn commit(&mut self, mtr: varve_pager::Mtr<'_>, key: Vec<u8>, payload: Option<u64>) -> Done {
        let hash = |payload: u64| hash(&key, &payload.to_le_bytes());
        self.digest ^= self.model.get(&key).map_or(0, |old| hash(*old)) ^ payload.map_or(0, hash);
        match payload {
            Some(payload) => _ = self.model.insert(key, payload),
            None => _ = self.model.remove(&key),
        }
        let number = self.bench.history.begin(self.digest);
        self.last = Some((number, mtr.commit()));
        Ok(())
    }
}

/// Returns an encoded row whose variable columns share these bytes.
fn row(widths: &[u8], bytes: &[u8]) -> Vec<u8> {
    let fixed_bytes: usize = widths.iter().map(|width| usize::from(*width)).sum();
    let variable = widths.iter().filter(|width| **width == 0).count();
    let mut row = vec![ROW_LAYOUT];
    row.resize(1 + widths.len().div_ceil(8) + fixed_bytes, bytes.len() as u8);
    let values_at = row.len() + 2 * variable;
    for which in 1..=variable {
        let end = values_at + bytes.len() * which / variable;
        row.extend_from_slice(&(end as u16).to_le_bytes());
    }
    row.extend_from_slice(bytes);
    row
}

fn hash_of(payload: &[u8]) -> u64 {
    hash_bytes(4, payload)
}

/// The contents of a tree.
#[derive(Default)]
struct Contents {
    /// Hashes of the payloads, by key.
    entries: BTreeMap<Vec<u8>, u64>,
    digest: u64,
}

fn contents(pager: &Pager, tree: &Tree) -> Result<Contents, String> {
    let mut found = Contents::default();
    let mut visit = |_: &mut Checker, entry: varve_engine::node::EntryRef<'_>| {
        let (key, payload) = (entry.key().to_vec(), hash_of(entry.payload(&mut Vec::new())));
        found.digest ^= hash(&key, &payload.to_le_bytes());
        found.entries.insert(key, payload);
    };
    tree.check(pager, &mut Checker::new(), &mut visit).map_err(text)?;
    Ok(found)
}

fn make_tree(pager: &Pager, widths: &[u8]) -> Result<Tree, String> {
    let owner = pager.create_segment(SpaceId::DATA).map_err(text)?;
    let kind = TreeKind::Clustered;
    let tree = Tree::create_with(pager, SpaceId::DATA, owner, kind, widths).map_err(text)?;
    note_place(pager, &tree)?;
    Ok(tree)
}

/// Computes the digest of the tree, and checks the tree and the pages of its segment.
fn examine(pager: &Pager, tree: &Tree, damages: &mut Vec<String>) -> Result<u64, String> {
    let mut checker = Checker::new();
    let mut digest = 0;
    let mut visit = |_: &mut Checker, entry: varve_engine::node::EntryRef<'_>| {
        digest ^= hash(&entry.key(), &hash_of(entry.payload(&mut Vec::new())).to_le_bytes());
    };
    tree.check(pager, &mut checker, &mut visit).map_err(text)?;
    damages.extend(checker.damages().iter().cloned());
    let used: BTreeSet<PageId> = checker.claimed().keys().copied().collect();
    let owned = pager.pages_of_owner(SpaceId::DATA, tree.owner()).map_err(text)?;
    let owned: BTreeSet<PageId> = owned.into_iter().collect();
    if used != owned {
        let (leaked, foreign) = (owned.difference(&used).count(), used.difference(&owned).count());
        damages.push(format!("{leaked} pages of the segment are not in the tree, {foreign} the other way"));
    }
    Ok(digest)
}

impl Subject for Trees {
    fn work(&self, bench: &mut Workbench) -> Done {
        let pager = self.open(&bench.devices)?;
        let tree = make_tree(&pager, self.widths)?;
        self.steps(&pager, tree, bench, Contents::default(), self.commits)
    }

    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Done {
        let pager = self.open(twin)?;
        let contents =
            find_tree(&pager)?.map(|tree| contents(&pager, &tree)).transpose()?.unwrap_or_default();
        drop(pager);
        bench.history.resume(contents.digest);
        let pager = self.open(&bench.devices)?;
        bench.history.opened();
        let tree = match find_tree(&pager)? {
            Some(tree) => tree,
            None => make_tree(&pager, self.widths)?,
        };
        let commits = 1 << bench.rng.below(COMMITS_AFTER_BITS);
        self.steps(&pager, tree, bench, contents, commits)
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let pager = self.open(devices)?;
        opened();
        let mut damages = pager.check().map_err(text)?.damages;
        let digest = match find_tree(&pager)? {
            Some(tree) => examine(&pager, &tree, &mut damages)?,
            None => 0,
        };
        pager.shutdown().map_err(text)?;
        Ok(Recovered { digest, damages })
    }
}

//! The workload `engine`: several sessions run transactions on tables that are created and dropped meanwhile.
//! A crash test runs it on the storage engine.
//!
//! One thread runs all sessions in turn. A session writes only its own rows, so no session ever waits for
//! another.
//!
//! Invariants
//! 1. The effects of a transaction are added to the model when its commit begins. So the model has the commit
//!    order.
//! 2. Every read of a session is compared with the model at once.

mod catalog;
mod definitions;
mod family;
mod known;
mod places;
mod session;
mod sweep;
mod throng;

use std::sync::Arc;
use std::time::Duration;

use varve_engine::{Change, Database, Isolation, Options, Outcome, RowImage, ScanIndex, Table, TableDef};
use varve_pager::PagerConfig;

use self::session::{Session, data, data_of, key, scan, stored};
use crate::devices::Devices;
use crate::model::{Effect, Model, Row, body, hash_name};
use crate::moves::open_or_drain;
use crate::pages::{PAGE_BYTES, resize, small_config};
use crate::parts::Part;
use crate::relief::{Steps, drive};
use crate::rng::Rng;
use crate::search::{Recovered, STOPPED, Subject, WRONG, Workbench, outcome, went_on};

pub use self::throng::search_throng;

const SCHEMA: &str = "public";
const SESSIONS: usize = 3;
/// The number of keys of one session.
const KEYS: u64 = 120;
const TABLES_MAX: u64 = 4;
/// After a recovery, the workload makes 1, 2, 4, ... more commits.
const COMMITS_AFTER_BITS: u64 = 6;
/// The table whose keys come from a sequence, and the sequence.
const NUMBERED: &str = "numbered";
const NUMBERS: &str = "numbers";

/// Kinds of load, chosen by the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// All kinds of changes.
    Mixed,
    /// Ascending inserts, which split pages, and deletes, which merge pages.
    Growing,
    /// Rows that do not fit a page.
    Large,
    /// Tables and indexes are created and dropped.
    Definitions,
    /// Transfers between accounts, of which many are rolled back.
    Bank,
    /// Parents and children with a foreign key.
    Family,
    /// Views, roles, constraints and comments, and tables whose columns change.
    Catalog,
}

const LOADS: [Load; 7] =
    [Load::Mixed, Load::Growing, Load::Large, Load::Definitions, Load::Bank, Load::Family, Load::Catalog];

/// A planted fault of the workload, which the tests must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// No fault.
    Nothing,
    /// Commits are acknowledged before they are begun.
    EarlyAcknowledgement,
    /// One insert in a hundred is recorded but not made.
    LostRow,
}

/// The engine on a small configuration.
pub struct Engine {
    /// The number of commits.
    pub commits: usize,
    /// Kind of load; `None` means that the seed decides.
    pub load: Option<Load>,
    /// The configuration, which does not change.
    pub part: Part,
    /// The number of pages in the pool.
    pub pool_pages: usize,
    /// The page size in bytes.
    pub page_bytes: usize,
    /// The planted fault of the workload.
    pub plant: Plant,
}

impl Engine {
    /// Returns a workload with this number of commits.
    pub fn new(commits: usize) -> Engine {
        let (part, page_bytes) = (Part::Doublewrite, PAGE_BYTES);
        Engine { commits, load: None, part, pool_pages: 96, page_bytes, plant: Plant::Nothing }
    }

    fn open(&self, part: Part, devices: &Devices) -> Result<Arc<Database>, String> {
        Self::open_as(self.config(part, devices))
    }

    /// Opens the database on its devices after a crash, with the configuration that the part has at its end.
    /// A part that moves the database may have to finish the move first.
    fn open_again(&self, devices: &Devices) -> Result<Arc<Database>, String> {
        let config = self.config(self.part, devices);
        if self.part.moves() { open_or_drain(config, devices, Self::open_as) } else { Self::open_as(config) }
    }

    fn open_as(pager: PagerConfig) -> Result<Arc<Database>, String> {
        // One thread runs all sessions, so it must not wait for itself.
        let options = Options { lock_timeout: Some(Duration::from_millis(20)), ..Options::new(pager) };
        Database::open(options).map_err(text)
    }

    fn config(&self, part: Part, devices: &Devices) -> PagerConfig {
        let mut pager = small_config(devices);
        resize(&mut pager, self.page_bytes);
        pager.pool_bytes = self.pool_pages * pager.page_size;
        part.configure(&mut pager, devices);
        pager
    }

    /// Shuts the database down. If the part moves, the database then leaves its region.
    fn shut_down(&self, db: &Arc<Database>) -> Done {
        if self.part.moves() {
            db.pager().leave_region_at_shutdown();
        }
        db.shutdown().map_err(text)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

type Done = Result<(), String>;

struct Worker<'a> {
    db: &'a Arc<Database>,
    bench: &'a mut Workbench,
    load: Load,
    /// Whether the storage options of tables change.
    stores: bool,
    /// Whether tables and indexes are in tablespaces, which come and go.
    places: bool,
    plant: Plant,
    committed: Model,
    /// Whether a commit failed because the database stopped. Only a restart shows whether the transaction is
    /// committed.
    in_doubt: bool,
    sessions: [Option<Session>; SESSIONS],
    next_key: [u64; SESSIONS],
}

impl Worker<'_> {
    fn dice(&mut self, sides: u64) -> u64 {
        self.bench.rng.below(sides)
    }

    fn one(&mut self) -> Done {
        if self.committed.tables.is_empty() {
            return self.make_numbered();
        }
        if self.load == Load::Family && !self.committed.tables.contains_key(family::PARENTS) {
            return self.make_family();
        }
        let definitions = match self.load {
            Load::Definitions | Load::Catalog => 4,
            _ if self.stores || self.places => 12,
            _ => 60,
        };
        if self.plain_tables().count() == 0 || self.dice(definitions) == 0 {
            return self.define();
        }
        if self.dice(12) == 0 {
            return self.maintain();
        }
        let slot = self.dice(SESSIONS as u64) as usize;
        let Some(mut session) = self.sessions[slot].take() else {
            self.sessions[slot] = Some(self.begin());
            return Ok(());
        };
        match self.dice(10) {
            0 | 1 => return self.commit(session),
            2 if self.dice(if self.load == Load::Bank { 2 } else { 4 }) == 0 => {
                return session.txn.rollback().map_err(text);
            }
            3 => self.undone(&mut session, slot)?,
            _ => self.write(&mut session, slot)?,
        }
        self.sessions[slot] = Some(session);
        Ok(())
    }

    fn begin(&mut self) -> Session {
        let level = [Isolation::ReadCommitted, Isolation::RepeatableRead][self.dice(2) as usize];
        Session::new(self.db.begin(level))
    }

    fn commit(&mut self, session: Session) -> Done {
        if session.effects.is_empty() {
            return session.txn.commit().map_err(text);
        }
        let before = self.committed.clone();
        session.effects.iter().for_each(|effect| self.committed.apply(effect));
        let number = self.bench.history.begin(self.committed.digest());
        if self.plant == Plant::EarlyAcknowledgement {
            self.bench.history.acknowledge(number);
        }
        if let Err(what) = session.txn.commit().map_err(text) {
            self.in_doubt = what.contains(STOPPED);
            if !self.in_doubt {
                self.committed = before;
                self.bench.history.retract();
            }
            return Err(what);
        }
        self.bench.history.acknowledge(number);
        Ok(())
    }

    /// Runs purge, page writes, or a checkpoint.
    fn maintain(&mut self) -> Done {
        match self.dice(8) {
            0 => self.db.checkpoint().map_err(text),
            1..=3 => self.write_some(),
            _ => self.db.tick().map_err(text),
        }
    }

    /// Writes pages from the pool, and sometimes from persistent memory to the data files.
    fn write_some(&mut self) -> Done {
        let pages = 1 + self.dice(20) as usize;
        self.db.pager().tick_write(pages).map_err(text)?;
        if pages.is_multiple_of(4) {
            self.db.pager().tick_nvm(pages).map_err(text)?;
        }
        Ok(())
    }

    /// Makes changes that are undone within the transaction.
    fn undone(&mut self, session: &mut Session, slot: usize) -> Done {
        let kept = session.effects.len();
        if self.dice(2) == 0 {
            session.start(&self.committed);
            self.write_row(session, slot)?;
            session.txn.rollback_statement().map_err(text)?;
        } else {
            let savepoint = session.txn.savepoint();
            for _ in 0..1 + self.dice(4) {
                self.write(session, slot)?;
            }
            session.txn.rollback_to(savepoint).map_err(text)?;
        }
        session.effects.truncate(kept);
        self.read_back(session, slot)
    }

    fn write(&mut self, session: &mut Session, slot: usize) -> Done {
        session.start(&self.committed);
        match (self.load, self.dice(10)) {
            (_, 0) => self.write_numbered(session)?,
            (Load::Bank, _) => self.transfer(session, slot)?,
            (Load::Family, 1..=7) => self.write_family(session, slot)?,
            _ => self.write_row(session, slot)?,
        }
        session.txn.end_statement();
        self.read_back(session, slot)
    }

    /// Returns the tables into which any row may be written.
    fn plain_tables(&self) -> impl Iterator<Item = &String> {
        self.committed.tables.keys().filter(|name| name.starts_with('t'))
    }

    fn some_table(&mut self) -> String {
        let count = self.plain_tables().count() as u64;
        let at = self.dice(count) as usize;
        self.plain_tables().nth(at).cloned().unwrap_or_default()
    }

    /// Returns a key of this session. With `fresh`, the key is new and higher than earlier ones.
    fn some_key(&mut self, slot: usize, fresh: bool) -> i64 {
        let number = if fresh {
            self.next_key[slot] += 1;
            self.next_key[slot]
        } else {
            self.next_key[slot].saturating_sub(self.dice(KEYS))
        };
        (number * SESSIONS as u64) as i64 + slot as i64
    }

    fn some_row(&mut self) -> Row {
        let len = match (self.load, self.dice(12)) {
            (Load::Large, 0..=3) => 1500 + self.dice(40_000),
            (_, 0) => 600 + self.dice(1200),
            (Load::Mixed, 1) => 3000 + self.dice(9000),
            (Load::Growing, _) => 100 + self.dice(200),
            _ => 10 + self.dice(90),
        };
        let group = self.dice(9) as i32;
        let balance = self.dice(1000) as i64;
        Row { group, balance, body: body(&mut self.bench.rng, len as usize) }
    }

    /// Inserts a row whose key comes from the sequence.
    fn write_numbered(&mut self, session: &mut Session) -> Done {
        let missing = || format!("{WRONG}: sequence {NUMBERS} is not in the catalog");
        let sequence = session.txn.catalog().sequence(SCHEMA, NUMBERS).ok_or_else(missing)?;
        let id = session.txn.next_value(sequence.id).map_err(text)?;
        let row = self.some_row();
        let table = session.table(NUMBERED)?;
        session.txn.insert(&table, &data(id, &row)).map_err(text)?;
        session.effects.push(Effect::Put(NUMBERED.into(), id, row));
        Ok(())
    }

    /// Inserts, updates or deletes one row, depending on what is possible.
    fn write_row(&mut self, session: &mut Session, slot: usize) -> Done {
        let name = self.some_table();
        let fresh = self.load == Load::Growing && self.dice(3) > 0 || self.dice(4) == 0;
        let id = self.some_key(slot, fresh);
        let row = self.some_row();
        let present = session.expected(&self.committed, &name, id).is_some();
        let table = session.table(&name)?;
        match (present, self.dice(3)) {
            (false, _) => {
                if self.plant != Plant::LostRow || self.dice(100) > 0 {
                    session.txn.insert(&table, &data_of(table.def(), id, &row)).map_err(text)?;
                }
                session.effects.push(Effect::Put(name, id, row));
            }
            (true, 0) if id % 4 == 0 => self.sweep(session, &table, id)?,
            (true, 0) => {
                self.modify(session, &table, id, &mut |_| Change::Delete)?;
                session.effects.push(Effect::Remove(name, id));
            }
            (true, _) => {
                let image = image_of(table.def(), id, &row)?;
                self.modify(session, &table, id, &mut |_| Change::Replace(image.clone()))?;
                session.effects.push(Effect::Put(name, id, row));
            }
        }
        Ok(())
    }

    fn modify(
        &mut self,
        session: &mut Session,
        table: &Table,
        id: i64,
        decide: &mut dyn FnMut(&Row) -> Change,
    ) -> Done {
        let key = key(table.def(), id);
        let mut wrong = None;
        let outcome = session.txn.modify(table, &key, &mut |row| {
            Ok(match stored(row) {
                Ok((_, row)) => decide(&row),
                Err(what) => {
                    wrong = Some(what);
                    Change::Skip
                }
            })
        });
        match (wrong, outcome.map_err(text)?) {
            (None, Outcome::Changed) => Ok(()),
            (wrong, outcome) => {
                Err(format!("{WRONG}: row {id} of {} is {outcome:?}: {wrong:?}", table.def().name))
            }
        }
    }

    /// Moves money between two rows of the session.
    fn transfer(&mut self, session: &mut Session, slot: usize) -> Done {
        let name = self.some_table();
        let (from, to) = (self.some_key(slot, false), self.some_key(slot, false));
        let known = |id| session.expected(&self.committed, &name, id).cloned();
        let (Some(payer), Some(payee)) = (known(from), known(to)) else {
            return self.write_row(session, slot);
        };
        let amount = self.dice(100) as i64;
        if from == to {
            return Ok(());
        }
        let table = session.table(&name)?;
        for (id, row, change) in [(from, payer, -amount), (to, payee, amount)] {
            let row = Row { balance: row.balance + change, ..row };
            let image = image_of(table.def(), id, &row)?;
            self.modify(session, &table, id, &mut |_| Change::Replace(image.clone()))?;
            session.effects.push(Effect::Put(name.clone(), id, row));
        }
        Ok(())
    }

    /// Reads one of the session's rows or a whole table, and compares it with the model.
    fn read_back(&mut self, session: &mut Session, slot: usize) -> Done {
        let name = match self.load == Load::Family && self.dice(2) == 0 {
            true => [family::PARENTS, family::CHILDREN][self.dice(2) as usize].to_owned(),
            false => self.some_table(),
        };
        session.start(&self.committed);
        let table = session.table(&name)?;
        if self.dice(6) == 0 {
            return self.read_all(session, &table);
        }
        let id = self.some_key(slot, false);
        let key = key(table.def(), id);
        let mut found = None;
        session.txn.get(&table, &key, &mut |row| found = Some(stored(row))).map_err(text)?;
        let found = found.transpose()?.map(|(_, row)| row);
        let expected = session.expected(&self.committed, &name, id);
        if found.as_ref() == expected {
            return Ok(());
        }
        Err(format!("{WRONG}: row {id} of {name} reads {found:?}, expected {expected:?}"))
    }

    fn read_all(&mut self, session: &mut Session, table: &Table) -> Done {
        let (def, level) = (table.def(), session.txn.isolation());
        let expected = session.expected_sum(&self.committed, &def.name);
        let by_index = def.indexes.iter().map(|index| ScanIndex::Secondary(index.id));
        for index in std::iter::once(ScanIndex::Primary).chain(by_index) {
            if scan(&mut session.txn, table, index)?.0 != expected {
                return Err(format!("{WRONG}: {} by {index:?} under {level:?} has other rows", def.name));
            }
        }
        Ok(())
    }
}

fn image_of(def: &TableDef, id: i64, row: &Row) -> Result<RowImage, String> {
    RowImage::encode(def.row_schema(), &data_of(def, id, row)).map_err(text)
}

/// Returns the digest of all tables and of the facts in the catalog. Adds a damage for each index that does
/// not match its table.
fn digest(db: &Arc<Database>, damages: &mut Vec<String>) -> Result<u64, String> {
    let mut txn = db.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let tables: Vec<Arc<TableDef>> = txn.catalog().tables().cloned().collect();
    let mut digest = 0;
    for def in tables.iter().filter(|def| def.schema == SCHEMA) {
        let table = txn.table(def).map_err(text)?;
        let (rows, largest) = scan(&mut txn, &table, ScanIndex::Primary)?;
        digest ^= hash_name("table", &def.name) ^ rows;
        if let Some(sequence) = txn.catalog().sequence(SCHEMA, NUMBERS).filter(|_| def.name == NUMBERED) {
            let next = txn.next_value(sequence.id).map_err(text)?;
            if next <= largest {
                damages.push(format!("the sequence gives {next}, but {largest} was given already"));
            }
        }
        for index in &def.indexes {
            digest ^= hash_name("index", &index.name);
            if scan(&mut txn, &table, ScanIndex::Secondary(index.id))?.0 != rows {
                damages.push(format!("index {} and table {} hold different rows", index.name, def.name));
            }
        }
    }
    damages.extend(family::orphans(&mut txn)?);
    let catalog = txn.catalog();
    damages.extend(catalog::contradictions(&catalog));
    digest ^= catalog::facts(&catalog).iter().fold(0, |sum, (thing, so)| sum ^ hash_name(thing, so));
    txn.commit().map_err(text)?;
    Ok(digest)
}

impl Steps for Worker<'_> {
    fn bench(&mut self) -> &mut Workbench {
        self.bench
    }

    fn step(&mut self) -> Done {
        self.one()
    }

    fn is_sure(&self) -> bool {
        !self.in_doubt
    }

    fn settle(&mut self) -> Done {
        self.db.tick().map_err(text)
    }

    fn finish(&mut self, shuts_down: bool) -> Done {
        self.sessions.iter_mut().for_each(|session| *session = None);
        self.db.tick().map_err(text)?;
        self.db.checkpoint().map_err(text)?;
        let mut damages = Vec::new();
        let is_right = digest(self.db, &mut damages)? == self.committed.digest();
        damages.extend(self.db.check().map_err(text)?.damages);
        if !is_right || !damages.is_empty() {
            return Err(format!("{WRONG}: all rows read right: {is_right}, damages: {damages:?}"));
        }
        if shuts_down { self.db.shutdown().map_err(text) } else { Ok(()) }
    }
}

impl Engine {
    /// Runs steps until there are this many commits. Returns the contents at the end.
    fn run(
        &self,
        db: &Arc<Database>,
        bench: &mut Workbench,
        committed: Model,
        commits: usize,
    ) -> Result<Model, String> {
        let load = self.load.unwrap_or_else(|| LOADS[bench.rng.below(LOADS.len() as u64) as usize]);
        let next_key = known::last_keys(&committed);
        let mut worker = Worker {
            db,
            bench,
            load,
            stores: self.part.compresses(),
            places: self.part.has_tablespaces(),
            plant: self.plant,
            committed,
            in_doubt: false,
            sessions: [const { None }; SESSIONS],
            next_key,
        };
        let mut errors = drive(&mut worker, commits);
        let committed = worker.committed;
        errors.extend(went_on(&errors, db.pager().is_sound()));
        outcome(errors).map(|()| committed).map_err(|what| format!("{what} ({load:?})"))
    }
}

impl Subject for Engine {
    fn work(&self, bench: &mut Workbench) -> Done {
        let stages = if self.part.moves() { self.part.stages() } else { vec![self.part] };
        let mut committed = Model::default();
        for (stage, part) in (1..).zip(&stages) {
            let db = bench.relief.make(|| self.open(*part, &bench.devices))?;
            committed = self.run(&db, bench, committed, self.commits * stage / stages.len())?;
            if stage < stages.len() {
                self.shut_down(&db)?;
            }
        }
        Ok(())
    }

    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Done {
        let committed = known::read(&self.open_again(twin)?)?;
        bench.history.resume(committed.digest());
        let mut db = self.open_again(&bench.devices)?;
        bench.history.opened();
        if self.part.moves() && bench.rng.one_in(2) {
            // The database is shut down while the transactions that the crash ended are not undone.
            self.shut_down(&db)?;
            drop(db);
            db = self.open(self.part, &bench.devices)?;
        }
        if bench.rng.one_in(3) {
            db.checkpoint().map_err(text)?;
        }
        // Transactions that the crash ended still have their rows locked, and the only thread must not wait
        // for them.
        db.tick().map_err(text)?;
        let commits = 1 << bench.rng.below(COMMITS_AFTER_BITS);
        self.run(&db, bench, committed, commits).map(|_| ())
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let mut db = self.open_again(devices)?;
        opened();
        if self.part.moves() {
            self.shut_down(&db).map_err(|error| format!("leaving: {error}"))?;
            drop(db);
            db = self.open(self.part, devices).map_err(|error| format!("moved: {error}"))?;
        }
        let mut damages = Vec::new();
        let digest = digest(&db, &mut damages).map_err(|what| format!("reading it: {what}"))?;
        db.tick().map_err(|error| format!("undo and purge: {error}"))?;
        damages.extend(db.check().map_err(|error| format!("checking it: {error}"))?.damages);
        db.shutdown().map_err(|error| format!("shutting it down: {error}"))?;
        Ok(Recovered { digest, damages })
    }
}

/// Seeds from `seed` on whose workloads have all kinds of load.
pub fn covering_seeds(seed: u64) -> [u64; LOADS.len()] {
    let load_of = |seed| Rng::new(seed).below(LOADS.len() as u64);
    let first = |load: usize| (seed..).find(|seed| load_of(*seed) == load as u64).unwrap_or(seed);
    std::array::from_fn(first)
}

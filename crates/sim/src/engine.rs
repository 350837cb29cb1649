//! The engine under test: transactions of several sessions on tables that come and go.
//!
//! One thread plays all sessions in turn. Each session writes rows of its own only, so nobody ever waits.
//!
//! Invariants
//! 1. A session's effects join the model when its commit begins, which is the commit order.
//! 2. What a session reads is compared with the model at once.
//!
//! What it does not know: pages, the log.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use varve_device::Directory;
use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Isolation, NewIndex, NewTable, Options, Outcome,
    PrimaryKey, RowImage, RowRef, ScanIndex, ScanSpec, Table, TableDef, Transaction,
};
use varve_pager::PagerConfig;

use crate::model::{Effect, Model, Row, body, hash_name, hash_row};
use crate::pages::small_config;
use crate::rng::Rng;
use crate::search::{Recovered, Subject, WRONG, Workbench};

const SCHEMA: &str = "public";
const SESSIONS: usize = 3;
/// Keys of one session.
const KEYS: u64 = 120;
const TABLES_MAX: u64 = 4;
/// Steps that may fail before a workload gives up.
const ERRORS_MAX: usize = 30;

/// Kinds of load, chosen by the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Everything.
    Mixed,
    /// Ascending inserts that split, deletes that merge.
    Growing,
    /// Rows that do not fit a page.
    Large,
    /// Tables and indexes made and dropped.
    Definitions,
    /// Transfers between accounts, many rolled back.
    Bank,
}

const LOADS: [Load; 5] = [Load::Mixed, Load::Growing, Load::Large, Load::Definitions, Load::Bank];

/// The engine on a small configuration.
pub struct Engine {
    /// Commits of the workload.
    pub commits: usize,
    /// Kind of load; `None` = by the seed.
    pub load: Option<Load>,
    /// Changes the configuration, for planted faults.
    pub configure: fn(&mut PagerConfig),
}

impl Engine {
    /// A workload of this many commits.
    pub fn new(commits: usize) -> Engine {
        Engine { commits, load: None, configure: |_| () }
    }

    fn options(&self, device: Arc<dyn Directory>) -> Options {
        let mut pager = small_config(device);
        pager.pool_bytes = 96 * pager.page_size;
        (self.configure)(&mut pager);
        // One thread plays all sessions: it must not wait for itself.
        Options { lock_timeout: Some(Duration::from_millis(20)), ..Options::new(pager) }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

type Done = Result<(), String>;

struct Session {
    txn: Transaction,
    effects: Vec<Effect>,
}

impl Session {
    /// The row as this session should see it.
    fn expected<'a>(&'a self, committed: &'a Model, table: &str, id: i64) -> Option<&'a Row> {
        let own = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Put(name, key, row) if name == table && *key == id => Some(Some(row)),
            Effect::Remove(name, key) if name == table && *key == id => Some(None),
            _ => None,
        });
        own.unwrap_or_else(|| committed.tables.get(table)?.rows.get(&id).map(|(row, _)| row))
    }

    fn table(&mut self, name: &str) -> Result<Arc<Table>, String> {
        let missing = || format!("{WRONG}: table {name} is not in the catalog");
        let def = self.txn.catalog().table(SCHEMA, name).ok_or_else(missing)?;
        self.txn.table(&def).map_err(text)
    }
}

fn key(def: &TableDef, id: i64) -> Vec<u8> {
    let mut key = Vec::new();
    def.push_key(&mut key, 0, &Datum::Int8(id));
    key
}

fn data(id: i64, row: &Row) -> [Datum<'_>; 4] {
    [Datum::Int8(id), Datum::Int4(row.group), Datum::Int8(row.balance), Datum::Text(&row.body)]
}

/// The id and row that are stored, or what is wrong with them.
fn stored(row: RowRef<'_>) -> Result<(i64, Row), String> {
    match (row.get(0), row.get(1), row.get(2), row.get(3)) {
        (Datum::Int8(id), Datum::Int4(group), Datum::Int8(balance), Datum::Text(body)) => {
            Ok((id, Row { group, balance, body: body.into() }))
        }
        other => Err(format!("a row has the columns {other:?}")),
    }
}

fn new_table(name: &str) -> NewTable {
    let column =
        |name: &str, column_type| ColumnDef { name: name.into(), column_type, not_null: true, default: None };
    NewTable {
        schema: SCHEMA.into(),
        name: name.into(),
        columns: vec![
            column("id", ColumnType::Int8),
            column("grp", ColumnType::Int4),
            column("balance", ColumnType::Int8),
            column("body", ColumnType::Text),
        ],
        primary_key: Some(PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] }),
        engine: None,
    }
}

struct Worker<'a> {
    db: &'a Arc<Database>,
    bench: &'a mut Workbench,
    load: Load,
    committed: Model,
    /// A commit failed: whether it happened shows only after a restart.
    in_doubt: bool,
    sessions: [Option<Session>; SESSIONS],
    next_key: [u64; SESSIONS],
}

impl Worker<'_> {
    fn dice(&mut self, sides: u64) -> u64 {
        self.bench.rng.below(sides)
    }

    fn step(&mut self) -> Done {
        let definitions = if self.load == Load::Definitions { 4 } else { 60 };
        if self.committed.tables.is_empty() || self.dice(definitions) == 0 {
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
        Session { txn: self.db.begin(level), effects: Vec::new() }
    }

    fn commit(&mut self, session: Session) -> Done {
        if session.effects.is_empty() {
            return session.txn.commit().map_err(text);
        }
        session.effects.iter().for_each(|effect| self.committed.apply(effect));
        let number = self.bench.history.begin(self.committed.digest());
        session.txn.commit().map_err(|error| {
            self.in_doubt = true;
            text(error)
        })?;
        self.bench.history.acknowledge(number);
        Ok(())
    }

    /// Purge, page writes, checkpoints.
    fn maintain(&mut self) -> Done {
        match self.dice(8) {
            0 => self.db.checkpoint().map_err(text),
            1..=3 => self.db.pager().tick_write(1 + self.dice(20) as usize).map(|_| ()).map_err(text),
            _ => self.db.tick().map_err(text),
        }
    }

    /// Writes that are undone within the transaction.
    fn undone(&mut self, session: &mut Session, slot: usize) -> Done {
        let kept = session.effects.len();
        if self.dice(2) == 0 {
            session.txn.start_statement();
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
        session.txn.start_statement();
        match self.load {
            Load::Bank => self.transfer(session, slot)?,
            _ => self.write_row(session, slot)?,
        }
        session.txn.end_statement();
        self.read_back(session, slot)
    }

    fn some_table(&mut self) -> String {
        let at = self.dice(self.committed.tables.len() as u64) as usize;
        self.committed.tables.keys().nth(at).cloned().unwrap_or_default()
    }

    /// A key of this session; new ones ascend.
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

    /// Inserts, updates or deletes one row, whichever is possible.
    fn write_row(&mut self, session: &mut Session, slot: usize) -> Done {
        let name = self.some_table();
        let fresh = self.load == Load::Growing && self.dice(3) > 0 || self.dice(4) == 0;
        let id = self.some_key(slot, fresh);
        let row = self.some_row();
        let present = session.expected(&self.committed, &name, id).is_some();
        let table = session.table(&name)?;
        match (present, self.dice(3)) {
            (false, _) => {
                session.txn.insert(&table, &data(id, &row)).map_err(text)?;
                session.effects.push(Effect::Put(name, id, row));
            }
            (true, 0) => {
                self.modify(session, &table, id, &mut |_| Change::Delete)?;
                session.effects.push(Effect::Remove(name, id));
            }
            (true, _) => {
                let image = RowImage::encode(table.def().row_schema(), &data(id, &row)).map_err(text)?;
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
            let schema = table.def().row_schema();
            let image = RowImage::encode(schema, &data(id, &row)).map_err(text)?;
            self.modify(session, &table, id, &mut |_| Change::Replace(image.clone()))?;
            session.effects.push(Effect::Put(name.clone(), id, row));
        }
        Ok(())
    }

    /// Reads one row of the session's own and compares.
    fn read_back(&mut self, session: &mut Session, slot: usize) -> Done {
        let name = self.some_table();
        let id = self.some_key(slot, false);
        session.txn.start_statement();
        let table = session.table(&name)?;
        let key = key(table.def(), id);
        let mut found = None;
        session.txn.get(&table, &key, &mut |row| found = Some(stored(row))).map_err(text)?;
        let found = found.transpose()?.map(|(_, row)| row);
        let expected = session.expected(&self.committed, &name, id);
        if session.txn.isolation() == Isolation::RepeatableRead || found.as_ref() == expected {
            return Ok(());
        }
        Err(format!("{WRONG}: row {id} of {name} reads {found:?}, expected {expected:?}"))
    }

    /// A transaction of definitions, alone: sessions in progress end first.
    fn define(&mut self) -> Done {
        for slot in 0..SESSIONS {
            if let Some(session) = self.sessions[slot].take() {
                self.commit(session)?;
            }
        }
        let mut session = self.begin();
        for _ in 0..1 + self.dice(2) {
            self.define_one(&mut session)?;
        }
        if self.dice(4) == 0 && !self.committed.tables.is_empty() {
            return session.txn.rollback().map_err(text);
        }
        self.commit(session)
    }

    fn define_one(&mut self, session: &mut Session) -> Done {
        session.txn.start_statement();
        let name = format!("t{}", self.dice(TABLES_MAX));
        let Some(def) = session.txn.catalog().table(SCHEMA, &name) else {
            session.txn.create_table(new_table(&name)).map_err(text)?;
            session.effects.push(Effect::CreateTable(name));
            return Ok(());
        };
        match (def.indexes.first(), self.dice(8)) {
            (None, 0..=4) => self.create_index(session, &def),
            (Some(index), 0..=2) => {
                session.txn.drop_index(def.id, index.id).map_err(text)?;
                session.effects.push(Effect::DropIndex(name, index.name.clone()));
                Ok(())
            }
            (_, 5 | 6) => {
                session.txn.truncate(def.id).map_err(text)?;
                session.effects.push(Effect::Truncate(name));
                Ok(())
            }
            (_, 7) => {
                session.txn.drop_table(def.id).map_err(text)?;
                session.effects.push(Effect::DropTable(name));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn create_index(&mut self, session: &mut Session, def: &TableDef) -> Done {
        let index = format!("{}_by_group", def.name);
        let new = NewIndex {
            table: def.id,
            name: index.clone(),
            columns: vec![1],
            unique: false,
            constraint: false,
        };
        session.txn.create_index(new).map_err(text)?;
        session.effects.push(Effect::CreateIndex(def.name.clone(), index));
        Ok(())
    }
}

/// XOR of the hashes of all rows that a scan meets.
fn scan(txn: &mut Transaction, table: &Table, index: ScanIndex) -> Result<u64, String> {
    let name = &table.def().name;
    let (mut sum, mut wrong) = (0, None);
    let spec = ScanSpec { index, ..ScanSpec::ALL };
    let mut on_row = |_: &[u8], row: RowRef<'_>| {
        match stored(row) {
            Ok((id, row)) => sum ^= hash_row(name, id, row.group, row.balance, &row.body),
            Err(what) => wrong = Some(what),
        }
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, &spec, &mut on_row).map_err(text)?;
    wrong.map_or(Ok(sum), Err)
}

/// Digest of all tables; damages are indexes that disagree with their table.
fn digest(db: &Arc<Database>, damages: &mut Vec<String>) -> Result<u64, String> {
    let mut txn = db.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let tables: Vec<Arc<TableDef>> = txn.catalog().tables().cloned().collect();
    let mut digest = 0;
    for def in tables.iter().filter(|def| def.schema == SCHEMA) {
        let table = txn.table(def).map_err(text)?;
        let rows = scan(&mut txn, &table, ScanIndex::Primary)?;
        digest ^= hash_name("table", &def.name) ^ rows;
        for index in &def.indexes {
            digest ^= hash_name("index", &index.name);
            if scan(&mut txn, &table, ScanIndex::Secondary(index.id))? != rows {
                damages.push(format!("index {} and table {} hold different rows", index.name, def.name));
            }
        }
    }
    txn.commit().map_err(text)?;
    Ok(digest)
}

impl Subject for Engine {
    fn work(&self, bench: &mut Workbench) -> Done {
        let db = Database::open(self.options(bench.device.clone())).map_err(text)?;
        let load = self.load.unwrap_or_else(|| LOADS[bench.rng.below(LOADS.len() as u64) as usize]);
        let committed = Model::default();
        let sessions = [const { None }; SESSIONS];
        let next_key = [0; SESSIONS];
        let mut worker = Worker { db: &db, bench, load, committed, in_doubt: false, sessions, next_key };
        let mut errors = Vec::new();
        while worker.bench.history.digests().len() <= self.commits
            && errors.len() < ERRORS_MAX
            && !worker.in_doubt
        {
            errors.extend(worker.step().err());
        }
        let worst = errors.iter().find(|what| what.starts_with(WRONG)).or(errors.first());
        worst.map_or(Ok(()), |what| Err(format!("{what} ({load:?})")))
    }

    fn recover(&self, device: Arc<dyn Directory>, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let db = Database::open(self.options(device)).map_err(text)?;
        opened();
        let mut damages = Vec::new();
        let digest = digest(&db, &mut damages)?;
        db.tick().map_err(text)?;
        damages.extend(db.check().map_err(text)?.damages);
        db.shutdown().map_err(text)?;
        Ok(Recovered { digest, damages })
    }
}

/// Seeds whose loads cover all kinds, from `seed` on.
pub fn covering_seeds(seed: u64) -> [u64; LOADS.len()] {
    let load_of = |seed| Rng::new(seed).below(LOADS.len() as u64);
    let first = |load: usize| (seed..).find(|seed| load_of(*seed) == load as u64).unwrap_or(seed);
    std::array::from_fn(first)
}

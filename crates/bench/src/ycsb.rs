//! The core workloads A to F of YCSB (Cooper et al., SoCC 2010), written in SQL. A row has ten fields of 100
//! bytes, and keys have a scrambled Zipfian distribution.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::database::{Connection, Param, Statement};
use crate::random::{Keys, Random, Zipfian};
use crate::values::Values;
use crate::workload::{Workload, load_rows};
use crate::{BenchError, Result};

const FIELDS: u64 = 10;
const FIELD_CHARS: usize = 100;
const SCAN_ROWS_MAX: u64 = 100;

const READ: usize = 0;
const SCAN: usize = 1;
const INSERT: usize = 2;
/// The statement that updates field 0. The statements for fields 1, 2, ... follow.
const UPDATE: usize = 3;

/// Percentages of the operations of one workload. The rest up to 100 percent are read-modify-write
/// operations.
#[derive(Debug, Clone, Copy)]
struct Mix {
    read: u64,
    update: u64,
    insert: u64,
    scan: u64,
}

const MIXES: &[(char, Mix)] = &[
    ('a', Mix { read: 50, update: 50, insert: 0, scan: 0 }),
    ('b', Mix { read: 95, update: 5, insert: 0, scan: 0 }),
    ('c', Mix { read: 100, update: 0, insert: 0, scan: 0 }),
    ('d', Mix { read: 95, update: 0, insert: 5, scan: 0 }),
    ('e', Mix { read: 0, update: 0, insert: 5, scan: 95 }),
    ('f', Mix { read: 50, update: 0, insert: 0, scan: 0 }),
];

/// One of YCSB's six workloads.
#[derive(Debug)]
pub struct Ycsb {
    letter: char,
    mix: Mix,
    rows: u64,
    values: Values,
    keys: Keys,
    zipfian: Zipfian,
    inserted: AtomicU64,
}

impl Ycsb {
    /// Returns the workload with this letter (`a` to `f`) on a table of `rows` rows.
    pub fn new(letter: char, rows: u64) -> Result<Self> {
        let found = MIXES.iter().find(|(known, _)| *known == letter);
        let (_, mix) =
            found.ok_or_else(|| BenchError::Arguments(format!("YCSB has no workload {letter}")))?;
        let zipfian = Zipfian::new(rows);
        Ok(Self {
            letter,
            mix: *mix,
            rows,
            values: Values::Letters,
            keys: Keys::Zipfian(zipfian.clone()),
            zipfian,
            inserted: AtomicU64::new(0),
        })
    }

    /// Sets how the fields are filled.
    pub fn values(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    /// Sets another skew than YCSB's.
    pub fn theta(mut self, theta: f64) -> Result<Self> {
        if !(theta > 0.0 && theta < 1.0) {
            return Err(BenchError::Arguments(format!("a theta of {theta} is not between 0 and 1")));
        }
        self.zipfian = Zipfian::with_theta(self.rows, theta);
        self.keys = Keys::Zipfian(self.zipfian.clone());
        Ok(self)
    }

    fn field(&self, random: &mut Random) -> String {
        self.values.text(random, FIELD_CHARS)
    }

    /// Draws the key of an existing row. Workload D draws mostly keys that were inserted last.
    fn key(&self, random: &mut Random) -> String {
        let newest = self.rows + self.inserted.load(Ordering::Relaxed);
        key_text(if self.letter == 'd' {
            newest.saturating_sub(1 + self.zipfian.rank(random))
        } else {
            self.keys.next(random)
        })
    }

    fn read(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        c.run(READ, &[Param::Text(&self.key(random))]).map(drop)
    }

    fn update(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let (field, text) = (random.below(FIELDS) as usize, self.field(random));
        c.run(UPDATE + field, &[Param::Text(&text), Param::Text(&self.key(random))]).map(drop)
    }

    fn insert(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let key = key_text(self.rows + self.inserted.fetch_add(1, Ordering::Relaxed));
        let fields: Vec<String> = (0..FIELDS).map(|_| self.field(random)).collect();
        let mut values = vec![Param::Text(&key)];
        values.extend(fields.iter().map(|field| Param::Text(field)));
        c.run(INSERT, &values).map(drop)
    }

    fn scan(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let length = 1 + random.below(SCAN_ROWS_MAX) as i64;
        c.run(SCAN, &[Param::Text(&self.key(random)), Param::Int(length)]).map(drop)
    }
}

/// Returns the key with this number. A multiplication scatters the keys over the key space. It has an
/// inverse, so two numbers never have the same key.
fn key_text(number: u64) -> String {
    format!("user{:020}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

impl Workload for Ycsb {
    fn name(&self) -> String {
        format!("ycsb-{}", self.letter)
    }

    fn settings(&self) -> serde_json::Value {
        let keys = format!("zipfian {}, scrambled", self.zipfian.theta());
        let values = self.values.describe();
        serde_json::json!({"rows": self.rows, "fields": FIELDS, "field_chars": FIELD_CHARS, "keys": keys, "values": values})
    }

    fn statements(&self) -> Vec<Statement> {
        let places: Vec<String> = (1..=FIELDS + 1).map(|place| format!("${place}")).collect();
        let mut all = vec![
            "SELECT * FROM usertable WHERE ycsb_key = $1".to_owned(),
            "SELECT * FROM usertable WHERE ycsb_key >= $1 ORDER BY ycsb_key LIMIT $2".to_owned(),
            format!("INSERT INTO usertable VALUES ({})", places.join(", ")),
        ];
        all.extend(
            (0..FIELDS).map(|field| format!("UPDATE usertable SET field{field} = $1 WHERE ycsb_key = $2")),
        );
        all
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        let columns: Vec<String> =
            (0..FIELDS).map(|field| format!("field{field} varchar({FIELD_CHARS})")).collect();
        c.simple("DROP TABLE IF EXISTS usertable")?;
        c.simple(&format!(
            "CREATE TABLE usertable (ycsb_key varchar(64) PRIMARY KEY, {})",
            columns.join(", ")
        ))?;
        let mut random = Random::seeded(self.rows);
        load_rows(c, "usertable", self.rows, |number, sql| {
            let _ = write!(sql, "('{}'", key_text(number));
            for _ in 0..FIELDS {
                let _ = write!(sql, ",'{}'", self.field(&mut random));
            }
            sql.push(')');
        })
    }

    fn transaction(&self, _kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let Mix { read, update, insert, scan } = self.mix;
        match random.below(100) {
            draw if draw < read => self.read(c, random),
            draw if draw < read + update => self.update(c, random),
            draw if draw < read + update + insert => self.insert(c, random),
            draw if draw < read + update + insert + scan => self.scan(c, random),
            _ => {
                self.read(c, random)?;
                self.update(c, random)
            }
        }
    }

    /// Each transaction is a single statement, so no transaction is open after an error.
    fn rollback(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }
}

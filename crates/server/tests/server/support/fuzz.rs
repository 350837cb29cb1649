//! Sends damaged conversations to a server, and checks that the server does not panic, does not hang, and
//! still answers other clients.
//!
//! A case is one connection. The client sends a valid conversation of the corpus that was mutated and cut
//! into pieces of any size, or it sends garbage. Then the client closes its side of the connection, and the
//! server must close, too. The seed determines everything, so a failure can be repeated with its seed and the
//! number of its case.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::client::{Client, bind, execute, message, packet, parse, query, startup, sync, target};

/// A connection that does not end within this time hangs.
const PATIENCE: Duration = Duration::from_secs(10);
const CASES_BETWEEN_PROBES: u64 = 50;
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What to send, and what must always work.
pub struct Plan<'a> {
    pub address: SocketAddr,
    /// Statements with the texts of their parameters.
    pub statements: &'a [(&'a str, &'a [&'a str])],
    /// A simple query and its exact answer, asked on a fresh connection again and again.
    pub probe: (&'a str, &'a str),
    pub seed: u64,
}

/// Runs cases until the time `until`, but at most `case_max` of them. Returns the number of cases. Panics on
/// a failure.
pub fn run(plan: &Plan<'_>, case_max: u64, until: Option<Instant>) -> u64 {
    let corpus = corpus(plan.statements);
    let mut case = 0;
    while case < case_max && until.is_none_or(|until| Instant::now() < until) {
        let mut random = Random::new(plan.seed, case);
        let bytes = conversation(&corpus, &mut random);
        if let Err(problem) = throw(plan.address, &bytes, &mut random) {
            panic!("seed {} case {case}: {problem}\nsent: {}", plan.seed, bytes.escape_ascii());
        }
        case += 1;
        if case % CASES_BETWEEN_PROBES == 0 || case == case_max {
            probe(plan, case, &bytes);
        }
    }
    case
}

fn probe(plan: &Plan<'_>, case: u64, last: &[u8]) {
    let panics = PANICS.load(Ordering::Relaxed);
    let last = last.escape_ascii();
    assert_eq!(
        panics, 0,
        "seed {}: a thread panicked within {CASES_BETWEEN_PROBES} cases before {case}; last: {last}",
        plan.seed
    );
    let answer = Client::connect(plan.address).ask(&query(plan.probe.0));
    assert_eq!(answer, plan.probe.1, "seed {}: a wrong answer after case {case}", plan.seed);
}

/// Panics of other threads since `count_panics`.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on. They are still printed.
pub fn count_panics() {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        shown(info);
    }));
}

/// Sends the bytes in pieces, ends the input, and reads to the end.
fn throw(address: SocketAddr, bytes: &[u8], random: &mut Random) -> Result<(), String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    let set = |result: std::io::Result<()>| result.map_err(|error| error.to_string());
    set(stream.set_nodelay(true))?;
    set(stream.set_read_timeout(Some(PATIENCE)))?;
    set(stream.set_write_timeout(Some(PATIENCE)))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = if random.one_in(3) { 1 + random.below(7) } else { rest.len() };
        let (piece, after) = rest.split_at(count.min(rest.len()));
        if stream.write_all(piece).is_err() {
            break; // the server has had enough of it
        }
        rest = after;
    }
    if random.one_in(8) {
        return Ok(()); // a client that vanishes
    }
    let _ = stream.shutdown(Shutdown::Write);
    let (began, mut read_bytes, mut buffer) = (Instant::now(), 0, [0; 8192]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => read_bytes += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Err("the server hangs".into());
            }
            Err(_) => return Ok(()),
        }
        if began.elapsed() > PATIENCE || read_bytes > ANSWER_BYTES_MAX {
            return Err(format!("the server doesn't stop answering: {read_bytes} bytes so far"));
        }
    }
}

/// Returns valid conversations. Each one is a list of messages without the start-up.
fn corpus(statements: &[(&str, &[&str])]) -> Vec<Vec<Vec<u8>>> {
    let mut corpus = Vec::new();
    for (sql, params) in statements {
        let values: Vec<Option<&[u8]>> = params.iter().map(|text| Some(text.as_bytes())).collect();
        let oids = vec![25; params.len()];
        corpus.push(vec![
            parse("s", sql, &oids),
            target(b'D', b'S', "s"),
            sync(),
            bind("", "s", &[], &values, &[1]),
            target(b'D', b'P', ""),
            execute("", 0),
            sync(),
            target(b'C', b'S', "s"),
            sync(),
        ]);
        corpus.push(vec![
            query("begin"),
            parse("", sql, &oids),
            bind("p", "", &[0], &values, &[]),
            execute("p", 1),
            message(b'H', b""),
            execute("p", 0),
            target(b'C', b'P', "p"),
            sync(),
            query("rollback"),
        ]);
        if params.is_empty() {
            let data = [message(b'd', b"1\tone\n2\t\\N\n"), message(b'd', b"3\tthree\n"), message(b'c', b"")];
            corpus.push([&[query(sql)], &data[..], &[query("")]].concat());
        }
    }
    corpus
}

/// Whole messages, and fragments that have a meaning somewhere in the protocol.
const DICTIONARY: &[&[u8]] = &[
    b"\0",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\x04",
    b"S\0\0\0\x04",
    b"H\0\0\0\x04",
    b"X\0\0\0\x04",
    b"c\0\0\0\x04",
    b"d\0\0\0\x05x",
    b"f\0\0\0\x05\0",
    b"Q\0\0\0\x05\0",
    b"E\0\0\0\x09\0\0\0\0\0",
    b"\xf0\x9f\x98\x80",
    b"\xc3(",
    b"';--",
    b"\"",
    b"$1",
    b"$65536",
    b"((((((((",
    b"99999999999999999999",
    b"NULL",
    b"/*",
    b"*/",
    b"E'\\",
    b"\x04\xd2\x16\x2f",
    b"\x04\xd2\x16\x2e",
    b"\0\x01",
    b"\0\x02",
];

fn conversation(corpus: &[Vec<Vec<u8>>], random: &mut Random) -> Vec<u8> {
    if random.one_in(20) {
        return random.bytes(200);
    }
    let mut messages = random.pick(corpus).clone();
    let hello = match random.below(20) {
        0 => packet(&random.bytes(40)),
        1 => [packet(&80_877_103_u32.to_be_bytes()), startup(&[("user", "fuzz")])].concat(),
        _ => startup(&[("user", "fuzz"), ("database", "postgres"), ("application_name", "fuzz")]),
    };
    messages.insert(0, hello);
    for _ in 0..random.below(3) {
        shuffle(&mut messages, corpus, random);
    }
    let greeting = messages[0].len();
    let mut bytes = messages.concat();
    // Most damage should come after a start-up that works.
    let from = if random.one_in(8) { 0 } else { greeting };
    for _ in 0..random.below(5) {
        damage(&mut bytes, from, random);
    }
    bytes
}

fn shuffle(messages: &mut Vec<Vec<u8>>, corpus: &[Vec<Vec<u8>>], random: &mut Random) {
    let at = 1 + random.below(messages.len() - 1);
    match random.below(4) {
        0 => drop(messages.remove(at)),
        1 => messages.insert(at, messages[at].clone()),
        2 => {
            let foreign = random.pick(corpus);
            let foreign = random.pick(foreign).clone();
            messages.insert(at, foreign);
        }
        _ => {
            let other = 1 + random.below(messages.len() - 1);
            messages.swap(at, other);
        }
    }
    if messages.len() == 1 {
        messages.push(sync());
    }
}

fn damage(bytes: &mut Vec<u8>, from: usize, random: &mut Random) {
    if bytes.len() <= from {
        return;
    }
    let at = from + random.below(bytes.len() - from);
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
        2 => bytes.truncate(at),
        3 => {
            let end = (at + 1 + random.below(8)).min(bytes.len());
            bytes.drain(at..end);
        }
        4 => {
            let inserted = random.bytes(8);
            bytes.splice(at..at, inserted);
        }
        5 => {
            let token = *random.pick(DICTIONARY);
            bytes.splice(at..at, token.iter().copied());
        }
        _ => {
            let token = *random.pick(DICTIONARY);
            let end = (at + token.len()).min(bytes.len());
            bytes.splice(at..end, token.iter().copied());
        }
    }
}

/// splitmix64 (Steele, Lea, Flood 2014), one stream for each case.
struct Random(u64);

impl Random {
    fn new(seed: u64, case: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max + 1)).map(|_| self.next() as u8).collect()
    }
}

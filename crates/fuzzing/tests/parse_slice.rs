//! Mutates the statements of the SQL tests with a fixed seed, and passes them to PostgreSQL's parser and the
//! code around it.
#![allow(clippy::unwrap_used, reason = "a test may")]

use varve_fuzzing::{seeds, sql_parse};

const ROUNDS: usize = 20_000;

/// The random number generator xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end.max(1)
    }
}

/// Pieces that are put into a statement.
const PIECES: [&[u8]; 24] = [
    b"(",
    b")",
    b"'",
    b"\"",
    b"$$",
    b"/*",
    b"--",
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    "\u{1F40C}".as_bytes(),
    b"::",
    b"e'\\",
    b" NOT ",
    b" SELECT ",
    b" CASE ",
    b" , ",
    b";",
    b"$1",
    b" AS ",
    b" DEFAULT ",
    b" CHECK (",
    b"0x",
    b" INTERVAL '1' ",
];

fn mutated(random: &mut Random, statement: &[u8], other: &[u8]) -> Vec<u8> {
    let mut text = statement.to_vec();
    for _ in 0..=random.below(4) {
        let (a, b) = (random.below(text.len() + 1), random.below(text.len() + 1));
        let (start, end) = (a.min(b), a.max(b));
        match random.below(6) {
            0 => drop(text.drain(start..end)),
            1 => drop(text.splice(start..start, PIECES[random.below(PIECES.len())].iter().copied())),
            2 => {
                let copy = text[start..end].to_vec();
                drop(text.splice(end..end, copy));
            }
            3 if !text.is_empty() => {
                let at = random.below(text.len());
                text[at] ^= 1 << random.below(8);
            }
            4 => {
                let (a, b) = (random.below(other.len() + 1), random.below(other.len() + 1));
                drop(text.splice(start..end, other[a.min(b)..a.max(b)].iter().copied()));
            }
            _ => {
                let piece = PIECES[random.below(PIECES.len())].repeat(1 + random.below(40));
                drop(text.splice(start..start, piece));
            }
        }
    }
    text
}

#[test]
fn mutated_statements_are_read_or_refused() {
    let seeds = seeds();
    let statements: Vec<&[u8]> = seeds
        .iter()
        .filter(|(target, ..)| *target == "sql_parse")
        .map(|(_, _, bytes)| bytes.as_slice())
        .collect();
    assert!(statements.len() > 100);
    let mut random = Random(0x5eed_0033);
    for _ in 0..ROUNDS {
        let (one, other) =
            (statements[random.below(statements.len())], statements[random.below(statements.len())]);
        sql_parse(&mutated(&mut random, one, other));
    }
}

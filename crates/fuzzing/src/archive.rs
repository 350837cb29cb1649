//! Fuzzes the reader of the log archive.
//!
//! The input has these fields:
//!
//! | field | bytes |
//! |---|---|
//! | 0: the rest is a piece; 1: the payload of a log record; any other number: frames with right checksums follow | 1 |
//! | for each frame: kind, length, contents | 1, 2, length |

use varve_pager::fuzzing;

use crate::backup::{first_backup, framed};
use crate::input::Input;

/// Checks that reading a piece ends with a result, and that what can be read comes back.
pub fn archive(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let piece = match input.byte() {
        0 => input.rest().to_vec(),
        1 => return fuzzing::read_archive_notes(input.rest()),
        _ => framed(&mut input),
    };
    // Most inputs are refused.
    let _refused = fuzzing::read_piece(&piece);
}

/// Returns a first input: a piece with the log of a new database.
pub(crate) fn first_input() -> Vec<u8> {
    let piece = fuzzing::piece_of_backup(&first_backup(true)).expect("a piece");
    fuzzing::read_piece(&piece).expect("a valid piece");
    let mut input = vec![2];
    for (kind, contents) in fuzzing::frames_of_backup(&piece).expect("frames") {
        input.push(kind);
        input.extend_from_slice(&(contents.len() as u16).to_le_bytes());
        input.extend_from_slice(&contents);
    }
    input
}

/// Returns first inputs that are payloads of log records: a time, and a list of tablespaces.
pub(crate) fn first_notes() -> [Vec<u8>; 2] {
    let time = [&[1, 1][..], &7_u64.to_le_bytes()].concat();
    let list = [&[1, 17, 0, 0, 0, 1, 0, 0, 0, 16, 0, 1, 0, 0][..], &[1, 0, 0, 0, b'a'].repeat(3)].concat();
    [time, list]
}

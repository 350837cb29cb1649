//! What the experiments on file systems share: files whose blocks are all written.

use varve_device::{AlignedBuf, BlockFile, Durability, Purpose};

use varve_bench::Result;

/// Zeros are written in pieces of this many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Writes zeros over a file's first bytes, and makes them durable. Varve's log fills its segments in the same
/// way. The number of bytes is a multiple of 4096.
pub fn fill(file: &dyn BlockFile, bytes: u64) -> Result<()> {
    let zeros = AlignedBuf::new(PIECE_BYTES as usize);
    for at in (0..bytes).step_by(PIECE_BYTES as usize) {
        let piece = &zeros[..PIECE_BYTES.min(bytes - at) as usize];
        file.write_at(at, piece, Purpose::Log, Durability::Later).map_err(std::io::Error::other)?;
    }
    Ok(file.flush().map_err(std::io::Error::other)?)
}

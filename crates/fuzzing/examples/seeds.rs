//! Writes the first inputs of every fuzz target into a folder: `cargo run -p varve-fuzzing --example seeds --
//! FOLDER`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: seeds FOLDER")?;
    for (target, number, bytes) in varve_fuzzing::seeds() {
        let folder = PathBuf::from(&folder).join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{number:03}")), bytes)?;
    }
    Ok(())
}

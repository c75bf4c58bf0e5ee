//! An image that is filled from memory, the same calls giving the same bytes: for builds that others can repeat.
//!
//! `cargo run --example filled_image -- EMPTY.img NEW.img` fills a fresh ext image (`mke2fs -U UUID` with
//! `SOURCE_DATE_EPOCH` makes that the same each time) with a small tree.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline::{Attributes, Memory, OpenOptions};

/// What comes into the image: paths, and bytes made up here.
fn tree() -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..200_usize).map(|number| {
        let bytes = (0..number * 100).map(|at| (at * number) as u8).collect();
        (format!("/data/{}/{number}", number % 7), bytes)
    })
}

/// The bytes of the image `empty`, filled.
pub(crate) fn run(empty: Vec<u8>, time: SystemTime) -> Result<Vec<u8>, Box<dyn Error>> {
    let memory = Memory::from(empty);
    let volume = OpenOptions::new()
        .write(true)
        .clock(move || time)
        .seed(1)
        .buffered(false) // what is written in the background is not written at the same moment twice
        .commit_interval(Duration::from_secs(24 * 3600))
        .open_device(memory.clone())?;
    let root = Attributes::new().uid(0).gid(0);
    for (path, bytes) in tree() {
        let path = Path::new(&path);
        let dir = path.parent().ok_or("a file has a directory")?;
        volume
            .root()?
            .create_dir_all_with(dir, &root.clone().mode(0o755))?;
        let file = volume.create_new_with(path, &root.clone().mode(0o644))?;
        file.write_all_at(&bytes, 0)?;
    }
    volume.close()?;
    Ok(memory.to_vec())
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [empty, filled] = arguments.as_slice() else {
        return Err("usage: filled_image EMPTY.img NEW.img".into());
    };
    let epoch = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_default();
    let time = UNIX_EPOCH + Duration::from_secs(epoch.parse().unwrap_or(1_700_000_000));
    std::fs::write(filled, run(std::fs::read(empty)?, time)?)?;
    Ok(())
}

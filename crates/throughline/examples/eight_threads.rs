//! Eight threads share one volume: each creates, writes, renames and reads its own files and a common one,
//! without locks.
//!
//! `cargo run --example eight_threads -- DISK.img`

use std::error::Error;
use std::path::Path;
use std::thread;

use throughline::{OpenOptions, Result, Volume};

const THREADS: usize = 8;
const FILES: usize = 50;

/// A `Volume` is a handle: its clones and references share one volume and work on any thread.
fn work(volume: &Volume, thread: usize) -> Result<()> {
    let dir = volume.create_dir(format!("/{thread}"))?;
    let log = volume.open_file("/log")?;
    for number in 0..FILES {
        let text = format!("file {number} of thread {thread}\n");
        dir.write("new", &text)?;
        dir.rename("new", format!("{number}"))?;
        log.append_all(text.as_bytes())?; // appends of different threads never overlap
        assert_eq!(dir.read_to_string(format!("{number}"))?, text);
    }
    dir.sync()
}

/// Returns the number of files, and of lines in the common log.
pub(crate) fn run(image: &Path) -> std::result::Result<(usize, usize), Box<dyn Error>> {
    let volume = OpenOptions::new().write(true).open(image)?;
    volume.create_file("/log")?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let volume = &volume;
                    move || work(volume, thread)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("it did not panic"))
    })?;
    let mut files = 0;
    for entry in volume.walk("/")? {
        files += usize::from(entry?.file_type().is_file());
    }
    let lines = volume.read_to_string("/log")?.lines().count();
    volume.close()?;
    Ok((files, lines))
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> std::result::Result<(), Box<dyn Error>> {
    let image = std::env::args_os()
        .nth(1)
        .ok_or("usage: eight_threads DISK.img")?;
    let (files, lines) = run(image.as_ref())?;
    println!("{files} files, {lines} lines");
    Ok(())
}

//! Streams a large file into an image, with one buffer and without the host's page cache.
//!
//! `cargo run --example streaming_copy -- FILE DISK.img /path/in/image`

use std::error::Error;
use std::io::Write;
use std::path::Path;

use throughline::{OpenOptions, Reason};

/// Bytes between progress messages.
const STEP_BYTES: u64 = 64 << 20;

pub(crate) fn run(from: &Path, image: &Path, to: &Path) -> Result<u64, Box<dyn Error>> {
    let source = OpenOptions::new().open_raw(from)?;
    let volume = OpenOptions::new().write(true).open(image)?;
    let target = volume.create_file(to)?;
    let size = source.size()?;
    let mut copied = 0;
    while copied < size {
        let step = STEP_BYTES.min(size - copied);
        match source.copy_range(copied, &target, copied, step)? {
            0 => return Err(throughline::Error::from(Reason::PastEnd).into()),
            more => copied += more,
        }
        write!(std::io::stderr(), "\r{copied} of {size} bytes")?;
    }
    target.sync_all()?; // now it survives a power cut
    drop(target);
    volume.close()?;
    Ok(copied)
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, image, to] = arguments.as_slice() else {
        return Err("usage: streaming_copy FILE DISK.img /path/in/image".into());
    };
    println!("\n{}", run(from.as_ref(), image.as_ref(), to.as_ref())?);
    Ok(())
}

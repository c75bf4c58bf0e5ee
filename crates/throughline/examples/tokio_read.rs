//! Reads many files of a volume concurrently in tokio, without blocking tokio's threads on the disk.
//!
//! `cargo run --example tokio_read -- DISK.img` prints the number of bytes read from each file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline::{AsyncFile, Result, Volume};
use tokio::task::JoinSet;

const CALL_BYTES: usize = 256 << 10;

async fn length(file: AsyncFile) -> Result<u64> {
    let (mut at, mut buf) = (0, vec![0; CALL_BYTES]);
    loop {
        let (read, back) = file.read_at(buf, at).await;
        match read? {
            0 => return Ok(at),
            more => at += more as u64,
        }
        buf = back;
    }
}

pub(crate) async fn run(image: &Path) -> std::result::Result<Vec<(PathBuf, u64)>, Box<dyn Error>> {
    let volume = Volume::open(image)?;
    let mut readers = JoinSet::new();
    for entry in volume.walk("/")? {
        let entry = entry?;
        if entry.file_type().is_file() {
            let path: Arc<Path> = entry.path().into();
            let file = volume.root()?.open_file(&path)?.to_async();
            readers.spawn(async move { (path.to_path_buf(), length(file).await) });
        }
    }
    let mut lengths = Vec::new();
    while let Some(done) = readers.join_next().await {
        let (path, length) = done?;
        lengths.push((path, length?));
    }
    lengths.sort();
    Ok(lengths)
}

#[allow(dead_code, reason = "tests call `run`")]
#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let image = std::env::args_os()
        .nth(1)
        .ok_or("usage: tokio_read DISK.img")?;
    for (path, length) in run(image.as_ref()).await? {
        println!("{length:>12} {}", path.display());
    }
    Ok(())
}

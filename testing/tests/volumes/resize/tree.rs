//! A tree with all kinds of files, and what it looks like.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

use throughline::{FileType, OpenOptions, Volume};

/// Every path, and what is known of it.
pub(crate) type Tree = BTreeMap<String, String>;

/// Options for small volumes.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.cache_bytes(Some(1 << 20)).readahead_max(Some(0));
    options
}

/// Fills a volume with directories, files of several sizes, holes, links and attributes.
pub(crate) fn fill(volume: &Volume) -> throughline::Result<()> {
    for dir in 0..6_u8 {
        let dir_name = format!("/d{dir}");
        volume.create_dir_all(&dir_name)?;
        for file in 0..12_u8 {
            let bytes = vec![dir * 16 + file; usize::from(file) * 1700 + 1];
            volume.write(format!("{dir_name}/f{file}"), bytes)?;
        }
    }
    volume.write("/large", vec![0x5a; 700_001])?;
    let sparse = volume.create_file("/sparse")?;
    sparse.write_all_at(b"end", 3_000_000)?;
    drop(sparse);
    volume.symlink("d0/f1", "/short-link")?;
    volume.symlink("x".repeat(200), "/long-link")?;
    volume.hard_link("/d1/f3", "/another-name")?;
    volume.xattrs("/d2/f4")?.set("user.colour", "green")?;
    Ok(())
}

/// Reads the whole tree.
pub(crate) fn read(volume: &Volume) -> throughline::Result<Tree> {
    volume
        .walk("/")?
        .map(|found| {
            let found = found?;
            let path = found.path();
            Ok((path.display().to_string(), line(volume, path)?))
        })
        .collect()
}

/// What is known of a file.
fn line(volume: &Volume, path: &Path) -> throughline::Result<String> {
    let about = volume.symlink_metadata(path)?;
    let mut text = format!(
        "{} {:o} {} {} {} {} {:?}",
        about.ino(),
        about.mode(),
        about.uid(),
        about.nlink(),
        about.len(),
        about.blocks_512(),
        about.modified(),
    );
    match about.file_type() {
        FileType::File => {
            let mut hasher = DefaultHasher::new();
            hasher.write(&volume.read(path)?);
            let _ = write!(text, " {:x}", hasher.finish());
        }
        FileType::Symlink => {
            let _ = write!(text, " {:?}", volume.read_link(path)?);
        }
        _ => {}
    }
    let node = volume.node_by_ino(about.ino())?;
    for name in node.xattrs().names()? {
        let _ = write!(text, " {name:?} {:?}", node.xattrs().get(&name)?);
    }
    Ok(text)
}

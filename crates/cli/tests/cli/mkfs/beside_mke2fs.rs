//! The list of option sets: mke2fs and we make the same volume.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use throughline_testkit::{e2fs, program};

use super::{Names, Pair, Set};
use crate::common::ok;

const SETS: &str = include_str!("sets.txt");
const CHUNK: usize = 4096;
const PART: usize = 1024;

fn lines() -> impl Iterator<Item = &'static str> {
    SETS.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// What `dumpe2fs` shows, without what may differ: how much was written, the superblock's checksum, which
/// covers that, and who made the block of multiple-mount protection.
fn shown(image: &Path) -> Vec<String> {
    const MAY_DIFFER: [&str; 6] = [
        "Lifetime writes:",
        "Checksum:",
        "    mmp_update_date:",
        "    mmp_update_time:",
        "    mmp_node_name:",
        "    mmp_device_name:",
    ];
    let ran = program::run(e2fs::tool("dumpe2fs").arg(image), e2fs::LIMIT);
    let text = ran.stdout;
    assert!(text.contains("Group 0:"), "{text} {}", ran.stderr);
    let lines = text.lines().map(str::to_owned);
    lines
        .filter(|line| !MAY_DIFFER.iter().any(|start| line.starts_with(start)))
        .collect()
}

/// Where a file has data, in whole chunks.
fn data(file: &File) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        let chunk = CHUNK as u64;
        found.push((start - start % chunk, at.next_multiple_of(chunk)));
    }
    found
}

/// A chunk, without the bytes that may differ.
fn chunk(file: &File, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; CHUNK];
    let mut read = 0;
    while let Ok(more @ 1..) = file.read_at(&mut bytes[read..], at + read as u64) {
        read += more;
    }
    for part in bytes.chunks_exact_mut(PART) {
        let is_super = part[0x38..0x3a] == [0x53, 0xef];
        let is_mmp = part[..4] == [0x50, 0x4d, 0x4d, 0];
        if is_super {
            // Kilobytes written.
            part[0x178..0x180].fill(0);
        }
        if is_mmp {
            // Time, host and device.
            part[0x8..0x70].fill(0);
        }
        if is_super || is_mmp {
            part[0x3fc..].fill(0);
        }
    }
    bytes
}

/// The first byte that differs.
fn difference(ours: &Path, theirs: &Path) -> Option<u64> {
    let (ours, theirs) = (File::open(ours).unwrap(), File::open(theirs).unwrap());
    let mut runs = data(&ours);
    runs.extend(data(&theirs));
    runs.sort_unstable();
    let mut done = 0;
    for (start, end) in runs {
        let mut at = start.max(done);
        while at < end {
            let (a, b) = (chunk(&ours, at), chunk(&theirs, at));
            if let Some(place) = a.iter().zip(&b).position(|(a, b)| a != b) {
                return Some(at + place as u64);
            }
            at += CHUNK as u64;
        }
        done = done.max(end);
    }
    None
}

/// Compares one set, and writes a file into the volume.
fn check(line: &str, names: &Names) -> Result<(), String> {
    let (line, has_all_bytes) = match line.strip_prefix('~') {
        Some(line) => (line, false),
        None => (line, true),
    };
    let pair = Pair::new(&Set::new(line), names);
    let (ours, theirs) = (shown(&pair.ours), shown(&pair.theirs));
    if let Some(at) = (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at))
    {
        let (ours, theirs) = (ours.get(at), theirs.get(at));
        return Err(format!(
            "{line}: dumpe2fs shows {ours:?}, of mke2fs {theirs:?}"
        ));
    }
    let different = difference(&pair.ours, &pair.theirs);
    if different.is_some() == has_all_bytes {
        return Err(format!("{line}: first difference at byte {different:?}"));
    }
    e2fs::assert_clean_after(&pair.ours, line);
    let text = pair.ours.with_file_name("text");
    std::fs::write(&text, "a line\n").unwrap();
    let place = format!("{}:/text", pair.ours.display());
    ok(["-q", "cp", text.to_str().unwrap(), &place]);
    e2fs::assert_clean_after(&pair.ours, &format!("a file written after {line}"));
    Ok(())
}

/// Checks every `of`-th set, from `first` on.
fn check_part(first: usize, of: usize) {
    if crate::common::tools_are_missing() {
        return;
    }
    let names = Names::new();
    let step = throughline_testkit::tier::pick(4 * of, of, of);
    let wrong: Vec<_> = lines()
        .skip(first)
        .step_by(step)
        .filter_map(|line| check(line, &names).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_is_long_enough() {
    assert!(lines().count() >= 80, "{}", lines().count());
}

// Parts, which run at the same time.
#[test]
fn mke2fs_makes_the_same_part_1() {
    check_part(0, 4);
}

#[test]
fn mke2fs_makes_the_same_part_2() {
    check_part(1, 4);
}

#[test]
fn mke2fs_makes_the_same_part_3() {
    check_part(2, 4);
}

#[test]
fn mke2fs_makes_the_same_part_4() {
    check_part(3, 4);
}

/// The names by type, and a configuration of one's own, mean the same for both.
#[test]
fn names_and_configurations_mean_the_same() {
    if crate::common::tools_are_missing() {
        return;
    }
    let names = Names::new();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("mke2fs.conf");
    let text = "[defaults]\n fs_type = ext3\n blocksize = 2048\n inode_size = 128\n inode_ratio = 8192\n \
                base_features = sparse_super,filetype,dir_index\n reserved_ratio = 1.0\n errors = remount-ro\n\
                [fs_types]\n ext3 = {\n features = has_journal\n hash_alg = tea\n }\n mine = {\n \
                inode_ratio = 4096\n features = extent\n options = stride=8\n }\n";
    std::fs::write(&config, text).unwrap();
    for (name, config, line) in [
        ("mkfs.ext2", None, "40M"),
        ("mkfs.ext3", None, "40M"),
        ("mkfs.ext4", None, "40M"),
        ("mkfs.ext4", None, "40M -t ext2"),
        ("mke2fs", Some(&config), "40M"),
        ("mke2fs", Some(&config), "40M -T mine"),
    ] {
        let set = Set::new(line);
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        let mut commands = [names.command(name), e2fs::tool(name)];
        for command in &mut commands {
            config.map(|config| command.env("MKE2FS_CONFIG", config));
        }
        let [our, their] = commands;
        set.run(our, &ours);
        set.run(their, &theirs);
        // The name of the file is shown in no volume of these.
        let what = format!("{name} {line}");
        assert_eq!(shown(&ours), shown(&theirs), "{what}");
        assert_eq!(difference(&ours, &theirs), None, "{what}");
        for image in [ours, theirs] {
            std::fs::remove_file(image).unwrap();
        }
    }
}

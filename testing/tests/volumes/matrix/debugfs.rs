//! The view of `debugfs`: all names of all directories with modes and owners, and a sample of files in full.

use std::collections::BTreeMap;

use crate::matrix::expected::Expected;
use crate::matrix::fs::{FileSystem, Stat, join};
use crate::matrix::tool::Image;

/// Among the first files of a directory, one in this many is checked in full.
const SAMPLE: usize = 3;
/// Maximum number of files per directory checked in full.
const MOST: usize = 40;
/// Larger files are not dumped, because `debugfs` writes out their holes.
const DUMPED: u64 = 16 << 20;

/// Panics at the first difference.
pub(crate) fn compare(what: &str, image: &Image, expected: &mut Expected) {
    let mut dirs = vec![String::from("/")];
    dirs.extend(
        expected
            .under("/")
            .into_iter()
            .filter(|path| is_dir(expected, path)),
    );
    let requests: String = dirs
        .iter()
        .map(|dir| format!("ls -p \"{dir}\"\n"))
        .collect();
    let output = image.debugfs(false, &requests);
    // Each request is echoed before its answer.
    let mut answers = output.split("debugfs: ls -p ").skip(1);
    let mut sample = Vec::new();
    for dir in &dirs {
        let answer = answers
            .next()
            .unwrap_or_else(|| panic!("{what}: debugfs does not list {dir}"));
        compare_dir(what, dir, answer, expected);
        let names = expected.list(dir);
        let some = names.iter().step_by(SAMPLE).take(MOST);
        sample.extend(
            some.map(|name| join(dir, name))
                .filter(|path| !is_dir(expected, path)),
        );
    }
    compare_files(what, image, &sample, expected);
}

fn is_dir(expected: &mut Expected, path: &str) -> bool {
    expected.stat(path).kind.is_dir()
}

/// `ls -p` prints `/inode/mode/uid/gid/name/size/`.
fn compare_dir(what: &str, dir: &str, answer: &str, expected: &mut Expected) {
    let mut found = BTreeMap::new();
    for line in answer.lines().skip(1) {
        let fields: Vec<&str> = line.split('/').collect();
        let [_, ino, mode, uid, gid, name, len, ..] = fields.as_slice() else {
            continue;
        };
        if *ino == "0" || matches!(*name, "." | "..") || (dir == "/" && *name == "lost+found") {
            continue;
        }
        let mode = u32::from_str_radix(mode, 8).unwrap_or_else(|_| panic!("{what}: {line}"));
        let number = |text: &str| {
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{what}: {line}"))
        };
        let len = if len.is_empty() { 0 } else { number(len) };
        // Owners are printed as signed numbers.
        let owner = |text: &str| {
            text.parse::<i64>()
                .unwrap_or_else(|_| panic!("{what}: {line}")) as u32
        };
        found.insert((*name).to_owned(), (mode, owner(uid), owner(gid), len));
    }
    let names = expected.list(dir);
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>(),
        "{what}: debugfs ls {dir}"
    );
    for (name, (mode, uid, gid, len)) in found {
        let path = join(dir, &name);
        let stat = expected.stat(&path);
        assert_eq!(
            mode,
            stat.kind.mode_bits() | stat.mode,
            "{what}: debugfs ls: mode of {path}"
        );
        assert_eq!(
            (uid, gid),
            (stat.uid, stat.gid),
            "{what}: debugfs ls: owner of {path}"
        );
        assert_eq!(len, stat.len, "{what}: debugfs ls: size of {path}");
    }
}

fn compare_files(what: &str, image: &Image, sample: &[String], expected: &mut Expected) {
    let dumps = |stat: &Stat| stat.kind.is_file() && stat.len <= DUMPED;
    let mut requests = String::new();
    for (index, path) in sample.iter().enumerate() {
        requests += &format!("stat \"{path}\"\n");
        if dumps(&expected.stat(path)) {
            let to = image.sibling(&format!("dump{index}"));
            requests += &format!("dump \"{path}\" {}\n", to.display());
        }
    }
    let output = image.debugfs(false, &requests);
    let mut answers = output.split("debugfs: stat ").skip(1);
    for (index, path) in sample.iter().enumerate() {
        let answer = answers
            .next()
            .unwrap_or_else(|| panic!("{what}: debugfs does not describe {path}"));
        let stat = expected.stat(path);
        let links = field(answer, "Links:").and_then(|text| text.parse().ok());
        assert_eq!(
            links,
            Some(stat.links),
            "{what}: debugfs stat: links of {path}: {answer}"
        );
        assert_eq!(
            modified(answer),
            Some(stat.modified),
            "{what}: debugfs stat: mtime of {path}: {answer}"
        );
        if dumps(&stat) {
            let dump = image.sibling(&format!("dump{index}"));
            let bytes =
                std::fs::read(&dump).unwrap_or_else(|e| panic!("{what}: debugfs dump {path}: {e}"));
            let mut want = vec![0; stat.len as usize];
            expected.read(path, 0, &mut want);
            assert!(
                bytes == want,
                "{what}: debugfs dump {path}: contents differ"
            );
            let _ = std::fs::remove_file(dump);
        }
    }
}

/// The word after a label.
fn field<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    text.split(label).nth(1)?.split_whitespace().next()
}

/// `mtime: 0x65530bff:1d6f3454 -- …`: seconds; then, if the inode has room, nanoseconds and two more bits for
/// times past 2038 or before 1901.
fn modified(text: &str) -> Option<(i64, u32)> {
    let word = field(text, "mtime:")?.trim_start_matches("0x");
    let (seconds, extra) = word.split_once(':').unwrap_or((word, "0"));
    let low = u32::from_str_radix(seconds, 16).ok()?.cast_signed();
    let extra = u32::from_str_radix(extra, 16).ok()?;
    Some((i64::from(low) + (i64::from(extra & 3) << 32), extra >> 2))
}

//! What `debugfs` reads from an image.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::damaged::seen::{BLOCK, MAX_BLOCKS, MAX_DIRS, MAX_FILES, MAX_NAMES, Seen};

const LIMIT: Duration = Duration::from_secs(120);
/// The root's inode.
const ROOT: u64 = 2;
/// The largest file extracted from an image.
const MAX_BYTES: u64 = 4 << 20;

struct Listed {
    ino: u64,
    mode: u32,
    size: u64,
}

/// Everything; nothing if it does not open the image.
pub(crate) fn look(image: &Path, scratch: &Path) -> Seen {
    let mut seen = Seen::default();
    let (mut met, mut files) = (HashSet::from([ROOT]), Vec::new());
    let mut level = vec![ROOT];
    while !level.is_empty() && met.len() < MAX_DIRS {
        let mut below = Vec::new();
        let requests: Vec<_> = level.iter().map(|ino| format!("ls -p <{ino}>")).collect();
        for (dir, output) in level.iter().zip(ask(image, scratch, &requests)) {
            for line in output.split(|&byte| byte == b'\n') {
                let Some((found, name)) = listed(line) else {
                    continue;
                };
                if seen.names.len() >= MAX_NAMES || found.ino == 0 {
                    continue;
                }
                seen.add_name(*dir, name);
                if Seen::is_no_name(name) || !met.insert(found.ino) {
                    continue;
                }
                match found.mode & 0o170_000 {
                    0o040_000 => below.push(found.ino),
                    0o100_000 if found.size <= MAX_BYTES && files.len() < MAX_FILES => {
                        files.push(found);
                    }
                    _ => {}
                }
            }
        }
        level = below;
    }
    read(image, scratch, &files, &mut seen);
    seen
}

/// A line of `ls -p`: `/inode/mode/uid/gid/name/size/`.
fn listed(line: &[u8]) -> Option<(Listed, &[u8])> {
    let mut fields = line.strip_prefix(b"/")?.splitn(5, |&byte| byte == b'/');
    let mut number = |radix| {
        let field = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(field, radix).ok()
    };
    let (ino, mode) = (number(10)?, number(8)?);
    let (_, _) = (number(10)?, number(10)?);
    let rest = fields.next()?.strip_suffix(b"/")?;
    let name_end = rest.iter().rposition(|&byte| byte == b'/')?;
    let size = std::str::from_utf8(&rest[name_end + 1..]).ok()?;
    let listed = Listed {
        ino,
        mode: u32::try_from(mode).ok()?,
        size: size.parse().unwrap_or(0),
    };
    Some((listed, &rest[..name_end]))
}

/// Its answer to each request, on standard output.
fn ask(image: &Path, scratch: &Path, requests: &[String]) -> Vec<Vec<u8>> {
    let script: String = requests
        .iter()
        .map(|request| format!("{request}\n"))
        .collect();
    let (commands, answers) = (scratch.join("commands"), scratch.join("answers"));
    std::fs::write(&commands, script).expect("a script");
    let mut command = Command::new("sh");
    // The answer may not be valid text.
    command
        .arg("-c")
        .arg("exec debugfs -f \"$0\" \"$1\" > \"$2\" 2>/dev/null")
        .args([&commands, &PathBuf::from(image), &answers])
        .env("PAGER", "cat")
        .env("DEBUGFS_PAGER", "cat");
    throughline_testing::program::run(&mut command, LIMIT);
    let output = std::fs::read(&answers).unwrap_or_default();
    let mut parts = Vec::new();
    for line in output.split_inclusive(|&byte| byte == b'\n') {
        if line.starts_with(b"debugfs: ") {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.extend_from_slice(line);
        }
    }
    parts
}

fn read(image: &Path, scratch: &Path, files: &[Listed], seen: &mut Seen) {
    let to = |ino| scratch.join(format!("file-{ino}"));
    let requests: Vec<_> = files
        .iter()
        .map(|file| format!("dump <{}> {}", file.ino, to(file.ino).display()))
        .collect();
    if requests.is_empty() {
        return;
    }
    ask(image, scratch, &requests);
    for file in files {
        let Ok(bytes) = std::fs::read(to(file.ino)) else {
            continue;
        };
        let _ = std::fs::remove_file(to(file.ino));
        // A short file means that it met damage.
        if bytes.len() as u64 != file.size {
            continue;
        }
        for (at, block) in bytes.chunks(BLOCK).take(MAX_BLOCKS as usize).enumerate() {
            seen.add_block(file.ino, at as u64, block);
        }
    }
}

//! Calls that create, change and remove names.
//!
//! `creat P MODE`, `mkdir P MODE`, `rmdir P`, `unlink P`, `link A B [FLAGS]`, `symlink TARGET P`, `readlink
//! P`, `rename A B [FLAGS]`, `linkfd FILE P` (`AT_EMPTY_PATH`), `same A B` (whether both are one inode).

use rustix::fs::{AtFlags, CWD, OFlags};

use super::words::printed;
use super::{Answer, State, Words, done};

impl State {
    pub(super) fn names(&mut self, words: &Words) -> Option<Answer> {
        Some(match words.text(0) {
            "creat" => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                done(rustix::fs::open(words.path(1), flags, words.mode(2)).map(drop))
            }
            "mkdir" => done(rustix::fs::mkdir(words.path(1), words.mode(2))),
            "rmdir" => done(rustix::fs::rmdir(words.path(1))),
            "unlink" => done(rustix::fs::unlink(words.path(1))),
            "link" => {
                let flags: AtFlags = words.flags(3);
                done(rustix::fs::linkat(
                    CWD,
                    words.path(1),
                    CWD,
                    words.path(2),
                    flags,
                ))
            }
            "linkfd" => {
                let (file, flags) = (self.file(words.text(1)), AtFlags::EMPTY_PATH);
                done(rustix::fs::linkat(file, "", CWD, words.path(2), flags))
            }
            "symlink" => done(rustix::fs::symlink(words.path(1), words.path(2))),
            "readlink" => rustix::fs::readlink(words.path(1), Vec::new())
                .map(|target| printed(target.as_bytes())),
            "rename" => done(rustix::fs::renameat_with(
                CWD,
                words.path(1),
                CWD,
                words.path(2),
                words.flags(3),
            )),
            "same" => same(words),
            _ => return None,
        })
    }
}

fn same(words: &Words) -> Answer {
    let [a, b] = [1, 2].map(|at| rustix::fs::lstat(words.path(at)));
    let (a, b) = (a?, b?);
    let same = (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    Ok(if same { "same" } else { "different" }.to_owned())
}

//! Compares the subject with the tree: attributes, names, and everything.

use super::drive::{Check, Driver, same};
use super::subject::{FileKind, Refusal, Stat, Subject};
use super::tree::{Body, Id};

/// Files below this size are compared completely.
const WHOLE_BELOW: u64 = 2 << 20;

impl Driver {
    pub(super) fn stat(&self, subject: &mut dyn Subject, path: &[u8]) -> Check {
        let stat = match (subject.stat(path), self.tree.find(path)) {
            (Ok(stat), Ok(id)) => (stat, self.tree.node(id)),
            (answer, expected) => return same("stat", answer.map(drop), expected.map(drop)),
        };
        let (stat, node) = stat;
        let len_bytes = match &node.body {
            Body::File(content) => content.len(),
            Body::Symlink(target) => target.len() as u64,
            Body::Special(..) => 0,
            Body::Dir(..) => stat.len_bytes,
        };
        let device = match &node.body {
            Body::Special(FileKind::CharDevice | FileKind::BlockDevice, numbers) => Some(*numbers),
            _ => None,
        };
        // Values that the model does not know are taken from the subject. The root additionally contains
        // `lost+found`.
        let root = u32::from(self.bounds.exclusive && path.iter().all(|byte| *byte == b'/'));
        let expected = Stat {
            kind: node.kind(),
            mode: if path.iter().all(|byte| *byte == b'/') {
                stat.mode
            } else {
                node.mode
            },
            uid: node.owner.map_or(stat.uid, |owner| owner.0),
            gid: node.owner.map_or(stat.gid, |owner| owner.1),
            links: node.links + root,
            len_bytes,
            device,
            modified: node.modified.unwrap_or(stat.modified),
        };
        if stat == expected {
            Ok(())
        } else {
            Err(format!("stat says {stat:?}, expected {expected:?}"))
        }
    }

    pub(super) fn read_dir(&self, subject: &mut dyn Subject, path: &[u8]) -> Check {
        let answer = subject.read_dir(path);
        let dir = self
            .tree
            .find(path)
            .and_then(|id| match &self.tree.node(id).body {
                Body::Dir(entries, _) => Ok(entries),
                _ => Err(vec![Refusal::NotDir]),
            });
        let (mut names, dir) = match (answer, dir) {
            (Ok(names), Ok(dir)) => (names, dir),
            (answer, expected) => return same("read_dir", answer.map(drop), expected.map(drop)),
        };
        if path.iter().all(|byte| *byte == b'/') {
            names.retain(|(name, _)| name != b"lost+found");
        }
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!(
                "name {:?} twice",
                twice[0].0.escape_ascii().to_string()
            ));
        }
        let found: Vec<_> = names.iter().map(|(name, _)| name).collect();
        let wanted: Vec<_> = dir.keys().collect();
        if found != wanted {
            let missing = dir.keys().find(|name| !found.contains(name));
            let extra = found.iter().find(|name| !dir.contains_key(**name));
            return Err(format!(
                "{} names, expected {}; missing {missing:?}, extra {extra:?}",
                found.len(),
                wanted.len()
            ));
        }
        for (name, kind) in &names {
            let wanted = self.tree.node(dir[name]).kind();
            if kind.is_some_and(|kind| kind != wanted) {
                return Err(format!(
                    "name {name:?} is listed as {kind:?}, is {wanted:?}"
                ));
            }
        }
        Ok(())
    }

    /// Compares the whole tree: names, attributes, targets, contents.
    ///
    /// # Errors
    /// The first difference with its path, and the operations before it.
    pub fn compare(&mut self, subject: &mut dyn Subject) -> Check {
        for dir in self.tree.dirs() {
            let path = [self.tree.path_of_dir(dir), b"/".to_vec()].concat();
            let report = |driver: &Self, path: &[u8], what: &str| {
                driver.report(&format!("{}: {what}", path.escape_ascii()))
            };
            self.read_dir(subject, &path)
                .map_err(|what| report(self, &path, &what))?;
            self.stat(subject, &path)
                .map_err(|what| report(self, &path, &what))?;
            let entries: Vec<_> = self
                .tree
                .entries(dir)
                .iter()
                .map(|(name, id)| (name.clone(), *id))
                .collect();
            for (name, id) in entries {
                let path = [&path[..], &name].concat();
                self.compare_one(subject, &path, id)
                    .map_err(|what| report(self, &path, &what))?;
            }
        }
        Ok(())
    }

    fn compare_one(&mut self, subject: &mut dyn Subject, path: &[u8], id: Id) -> Check {
        self.stat(subject, path)?;
        match &self.tree.node(id).body {
            Body::Symlink(target) => same("read_link", subject.read_link(path), Ok(target.clone())),
            Body::File(content) => {
                for (from, to) in content.interesting(WHOLE_BELOW) {
                    let mut bytes = vec![0xee; (to - from) as usize];
                    let answer = subject.read(path, self.reader, from, &mut bytes);
                    self.was_read(answer, Ok(id), from, &bytes)?;
                }
                Ok(())
            }
            Body::Dir(..) | Body::Special(..) => Ok(()),
        }
    }
}

//! Our side: an image opened by the library.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::io::Errno;
use throughline::{Attributes, Error, NewNode, Node, OpenOptions, Reason, Volume, XattrMode};

use crate::xattrs::act::{Act, Kind, Mode, Outcome};
use crate::xattrs::{Seen, Side};

/// See the head of this file.
pub(crate) struct Ours {
    volume: Volume,
}

impl Ours {
    pub(crate) fn open(image: &Path) -> Ours {
        let volume = OpenOptions::new()
            .write(true)
            .open(image)
            .expect("the volume opens");
        Ours { volume }
    }

    pub(crate) fn close(self) {
        self.volume.close().expect("close");
    }

    fn node(&self, path: &str) -> Result<Node, Error> {
        let mut node = self.volume.node("/")?;
        for name in path.split('/') {
            node = node.lookup(name.as_bytes())?;
        }
        Ok(node)
    }

    fn place<'p>(&self, path: &'p str) -> Result<(Node, &'p [u8]), Error> {
        match path.rsplit_once('/') {
            Some((dir, name)) => Ok((self.node(dir)?, name.as_bytes())),
            None => Ok((self.volume.node("/")?, path.as_bytes())),
        }
    }

    fn try_act(&self, act: &Act) -> Result<(), Error> {
        match act {
            Act::Create(path, kind, mode, umask) => {
                let (dir, name) = self.place(path)?;
                // mkdir ignores setgid.
                let mode = if matches!(kind, Kind::Dir) {
                    mode & 0o1777
                } else {
                    *mode
                };
                let kind = match kind {
                    Kind::File => NewNode::File,
                    Kind::Dir => NewNode::Directory,
                    Kind::Fifo => NewNode::Fifo,
                    Kind::Symlink => NewNode::Symlink(b"target"),
                };
                let attributes = Attributes::new().mode(mode).umask(*umask).uid(0).gid(0);
                dir.create(name, kind, &attributes).map(drop)
            }
            Act::Remove(path, is_dir) => {
                let (dir, name) = self.place(path)?;
                if *is_dir {
                    dir.rmdir(name)
                } else {
                    dir.unlink(name)
                }
            }
            Act::Chmod(path, mode) => {
                let node = self.node(path)?;
                if node.metadata()?.is_symlink() {
                    return Ok(());
                }
                node.set_attributes(&Attributes::new().mode(*mode))
            }
            Act::Chown(path, uid) => {
                let node = self.node(path)?;
                node.set_attributes(&Attributes::new().uid(*uid))
            }
            Act::Set(path, name, value, mode) => {
                let mode = match mode {
                    Mode::Either => XattrMode::Either,
                    Mode::Create => XattrMode::Create,
                    Mode::Replace => XattrMode::Replace,
                };
                self.node(path)?.xattrs().set_with(name, value, mode)
            }
            Act::Take(path, name) => self.node(path)?.xattrs().remove(name),
        }
    }
}

impl Side for Ours {
    fn act(&mut self, act: &Act) -> Outcome {
        self.try_act(act).map_err(|error| match error {
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Caller(reason) => match reason {
                Reason::NotFound => Errno::NOENT,
                Reason::Exists => Errno::EXIST,
                Reason::NotDir => Errno::NOTDIR,
                Reason::IsDir => Errno::ISDIR,
                Reason::NotEmpty => Errno::NOTEMPTY,
                Reason::NoSpace => Errno::NOSPC,
                Reason::NoAttribute => Errno::NODATA,
                Reason::Permission => Errno::PERM,
                Reason::Denied => Errno::ACCESS,
                Reason::Invalid(_) => Errno::INVAL,
                other => panic!("{act:?}: {other}"),
            },
            other => panic!("{act:?}: {other}"),
        })
    }

    fn see(&mut self, paths: &[String]) -> Seen {
        let mut seen = Seen::new();
        for path in paths {
            let Ok(node) = self.node(path) else {
                continue;
            };
            let mut attributes = BTreeMap::new();
            for name in node.xattrs().names().expect("names") {
                if let Some(value) = node.xattrs().get(&name).expect("a value") {
                    attributes.insert(String::from_utf8(name).expect("UTF-8"), value);
                }
            }
            let mode = node.metadata().expect("attributes").mode();
            seen.insert(path.clone(), (mode, attributes));
        }
        seen
    }
}

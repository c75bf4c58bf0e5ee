//! [`Undelivered`]: a reply that the kernel did not receive, because the request was interrupted or the mount
//! is gone. So the kernel will neither forget the inodes in the reply nor release the handle in it.

use zerocopy::FromBytes;

use crate::files::Files;
use crate::nodes::Nodes;
use crate::wire::{Dirent, EntryOut, Opcode, OpenOut};

/// See the head of this file.
pub(super) struct Undelivered<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) files: &'a Files,
}

impl Undelivered<'_> {
    /// Takes back the look-ups and the handle in the reply to a request.
    pub(super) fn take_back(&self, opcode: Option<Opcode>, reply: &[u8]) {
        match opcode {
            Some(
                Opcode::Lookup | Opcode::Mknod | Opcode::Mkdir | Opcode::Symlink | Opcode::Link,
            ) => {
                self.entry(reply);
            }
            Some(Opcode::Create | Opcode::Tmpfile) => {
                let rest = self.entry(reply);
                self.handle(rest);
            }
            Some(Opcode::Open) => self.handle(reply),
            Some(Opcode::Readdirplus) => self.page(reply),
            _ => {}
        }
    }

    /// Returns the bytes after the entry.
    fn entry<'a>(&self, reply: &'a [u8]) -> &'a [u8] {
        let Ok((entry, rest)) = EntryOut::read_from_prefix(reply) else {
            return &[];
        };
        self.nodes.forget(entry.nodeid, 1);
        rest
    }

    fn handle(&self, reply: &[u8]) {
        if let Ok((open, _)) = OpenOut::read_from_prefix(reply) {
            self.files.remove(open.fh);
        }
    }

    fn page(&self, mut page: &[u8]) {
        while !page.is_empty() {
            let rest = self.entry(page);
            let Ok((dirent, rest)) = Dirent::read_from_prefix(rest) else {
                return;
            };
            let name = (dirent.namelen as usize).next_multiple_of(8);
            page = rest.get(name..).unwrap_or_default();
        }
    }
}

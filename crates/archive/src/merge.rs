//! Sources, one after the other, to one tree.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use crate::content::SourceId;
use crate::error::{Error, Result};
use crate::host::{self, fingerprint};
use crate::limits::Limits;
use crate::source::{Access, Item, Source, Sources};
use crate::stream::{
    Compression, FileInput, Input, Spool, StreamInput, Window, decoder, from_read,
};
use crate::tar::Reader;
use crate::tree::Tree;

/// Merges sources: what is added later replaces what was there, but a directory keeps what is in it.
///
/// After an error the tree holds part of a source and is of no use.
#[derive(Debug)]
pub struct Merge {
    tree: Tree,
    sources: Sources,
    limits: Limits,
    whiteouts: bool,
}

impl Merge {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Merge {
        Merge {
            tree: Tree::new(limits.clone()),
            sources: Sources::new(),
            limits,
            whiteouts: false,
        }
    }

    /// Whether names in archives that begin with `.wh.` are whiteouts of OCI's layers: they remove what earlier
    /// sources have. At first not.
    pub fn set_whiteouts(&mut self, whiteouts: bool) {
        self.whiteouts = whiteouts;
    }

    /// The tree so far, to add to or remove from.
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// The sources so far, to add to.
    pub fn sources_mut(&mut self) -> &mut Sources {
        &mut self.sources
    }

    /// The tree, and where its contents are.
    pub fn finish(self) -> (Tree, Sources) {
        (self.tree, self.sources)
    }

    /// Adds a directory, or an archive, which is told by its content; `-` is an archive on standard input.
    pub fn add(&mut self, path: &Path) -> Result<()> {
        if path == Path::new("-") {
            return self.add_stream(std::io::stdin(), "standard input");
        }
        let name = path.display().to_string();
        let metadata = std::fs::metadata(path).map_err(|error| Error::io(&name, error))?;
        if metadata.is_dir() {
            return self.add_directory(path);
        }
        let file = File::open(path).map_err(|error| Error::io(&name, error))?;
        if metadata.is_file() {
            self.add_archive(file, &name)
        } else {
            self.add_stream(file, &name)
        }
    }

    /// Adds what is below a directory of this machine.
    pub fn add_directory(&mut self, path: &Path) -> Result<()> {
        self.tree.begin_layer();
        let id = self.sources.next_id();
        let source = host::scan(path, &mut self.tree, id)?;
        self.sources.add(Box::new(source));
        Ok(())
    }

    /// Adds an archive in a regular file, plain or compressed. `name` is for messages. Contents stay where they
    /// are: those of a plain archive are read at random, a compressed one is decompressed once more.
    pub fn add_archive(&mut self, file: File, name: &str) -> Result<()> {
        let failed = |error: std::io::Error| Error::io(name, error);
        let metadata = file.metadata().map_err(failed)?;
        let window = Window {
            file: Arc::new(file),
            start: 0,
            length: metadata.len(),
        };
        let mut head = [0; 6];
        let known = window.length.min(6) as usize;
        window
            .read_exact_at(0, &mut head[..known])
            .map_err(failed)?;
        let archive = ArchiveFile {
            name: name.to_owned(),
            compression: Compression::of(&head[..known]),
            limit_bytes: self.limits.stream_bytes,
            fingerprint: fingerprint(&metadata),
            window,
        };
        let id = self.sources.next_id();
        self.tree.begin_layer();
        if archive.compression == Compression::None {
            let mut input = FileInput::new(archive.window.clone());
            self.read_members(&mut input, id)
                .map_err(|error| error.within(name))?;
        } else {
            let reader = archive.open_stream()?;
            let mut input = StreamInput::new(reader, None);
            let read = self
                .read_members(&mut input, id)
                .and_then(|()| input.drain());
            read.map_err(|error| error.within(name))?;
        }
        archive.check()?;
        self.sources.add(Box::new(archive));
        Ok(())
    }

    /// Adds an archive from a stream, plain or compressed. Contents are kept in a temporary file without a
    /// name, whose size the limits bound.
    pub fn add_stream(&mut self, mut stream: impl Read + Send, name: &str) -> Result<()> {
        let mut head = Vec::new();
        let read = stream.by_ref().take(6).read_to_end(&mut head);
        read.map_err(|error| Error::io(name, error))?;
        let compression = Compression::of(&head);
        let input = BufReader::with_capacity(128 << 10, head.chain(stream));
        let reader = decoder(compression, input, self.limits.stream_bytes);
        let reader = reader.map_err(|error| from_read(error).within(name))?;
        let mut spool = Spool::new(self.limits.spool_bytes)?;
        let id = self.sources.next_id();
        self.tree.begin_layer();
        let mut input = StreamInput::new(reader, Some(&mut spool));
        let read = self
            .read_members(&mut input, id)
            .and_then(|()| input.drain());
        read.map_err(|error| error.within(name))?;
        drop(input);
        self.sources.add(Box::new(Spooled {
            name: name.to_owned(),
            window: spool.into_window(),
        }));
        Ok(())
    }

    fn read_members(&mut self, input: &mut dyn Input, id: SourceId) -> Result<()> {
        let mut reader = Reader::new(input, &self.limits);
        while let Some(entry) = reader.next()? {
            entry.add_to(&mut self.tree, id, self.whiteouts)?;
        }
        Ok(())
    }
}

/// An archive in a file.
struct ArchiveFile {
    name: String,
    window: Window,
    compression: Compression,
    limit_bytes: u64,
    fingerprint: u64,
}

impl ArchiveFile {
    fn check(&self) -> Result<()> {
        let now = self
            .window
            .file
            .metadata()
            .map_err(|error| Error::io(&self.name, error))?;
        if fingerprint(&now) == self.fingerprint {
            Ok(())
        } else {
            Err(Error::Changed(self.name.clone()))
        }
    }
}

impl Source for ArchiveFile {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn access(&self) -> Access {
        if self.compression == Compression::None {
            Access::Random
        } else {
            Access::Sequential
        }
    }

    fn open_item(&self, _item: u32) -> Result<Box<dyn Item + '_>> {
        if self.access() == Access::Sequential {
            return Err(Error::Invalid(format!(
                "{}: compressed, so it is read in order only",
                self.name
            )));
        }
        self.check()?;
        Ok(Box::new(OpenArchive(self)))
    }

    fn open_stream(&self) -> Result<Box<dyn Read + Send + '_>> {
        self.check()?;
        let input = BufReader::with_capacity(128 << 10, self.window.reader());
        decoder(self.compression, input, self.limit_bytes)
            .map_err(|error| from_read(error).within(&self.name))
    }

    fn finish_stream(&self) -> Result<()> {
        self.check()
    }
}

struct OpenArchive<'a>(&'a ArchiveFile);

impl Item for OpenArchive<'_> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.0.window.read_exact_at(at, buffer);
        read.map_err(|error| Error::io(&self.0.name, error))
    }

    fn finish(&self) -> Result<()> {
        self.0.check()
    }
}

/// Contents of a stream, in a temporary file.
struct Spooled {
    name: String,
    window: Window,
}

impl Source for Spooled {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn open_item(&self, _item: u32) -> Result<Box<dyn Item + '_>> {
        Ok(Box::new(&self.window))
    }
}

impl Item for &Window {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.read_exact_at(at, buffer);
        read.map_err(|error| Error::io("temporary file", error))
    }
}

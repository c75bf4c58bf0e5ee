//! Merges sources, in order, into one tree.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::archive_file::{ArchiveFile, Spooled};
use crate::content::SourceId;
use crate::error::{Error, Result};
use crate::exclude::LeftOut;
use crate::host;
use crate::host_tree::Identity;
use crate::image::{
    Layer, Platform, Store, is_image_name, layers_of, probe, probe_input, scan_layers,
};
use crate::limits::Limits;
use crate::source::{Source, Sources};
use crate::stream::{
    Compression, FileInput, Input, Spool, StreamInput, Window, decoder, from_read,
};
use crate::tar::{Entry, Reader};
use crate::tree::Tree;

/// Merges sources: what is added later replaces what was there, but a directory keeps what is in it.
///
/// After an error the tree holds part of a source and must not be used.
pub struct Merge {
    tree: Tree,
    sources: Sources,
    limits: Limits,
    whiteouts: bool,
    platform: Option<Platform>,
    platform_counted: bool,
    threads: usize,
    unwanted: Option<Box<Unwanted>>,
    /// Whether there was a tree at first.
    is_onto: bool,
    /// Files of this machine that are in no directory, by device and inode.
    left_out: Vec<Identity>,
}

/// Whether the path is to be left out.
pub(crate) type Unwanted = dyn Fn(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Merge");
        shown.field("sources", &self.sources);
        shown.field("names", &self.tree.name_count());
        shown.finish_non_exhaustive()
    }
}

impl Merge {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Merge {
        Merge {
            tree: Tree::new(limits.clone()),
            sources: Sources::new(),
            limits,
            whiteouts: false,
            platform: None,
            platform_counted: false,
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            unwanted: None,
            is_onto: false,
            left_out: Vec::new(),
        }
    }

    /// Begins with a tree, over which the sources are laid. Its nodes keep their numbers
    /// ([`Tree::keep_numbers`]). Paths that are [left out](Merge::set_exclude) are left out of the sources
    /// only; what the tree has there stays.
    pub fn onto(mut tree: Tree, limits: Limits) -> Merge {
        tree.keep_numbers();
        Merge {
            tree,
            is_onto: true,
            ..Merge::new(limits)
        }
    }

    /// Whether names in archives that begin with `.wh.` are whiteouts of OCI's layers: they remove what
    /// earlier sources have. At first not.
    pub fn set_whiteouts(&mut self, whiteouts: bool) {
        self.whiteouts = whiteouts;
    }

    /// Which image to take where there are several. At first: Linux on this machine's processor. An image
    /// that is for another platform is refused, by what its index or its configuration says.
    pub fn set_platform(&mut self, platform: Platform) {
        self.platform = Some(platform);
    }

    /// Whether a source so far was a container image, for which the platform counts.
    pub fn platform_counted(&self) -> bool {
        self.platform_counted
    }

    /// Leaves a file of this machine, under all its names, out of directories that are added: such as the
    /// image that is being replaced.
    pub fn leave_out(&mut self, file: &std::fs::Metadata) {
        self.left_out.push(Identity {
            device: file.dev(),
            inode: file.ino(),
        });
    }

    /// Leaves out the paths that are `unwanted`, and all below them, of all sources. Paths are those in the
    /// tree, without a slash at their start. In directories, such paths are not even looked at. Of a file
    /// with several names in an archive, the other names stay.
    pub fn set_exclude(&mut self, unwanted: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        self.unwanted = Some(Box::new(unwanted));
    }

    /// What the sources may need.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
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
    pub fn finish(mut self) -> (Tree, Sources) {
        if let Some(unwanted) = self.unwanted.as_ref().filter(|_| !self.is_onto) {
            self.tree.remove_all(unwanted);
        }
        (self.tree, self.sources)
    }

    /// Adds a directory, an archive or a container image, recognized by their content: an OCI layout is
    /// a directory with `oci-layout` and `index.json`, or a tar with them; what `docker save` writes is a tar
    /// with `manifest.json`. `-` is an archive or image on standard input.
    ///
    /// # Errors
    /// - [`Error::Io`]: what cannot be read; [`Error::Changed`]: what changes meanwhile.
    /// - [`Error::Damaged`]: an archive that is damaged, incomplete or hostile.
    /// - [`Error::Limit`]: more than the [`Limits`] allow.
    /// - [`Error::Unsupported`]: what is not read, by its name.
    /// - [`Error::Invalid`]: several images; [`Merge::add_image`] adds one of them.
    pub fn add(&mut self, path: &Path) -> Result<()> {
        if path == Path::new("-") {
            return self.add_stream(std::io::stdin(), "standard input");
        }
        let name = path.display().to_string();
        let metadata = std::fs::metadata(path).map_err(|error| Error::io(&name, error))?;
        if metadata.is_dir() {
            let store = Store::Directory(path.to_owned());
            return if store.is_image() {
                self.add_layers(&store, None, &name)
            } else {
                self.add_directory(path)
            };
        }
        let file = File::open(path).map_err(|error| Error::io(&name, error))?;
        if metadata.is_file() {
            self.add_archive(file, &name)
        } else {
            self.add_stream(file, &name)
        }
    }

    /// Adds what is below a directory of this machine.
    ///
    /// # Errors
    /// As [`Merge::add`].
    pub fn add_directory(&mut self, path: &Path) -> Result<()> {
        self.tree.begin_layer();
        let id = self.sources.next_id();
        let wanted: &Unwanted = &|_| false;
        let unwanted = self.unwanted.as_deref().unwrap_or(wanted);
        let source = host::scan(path, &mut self.tree, id, unwanted, &self.left_out)?;
        self.sources.add(Box::new(source));
        Ok(())
    }

    /// Adds a container image from an OCI layout or from what `docker save` wrote. Of several images,
    /// it is that called `image`: the annotation `org.opencontainers.image.ref.name`, or the tag.
    ///
    /// # Errors
    /// As [`Merge::add`]; [`Error::Invalid`] if this is something else, or there is no image of that name.
    pub fn add_image(&mut self, path: &Path, image: Option<&str>) -> Result<()> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| Error::io(&name, error);
        let store = if std::fs::metadata(path).map_err(failed)?.is_dir() {
            Some(Store::Directory(path.to_owned())).filter(Store::is_image)
        } else {
            let archive = ArchiveFile::new(
                whole(File::open(path).map_err(failed)?, &name)?,
                &name,
                &self.limits,
            )?;
            self.probe(&archive)?
        };
        let store =
            store.ok_or_else(|| Error::Invalid(format!("{name}: is not a container image")))?;
        self.add_layers(&store, image, &name)
    }

    /// Adds an archive or image in a regular file, plain or compressed. `name` is for messages. Contents stay
    /// where they are: those of a plain archive are read at random, a compressed one is decompressed once
    /// more.
    ///
    /// # Errors
    /// As [`Merge::add`].
    pub fn add_archive(&mut self, file: File, name: &str) -> Result<()> {
        self.add_window(whole(file, name)?, name)
    }

    fn add_window(&mut self, window: Window, name: &str) -> Result<()> {
        let archive = ArchiveFile::new(window, name, &self.limits)?;
        if let Some(store) = self.probe(&archive)? {
            return self.add_layers(&store, None, name);
        }
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

    /// The image that is in an archive, if one is. A compressed one is decompressed to a temporary file,
    /// because its layers are read at once.
    fn probe(&self, archive: &ArchiveFile) -> Result<Option<Store<'static>>> {
        if archive.compression == Compression::None {
            return probe(&archive.window, &self.limits)
                .map_err(|error| error.within(&archive.name));
        }
        let mut input = StreamInput::new(archive.open_stream()?, None);
        // What is wrong with the stream is found, and told, when it is read for its members.
        if !matches!(probe_input(&mut input, &self.limits), Ok(Some(_))) {
            return Ok(None);
        }
        let spooled = spool(archive.open_stream()?, &self.limits);
        let window = spooled.map_err(|error| error.within(&archive.name))?;
        probe(&window, &self.limits).map_err(|error| error.within(&archive.name))
    }

    pub(crate) fn add_layers(
        &mut self,
        store: &Store<'_>,
        image: Option<&str>,
        name: &str,
    ) -> Result<()> {
        let layers = layers_of(store, image, self.platform.as_ref());
        let layers = layers.map_err(|error| error.within(name))?;
        self.platform_counted = true;
        let first = self.sources.next_id();
        for layer in &layers {
            let Layer {
                name: layer_name,
                window,
                ..
            } = layer;
            let source = ArchiveFile::new(
                window.clone(),
                &format!("{name}: {layer_name}"),
                &self.limits,
            )?;
            self.sources.add(Box::new(source));
        }
        let mut begun = None;
        let mut left_out = LeftOut::default();
        let unwanted = self.unwanted.as_deref().filter(|_| self.is_onto);
        let (tree, limits) = (&mut self.tree, &self.limits);
        let mut add = |index: usize, entry: Entry| {
            while begun.is_none_or(|begun| begun < index) {
                tree.begin_layer();
                begun = Some(begun.map_or(0, |begun| begun + 1));
            }
            let source = SourceId(first.0 + index as u32);
            let passed = match unwanted {
                Some(unwanted) => left_out.pass(entry, source, unwanted, limits),
                None => Ok(Some((entry, source))),
            };
            let added = passed.and_then(|passed| match passed {
                Some((entry, source)) => entry.add_to(tree, source, true),
                None => Ok(()),
            });
            added.map_err(|error| error.within(&layers[index].name))
        };
        scan_layers(&layers, &self.limits, self.threads, &mut add)
            .map_err(|error| error.within(name))
    }

    /// Adds an archive or image from a stream, plain or compressed. Contents are kept in a temporary file
    /// without a name, whose size the limits bound.
    ///
    /// # Errors
    /// As [`Merge::add`].
    pub fn add_stream(&mut self, mut stream: impl Read + Send, name: &str) -> Result<()> {
        let mut head = Vec::new();
        let read = stream.by_ref().take(6).read_to_end(&mut head);
        read.map_err(|error| Error::io(name, error))?;
        let compression = Compression::of(&head);
        let input = BufReader::with_capacity(128 << 10, head.chain(stream));
        let reader = decoder(compression, input, self.limits.stream_bytes);
        let mut reader = reader.map_err(|error| from_read(error).within(name))?;
        let mut head = Vec::new();
        let read = reader.by_ref().take(512).read_to_end(&mut head);
        read.map_err(|error| from_read(error).within(name))?;
        // A block of zeros, which has no name either, is the end of an archive.
        if head.first() != Some(&0) && is_image_name(&head) {
            let window =
                spool(head.chain(reader), &self.limits).map_err(|error| error.within(name))?;
            return self.add_window(window, name);
        }
        let mut spool = Spool::new(self.limits.spool_bytes)?;
        let id = self.sources.next_id();
        self.tree.begin_layer();
        let mut input = StreamInput::new(Box::new(head.chain(reader)), Some(&mut spool));
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
        let mut left_out = LeftOut::default();
        let unwanted = self.unwanted.as_deref().filter(|_| self.is_onto);
        while let Some(entry) = reader.next()? {
            let passed = match unwanted {
                Some(unwanted) => left_out.pass(entry, id, unwanted, &self.limits)?,
                None => Some((entry, id)),
            };
            if let Some((entry, id)) = passed {
                entry.add_to(&mut self.tree, id, self.whiteouts)?;
            }
        }
        Ok(())
    }
}

fn whole(file: File, name: &str) -> Result<Window> {
    Window::whole(file).map_err(|error| Error::io(name, error))
}

/// Keeps all of a stream in a temporary file.
fn spool(mut stream: impl Read, limits: &Limits) -> Result<Window> {
    let mut spool = Spool::new(limits.spool_bytes)?;
    let mut buffer = vec![0; 128 << 10];
    loop {
        let read = stream.read(&mut buffer).map_err(from_read)?;
        if read == 0 {
            return Ok(spool.into_window());
        }
        spool.append(&buffer[..read])?;
    }
}

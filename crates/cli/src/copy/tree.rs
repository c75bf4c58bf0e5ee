//! Walks one source and creates its files at the target.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use throughline::FileType;
use throughline_forms::owner::Owner;

use super::arguments::may_overwrite;
use super::extended::Extended;
use super::pump::{Buffers, Transfer, copy_large};
use super::side::{Change, Content, Create, Folder, Id, Landed, Meta};
use super::workers::{Job, Queue, SMALL_BYTES, Shared};
use super::{Follow, Given, Options};
use crate::output::Output;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};

/// Closes a target, after the last write.
pub(super) fn close(target: Box<dyn Content>, place: &Place) -> Result<(), Failure> {
    let closed = target.close();
    closed.doing(|| format!("error writing {place}"))
}

/// A name in a directory on one side.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) folder: &'a dyn Folder,
    pub(crate) name: &'a OsStr,
    pub(crate) place: &'a Place,
    /// The name did not exist before: this copy created the directory, and visits each name once.
    pub(crate) is_new: bool,
}

impl<'a> At<'a> {
    pub(super) fn new(folder: &'a dyn Folder, name: &'a OsStr, place: &'a Place) -> At<'a> {
        At {
            folder,
            name,
            place,
            is_new: false,
        }
    }
}

/// A copied file whose source has further names.
struct Linked {
    first: Landed,
    /// The file at the target.
    id: Id,
    remaining_names: u64,
}

/// The walk of a copy, by the thread that creates names.
pub(crate) struct Walker<'a> {
    pub(crate) options: &'a Options,
    pub(crate) umask: u32,
    pub(crate) out: &'a mut Output,
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) queue: Queue<'a>,
    /// The open image files. They are never overwritten, and never copied into themselves.
    pub(crate) images: Vec<Id>,
    pub(crate) buffers: Buffers,
    /// Names created.
    pub(crate) names: u64,
    linked: HashMap<Id, Linked>,
    /// Directories of the current source that were visited; if links are followed, those being visited.
    pub(super) seen: HashSet<Id>,
    /// The number of directories being visited.
    pub(super) depth: usize,
    /// The target directory of the current source.
    pub(super) root: Option<Id>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(
        options: &'a Options,
        umask: u32,
        out: &'a mut Output,
        shared: &'a Shared<'a>,
        queue: Queue<'a>,
        images: Vec<Id>,
    ) -> Walker<'a> {
        Walker {
            options,
            umask,
            out,
            shared,
            queue,
            images,
            buffers: Buffers::default(),
            names: 0,
            linked: HashMap::new(),
            seen: HashSet::new(),
            depth: 0,
            root: None,
        }
    }

    /// Copies a source named on the command line.
    pub(crate) fn source(&mut self, from: At<'_>, to: At<'_>) -> Result<(), Failure> {
        self.seen.clear();
        self.depth = 0;
        self.root = None;
        self.entry(from, to)
    }

    pub(super) fn follows(&self) -> bool {
        match self.options.follow {
            Follow::Never => false,
            Follow::Arguments => self.depth == 0,
            Follow::Always => true,
        }
    }

    pub(super) fn entry(&mut self, from: At<'_>, to: At<'_>) -> Result<(), Failure> {
        self.shared.interrupt.check()?;
        let meta = from
            .folder
            .meta(from.name, self.follows())
            .doing(|| format!("cannot stat {}", from.place))?;
        if self.images.contains(&meta.id) {
            return Err(Failure::plain(format!(
                "not copying {}: it is the image that is open",
                from.place
            )));
        }
        if meta.is_dir() {
            if !self.options.recursive {
                return Err(Failure::plain(format!(
                    "-r not specified; omitting directory {}",
                    from.place
                )));
            }
            return self.folder(from, to, &meta);
        }
        let Some(existing) = self.room(from, to, &meta)? else {
            return Ok(());
        };
        if self.link(to, &meta, existing.as_ref())? {
            return self.made(from, to);
        }
        let mut id = None;
        match meta.kind {
            FileType::Symlink => self.symlink(from, to, &meta, existing.as_ref())?,
            FileType::File => id = Some(self.file(from, to, &meta, existing.as_ref())?),
            _ if self.options.recursive => self.node(from, to, &meta, existing.as_ref())?,
            _ if matches!(meta.id, Id::Host(..)) => {
                id = Some(self.file(from, to, &meta, existing.as_ref())?);
            }
            _ => {
                return Err(Problem::new("it is a special file")
                    .with_next("use -r or -a to copy devices, fifos and sockets as such")
                    .met(format!("cannot copy {}", from.place)));
            }
        }
        if meta.links > 1 {
            let cannot = || format!("cannot stat {}", to.place);
            let id = match id {
                Some(id) => id,
                None => to.folder.meta(to.name, false).doing(cannot)?.id,
            };
            self.linked.insert(
                meta.id,
                Linked {
                    first: to.folder.landed(to.name, id),
                    id,
                    remaining_names: meta.links - 1,
                },
            );
        }
        self.made(from, to)
    }

    pub(super) fn made(&mut self, from: At<'_>, to: At<'_>) -> Result<(), Failure> {
        self.names += 1;
        if !self.options.verbose {
            return Ok(());
        }
        let line = format!("{} -> {}", from.place, to.place);
        self.shared.progress.suspend(|| self.out.line(line))
    }

    /// Checks the target: `None` to skip the source, `Some(None)` if there is no target yet.
    fn room(&self, from: At<'_>, to: At<'_>, meta: &Meta) -> Result<Option<Option<Meta>>, Failure> {
        if to.is_new {
            return Ok(Some(None));
        }
        let existing = match to.folder.meta(to.name, false) {
            Ok(existing) => existing,
            Err(problem) if problem.errno == Some(Errno::NOENT) => return Ok(Some(None)),
            Err(problem) => return Err(problem.met(format!("cannot stat {}", to.place))),
        };
        if existing.is_dir() {
            return Err(Failure::plain(format!(
                "cannot overwrite directory {} with non-directory {}",
                to.place, from.place
            )));
        }
        let is_newer = self.options.update && existing.modified >= meta.modified;
        if self.options.no_clobber || is_newer {
            return Ok(None);
        }
        // The file that would be written. For names on the command line, links are followed.
        let written = if self.depth == 0 {
            to.folder.meta(to.name, true).unwrap_or(existing.clone())
        } else {
            existing.clone()
        };
        if meta.id == existing.id || meta.id == written.id {
            return Err(Failure::plain(format!(
                "{} and {} are the same file",
                from.place, to.place
            )));
        }
        if self.images.contains(&written.id) {
            return Err(Failure::plain(format!(
                "not writing to {}: it is the image that is open",
                to.place
            )));
        }
        // A symbolic link that is replaced rather than followed is not an image.
        let is_written = written.kind != FileType::Symlink
            && (meta.kind == FileType::File || existing.kind != FileType::Symlink);
        if let (Place::Host(path), true) = (to.place, is_written) {
            may_overwrite(path, self.options)?;
        }
        Ok(Some(Some(existing)))
    }

    /// If the source is another name of a file that was already copied, makes the target another name of that
    /// copy. Returns whether it did.
    fn link(&mut self, to: At<'_>, meta: &Meta, existing: Option<&Meta>) -> Result<bool, Failure> {
        let Some(linked) = self.linked.get_mut(&meta.id) else {
            return Ok(false);
        };
        // The target already is a name of the copy: removing it would remove the copy.
        if existing.is_some_and(|existing| existing.id == linked.id) {
            return Ok(true);
        }
        let cannot = || format!("cannot create hard link {}", to.place);
        if existing.is_some() {
            to.folder.remove(to.name).doing(cannot)?;
        }
        to.folder.make_link(to.name, &linked.first).doing(cannot)?;
        linked.remaining_names -= 1;
        if linked.remaining_names == 0 {
            self.linked.remove(&meta.id);
        }
        Ok(true)
    }

    fn symlink(
        &self,
        from: At<'_>,
        to: At<'_>,
        meta: &Meta,
        existing: Option<&Meta>,
    ) -> Result<(), Failure> {
        let target = from
            .folder
            .link_target(from.name, meta)
            .doing(|| format!("cannot read symbolic link {}", from.place))?;
        let change = Change {
            mode: None,
            ..self.change(meta, true)
        };
        let change = self.with_attributes(from, to, meta, change)?;
        let cannot = || format!("cannot create symbolic link {}", to.place);
        if existing.is_some() {
            to.folder.remove(to.name).doing(cannot)?;
        }
        to.folder.make_symlink(to.name, &target).doing(cannot)?;
        self.preserve(to, meta, &change)
    }

    fn node(
        &self,
        from: At<'_>,
        to: At<'_>,
        meta: &Meta,
        existing: Option<&Meta>,
    ) -> Result<(), Failure> {
        let change = self.with_attributes(from, to, meta, self.change(meta, true))?;
        let cannot = || {
            format!(
                "cannot create special file {} (from {})",
                to.place, from.place
            )
        };
        if existing.is_some() {
            to.folder.remove(to.name).doing(cannot)?;
        }
        to.folder
            .make_node(to.name, meta.kind, meta.device, self.new_mode(meta))
            .doing(cannot)?;
        self.preserve(to, meta, &change)
    }

    /// Adds the extended attributes of a source that is neither a regular file nor a directory.
    fn with_attributes(
        &self,
        from: At<'_>,
        to: At<'_>,
        meta: &Meta,
        mut change: Change,
    ) -> Result<Change, Failure> {
        let preserve = self.options.preserve;
        if preserve.reads_attributes() {
            let holder = from.folder.holder(from.name, meta);
            let read = holder.and_then(|holder| Extended::read(&holder, meta.kind, preserve));
            let cannot = || format!("cannot preserve the attributes of {}", to.place);
            change.extended = read.doing(cannot)?;
        }
        Ok(change)
    }

    /// Sets the preserved attributes of a name that was just created from such a source.
    fn preserve(&self, to: At<'_>, meta: &Meta, change: &Change) -> Result<(), Failure> {
        if !change.is_empty() {
            let made = (meta.kind, meta.device);
            let cannot = || format!("cannot preserve the attributes of {}", to.place);
            let refused = to.folder.set(to.name, made, change).doing(cannot)?;
            self.shared.refused(refused, to.place);
        }
        Ok(())
    }

    /// The attributes to set on a new or existing target, except the extended ones.
    pub(super) fn change(&self, meta: &Meta, made: bool) -> Change {
        let preserve = self.options.preserve;
        let mode = preserve.last_mode(self.source_mode(meta), self.umask);
        let kept = Change {
            owner: preserve.owner.then_some(Owner {
                user: Some(meta.uid),
                group: Some(meta.gid),
            }),
            mode: mode.filter(|_| made || preserve.mode),
            times: preserve.times.then_some((meta.accessed, meta.modified)),
            ..Change::default()
        };
        self.given(kept, (self.source_mode(meta), meta.is_dir(), made))
    }

    /// Adds `--chown` and `--chmod` to a change. `of`: the mode of the source, whether it is a directory, and
    /// whether the target is new.
    pub(crate) fn given(&self, mut change: Change, of: (u32, bool, bool)) -> Change {
        let (source_mode, is_dir, made) = of;
        let given = &self.options.given;
        let plain = || source_mode & 0o777 & !self.umask;
        if let Some(owner) = given.owner {
            let kept = change.owner.unwrap_or(Owner::NONE);
            change.owner = Some(Owner {
                user: owner.user.or(kept.user),
                group: owner.group.or(kept.group),
            });
            // It was created with fewer permissions than the final ones.
            if made && change.mode.is_none() {
                change.mode = Some(plain());
            }
        }
        if let Some(wanted) = &given.mode {
            let before = change.mode.unwrap_or_else(plain);
            change.mode = Some(wanted.apply(before, is_dir, self.umask));
        }
        change
    }

    /// The mode of the source, or the default mode of its kind if the source's is not kept.
    pub(super) fn source_mode(&self, meta: &Meta) -> u32 {
        match (self.options.fresh_mode, meta.kind) {
            (false, _) => meta.mode,
            (true, FileType::Directory | FileType::Socket) => 0o777,
            (true, _) => 0o666,
        }
    }

    /// The mode to create a file with, before the umask.
    pub(super) fn new_mode(&self, meta: &Meta) -> u32 {
        let mode = self.options.preserve.first_mode(self.source_mode(meta));
        match self.options.given {
            Given {
                owner: None,
                mode: None,
            } => mode,
            // The group and others get no access before the owner is set.
            _ => mode & 0o700,
        }
    }

    /// Returns the file at the target.
    fn file(
        &mut self,
        from: At<'_>,
        to: At<'_>,
        meta: &Meta,
        existing: Option<&Meta>,
    ) -> Result<Id, Failure> {
        if existing.is_some() {
            // Wait for this copy's own pending writes to that file.
            for follow in [false, true] {
                if let Ok(existing) = to.folder.meta(to.name, follow) {
                    self.queue.wait_for(existing.id);
                }
            }
        }
        let open = |walker: &Self| {
            let source = from
                .folder
                .open(from.name, walker.follows(), meta)
                .doing(|| format!("cannot open {} for reading", from.place))?;
            let target = walker.open_target(to, walker.new_mode(meta), existing)?;
            Ok((source, target))
        };
        let (source, target) = self.patiently(open)?;
        let change = self.change(meta, existing.is_none());
        let target_id = target
            .meta()
            .doing(|| format!("cannot stat {}", to.place))?
            .id;
        if !source.is_stream() && meta.len_bytes <= SMALL_BYTES {
            self.queue.push(Job {
                from: source,
                to: target,
                target_id,
                len_bytes: meta.len_bytes,
                dense: meta.allocated_bytes >= meta.len_bytes,
                source: from.place.clone(),
                target: to.place.clone(),
                change,
            });
            return Ok(target_id);
        }
        self.bytes(source.as_ref(), target.as_ref(), from.place, to.place)?;
        let ended = (source.as_ref(), target.as_ref());
        self.shared.finish(ended.0, ended.1, (&change, to.place))?;
        close(target, to.place)?;
        Ok(target_id)
    }

    /// Opens a file. If too many files are open, waits for the workers to close theirs, then retries once.
    pub(super) fn patiently<T>(
        &mut self,
        open: impl Fn(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match open(self) {
            Err(failure) if failure.errno() == Some(Errno::MFILE) => {
                self.queue.wait_for_all();
                open(self)
            }
            other => other,
        }
    }

    /// Copies the bytes of one file. This thread writes.
    pub(crate) fn bytes(
        &mut self,
        from: &dyn Content,
        to: &dyn Content,
        source: &Place,
        target: &Place,
    ) -> Result<(), Failure> {
        let shared = self.shared;
        shared.progress.name(&source.to_string());
        let transfer = Transfer {
            from,
            to,
            source,
            target,
            sparse: self.options.sparse,
            progress: shared.progress,
            interrupt: shared.interrupt,
        };
        let copied = copy_large(&transfer, &mut self.buffers)?;
        shared.bytes.fetch_add(copied, Ordering::Relaxed);
        Ok(())
    }

    /// Opens the target for writing: a new file, or an existing one to overwrite or replace.
    pub(crate) fn open_target(
        &self,
        to: At<'_>,
        mode: u32,
        existing: Option<&Meta>,
    ) -> Result<Box<dyn Content>, Failure> {
        let cannot = || format!("cannot create regular file {}", to.place);
        let anew = || {
            to.folder
                .remove(to.name)
                .doing(|| format!("cannot remove {}", to.place))?;
            to.folder.create(to.name, mode, Create::New).doing(cannot)
        };
        let how = match existing {
            None => return to.folder.create(to.name, mode, Create::New).doing(cannot),
            Some(_) if self.depth == 0 => Create::Through,
            Some(existing) if existing.kind == FileType::File => Create::Existing(existing.id),
            Some(_) if self.options.force => return anew(),
            Some(_) => {
                return Err(Problem::new("the existing target is not a regular file")
                    .with_next("-f replaces it")
                    .met(format!("not writing to {}", to.place)));
            }
        };
        match to.folder.create(to.name, mode, how) {
            Err(_) if self.options.force => anew(),
            other => other.doing(cannot),
        }
    }
}

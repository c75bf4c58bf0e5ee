//! An actor: performs operations on a volume, and records them and the promises it was given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use throughline::{
    Attributes, Error, Fallocate, File, FileOptions, NewNode, Reason, RenameMode, Result, Volume,
};
use throughline_testing::PowerDevice;
use throughline_testing::attributes;
use throughline_testing::sectors::{SECTOR_BYTES, filled};

use super::content::{Content, FileHistory, FileOp};
use super::history::Lane;
use super::names::{Id, Kind, NameOp, Names, Span};

const SECTOR: u64 = SECTOR_BYTES as u64;

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Buffered,
    Direct,
    /// Buffered, and durable when it returns.
    Synced,
}

/// Files that actors have left for others to sync.
pub type Board = Mutex<Vec<(Id, File)>>;

/// A thread of work on a volume.
pub struct Actor<'a> {
    pub volume: &'a Volume,
    device: &'a PowerDevice,
    board: &'a Board,
    pub lane: Lane,
    /// Syncs of the whole volume.
    pub syncs: Vec<Span>,
    /// Syncs of other actors' files.
    pub others: Vec<(Id, Span)>,
    /// The current names.
    pub names: Names,
    /// Open files, including those without a name.
    pub open: BTreeMap<Id, File>,
    /// The current contents of all files.
    pub contents: BTreeMap<Id, Content>,
    /// Number of operations that failed for lack of space.
    pub full: u32,
    next: u32,
}

impl<'a> Actor<'a> {
    pub fn new(
        volume: &'a Volume,
        device: &'a PowerDevice,
        board: &'a Board,
        number: u32,
    ) -> Actor<'a> {
        let lane = Lane {
            number,
            ..Lane::default()
        };
        Actor {
            volume,
            device,
            board,
            lane,
            syncs: Vec::new(),
            others: Vec::new(),
            names: Names::new(),
            open: BTreeMap::new(),
            contents: BTreeMap::new(),
            full: 0,
            next: 0,
        }
    }

    /// A number that is unique in this test among files, directories, symbolic links and versions.
    fn fresh(&mut self) -> u32 {
        self.next += 1;
        (self.lane.number + 1) * 10_000 + self.next
    }

    fn begun(&self) -> Span {
        Span {
            begun: self.device.mark(),
            done: None,
        }
    }

    fn name_op<T>(&mut self, op: NameOp, act: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
        let span = self.begun();
        let mut names = self.names.clone();
        op.apply(&mut names);
        let number = self.lane.names.0.len();
        self.lane.names.0.push((span, op));
        match act(self.volume) {
            Ok(done) => {
                self.names = names;
                self.lane.names.0[number].0.done = Some(self.device.mark());
                Ok(done)
            }
            Err(error) => {
                // Unless it was refused, it may have happened: the device fails in its last request, too.
                if !matches!(error, Error::Device(_) | Error::Stopped(_)) {
                    self.lane.names.0.pop();
                }
                Err(error)
            }
        }
    }

    /// Performs an operation on a file. If there is no space, it may have been done in part; the file is
    /// then truncated to 0.
    fn file_op<T>(
        &mut self,
        id: Id,
        op: FileOp,
        act: &mut dyn FnMut(&File) -> Result<T>,
    ) -> Result<Option<T>> {
        let span = self.begun();
        let file = &self.open[&id];
        let history = self.lane.files.entry(id).or_default();
        op.apply(self.contents.entry(id).or_default());
        let number = history.ops.len();
        history.ops.push((span, op));
        let done = match act(file) {
            Err(Error::Caller(Reason::NoSpace)) => None,
            done => Some(done?),
        };
        history.ops[number].0.done = Some(self.device.mark());
        if done.is_none() {
            self.full += 1;
            self.set_len(id, 0)?;
        }
        Ok(done)
    }

    /// Creates a file, and keeps it open.
    pub fn create(&mut self, path: &str) -> Result<Id> {
        let id = self.fresh();
        let op = NameOp::Make(path.into(), id, Kind::File);
        self.lane.files.insert(id, FileHistory::default());
        let file = self.name_op(op, |volume| {
            let node = volume.make_node(path, NewNode::File, &owned(id))?;
            node.open_file()
        })?;
        self.open.insert(id, file);
        self.contents.insert(id, Content::default());
        Ok(id)
    }

    pub fn mkdir(&mut self, path: &str) -> Result<Id> {
        let id = self.fresh();
        let op = NameOp::Make(path.into(), id, Kind::Dir);
        self.name_op(op, |volume| {
            let made = volume.make_node(path, NewNode::Directory, &owned(id));
            made.map(drop)
        })?;
        Ok(id)
    }

    pub fn symlink(&mut self, target: &str, path: &str) -> Result<Id> {
        let id = self.fresh();
        let op = NameOp::Make(path.into(), id, Kind::Symlink(target.into()));
        self.name_op(op, |volume| {
            let link = NewNode::Symlink(target.as_bytes());
            volume.make_node(path, link, &owned(id)).map(drop)
        })?;
        Ok(id)
    }

    pub fn link(&mut self, from: &str, to: &str) -> Result<()> {
        let op = NameOp::Link(from.into(), to.into());
        self.name_op(op, |volume| volume.hard_link(from, to))
    }

    /// Removes a name; an open file stays open.
    pub fn remove(&mut self, path: &str) -> Result<()> {
        let dir = self.names[path].1 == Kind::Dir;
        let op = NameOp::Remove(path.into());
        self.name_op(op, |volume| match dir {
            true => volume.remove_dir(path),
            false => volume.remove_file(path),
        })
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let op = NameOp::Rename(from.into(), to.into());
        self.name_op(op, |volume| volume.rename(from, to))
    }

    pub fn exchange(&mut self, one: &str, other: &str) -> Result<()> {
        let op = NameOp::Exchange(one.into(), other.into());
        self.name_op(op, |volume| {
            volume.rename_with(one, other, RenameMode::Exchange)
        })
    }

    /// Closes a file.
    pub fn close(&mut self, id: Id) {
        self.open.remove(&id);
    }

    /// Closes all files without a name.
    pub fn close_nameless(&mut self) {
        let named: BTreeSet<Id> = self.names.values().map(|(id, _)| *id).collect();
        self.open.retain(|id, _| named.contains(id));
    }

    /// Writes whole sectors.
    pub fn write(&mut self, id: Id, offset: u64, len: u64, how: How) -> Result<()> {
        let version = u64::from(self.fresh());
        let bytes = filled(len as usize, id.into(), offset, version);
        let mut options = FileOptions::new();
        match how {
            How::Buffered => {}
            How::Direct => drop(options.direct(true)),
            How::Synced => drop(options.data_sync(true)),
        }
        let op = FileOp::Write {
            offset,
            len,
            version,
        };
        let written = self.file_op(id, op, &mut |file| {
            file.reopen(&options)?.write_all_at(&bytes, offset)
        })?;
        if how == How::Synced && written.is_some() {
            let mut now = self.begun();
            now.done = Some(self.device.mark());
            let history = self.lane.files.get_mut(&id).expect("it was written");
            history.syncs.push(now);
        }
        Ok(())
    }

    /// Writes at the end of the file.
    pub fn append(&mut self, id: Id, len: u64, how: How) -> Result<()> {
        self.write(id, self.contents[&id].size, len, how)
    }

    pub fn set_len(&mut self, id: Id, len: u64) -> Result<()> {
        self.file_op(id, FileOp::SetLen { len }, &mut |file| file.set_len(len))
            .map(drop)
    }

    /// Changes how a range is allocated.
    pub fn allocate(&mut self, id: Id, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let size = self.contents[&id].size;
        let end = offset + len;
        let op = match mode {
            Fallocate::Allocate => FileOp::Grow { len: end },
            Fallocate::KeepSize => FileOp::Grow { len: size },
            Fallocate::PunchHole | Fallocate::ZeroRangeKeepSize => FileOp::Zero { offset, len },
            _ => unreachable!("moves what is in the file"),
        };
        self.file_op(id, op, &mut |file| file.allocate(mode, offset, len))
            .map(drop)
    }

    /// Sets an attribute to the value with this number, or removes it. If there is no space for it, nothing
    /// changes.
    pub fn set_attribute(&mut self, id: Id, name: u8, value: Option<u8>) -> Result<()> {
        if value.is_none() && !self.contents[&id].attributes.has(name) {
            return Ok(());
        }
        let span = self.begun();
        let known = self.open[&id].xattrs();
        let op = FileOp::Attribute { name, value };
        let history = self.lane.files.entry(id).or_default();
        history.ops.push((span, op));
        let at = attributes::NAMES[usize::from(name)];
        let done = match value {
            Some(number) => known.set(at, attributes::value(name, number)),
            None => known.remove(at),
        };
        if let Err(Error::Caller(Reason::NoSpace)) = done {
            history.ops.pop();
            return Ok(());
        }
        done?;
        if let Some((span, _)) = history.ops.last_mut() {
            span.done = Some(self.device.mark());
        }
        op.apply(self.contents.entry(id).or_default());
        Ok(())
    }

    /// Reads a range, so that it is in the cache.
    pub fn read(&mut self, id: Id, offset: u64, len: u64) -> Result<()> {
        let mut bytes = vec![0; len as usize];
        self.open[&id].read_at(&mut bytes, offset).map(drop)
    }

    pub fn sync(&mut self, id: Id, data_only: bool) -> Result<()> {
        let mut span = self.begun();
        let file = &self.open[&id];
        match data_only {
            true => file.sync_data()?,
            false => file.sync_all()?,
        }
        span.done = Some(self.device.mark());
        let history = self.lane.files.get_mut(&id).expect("it was made");
        history.syncs.push(span);
        Ok(())
    }

    /// Syncs its own directory.
    pub fn sync_home(&mut self) -> Result<()> {
        let home = Lane::home(self.lane.number);
        let covered = self.lane.names.covered_in(&home);
        let mut span = self.begun();
        self.volume.open_dir(&home)?.sync()?;
        span.done = Some(self.device.mark());
        self.lane.home_syncs.push((covered, span));
        Ok(())
    }

    /// Leaves a file for others to sync.
    pub fn post(&mut self, id: Id) -> Result<()> {
        let file = self.open[&id].reopen(&FileOptions::new())?;
        self.board.lock().unwrap().push((id, file));
        Ok(())
    }

    /// Syncs the most recently left file, if there is one.
    pub fn sync_posted(&mut self, data_only: bool) -> Result<()> {
        let Some((id, file)) = self.board.lock().unwrap().pop() else {
            return Ok(());
        };
        let mut span = self.begun();
        match data_only {
            true => file.sync_data()?,
            false => file.sync_all()?,
        }
        span.done = Some(self.device.mark());
        self.others.push((id, span));
        Ok(())
    }

    pub fn sync_volume(&mut self) -> Result<()> {
        let mut span = self.begun();
        self.volume.sync()?;
        span.done = Some(self.device.mark());
        self.syncs.push(span);
        Ok(())
    }

    /// Total size of all files that have a name or are open, in bytes.
    pub fn bytes(&self) -> u64 {
        let named: BTreeSet<Id> = self.names.values().map(|(id, _)| *id).collect();
        let there = |id: &Id| named.contains(id) || self.open.contains_key(id);
        let contents = self.contents.iter().filter(|(id, _)| there(id));
        contents.map(|(_, content)| content.size).sum()
    }

    /// The length of a file, in sectors.
    pub fn sectors(&self, id: Id) -> u64 {
        self.contents[&id].size / SECTOR
    }

    /// The paths of this kind of object.
    pub fn paths(&self, want: impl Fn(&Kind) -> bool) -> Vec<String> {
        let found = self.names.iter().filter(|(_, (_, kind))| want(kind));
        found.map(|(path, _)| path.clone()).collect()
    }

    /// Opens the file at a path again, if it is not open.
    pub fn reopen(&mut self, path: &str) -> Result<Id> {
        let id = self.names[path].0;
        if !self.open.contains_key(&id) {
            self.open.insert(id, self.volume.open_file(path)?);
        }
        Ok(id)
    }
}

/// Attributes that identify a file by its owner from its creation on.
fn owned(id: Id) -> Attributes {
    Attributes::new().uid(id).gid(id)
}

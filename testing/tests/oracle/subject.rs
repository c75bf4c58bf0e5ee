//! A [`Volume`] as the model's subject.

use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::external;
use throughline::{
    Attributes, DeviceNumber, Error, Fallocate, File, FileOptions, FileType, InodeFlags, NewNode,
    OpenOptions, Reason, SyncRange, Volume,
};
use throughline_device::BlockDevice;
use throughline_testing::model::{
    Advice, Answer, FallocateMode, FileKind, Flush, Form, Handle, Refusal, RenameMode, SLOTS,
    Space, Stat, Subject,
};

/// An open volume on a device, or a directory of it.
pub struct VolumeSubject {
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
    /// `None` while it is being reopened.
    volume: Option<Arc<Volume>>,
    /// Whether names are matched without case. Names of files that exist are then written in another case
    /// than that of their entries.
    folds: bool,
    /// The prefix of every path.
    prefix: Vec<u8>,
    kept: [Option<File>; SLOTS],
}

impl VolumeSubject {
    /// Opens the volume on `device` for writing.
    pub fn open(device: Arc<dyn BlockDevice>) -> Answer<Self> {
        Self::open_with(device, OpenOptions::new().write(true))
    }

    /// The same, with these options.
    pub fn open_with(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Answer<Self> {
        let volume = external::open(options, Arc::clone(&device)).map_err(refusal)?;
        Ok(Self {
            device,
            options: options.clone(),
            folds: folds(&volume),
            volume: Some(Arc::new(volume)),
            prefix: Vec::new(),
            kept: Default::default(),
        })
    }

    /// A new directory on the same volume as a separate subject, for another thread.
    pub fn below(&self, dir: &str) -> Answer<Self> {
        self.volume()
            .make_node(dir, NewNode::Directory, &Attributes::new().mode(0o755))
            .map_err(refusal)?;
        Ok(Self {
            device: Arc::clone(&self.device),
            options: self.options.clone(),
            volume: self.volume.clone(),
            folds: self.folds,
            prefix: dir.as_bytes().to_vec(),
            kept: Default::default(),
        })
    }

    /// The same directory on the volume of another subject.
    pub fn on(&self, other: &Self) -> Self {
        Self {
            device: Arc::clone(&other.device),
            options: other.options.clone(),
            volume: other.volume.clone(),
            folds: self.folds,
            prefix: self.prefix.clone(),
            kept: Default::default(),
        }
    }

    /// Drops its reference to the volume, so that another subject can close it.
    pub fn release(&mut self) {
        self.kept = Default::default();
        self.volume = None;
    }

    /// Closes the files that were kept open.
    pub fn close_all_kept(&mut self) {
        self.kept = Default::default();
    }

    /// Closes the volume, as its last user.
    pub fn close(mut self) -> Answer<()> {
        self.kept = Default::default();
        match self.volume.take().and_then(Arc::into_inner) {
            Some(volume) => volume.close().map_err(refusal),
            None => Ok(()),
        }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        let exact = [&self.prefix, name].concat();
        if !self.folds {
            return PathBuf::from(OsString::from_vec(exact));
        }
        let mut path = PathBuf::from("/");
        for name in exact.split(|byte| *byte == b'/').skip(1) {
            let there = path.join(OsStr::from_bytes(name));
            path = match self.volume().symlink_metadata(&there) {
                Ok(_) => path.join(OsString::from_vec(other_case(name))),
                Err(_) => there,
            };
        }
        path
    }

    /// The open volume.
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open except while reopening")
    }
}

/// Whether the root matches names without case.
fn folds(volume: &Volume) -> bool {
    let root = volume.node_by_ino(2);
    root.is_ok_and(|root| root.flags().contains(InodeFlags::CASEFOLD))
}

/// The name in capitals.
fn other_case(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_uppercase().into_bytes(),
        Err(_) => name.to_vec(),
    }
}

/// Maps an error to the model's.
pub fn refusal(error: Error) -> Refusal {
    match &error {
        Error::Caller(reason) => match reason {
            Reason::NotFound => Refusal::NotFound,
            Reason::Exists => Refusal::Exists,
            Reason::NotDir => Refusal::NotDir,
            Reason::IsDir => Refusal::IsDir,
            Reason::NotEmpty => Refusal::NotEmpty,
            Reason::NoSpace => Refusal::NoSpace,
            Reason::TooLarge => Refusal::TooLarge,
            Reason::NameTooLong => Refusal::NameTooLong,
            Reason::ReadOnly => Refusal::ReadOnly,
            Reason::Permission => Refusal::Permission,
            Reason::Invalid(_) => Refusal::Invalid,
            Reason::TooManyLinks => Refusal::TooManyLinks,
            Reason::Loop => Refusal::Loop,
            Reason::Busy(_) => Refusal::Busy,
            other => Refusal::Other(other.to_string()),
        },
        Error::Unsupported(what) if what.starts_with("the volume takes") => {
            Refusal::Other(what.clone())
        }
        Error::Unsupported(_) => Refusal::Unsupported,
        other => Refusal::Other(other.to_string()),
    }
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::File => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
    }
}

fn write(file: &File, form: Form, offset: u64, data: &[u8]) -> Answer<usize> {
    let (head, tail) = data.split_at(data.len() / 5);
    match form {
        Form::Plain => file.write_at(data, offset),
        Form::Vectored => {
            let parts = [IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)];
            file.write_vectored_at(&parts, offset)
        }
    }
    .map_err(refusal)
}

fn flush(file: &File, flush: Flush) -> Answer<()> {
    match flush {
        Flush::All => file.sync_all(),
        Flush::Data => file.sync_data(),
        Flush::Range(offset, len) if offset % 2 == 0 => {
            file.sync_range(offset, len, SyncRange::Start)
        }
        Flush::Range(offset, len) => file.sync_range(offset, len, SyncRange::Wait),
    }
    .map_err(refusal)
}

fn options(handle: Handle) -> FileOptions {
    let mut options = FileOptions::new();
    match handle {
        Handle::Buffered => &mut options,
        Handle::Direct => options.direct(true),
        Handle::Sync => options.sync(true),
    };
    options
}

fn read(file: &File, offset: u64, to: &mut [u8]) -> Answer<usize> {
    // In two parts that split blocks, as a vectored caller would.
    let (head, tail) = to.split_at_mut(to.len() / 3);
    let mut parts = [IoSliceMut::new(head), IoSliceMut::new(tail)];
    file.read_vectored_at(&mut parts, offset).map_err(refusal)
}

impl Subject for VolumeSubject {
    fn create(&mut self, name: &[u8], mode: u32) -> Answer<()> {
        let root = self.volume().root().map_err(refusal)?;
        root.make_node(
            self.path(name),
            NewNode::File,
            &Attributes::new().mode(mode),
        )
        .map(drop)
        .map_err(refusal)
    }

    fn mkdir(&mut self, name: &[u8], mode: u32) -> Answer<()> {
        self.volume()
            .make_node(
                self.path(name),
                NewNode::Directory,
                &Attributes::new().mode(mode),
            )
            .map(drop)
            .map_err(refusal)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8]) -> Answer<()> {
        self.volume()
            .symlink(OsStr::from_bytes(target), self.path(name))
            .map_err(refusal)
    }

    fn mknod(&mut self, name: &[u8], kind: FileKind, mode: u32, device: (u32, u32)) -> Answer<()> {
        let number = DeviceNumber {
            major: device.0,
            minor: device.1,
        };
        let kind = match kind {
            FileKind::Fifo => NewNode::Fifo,
            FileKind::Socket => NewNode::Socket,
            FileKind::CharDevice => NewNode::CharDevice(number),
            _ => NewNode::BlockDevice(number),
        };
        self.volume()
            .make_node(self.path(name), kind, &Attributes::new().mode(mode))
            .map(drop)
            .map_err(refusal)
    }

    fn link(&mut self, from: &[u8], to: &[u8]) -> Answer<()> {
        self.volume()
            .hard_link(self.path(from), self.path(to))
            .map_err(refusal)
    }

    fn unlink(&mut self, name: &[u8]) -> Answer<()> {
        self.volume().remove_file(self.path(name)).map_err(refusal)
    }

    fn rmdir(&mut self, name: &[u8]) -> Answer<()> {
        self.volume().remove_dir(self.path(name)).map_err(refusal)
    }

    fn rename(&mut self, from: &[u8], to: &[u8], mode: RenameMode) -> Answer<()> {
        let mode = match mode {
            RenameMode::Replace => throughline::RenameMode::Replace,
            RenameMode::NoReplace => throughline::RenameMode::NoReplace,
            RenameMode::Exchange => throughline::RenameMode::Exchange,
        };
        self.volume()
            .rename_with(self.path(from), self.path(to), mode)
            .map_err(refusal)
    }

    fn write(
        &mut self,
        name: &[u8],
        handle: Handle,
        form: Form,
        offset: u64,
        data: &[u8],
    ) -> Answer<usize> {
        write(&self.file(name, handle)?, form, offset, data)
    }

    fn append(&mut self, name: &[u8], handle: Handle, data: &[u8]) -> Answer<(u64, usize)> {
        self.file(name, handle)?.append(data).map_err(refusal)
    }

    fn read(&mut self, name: &[u8], handle: Handle, offset: u64, to: &mut [u8]) -> Answer<usize> {
        read(&self.file(name, handle)?, offset, to)
    }

    fn flush(&mut self, name: &[u8], how: Flush) -> Answer<()> {
        flush(&self.file(name, Handle::Buffered)?, how)
    }

    fn advise(&mut self, slot: usize, advice: Advice, offset: u64, len: u64) -> Answer<()> {
        let advice = match advice {
            Advice::Normal => throughline::Advice::Normal,
            Advice::Sequential => throughline::Advice::Sequential,
            Advice::Random => throughline::Advice::Random,
            Advice::WillNeed => throughline::Advice::WillNeed,
            Advice::DontNeed => throughline::Advice::DontNeed,
        };
        self.kept_file(slot)?
            .advise(advice, offset, len)
            .map_err(refusal)
    }

    fn copy_range(
        &mut self,
        from: (&[u8], u64),
        to: (&[u8], u64),
        handle: Handle,
        len: u64,
    ) -> Answer<u64> {
        let (source, target) = (self.file(from.0, Handle::Buffered), self.file(to.0, handle));
        source?
            .copy_range(from.1, &*target?, to.1, len)
            .map_err(refusal)
    }

    fn truncate(&mut self, name: &[u8], len: u64) -> Answer<()> {
        self.file(name, Handle::Buffered)?
            .set_len(len)
            .map_err(refusal)
    }

    fn fallocate(&mut self, name: &[u8], mode: FallocateMode, offset: u64, len: u64) -> Answer<()> {
        let mode = match mode {
            FallocateMode::Allocate => Fallocate::Allocate,
            FallocateMode::KeepSize => Fallocate::KeepSize,
            FallocateMode::PunchHole => Fallocate::PunchHole,
            FallocateMode::ZeroRange => Fallocate::ZeroRange,
            FallocateMode::Collapse => Fallocate::Collapse,
            FallocateMode::Insert => Fallocate::Insert,
        };
        self.file(name, Handle::Buffered)?
            .allocate(mode, offset, len)
            .map_err(refusal)
    }

    fn seek_data(&mut self, name: &[u8], offset: u64) -> Answer<Option<u64>> {
        self.file(name, Handle::Buffered)?
            .seek_data(offset)
            .map_err(refusal)
    }

    fn seek_hole(&mut self, name: &[u8], offset: u64) -> Answer<Option<u64>> {
        self.file(name, Handle::Direct)?
            .seek_hole(offset)
            .map_err(refusal)
    }

    fn stat(&mut self, name: &[u8]) -> Answer<Stat> {
        let metadata = self
            .volume()
            .symlink_metadata(self.path(name))
            .map_err(refusal)?;
        let modified = match metadata.modified().duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
            Err(_) => (i64::MIN, 0),
        };
        Ok(Stat {
            kind: kind(metadata.file_type()),
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            links: metadata.nlink(),
            len_bytes: metadata.len(),
            device: metadata.device().map(|number| (number.major, number.minor)),
            modified,
        })
    }

    fn read_link(&mut self, name: &[u8]) -> Answer<Vec<u8>> {
        let target = self.volume().read_link(self.path(name)).map_err(refusal)?;
        Ok(target.into_os_string().into_vec())
    }

    fn read_dir(&mut self, name: &[u8]) -> Answer<Vec<(Vec<u8>, Option<FileKind>)>> {
        if self
            .volume()
            .symlink_metadata(self.path(name))
            .map_err(refusal)?
            .is_symlink()
        {
            return Err(Refusal::NotDir);
        }
        let entries = self.volume().read_dir(self.path(name)).map_err(refusal)?;
        let named = entries.map(|entry| {
            entry
                .map(|entry| {
                    (
                        entry.file_name().as_bytes().to_vec(),
                        entry.file_type().ok().map(kind),
                    )
                })
                .map_err(refusal)
        });
        named
            .filter(|entry| !matches!(entry, Ok((name, _)) if name == b"." || name == b".."))
            .collect()
    }

    fn set_attributes(
        &mut self,
        name: &[u8],
        mode: Option<u32>,
        owner: Option<(u32, u32)>,
    ) -> Answer<()> {
        let mut attributes = Attributes::new();
        if let Some(mode) = mode {
            attributes = attributes.mode(mode);
        }
        if let Some((uid, gid)) = owner {
            attributes = attributes.uid(uid).gid(gid);
        }
        self.volume()
            .set_symlink_attributes(self.path(name), &attributes)
            .map_err(refusal)
    }

    fn set_modified(&mut self, name: &[u8], time: (i64, u32)) -> Answer<()> {
        let time: SystemTime = UNIX_EPOCH + Duration::new(time.0.unsigned_abs(), time.1);
        self.volume()
            .set_symlink_attributes(self.path(name), &Attributes::new().modified(time))
            .map_err(refusal)
    }

    fn keep(&mut self, slot: usize, name: &[u8], handle: Handle) -> Answer<()> {
        let file = self.file(name, handle)?;
        self.kept[slot] = Some(file);
        Ok(())
    }

    fn write_kept(&mut self, slot: usize, form: Form, offset: u64, data: &[u8]) -> Answer<usize> {
        write(self.kept_file(slot)?, form, offset, data)
    }

    fn append_kept(&mut self, slot: usize, data: &[u8]) -> Answer<(u64, usize)> {
        self.kept_file(slot)?.append(data).map_err(refusal)
    }

    fn read_kept(&mut self, slot: usize, offset: u64, to: &mut [u8]) -> Answer<usize> {
        read(self.kept_file(slot)?, offset, to)
    }

    fn truncate_kept(&mut self, slot: usize, len: u64) -> Answer<()> {
        self.kept_file(slot)?.set_len(len).map_err(refusal)
    }

    fn flush_kept(&mut self, slot: usize, how: Flush) -> Answer<()> {
        flush(self.kept_file(slot)?, how)
    }

    fn close_kept(&mut self, slot: usize) -> Answer<()> {
        self.kept[slot] = None;
        Ok(())
    }

    fn sync(&mut self) -> Answer<()> {
        self.volume().sync().map_err(refusal)
    }

    fn reopen(&mut self) -> Answer<()> {
        self.kept = Default::default();
        if !self.prefix.is_empty() {
            return self.sync(); // other subjects use the volume
        }
        if let Some(volume) = self.volume.take().and_then(Arc::into_inner) {
            volume.close().map_err(refusal)?;
        }
        let volume = external::open(&self.options, Arc::clone(&self.device)).map_err(refusal)?;
        self.volume = Some(Arc::new(volume));
        Ok(())
    }

    fn space(&mut self) -> Answer<Space> {
        let stat = self.volume().stat_fs().map_err(refusal)?;
        Ok(Space {
            free_blocks: stat.available_blocks,
            free_inodes: u64::from(stat.free_inodes),
        })
    }
}

impl VolumeSubject {
    /// The regular file itself; symbolic links are not followed.
    fn file(&self, name: &[u8], handle: Handle) -> Answer<File> {
        let metadata = self
            .volume()
            .symlink_metadata(self.path(name))
            .map_err(refusal)?;
        if metadata.is_symlink() {
            return Err(Refusal::Invalid);
        }
        options(handle)
            .open(self.volume(), self.path(name))
            .map_err(refusal)
    }

    fn kept_file(&self, slot: usize) -> Answer<&File> {
        self.kept[slot]
            .as_ref()
            .ok_or_else(|| Refusal::Other("no file is kept: a bug of the test".into()))
    }
}

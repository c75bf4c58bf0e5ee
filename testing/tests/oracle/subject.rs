//! A [`Volume`] as the model's subject.

use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline::{
    Attributes, DeviceNumber, Error, Fallocate, File, FileType, OpenOptions, Reason, Volume,
};
use throughline_device::BlockDevice;
use throughline_testing::model::{
    Answer, FallocateMode, FileKind, Refusal, RenameMode, Space, Stat, Subject,
};

/// An open volume on a device, or a directory of it.
pub struct VolumeSubject {
    device: Arc<dyn BlockDevice>,
    /// `None` while it reopens.
    volume: Option<Arc<Volume>>,
    /// What stands before every path.
    prefix: Vec<u8>,
    kept: Option<File>,
}

impl VolumeSubject {
    /// Opens the volume on `device` for writing.
    pub fn open(device: Arc<dyn BlockDevice>) -> Answer<Self> {
        let volume = OpenOptions::new()
            .open_device(Arc::clone(&device))
            .map_err(refusal)?;
        Ok(Self {
            device,
            volume: Some(Arc::new(volume)),
            prefix: Vec::new(),
            kept: None,
        })
    }

    /// A new directory of the same volume as a subject of its own, for another thread.
    pub fn below(&self, dir: &str) -> Answer<Self> {
        self.volume()
            .create_dir(dir, &Attributes::new().mode(0o755))
            .map_err(refusal)?;
        Ok(Self {
            device: Arc::clone(&self.device),
            volume: self.volume.clone(),
            prefix: dir.as_bytes().to_vec(),
            kept: None,
        })
    }

    /// The same directory of another volume.
    pub fn on(&self, other: &Self) -> Self {
        Self {
            device: Arc::clone(&other.device),
            volume: other.volume.clone(),
            prefix: self.prefix.clone(),
            kept: None,
        }
    }

    /// Lets go of the volume, so that another may close it.
    pub fn release(&mut self) {
        self.kept = None;
        self.volume = None;
    }

    /// Closes it, as the last that uses it.
    pub fn close(mut self) -> Answer<()> {
        self.kept = None;
        match self.volume.take().and_then(Arc::into_inner) {
            Some(volume) => volume.close().map_err(refusal),
            None => Ok(()),
        }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        PathBuf::from(OsString::from_vec([&self.prefix, name].concat()))
    }

    /// The open volume.
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open but while it reopens")
    }
}

/// The model's word for an error.
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

fn write(file: &File, offset: u64, data: &[u8]) -> Answer<usize> {
    file.write_vectored_at(offset, &[IoSlice::new(data)])
        .map_err(refusal)
}

fn read(file: &File, offset: u64, to: &mut [u8]) -> Answer<usize> {
    // In two parts that cut blocks, as a vectored caller would.
    let (head, tail) = to.split_at_mut(to.len() / 3);
    let mut parts = [IoSliceMut::new(head), IoSliceMut::new(tail)];
    file.read_vectored_at(offset, &mut parts).map_err(refusal)
}

impl Subject for VolumeSubject {
    fn create(&mut self, name: &[u8], mode: u32) -> Answer<()> {
        let root = self.volume().root().map_err(refusal)?;
        root.create_new(self.path(name), &Attributes::new().mode(mode))
            .map(drop)
            .map_err(refusal)
    }

    fn mkdir(&mut self, name: &[u8], mode: u32) -> Answer<()> {
        self.volume()
            .create_dir(self.path(name), &Attributes::new().mode(mode))
            .map(drop)
            .map_err(refusal)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8]) -> Answer<()> {
        self.volume()
            .symlink(
                OsStr::from_bytes(target),
                self.path(name),
                &Attributes::new(),
            )
            .map_err(refusal)
    }

    fn mknod(&mut self, name: &[u8], kind: FileKind, mode: u32, device: (u32, u32)) -> Answer<()> {
        let number = Some(DeviceNumber {
            major: device.0,
            minor: device.1,
        });
        let (kind, number) = match kind {
            FileKind::Fifo => (FileType::Fifo, None),
            FileKind::Socket => (FileType::Socket, None),
            FileKind::CharDevice => (FileType::CharDevice, number),
            _ => (FileType::BlockDevice, number),
        };
        self.volume()
            .make_node(self.path(name), kind, number, &Attributes::new().mode(mode))
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
            .rename(self.path(from), self.path(to), mode)
            .map_err(refusal)
    }

    fn write(&mut self, name: &[u8], offset: u64, data: &[u8]) -> Answer<usize> {
        write(&self.file(name)?, offset, data)
    }

    fn read(&mut self, name: &[u8], offset: u64, to: &mut [u8]) -> Answer<usize> {
        read(&self.file(name)?, offset, to)
    }

    fn truncate(&mut self, name: &[u8], len: u64) -> Answer<()> {
        self.file(name)?.set_len(len).map_err(refusal)
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
        self.file(name)?
            .allocate(mode, offset, len)
            .map_err(refusal)
    }

    fn seek_data(&mut self, name: &[u8], offset: u64) -> Answer<Option<u64>> {
        self.file(name)?.seek_data(offset).map_err(refusal)
    }

    fn seek_hole(&mut self, name: &[u8], offset: u64) -> Answer<Option<u64>> {
        self.file(name)?.seek_hole(offset).map_err(refusal)
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
            links: metadata.links(),
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
                        entry.file_type().map(kind),
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

    fn keep(&mut self, name: &[u8]) -> Answer<()> {
        let file = self.file(name)?;
        self.kept = Some(file);
        Ok(())
    }

    fn write_kept(&mut self, offset: u64, data: &[u8]) -> Answer<usize> {
        write(self.kept_file()?, offset, data)
    }

    fn read_kept(&mut self, offset: u64, to: &mut [u8]) -> Answer<usize> {
        read(self.kept_file()?, offset, to)
    }

    fn close_kept(&mut self) -> Answer<()> {
        self.kept = None;
        Ok(())
    }

    fn sync(&mut self) -> Answer<()> {
        self.volume().sync().map_err(refusal)
    }

    fn reopen(&mut self) -> Answer<()> {
        self.kept = None;
        if !self.prefix.is_empty() {
            return self.sync(); // others use the volume
        }
        if let Some(volume) = self.volume.take().and_then(Arc::into_inner) {
            volume.close().map_err(refusal)?;
        }
        let volume = OpenOptions::new()
            .open_device(Arc::clone(&self.device))
            .map_err(refusal)?;
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
    /// The regular file itself, not what a symbolic link leads to.
    fn file(&self, name: &[u8]) -> Answer<File> {
        let metadata = self
            .volume()
            .symlink_metadata(self.path(name))
            .map_err(refusal)?;
        if metadata.is_symlink() {
            return Err(Refusal::Invalid);
        }
        self.volume().open_file(self.path(name)).map_err(refusal)
    }

    fn kept_file(&self) -> Answer<&File> {
        self.kept
            .as_ref()
            .ok_or_else(|| Refusal::Other("no file is kept: a bug of the test".into()))
    }
}

//! Our engine as the target: files of an image, a plain file or block device, memory, a device model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use throughline::{Advice, FileOptions, OpenOptions, RawFile, Volume, memory};
use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice};
use throughline_models::MODELS;

use super::made::new_image;
use super::{Access, Needs, Target, file_name, room, too_short};
use crate::explain::ours::{Watched, listening};
use crate::streams::targets::Place;
use crate::{Error, Result};

use super::super::{SyncPolicy, Workload};

/// A file of ours.
struct OurFile {
    place: Place,
    /// A device cannot change its length.
    resizable: bool,
}

impl Access for OurFile {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.place.read_exact_at(at, buf)?)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.place.write_all_at(at, bytes)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.place.sync_all()?)
    }

    fn empty(&self) -> Result<()> {
        if self.resizable {
            self.place.set_len(0)?;
        }
        Ok(())
    }

    fn settle(&self, forget: bool) -> Result<()> {
        self.sync()?;
        if forget {
            self.place.advise(Advice::DontNeed, 0, 0)?;
        }
        Ok(())
    }
}

/// As the workload wants files opened.
fn file_options(workload: &Workload) -> FileOptions {
    let mut options = FileOptions::new();
    options
        .direct(workload.direct)
        .data_sync(workload.sync == SyncPolicy::Dsync);
    options
}

fn disk_facts(disk: &Disk) -> BTreeMap<String, Value> {
    let info = disk.info();
    [
        ("device".to_owned(), info.name.clone().into()),
        ("engine".to_owned(), info.engine.into()),
        ("device opened direct".to_owned(), info.direct.into()),
        (
            "bio target, bytes".to_owned(),
            disk.bio_target_bytes().into(),
        ),
    ]
    .into()
}

/// A plain file, a device, memory.
pub(super) struct Raw {
    /// Given up before what was made goes.
    file: Option<RawFile>,
    /// Who listens to it, if the run is explained.
    watched: Option<Arc<Watched>>,
    options: FileOptions,
    as_it_is: bool,
    /// To be removed.
    made: Option<PathBuf>,
}

impl Raw {
    pub(super) fn open(path: &Path, needs: &Needs<'_>) -> Result<Raw> {
        let there = path.exists();
        let as_it_is = there && needs.existing(&path.display().to_string())?;
        let watched = needs.watch.map(|watch| watch.path(path));
        let file = needs
            .options
            .clone()
            .create(!there)
            .read_only(as_it_is)
            .listener(listening(watched.as_ref()))
            .open_raw(path)?;
        let mut raw = Raw::on(file, watched, needs);
        raw.as_it_is = as_it_is;
        raw.made = (!there).then(|| path.to_owned());
        let resizable = raw.disk()?.is_resizable();
        let (len, end) = (raw.disk()?.len_bytes(), needs.workload.file_end());
        if len < end && (as_it_is || !resizable) {
            return Err(too_short(len, end));
        }
        if !as_it_is && resizable {
            room(std::fs::File::open(path)?, end.saturating_sub(len))?;
        }
        Ok(raw)
    }

    pub(super) fn memory(needs: &Needs<'_>) -> Result<Raw> {
        let (end, allowed) = (needs.workload.file_end(), memory::allowed_bytes());
        if end > allowed {
            return Err(Error::new(format!(
                "{end} bytes are more than this process may have, {allowed}: make size or offset smaller"
            )));
        }
        let device = MemoryDevice::new(end.next_multiple_of(4096));
        Raw::device("memory", Arc::new(device), needs)
    }

    pub(super) fn model(name: &str, needs: &Needs<'_>) -> Result<Raw> {
        let none = || {
            let names: Vec<_> = MODELS.iter().map(|model| model.name).collect();
            Error::new(format!("no model '{name}'; there are {}", names.join(", ")))
        };
        let model = throughline_models::find(name).ok_or_else(none)?;
        let device = throughline_models::Options::new().open(model);
        let (len, end) = (device.len_bytes(), needs.workload.file_end());
        if end > len {
            return Err(too_short(len, end));
        }
        let mut raw = Raw::device(name, Arc::new(device), needs)?;
        // It keeps no bytes: to write it out would take its time for nothing.
        raw.as_it_is = true;
        Ok(raw)
    }

    fn device(name: &str, device: Arc<dyn BlockDevice>, needs: &Needs<'_>) -> Result<Raw> {
        let watched = needs.watch.map(|watch| watch.named(name));
        let file = needs
            .options_of_new()
            .listener(listening(watched.as_ref()))
            .open_raw_device(device)?;
        Ok(Raw::on(file, watched, needs))
    }

    fn on(file: RawFile, watched: Option<Arc<Watched>>, needs: &Needs<'_>) -> Raw {
        if let Some(watched) = &watched {
            watched.opened_raw(&file, needs.workload.direct);
        }
        Raw {
            file: Some(file),
            watched,
            options: file_options(needs.workload),
            as_it_is: false,
            made: None,
        }
    }

    /// Closes it; the second time nothing.
    fn end(&mut self) -> Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        if let Some(watched) = &self.watched {
            watched.closing_raw(&file);
        }
        Ok(file.close()?)
    }

    fn file(&self) -> Result<&RawFile> {
        let closed = || Error::new("it is closed");
        self.file.as_ref().ok_or_else(closed)
    }

    fn disk(&self) -> Result<&Arc<Disk>> {
        self.file().map(RawFile::disk)
    }
}

impl Target for Raw {
    fn open(&self, _number: u32) -> Result<Arc<dyn Access>> {
        let file = self.file()?;
        let resizable = file.disk().is_resizable();
        let place = Place::Plain(file.reopen(&self.options)?);
        Ok(Arc::new(OurFile { place, resizable }))
    }

    fn has_many(&self) -> bool {
        false
    }

    fn as_it_is(&self) -> bool {
        self.as_it_is
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.disk()
            .map_or_else(|_| BTreeMap::new(), |disk| disk_facts(disk))
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // What it says was to be heard by close().
        let _ = self.end();
        if let Some(path) = &self.made {
            // Its folder may be gone with it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Files of an image.
pub(super) struct Image {
    volume: Option<Volume>,
    /// Who listens to it, if the run is explained.
    watched: Option<Arc<Watched>>,
    options: FileOptions,
    /// The one file that is worked on, if it was named.
    named: Option<String>,
    as_it_is: bool,
    /// Paths to be removed.
    made: Mutex<Vec<String>>,
    facts: BTreeMap<String, Value>,
}

impl Image {
    /// On an image that is there.
    pub(super) fn open(path: &Path, file: Option<&str>, needs: &Needs<'_>) -> Result<Image> {
        let mut image = Image::on_image(path, needs.options, needs)?;
        let Some(name) = file else { return Ok(image) };
        if let Ok(metadata) = image.volume()?.metadata(name) {
            image.as_it_is = needs.existing(name)?;
            let (len, end) = (metadata.len(), needs.workload.file_end());
            if image.as_it_is && len < end {
                return Err(too_short(len, end));
            }
        } else {
            image.note_made(name);
        }
        image.named = Some(name.to_owned());
        Ok(image)
    }

    /// On a new one, which has no name any more once it is open.
    pub(super) fn make(mkfs: &[String], needs: &Needs<'_>) -> Result<Image> {
        let new = new_image("ext4", mkfs, needs)?;
        let mut image = Image::on_image(&new.path(), &needs.options_of_new(), needs)?;
        image.facts.insert("mkfs".into(), new.command().into());
        // A name that no two runs share, and that is gone.
        image.facts.remove("device");
        Ok(image)
    }

    fn on_image(path: &Path, options: &OpenOptions, needs: &Needs<'_>) -> Result<Image> {
        let watched = needs.watch.map(|watch| watch.path(path));
        let volume = options
            .clone()
            .listener(listening(watched.as_ref()))
            .open(path)?;
        if let Some(watched) = &watched {
            watched.opened(&volume);
        }
        Ok(Image {
            facts: disk_facts(volume.disk()),
            volume: Some(volume),
            watched,
            options: file_options(needs.workload),
            named: None,
            as_it_is: false,
            made: Mutex::default(),
        })
    }

    fn volume(&self) -> Result<&Volume> {
        let closed = || Error::new("it is closed");
        self.volume.as_ref().ok_or_else(closed)
    }

    fn note_made(&self, name: &str) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.iter().any(|one| one == name) {
            made.push(name.to_owned());
        }
    }

    /// Removes what was made and closes the volume.
    fn end(&mut self) -> Result<()> {
        let Some(volume) = self.volume.take() else {
            return Ok(());
        };
        let made = std::mem::take(self.made.get_mut().unwrap_or_else(PoisonError::into_inner));
        let there = |name: &&String| volume.metadata(name).is_ok();
        let mut made = made.iter().filter(there);
        let removed = made.try_for_each(|name| volume.remove_file(name));
        if let Some(watched) = &self.watched {
            watched.closing(&volume);
        }
        Ok(removed.and(volume.close())?)
    }
}

impl Target for Image {
    fn open(&self, number: u32) -> Result<Arc<dyn Access>> {
        let name = match &self.named {
            Some(name) => name.clone(),
            None => format!("/{}", file_name(number)),
        };
        if self.named.is_none() {
            self.note_made(&name);
        }
        let mut options = self.options.clone();
        let file = options.create(!self.as_it_is).open(self.volume()?, &name)?;
        Ok(Arc::new(OurFile {
            place: Place::InImage(file),
            resizable: true,
        }))
    }

    fn has_many(&self) -> bool {
        self.named.is_none()
    }

    fn as_it_is(&self) -> bool {
        self.as_it_is
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.facts.clone()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // What it says was to be heard by close().
        let _ = self.end();
    }
}

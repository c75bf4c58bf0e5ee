//! Our engine as the target: files in an image, a plain file or block device, memory, or a device model.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use throughline::internal::{OpenBlockDevice, RawLayers};
use throughline::{Advice, FileOptions, OpenOptions};
use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice};
use throughline_explain::ours::{Watched, listening};
use throughline_models::MODELS;

use super::made::new_image;
use super::{Access, Needs, Target, file_name, room, too_short};
use crate::streams::targets::{Opened, Place};
use crate::{Error, Result};

use super::super::SyncPolicy;

/// A file opened by our engine.
struct OurFile {
    place: Place,
    /// Whether its length can be changed. A device has a fixed length.
    resizable: bool,
}

impl Access for OurFile {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.place.read_exact_at(buf, at)?)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.place.write_all_at(bytes, at)?)
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

    fn write_back(&self, forget: bool) -> Result<()> {
        self.sync()?;
        if forget {
            self.place.advise(Advice::DontNeed, 0, 0)?;
        }
        Ok(())
    }
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

/// A target of our engine.
pub(super) struct Ours {
    /// Must be dropped before the created files are removed.
    opened: Option<Opened>,
    /// Observes its I/O, if the run is explained.
    watched: Option<Arc<Watched>>,
    options: FileOptions,
    /// For an image: the only file to use, if one was named.
    named: Option<String>,
    as_it_is: bool,
    /// A plain file to remove.
    made: Option<PathBuf>,
    /// Paths of files in the image to remove.
    made_inside: RefCell<BTreeSet<String>>,
    facts: BTreeMap<String, Value>,
}

impl Ours {
    /// Opens a plain file or a block device.
    pub(super) fn raw(path: &Path, needs: &Needs<'_>) -> Result<Ours> {
        let there = path.exists();
        let as_it_is = there && needs.existing(&path.display().to_string())?;
        let watched = needs.watch.map(|watch| watch.path(path));
        let file = needs
            .options
            .clone()
            .create(!there)
            .write(!as_it_is)
            .listener(listening(watched.as_ref()))
            .open_raw(path)?;
        let (len, resizable) = (file.disk().len_bytes(), file.disk().is_resizable());
        let mut raw = Ours::on(Opened::Raw(file), watched, needs);
        raw.as_it_is = as_it_is;
        raw.made = (!there).then(|| path.to_owned());
        let end = needs.workload.file_end();
        if len < end && (as_it_is || !resizable) {
            return Err(too_short(len, end));
        }
        if !as_it_is && resizable {
            room(std::fs::File::open(path)?, end.saturating_sub(len))?;
        }
        Ok(raw)
    }

    pub(super) fn memory(needs: &Needs<'_>) -> Result<Ours> {
        let (end, allowed) = (
            needs.workload.file_end(),
            throughline_fileio::memory::allowed_bytes(),
        );
        if end > allowed {
            return Err(Error::new(format!(
                "{end} bytes are more memory than this process may use, {allowed}: make size or offset \
                 smaller"
            )));
        }
        let device = MemoryDevice::new(end.next_multiple_of(4096));
        Ours::device("memory", Arc::new(device), needs)
    }

    pub(super) fn model(name: &str, needs: &Needs<'_>) -> Result<Ours> {
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
        let mut raw = Ours::device(name, Arc::new(device), needs)?;
        // The model stores no data, so laying out files would waste time.
        raw.as_it_is = true;
        Ok(raw)
    }

    fn device(name: &str, device: Arc<dyn BlockDevice>, needs: &Needs<'_>) -> Result<Ours> {
        let watched = needs.watch.map(|watch| watch.named(name));
        let file = needs
            .options_of_new()
            .listener(listening(watched.as_ref()))
            .open_raw_block_device(device)?;
        Ok(Ours::on(Opened::Raw(file), watched, needs))
    }

    /// Opens an existing image.
    pub(super) fn image(path: &Path, file: Option<&str>, needs: &Needs<'_>) -> Result<Ours> {
        let mut image = Ours::volume(path, needs.options, needs)?;
        if let (Some(name), Some(Opened::Volume(volume))) = (file, &image.opened) {
            match volume.metadata(name) {
                Ok(metadata) => {
                    image.as_it_is = needs.existing(name)?;
                    let (len, end) = (metadata.len(), needs.workload.file_end());
                    if image.as_it_is && len < end {
                        return Err(too_short(len, end));
                    }
                }
                Err(_) => {
                    image.made_inside.borrow_mut().insert(name.to_owned());
                }
            }
            image.named = Some(name.to_owned());
        }
        Ok(image)
    }

    /// Makes a new image, and unlinks it once it is open.
    pub(super) fn new_image(mkfs: &[String], needs: &Needs<'_>) -> Result<Ours> {
        let new = new_image("ext4", mkfs, &needs.site())?;
        let mut image = Ours::volume(&new.path(), &needs.options_of_new(), needs)?;
        image.facts.insert("mkfs".into(), new.command().into());
        // The device's path is unique to the run, and already unlinked.
        image.facts.remove("device");
        Ok(image)
    }

    fn volume(path: &Path, options: &OpenOptions, needs: &Needs<'_>) -> Result<Ours> {
        let watched = needs.watch.map(|watch| watch.path(path));
        let volume = options
            .clone()
            .listener(listening(watched.as_ref()))
            .open(path)?;
        Ok(Ours::on(Opened::Volume(volume), watched, needs))
    }

    fn on(opened: Opened, watched: Option<Arc<Watched>>, needs: &Needs<'_>) -> Ours {
        let w = needs.workload;
        match (&watched, &opened) {
            (Some(watched), Opened::Raw(file)) => watched.opened_raw(file, w.direct),
            (Some(watched), Opened::Volume(volume)) => watched.opened(volume),
            (None, _) => {}
        }
        let mut options = FileOptions::new();
        options
            .direct(w.direct)
            .data_sync(w.sync == SyncPolicy::Dsync);
        Ours {
            facts: disk_facts(opened.disk()),
            opened: Some(opened),
            watched,
            options,
            named: None,
            as_it_is: false,
            made: None,
            made_inside: RefCell::default(),
        }
    }

    /// Removes what was created in an image, and closes it. Later calls do nothing.
    fn end(&mut self) -> Result<()> {
        let made = self.made_inside.take();
        match self.opened.take() {
            None => Ok(()),
            Some(Opened::Raw(file)) => {
                self.watched.iter().for_each(|w| w.closing_raw(&file));
                Ok(file.close()?)
            }
            Some(Opened::Volume(volume)) => {
                let there = |name: &&String| volume.metadata(name).is_ok();
                let mut made = made.iter().filter(there);
                let removed = made.try_for_each(|name| volume.remove_file(name));
                self.watched.iter().for_each(|w| w.closing(&volume));
                Ok(removed.and(volume.close())?)
            }
        }
    }
}

impl Target for Ours {
    fn open(&self, number: u32) -> Result<Arc<dyn Access>> {
        let mut options = self.options.clone();
        Ok(Arc::new(match &self.opened {
            None => return Err(Error::new("it is closed")),
            Some(Opened::Raw(file)) => OurFile {
                resizable: file.disk().is_resizable(),
                place: Place::Plain(file.reopen(&options)?),
            },
            Some(Opened::Volume(volume)) => {
                let name = match &self.named {
                    Some(name) => name.clone(),
                    None => format!("/{}", file_name(number)),
                };
                if self.named.is_none() {
                    self.made_inside.borrow_mut().insert(name.clone());
                }
                let file = options.create(!self.as_it_is).open(volume, &name)?;
                OurFile {
                    place: Place::InImage(file),
                    resizable: true,
                }
            }
        }))
    }

    fn has_many(&self) -> bool {
        matches!(self.opened, Some(Opened::Volume(_))) && self.named.is_none()
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

impl Drop for Ours {
    fn drop(&mut self) {
        // The error is returned only by close().
        let _ = self.end();
        if let Some(path) = &self.made {
            // It may have been removed together with its directory.
            let _ = std::fs::remove_file(path);
        }
    }
}

//! [`ModelDevice`]: a model as a device that accepts requests.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_device::{
    BlockDevice, DeviceInfo, DeviceKind, Limits, MemoryDevice, NullDevice, Queue, Request,
};

use crate::clock::Clock;
use crate::model::{Law, Model};
use crate::queue::ModelQueue;
use crate::timetable::{CommandStage, Timetable, Work};

/// Where the bytes are stored.
#[derive(Clone, Default)]
pub enum Content {
    /// Writes are discarded and **reads leave the memory unchanged**: for the cost of the path and the law
    /// alone.
    #[default]
    Nothing,
    /// Memory stores what is written. Unwritten ranges read as zeros and take no memory.
    Memory,
    /// Another device stores the bytes; it should be faster than the model, and determines the length.
    Device(Arc<dyn BlockDevice>),
}

/// Options for a device made from a model.
#[derive(Clone, Default)]
pub struct Options {
    content: Content,
    len_bytes: Option<u64>,
    clock: Option<Clock>,
}

impl Options {
    /// No content, the model's length, real time.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets where the bytes are stored.
    pub fn content(mut self, content: Content) -> Options {
        self.content = content;
        self
    }

    /// Sets the length in bytes, rounded down to logical blocks. Default: the model's.
    pub fn len_bytes(mut self, len_bytes: u64) -> Options {
        self.len_bytes = Some(len_bytes);
        self
    }

    /// Sets the clock. Default: the machine's.
    pub fn clock(mut self, clock: Clock) -> Options {
        self.clock = Some(clock);
        self
    }

    /// Creates the device.
    pub fn open(self, model: &Model) -> ModelDevice {
        ModelDevice::new(model, self)
    }
}

/// State shared by the queues of a device.
pub(crate) struct Shared {
    pub(crate) model: Model,
    pub(crate) clock: Clock,
    len_bytes: u64,
    timing: Mutex<Timing>,
}

struct Timing {
    timetable: Timetable,
    commands: CommandStage,
}

impl Shared {
    /// Returns an error if the request is invalid.
    pub(crate) fn refuses(&self, request: &Request) -> io::Result<()> {
        // As in a kernel, exceeding the maximum transfer size is no error.
        self.model.limits.admit(request, self.len_bytes)
    }

    /// Admits the request now and returns its completion time. `own` is the queue's own command stage, if it
    /// has one.
    pub(crate) fn admit(&self, own: Option<&mut CommandStage>, work: Work) -> u64 {
        let mut timing = self.timing.lock();
        let Timing {
            timetable,
            commands,
        } = &mut *timing;
        // Read with the lock held, so that requests are admitted in the order of their times.
        timetable.admit(self.clock.now_ns(), own.unwrap_or(commands), work)
    }
}

/// A device with the timing of its model.
pub struct ModelDevice {
    info: DeviceInfo,
    content: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
}

impl ModelDevice {
    fn new(model: &Model, options: Options) -> ModelDevice {
        let block = u64::from(model.limits.logical_block_bytes.max(1));
        let wanted = options.len_bytes.unwrap_or(model.len_bytes);
        let len_bytes = wanted - wanted % block;
        // The model splits long requests, so the content has no limits of its own.
        let limits = Limits {
            max_transfer_bytes: u32::MAX,
            max_segments: u32::MAX,
            virt_boundary_mask: 0,
            ..model.limits
        };
        let content: Arc<dyn BlockDevice> = match options.content {
            Content::Nothing => Arc::new(NullDevice::with_limits(len_bytes, limits)),
            Content::Memory => Arc::new(MemoryDevice::with_limits(len_bytes, limits)),
            Content::Device(device) => device,
        };
        let info = DeviceInfo {
            name: format!("model:{}", model.name),
            kind: DeviceKind::Other,
            engine: "model",
            direct: true,
            read_only: content.info().read_only,
            limits: model.limits,
        };
        let shared = Shared {
            len_bytes: content.len_bytes(),
            model: *model,
            clock: options.clock.unwrap_or_else(Clock::real),
            timing: Mutex::new(Timing {
                timetable: Timetable::new(model),
                commands: CommandStage::new(model),
            }),
        };
        ModelDevice {
            info,
            content,
            shared: Arc::new(shared),
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Sets the speed as a multiple of the model's, such as 0.98, from now on: no two runs of a real disk are
    /// alike. A factor that is not a positive number counts as 1.
    pub fn set_speed(&self, factor: f64) {
        let Law { bytes_per_s, .. } = self.shared.model.law;
        let factor = match factor.is_finite() && factor > 0.0 {
            true => factor,
            false => 1.0,
        };
        let bytes_per_s = (bytes_per_s as f64 * factor).round() as u64;
        let mut timing = self.shared.timing.lock();
        timing.timetable.set_bytes_per_s(bytes_per_s);
    }
}

impl BlockDevice for ModelDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.shared.len_bytes
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        let content = self.content.open_queue()?;
        Ok(Box::new(ModelQueue::new(Arc::clone(&self.shared), content)))
    }
}

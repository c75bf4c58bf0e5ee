//! [`ModelDevice`]: a model as a device that requests can be sent to.

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

/// What becomes of the bytes.
#[derive(Clone, Default)]
pub enum Content {
    /// Writes vanish, and **reads leave the memory as it is**: the path and the law alone.
    #[default]
    Nothing,
    /// Memory keeps what is written; what never was reads as zeros and takes no room.
    Memory,
    /// Another device keeps it, which should be faster than the model; the model is as long as it is.
    Device(Arc<dyn BlockDevice>),
}

/// How a device is made from a model.
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

    /// What becomes of the bytes.
    pub fn content(mut self, content: Content) -> Options {
        self.content = content;
        self
    }

    /// Another length than the model's. Whole logical blocks; what is left over is cut off.
    pub fn len_bytes(mut self, len_bytes: u64) -> Options {
        self.len_bytes = Some(len_bytes);
        self
    }

    /// Another clock than the machine's.
    pub fn clock(mut self, clock: Clock) -> Options {
        self.clock = Some(clock);
        self
    }

    /// The device.
    pub fn open(self, model: &Model) -> ModelDevice {
        ModelDevice::new(model, self)
    }
}

/// What the queues of a device share.
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
    /// Why the request cannot be carried out, if so.
    pub(crate) fn refuses(&self, request: &Request) -> io::Result<()> {
        // As a kernel: longer than a transfer is no fault.
        self.model.limits.admit(request, self.len_bytes)
    }

    /// When it will be done, handed over now; `own` is the queue's command stage, where it has one.
    pub(crate) fn admit(&self, own: Option<&mut CommandStage>, work: Work) -> u64 {
        let mut timing = self.timing.lock();
        let Timing {
            timetable,
            commands,
        } = &mut *timing;
        // Read with the lock held, so that works come in the order of their times.
        timetable.admit(self.clock.now_ns(), own.unwrap_or(commands), work)
    }
}

/// A device that takes as long as its model says.
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
        // The model has split what is too long, or refused it.
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

    /// The model it is made from.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// The clock it runs by.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// From now on moves bytes at this multiple of its model's speed, such as 0.98: no two runs of a disk are alike.
    /// A factor that is no positive number is taken as 1.
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

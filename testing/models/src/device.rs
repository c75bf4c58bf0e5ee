//! [`ModelDevice`]: a model as a device that accepts requests.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_device::{BlockDevice, DeviceInfo, DeviceKind, Limits, NullDevice, Queue, Request};

use crate::clock::Clock;
use crate::model::{Law, Model};
use crate::queue::ModelQueue;
use crate::timetable::{Timetable, Work};

/// State shared by the queues of a device.
pub(crate) struct Shared {
    pub(crate) model: Model,
    pub(crate) clock: Clock,
    len_bytes: u64,
    timetable: Mutex<Timetable>,
}

impl Shared {
    /// Returns an error if the request is invalid.
    pub(crate) fn refuses(&self, request: &Request) -> io::Result<()> {
        // As in a kernel, exceeding the maximum transfer size is no error.
        self.model.limits.admit(request, self.len_bytes)
    }

    /// Admits the request now and returns its completion time. `own` is the queue's own command stage, if it
    /// has one.
    pub(crate) fn admit(&self, work: Work) -> u64 {
        let mut timetable = self.timetable.lock();
        // Read with the lock held, so that requests are admitted in the order of their times.
        timetable.admit(self.clock.now_ns(), work)
    }
}

/// A device with the timing of its model.
pub struct ModelDevice {
    info: DeviceInfo,
    content: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
}

impl ModelDevice {
    /// A device over `content`, which stores the bytes, should be faster than the model, and determines the
    /// length. Without one, the device has the model's length, writes are discarded and **reads leave the
    /// memory unchanged**: for the cost of the path and the law alone.
    pub fn new(model: &Model, content: Option<Arc<dyn BlockDevice>>, clock: Clock) -> ModelDevice {
        let content = content.unwrap_or_else(|| {
            // The model splits long requests, so the content has no limits of its own.
            let limits = Limits {
                max_transfer_bytes: u32::MAX,
                max_segments: u32::MAX,
                ..model.limits
            };
            Arc::new(NullDevice::with_limits(model.len_bytes, limits))
        });
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
            clock,
            timetable: Mutex::new(Timetable::new(model)),
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
        self.shared.timetable.lock().set_bytes_per_s(bytes_per_s);
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

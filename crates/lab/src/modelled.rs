//! Device models and memory in experiments.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use throughline_device::{BlockDevice, MemoryDevice, Op, Segment, scope};
use throughline_models::{Clock, ModelDevice, find};

use crate::meter::Spent;
use crate::{Error, Result};

/// Loads an image file into a memory device.
pub(crate) fn load_image(image: &Path) -> Result<MemoryDevice> {
    let content = std::fs::read(image)?;
    let device = MemoryDevice::new(content.len() as u64);
    let mut queue = device.open_queue()?;
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (number, chunk) in content.chunks(1 << 20).enumerate() {
            scope.submit(
                number as u64,
                Op::Write,
                (number << 20) as u64,
                [Segment::Write(chunk)],
                false,
            );
            scope.reap(1, &mut done);
        }
    });
    done.into_iter().try_for_each(|d| d.result)?;
    Ok(device)
}

/// Opens the device model with this name, over this content, or none.
pub(crate) fn open(name: &str, content: Option<Arc<dyn BlockDevice>>) -> Result<ModelDevice> {
    let model = find(name).ok_or_else(|| Error::new(format!("no device model '{name}'")))?;
    Ok(ModelDevice::new(model, content, Clock::real()))
}

/// The time that a model had spent spinning, instead of waiting for a timer, when this value was created.
/// Spinning is not work of the measured path.
pub(crate) struct Spun<'a> {
    clock: Option<&'a Clock>,
    before_ns: u64,
}

impl Spun<'_> {
    /// Reads the time spent so far; `clock` is `None` if there is no model.
    pub(crate) fn of(clock: Option<&Clock>) -> Spun<'_> {
        Spun {
            before_ns: clock.map_or(0, Clock::spun_ns),
            clock,
        }
    }

    /// Subtracts the time spent spinning since then.
    pub(crate) fn taken_from(&self, spent: Spent) -> Spent {
        let now_ns = self.clock.map_or(0, Clock::spun_ns);
        let spun = Duration::from_nanos(now_ns.saturating_sub(self.before_ns));
        Spent {
            cpu: spent.cpu.saturating_sub(spun),
            machine_cpu: spent.machine_cpu.saturating_sub(spun),
            ..spent
        }
    }
}

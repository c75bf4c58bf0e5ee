//! The report's reads on the model of its phone, both storage and processor.

use std::cell::RefCell;
use std::sync::Arc;

use throughline_device::Op;

use super::{Build, CALLS_PER_SAMPLE, Way, ordinary_memory, page_aligned};
use crate::interleave::Variant;
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings, modelled};

/// The report's two workloads: call sizes of 32 MiB and 64 MiB. With the latter, a sample reads 512 MiB.
const CALLS_MIB: [usize; 2] = [32, 64];
const _: () = assert!(CALLS_MIB[1] * CALLS_PER_SAMPLE == 512);

fn label(mib: usize) -> String {
    format!("phone model, {mib} MiB read")
}

pub(super) fn measure(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    for mib in CALLS_MIB {
        let device = modelled::open("ufs-phone", None)?;
        let way = Way::over(Arc::new(device), None)?;
        let mut memory = ordinary_memory(mib);
        let buffer = RefCell::new(page_aligned(&mut memory, mib));
        let sample = |build| way.sample(Op::Read, &mut buffer.borrow_mut(), build);
        let of = |what: &str| format!("{}: {what}", label(mib));
        let variants = [
            Variant::new(of("ours"), || sample(Build::Pipelined)),
            Variant::new(of("whole request"), || sample(Build::Whole)),
        ];
        outcome.measure(settings, 15, variants)?;
    }
    outcome.note(
        "phone model: 'ufs-phone'; the processor time for each page and request is that of the \
        model, and is really spent",
    );
    Ok(())
}

pub(super) fn bars(outcome: &mut Outcome) {
    let [small, large] = CALLS_MIB.map(|mib| {
        let of = |what: &str| format!("{}: {what}", label(mib));
        (of("ours"), of("whole request"))
    });
    let of = |what: &str| format!("phone model, {what}");
    ratios! { outcome;
        of("512 MiB by 64 MiB: ours / whole request") => "throughput", large.0, large.1, at_least 1.05;
        of("32 MiB read: ours / whole request (19 / 17)")
            => "throughput", small.0, small.1, at_least 19.0 / 17.0;
        of("32 MiB read: first submit, whole request / ours")
            => "first submit", small.1, small.0, at_least 20.0;
    }
}
